"""`muster ledger close`, as an operator types it; and closing while a leader writes, or dying half-way."""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from admission.accounting import books
from admission.api.values.names import QueueName
from admission.cli.ledger import command as ledger_command, verify as verify_command
from admission.errors import FixError
from admission.ledger.audit import close_period
from admission.ledger.audit.close_period import Order
from admission.ledger.db import database_url, engines
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, a_grant, a_history, minutes, rows

REASON = "March is over"


async def write(url: str) -> None:
    """Post a short history, and a mark after it."""
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all(a_history(), epoch=1)
        mark = books.usage(await ledger.load(), at=minutes(60), actor="muster")
        assert mark is not None
        await ledger.post_all([mark], epoch=1)


def order(folder: Path) -> Order:
    return Order(before=minutes(90), folder=folder, actor="root@host", reason=REASON, at=minutes(10_000))


def command(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(ledger_command.app, list(words))
    if isinstance(result.exception, FixError):
        raise result.exception
    return result.exit_code, result.stdout


def of(url: str) -> tuple[str, ...]:
    return ("--database", url, "--cluster", CLUSTER)


def test_a_period_is_closed_verified_and_closed_no_second_time(url: str, tmp_path: Path) -> None:
    asyncio.run(write(url))
    close = ("close", "--before", "2026-04-01", "--archive", str(tmp_path / "archive"), "--format", "json", *of(url))

    code, first = command(*close)
    again_code, again = command(*close)

    said: dict[str, Any] = json.loads(first)
    assert (code, again_code) == (0, 0)
    assert (said["closed"], said["sequence"], said["transactions"]) == (True, 7, 7)
    assert said["until"] == "2026-03-01T13:00:00Z"
    assert (tmp_path / "archive" / said["archive"]).exists()
    assert json.loads(again) == {"cluster": CLUSTER, "closed": False}
    _, verified = command("verify", *of(url))
    assert "8 transactions, 7 of them archived" in verified
    _, replayed = command("verify", "--archive", str(tmp_path / "archive"), "--format", "json", *of(url))
    assert json.loads(replayed)["closed"] == 0
    assert json.loads(replayed)["ok"]


def test_an_archive_that_is_lost_is_named(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(write(url))
    command("close", "--before", "2026-04-01", "--archive", str(tmp_path / "archive"), *of(url))

    code, answer = command("verify", "--archive", str(tmp_path), "--format", "json", *of(url))

    finding = json.loads(answer)["finding"]
    assert (code, finding["what"], finding["sequence"]) == (verify_command.BROKEN, "archive differs", 1)
    assert "it is not in" in finding["detail"]


@pytest.mark.parametrize(
    ("days", "message"),
    [(-1, "is not over yet"), (3, "keep 7 days open"), (None, "is no date or time")],
    ids=["a time to come", "a time too young", "no time"],
)
def test_a_time_that_cannot_be_closed_is_refused(url: str, tmp_path: Path, days: int | None, message: str) -> None:
    before = "soon" if days is None else (datetime.now(UTC) - timedelta(days=days)).isoformat()

    with pytest.raises(FixError, match=message):
        command("close", "--before", before, "--archive", str(tmp_path / "archive"), *of(url))

    assert not (tmp_path / "archive").exists()


async def test_a_leader_writes_on_while_a_period_is_closed(url: str, tmp_path: Path) -> None:
    await write(url)
    async with SqlLedger.open(url, CLUSTER) as leader, SqlLedger.open(url, CLUSTER) as operator:

        async def lead() -> None:
            for number in range(20):
                entry = a_grant(1, queue=QueueName(f"queue-{number}"), at=minutes(20_000))
                await leader.post_all([entry], epoch=1)

        _, carried = await asyncio.gather(lead(), operator.close_period(order(tmp_path)))

        assert carried is not None
        assert await leader.sequence() == 28
        assert (await leader.verify(archive=tmp_path)).ok


async def test_a_closing_that_dies_before_its_commit_leaves_the_books_as_they_were(url: str, tmp_path: Path) -> None:
    class DiedError(Exception):
        pass

    async def close_and_die(ledger: SqlLedger) -> None:
        async with ledger.snapshot() as connection:
            prepared = await close_period.prepare(connection, CLUSTER, order(tmp_path))
        assert prepared is not None
        async with engines.engine(database_url.parsed(url)) as engine, engines.writing(engine) as connection:
            await close_period.commit(connection, prepared, order(tmp_path))
            raise DiedError

    await write(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        before = await ledger.load()
        with pytest.raises(DiedError):
            await close_and_die(ledger)

        assert await ledger.load() == before
        assert (await ledger.verify()).ok
        assert await asyncio.to_thread(rows, url, "SELECT count(*) FROM closings") == [(0,)]
        carried = await ledger.close_period(order(tmp_path))
        assert carried is not None
        assert (await ledger.verify(archive=tmp_path)).ok


async def test_a_closing_whose_answer_was_lost_is_done_once(url: str, tmp_path: Path) -> None:
    await write(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        async with ledger.snapshot() as connection:
            prepared = await close_period.prepare(connection, CLUSTER, order(tmp_path))
        assert prepared is not None
        for _ in range(2):
            async with engines.engine(database_url.parsed(url)) as engine, engines.writing(engine) as connection:
                await close_period.commit(connection, prepared, order(tmp_path))

        assert await ledger.sequence() == 8
        assert (await ledger.verify()).ok
