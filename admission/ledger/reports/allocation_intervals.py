"""Allocation intervals: the times for which claims held devices, read from the books.

A claim's interval begins with the entry that settles it, or that adjusts its holding, and ends with the entry that
closes it. Reports and exports of use are computed from intervals. The cost of reading them depends on the requested
time and not on the length of the books: the intervals open at its start are found by reading only the gangs that were
carried forward, are still open, or have later entries.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, select, union
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.api.muster.ledger_entries import Allocation, Holding, Kind, Placement
from admission.api.values.names import GangUid, QueueName, Uid
from admission.errors import LedgerCorruptError
from admission.ledger.db.tables import open_gangs, transactions
from admission.ledger.journal import base as journal_base, encoding, read
from admission.ledger.journal.base import Base, Span, Window

Progress = Callable[[int, int], None]
"""A progress callback for long work: the number of transactions read, and their total."""

_SLICE = 500
"""UIDs in one IN list; databases bound the number of parameters."""

_KINDS = [kind.value for kind in (Kind.SETTLE, Kind.ADJUST, Kind.RELEASE, Kind.EVICT)]
"""The kinds of entries that begin or end intervals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationInterval:
    """The time for which a claim held devices. start and end: whole seconds; end is None while it still holds them.

    sequence: of the transaction that began it, or of the closing that carried it forward.
    """

    cluster: str
    queue: QueueName
    gang: str
    gang_uid: GangUid
    user: str
    holding: Holding
    sequence: int
    start: datetime
    end: datetime | None = None

    def within(self, window: Window) -> Window:
        """Return the part of the interval within a time of whole seconds; an empty part ends at its start."""
        start = max(self.start, window.start)
        return Window(start, max(start, window.end if self.end is None else min(self.end, window.end)))

    def seconds(self, window: Window) -> int:
        """Return the seconds of a time during which the claim held its devices."""
        return accruals.between(*self.within(window))

    @property
    def namespace(self) -> str:
        return self.holding.claim.partition("/")[0]

    @property
    def classes(self) -> dict[str, int]:
        """The number of devices of each class; all under an empty name if the entry does not record classes."""
        holding = self.holding
        if holding.classes:
            return holding.devices_by_class
        return {"": len(holding.devices)} if holding.devices else {}


class Move(NamedTuple):
    """The intervals that ended and began by one transaction, at its whole second."""

    at: datetime
    ended: Sequence[AllocationInterval]
    started: Sequence[AllocationInterval]


async def between(
    connection: AsyncConnection, cluster: str, window: Window, progress: Progress
) -> AsyncIterator[AllocationInterval]:
    """Yield the intervals that overlap a time: those that end in it, in the order of the chain, and then the others.

    The others have `end` None even if they ended after the time. Raises FixError when the start lies in a closed
    period, LedgerCorruptError when a row cannot be read.
    """
    span = await journal_base.span(connection, cluster, window)
    scan = IntervalScan(cluster)
    await scan.begin(connection, span)
    async for row in _rows(connection, cluster, span):
        for interval in scan.follow(row):
            yield interval
        progress(row.sequence - span.first, span.size)
    for interval in scan.open_intervals():
        yield interval


async def by_period(
    connection: AsyncConnection,
    cluster: str,
    window: Window,
    after: Callable[[datetime], datetime],
    progress: Progress,
) -> AsyncIterator[tuple[Window, list[AllocationInterval]]]:
    """Yield the periods of a time, each with the intervals that overlap it, in the order of the chain.

    after: returns the end of the period that begins at, or contains, a moment. Raises as `between`.
    """
    span = await journal_base.span(connection, cluster, window)
    scan, ended = IntervalScan(cluster), list[AllocationInterval]()
    await scan.begin(connection, span)
    period = Window(window.start, min(after(window.start), window.end))
    async for row in _rows(connection, cluster, span):
        while row.at >= period.end:
            yield period, _overlapping(period, [*ended, *scan.open_intervals()])
            ended, period = [], Window(period.end, min(after(period.end), window.end))
        ended += scan.follow(row)
        progress(row.sequence - span.first, span.size)
    while period.start < period.end:
        yield period, _overlapping(period, [*ended, *scan.open_intervals()])
        ended, period = [], Window(period.end, min(after(period.end), window.end))


async def moves(connection: AsyncConnection, cluster: str, window: Window, progress: Progress) -> AsyncIterator[Move]:
    """Yield the intervals that began and ended in a time, in the order of the chain; first those open at its start.

    Raises as `between`.
    """
    span = await journal_base.span(connection, cluster, window)
    scan = IntervalScan(cluster)
    await scan.begin(connection, span)
    yield Move(window.start, [], list(scan.open_intervals()))
    async for row in _rows(connection, cluster, span):
        ended = list(scan.follow(row))
        yield Move(accruals.floor_to_second(row.at), ended, scan.started)
        progress(row.sequence - span.first, span.size)


async def allocations(connection: AsyncConnection, cluster: str, window: Window) -> list[Allocation]:
    """Return the parts of intervals with devices within a time, as far as it is not closed, by their start and claim.

    A time that has passed has the same allocations whenever it is asked for.
    """
    base = await journal_base.base(connection, cluster)
    start = window.start if base.at is None else max(window.start, base.at)
    found = []
    if start < window.end:
        async for interval in between(connection, cluster, Window(start, window.end), _no_progress):
            part = interval.within(Window(start, window.end))
            if interval.holding.devices and part.start < part.end:
                found.append(_allocation(interval, part))
    return sorted(found, key=lambda one: (one.start, one.claim_uid))


