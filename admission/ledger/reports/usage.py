"""The use since a time, from usage entries and from the usage that closings carried forward.

A usage entry records the meter-seconds used since the mark before it. If the requested time lies between two marks, the
lines on amounts in use give the part after it: if `u` meter-seconds were used from m0 to m1, and the amount in use
changed by d_i at t_i between them, then the amount at m0 was (u - sum of d_i (m1 - t_i)) / (m1 - m0). All times are
whole seconds, as in `accounting.accruals`, so the result is exact.
"""

import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.accounting.accruals import Change, QueueMeter
from admission.api.muster.ledger_entries import Bucket, Kind, UsageInterval
from admission.api.values.names import MeterName, QueueName
from admission.errors import LedgerCorruptError
from admission.ledger.db.tables import carried_usage, postings, transactions
from admission.ledger.journal import read
from admission.ledger.journal.read import Mark


async def spent(connection: AsyncConnection, cluster: str, since: datetime) -> dict[QueueMeter, int]:
    """Return the non-zero meter-seconds used from a time (cut to the second) up to the latest mark."""
    sums: defaultdict[QueueMeter, int] = defaultdict(int)
    for interval in await usage(connection, cluster, since):
        sums[interval.queue, interval.meter] += interval.seconds
    return {key: seconds for key, seconds in sums.items() if seconds}


async def usage(connection: AsyncConnection, cluster: str, since: datetime) -> list[UsageInterval]:
    """Return the same use by intervals between marks, oldest first."""
    since = accruals.floor_to_second(since)
    before = await read.mark(connection, cluster, until=since)
    carried = [interval async for interval in _carried(connection, cluster, since)]
    marks = [mark async for mark in _marks(connection, cluster, before)]
    if not marks:
        return carried
    first, *rest = marks
    if before is not None and before.at >= since:
        opening = _between(before.at, first)
    else:
        changes = [change async for change in read.uses(connection, cluster, before, before=first.sequence)]
        opening = _clip(first, before and before.at, since, changes)
    return [
        *carried,
        *opening,
        *itertools.chain.from_iterable(
            _between(mark.at, following) for mark, following in zip(marks, rest, strict=False)
        ),
    ]


class _Marked(NamedTuple):
    """A usage entry, with the meter-seconds that it records since the one before."""

    sequence: int
    at: datetime
    seconds: dict[QueueMeter, int]


async def _marks(connection: AsyncConnection, cluster: str, after: Mark | None) -> AsyncIterator[_Marked]:
    lines = and_(
        postings.c.cluster == transactions.c.cluster,
        postings.c.sequence == transactions.c.sequence,
        postings.c.bucket == Bucket.SPENT.value,
    )
    wanted = (
        select(transactions.c.sequence, transactions.c.at, postings.c.queue, postings.c.meter, postings.c.amount)
        .join_from(transactions, postings, lines, isouter=True)
        .where(transactions.c.cluster == cluster, transactions.c.kind == Kind.USAGE.value)
        .where(transactions.c.sequence > (after.sequence if after else 0))
        .order_by(transactions.c.sequence, postings.c.line)
    )
    marked: _Marked | None = None
    async for row in read.streamed(connection, wanted):
        if marked is None or marked.sequence != row.sequence:
            if marked is not None:
                yield marked
            marked = _Marked(row.sequence, row.at, {})
        if row.queue is not None:  # a mark without use since the previous one has no lines
            marked.seconds[QueueName(row.queue), MeterName(row.meter)] = row.amount
    if marked is not None:
        yield marked


async def _carried(connection: AsyncConnection, cluster: str, since: datetime) -> AsyncIterator[UsageInterval]:
    """Yield the usage that closings carried forward after a time; of an interval that contains it, its later part.

    The division is exact if the interval has constant use; others are within a quarter of an hour (see `period_usage`).
    """
    wanted = (
        select(carried_usage)
        .where(carried_usage.c.cluster == cluster, carried_usage.c.until > since)
        .order_by(carried_usage.c.until, carried_usage.c.queue, carried_usage.c.meter)
    )
    async for row in read.streamed(connection, wanted):
        start = max(row.start, since)
        seconds = row.seconds * accruals.between(start, row.until) // accruals.between(row.start, row.until)
        yield _interval((row.queue, row.meter), start, row.until, seconds)


def _between(start: datetime, marked: _Marked) -> Iterator[UsageInterval]:
    for key, seconds in marked.seconds.items():
        yield _interval(key, start, marked.at, seconds)


def _clip(
    marked: _Marked, start: datetime | None, since: datetime, changes: Iterable[Change]
) -> Iterator[UsageInterval]:
    """Yield the part after `since` of the use up to a mark. start: the mark before it, if there is one."""
    by_key: defaultdict[QueueMeter, list[Change]] = defaultdict(list)
    for change in changes:
        by_key[change.key].append(change)
    for key, seconds in marked.seconds.items():
        begin = start if start is not None else accruals.floor_to_second(by_key[key][0].at)
        if since <= begin:
            yield _interval(key, begin, marked.at, seconds)
        elif since < marked.at:
            yield _interval(key, since, marked.at, _after(seconds, begin, marked.at, since, by_key[key]))


def _after(seconds: int, start: datetime, end: datetime, since: datetime, changes: Iterable[Change]) -> int:
    """Return the part of the meter-seconds used from start to end that was used after `since`, a time between them."""
    timed_amounts = [(max(start, accruals.floor_to_second(change.at)), change.amount) for change in changes]
    from_changes = sum(amount * accruals.between(at, end) for at, amount in timed_amounts)
    level, rest = divmod(seconds - from_changes, accruals.between(start, end))
    if rest:
        raise LedgerCorruptError(
            f"the usage entry of {end} does not follow from what was used before it: run `muster ledger verify`"
        )
    level += sum(amount for at, amount in timed_amounts if at <= since)
    return level * accruals.between(since, end) + sum(
        amount * accruals.between(at, end) for at, amount in timed_amounts if at > since
    )


def _interval(key: QueueMeter, start: datetime, end: datetime, seconds: int) -> UsageInterval:
    queue, meter = key
    return UsageInterval(queue=queue, meter=meter, start=start, end=end, seconds=seconds)
