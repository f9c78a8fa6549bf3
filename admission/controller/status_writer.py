"""The writer of the leader's reports, which runs beside the cycles, so that admissions do not wait for status writes.

Only the latest report of each object is pending, so two changes in quick succession cost one write. For that, what will
soon be otherwise waits: of a gang that is on its way, whose pods, claims or places are just being made, of a gang of
which only numbers change, and of a queue that was written a moment ago. A report equal to the previous one is dropped,
until `forget_after` seconds have passed, since the object may have been edited meanwhile.
"""

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import structlog

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.api.values import reasons
from admission.errors import FixError, GoneError, RetryError
from admission.ports import Reports

log = structlog.get_logger()

Key = tuple[str, str]
State = tuple[object, ...]
Write = Callable[[], Awaitable[None]]

MAX_SETTLE_FACTOR = 4

WRITES_PER_SECOND = 10
LONGEST_SETTLE = 30.0
"""What will soon be otherwise waits so long in seconds that all that is pending takes so many writes a second, at most
so long: in a burst, most gangs run before anybody could have read of each step on their way."""

MOST_NOTICES = 1_000
"""Events pending at most; the oldest are dropped, to spare the API server."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """A report to be written. due: from when on, by the loop's clock."""

    report: Any
    write: Write
    due: float


