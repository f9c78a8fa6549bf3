"""Counts how long gangs wait in each queue, and writes it beside the books.

By hour for the dashboard's charts, and by day and by what they ask for, for `muster capacity`.

Totals of an hour are written, not additions, so that a write whose outcome is unknown may be repeated. A new leader
goes on from the totals that its predecessor has written; what waited between the two is not counted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Waited, WaitingHour, WaitingShape
from admission.api.values.names import QueueName
from admission.controller.waiting_shapes import NO_SHAPE, WaitingShapes
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError
from admission.ports import WaitingLog

log = structlog.get_logger()

WRITE_SECONDS = 60.0

KEPT = timedelta(days=40)
"""Charts show a month."""

HOUR = timedelta(hours=1)

WAITING = (Phase.PENDING, Phase.EVICTED)


MOST_SHAPES = 200
"""The most shapes of a day, those that have waited for longest; what others have waited is kept without its shape."""

ShapeKey = tuple[QueueName, str, str]
"""A queue, a namespace and the text of a shape; without a shape no namespace."""


class WaitingRecorder:
    """Gang-seconds of hours and days that are not written yet, or not over. Only `observe` and `run` change them."""

    def __init__(self, waiting_log: WaitingLog, clock: Callable[[], datetime]) -> None:
        self._log = waiting_log
        self._clock = clock
        self._latest = CycleResult()
        self._shapes = WaitingShapes()
        self._counts: Counter[QueueName] = Counter()
        self._shape_counts: Counter[ShapeKey] = Counter()
        self._counted_until: datetime | None = None
        self._totals: Counter[tuple[datetime, QueueName]] = Counter()
        self._shape_totals: dict[datetime, Counter[ShapeKey]] = {}
        self._restored = False

    def observe(self, result: CycleResult) -> None:
        """Take over which gangs wait after a cycle; what else has come for the same gangs, with the next write."""
        is_same = result.gangs is self._latest.gangs
        self._latest = result
        if not is_same:
            self._count_again()

    def _count_again(self) -> None:
        """Count what has waited up to now, and from now on what waits after the latest cycle."""
        self._count_until_now()
        result = self._latest
        waiting = [gang for gang in result.gangs if gang.phase in WAITING]
        shapes = self._shapes.update(waiting, result.groups, result.snapshot)
        self._counts = Counter(gang.queue for gang in waiting)
        self._shape_counts = Counter(
            (gang.queue, gang.namespace, shape)
            if (shape := shapes.get(gang.uid, NO_SHAPE)) != NO_SHAPE
            else (gang.queue, "", NO_SHAPE)
            for gang in waiting
        )

    async def run(self, epoch: int) -> None:
        """Write what has waited, every minute until cancelled. Raises DeposedError."""
        while True:
            await asyncio.sleep(WRITE_SECONDS)
            try:
                await self.write(epoch)
            except LedgerUnavailableError as error:
                log.debug("how long gangs wait is written later", error=str(error))

    async def write(self, epoch: int) -> None:
        """Write what has waited up to now. Raises DeposedError and LedgerUnavailableError."""
        self._count_again()
        now = self._clock()
        present, today = _hour_of(now), _day_of(now)
        if not self._restored:
            await self._restore(present, today)
        totals = dict(self._totals)
        hours = [WaitingHour(queue, hour, seconds) for (hour, queue), seconds in sorted(totals.items())]
        shapes = [
            WaitingShape(queue, namespace, day, shape, seconds)
            for day, of_day in self._shape_totals.items()
            for (queue, namespace, shape), seconds in _longest(of_day).items()
        ]
        days = set(self._shape_totals)
        if hours or shapes:
            await self._log.write_waiting(Waited(hours, shapes), epoch=epoch, keep_from=now - KEPT)
        for key in totals:
            if key[0] < present:
                del self._totals[key]
        for day in days:
            if day < today:
                del self._shape_totals[day]

    async def _restore(self, present: datetime, today: datetime) -> None:
        """Add what an earlier leader has written of this hour and day, and of all others that are to be written.

        There are such if an hour or a day has ended, or the ledger was away, since this leader began to count.
        """
        hours, days = {present, *(hour for hour, _ in self._totals)}, {today, *self._shape_totals}
        found = await self._log.waiting(min(hours | days), present + HOUR)
        for hour in found.hours:
            if hour.hour in hours:
                self._totals[hour.hour, hour.queue] += hour.seconds
        for one in found.shapes:
            if one.day in days:
                self._of_day(one.day)[one.queue, one.namespace, one.shape] += one.seconds
        self._restored = True

    def _of_day(self, day: datetime) -> Counter[ShapeKey]:
        """Return what has waited on a day; shapes beyond twice those that are kept are added up without theirs."""
        found = self._shape_totals.get(day, Counter())
        if len(found) > 2 * MOST_SHAPES:
            found = _longest(found)
        self._shape_totals[day] = found
        return found

    def _count_until_now(self) -> None:
        now = self._clock().replace(microsecond=0)
        start = self._counted_until or now
        while start < now:
            end = min(_hour_of(start) + HOUR, now)
            seconds = int((end - start).total_seconds())
            for queue, count in self._counts.items():
                self._totals[_hour_of(start), queue] += count * seconds
            of_day = self._of_day(_day_of(start)) if self._shape_counts else Counter[ShapeKey]()
            for key, count in self._shape_counts.items():
                of_day[key] += count * seconds
            start = end
        self._counted_until = start


def _longest(of_day: Counter[ShapeKey]) -> Counter[ShapeKey]:
    """Return what has waited for longest, and of all else the sums by queue, without shapes."""
    if len(of_day) <= MOST_SHAPES:
        return of_day
    found = Counter[ShapeKey]()
    left = MOST_SHAPES
    for key, seconds in of_day.most_common():
        is_kept = key[2] != NO_SHAPE and left > 0
        left -= is_kept
        found[key if is_kept else (key[0], "", NO_SHAPE)] += seconds
    return found


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _day_of(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
