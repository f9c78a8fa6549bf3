"""Further processes that answer reviews on the first one's port: started, heard, started again, and ended with it.

The kernel gives each new connection to one of those that listen (SO_REUSEPORT). A worker listens only when it could
answer, so one that starts, or that is gone, costs nobody an answer but those who were connected to it.
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
"""One that lived for so long did not fail at its start: the next one is not waited with."""

SILENT_SECONDS = 60.0
"""One that has not reported for so long, where it should every second, hangs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Seconds. pause: before a worker that ended is started again, doubled each time up to `longest`.

    grace: what workers have to end in once they were told.
    """

    pause: float = 0.5
    longest: float = 30.0
    grace: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What the workers are to do, and what is done with what they say.

    task: that of a number. pages: what the first process shows at a path. heard, lost: told of every report, and of
    every worker that ended by itself.
    """

    task: Callable[[int], Task]
    pages: Callable[[str], Page]
    heard: Callable[[int, list[Tally]], None]
    lost: Callable[[], None]


class WorkerPool:
    """All workers but the first, by number."""

    def __init__(self, workers: int, command: Sequence[str], pace: Pace) -> None:
        """command: starts one, which takes its line as standard input."""
        self._command = command
        self._numbers = range(FIRST + 1, workers + 1)
        self._pace = pace
        self._reports: dict[int, Report] = {}
        """The latest ones, of those that live."""
        self._begun: set[int] = set()
        """Those that have been ready."""
        self._processes: dict[int, Process] = {}
        self._lines: dict[int, Line] = {}
        self._early: set[int] = set()
        """Those that were started before there was anything to do."""

    @property
    def ready(self) -> int:
        """How many answer reviews now."""
        return sum(not report.waiting for report in self._reports.values())

    def waiting_for(self) -> list[str]:
        """Return which workers have not been ready yet.

        One that was, and is gone or started again, keeps nobody waiting: what comes is answered by the others.
        """
        late = [number for number in self._numbers if number not in self._begun]
        return [f"worker {number}: {self._lacking(number)}" for number in late]

    def _lacking(self, number: int) -> str:
        report = self._reports.get(number)
        return ", ".join(report.waiting) if report is not None else "starts"

    async def start(self) -> None:
        """Start all of them. They import, which is most of what a start takes, until `run` gives them their tasks."""
        for number in self._numbers:
            await self._start(number)
            self._early.add(number)

    async def run(self, orders: Orders) -> None:
        """Keep the workers running. When cancelled, they are told to end, and not waited for."""
        async with asyncio.TaskGroup() as tasks:
            for number in self._numbers:
                tasks.create_task(self._keep(number, orders), name=f"worker {number}")

    async def retell(self, orders: Orders) -> None:
        """Tell the workers what they are to do now. One that is gone hears it when it is started again."""
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
            except OSError as error:  # no process, or no memory for one
                code = error.errno or 0
            failed = 1 if clock() - began > STEADY_SECONDS else failed + 1
            pause = min(self._pace.longest, self._pace.pause * 2.0 ** min(failed - 1, 30))
            orders.lost()
            log.warning("a worker has ended, and is started again", worker=number, code=code, pause=pause)
            await asyncio.sleep(pause)

    async def _once(self, number: int, orders: Orders) -> int:
        """Run a worker until it has ended; return its exit code, or the signal that ended it, negative."""
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
        # It has ended, or it hangs; to be no longer heard is a reason to end, too.
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
        """Give a worker its task, and hear it until it is gone, silent for too long, or talks nonsense."""
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
        """Wait until all have ended; kill who does not in time."""
        for number in self._early:
            _ask_to_end(self._processes[number])
        await asyncio.gather(*(_ended(process, self._pace.grace) for process in self._processes.values()))
        for line in self._lines.values():
            line.close()


def _ask_to_end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


async def _ended(process: Process, grace: float) -> int:
    """Wait until a process has ended, kill it when that takes too long, and return its exit code."""
    try:
        async with asyncio.timeout(grace):
            return await process.wait()
    except TimeoutError:
        log.warning("a worker does not end, and is killed", pid=process.pid)
        process.kill()
        return await process.wait()


@asynccontextmanager
async def started(workers: int, command: Sequence[str], pace: Pace | None = None) -> AsyncIterator[WorkerPool]:
    """Have so many workers, the first among them; when the block is left, all others have ended."""
    pool = WorkerPool(workers, command, pace or Pace())
    try:
        await pool.start()
        yield pool
    finally:
        await pool.ended()
