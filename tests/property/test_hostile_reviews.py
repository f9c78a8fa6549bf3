"""The law of the webhook's work: any body of up to 3 MiB, hostile or not, is answered before anybody has to wait.

How long that takes is a matter of the machine, so here function calls are counted. `make soak` measures processor time,
and has an ordinary review answered beside hostile ones.
"""

import asyncio
import gc
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from structlog.testing import capture_logs

from admission.review.caches import ReviewCaches
from admission.webhook import handler
from admission.webhook.handler import Answer, Outcome
from tests import soaking
from tests.integration.webhook import test_server
from tests.property import hostile_reviews
from tests.property.test_reviewer import ensure_well_formed
from tests.unit.webhook.cases import MemoryView

pytestmark = pytest.mark.usefixtures("cel_grammars")

LARGEST = 3 * 1024 * 1024
"""Bytes of a body."""

MOST_CALLS = 1_000_000
"""Calls of functions, Python's and C's, for one review: some 100 ms. A pod takes 300."""

SECONDS, BESIDE = 0.25, 0.3
"""Processor time of a hostile review, and until an innocent one beside it is answered, on two cores of 2026."""

IS_SOAKING = soaking.is_on()
SNAPSHOT = hostile_reviews.a_snapshot()
SIZES = st.sampled_from([2_000, 10_000, 60_000, 300_000, 1_000_000, 3_000_000])
law = settings(
    max_examples=2_000 if IS_SOAKING else 30,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def new_doors() -> dict[str, handler.Judge]:
    """Return the judges of a process that has answered nothing yet, so that no cache helps."""
    return hostile_reviews.doors(MemoryView(SNAPSHOT), ReviewCaches())


@st.composite
def hostile(draw: st.DrawFn) -> bytes:
    """Draw a review that is made to take long."""
    name = draw(st.sampled_from(sorted(hostile_reviews.ALL)))
    sent = hostile_reviews.ALL[name](draw(SIZES))
    if name.startswith("claim: ") and b"#here#" not in sent and draw(st.booleans()):
        sent = as_template(sent)
    assume(len(sent) <= LARGEST)
    return sent


def as_template(sent: bytes) -> bytes:
    try:
        return hostile_reviews.as_template(sent)
    except RecursionError:
        return sent


@contextmanager
def bounded() -> Iterator[None]:
    """Fail for more calls than one review may take, or, in `make soak`, for more processor time."""
    gc.collect()
    gc.freeze()
    if IS_SOAKING:
        started = time.process_time()
        yield
        assert time.process_time() - started <= SECONDS
        return
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(before)
    assert calls <= MOST_CALLS


@pytest.mark.parametrize("door", ["mutate", "validate", "hold"])
@law
@given(sent=hostile())
def test_whatever_is_sent_is_answered_with_bounded_work(door: str, sent: bytes) -> None:
    judge = new_doors()[door]

    with capture_logs(), bounded():
        answer = handler.answer(sent, judge)

    ensure_well_formed(answer)


@pytest.mark.parametrize(("door", "make"), hostile_reviews.TABLE.values(), ids=hostile_reviews.TABLE)
def test_what_froze_the_webhook_is_answered_with_bounded_work(door: str, make: Any) -> None:
    sent, judge = make(), new_doors()[door]

    with bounded():
        answer = handler.answer(sent, judge)

    assert answer.outcome is Outcome.DENIED


@given(sent=hostile(), door=st.sampled_from(["mutate", "validate", "hold"]))
@settings(max_examples=500 if IS_SOAKING else 15, suppress_health_check=[HealthCheck.too_slow])
def test_the_answer_does_not_depend_on_what_was_asked_before(door: str, sent: bytes) -> None:
    judge = new_doors()[door]

    with capture_logs():
        assert handler.answer(sent, judge) == handler.answer(sent, judge)


@pytest.mark.skipif(not IS_SOAKING, reason="processor time is measured in `make soak` alone")
@settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])
@given(sent=st.lists(hostile(), min_size=1, max_size=4))
async def test_an_innocent_review_beside_hostile_ones_is_answered_soon(sent: list[bytes]) -> None:
    doors = new_doors()
    innocent = hostile_reviews.pod()
    async with test_server.serving(mutate=doors["mutate"], validate=doors["validate"]) as client:
        await client.post("/mutate", innocent)
        async with asyncio.TaskGroup() as tasks:
            for body in sent:
                tasks.create_task(client.post("/validate", body))
            await asyncio.sleep(0)
            started = time.process_time()
            code, said = await client.post("/mutate", innocent)
            assert time.process_time() - started <= BESIDE
    ensure_well_formed(Answer(code, json.dumps(said).encode(), Outcome.FAILED))
