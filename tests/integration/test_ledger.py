"""The ledger on real SQLite files: posting, loading, fencing, repeating, waiting."""

import asyncio
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from datetime import timedelta, timezone
from pathlib import Path

import asyncpg
import pytest
from blockbuster import blockbuster_ctx
from sqlalchemy.exc import DBAPIError

from admission.api.entries import Bucket
from admission.api.names import GangUid, QueueName, Uid
from admission.errors import (
    ConflictError,
    DeposedError,
    LedgerAwayError,
    LedgerCorruptError,
    LedgerVersionError,
    MendError,
    PageError,
)
from admission.ledger import failures, migrating, posting, sessions, tables, urls
from admission.ledger import ledger as ledgers_
from admission.ledger.ledger import SqlLedger
from admission.quota import books
from admission.quota.books import Allocated, Book
from tests.integration.conftest import Fresh
from tests.integration.ledgers import (
    AT,
    CLUSTER,
    GPU,
    ON_POSTGRESQL,
    ON_SQLITE,
    QUEUE,
    a_gang,
    a_grant,
    a_history,
    file_of,
    minutes,
    rows,
    run,
    tamper,
    url_of,
)

REFUSED = (sqlite3.IntegrityError, asyncpg.RaiseError)
"""What a trigger's refusal is to the drivers."""


async def test_a_new_ledger_is_empty(ledger: SqlLedger) -> None:
    assert await ledger.load() == Book()


async def test_what_was_posted_is_there_after_a_restart(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        posted = [await ledger.post(entry, epoch=1) for entry in a_history()]

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await ledger.load() == Book.replay(a_history())
    assert [p.sequence for p in posted] == [1, 2, 3, 4, 5, 6]
    assert len({p.digest for p in posted}) == 6


async def test_times_keep_their_microseconds_and_come_back_in_utc(ledger: SqlLedger) -> None:
    at = (AT + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=5, minutes=45)))

    await ledger.post(a_gang(at=at), epoch=1)

    reserved_at = (await ledger.load()).placements[GangUid("gang")].reserved_at
    assert reserved_at == at
    assert reserved_at.utcoffset() == timedelta(0)


async def test_amounts_beyond_64_bits_are_exact(ledger: SqlLedger) -> None:
    largest = 10**38 - 1
    await ledger.post(a_grant(largest), epoch=1)
    await ledger.post(a_gang(gpu=2**63 + 1), epoch=1)

    book = await ledger.load()

    assert book.balance(QUEUE, GPU, Bucket.FREE) == largest - 2**63 - 1
    assert book.placements[GangUid("gang")].holdings[Uid("gang-claim-0")].charge == {GPU: 2**63 + 1}
    assert (await ledger.verify()).ok


@ON_SQLITE
@pytest.mark.parametrize("amount", ["1.0", "1e3", "+1", "-0", "01", "", " 1", "1-", "--1", "9" * 39, b"1"])
async def test_sqlite_refuses_text_that_is_not_a_whole_number(url: str, amount: str | bytes) -> None:
    with closing(sqlite3.connect(file_of(url))) as connection:
        connection.execute("INSERT INTO clusters VALUES ('east', 1, 0, '')")
        with pytest.raises(sqlite3.IntegrityError, match="amount_is_whole"):
            connection.execute("INSERT INTO balances VALUES ('east', 'q', 'm', 'free', ?)", (amount,))


async def test_clusters_share_a_database_and_nothing_in_it(url: str) -> None:
    async with SqlLedger.open(url, "east") as east, SqlLedger.open(url, "west") as west:
        assert (await east.post(a_gang(), epoch=5)).sequence == 1
        assert (await west.post(a_gang(), epoch=1)).sequence == 1

        assert (await east.load()) == (await west.load()) == Book.replay([a_gang()])
        assert (await east.verify()).digest != (await west.verify()).digest


