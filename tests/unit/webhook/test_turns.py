"""Reviews that may take long give way to others."""

import asyncio

import pytest

from admission.webhook import handler
from admission.webhook.handler import Turns
from tests.property import hostile_reviews
from tests.unit.webhook import cases

LARGE = {
    "a large pod": hostile_reviews.pod(annotations={"a": "x" * handler.LARGE_BODY}),
    "a claim with long selectors": hostile_reviews.claim([hostile_reviews.selector(1, handler.LARGE_SELECTORS)]),
}
SMALL = {
    "a pod": hostile_reviews.pod(),
    "a claim with a selector": hostile_reviews.claim(["true"]),
    "a pod of some containers": hostile_reviews.pod(containers=[cases.CONTAINER] * 50),
}


@pytest.mark.parametrize("sent", LARGE.values(), ids=LARGE)
def test_a_review_that_may_take_long_is_large(sent: bytes) -> None:
    assert handler.is_large(sent)


@pytest.mark.parametrize("sent", SMALL.values(), ids=SMALL)
def test_an_ordinary_review_is_not_large(sent: bytes) -> None:
    assert not handler.is_large(sent)


class Clock:
    """A clock that stands still, and notes for how long somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        sleep = asyncio.sleep

        async def sleeping(seconds: float) -> None:
            self.slept.append(round(seconds, 6))
            self.now += seconds
            await sleep(0)

        monkeypatch.setattr(asyncio, "sleep", sleeping)


async def test_a_large_review_leaves_the_loop_to_others_for_as_long_as_the_one_before_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    turns = Turns(lambda: clock.now)

    for seconds in (0.125, 3.0, 0.0):
        await turns.wait()
        turns.end(seconds)
    clock.now += 10
    await turns.wait()

    assert clock.slept == [0.0, 0.125, handler.LONGEST_PAUSE, 0.0]


async def test_large_reviews_come_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    turns, running, most = Turns(lambda: clock.now), 0, 0

    async def review() -> None:
        nonlocal running, most
        await turns.wait()
        running += 1
        most = max(most, running)
        running -= 1
        turns.end(0.1)

    await asyncio.gather(*(review() for _ in range(5)))

    assert most == 1
    assert clock.slept == [0.0, 0.1, 0.1, 0.1, 0.1]
