"""What an evicted gang had of its queue's own is left alone by gangs that run, until it is back or overdue."""

from datetime import timedelta
from typing import Any

import pytest

from admission.api.values.names import GANG_MIN, MeterName
from admission.api.values.reasons import Hold
from tests.builders import NOON, a_cluster
from tests.unit.cycle.jobs import Jobs, Play

CYCLES = 30
"""Enough for many rounds, if two gangs evict each other in turn."""
LATE = [1, 3]
"""By how many cycles pods are late."""
ELASTIC: dict[str, Any] = {"pods": 8, "annotations": {GANG_MIN: "2"}}


async def evicted(late: int, *, graceful: bool = False) -> Play:
    """Two queues with half of all each; the second one has just taken back its own from the first, of 8 pods."""
    builder = a_cluster().node("n", gpus=40).queue("top", gpus=0)
    for name in "ab":
        builder.queue(name, gpus=4, parent="top", preemption={"reclaim": "Any"}, startTimeout="30s")
    play = Play(Jobs(builder, graceful=graceful, late=late))
    play.cluster.submit("first", queue="a", **ELASTIC)
    await play.forget_changes(3)
    play.cluster.submit("second", queue="b", **ELASTIC)
    for _ in range(3):
        await play.forget_changes(1)
        play.cluster.end_grace()
    assert [gang for gang, _, _ in play.evicted] == ["first"]
    return play


def used(play: Play) -> dict[str, int]:
    found = {queue: meters[MeterName("gpus")] for queue, meters in play.ledger.book.usage().items()}
    return {queue: use.reserved + use.used for queue, use in found.items()}


def held(play: Play, job: str) -> Hold:
    (found,) = (one.outcome for uid, one in play.leader.statuses.decisions.items() if play.name(uid) == job)
    assert isinstance(found, Hold)
    return found


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize("graceful", [False, True])
@pytest.mark.parametrize("leaders", [1, 2])
async def test_two_elastic_gangs_whose_pods_are_made_late_evict_each_other_once(
    late: int, leaders: int, *, graceful: bool
) -> None:
    play = await evicted(late, graceful=graceful)
    for _ in range(leaders - 1):
        play.succeed()

    for _ in range(CYCLES):
        await play.forget_changes(1)
        play.cluster.end_grace()

    assert [gang for gang, _, _ in play.evicted] == ["first"]
    assert used(play) == {"a": 4, "b": 4}


async def test_a_pod_that_waits_for_an_evicted_gang_says_so_and_joins_when_that_is_overdue() -> None:
    play = await evicted(late=1_000)

    hold = held(play, "second")
    await play.forget_changes(20)
    before = used(play)
    result = await play.forget_changes(1)
    await play.forget_changes(20)

    assert hold.message == (
        "the gang runs, and queue b would have to borrow for more pods of it what evicted gangs of a had of their own"
        " quota; that is not lent until they run again, at the latest 2026-11-21T12:00:34Z"
    )
    assert hold.details == {"queue": "b", "keptBy": ["a"]}
    assert result.next_try == NOON + timedelta(seconds=34)
    assert (before["b"], used(play)["b"]) == (4, 8)


async def test_a_pod_joins_at_once_when_the_evicted_gang_is_deleted() -> None:
    play = await evicted(late=1_000)

    play.cluster.delete_job("first")
    play.cluster._gangs = {key: one for key, one in play.cluster._gangs.items() if not key.startswith("team/first-")}
    await play.forget_changes(3)

    assert used(play)["b"] == 8
