"""Preemption in traces: a job that is more important starts at once, its victim waits again and starts over."""

from datetime import timedelta
from typing import Any

from tests.unit.simulation.simulated import Objects, node, teams
from tests.unit.simulation.test_replay import play, queue, row, starts, town


def preempting(objects: Objects, **preemption: str) -> Objects:
    first: Any = objects[0]
    return [{**first, "spec": {**first["spec"], "preemption": preemption}}, *objects[1:]]


def test_a_job_of_higher_priority_starts_at_once_and_its_victim_starts_over() -> None:
    place = town(preempting(teams(), withinQueue="LowerPriority"), node("one", 2))

    found = play(place, row("low", 0, 100, gpus=2), row("high", 10, 5, gpus=1, priority=5))

    assert starts(found) == {"low": 15, "high": 10}
    assert [job.wait for job in found.jobs] == [timedelta(seconds=15), timedelta()]
    assert [(moment.used["gpu.example.com"], moment.waiting) for moment in found.samples] == [
        (2, 0),
        (1, 1),
        (2, 0),
        (0, 0),
    ]


def test_a_job_of_higher_priority_waits_where_its_queue_does_not_preempt() -> None:
    place = town(teams(), node("one", 2))

    assert starts(play(place, row("low", 0, 100, gpus=2), row("high", 10, 5, gpus=1, priority=5))) == {
        "low": 0,
        "high": 100,
    }


def test_a_replayed_queue_reclaims_what_another_has_borrowed() -> None:
    base = teams()
    tree = [
        *queue("top", 0),
        *preempting(queue("left", 2, parent="top"), reclaim="Any"),
        *preempting(queue("right", 2, parent="top"), reclaim="Any"),
        *base[1:],
    ]
    place = town(tree, node("one", 4))
    rows = [
        row("own", 0, 100, gpus=2, queue="left"),
        row("loan", 1, 100, gpus=2, queue="left"),
        row("mine", 10, 50, gpus=2, queue="right"),
    ]

    assert starts(play(place, *rows)) == {"own": 0, "loan": 60, "mine": 10}


def test_a_shorter_job_preempts_though_a_longer_job_that_would_delay_the_head_may_not() -> None:
    """As the controller does: what `long` asks for is not the same, as it would end after `head` is to start."""
    place = town(queue("x", 8), *[preempting(queue("y", 8), withinQueue="LowerPriority")], teams(), node("one", 8))
    running = [row(f"low-{at}", 0, 100, gpus=4, queue="y") for at in range(2)]
    head = row("head", 1, 1000, gpus=8, queue="x", priority=10)
    behind = [
        row("long", 2, 500, gpus=4, queue="y", priority=5),
        row("short", 3, 50, gpus=4, queue="y", priority=5),
        row("shorter", 4, 5, gpus=4, queue="y", priority=5),
    ]

    found = starts(play(place, *running, head, *behind))

    assert (found["short"], found["shorter"], found["head"], found["long"]) == (3, 4, 53, 1053)


def test_a_replay_with_preemption_has_the_same_outcome_each_time() -> None:
    place = town(preempting(teams(), withinQueue="LowerPriority"), node("one", 4))
    rows = [row(f"j{n}", n * 3, 20 + n % 7, gpus=1 + n % 3, priority=n % 4) for n in range(30)]

    first, second = play(place, *rows), play(place, *rows)

    assert starts(first) == starts(second)
    assert all(start is not None for start in starts(first).values())
    assert first.samples == second.samples
    assert max(moment.used["gpu.example.com"] for moment in first.samples) <= 4
