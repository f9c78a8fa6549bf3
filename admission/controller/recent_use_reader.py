"""Reads back from the books what the devices of gangs did of late, for the queues that say when a gang is idle.

A leader knows of it only what is recorded, its own rows included; so the next leader comes to the same. Where no queue
asks, nothing is read.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta

from admission.api.muster.ledger_entries import Placement
from admission.api.values.names import GangUid, QueueName
from admission.ports import MeasuredLog, View
from admission.status import idle_gangs
from admission.status.idle_gangs import IdleGangs


class RecentUseReader:
    """Reads recorded rows into `IdleGangs`. One per term. interval: of recorded times.

    placements: those of the leader, as they are at each call.
    """

    def __init__(
        self,
        *,
        log: MeasuredLog,
        view: View,
        idle: IdleGangs,
        placements: Callable[[], Mapping[GangUid, Placement]],
        interval: timedelta,
    ) -> None:
        self._log = log
        self._view = view
        self._idle = idle
        self._placements = placements
        self._interval = interval
        self._queues: frozenset[QueueName] = frozenset()
        self._start: datetime | None = None
        self._end: datetime | None = None
        """The rows of `_queues` between these are read."""

    async def read(self) -> None:
        """Read what is recorded and was not read yet; all of it anew for a queue that asks now, or for longer.

        Raises LedgerUnavailableError.
        """
        queues, longest = idle_gangs.policies(self._view.snapshot().queues.values())
        page = await self._log.measured() if queues else None
        if page is None:
            return
        end = page.end if page.page == page.pages else page.start
        start = end - longest - self._interval
        anew = self._end is None or self._start is None or start < self._start or not queues <= self._queues
        if end == self._end and not anew:
            return
        begin = start if anew or self._end is None else self._end
        rows = self._log.recorded(begin, end, queues)
        await self._idle.read(rows, end, self._placements(), anew=anew)
        self._queues, self._end = queues, end
        if anew:
            self._start = start
