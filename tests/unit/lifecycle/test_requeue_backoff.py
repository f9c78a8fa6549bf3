"""How long a gang that was taken back waits, and what it is told."""

from datetime import timedelta

import pytest

from admission.api.muster import queues
from admission.api.muster.queues import Queue
from admission.api.values.reasons import HoldReason
from admission.lifecycle import requeue_backoff
from admission.lifecycle.requeue_backoff import Backoff
from tests.builders import NOON

MINUTE = timedelta(minutes=1)


def a_queue(**requeue: str | int) -> Queue:
    return queues.decode({"metadata": {"name": "q"}, "spec": {"namespaceSelector": {}, "requeue": requeue}})


def after(evictions: int, queue: Queue, failure: str = "") -> Backoff:
    backoff = None
    for _ in range(evictions):
        backoff = requeue_backoff.next_backoff(backoff, queue, clock=NOON, since=NOON, failure=failure)
    assert backoff is not None
    return backoff


def test_each_eviction_doubles_the_wait_up_to_the_longest() -> None:
    queue = a_queue(base="1m", max="10m")

    waits = [(after(times, queue).next_try - NOON) / MINUTE for times in range(1, 8)]

    assert waits == [1, 2, 4, 8, 10, 10, 10]


def test_hundreds_of_evictions_and_waits_beyond_the_calendar_are_borne() -> None:
    assert after(500, a_queue(base="1s", max="1h")).next_try == NOON + timedelta(hours=1)
    assert after(3, a_queue(base="99999999h", max="99999999h")).next_try == NOON + requeue_backoff.MAX_WAIT


def test_a_back_off_holds_a_gang_until_its_next_try_only() -> None:
    queue = a_queue(base="2m")
    backoff = after(1, queue)

    hold = requeue_backoff.hold(backoff, queue, NOON + MINUTE)

    assert hold is not None
    assert hold.reason is HoldReason.START_TIMED_OUT
    assert hold.message == "did not start in time (once so far); it is tried again at 2026-11-21T12:02:00Z"
    assert hold.details == {"evictions": 1, "nextTry": "2026-11-21T12:02:00Z"}
    assert requeue_backoff.hold(backoff, queue, NOON + 2 * MINUTE) is None


@pytest.mark.parametrize("failure", ["", "the API server refuses it"])
def test_a_gang_that_used_up_its_requeue_limit_is_held_for_good(failure: str) -> None:
    queue = a_queue(base="1m", limit=2)
    later = NOON + timedelta(days=400)

    assert requeue_backoff.hold(after(2, queue, failure), queue, later) is None
    hold = requeue_backoff.hold(after(3, queue, failure), queue, later)

    assert hold is not None
    assert hold.reason is (HoldReason.PLACEMENT_FAILED if failure else HoldReason.START_TIMED_OUT)
    assert hold.message.startswith(f"it could not be placed: {failure}; " if failure else "did not start in time; ")
    assert hold.message.endswith(
        "it was taken back 3 times, and the queue allows 2 new tries: delete it, or raise spec.requeue.limit of queue q"
    )


def test_a_back_off_hold_names_the_last_failure() -> None:
    queue = a_queue(base="1m")

    backoff = requeue_backoff.next_backoff(after(1, queue, "the API server refuses it"), queue, clock=NOON, since=NOON)

    assert (backoff.evictions, backoff.failure) == (2, "")


def test_a_clock_that_goes_back_makes_no_gang_wait_longer_than_its_back_off() -> None:
    backoff = after(2, a_queue(base="1m"))
    assert backoff.next_try == NOON + 2 * MINUTE

    assert (
        requeue_backoff.bounded(backoff, NOON - timedelta(hours=1)).next_try == NOON - timedelta(hours=1) + 2 * MINUTE
    )
    assert requeue_backoff.bounded(backoff, NOON) == requeue_backoff.bounded(backoff, NOON + MINUTE) == backoff
