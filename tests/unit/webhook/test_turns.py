"""Reviews that may take long give way to others."""

import asyncio
import json

import pytest

from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.webhook import handler
from admission.webhook.handler import Turns
from tests.property import hostile_reviews
from tests.unit.webhook import cases, test_server

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


@pytest.mark.enable_socket
async def test_a_small_review_is_answered_between_two_large_ones() -> None:
    judged: list[str] = []
    first = asyncio.Event()

    def judge(review: Review) -> Verdict:
        judged.append(review.uid)
        first.set()
        # The turns of the others come after as long as this has taken.
        end = asyncio.get_running_loop().time() + handler.LONGEST_PAUSE
        while review.uid.startswith("large") and asyncio.get_running_loop().time() < end:
            pass
        return ALLOWED

    def sent(uid: str, size: int) -> bytes:
        review = json.loads(hostile_reviews.pod(annotations={"a": "x" * size}))
        review["request"]["uid"] = uid
        return json.dumps(review).encode()

    async with test_server.serving(mutate=judge) as client, asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(client.post("/mutate", sent(f"large-{number}", 100_000)))
        await first.wait()
        tasks.create_task(client.post("/mutate", sent("small", 0)))

    assert [uid.partition("-")[0] for uid in judged] == ["large", "small", "large", "large"]
