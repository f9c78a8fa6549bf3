"""Gangs that do not fit, made to have a search try everything, and what searching costs."""

import pytest

from admission.api.muster.gangs import Charge
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from tests.unit.dra.clusters import STEPS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, refused

CARD = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}


def shares(**wanted: int) -> list[PodDemand]:
    """Return pods for shares of 37, 26 and 19Gi."""
    sizes = {"large": "37Gi", "middle": "26Gi", "small": "19Gi"}
    return [
        a_pod(f"{name}-{at}", a_request(capacity={"requests": {"memory": sizes[name]}}))
        for name, count in wanted.items()
        for at in range(count)
    ]


def partitions(nodes: int) -> ClusterBuilder:
    cluster = a_cluster()
    for at in range(nodes):
        cluster.node(f"n-{at}", gpus=[CARD] * 4)
    return cluster


def test_a_gang_that_free_choice_cannot_place_is_not_searched_in_every_order() -> None:
    """As many GPUs are wanted as there are, but nodes of these sizes cannot be filled by 7, 5 and 3."""
    cluster = a_cluster()
    for at, gpus in enumerate([8, 8, 8, 9, 9, 9, 11, 11, 13, 13, 4, 4, 6, 6, 16, 16]):
        cluster.node(f"n-{at:02}", gpus=gpus)
    demands = [a_pod(f"p-{count}-{at}", count) for count in (7, 5, 3) for at in range(10)]
    answer = refused(cluster.plan(*demands))
    assert answer.kind is Kind.INFEASIBLE
    assert "needs 3 devices of class gpu on one node" in answer.message


@pytest.mark.parametrize("choice", list(Choice))
def test_more_capacity_than_all_shared_devices_have_is_counted_not_searched_for(choice: Choice) -> None:
    demands = shares(large=8, middle=8, small=8)
    answer = gang_planner.plan(demands, partitions(2).cluster(), selectors=Selectors(), steps=STEPS, choice=choice)
    assert refused(answer).kind is Kind.INFEASIBLE
    assert answer.steps == 0
    assert "too little of their capacity is left" in refused(answer).message


@pytest.mark.parametrize("choice", list(Choice))
def test_free_shares_of_devices_are_counted_to_the_last_share(choice: Choice) -> None:
    """Two of 37Gi or three of 26Gi on each card."""
    demands = shares(large=8, middle=12)
    answer = gang_planner.plan(demands, partitions(2).cluster(), selectors=Selectors(), steps=STEPS, choice=choice)
    assert isinstance(answer, Plan), answer


def test_a_way_straight_to_a_plan_costs_a_step_for_every_pod_and_device() -> None:
    cluster = a_cluster()
    for at in range(20):
        cluster.node(f"n-{at:02}", gpus=4)
    answer = cluster.plan(*(a_pod(f"p-{at}", 2) for at in range(40)))
    assert isinstance(answer, Plan)
    assert answer.steps <= 40 * 3


def test_a_search_without_a_plan_pays_steps_for_the_pods_that_it_places() -> None:
    """What is affordable is asked for every pod that is placed."""
    asked: list[Charge] = []

    def count(charge: Charge) -> None:
        asked.append(charge)

    demands, cluster = shares(large=20, middle=20, small=14), partitions(5).cluster()
    answer = gang_planner.plan(demands, cluster, selectors=Selectors(), steps=2_000, affordable=count)
    assert refused(answer).kind is Kind.STEPS_ENDED
    assert len(asked) <= len(demands) + 2_000 // 16


def test_requests_for_the_same_devices_are_refused_without_an_invented_reason() -> None:
    claim = a_claim("c", a_request("one", 2), a_request("two", 2, "true"))
    answer = a_cluster().node("a", gpus=3).diagnose(a_pod("p", claim))

    assert answer.details["conditions"] == []
    assert answer.message == (
        "pod p needs 2 of class gpu (request one of claim c), 2 of class gpu (request two of claim c) on one node;"
        " node a does not serve them together, even if nothing else were in use"
    )
