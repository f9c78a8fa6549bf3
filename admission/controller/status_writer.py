"""The leader's reports are written beside its cycles, so that nobody who waits to be admitted waits for a status.

Of each object only the latest report is kept: what changed twice in a moment is written once. What was handed in before
and has not changed is not looked at again, until `forget_after` seconds have passed, since somebody may have edited it.
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
"""Events that wait to be written; older ones are dropped, as they are worth less than the API server's time."""


class StatusWriter:
    """The port Reports that returns at once; `run` writes, `writes` at a time, at most once in `pause` seconds."""

    def __init__(self, reports: Reports, *, writes: int = 8, pause: float = 1.0, forget_after: float = 60.0) -> None:
        self._reports = reports
        self._limit = asyncio.Semaphore(writes)
        self._pause = pause
        self._forget_after = forget_after
        self._forget_at = 0.0
        self._handed: dict[Key, Any] = {}
        self._pending: dict[Key, tuple[Any, Write]] = {}
        self._writing: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()
        """Of each object that is being written: what was handed in first is there first."""
        self._notices: deque[Notice] = deque(maxlen=MOST_NOTICES)
        self._news = asyncio.Event()

    async def gang(self, report: GangReport) -> None:
        self._hand_in(("Gang", report.key), report, partial(self._reports.gang, report))

    async def queue(self, report: QueueReport) -> None:
        self._hand_in(("Queue", report.name), report, partial(self._reports.queue, report))

    async def conditions(self, report: ConditionReport) -> None:
        self._hand_in((report.plural, report.name), report, partial(self._reports.conditions, report))

    async def notify(self, notice: Notice) -> None:
        self._notices.append(notice)
        self._news.set()

    async def run(self) -> None:
        """Write what is handed in, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await self.flush()
            await asyncio.sleep(self._pause)

    async def flush(self) -> None:
        """Write everything that waits."""
        pending, self._pending = self._pending, {}
        notices, self._notices = self._notices, deque(maxlen=MOST_NOTICES)
        async with asyncio.TaskGroup() as tasks:
            for key, (report, write) in pending.items():
                tasks.create_task(self._write(key, report, write), name=f"report {key[0]} {key[1]}")
            for notice in notices:
                tasks.create_task(self._notify(notice), name=f"event on {notice.name}")

    def _hand_in(self, key: Key, report: Any, write: Write) -> None:
        self._forget()
        if self._pending:
            self._news.set()
        before = self._handed.get(key)
        if before is report or before == report:
            return
        self._handed[key] = report
        self._pending[key] = report, write
        self._news.set()

    def _forget(self) -> None:
        """Forget what was handed in, when it is time. Here and not in `run`, which sleeps while nothing changes."""
        now = asyncio.get_running_loop().time()
        if now >= self._forget_at:
            self._handed.clear()
            self._forget_at = now + self._forget_after

    async def _write(self, key: Key, report: Any, write: Write) -> None:
        """Write one report. One that fails waits until something is handed in again; what was decided stands."""
        async with self._writing.setdefault(key, asyncio.Lock()), self._limit:
            try:
                await write()
            except (RetryError, FixError, GoneError) as error:
                # A later one is on its way, or waits already.
                if self._handed.get(key) is report:
                    del self._handed[key]
                    if not isinstance(error, GoneError):
                        self._pending.setdefault(key, (report, write))
                uid = {"gang_uid": report.uid} if isinstance(report, GangReport) else {}
                log.warning("a status was not written", kind=key[0], name=key[1], error=str(error), **uid)

    async def _notify(self, notice: Notice) -> None:
        async with self._limit:
            await self._reports.notify(notice)
