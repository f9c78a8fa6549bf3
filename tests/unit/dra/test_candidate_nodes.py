"""Counting room before a search: it says that there is none only where there is none."""

import gc
from dataclasses import replace
from typing import Any

import pytest

from admission.dra import compatibility, gang_planner
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner import candidate_nodes
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.unit.dra.clusters import STEPS, ClusterBuilder, a_cluster, a_pod, a_request


def plan(
    *pods: PodDemand, cluster: ClusterState, selectors: Selectors | None = None, mute: bool = True
) -> Plan | NoPlan:
    return gang_planner.plan(pods, cluster, selectors=selectors or Selectors(), steps=STEPS, mute=mute)


def two() -> list[PodDemand]:
    return [a_pod("p-0", 2), a_pod("p-1", 2)]


def nodes(*, closed: bool = False, gpus: int = 2) -> ClusterBuilder:
    return a_cluster().node("a", gpus=2).node("b", gpus=gpus, unschedulable=closed)


def test_a_gang_without_enough_room_is_refused_without_a_search_step() -> None:
    answer = plan(*two(), cluster=nodes(gpus=1).cluster())

    assert isinstance(answer, NoPlan)
    assert answer.steps == 0


def test_room_on_nodes_counts_as_well_as_devices() -> None:
    small = a_cluster().node("a", gpus=4, allocatable={"cpu": "4"})
    pods = [a_pod(f"p-{at}", 1, requests={"cpu": "2"}) for at in range(3)]

    assert isinstance(plan(*pods[:2], cluster=small.cluster()), Plan)
    assert isinstance(plan(*pods, cluster=small.cluster()), NoPlan)


@pytest.mark.parametrize("requests", [1, 2])
def test_a_device_that_can_be_shared_has_room_for_several_claims(requests: int) -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    asked = [a_request(f"r-{at}", 1, capacity={"requests": {"memory": "10"}}) for at in range(requests)]
    pods = [a_pod(f"p-{at}", *asked) for at in range(3)]

    assert isinstance(plan(*pods, cluster=a_cluster().node("a", gpus=[shared]).cluster()), Plan)


def lack_of(answer: Plan | NoPlan) -> NoPlan:
    assert isinstance(answer, NoPlan)
    assert answer.capacity_bound is not None
    return answer


@pytest.mark.parametrize("mute", [False, True])
def test_a_capacity_bound_holds_in_later_cluster_states_until_there_is_room(*, mute: bool) -> None:
    selectors = Selectors()
    capacity_bound = lack_of(
        plan(*two(), cluster=nodes(gpus=1).cluster(), selectors=selectors, mute=mute)
    ).capacity_bound
    assert capacity_bound is not None

    assert capacity_bound.is_felt(nodes(gpus=1).taken("a", 0).cluster())
    assert not capacity_bound.is_felt(nodes().cluster())


def test_a_capacity_bound_does_not_hold_where_pods_may_go_to_other_nodes() -> None:
    selectors = Selectors()
    capacity_bound = lack_of(plan(*two(), cluster=nodes(closed=True).cluster(), selectors=selectors)).capacity_bound
    assert capacity_bound is not None

    assert capacity_bound.is_felt(nodes(closed=True).cluster())
    assert not capacity_bound.is_felt(nodes().cluster())


@pytest.mark.parametrize("other", [{"is_what_if": True}, {"series": "s"}], ids=["a single one", "one of a series"])
def test_a_capacity_bound_says_nothing_of_what_if_states(other: dict[str, Any]) -> None:
    selectors, cluster = Selectors(), nodes(gpus=1).cluster()
    capacity_bound = lack_of(plan(*two(), cluster=cluster, selectors=selectors)).capacity_bound
    assert capacity_bound is not None

    assert capacity_bound.is_felt(cluster)
    assert not capacity_bound.is_felt(replace(cluster, **other))


def test_nothing_is_said_once_what_was_counted_is_forgotten() -> None:
    capacity_bound = lack_of(plan(*two(), cluster=nodes(gpus=1).cluster(), selectors=Selectors())).capacity_bound
    assert capacity_bound is not None
    gc.collect()

    assert not capacity_bound.is_felt(nodes(gpus=1).cluster())


def test_only_the_last_counts_of_many_kinds_of_pods_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidate_nodes, "MOST_CANDIDATES", 6)
    cluster, selectors = a_cluster().node("a", gpus=1).cluster(), Selectors()
    gangs = ([a_pod(f"p-{at}", 1, requests={"cpu": str(cpu)}) for at in range(2)] for cpu in range(1, 6))
    bounds = [lack_of(plan(*gang, cluster=cluster, selectors=selectors)).capacity_bound for gang in gangs]

    assert [bound is not None and bound.is_felt(cluster) for bound in bounds] == [False, True, True, True, True]


@pytest.mark.parametrize("choice", Choice)
def test_once_a_device_can_be_shared_free_devices_are_no_longer_counted(choice: Choice) -> None:
    builder, selectors = a_cluster().node("a", gpus=1), Selectors()
    pods = [a_pod(f"p-{at}", 1) for at in range(3)]
    before = cluster_state.build(builder.snapshot(), ())
    first = gang_planner.plan(pods, before, selectors=selectors, steps=STEPS, choice=choice, mute=True)
    builder.slice("shared", [{"allowMultipleAllocations": True}], nodeName="a")

    after = cluster_state.build(builder.snapshot(), (), before=before)

    assert isinstance(first, NoPlan)
    assert isinstance(gang_planner.plan(pods, after, selectors=selectors, steps=STEPS, choice=choice, mute=True), Plan)


EVICTING = {"taints": [{"key": "sick", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]}


@pytest.mark.parametrize("order", [tuple(Choice), tuple(Choice)[::-1]], ids=" and ".join)
def test_what_one_choice_finds_to_be_full_is_not_for_another(order: tuple[Choice, ...]) -> None:
    """kube-scheduler takes the first device, and its taint evicts the pod; Muster would take the second one."""
    pod = a_pod("p-0", a_request("gpu", 1, tolerations=[{"key": "sick", "operator": "Exists"}]))
    cluster = a_cluster().node("a", gpus=[EVICTING, {}]).node("b", gpus=[EVICTING, {}]).cluster()
    selectors = Selectors()

    found = {
        choice: gang_planner.plan([pod], cluster, selectors=selectors, steps=STEPS, choice=choice, mute=True)
        for choice in order
    }

    assert isinstance(found[Choice.FREE], Plan)
    assert isinstance(found[Choice.FIRST_FIT], NoPlan)


@pytest.mark.parametrize("release", list(Release))
@pytest.mark.parametrize("choice", list(Choice))
def test_why_there_is_no_plan_is_said_of_every_release_and_choice(release: Release, choice: Choice) -> None:
    """1.34 and 1.35 take devices in an order that is theirs; where Muster picks them, that order does not count."""
    builder = a_cluster().node("a", gpus=2).node("b", gpus=1)
    cluster = cluster_state.build(builder.snapshot(), (), profile=compatibility.profile(release))
    pods = [a_pod("p-0", 1), a_pod("p-1", 2), a_pod("p-2", 2)]

    answer = gang_planner.plan(pods, cluster, selectors=Selectors(), steps=STEPS, choice=choice)

    assert isinstance(answer, NoPlan)
    assert answer.message
