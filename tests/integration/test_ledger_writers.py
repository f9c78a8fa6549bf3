"""Several writers of one ledger: fenced by their epochs, one after the other, never waited for by readers."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from admission.accounting.books import Book
from admission.errors import DeposedError, LedgerCorruptError, LedgerUnavailableError
from admission.ledger import sql_ledger
from admission.ledger.db import engines
from admission.ledger.journal import post, projection
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, ON_SQLITE, a_gang, a_grant, file_of


async def test_a_deposed_leader_is_refused_also_through_another_connection(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=3)
    async with SqlLedger.open(url, CLUSTER) as successor:
        await successor.fence(4)

    with pytest.raises(DeposedError, match=r"epoch 3 .* epoch 4"):
        await ledger.post(a_gang(), epoch=3)
    with pytest.raises(DeposedError):
        await ledger.post(a_grant(), epoch=3)
    with pytest.raises(DeposedError):
        await ledger.fence(3)
    await ledger.fence(4)
    assert await ledger.load() == Book.replay([a_grant()])


async def test_a_post_with_a_higher_epoch_deposes_lower_epochs(ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=1)
    await ledger.post(a_gang(), epoch=7)

    with pytest.raises(DeposedError):
        await ledger.post(a_gang("other"), epoch=6)


async def test_the_first_fence_needs_no_earlier_row(ledger: SqlLedger) -> None:
    await ledger.fence(9)

    with pytest.raises(DeposedError):
        await ledger.post(a_grant(), epoch=8)
    assert (await ledger.verify()).ok


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite lets nobody write meanwhile
async def test_books_that_change_while_they_are_read_are_read_again(
    url: str, ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of two states do not fit together, and look like a ledger that is damaged."""
    await ledger.post(a_grant(), epoch=1)
    read = projection.read
    torn: list[bool] = []

    async def read_in_parts(*words: Any) -> Book:
        if not torn:
            torn.append(True)
            async with SqlLedger.open(url, CLUSTER) as other:
                monkeypatch.setattr(projection, "read", read)
                await other.post(a_gang("other"), epoch=1)
            raise LedgerCorruptError("the holding of a gang that is not there")
        return await read(*words)

    monkeypatch.setattr(projection, "read", read_in_parts)
    posted = await ledger.post(a_gang(), epoch=1)

    assert torn
    assert posted.sequence == 3
    assert (await ledger.verify()).ok


async def test_books_that_are_damaged_are_not_read_again(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    await ledger.post(a_grant(), epoch=1)

    async def damaged(*_: Any) -> Book:
        raise LedgerCorruptError("the holding of a gang that is not there")

    monkeypatch.setattr(projection, "read", damaged)
    with pytest.raises(LedgerCorruptError, match="the holding of a gang"):
        await ledger.post(a_gang(), epoch=1)


POSTER = """
import asyncio, sys
sys.path.insert(0, {root!r})
from admission.errors import DeposedError
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, a_gang

async def main():
    async with SqlLedger.open({url!r}, CLUSTER) as ledger:
        for number in range({count}):
            try:
                await ledger.post(a_gang(f"{name}-{{number}}"), epoch={epoch})
            except DeposedError:
                print("deposed")
                return

asyncio.run(main())
"""


async def a_process(url: str, name: str, *, count: int, epoch: int) -> str:
    root = str(Path(__file__).parents[2])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        POSTER.format(root=root, url=url, name=name, count=count, epoch=epoch),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().strip()


async def test_two_processes_that_post_at_once_make_one_chain(url: str, ledger: SqlLedger) -> None:
    await asyncio.gather(*(a_process(url, name, count=20, epoch=1) for name in ("one", "two")))

    verification = await ledger.verify()
    assert verification.ok
    assert verification.transactions == 40
    assert len((await ledger.load()).placements) == 40


async def test_a_deposed_process_is_refused(url: str, ledger: SqlLedger) -> None:
    await ledger.fence(2)

    assert await a_process(url, "old", count=1, epoch=1) == "deposed"
    assert await ledger.load() == Book()


async def test_concurrent_posts_of_two_ledgers_serialise(url: str, ledger: SqlLedger) -> None:
    async with SqlLedger.open(url, CLUSTER) as other:
        await asyncio.gather(
            *((ledger if number % 2 else other).post(a_gang(f"g{number}"), epoch=1) for number in range(20))
        )

    assert (await ledger.verify()).transactions == 20


async def test_a_cancelled_post_is_whole_or_absent_and_the_next_one_works(ledger: SqlLedger) -> None:
    for number in range(15):
        post = asyncio.create_task(ledger.post(a_gang(f"g{number}"), epoch=1))
        for _ in range(number * 4):
            await asyncio.sleep(0)
        post.cancel()
        await asyncio.gather(post, return_exceptions=True)

    for number in range(15):
        await ledger.post(a_gang(f"g{number}"), epoch=1)
    verification = await ledger.verify()
    assert verification.ok
    assert verification.transactions == 15


@ON_SQLITE
async def test_a_writer_cancelled_at_any_step_leaves_no_lock(url: str, ledger: SqlLedger) -> None:
    whole = 0
    for number in range(300):
        post = asyncio.create_task(ledger.post(a_gang(f"g{number}"), epoch=1))
        for _ in range(number % 60):
            await asyncio.sleep(0.0001)
        post.cancel()
        # Twice, as where a term ends and with it the process.
        await asyncio.sleep(0.0001 * (number % 3))
        post.cancel()
        (outcome,) = await asyncio.gather(post, return_exceptions=True)
        whole += not isinstance(outcome, BaseException)
        await asyncio.to_thread(lock_and_let_go, file_of(url))

    assert 0 < whole < 300


def lock_and_let_go(file: Path) -> None:
    """Take SQLite's write lock as another process would; raises OperationalError when somebody keeps it."""
    with closing(sqlite3.connect(file, timeout=3.0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")


@ON_SQLITE
async def test_a_lock_held_by_another_program_is_waited_for_and_then_reported(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(sql_ledger, "PATIENCE", 0.1)
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        async with SqlLedger.open(url, CLUSTER) as ledger:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerUnavailableError, match=r"ledger0\.db does not answer: database is locked"):
                await ledger.post(a_gang(), epoch=1)
            other.execute("ROLLBACK")

            await ledger.post(a_gang(), epoch=1)


async def test_a_writer_that_is_always_overtaken_gives_up_for_now(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(*_: object, **__: object) -> None:
        raise post.OvertakenError

    await ledger.fence(1)
    monkeypatch.setattr(post, "_move_head", overtaken)
    monkeypatch.setattr(sql_ledger, "PATIENCE", 0.1)

    with pytest.raises(LedgerUnavailableError, match="busy"):
        await ledger.post(a_grant(), epoch=1)
    with pytest.raises(LedgerUnavailableError, match="busy"):
        await ledger.fence(2)


@ON_SQLITE
async def test_reading_does_not_wait_for_a_writer(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=1)
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await ledger.load() == Book.replay([a_grant()])