class StatusWriter:
    """The port Reports, without waiting: `run` does the writes, `writes` at a time, with `pause` seconds in between.

    settle: seconds that what will soon be otherwise waits for the next report, and between two of one queue. A gang
    that stays so waits twice as long each time, up to `MAX_SETTLE_FACTOR` times `settle`; and longer while much is
    pending.
    """

    def __init__(
        self,
        reports: Reports,
        *,
        writes: int = 8,
        pause: float = 1.0,
        settle: float = 3.0,
        forget_after: float = 60.0,
    ) -> None:
        self._reports = reports
        self._limit = asyncio.Semaphore(writes)
        self._pause = pause
        self._settle = settle
        self._forget_after = forget_after
        self._forget_at = 0.0
        self._latest: dict[Key, Any] = {}
        self._pending: dict[Key, _Pending] = {}
        self._queues_due: dict[Key, float] = {}
        """From when on each queue may be written again."""
        self._states: dict[Key, State] = {}
        """What each gang was last written as."""
        self._waits: Counter[Key] = Counter()
        """How often in a row a gang was written that was on its way, or of which only numbers had changed."""
        self._writing: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        """A lock for each object being written, so that its reports are written in order."""
        self._notices: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self._wakeup = asyncio.Event()

    async def gang(self, report: GangReport) -> None:
        key = "Gang", report.key
        unwritten = self._pending.get(key)
        if unwritten is not None and not report.has_or_had_pods and unwritten.report.has_or_had_pods:
            # It came and went in the meantime: its object is made all the same.
            report = replace(report, had_pods=True)
        is_settled = not _is_on_its_way(report) and self._states.get(key) != _state(report)
        wait = 0.0 if is_settled else self._settle_time(key)
        self._enqueue(key, report, partial(self._reports.gang, report), due=_now() + wait)

    def _settle_time(self, key: Key) -> float:
        usual: float = self._settle * min(2 ** self._waits[key], MAX_SETTLE_FACTOR)
        return max(usual, min(len(self._pending) / WRITES_PER_SECOND, LONGEST_SETTLE))

    async def queue(self, report: QueueReport) -> None:
        key = "Queue", report.name
        self._enqueue(key, report, partial(self._reports.queue, report), due=self._queues_due.get(key, 0.0))

    async def conditions(self, report: ConditionReport) -> None:
        self._enqueue((report.plural, report.name), report, partial(self._reports.conditions, report))

    async def notify(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._wakeup.set()

    async def run(self) -> None:
        """Write reports and notices that are due until cancelled."""
        while True:
            await self._woken_or_due()
            self._wakeup.clear()
            await self.flush_due()
            await asyncio.sleep(self._pause)

    async def flush_due(self) -> None:
        """Write what is due."""
        now = _now()
        await self._flush([key for key, pending in self._pending.items() if pending.due <= now])

    async def flush(self) -> None:
        """Write all pending reports, then the notices."""
        await self._flush([*self._pending])

    async def _woken_or_due(self) -> None:
        due = min((pending.due for pending in self._pending.values()), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._wakeup.wait()

    async def _flush(self, keys: Iterable[Key]) -> None:
        """Write some reports, then the notices, which may be about Gangs that the reports create.

        A notice about a Gang of which no report is written yet is kept: its cycle makes one.
        """
        due = {key: self._pending.pop(key) for key in keys}
        notices = [notice for notice in self._notices if self._is_reported(notice)]
        self._notices = deque((one for one in self._notices if not self._is_reported(one)), maxlen=MOST_NOTICES)
        self._queues_due |= {key: _now() + self._settle for key in due if key[0] == "Queue"}
        for key, one in due.items():
            if isinstance(one.report, GangReport):
                self._note_written(key, one.report)
        async with asyncio.TaskGroup() as tasks:
            for key, pending in due.items():
                tasks.create_task(self._write(key, pending), name=f"report {key[0]} {key[1]}")
        async with asyncio.TaskGroup() as tasks:
            for notice in notices:
                tasks.create_task(self._notify(notice), name=f"event on {notice.name}")

    def _note_written(self, key: Key, report: GangReport) -> None:
        before, self._states[key] = self._states.get(key), _state(report)
        if before == _state(report) or _is_on_its_way(report):
            self._waits[key] += 1
        else:
            self._waits.pop(key, None)

    def _is_reported(self, notice: Notice) -> bool:
        key = "Gang", f"{notice.namespace}/{notice.name}"
        return not notice.awaits_gang or (key in self._latest and key not in self._pending)

    def _enqueue(self, key: Key, report: Any, write: Write, *, due: float = 0.0) -> None:
        self._forget()
        before = self._latest.get(key)
        if before is report or before == report:
            return
        self._latest[key] = report
        pending = self._pending.get(key)
        self._pending[key] = _Pending(report, write, due if pending is None else min(due, pending.due))
        self._wakeup.set()

    def _forget(self) -> None:
        """Forget the earlier reports when `forget_after` is over. Not in `run`, which sleeps while nothing changes."""
        now = _now()
        if now >= self._forget_at:
            self._latest.clear()
            self._queues_due.clear()
            self._states.clear()
            self._waits.clear()
            self._forget_at = now + self._forget_after

    async def _write(self, key: Key, pending: _Pending) -> None:
        """Write one report. A failed one is tried again after `settle` seconds; decisions are unaffected."""
        report = pending.report
        async with self._writing.setdefault(key, asyncio.Lock()), self._limit:
            try:
                await pending.write()
            except (RetryError, FixError, GoneError) as error:
                # Only if no later report of the object has replaced this one.
                if self._latest.get(key) is report:
                    del self._latest[key]
                    if not isinstance(error, GoneError):
                        self._pending.setdefault(key, replace(pending, due=_now() + self._settle))
                uid = {"gang_uid": report.uid} if isinstance(report, GangReport) else {}
                log.warning("a status was not written", kind=key[0], name=key[1], error=str(error), **uid)

    async def _notify(self, notice: Notice) -> None:
        async with self._limit:
            await self._reports.notify(notice)


def _is_on_its_way(report: GangReport) -> bool:
    """Return whether the status of a gang is about to change: its pods are being made, placed or started."""
    if report.phase is Phase.PENDING:
        return report.hold is None or report.hold.reason in reasons.PASSING
    return report.phase in (Phase.RESERVED, Phase.ADMITTED) and report.hold is None


def _state(report: GangReport) -> State:
    """Return what of a status people wait for; of the rest, the latest is enough."""
    return (
        report.phase,
        report.hold.reason if report.hold is not None else "",
        report.evicted,
        report.answered,
        report.over,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()
