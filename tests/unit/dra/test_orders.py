"""Gangs whose plan needs another order than the first one that comes to mind, and budgets that end early."""

from typing import Any

from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Plan
from tests.unit.dra.clusters import STEPS, a_cluster, a_pod, a_request

Json = dict[str, Any]


def first(*counts: int) -> Json:
    return {
        "name": "r",
        "firstAvailable": [
            {"name": f"s-{at}", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
            for at, count in enumerate(counts)
        ],
    }


def test_a_pod_with_alternatives_is_placed_after_pods_that_need_the_same_devices() -> None:
    """A kind with alternatives takes more when it comes first."""
    plan = a_cluster().node("a", gpus=3).plan(a_pod("p-0", first(3, 1)), a_pod("p-1", 1))
    assert isinstance(plan, Plan), plan
    assert [pod.pod for pod in plan.pods] == ["team/p-1", "team/p-0"]


def test_a_pod_that_a_tainted_device_would_evict_is_placed_after_a_pod_that_takes_the_device() -> None:
    """The device that may not be promised to one is out of the way once the other has it."""
    taint = {"taints": [{"key": "k", "effect": "NoExecute"}]}
    wild = a_request("r", tolerations=[{"key": "k", "operator": "Exists"}])
    safe = a_request("r", tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute"}])
    cluster = a_cluster().node("a", gpus=[taint, {}])
    plan = cluster.plan(a_pod("p-0", wild), a_pod("p-1", safe))
    assert isinstance(plan, Plan), plan
    plan = cluster.plan(a_pod("p-1", wild), a_pod("p-0", safe))
    assert isinstance(plan, Plan), plan


def test_the_explanation_of_no_plan_stays_within_the_step_budget_or_says_that_the_budget_ended() -> None:
    """No step proves it, but the walk for the sentence takes some."""
    answer = a_cluster().node("a", gpus=2).plan(a_pod("p-0", 1), a_pod("p-1", 1), a_pod("p-2", 1), steps=1)
    assert isinstance(answer, NoPlan)


def test_the_explanation_of_busy_devices_stays_within_the_step_budget() -> None:
    cluster = a_cluster().node("a", gpus=3).taken("a", 0)
    demands = [a_pod("p-0", 1), a_pod("p-1", 1), a_pod("p-2", 1)]
    answer = gang_planner.plan(demands, cluster.cluster(), selectors=Selectors(), steps=STEPS)
    assert isinstance(answer, NoPlan)
    for steps in range(1, 10):
        found = gang_planner.diagnose(answer, demands, cluster.cluster(), selectors=Selectors(), steps=steps)
        assert found.kind in {Kind.BUSY, Kind.STEPS_ENDED}
