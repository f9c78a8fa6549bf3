"""Whichever call of the ledger fails, for however long: a gang starts once, and the ledger ends right."""

from typing import Any

import pytest

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Kind
from tests.builders import NOON
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, kinds, run
from tests.unit.cycle.test_outages import MINUTE, Failing, a_town


async def life(cluster: Cluster, ledger: Ledger) -> None:
    """A gang starts, runs for ten minutes, and ends; a cycle follows each of these, and some more."""
    leader = a_leader(cluster, ledger)
    started: Any = ()
    for minute in range(20):
        now = NOON + minute * MINUTE
        started = started or cluster.schedule(leader.mirror.book)
        if minute == 12:
            cluster.finish(started)
        await run(leader, now)


@pytest.mark.parametrize("carried_out", [False, True], ids=["refused", "answer lost"])
@pytest.mark.parametrize("calls", [1, 2, 4])
@pytest.mark.parametrize("first", range(12))
async def test_a_gang_starts_once_and_the_ledger_ends_right_whichever_call_fails(
    first: int, calls: int, carried_out: bool
) -> None:
    cluster, ledger = a_town(), Failing(first, calls, carried_out=carried_out)

    await life(cluster, ledger)

    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RELEASE]
    assert sorted(cluster.opened) == [("train-0", "a"), ("train-1", "a")]
    assert ledger.book.usage() == {}
    assert ledger.book == Book.replay(ledger.entries)
