"""Reports of use: what the books say, counted in another way; sums of parts; and what old books do not say."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from hypothesis import given, strategies as st

from admission.accounting import accruals, books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Placement
from admission.api.values.names import MeterName, QueueName
from admission.errors import FixError, LedgerCorruptError
from admission.ledger.audit.close_period import Order
from admission.ledger.journal.base import Window
from admission.ledger.reports import allocation_intervals, usage_report
from admission.ledger.reports.usage_report import UNKNOWN, Key, Report, Use
from admission.ledger.sql_ledger import SqlLedger
from tests.builders import NOON
from tests.integration.ledgers import AT, CLUSTER, GPU, ON_SQLITE, QUEUE, a_sqlite_ledger, minutes, tamper
from tests.integration.lives import HISTORIES, a_long_life, moments, posted, without_claims
from tests.property.histories import START, histories

KEYS = (Key.QUEUE, Key.NAMESPACE, Key.USER, Key.GANG)
MOST = START + timedelta(hours=4)
"""After the last entry of any history."""

Group = tuple[str, ...]


def unseen(done: int, total: int) -> None:
    """Watch nothing."""


async def report(ledger: SqlLedger, keys: Sequence[Key], window: Window, *, cluster: str = CLUSTER) -> Report:
    async with ledger.snapshot() as connection:
        return await usage_report.report(connection, [cluster], keys, window, unseen)


# Another way to count: second by second between entries, from what the pure books hold.


def levels(history: Sequence[Entry], window: Window) -> Iterator[tuple[Placement, Holding, int]]:
    """Yield every settled holding with the seconds that it was held between two entries, within a time."""
    book = Book()
    ends = [*(accruals.floor_to_second(entry.at) for entry in history[1:]), window.end]
    for entry, end in zip(history, ends, strict=True) if history else ():
        book = book.apply(entry)
        start = max(accruals.floor_to_second(entry.at), window.start)
        seconds = max(0, accruals.between(start, min(end, window.end)))
        for placement in book.placements.values():
            for holding in placement.holdings.values():
                if holding.settled and seconds:
                    yield placement, holding, seconds


def counted(history: Sequence[Entry], window: Window) -> dict[Group, tuple[int, dict[MeterName, int]]]:
    devices, meters = Counter[Group](), dict[Group, Counter[MeterName]]()
    for placement, holding, seconds in levels(history, window):
        namespace = holding.claim.split("/")[0]
        group = (placement.queue, namespace, placement.user or UNKNOWN, placement.gang)
        devices[group] += seconds * sum(number for _, number in device_counts(holding))
        for meter, amount in holding.charge.items():
            meters.setdefault(group, Counter())[meter] += amount * seconds
    return {
        group: (devices[group], held)
        for group in devices
        if devices[group] + sum((held := {m: a for m, a in meters.get(group, Counter()).items() if a}).values())
    }


def device_counts(holding: Holding) -> list[tuple[str, int]]:
    """Return the devices by class; of what a pod takes of its node only those of a device plugin, not CPU or memory."""
    if holding.claim_uid.endswith("/device-plugin"):
        return [(name, number) for name, number in holding.classes.items() if name == "example.com/gpu"]
    return list((holding.classes or {UNKNOWN: len(holding.devices)}).items())


def told(rows: Iterable[tuple[Group, Use]]) -> dict[Group, tuple[int, dict[MeterName, int]]]:
    return {group: (use.devices, {m: a for m, a in use.meters.items() if a}) for group, use in rows}


@HISTORIES
@given(history=histories(), times=st.tuples(moments, moments, moments).map(sorted))
async def test_a_report_counts_what_the_books_hold_and_its_parts_add_up(
    url: str, history: list[Entry], times: list[datetime]
) -> None:
    cluster = await posted(url, history)
    start, middle, end = times
    async with SqlLedger.open(url, cluster) as ledger:
        whole = await report(ledger, KEYS, Window(start, end), cluster=cluster)
        halves = Window(start, middle), Window(middle, end)
        parts = [await report(ledger, KEYS, half, cluster=cluster) for half in halves]

    assert told(whole.rows.items()) == counted(history, Window(start, end))
    sums = dict[Group, Use]()
    for part in parts:
        for group, use in part.rows.items():
            sums.setdefault(group, Use()).add(1, {}, use.devices)
            sums[group].add(0, use.meters, 1)
    assert told(sums.items()) == told(whole.rows.items())


@HISTORIES
@given(history=histories())
async def test_all_meter_hours_are_what_was_marked_as_spent_and_what_accrued_since(
    url: str, history: list[Entry]
) -> None:
    cluster = await posted(url, history)
    book = Book.replay(history)
    due = Counter[tuple[QueueName, MeterName]](book.accrued(MOST))
    for (queue, meter, bucket), amount in book.balances.items():
        if bucket is Bucket.SPENT:
            due[queue, meter] += amount

    async with SqlLedger.open(url, cluster) as ledger:
        found = await report(ledger, (Key.QUEUE,), Window(START, MOST), cluster=cluster)

    assert {(queue, m): a for (queue,), use in found.rows.items() for m, a in use.meters.items() if a} == dict(due)


@HISTORIES
@given(history=histories(), times=st.tuples(moments, moments).map(sorted))
async def test_classes_share_the_devices_and_no_meter(url: str, history: list[Entry], times: list[datetime]) -> None:
    cluster = await posted(url, history)
    window = Window(*times)
    due = Counter[Group]()
    for _, holding, seconds in levels(history, window):
        for name, number in device_counts(holding):
            due[name,] += number * seconds

    async with SqlLedger.open(url, cluster) as ledger:
        found = await report(ledger, (Key.CLASS,), window, cluster=cluster)

    assert {group: use.devices for group, use in found.rows.items()} == {group: n for group, n in due.items() if n}
    assert not any(use.meters for use in found.rows.values())
    assert found.total.devices == sum(due.values())


# Single cases.


WINDOWS = {
    "before it began": (0, 10, {"ns/long": 0}),
    "while it runs and others do not": (20, 30, {"ns/long": 1200}),
    "around its beginning": (5, 11, {"ns/long": 120}),
    "around its end": (45, 60, {"ns/long": 600, "ns/late": 1800}),
    "after its end": (50, 51, {"ns/late": 120}),
    "all of it": (0, 60, {"ns/long": 4800, "ns/early": 120, "ns/late": 3480}),
}


@pytest.mark.parametrize(("start", "end", "due"), WINDOWS.values(), ids=WINDOWS)
async def test_a_gang_counts_for_the_part_of_its_life_in_the_time(
    ledger: SqlLedger, start: int, end: int, due: dict[str, int]
) -> None:
    await ledger.post_all(a_long_life(), epoch=1)

    found = await report(ledger, (Key.GANG,), Window(minutes(start), minutes(end)))

    assert {gang: use.devices for (gang,), use in found.rows.items()} == {gang: n for gang, n in due.items() if n}


async def test_a_report_reads_earlier_entries_only_of_gangs_that_are_open_or_move_later(ledger: SqlLedger) -> None:
    await ledger.post_all(a_long_life(), epoch=1)
    async with ledger.snapshot() as connection:
        found = [
            interval
            async for interval in allocation_intervals.between(
                connection, CLUSTER, Window(minutes(20), minutes(40)), unseen
            )
        ]

    assert [(one.gang, one.start, one.end) for one in found] == [
        ("ns/long", minutes(10), None),
        ("ns/late", minutes(31), None),
    ]


async def test_a_report_distinguishes_clusters(url: str) -> None:
    for cluster in ("east", "west"):
        async with SqlLedger.open(url, cluster) as ledger:
            await ledger.post_all(a_long_life(), epoch=1)
    async with SqlLedger.open(url, "east") as ledger, ledger.snapshot() as connection:
        window = Window(minutes(20), minutes(30))
        found = await usage_report.report(connection, ["east", "west"], (Key.CLUSTER, Key.QUEUE), window, unseen)

    assert {group: use.devices for group, use in found.rows.items()} == {("east", QUEUE): 1200, ("west", QUEUE): 1200}
    assert (found.total.devices, found.total.meters) == (2400, {GPU: 1200})


@ON_SQLITE
async def test_pods_without_claims_have_meter_hours_and_no_device_hours(ledger: SqlLedger) -> None:
    await ledger.post_all(await without_claims(), epoch=1)
    window = Window(NOON, NOON + timedelta(minutes=100))

    by_queue, by_gang, by_class = [
        await report(ledger, keys, window) for keys in ((Key.QUEUE,), (Key.NAMESPACE, Key.GANG), (Key.CLASS,))
    ]

    # 4 credits for an hour, and 4 for an hour and a half.
    use = Use(devices=0, meters={MeterName("credits"): 10 * 3600})
    assert by_queue.rows == {("q",): use}
    assert [(group[0], found) for group, found in by_gang.rows.items()] == [("team", use)]
    assert (by_class.rows, by_class.total) == ({}, use)


@ON_SQLITE
async def test_a_row_that_cannot_be_read_is_named(url: str, ledger: SqlLedger) -> None:
    await ledger.post_all(a_long_life(), epoch=1)
    tamper(url, "UPDATE transactions SET holdings = '[{}]' WHERE sequence = 5")

    with pytest.raises(LedgerCorruptError, match=r"transaction 5 of cluster east .* run `muster ledger verify`"):
        await report(ledger, (Key.QUEUE,), Window(AT, minutes(60)))


async def test_reports_and_statements_are_the_same_after_a_closing(ledger: SqlLedger, tmp_path: Path) -> None:
    history = a_long_life()
    early = [entry for entry in history if entry.at < minutes(20)]
    mark = books.usage(Book.replay(early), at=minutes(20), actor="muster")
    assert mark is not None
    await ledger.post_all([*early, mark, *history[len(early) :]], epoch=1)
    window, after_the_mark = Window(minutes(20), minutes(60)), (minutes(21), minutes(60))
    before = await report(ledger, KEYS, window), await ledger.statement(QUEUE, *after_the_mark)

    order = Order(before=minutes(25), folder=tmp_path, actor="ada", reason="a month is over", at=minutes(70))
    closed = await ledger.close_period(order)

    assert closed is not None
    assert closed.marked == minutes(20)
    assert (await report(ledger, KEYS, window), await ledger.statement(QUEUE, *after_the_mark)) == before
    for ask in (
        report(ledger, KEYS, Window(minutes(19), minutes(60))),
        ledger.statement(QUEUE, minutes(19), minutes(60)),
    ):
        with pytest.raises(FixError, match=f"begin at 2026-03-01T12:20:00Z, .* {closed.archive}; begin at that time"):
            await ask


async def test_reports_and_statements_never_block_the_event_loop(tmp_path: Path) -> None:
    url = a_sqlite_ledger(tmp_path)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all(a_long_life(), epoch=1)
        with blockbuster_ctx("admission"):
            await report(ledger, KEYS, Window(AT, minutes(60)))
            await ledger.statement(QUEUE, AT, minutes(60))
