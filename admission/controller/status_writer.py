"""The writer of the leader's reports, which runs beside the cycles, so that admissions do not wait for status writes.

Only the latest report of each object is pending, so two changes in quick succession cost one write. A report equal to
the previous one is dropped, until `forget_after` seconds have passed, since the object may have been edited meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import structlog

from admission.api.muster.gangs import GangReport
from admission.api.muster.status_reports import ConditionReport, Notice, QueueReport
from admission.errors import FixError, GoneError, RetryError
from admission.ports import Reports

log = structlog.get_logger()

Key = tuple[str, str]
Write = Callable[[], Awaitable[None]]

MOST_NOTICES = 1_000
"""Events pending at most; the oldest are dropped, to spare the API server."""


class StatusWriter:
    """The port Reports, without waiting: `run` does the writes, `writes` at a time, with `pause` seconds in between."""

    def __init__(self, reports: Reports, *, writes: int = 8, pause: float = 1.0, forget_after: float = 60.0) -> None:
        self._reports = reports
        self._limit = asyncio.Semaphore(writes)
        self._pause = pause
        self._forget_after = forget_after
        self._forget_at = 0.0
        self._latest: dict[Key, Any] = {}
        self._pending: dict[Key, tuple[Any, Write]] = {}
        self._writing: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        """A lock for each object being written, so that its reports are written in order."""
        self._notices: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self._wakeup = asyncio.Event()

    async def gang(self, report: GangReport) -> None:
        self._enqueue(("Gang", report.key), report, partial(self._reports.gang, report))

    async def queue(self, report: QueueReport) -> None:
        self._enqueue(("Queue", report.name), report, partial(self._reports.queue, report))

    async def conditions(self, report: ConditionReport) -> None:
        self._enqueue((report.plural, report.name), report, partial(self._reports.conditions, report))

    async def notify(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._wakeup.set()

    async def run(self) -> None:
        """Write pending reports and notices until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup.clear()
            await self.flush()
            await asyncio.sleep(self._pause)

    async def flush(self) -> None:
        """Write all pending reports, then the notices, which may be about Gangs that the reports create.

        A notice about a Gang of which no report has come yet is kept: its cycle makes one.
        """
        pending, self._pending = self._pending, {}
        notices = [notice for notice in self._notices if self._is_reported(notice)]
        self._notices = deque((one for one in self._notices if not self._is_reported(one)), maxlen=MOST_NOTICES)
        async with asyncio.TaskGroup() as tasks:
            for key, (report, write) in pending.items():
                tasks.create_task(self._write(key, report, write), name=f"report {key[0]} {key[1]}")
        async with asyncio.TaskGroup() as tasks:
            for notice in notices:
                tasks.create_task(self._notify(notice), name=f"event on {notice.name}")

    def _is_reported(self, notice: Notice) -> bool:
        return not notice.awaits_gang or ("Gang", f"{notice.namespace}/{notice.name}") in self._latest

    def _enqueue(self, key: Key, report: Any, write: Write) -> None:
        self._forget()
        if self._pending:
            self._wakeup.set()
        before = self._latest.get(key)
        if before is report or before == report:
            return
        self._latest[key] = report
        self._pending[key] = report, write
        self._wakeup.set()

    def _forget(self) -> None:
        """Forget the earlier reports when `forget_after` is over. Not in `run`, which sleeps while nothing changes."""
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._latest.clear()
            self._forget_at = now + self._forget_after

    async def _write(self, key: Key, report: Any, write: Write) -> None:
        """Write one report. A failed one is retried after the next report of any object; decisions are unaffected."""
        async with self._writing.setdefault(key, asyncio.Lock()), self._limit:
            try:
                await write()
            except (RetryError, FixError, GoneError) as error:
                # Only if no later report of the object has replaced this one.
                if self._latest.get(key) is report:
                    del self._latest[key]
                    if not isinstance(error, GoneError):
                        self._pending.setdefault(key, (report, write))
                uid = {"gang_uid": report.uid} if isinstance(report, GangReport) else {}
                log.warning("a status was not written", kind=key[0], name=key[1], error=str(error), **uid)

    async def _notify(self, notice: Notice) -> None:
        async with self._limit:
            await self._reports.notify(notice)
