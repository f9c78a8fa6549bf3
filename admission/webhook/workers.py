"""Worker processes that answer reviews on the first process's port: started, monitored, restarted and stopped with it.

The kernel distributes new connections among the listening processes (SO_REUSEPORT). A worker listens only once it can
answer, so a worker that starts or ends affects only its own connections.
"""

import asyncio
import contextlib
import signal
import socket
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from admission.webhook.worker_ipc import Line, Page, PageRequest, Report, Tally, Task

log = structlog.get_logger(__name__)

FIRST = 1
"""The number of the process that starts the others."""

STEADY_SECONDS = 60.0
"""A worker that ran this long did not fail at its start, so the pause before its restart is short again."""

SILENT_SECONDS = 60.0
"""A worker without a report for this long hangs; it should report every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds. pause: before a worker is restarted, doubled each time up to `longest`.

    grace: how long workers may take to end after the signal.
    """

    pause: float = 0.5
    longest: float = 30.0
    grace: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the workers are told, and what their messages cause.

    task: returns the task of a worker's number. pages: returns the first process's page at a path. heard: called with
    every report; lost: called for every worker that ended by itself.
    """

    task: Callable[[int], Task]
    pages: Callable[[str], Page]
    heard: Callable[[int, list[Tally]], None]
    lost: Callable[[], None]


class WorkerPool:
    """All workers but the first, by number."""

    def __init__(self, workers: int, command: Sequence[str], pace: Pace) -> None:
        """command: starts a worker with its end of the socket pair as standard input."""
        self._command = command
        self._numbers = range(FIRST + 1, workers + 1)
        self._pace = pace
        self._reports: dict[int, Report] = {}
        """The latest report of each running worker."""
        self._begun: set[int] = set()
        """Workers that have been ready."""
        self._processes: dict[int, Process] = {}
        self._lines: dict[int, Line] = {}
        self._early: set[int] = set()
        """Workers that were started before there was a task for them."""

    @property
    def ready(self) -> int:
        """The number of workers that answer reviews now."""
        return sum(not report.waiting for report in self._reports.values())

    def waiting_for(self) -> list[str]:
        """Return which workers have not been ready yet.

        A worker that was ready once does not count again after it ends: the others answer its share of the reviews.
        """
        late = [number for number in self._numbers if number not in self._begun]
        return [f"worker {number}: {self._lacking(number)}" for number in late]

    def _lacking(self, number: int) -> str:
        report = self._reports.get(number)
        return ", ".join(report.waiting) if report is not None else "starts"

    async def start(self) -> None:
        """Start all workers.

        Until `run` gives them their tasks they import modules, which is most of a start's time.
        """
        for number in self._numbers:
            await self._start(number)
            self._early.add(number)

    async def run(self, orders: Orders) -> None:
        """Keep the workers running. On cancellation they are signalled to end, but not awaited."""
        async with asyncio.TaskGroup() as tasks:
            for number in self._numbers:
                tasks.create_task(self._keep(number, orders), name=f"worker {number}")

    async def retell(self, orders: Orders) -> None:
        """Send the workers their present tasks. A worker that has ended gets its task when it is restarted."""
        for number, line in list(self._lines.items()):
            with contextlib.suppress(OSError):
                await line.send(orders.task(number))

    async def _keep(self, number: int, orders: Orders) -> None:
        clock = asyncio.get_running_loop().time
        failed = 0
        while True:
            began = clock()
            try:
                code = await self._once(number, orders)
            except OSError as error:  # no process could be started
                code = error.errno or 0
            failed = 1 if clock() - began > STEADY_SECONDS else failed + 1
            pause = min(self._pace.longest, self._pace.pause * 2.0 ** min(failed - 1, 30))
            orders.lost()
            log.warning("a worker has ended, and is started again", worker=number, code=code, pause=pause)
            await asyncio.sleep(pause)

    async def _once(self, number: int, orders: Orders) -> int:
        """Run a worker until it ends; return its exit code, or minus the signal that ended it."""
        if number in self._early:
            self._early.discard(number)
        else:
            await self._start(number)
        process, line = self._processes[number], self._lines[number]
        try:
            await self._hear(line, number, orders)
        except asyncio.CancelledError:
            _ask_to_end(process)
            raise
        finally:
            self._reports.pop(number, None)
        # It has ended, or it hangs; closing its line makes it end, too.
        line.close()
        return await _ended(process, self._pace.grace)

    async def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.enter_context(ours)
            with theirs:
                self._processes[number] = await asyncio.create_subprocess_exec(*self._command, stdin=theirs.fileno())
            self._lines[number] = await Line.from_socket(ours)
            stack.pop_all()

    async def _hear(self, line: Line, number: int, orders: Orders) -> None:
        """Give a worker its task and receive its messages until it ends, is silent too long, or sends garbage."""
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            await line.send(orders.task(number))
            while True:
                async with asyncio.timeout(SILENT_SECONDS):
                    message = await line.receive()
                match message:
                    case Report():
                        self._receive(number, message)
                        orders.heard(number, message.tallies)
                    case PageRequest():
                        await line.send(orders.pages(message.path))
                    case _:
                        return

    def _receive(self, number: int, report: Report) -> None:
        if not report.waiting and (number not in self._reports or self._reports[number].waiting):
            log.info("a worker is ready", worker=number)
            self._begun.add(number)
        self._reports[number] = report

    async def ended(self) -> None:
        """Wait until all workers have ended; kill those that take too long."""
        for number in self._early:
            _ask_to_end(self._processes[number])
        await asyncio.gather(*(_ended(process, self._pace.grace) for process in self._processes.values()))
        for line in self._lines.values():
            line.close()


def _ask_to_end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


async def _ended(process: Process, grace: float) -> int:
    """Wait until a process has ended, killing it if that takes too long, and return its exit code."""
    try:
        async with asyncio.timeout(grace):
            return await process.wait()
    except TimeoutError:
        log.warning("a worker does not end, and is killed", pid=process.pid)
        process.kill()
        return await process.wait()


@asynccontextmanager
async def started(workers: int, command: Sequence[str], pace: Pace | None = None) -> AsyncIterator[WorkerPool]:
    """Run this many workers, the first process included; when the block is left, all others have ended."""
    pool = WorkerPool(workers, command, pace or Pace())
    try:
        await pool.start()
        yield pool
    finally:
        await pool.ended()
