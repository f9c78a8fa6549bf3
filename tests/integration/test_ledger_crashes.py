"""Processes killed -9 in the middle of postings: what was acknowledged is there, once."""

from collections.abc import Callable

import pytest

from admission.ledger.sql_ledger import SqlLedger
from tests.integration import ledgers, posters
from tests.integration.ledgers import CLUSTER, GPU, QUEUE
from tests.postgres import Server

KILLS = 4


async def check(url: str, acknowledged: list[int], *, in_flight: int) -> None:
    """Nothing acknowledged is lost, nothing is doubled; of the posters, each may have left one batch unacknowledged."""
    kept = [key for (key,) in ledgers.rows(url, "SELECT key FROM transactions ORDER BY sequence")]
    entries = [posters.entry(number) for number in range(1, len(kept) + 1)]
    assert kept == [entry.key for entry in entries]
    assert acknowledged == list(range(1, len(acknowledged) + 1))
    assert len(acknowledged) <= len(kept) <= len(acknowledged) + in_flight * posters.BATCH
    async with SqlLedger.open(url, CLUSTER) as ledger:
        verification = await ledger.verify()
        assert verification.ok, verification.finding
        assert verification.transactions == len(kept)
        assert (await ledger.load()).nominal(QUEUE, GPU) == len(kept)


@pytest.mark.parametrize("end", [Server.kill, Server.stop], ids=["killed", "stopped"])
async def test_postgresql_that_ends_in_the_middle_of_postings_loses_and_doubles_nothing(
    durable_postgres: Server, durable_url: str, end: Callable[[Server], None]
) -> None:
    with posters.posting(durable_url) as poster:
        for _ in range(KILLS):
            poster.wait_for(60)
            end(durable_postgres)
            durable_postgres.start()
        poster.wait_for(60)
        poster.kill()

    await check(durable_url, poster.acknowledged, in_flight=1)


async def test_a_poster_killed_in_the_middle_of_postings_loses_and_doubles_nothing(url: str) -> None:
    acknowledged: list[int] = []
    for epoch in range(1, KILLS + 1):
        # It begins where its predecessor's acknowledgements end, and may find what that one wrote and could not tell.
        with posters.posting(url, epoch=epoch, first=len(acknowledged) + 1) as poster:
            poster.wait_for(40 + epoch)
            poster.kill()
        acknowledged += poster.acknowledged

    await check(url, acknowledged, in_flight=1)
