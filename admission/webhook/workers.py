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

from admission.webhook.worker_ipc import Channel, Page, PageRequest, Report, Tally, Task

log = structlog.get_logger(__name__)

FIRST = 1
"""The number of the process that starts the others."""

STABLE_SECONDS = 60.0
"""A worker that ran this long did not fail at its start, so the pause before its restart is short again."""

SILENT_SECONDS = 60.0
"""A worker without a report for this long hangs; it should report every second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """Seconds. pause: before a worker is restarted, doubled each time up to `longest`.

    grace: how long workers may take to end after the signal.
    """

    pause: float = 0.5
    longest: float = 30.0
    grace: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCallbacks:
    """The functions by which the first process answers its workers.

    task: returns the task of a worker's number. page: returns the first process's page at a path. on_report: called
    with every report; on_exit: called for every worker that ended by itself.
    """

    task: Callable[[int], Task]
    page: Callable[[str], Page]
    on_report: Callable[[int, list[Tally], dict[str, int]], None]
    on_exit: Callable[[], None]


class WorkerPool:
    """All workers but the first, by number."""

    def __init__(self, workers: int, command: Sequence[str], restart_policy: RestartPolicy) -> None:
        """command: starts a worker with its end of the socket pair as standard input."""
        self._command = command
        self._numbers = range(FIRST + 1, workers + 1)
        self._restart_policy = restart_policy
        self._reports: dict[int, Report] = {}
        """The latest report of each running worker."""
        self._was_ready: set[int] = set()
        """Workers that have been ready."""
        self._processes: dict[int, Process] = {}
        self._channels: dict[int, Channel] = {}
        self._prestarted: set[int] = set()
        """Workers that were started before there was a task for them."""

    @property
    def ready(self) -> int:
        """The number of workers that answer reviews now."""
        return sum(not report.waiting for report in self._reports.values())

    def waiting_for(self) -> list[str]:
        """Return which workers have not been ready yet.

        A worker that was ready once does not count again after it ends: the others answer its share of the reviews.
        """
        not_ready = [number for number in self._numbers if number not in self._was_ready]
        return [f"worker {number}: {self._missing(number)}" for number in not_ready]

    def _missing(self, number: int) -> str:
        report = self._reports.get(number)
        return ", ".join(report.waiting) if report is not None else "starts"

    async def start(self) -> None:
        """Start all workers.

        Until `run` gives them their tasks they import modules, which is most of a start's time.
        """
        for number in self._numbers:
            await self._start(number)
            self._prestarted.add(number)

    async def run(self, callbacks: WorkerCallbacks) -> None:
        """Keep the workers running. On cancellation they are signalled to end, but not awaited."""
        async with asyncio.TaskGroup() as tasks:
            for number in self._numbers:
                tasks.create_task(self._supervise(number, callbacks), name=f"worker {number}")

    async def send_tasks(self, callbacks: WorkerCallbacks) -> None:
        """Send the workers their present tasks. A worker that has ended gets its task when it is restarted."""
        for number, channel in list(self._channels.items()):
            with contextlib.suppress(OSError):
                await channel.send(callbacks.task(number))

    async def _supervise(self, number: int, callbacks: WorkerCallbacks) -> None:
        clock = asyncio.get_running_loop().time
        failed = 0
        while True:
            started_at = clock()
            try:
                code = await self._run_once(number, callbacks)
            except OSError as error:  # no process could be started
                code = error.errno or 0
            failed = 1 if clock() - started_at > STABLE_SECONDS else failed + 1
            pause = min(self._restart_policy.longest, self._restart_policy.pause * 2.0 ** min(failed - 1, 30))
            callbacks.on_exit()
            log.warning("a worker has ended, and is started again", worker=number, code=code, pause=pause)
            await asyncio.sleep(pause)

    async def _run_once(self, number: int, callbacks: WorkerCallbacks) -> int:
        """Run a worker until it ends; return its exit code, or minus the signal that ended it."""
        if number in self._prestarted:
            self._prestarted.discard(number)
        else:
            await self._start(number)
        process, channel = self._processes[number], self._channels[number]
        try:
            await self._serve_messages(channel, number, callbacks)
        except asyncio.CancelledError:
            _terminate(process)
            raise
        finally:
            self._reports.pop(number, None)
        # It has ended, or it hangs; closing its channel makes it end, too.
        channel.close()
        return await _wait_or_kill(process, self._restart_policy.grace)

    async def _start(self, number: int) -> None:
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as stack:
            stack.enter_context(ours)
            with theirs:
                self._processes[number] = await asyncio.create_subprocess_exec(*self._command, stdin=theirs.fileno())
            self._channels[number] = await Channel.from_socket(ours)
            stack.pop_all()

    async def _serve_messages(self, channel: Channel, number: int, callbacks: WorkerCallbacks) -> None:
        """Give a worker its task and receive its messages until it ends, is silent too long, or sends garbage."""
        with contextlib.suppress(OSError, TimeoutError, ValueError):
            await channel.send(callbacks.task(number))
            while True:
                async with asyncio.timeout(SILENT_SECONDS):
                    message = await channel.receive()
                match message:
                    case Report():
                        self._receive(number, message)
                        callbacks.on_report(number, message.tallies, message.refusals)
                    case PageRequest():
                        await channel.send(callbacks.page(message.path))
                    case _:
                        return

    def _receive(self, number: int, report: Report) -> None:
        if not report.waiting and (number not in self._reports or self._reports[number].waiting):
            log.info("a worker is ready", worker=number)
            self._was_ready.add(number)
        self._reports[number] = report

    async def wait_ended(self) -> None:
        """Wait until all workers have ended; kill those that take too long."""
        for number in self._prestarted:
            _terminate(self._processes[number])
        await asyncio.gather(
            *(_wait_or_kill(process, self._restart_policy.grace) for process in self._processes.values())
        )
        for channel in self._channels.values():
            channel.close()


def _terminate(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


async def _wait_or_kill(process: Process, grace: float) -> int:
    """Wait until a process has ended, killing it if that takes too long, and return its exit code."""
    try:
        async with asyncio.timeout(grace):
            return await process.wait()
    except TimeoutError:
        log.warning("a worker does not end, and is killed", pid=process.pid)
        process.kill()
        return await process.wait()


@asynccontextmanager
async def started(
    workers: int, command: Sequence[str], restart_policy: RestartPolicy | None = None
) -> AsyncIterator[WorkerPool]:
    """Run this many workers, the first process included; when the block is left, all others have ended."""
    pool = WorkerPool(workers, command, restart_policy or RestartPolicy())
    try:
        await pool.start()
        yield pool
    finally:
        await pool.wait_ended()
