"""Reads back from the books what the devices of gangs did of late.

Of gangs whose queues say when one is idle, as far back as these ask; of claims that asked for memory of their devices,
the last recorded time. A leader knows of it only what is recorded, its own rows included; so the next leader comes to
the same. Where nobody asks, nothing is read.
"""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from admission.accounting import memory_use
from admission.accounting.memory_use import MemoryUse
from admission.api.device_use.idle import LONGEST
from admission.api.device_use.memory import MemoryExceeded
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
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
        memory: MemoryUse,
        placements: Callable[[], Mapping[GangUid, Placement]],
        interval: timedelta,
    ) -> None:
        self._log = log
        self._view = view
        self._idle = idle
        self._memory = memory
        self._placements = placements
        self._interval = interval
        self._queues: frozenset[QueueName] = frozenset()
        self._start: datetime | None = None
        self._end: datetime | None = None
        """The rows of `_queues` between these are read."""
        self._compared: datetime | None = None
        """The end of the recorded time in which use of memory was compared with what was asked for."""

    async def read(self) -> None:
        """Read what is recorded and was not read yet; all of it for a queue that asks now, or for longer.

        Raises LedgerUnavailableError.
        """
        snapshot = self._view.snapshot()
        page = await self._log.measured()
        if page is None:
            return
        end = page.end if page.page == page.pages else page.start
        await self._read_memory(snapshot, end)
        queues, longest = idle_gangs.policies(snapshot.queues.values())
        if not queues:
            return
        start = end - longest - self._interval
        replaces = self._end is None or self._start is None or start < self._start or not queues <= self._queues
        if end == self._end and not replaces:
            return
        begin = self._begin(snapshot, queues, start, end) if replaces or self._end is None else self._end
        rows = self._log.recorded(begin, end, queues)
        await self._idle.read(rows, end, self._placements(), replaces=replaces)
        self._queues, self._end = queues, end
        if replaces:
            self._start = begin

    def _begin(self, snapshot: Snapshot, queues: Collection[QueueName], start: datetime, end: datetime) -> datetime:
        """Return from when on rows are read: from `start`, or since when a gang is idle that another leader has found.

        So it is idle since the same time for the next leader, unless that is longer ago than a queue may ask for.
        """
        known = (gang.idle.since for gang in snapshot.gangs.values() if gang.idle is not None and gang.queue in queues)
        return max(min(start, *known, end), end - LONGEST - self._interval)

    async def _read_memory(self, snapshot: Snapshot, end: datetime) -> None:
        """Compare the memory in use in the last recorded time with what was asked for, once."""
        if end == self._compared:
            return
        known = memory_use.asked(snapshot.claims.values())
        found: dict[GangUid, MemoryExceeded] = {}
        if any(amount is not None for of_claim in known.values() for amount in of_claim.values()):
            start = end - self._interval
            rows = [row async for row in self._log.recorded(start, end, snapshot.queues.keys())]
            found = memory_use.exceeding(rows, await self._log.allocations(start, end), known)
        self._memory.note(found, end)
        self._compared = end