async def test_an_entry_posted_again_changes_nothing_and_says_so(ledger: SqlLedger) -> None:
    first = await ledger.post(a_gang(), epoch=1)
    await ledger.post(a_grant(), epoch=1)

    again = await ledger.post(a_gang(), epoch=2)

    assert again == replace(first, repeated=True)
    assert (await ledger.verify()).transactions == 2


async def test_a_movement_decided_again_with_another_time_is_still_the_same(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]
    await ledger.post(books.evict(placement, at=minutes(1), actor="muster", reason="StartTimedOut"), epoch=1)

    again = await ledger.post(books.evict(placement, at=minutes(2), actor="muster", reason="again"), epoch=1)

    assert again.repeated


async def test_a_key_that_says_something_else_is_no_repetition(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(PageError, match="says something else"):
        await ledger.post(replace(a_gang(gpu=2), key=a_gang().key), epoch=1)


async def test_a_gang_taken_back_can_be_placed_again_with_the_same_pods_and_claims(ledger: SqlLedger) -> None:
    for attempt in range(3):
        assert not (await ledger.post(a_gang(at=minutes(attempt)), epoch=1)).repeated
        placement = (await ledger.load()).placements[GangUid("gang")]
        evicted = books.evict(placement, at=minutes(attempt), actor="muster", reason="StartTimedOut")
        assert not (await ledger.post(evicted, epoch=1)).repeated

    left = await ledger.load()
    assert (left.placements, left.balances) == ({}, {})
    assert (await ledger.verify()).transactions == 6


async def test_entries_made_for_another_book_are_refused_and_leave_nothing_behind(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]
    other = replace(placement, reserved_at=minutes(9), seats={}, holdings={})
    ghost = Book().apply(a_gang("ghost")).placements[GangUid("ghost")]
    stale = [
        a_gang(at=minutes(1)),
        replace(a_gang("late", at=minutes(1)), gang_uid=GangUid("gang"), queue=QueueName("team-b")),
        books.evict(ghost, at=minutes(1), actor="muster", reason=""),
        books.evict(replace(other, seats=ghost.seats), at=minutes(1), actor="muster", reason=""),
        books.settle(ghost, {Uid("ghost-claim-0"): Allocated((), {})}, at=minutes(1), actor="muster"),
    ]

    for entry in stale:
        assert entry is not None
        with pytest.raises(ConflictError):
            await ledger.post(entry, epoch=1)

    assert await ledger.load() == Book.replay([a_gang()])
    assert (await ledger.verify()).transactions == 1


async def test_a_claim_settled_by_another_process_is_not_settled_twice(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]
    both = [
        books.settle(placement, {Uid("gang-claim-0"): Allocated((), {GPU: gpu})}, at=minutes(1), actor="muster")
        for gpu in (1, 2)
    ]
    assert both[0] is not None
    assert both[1] is not None
    await ledger.post(both[0], epoch=1)

    with pytest.raises(ConflictError):
        await ledger.post(both[1], epoch=1)


async def test_an_unbalanced_entry_is_refused(ledger: SqlLedger) -> None:
    with pytest.raises(PageError, match="sum to"):
        await ledger.post(replace(a_gang(), postings=a_gang().postings[:1]), epoch=1)


async def test_a_gang_of_thousands_fits_into_one_entry(ledger: SqlLedger) -> None:
    entry = a_gang(claims=1200)
    await ledger.post(entry, epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]

    await ledger.post(books.evict(placement, at=minutes(1), actor="muster", reason="late"), epoch=1)

    left = await ledger.load()
    assert (left.placements, left.balances) == ({}, {})


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


async def test_a_higher_epoch_raises_the_stored_one(ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=1)
    await ledger.post(a_gang(), epoch=7)

    with pytest.raises(DeposedError):
        await ledger.post(a_gang("other"), epoch=6)


async def test_the_first_fence_needs_no_earlier_row(ledger: SqlLedger) -> None:
    await ledger.fence(9)

    with pytest.raises(DeposedError):
        await ledger.post(a_grant(), epoch=8)
    assert (await ledger.verify()).ok


POSTER = """
import asyncio, sys
sys.path.insert(0, {root!r})
from admission.errors import DeposedError
from admission.ledger.ledger import SqlLedger
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
async def test_a_lock_held_by_another_program_is_waited_for_and_then_reported(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "BUSY_SECONDS", 0.05)
    monkeypatch.setattr(ledgers_, "PATIENCE", 0.1)
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        async with SqlLedger.open(url, CLUSTER) as ledger:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(LedgerAwayError, match=r"ledger0\.db does not answer: database is locked"):
                await ledger.post(a_gang(), epoch=1)
            other.execute("ROLLBACK")

            await ledger.post(a_gang(), epoch=1)


async def test_a_writer_that_is_always_overtaken_gives_up_for_now(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def overtaken(*_: object, **__: object) -> None:
        raise posting.OvertakenError

    await ledger.fence(1)
    monkeypatch.setattr(posting, "_move", overtaken)
    monkeypatch.setattr(ledgers_, "PATIENCE", 0.1)

    with pytest.raises(LedgerAwayError, match="busy"):
        await ledger.post(a_grant(), epoch=1)
    with pytest.raises(LedgerAwayError, match="busy"):
        await ledger.fence(2)


@ON_SQLITE
async def test_reading_does_not_wait_for_a_writer(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_grant(), epoch=1)
    with closing(sqlite3.connect(file_of(url), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert await ledger.load() == Book.replay([a_grant()])


APPEND_ONLY = {
    "UPDATE transactions SET reason = 'other'": "transactions are append-only",
    "DELETE FROM transactions": "transactions are append-only",
    "UPDATE postings SET amount = '0'": "postings are append-only",
    "DELETE FROM postings": "postings are append-only",
}


@pytest.mark.parametrize(("statement", "said"), APPEND_ONLY.items(), ids=APPEND_ONLY)
async def test_the_books_are_append_only(url: str, ledger: SqlLedger, statement: str, said: str) -> None:
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(REFUSED, match=said):
        run(url, statement)
    assert (await ledger.verify()).ok


REPLACED = {
    "a transaction at its place": "REPLACE INTO transactions SELECT * FROM transactions",
    "a transaction by its key": (
        "REPLACE INTO transactions SELECT cluster, 9, format, epoch, key, kind, at, actor, reason, queue, on_behalf_of,"
        " user, gang_uid, gang, seats, holdings, closes, previous, digest FROM transactions"
    ),
    "lines": "INSERT OR REPLACE INTO postings SELECT * FROM postings",
}


@ON_SQLITE
@pytest.mark.parametrize("statement", REPLACED.values(), ids=REPLACED)
async def test_the_books_are_not_replaced(url: str, ledger: SqlLedger, statement: str) -> None:
    """SQLite removes the row that is in the way, and tells no trigger on DELETE."""
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(REFUSED, match="are append-only"):
        run(url, statement)
    assert (await ledger.verify()).ok


@ON_POSTGRESQL
async def test_the_books_are_not_truncated(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(asyncpg.RaiseError, match="are append-only"):
        run(url, "TRUNCATE transactions CASCADE")


@ON_SQLITE
async def test_a_commit_survives_a_loss_of_power(ledger: SqlLedger) -> None:
    async with sessions.reading(ledger._engine) as connection:
        pragmas = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}


async def test_a_ledger_that_does_not_exist_is_not_made_in_passing(tmp_path: Path) -> None:
    path = tmp_path / "none.db"

    with pytest.raises(LedgerVersionError, match=r"no ledger at .*none\.db: run `muster ledger migrate`"):
        async with SqlLedger.open(url_of(path), CLUSTER):
            pass
    assert not path.exists()


async def test_a_file_without_tables_is_refused_with_the_mend(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()

    with pytest.raises(LedgerVersionError, match=r"no tables yet: run `muster ledger migrate`"):
        async with SqlLedger.open(url_of(path), CLUSTER):
            pass


async def test_an_older_ledger_is_refused_with_the_mend(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers_, "REVISION", "9998")
    words = f"at revision {tables.REVISION}, older than 9998: run `muster ledger migrate`"

    with pytest.raises(LedgerVersionError, match=words):
        async with SqlLedger.open(url, CLUSTER):
            pass


async def test_a_newer_ledger_is_refused_naming_both_revisions(url: str) -> None:
    tamper(url, "UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(LedgerVersionError, match=f"9999.*{tables.REVISION}"):
        async with SqlLedger.open(url, CLUSTER):
            pass


async def test_a_file_that_is_no_database_is_refused_with_the_mend(tmp_path: Path) -> None:
    path = tmp_path / "garbage.db"
    path.write_bytes(b"not a database, but long enough to be taken for one" * 100)

    with pytest.raises(LedgerCorruptError, match=r"garbage\.db cannot be read .* restore a backup"):
        async with SqlLedger.open(url_of(path), CLUSTER):
            pass


def damage_seats(url: str) -> None:
    ((root,),) = rows(url, "SELECT rootpage FROM sqlite_master WHERE name = 'open_seats'")
    assert isinstance(root, int)
    with file_of(url).open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 4096)


@ON_SQLITE
async def test_a_damaged_page_is_reported_with_the_mend(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_gang(claims=200), epoch=1)
    damage_seats(url)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        with pytest.raises(LedgerCorruptError, match=r"malformed.*restore a backup"):
            await ledger.load()


@ON_SQLITE
async def test_a_full_disk_is_told_with_the_mend(ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers_, "PATIENCE", 0.0)
    await ledger.post(a_grant(), epoch=1)
    async with sessions.reading(ledger._engine) as connection:
        await connection.exec_driver_sql("PRAGMA max_page_count = 1")

    with pytest.raises(LedgerAwayError, match="disk is full: make room on its disk"):
        await ledger.post(a_gang(claims=2000), epoch=1)


async def test_a_row_beyond_the_head_stops_the_posting(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_grant(), epoch=1)
        await ledger.post(a_gang(), epoch=1)
        tamper(url, "UPDATE clusters SET sequence = 1")

        with pytest.raises(LedgerCorruptError, match="run `muster ledger verify`"):
            await ledger.post(a_gang("other"), epoch=1)


async def test_the_loop_is_never_blocked(new_database: Fresh) -> None:
    url = new_database()
    with blockbuster_ctx("admission") as blockbuster:
        # For each new connection asyncpg looks for ~/.pgpass and ~/.postgresql, as libpq does.
        for function in blockbuster.functions.values():
            function.can_block_in("asyncpg/connect_utils.py", "_parse_connect_dsn_and_args")
            # Migrations run in a thread, in a loop of its own; the frames of a greenlet begin with its work.
            function.can_block_in("admission/ledger/migrating.py", ("_connected", "on"))
        await migrating.migrate(url)
        async with SqlLedger.open(url, CLUSTER) as ledger:
            for entry in a_history():
                await ledger.post(entry, epoch=1)
            await ledger.load()
            await ledger.verify()
            await ledger.statement(None, AT, minutes(9))


class PostgresqlError(Exception):
    def __init__(self, sqlstate: str) -> None:
        super().__init__("as PostgreSQL says")
        self.sqlstate = sqlstate


FAILURES = {
    "a lost connection": ("08006", LedgerAwayError),
    "a deadlock": ("40P01", LedgerAwayError),
    "too many connections": ("53300", LedgerAwayError),
    "a lock that is not to be had": ("55P03", LedgerAwayError),
    "a shutdown": ("57P01", LedgerAwayError),
    "no such database": ("3D000", MendError),
    "a wrong password": ("28P01", MendError),
    "no permission": ("42501", MendError),
}


@pytest.mark.parametrize(("state", "meant"), FAILURES.values(), ids=FAILURES)
def test_what_postgresql_says_is_translated(state: str, meant: type[Exception]) -> None:
    url = urls.parsed("postgresql://muster@db/muster")
    with pytest.raises(meant, match="as PostgreSQL says"), failures.translated(url):
        raise DBAPIError("SELECT 1", {}, PostgresqlError(state))
