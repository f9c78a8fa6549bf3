"""What takes long runs beside the event loop, one thing at a time, even if nobody waits for it any more."""

import asyncio
import contextvars
import threading

import pytest

from admission.cycle.executor import BackgroundExecutor


async def test_the_executor_finishes_the_work_of_a_deposed_leader_before_that_of_the_next() -> None:
    aside, begun, goes_on = BackgroundExecutor(), threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        begun.set()
        goes_on.wait()
        ran.append("first")

    deposed = asyncio.create_task(aside.run(first))
    await asyncio.to_thread(begun.wait)
    deposed.cancel()
    with pytest.raises(asyncio.CancelledError):
        await deposed
    second = asyncio.create_task(aside.run(ran.append, "second"))
    await asyncio.sleep(0)
    assert ran == []

    goes_on.set()
    await second
    assert ran == ["first", "second"]


async def test_the_event_loop_goes_on_meanwhile_and_errors_come_back() -> None:
    goes_on = threading.Event()

    def waits() -> None:
        goes_on.wait()
        raise LookupError

    waiting = asyncio.create_task(BackgroundExecutor().run(waits))
    await asyncio.sleep(0)
    goes_on.set()

    with pytest.raises(LookupError):
        await waiting


async def test_the_executor_runs_work_in_the_context_of_its_caller() -> None:
    said = contextvars.ContextVar("said", default="nothing")
    said.set("this cycle")

    assert await BackgroundExecutor().run(said.get) == "this cycle"
