"""What was used since some time: by brute force, second by second, it is the same."""

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from admission.accounting import accruals, books
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Allocated, Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind, MemberUsageInterval, UsageInterval
from admission.api.values.names import GangUid
from admission.errors import ConflictError, LedgerCorruptError
from admission.ledger.db.tables import carried_usage, closings
from admission.ledger.sql_ledger import SqlLedger
from admission.simulation import in_memory
from tests.integration.ledgers import AT, CLUSTER, GPU, QUEUE, a_gang, a_grant, a_ledger, minutes, run, tamper
from tests.property.histories import histories


def used(history: list[Entry], since: datetime) -> dict[QueueMeter, int]:
    """Add up what was used from a time to the latest mark, from level to level."""
    marks = [entry.at for entry in history if entry.kind is Kind.USAGE]
    spent: defaultdict[QueueMeter, int] = defaultdict(int)
    if not marks:
        return spent
    levels: defaultdict[QueueMeter, int] = defaultdict(int)
    since = accruals.floor_to_second(since)
    changes = [
        (accruals.floor_to_second(entry.at), (line.queue, line.meter), line.amount)
        for entry in history
        for line in entry.postings
        if line.bucket is Bucket.USED
    ]
    for at, key, amount in changes:
        levels[key] += amount
        spent[key] += amount * max(0, accruals.between(max(at, since), marks[-1])) if at < marks[-1] else 0
    return {key: seconds for key, seconds in spent.items() if seconds}


