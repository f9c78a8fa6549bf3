"""Reads back from the books what the devices of gangs did of late.

Of gangs whose queues say when one is idle, as far back as these ask; of claims that asked for memory of their devices,
the last recorded time. A leader knows of it only what is recorded, its own rows included; so the next leader comes to
the same. Where nobody asks, nothing is read.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta

from admission.accounting import memory_use
from admission.accounting.memory_use import MemoryUse
from admission.api.device_use.memory import MemoryExceeded
from admission.api.muster.ledger_entries import MeasuredUsage, Placement
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
        self._after: Mapping[QueueName, timedelta] = {}
        """How far the rows of queues were read back, when all that is known was read."""
        self._end: datetime | None = None
        """The rows are read up to this."""
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
        after = idle_gangs.policies(snapshot.queues.values())
        if not after:
            return
        before = self._end
        replaces = before is None or any(self._after.get(name, -self._interval) < time for name, time in after.items())
        if end == before and not replaces:
            return
        if before is None or replaces:
            rows = self._read_back(after, end)
        else:
            rows = self._log.recorded(before, end, after.keys())
        await self._idle.read(rows, end, self._placements(), replaces=replaces)
        self._end = end
        if replaces:
            self._after = after

    async def _read_back(self, after: Mapping[QueueName, timedelta], end: datetime) -> AsyncIterator[MeasuredUsage]:
        """Yield the rows of each queue as far back as it has to be known whether a gang is idle.

        Since when it is, if that is longer ago, its status says.
        """
        for time in sorted(set(after.values())):
            queues = {name for name, one in after.items() if one == time}
            async for row in self._log.recorded(end - time - self._interval, end, queues):
                yield row

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
