"""Closing a period: what is left, what is carried, what is archived, and that nobody can change any of it unseen."""

import asyncio
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from admission.accounting import books
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry, Kind
from admission.api.values.names import GangUid
from admission.errors import ConflictError, FixError, LedgerCorruptError
from admission.ledger.audit import archive, close_period
from admission.ledger.audit.close_period import Order
from admission.ledger.audit.verify import What
from admission.ledger.journal.carry_forward import Carried
from admission.ledger.sql_ledger import SqlLedger
from tests import soaking
from tests.integration.conftest import Fresh
from tests.integration.ledgers import CLUSTER, a_gang, a_grant, a_history, database_of, forge, minutes, rows, run
from tests.property.histories import histories

REASON = "March is over"


@dataclass
class Office:
    """A ledger, and the folder of its archives."""

    url: str
    folder: Path

    async def post(self, entries: Sequence[Entry]) -> None:
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            for entry in entries:
                await ledger.post(entry, epoch=1)

    async def close(self, before: datetime) -> Carried | None:
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            return await ledger.close_period(self.order(before))

    def order(self, before: datetime) -> Order:
        return Order(before=before, folder=self.folder, actor="root@host", reason=REASON, at=minutes(10_000))

    async def closed(self, before: datetime) -> Carried:
        carried = await self.close(before)
        assert carried is not None
        return carried

    async def finding(self, *, archive: bool = False) -> tuple[What, int] | None:
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            found = (await ledger.verify(archive=self.folder if archive else None)).finding
        return None if found is None else (found.what, found.sequence)

    async def detail(self, *, archive: bool = False) -> str:
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            found = (await ledger.verify(archive=self.folder if archive else None)).finding
        return found.detail if found else ""

    async def load(self) -> Book:
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            return await ledger.load()


@pytest.fixture
def office(url: str, tmp_path: Path) -> Office:
    return Office(url, tmp_path / "archives")


def marked(entries: Sequence[Entry], minute: int) -> list[Entry]:
    """Return the entries and a mark after them."""
    mark = books.usage(Book.replay(entries), at=minutes(minute), actor="muster")
    assert mark is not None
    return [*entries, mark]


def a_long_history() -> list[Entry]:
    """Return three periods: something is open at the end of each, and used over it."""
    first = marked(a_history(), 60)
    second = marked([*first, a_gang("three", at=minutes(70)), a_grant(2, at=minutes(71))], 120)
    return [*second, a_gang("four", at=minutes(130)), *evicted(second, minutes(131))]


def evicted(entries: Sequence[Entry], at: datetime) -> Iterator[Entry]:
    yield books.evict(Book.replay(entries).placements[GangUid("three")], at=at, actor="muster", reason="late")


async def test_the_ledger_loads_the_same_book_after_a_closing(office: Office) -> None:
    await office.post(a_long_history())
    before = await office.load()

    carried = await office.closed(minutes(90))

    after = await office.load()
    assert (after.placements, after.balances, after.owners) == (before.placements, before.balances, before.owners)
    assert (after.marked, after.accruals) == (before.marked, before.accruals)
    assert after.sequence == before.sequence + 1
    assert (carried.sequence, carried.transactions, carried.previous) == (7, 7, 0)
    assert rows(office.url, "SELECT min(sequence), max(sequence) FROM transactions") == [(8, 13)]
    assert rows(office.url, "SELECT min(sequence) FROM postings") == [(8,)]
    assert await office.finding() is None
    assert await office.finding(archive=True) is None


async def test_books_go_on_after_a_closing_and_are_closed_again(office: Office) -> None:
    history = a_long_history()
    await office.post(history)
    first = await office.closed(minutes(60))
    second = await office.closed(minutes(10_000))
    await office.post([a_gang("five", at=minutes(20_000))])

    assert (first.sequence, second.previous, second.sequence) == (7, 7, 10)
    assert await office.close(minutes(10_000)) is None
    assert await office.finding() is None
    assert await office.finding(archive=True) is None
    book = Book.replay([*history, a_gang("five", at=minutes(20_000))])
    loaded = await office.load()
    assert (loaded.placements, loaded.balances, loaded.accruals) == (book.placements, book.balances, book.accruals)


async def test_the_archive_holds_the_rows_as_they_were(office: Office) -> None:
    history = a_long_history()
    await office.post(history)

    carried = await office.closed(minutes(60))

    path = office.folder / carried.archive
    header = archive.header(path)
    assert [record.entry for record in archive.records(path)] == history[:7]
    assert (header.cluster, header.first, header.last, header.digest) == (CLUSTER, 1, 7, carried.digest)
    assert carried.archive.startswith("east-20260301T130000Z-1-7-")
    assert archive.digest_of(path) == carried.archive_digest
    assert [file.name for file in office.folder.iterdir()] == [carried.archive]


async def test_nothing_is_closed_before_the_first_mark(office: Office) -> None:
    await office.post(a_history())

    assert await office.close(minutes(10_000)) is None
    assert not list(office.folder.glob("*"))


