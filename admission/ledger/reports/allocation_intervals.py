"""Tenures: from when to when a claim held which devices, read from the books.

A claim's expected end begins with the entry that settled it, or that adjusted what it holds, and ends with the entry
that closes it. Reports and exports of use are made of expected ends. Reading them costs what happened in the time asked
for: what was open at its start is found by the gangs that have anything later, and not by reading the books from their
first row.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, select, union
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.api.muster.ledger_entries import Holding, Kind, Placement
from admission.api.values.names import GangUid, QueueName, Uid
from admission.errors import LedgerCorruptError
from admission.ledger.db.tables import open_gangs, transactions
from admission.ledger.journal import base as journal_base, encoding, read
from admission.ledger.journal.base import Base, Span, Window

Watch = Callable[[int, int], None]
"""Told, on long work, how many transactions of how many are read."""

_SLICE = 500
"""UIDs in one IN list; databases bound the number of parameters."""

_KINDS = [kind.value for kind in (Kind.SETTLE, Kind.ADJUST, Kind.RELEASE, Kind.EVICT)]
"""The entries that begin or end expected ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationInterval:
    """A time for which a claim held devices. start and end: whole seconds; no end while it still holds them.

    sequence: of the transaction that began it, or up to which the books were closed.
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
        """Return the part of the end that lies in a time of whole seconds; an empty part ends where it begins."""
        start = max(self.start, window.start)
        return Window(start, max(start, window.end if self.end is None else min(self.end, window.end)))

    def seconds(self, window: Window) -> int:
        """Return for how many seconds of a time the claim held its devices."""
        return accruals.between(*self.within(window))

    @property
    def namespace(self) -> str:
        return self.holding.claim.partition("/")[0]

    @property
    def classes(self) -> dict[str, int]:
        """How many devices it holds of each class; under no name where the entry does not say the classes."""
        held = self.holding
        if held.classes:
            return dict(held.classes)
        return {"": len(held.devices)} if held.devices else {}


class Move(NamedTuple):
    """Tenures that ended and began at a whole second."""

    at: datetime
    ended: Sequence[AllocationInterval]
    begun: Sequence[AllocationInterval]


async def between(
    connection: AsyncConnection, cluster: str, window: Window, watch: Watch
) -> AsyncIterator[AllocationInterval]:
    """Yield the ends that reach into a time: those that end in it, in the order of the chain, and then the others.

    Of the others, `end` is None though they may have ended after the time. Raises FixError when the start lies in a
    period that was closed, LedgerCorruptError when a row cannot be read.
    """
    span = await journal_base.span(connection, cluster, window)
    scan = IntervalScan(cluster)
    await scan.begin(connection, span)
    async for row in _rows(connection, cluster, span):
        for interval in scan.follow(row):
            yield interval
        watch(row.sequence - span.first, span.size)
    for interval in scan.holding():
        yield interval


async def by_period(
    connection: AsyncConnection,
    cluster: str,
    window: Window,
    after: Callable[[datetime], datetime],
    watch: Watch,
) -> AsyncIterator[tuple[Window, list[AllocationInterval]]]:
    """Yield the periods that a time consists of, with the ends that reach into each, in the order of the chain.

    after: the end of the period that begins at, or holds, a moment. Raises as `between`.
    """
    span = await journal_base.span(connection, cluster, window)
    scan, ended = IntervalScan(cluster), list[AllocationInterval]()
    await scan.begin(connection, span)
    period = Window(window.start, min(after(window.start), window.end))
    async for row in _rows(connection, cluster, span):
        while row.at >= period.end:
            yield period, _reaching_into(period, [*ended, *scan.holding()])
            ended, period = [], Window(period.end, min(after(period.end), window.end))
        ended += scan.follow(row)
        watch(row.sequence - span.first, span.size)
    while period.start < period.end:
        yield period, _reaching_into(period, [*ended, *scan.holding()])
        ended, period = [], Window(period.end, min(after(period.end), window.end))


async def moves(connection: AsyncConnection, cluster: str, window: Window, watch: Watch) -> AsyncIterator[Move]:
    """Yield who got devices and who gave them back in a time, in the order of the chain: first who had some before it.

    Raises as `between`.
    """
    span = await journal_base.span(connection, cluster, window)
    scan = IntervalScan(cluster)
    await scan.begin(connection, span)
    yield Move(window.start, [], list(scan.holding()))
    async for row in _rows(connection, cluster, span):
        ended = list(scan.follow(row))
        yield Move(accruals.whole(row.at), ended, scan.begun)
        watch(row.sequence - span.first, span.size)


class IntervalScan:
    """The expected ends open at one point of a chain, on their way along it."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._open: dict[Uid, AllocationInterval] = {}
        self.begun: list[AllocationInterval] = []
        """What the transaction that was followed last has begun."""

    async def begin(self, connection: AsyncConnection, span: Span) -> None:
        """Find what was open before the span."""
        base = await journal_base.base(connection, self._cluster)
        open_then = (await journal_base.carried(connection, self._cluster)).placements.values()
        carried = [gang for gang in open_then if any(held.settled for held in gang.holdings.values())]
        for some in _sliced(carried):
            self._carry(base, some)
            theirs = transactions.c.gang_uid.in_([gang.gang_uid for gang in some])
            async for row in _rows(connection, self._cluster, Span(base.sequence, span.first), theirs):
                self._follow(row)
        known = {gang.gang_uid for gang in carried}
        still_open = _still_open(self._cluster, span.first)
        async for row in _rows(connection, self._cluster, Span(base.sequence, span.first), still_open):
            if row.gang_uid not in known:
                self._follow(row)

    def follow(self, row: Row[Any]) -> Iterator[AllocationInterval]:
        """Follow one transaction; yield the expected ends that it ends."""
        try:
            closes, holdings = encoding.uids(row.closes), encoding.holdings(row.holdings)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise LedgerCorruptError(
                f"transaction {row.sequence} of cluster {self._cluster} cannot be read ({error!r}):"
                " run `muster ledger verify`"
            ) from error
        at = accruals.whole(row.at)
        self.begun = [self._interval(row, holding, at) for holding in holdings if holding.settled]
        for uid in dict.fromkeys((*closes, *(interval.holding.claim_uid for interval in self.begun))):
            if (ended := self._open.pop(uid, None)) is not None:
                yield replace(ended, end=at)
        self._open.update((interval.holding.claim_uid, interval) for interval in self.begun)

    def holding(self) -> Iterator[AllocationInterval]:
        """Yield the expected ends that are open, in the order in which they began."""
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
        """Begin with what was open where the books were closed: when it began stands in the archive."""
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


def _reaching_into(period: Window, found: Sequence[AllocationInterval]) -> list[AllocationInterval]:
    return [interval for interval in found if interval.seconds(period)]


def _still_open(cluster: str, sequence: int) -> ColumnElement[bool]:
    """Match what belongs to gangs that still have something open, or that moved, after a transaction."""
    moved = select(transactions.c.gang_uid).where(
        transactions.c.cluster == cluster,
        transactions.c.sequence > sequence,
        transactions.c.kind.in_(_KINDS),
    )
    still = select(open_gangs.c.gang_uid).where(open_gangs.c.cluster == cluster)
    return transactions.c.gang_uid.in_(union(moved, still).subquery().select())


async def _rows(
    connection: AsyncConnection, cluster: str, span: Span, *where: ColumnElement[bool]
) -> AsyncIterator[Row[Any]]:
    """Yield the transactions of a part of a chain that may begin or end expected ends, in their order."""
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
