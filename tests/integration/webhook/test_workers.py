"""The channel between the first process and its workers, and how these are started, heard, started again and ended."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from admission.errors import FixError, RetryError
from admission.webhook import worker_ipc, workers
from admission.webhook.worker_ipc import Channel, Message, Page, PageRequest, Report, Tally, Task, WorkerChannel
from admission.webhook.workers import RestartPolicy, WorkerCallbacks, WorkerPool

QUICK = RestartPolicy(pause=0.01, longest=0.02, grace=5.0)
TASK = Task(number=2, settings=msgspec.Raw(b'{"a":1}'))
TALLY: Tally = ("mutate", "patched", "", [1, 2], 0.5)

# What a worker does, in a Python that starts fast. `say` sends a message up; the first line is the task.
PREAMBLE = """
import json, os, signal, socket, sys, time
line = socket.socket(fileno=0)
read = line.makefile("r")
def say(**message): line.sendall((json.dumps(message) + "\\n").encode())
tallies, refusals = [["mutate", "patched", "", [1], 0.5]], {"path": 3}
def report(*waiting): say(type="Report", waiting=list(waiting), tallies=tallies, refusals=refusals)
task = json.loads(read.readline())
"""


def ignored(task: Task) -> None:
    """Nobody waits for another task."""


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Channel, WorkerChannel]]:
    """Both ends of a line, the task given."""
    ours, theirs = socket.socketpair()
    line = await Channel.from_socket(ours)
    await line.send(TASK)
    link = await WorkerChannel.from_socket(theirs)
    try:
        yield line, link
    finally:
        line.close()
        link.close()


async def test_a_worker_receives_its_task() -> None:
    async with connected() as (_, link):
        assert link.task.number == 2
        assert msgspec.json.decode(link.task.settings) == {"a": 1}


async def test_a_worker_process_without_a_task_says_how_workers_are_started() -> None:
    ours, theirs = socket.socketpair()
    ours.close()

    with pytest.raises(FixError, match="muster serve --workers N"):
        await WorkerChannel.from_socket(theirs)


async def test_a_worker_reports_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_ipc, "REPORT_SECONDS", 0.001)
    waiting = ["pods"]
    async with connected() as (line, link), asyncio.TaskGroup() as tasks:
        reporting = tasks.create_task(link.report(lambda: waiting, lambda: ([TALLY], {"head": 2})))
        seen: list[Message | None] = [await line.receive()]
        waiting.clear()
        while (report := await line.receive()) in seen:
            pass
        reporting.cancel()

    assert seen == [Report(waiting=["pods"], tallies=[TALLY], refusals={"head": 2})]
    assert report == Report(waiting=[], tallies=[TALLY], refusals={"head": 2})


async def test_pages_are_answered_to_a_worker_in_the_order_of_its_requests() -> None:
    async with connected() as (line, link), asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(link.listen(ignored))
        asked = [tasks.create_task(link.page_request(path)) for path in ("/readyz", "/metrics")]
        for _ in asked:
            message = await line.receive()
            assert isinstance(message, PageRequest)
            await line.send(Page(200, f"this is {message.path}"))
        pages = await asyncio.gather(*asked)
        listening.cancel()

    assert [page.text for page in pages] == ["this is /readyz", "this is /metrics"]


async def test_a_late_page_is_not_taken_for_the_answer_to_the_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (line, link), asyncio.TaskGroup() as tasks:
        listening = tasks.create_task(link.listen(ignored))
        with monkeypatch.context() as hasty:
            hasty.setattr(worker_ipc, "ANSWER_SECONDS", 0.001)
            with pytest.raises(RetryError, match="does not answer"):
                await link.page_request("/metrics")
        asked = tasks.create_task(link.page_request("/readyz"))
        await line.send(Page(200, "late"))
        await line.send(Page(200, "right"))

        assert (await asked).text == "right"
        listening.cancel()


async def test_a_worker_receives_a_changed_task() -> None:
    other = Task(number=2, settings=msgspec.Raw(b'{"a":2}'))
    tasks: list[Task] = []
    async with connected() as (line, link):
        await line.send(other)
        line.close()

        await link.listen(tasks.append)

    assert [msgspec.json.decode(task.settings) for task in tasks] == [{"a": 2}]


async def test_the_end_of_the_other_process_ends_the_listening() -> None:
    async with connected() as (line, link):
        line.close()

        await link.listen(ignored)
        with pytest.raises(RetryError):
            await link.page_request("/metrics")


@dataclass
class Boss:
    """The first process: what it was told, and how its workers are started."""

    pool: WorkerPool
    reports: list[tuple[int, list[Tally], dict[str, int]]] = field(default_factory=list)
    exits: int = 0

    def callbacks(self) -> WorkerCallbacks:
        return WorkerCallbacks(
            task=lambda number: Task(number=number, settings=msgspec.Raw(b"{}")),
            page=lambda path: Page(200, f"this is {path}"),
            on_report=lambda *report: self.reports.append(report),
            on_exit=self._count_exit,
        )

    def _count_exit(self) -> None:
        self.exits += 1

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.pool._processes.values()]


@asynccontextmanager
async def started(does: str, *, workers_: int = 2, pace: RestartPolicy = QUICK) -> AsyncIterator[Boss]:
    """Workers that do as a script says, until the block is left."""
    command = (sys.executable, "-I", "-S", "-c", PREAMBLE + does)
    async with workers.started(workers_, command, pace) as pool:
        boss = Boss(pool)
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(pool.run(boss.callbacks()))
            try:
                yield boss
            finally:
                running.cancel()


async def until(current: Callable[[], Any]) -> None:
    while not current():  # noqa: ASYNC110 - what other processes do sets no event here
        await asyncio.sleep(0.001)


READS_ON = "report()\nwhile read.readline(): pass\n"


async def test_workers_are_ready_when_all_have_said_so() -> None:
    async with started("report('pods') if task['number'] == 3 else report()\nread.readline()", workers_=3) as boss:
        assert boss.pool.waiting_for() == ["worker 2: starts", "worker 3: starts"]
        await until(lambda: len(boss.reports) == 2)

        assert boss.pool.waiting_for() == ["worker 3: pods"]
        assert boss.pool.ready == 1


async def test_reports_of_workers_are_passed_on() -> None:
    async with started(READS_ON) as boss:
        await until(lambda: boss.reports)

        assert boss.reports == [(2, [("mutate", "patched", "", [1], 0.5)], {"path": 3})]


async def test_a_worker_receives_the_pages_of_its_requests() -> None:
    does = "say(type='PageRequest', path='/metrics')\nreport(json.loads(read.readline())['text'])\nread.readline()"
    async with started(does) as boss:
        await until(lambda: boss.reports)

        assert boss.pool.waiting_for() == ["worker 2: this is /metrics"]


async def test_a_killed_worker_is_restarted_and_the_pool_does_not_wait_for_the_restart() -> None:
    with capture_logs() as logged:
        async with started(READS_ON) as boss:
            await until(lambda: boss.pool.ready == 1)
            os.kill(boss.pids[0], signal.SIGKILL)
            await until(lambda: boss.exits == 1)

            assert boss.pool.ready == 0
            assert boss.pool.waiting_for() == []
            await until(lambda: boss.pool.ready == 1)

    [warning] = [entry for entry in logged if entry["log_level"] == "warning"]
    assert (warning["worker"], warning["code"], warning["pause"]) == (2, -signal.SIGKILL, 0.01)


async def test_a_worker_that_fails_repeatedly_is_restarted_after_growing_pauses() -> None:
    with capture_logs() as logged:
        async with started("sys.exit(2)") as boss:
            await until(lambda: boss.exits == 3)

    assert [entry["pause"] for entry in logged if "pause" in entry] == [0.01, 0.02, 0.02]
    assert {entry["code"] for entry in logged if "code" in entry} == {2}


async def test_a_worker_that_is_silent_for_too_long_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "SILENT_SECONDS", 0.05)

    async with started("time.sleep(60)", pace=RestartPolicy(pause=0.01, grace=0.05)) as boss:
        await until(lambda: boss.exits == 1)


async def test_a_worker_that_sends_malformed_messages_is_replaced() -> None:
    async with started("line.sendall(b'hello\\n')\nread.readline()", pace=RestartPolicy(pause=0.01, grace=5.0)) as boss:
        await until(lambda: boss.exits == 1)


async def test_a_worker_that_cannot_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with started(READS_ON) as boss:
        await until(lambda: boss.pool.ready == 1)
        with monkeypatch.context() as broken:
            broken.setattr(boss.pool, "_command", ("/nowhere/python",))
            os.kill(boss.pids[0], signal.SIGKILL)
            await until(lambda: boss.exits >= 2)

        await until(lambda: boss.pool.ready == 1)


async def test_workers_are_asked_to_end_and_waited_for() -> None:
    does = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n" + READS_ON
    async with started(does, workers_=3) as boss:
        await until(lambda: boss.pool.ready == 2)
        pids = boss.pids

    assert [process.returncode for process in boss.pool._processes.values()] == [0, 0]
    assert len(pids) == 2


async def test_a_worker_that_does_not_end_is_killed() -> None:
    does = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + READS_ON
    with capture_logs() as logged:
        async with started(does, pace=RestartPolicy(grace=0.05)) as boss:
            await until(lambda: boss.pool.ready == 1)

    assert [process.returncode for process in boss.pool._processes.values()] == [-signal.SIGKILL]
    assert [entry["event"] for entry in logged][-1] == "a worker does not end, and is killed"


async def test_workers_that_were_never_given_a_task_end_too() -> None:
    async with workers.started(3, (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"), QUICK) as pool:
        assert len(pool._processes) == 2

    assert [process.returncode for process in pool._processes.values()] == [-signal.SIGTERM] * 2


async def test_a_single_process_waits_for_no_workers() -> None:
    async with started("", workers_=1) as boss:
        assert (boss.pool.waiting_for(), boss.pool.ready, boss.pids) == ([], 0, [])
