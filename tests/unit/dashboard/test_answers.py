"""Answers about capacity: one for all who ask the same, and one at a time for whoever asks much."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from threading import Semaphore

import pytest
from aiohttp import web

from admission.api.muster.observed import ObservedObjects
from admission.api.values.names import QueueName
from admission.dashboard.devices import gang_capacity
from admission.dashboard.devices.gang_capacity import GangCapacity, Shape
from admission.dashboard.pages.devices import gang_capacity as page
from admission.dashboard.pages.devices.gang_capacity import Answers
from admission.errors import CapacityBusyError
from tests import dashboard_clusters

OBSERVED = dashboard_clusters.Cluster().observe()


class Slow:
    """Answers when it is told to, with as many gangs as the shape has pods."""

    def __init__(self) -> None:
        self.answers, self.done = Answers(), list[int]()
        self.turns = Semaphore(0)

    def find(self, _observed: ObservedObjects, shape: Shape, _queue: QueueName) -> GangCapacity:
        self.turns.acquire()
        self.done.append(shape.pods)
        return GangCapacity(starts=shape.pods, is_bound=False, stopped="", free=[], moves=[])

    def asked(self, pods: int, visitor: str) -> Awaitable[GangCapacity]:
        return self.answers.find(OBSERVED, gang_capacity.shape(pods, 1, "gpu"), QueueName(""), visitor=visitor)


@pytest.fixture
async def slow(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Slow]:
    found = Slow()
    monkeypatch.setattr(gang_capacity, "find", found.find)
    yield found
    found.turns.release(100)
    await found.answers.close(web.Application())


async def begun(*asked: Awaitable[GangCapacity]) -> list["asyncio.Future[GangCapacity]"]:
    """Ask, and let each come as far as it comes without an answer."""
    tasks: list[asyncio.Future[GangCapacity]] = [asyncio.ensure_future(one) for one in asked]
    for _ in range(5):
        await asyncio.sleep(0)
    return tasks


async def test_a_question_that_many_ask_at_once_is_answered_once(slow: Slow) -> None:
    tasks = await begun(*(slow.asked(3, f"visitor-{at}") for at in range(20)))
    slow.turns.release()

    assert [one.starts for one in await asyncio.gather(*tasks)] == [3] * 20
    assert slow.done == [3]


async def test_who_asks_once_waits_for_one_question_of_who_asks_much(slow: Slow) -> None:
    many = await begun(*(slow.asked(pods, "much") for pods in range(1, 21)))
    once = await begun(slow.asked(99, "once"))
    slow.turns.release(100)

    await asyncio.gather(*many, *once)
    assert slow.done.index(99) == 1


async def test_who_goes_before_the_answer_comes_asks_nothing_else_until_then(slow: Slow) -> None:
    gone = await begun(slow.asked(1, "much"))
    gone[0].cancel()
    (task,) = await begun(slow.asked(2, "much"))
    other = await begun(slow.asked(3, "other"))
    slow.turns.release(100)

    await asyncio.gather(task, *other)
    assert slow.done == [1, 3, 2]


async def test_too_many_who_ask_at_once_are_told_so_and_may_ask_again(slow: Slow) -> None:
    tasks = await begun(*(slow.asked(1 + at, f"visitor-{at}") for at in range(page.MOST_ASKED)))

    with pytest.raises(CapacityBusyError, match="ask again in some seconds"):
        await slow.asked(99, "late")
    slow.turns.release(100)
    await asyncio.gather(*tasks)
    assert (await slow.asked(99, "late")).starts == 99


async def test_a_question_that_failed_is_asked_again(slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as failing:
        failing.setattr(gang_capacity, "find", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            await slow.asked(1, "visitor")
    slow.turns.release()

    assert (await slow.asked(1, "visitor")).starts == 1