def _allocation(interval: AllocationInterval, part: Window) -> Allocation:
    holding = interval.holding
    return Allocation(
        queue=interval.queue,
        gang_uid=interval.gang_uid,
        gang=interval.gang,
        user=interval.user,
        claim_uid=holding.claim_uid,
        claim=holding.claim,
        devices=tuple(dict.fromkeys(given.device for given in holding.devices)),  # it may have shares of one
        start=part.start,
        end=part.end,
    )


def _no_progress(_done: int, _of: int) -> None:
    """Ignore the progress: the caller shows none."""


class IntervalScan:
    """The intervals open at one position of a chain, which `follow` advances."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._open: dict[Uid, AllocationInterval] = {}
        self.started: list[AllocationInterval] = []
        """The intervals that the latest transaction has begun."""

    async def begin(self, connection: AsyncConnection, span: Span) -> None:
        """Find the intervals open at the start of the span."""
        base = await journal_base.base(connection, self._cluster)
        placements = (await journal_base.carried(connection, self._cluster)).placements.values()
        carried = [gang for gang in placements if any(holding_.settled for holding_ in gang.holdings.values())]
        for chunk in _sliced(carried):
            self._carry(base, chunk)
            of_chunk = transactions.c.gang_uid.in_([gang.gang_uid for gang in chunk])
            async for row in _rows(connection, self._cluster, Span(base.sequence, span.first), of_chunk):
                self._follow(row)
        known = {gang.gang_uid for gang in carried}
        still_open = _still_open(self._cluster, span.first)
        async for row in _rows(connection, self._cluster, Span(base.sequence, span.first), still_open):
            if row.gang_uid not in known:
                self._follow(row)

    def follow(self, row: Row[Any]) -> Iterator[AllocationInterval]:
        """Follow one transaction; yield the intervals that it ends."""
        try:
            closes, holdings = encoding.uids(row.closes), encoding.holdings(row.holdings)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerCorruptError(
                f"transaction {row.sequence} of cluster {self._cluster} cannot be read ({error!r}):"
                " run `muster ledger verify`"
            ) from error
        at = accruals.floor_to_second(row.at)
        self.started = [self._interval(row, holding, at) for holding in holdings if holding.settled]
        for uid in dict.fromkeys((*closes, *(interval.holding.claim_uid for interval in self.started))):
            if (ended := self._open.pop(uid, None)) is not None:
                yield replace(ended, end=at)
        self._open.update((interval.holding.claim_uid, interval) for interval in self.started)

    def open_intervals(self) -> Iterator[AllocationInterval]:
        """Yield the open intervals, in the order in which they began."""
        yield from sorted(self._open.values(), key=lambda interval: (interval.sequence, interval.holding.claim_uid))

    def _follow(self, row: Row[Any]) -> None:
        for _ in self.follow(row):
            pass

    def _interval(self, row: Row[Any], holding: Holding, at: datetime) -> AllocationInterval:
        return AllocationInterval(
            cluster=self._cluster,
            queue=QueueName(row.queue),
            gang=row.gang,
            gang_uid=GangUid(row.gang_uid),
            user=row.user,
            holding=holding,
            sequence=row.sequence,
            start=at,
        )

    def _carry(self, base: Base, gangs: Sequence[Placement]) -> None:
        """Add the intervals open at the closing. They start there, since their real start is in the archive."""
        for gang in gangs:
            for uid, holding in gang.holdings.items():
                if holding.settled and base.at is not None:
                    self._open[uid] = AllocationInterval(
                        cluster=self._cluster,
                        queue=gang.queue,
                        gang=gang.gang,
                        gang_uid=gang.gang_uid,
                        user=gang.user,
                        holding=holding,
                        sequence=base.sequence,
                        start=base.at,
                    )


def _overlapping(period: Window, intervals: Sequence[AllocationInterval]) -> list[AllocationInterval]:
    return [interval for interval in intervals if interval.seconds(period)]


def _still_open(cluster: str, sequence: int) -> ColumnElement[bool]:
    """Match the transactions of gangs that are open now, or have entries after a transaction."""
    changed_later = select(transactions.c.gang_uid).where(
        transactions.c.cluster == cluster,
        transactions.c.sequence > sequence,
        transactions.c.kind.in_(_KINDS),
    )
    open_now = select(open_gangs.c.gang_uid).where(open_gangs.c.cluster == cluster)
    return transactions.c.gang_uid.in_(union(changed_later, open_now).subquery().select())


async def _rows(
    connection: AsyncConnection, cluster: str, span: Span, *where: ColumnElement[bool]
) -> AsyncIterator[Row[Any]]:
    """Yield the transactions of a part of a chain that may begin or end intervals, in their order."""
    wanted = (
        select(*(transactions.c[name] for name in ("sequence", "at", "queue", "user", "gang_uid", "gang")))
        .add_columns(transactions.c.holdings, transactions.c.closes)
        .where(transactions.c.cluster == cluster, transactions.c.kind.in_(_KINDS))
        .where(transactions.c.sequence > span.first, transactions.c.sequence <= span.last, *where)
        .order_by(transactions.c.sequence)
    )
    async for row in read.streamed(connection, wanted):
        yield row


def _sliced(gangs: Sequence[Placement]) -> Iterator[Sequence[Placement]]:
    for start in range(0, len(gangs), _SLICE):
        yield gangs[start : start + _SLICE]