async def test_a_closing_does_not_depose_the_leader(office: Office) -> None:
    await office.post(a_long_history())
    async with SqlLedger.open(office.url, CLUSTER) as leader:
        await leader.fence(7)
        await office.closed(minutes(90))
        (posted,) = await leader.post_all([a_gang("five", at=minutes(20_000))], epoch=7)

    assert posted.sequence == 14, "the gap tells the leader that somebody else has written"
    assert await office.finding() is None


async def test_the_close_entry_names_actor_reason_and_archive(office: Office) -> None:
    await office.post(a_long_history())

    carried = await office.closed(minutes(90))

    ((kind, actor, reason, key),) = rows(
        office.url, "SELECT kind, actor, reason, key FROM transactions WHERE kind = 'close'"
    )
    assert (kind, actor, key) == (Kind.CLOSE, "root@host", carried.key)
    assert REASON in str(reason)
    assert carried.archive in str(reason)
    assert carried.archive_digest in str(reason)


@pytest.mark.parametrize("attempt", ["as it was", "other"])
async def test_a_closing_that_died_after_its_archive_is_repeated(office: Office, attempt: str) -> None:
    await office.post(a_long_history())
    async with SqlLedger.open(office.url, CLUSTER) as ledger, ledger.snapshot() as connection:
        prepared = await close_period.prepare(connection, CLUSTER, office.order(minutes(90)))
    assert prepared is not None
    orphan = office.folder / prepared.carried.archive
    digest = archive.digest_of(orphan)
    if attempt == "other":
        orphan.write_bytes(b"half a file")

    carried = await office.closed(minutes(90))

    assert carried.archive == orphan.name
    assert archive.digest_of(orphan) == carried.archive_digest == digest
    assert await office.finding(archive=True) is None


async def test_of_two_concurrent_period_closings_one_gets_a_conflict(office: Office) -> None:
    await office.post(a_long_history())
    async with SqlLedger.open(office.url, CLUSTER) as east, SqlLedger.open(office.url, CLUSTER) as west:
        outcomes = await asyncio.gather(
            east.close_period(office.order(minutes(60))),
            west.close_period(office.order(minutes(10_000))),
            return_exceptions=True,
        )

    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, Carried)] == [ConflictError]
    assert await office.finding() is None


async def test_wrong_books_are_not_closed(office: Office) -> None:
    await office.post(a_long_history())
    forge(office.url, "UPDATE transactions SET reason = 'another' WHERE sequence = 3")

    with pytest.raises(LedgerCorruptError, match="wrong at transaction 3 and cannot be closed"):
        await office.close(minutes(90))

    assert not list(office.folder.iterdir())
    assert rows(office.url, "SELECT count(*) FROM transactions") == [(12,)]


async def test_a_closing_into_an_unwritable_folder_fails_with_that_reason(office: Office) -> None:
    await office.post(a_long_history())
    office.folder.write_text("a file")

    with pytest.raises(FixError, match="--archive"):
        await office.close(minutes(90))


TAMPERED = {
    "a balance in the text that was carried": "UPDATE closings SET state = replace(state, 'free', 'used')",
    "the text of an earlier closing": "UPDATE closings SET state = replace(state, 'free', 'used') WHERE sequence = 7",
    "the digest of the archive": "UPDATE closings SET archive_digest = digest WHERE sequence = 10",
    "the digest of the last transaction": "UPDATE closings SET digest = archive_digest WHERE sequence = 10",
    "use that was carried": "UPDATE carried_usage SET seconds = '1' WHERE sequence = 7",
    "when it was closed": "UPDATE closings SET at = '2026-03-08T10:41:00.000000+00:00' WHERE sequence = 7",
    "use that was removed": "DELETE FROM carried_usage WHERE sequence = 10",
    "the latest closing": "DELETE FROM carried_usage WHERE sequence = 10; DELETE FROM closings WHERE sequence = 10",
    "an earlier closing": "DELETE FROM carried_usage WHERE sequence = 7; DELETE FROM closings WHERE sequence = 7",
    "the entry that vouches": "DELETE FROM postings WHERE sequence = 14; DELETE FROM transactions WHERE sequence = 14",
    "the key that vouches": "UPDATE transactions SET key = 'close:10:0' WHERE sequence = 14",
    "a transaction after the closing": "UPDATE transactions SET actor = 'x' WHERE sequence = 11",
    "the first transaction after the closing": "UPDATE transactions SET actor = 'x' WHERE sequence = 12",
}


@pytest.mark.parametrize("statements", TAMPERED.values(), ids=TAMPERED)
async def test_a_change_of_what_was_carried_is_found(office: Office, statements: str) -> None:
    await office.post(a_long_history())
    await office.closed(minutes(60))
    await office.closed(minutes(10_000))
    assert await office.finding() is None

    forge(office.url, *statements.split("; "))

    assert await office.finding() is not None