def rising(history: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the entries without the marks that are older than the entry before, which the ledger in memory refuses."""
    latest: datetime | None = None
    for entry in history:
        if latest is None or entry.at >= latest:
            latest = entry.at
            yield entry


@settings(max_examples=25, deadline=None)
@given(histories(max_size=20), st.integers(-100, 20_000))
def test_reported_usage_equals_usage_counted_second_by_second(history: list[Entry], after: int) -> None:
    begun = history[0].at if history else AT
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder), history, begun + timedelta(seconds=after)))


async def check(folder: Path, history: list[Entry], since: datetime) -> None:
    async with SqlLedger.open(await a_ledger(folder), CLUSTER) as ledger:
        await ledger.post_all(history, epoch=1)

        assert await ledger.spent(since) == used(history, since)

        sums: defaultdict[QueueMeter, int] = defaultdict(int)
        for interval in await ledger.usage(since):
            assert accruals.floor_to_second(since) <= interval.start < interval.end
            sums[interval.queue, interval.meter] += interval.seconds
        assert {key: seconds for key, seconds in sums.items() if seconds} == used(history, since)


def a_day() -> list[Entry]:
    """Return a gang of 2 GPUs from minute 10 to minute 40, with marks at 20, 30 and 60, and one at 0."""
    entries = [a_grant(), usage_at(0, Book.replay([a_grant()])), a_gang(gpu=2, at=minutes(5))]
    placement = Book.replay(entries).placements[GangUid("gang")]
    real = {uid: Allocated(holding.devices, {GPU: 2}) for uid, holding in placement.holdings.items()}
    settled = books.settle(placement, real, at=minutes(10), actor="muster")
    assert settled is not None
    entries.append(settled)
    entries += [usage_at(20, Book.replay(entries))]
    entries += [usage_at(30, Book.replay(entries))]
    placement = Book.replay(entries).placements[GangUid("gang")]
    released = books.release(placement, claims=list(placement.holdings), at=minutes(40), actor="muster", reason="done")
    assert released is not None
    entries.append(released)
    return [*entries, usage_at(60, Book.replay(entries))]


def usage_at(minute: int, book: Book) -> Entry:
    entry = books.usage(book, at=minutes(minute), actor="muster")
    assert entry is not None
    return entry


def interval(start: float, end: int, seconds: int) -> UsageInterval:
    begun = AT + timedelta(minutes=start)
    return UsageInterval(queue=QUEUE, meter=GPU, start=begun, end=minutes(end), seconds=seconds)


@pytest.mark.parametrize(
    ("since", "intervals"),
    {
        -60: [interval(0, 20, 1200), interval(20, 30, 1200), interval(30, 60, 1200)],
        0: [interval(0, 20, 1200), interval(20, 30, 1200), interval(30, 60, 1200)],
        5: [interval(5, 20, 1200), interval(20, 30, 1200), interval(30, 60, 1200)],
        15: [interval(15, 20, 600), interval(20, 30, 1200), interval(30, 60, 1200)],
        20: [interval(20, 30, 1200), interval(30, 60, 1200)],
        35: [interval(35, 60, 600)],
        45: [interval(45, 60, 0)],
        60: [],
        99: [],
    }.items(),
)
async def test_an_interval_that_is_cut_is_divided_exactly(
    ledger: SqlLedger, since: int, intervals: list[UsageInterval]
) -> None:
    await ledger.post_all(a_day(), epoch=1)

    assert await ledger.usage(minutes(since)) == intervals

    seconds = sum(one.seconds for one in intervals)
    assert await ledger.spent(minutes(since)) == ({(QUEUE, GPU): seconds} if seconds else {})


async def test_nothing_was_used_in_empty_books(ledger: SqlLedger) -> None:
    assert await ledger.spent(AT) == {}
    assert await ledger.usage(AT) == []


async def test_another_clusters_use_is_not_counted(url: str) -> None:
    async with SqlLedger.open(url, "west") as west, SqlLedger.open(url, CLUSTER) as ledger:
        await west.post_all(a_day(), epoch=1)

        assert await ledger.spent(minutes(-60)) == {}


async def test_usage_of_closed_periods_is_carried_forward_and_cut_in_proportion(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        day = a_day()
        await ledger.post_all(day, epoch=1)
        closed_at = "2026-03-01 12:30:00+00:00" if url.startswith("postgresql") else "2026-03-01T12:30:00.000000+00:00"
        close(url, closed_at, through=6)

        assert await ledger.usage(minutes(10)) == [interval(10, 30, 1600), interval(30, 60, 1200)]
        assert await ledger.spent(minutes(-60)) == {(QUEUE, GPU): 3600}
        assert await ledger.spent(minutes(35)) == {(QUEUE, GPU): 600}
        assert await ledger.load() == Book.replay(day)


def close(url: str, marked: str, *, through: int) -> None:
    """Archive rows as a closing does, as far as it concerns what was used."""
    start = marked.replace("12:30", "12:00")
    columns = ", ".join(column.name for column in closings.columns)
    usage = ", ".join(column.name for column in carried_usage.columns)
    run(
        url,
        f"INSERT INTO closings ({columns})"  # noqa: S608
        f" SELECT 'east', {through}, 1, digest, 0, '{marked}', '{marked}', {through}, '', 'a', '' FROM clusters",
        f"INSERT INTO carried_usage ({usage})"  # noqa: S608
        f" VALUES ('east', 'team-a', 'gpu', '{start}', '{marked}', '2400', {through})",
        f"DELETE FROM postings WHERE sequence <= {through}",  # noqa: S608
        f"DELETE FROM transactions WHERE sequence <= {through}",  # noqa: S608
    )


async def test_a_usage_entry_with_wrong_amounts_is_not_posted(ledger: SqlLedger) -> None:
    *day, last = a_day()
    await ledger.post_all(day, epoch=1)
    lie = usage_at(60, Book.replay(day[:-1]))

    with pytest.raises(ConflictError, match="does not say what was used"):
        await ledger.post(lie, epoch=1)

    await ledger.post(last, epoch=1)
    assert (await ledger.verify()).ok


async def test_a_usage_entry_that_was_changed_is_named(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all(a_day(), epoch=1)
        tamper(url, "UPDATE postings SET amount = '1201' WHERE sequence = 5 AND bucket = 'spent'")

        with pytest.raises(LedgerCorruptError, match="does not follow from what was used"):
            await ledger.spent(minutes(15))
        finding = (await ledger.verify()).finding

    assert finding is not None
    assert finding.sequence == 5


def by_member(intervals: Iterable[MemberUsageInterval]) -> dict[tuple[str, ...], int]:
    sums: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for one in intervals:
        assert one.start < one.end
        sums[one.queue, one.namespace, one.user, one.meter] += one.seconds
    return {key: seconds for key, seconds in sums.items() if seconds}


@settings(max_examples=25, deadline=None)
@given(histories(max_size=20), st.integers(-100, 20_000), st.integers(1, 20_000), st.integers(10, 5_000))
def test_the_use_of_members_equals_that_counted_from_entry_to_entry(
    history: list[Entry], after: int, length: int, step: int
) -> None:
    async def check(folder: Path) -> None:
        since = (history[0].at if history else AT) + timedelta(seconds=after)
        asked = since, since + timedelta(seconds=length), timedelta(seconds=step)
        entries = list(rising(history))
        kept = in_memory.Ledger()
        await kept.post_all(entries, epoch=1)
        async with SqlLedger.open(await a_ledger(folder), CLUSTER) as ledger:
            await ledger.post_all(entries, epoch=1)

            found = await ledger.member_usage(*asked)

        assert by_member(found) == by_member(await kept.member_usage(*asked))
        assert [one.end for one in found] == sorted(one.end for one in found)
        assert all(one.end - one.start <= asked[2] for one in found)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder)))
