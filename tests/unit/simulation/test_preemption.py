"""`muster simulate` shows who would be evicted for whom."""

from typing import Any

from admission.simulation.offline import Verdict
from tests.unit.simulation.simulated import RUNNING, Objects, fates, job, node, objects, of, simulate, teams, use_of


def preempting(objects: Objects, **preemption: str) -> Objects:
    found: Any = objects
    found[0]["spec"]["preemption"] = preemption
    return objects


def urgent(name: str, *, gpus: int) -> Objects:
    template, made = job(name, gpus=gpus)
    made["spec"]["template"]["spec"]["priority"] = 10
    return [template, made]


def test_a_preempted_gang_is_shown_as_held_and_the_preemptor_as_admitted() -> None:
    queue = preempting(teams(), withinQueue="LowerPriority")

    outcome = simulate(queue, node("one", 4), objects(RUNNING), urgent("now", gpus=2))

    assert fates(outcome) == {"now": "Admitted", "old": "Preempted"}
    victim = of(outcome, "old")
    assert (victim.verdict, victim.details) == (Verdict.HELD, {"madeRoomFor": "default/now"})
    assert victim.message.startswith("it is evicted as a whole: gang default/now needs its place in the same queue")
    assert (victim.plan, victim.charges) == ((), {})
    assert use_of(outcome) == 2


def test_a_gang_of_higher_priority_waits_where_its_queue_does_not_preempt() -> None:
    outcome = simulate(teams(), node("one", 4), objects(RUNNING), urgent("now", gpus=2))

    assert fates(outcome) == {"now": "DevicesBusy", "old": "Admitted"}


def test_a_queue_that_is_drained_runs_nothing() -> None:
    queue: Any = teams()
    queue[0]["spec"]["stopPolicy"] = "HoldAndDrain"

    outcome = simulate(queue, node("one", 4), objects(RUNNING), job("next"))

    assert fates(outcome) == {"next": "QueueStopped", "old": "QueueDrained"}