ILLEGIBLE = {
    "a time of use in another form, which sorts elsewhere": "carried_usage SET until = replace(until, 'T', 't')",
    "a time of use that is none": "carried_usage SET until = 'noon'",
    "use that is no number": "carried_usage SET seconds = 'x'",
    "bytes instead of a queue": "carried_usage SET queue = x'00'",
    "a meter that is not UTF-8": "carried_usage SET meter = CAST(x'ff' AS TEXT)",
    "a time that is none": "closings SET at = 'noon'",
    "bytes instead of what was carried": "closings SET state = x'00'",
    "what was carried is not UTF-8": "closings SET state = CAST(x'ff' AS TEXT)",
}


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("change", ILLEGIBLE.values(), ids=ILLEGIBLE)
async def test_unreadable_rows_of_a_closing_are_found(office: Office, change: str) -> None:
    """SQLite keeps whatever it is given, of any type."""
    await office.post(a_long_history())
    await office.closed(minutes(60))

    forge(office.url, "PRAGMA ignore_check_constraints = ON", f"UPDATE {change}")

    assert await office.finding() == (What.CARRIED, 7)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
@pytest.mark.parametrize("at", ["20000-01-01", "4000-01-01 BC", "infinity"])
async def test_a_time_that_python_cannot_hold_is_found(office: Office, at: str) -> None:
    await office.post(a_long_history())

    forge(office.url, f"UPDATE transactions SET at = '{at}' WHERE sequence = 2")  # noqa: S608 - our own text

    assert await office.finding() == (What.CHANGED, 2)


async def test_triggers_keep_what_is_not_closed_and_the_closings_themselves(office: Office) -> None:
    await office.post(a_long_history())
    await office.closed(minutes(60))

    for statement in (
        "DELETE FROM postings WHERE sequence = 8",
        "DELETE FROM transactions WHERE sequence = 11",
        "UPDATE closings SET archive = 'x'",
        "DELETE FROM closings",
        "DELETE FROM carried_usage",
    ):
        with pytest.raises(Exception, match="append-only"):
            run(office.url, statement)
    if database_of(office.url) == "sqlite":
        for table in ("closings", "carried_usage"):
            with pytest.raises(Exception, match="append-only"):
                run(office.url, f"REPLACE INTO {table} SELECT * FROM {table}")  # noqa: S608 - our own names


async def test_an_archive_that_was_changed_is_named(office: Office) -> None:
    await office.post(a_long_history())
    carried = await office.closed(minutes(60))
    path = office.folder / carried.archive
    lines = gzip.decompress(path.read_bytes()).splitlines()
    lines[3] = json.dumps(json.loads(lines[3]) | {"reason": "another"}).encode()
    path.write_bytes(gzip.compress(b"\n".join(lines)))

    assert await office.finding() is None
    assert await office.finding(archive=True) == (What.ARCHIVE, 1)
    assert carried.archive in await office.detail(archive=True)


async def test_archives_that_were_exchanged_or_lost_are_named(office: Office) -> None:
    await office.post(a_long_history())
    first, second = await office.closed(minutes(60)), await office.closed(minutes(10_000))
    one, two = office.folder / first.archive, office.folder / second.archive
    kept = two.read_bytes()

    two.unlink()
    assert await office.finding(archive=True) == (What.ARCHIVE, 8)
    assert f"archive {second.archive}: it is not in" in await office.detail(archive=True)

    two.write_bytes(one.read_bytes())
    one.write_bytes(kept)
    assert await office.finding(archive=True) == (What.ARCHIVE, 1)


@settings(max_examples=soaking.examples(8), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=histories(max_size=20), data=st.data())
def test_closings_at_any_time_leave_the_book_the_same(
    new_ledger: Fresh, tmp_path: Path, history: list[Entry], data: st.DataObject
) -> None:
    office = Office(new_ledger(), tmp_path / "archives")
    last = books.usage(Book.replay(history), at=minutes(50_000), actor="muster")
    history = [*history, *([last] if last else [])]
    points = data.draw(st.lists(st.sampled_from([entry.at for entry in history]), max_size=3))
    asyncio.run(_check(office, history, sorted(points)))


async def _check(office: Office, history: list[Entry], points: list[datetime]) -> None:
    await office.post(history)
    since = {at: await _asked(office, at) for at in points}
    for at in points:
        await office.close(at)

    book, loaded = Book.replay(history), await office.load()
    assert (loaded.placements, loaded.balances, loaded.owners) == (book.placements, book.balances, book.owners)
    assert (loaded.marked, loaded.accruals) == (book.marked, book.accruals)
    assert await office.finding() is None
    assert await office.finding(archive=True) is None
    if points:
        assert await _asked(office, points[-1]) == since[points[-1]]
        whole = history[0].at.replace(minute=0, second=0, microsecond=0)
        assert await _asked(office, whole) == {
            (account.queue, account.meter): amount
            for account, amount in book.balances.items()
            if account.bucket == "spent"
        }


async def _asked(office: Office, since: datetime) -> dict[QueueMeter, int]:
    async with SqlLedger.open(office.url, CLUSTER) as ledger:
        return dict(await ledger.spent(since))
