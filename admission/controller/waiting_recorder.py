"""Counts how long gangs wait in each queue, hour by hour, and writes it beside the books, for the dashboard's charts.

Totals of an hour are written, not additions, so that a write whose outcome is unknown may be repeated. A new leader
goes on from the totals that its predecessor has written; what waited between the two is not counted.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

import structlog

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import WaitingHour
from admission.api.values.names import QueueName
from admission.cycle.state.result import CycleResult
from admission.errors import LedgerUnavailableError
from admission.ports import WaitingLog

log = structlog.get_logger()

WRITE_SECONDS = 60.0

KEPT = timedelta(days=40)
"""Charts show a month."""

HOUR = timedelta(hours=1)

WAITING = (Phase.PENDING, Phase.EVICTED)


class WaitingRecorder:
    """The gang-seconds of hours that are not written yet, or not over. Only `observe` and `run` change them."""

    def __init__(self, waiting_log: WaitingLog, clock: Callable[[], datetime]) -> None:
        self._log = waiting_log
        self._clock = clock
        self._gangs: tuple[GangReport, ...] = ()
        self._counts: Counter[QueueName] = Counter()
        self._counted_until: datetime | None = None
        self._totals: Counter[tuple[datetime, QueueName]] = Counter()
        self._restored = False

    def observe(self, result: CycleResult) -> None:
        """Take over which gangs wait after a cycle."""
        if result.gangs is self._gangs:
            return
        self._count_until_now()
        self._gangs = result.gangs
        self._counts = Counter(gang.queue for gang in result.gangs if gang.phase in WAITING)

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
        self._count_until_now()
        now = self._clock()
        present = _hour_of(now)
        if not self._restored:
            for hour in await self._log.waiting(present, present + HOUR):
                self._totals[hour.hour, hour.queue] += hour.seconds
            self._restored = True
        totals = dict(self._totals)
        rows = [WaitingHour(queue, hour, seconds) for (hour, queue), seconds in sorted(totals.items())]
        if rows:
            await self._log.write_waiting(rows, epoch=epoch, keep_from=now - KEPT)
        for key in totals:
            if key[0] < present:
                del self._totals[key]

    def _count_until_now(self) -> None:
        now = self._clock().replace(microsecond=0)
        start = self._counted_until or now
        while start < now:
            end = min(_hour_of(start) + HOUR, now)
            seconds = int((end - start).total_seconds())
            for queue, count in self._counts.items():
                self._totals[_hour_of(start), queue] += count * seconds
            start = end
        self._counted_until = start


def _hour_of(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)
