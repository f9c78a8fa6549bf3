"""Which changes let a gang that found no place be planned again: none that may help is ever passed over."""

import pytest

from admission.api.values.names import NodeName
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner import requeue_hint
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state.cluster_state import ClusterState
from tests.unit.dra.clusters import CLASS, DRIVER, STEPS, ClusterBuilder, Json, a_cluster, a_pod, a_request

KIND = f"device.attributes['{DRIVER}'].kind"
SETS = [{"name": "card", "counters": {"slices": {"value": "3"}}}]


def of_kind(kind: str) -> Json:
    return {"attributes": {"kind": {"string": kind}}}


PART = {**of_kind("part"), "consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": "3"}}}]}


def node() -> ClusterBuilder:
    """Two partitions of a card that has room for one of them, and a whole device beside."""
    builder = a_cluster().node("a").slice("a", [PART, PART, of_kind("whole")], count=2, nodeName="a")
    return builder.slice("a-sets", [], pool="a", count=2, nodeName="a", sharedCounters=SETS)


def whole() -> Json:
    return a_request("whole", 1, f"{KIND} == 'whole'")


ONE = a_pod("p", whole())
WATCHED = a_pod("p", whole(), a_request("parts", 2, f"{KIND} == 'part'", adminAccess=True))
BOTH = a_pod("p", whole(), a_request("parts", 2, f"{KIND} == 'part'"))


def may_help(pod: PodDemand, cluster: ClusterState) -> bool:
    return requeue_hint.may_help([pod], {NodeName("a")}, cluster, selectors=Selectors())


def plan(pod: PodDemand, cluster: ClusterState) -> Plan | NoPlan:
    return gang_planner.plan([pod], cluster, selectors=Selectors(), steps=STEPS, choice=Choice.FREE)


def test_a_freed_device_requeues_a_pod_that_lacked_a_device() -> None:
    assert may_help(ONE, node().cluster())
    assert not may_help(ONE, node().taken("a", 2).cluster())


def test_a_freed_device_does_not_requeue_a_pod_that_lacks_further_devices() -> None:
    assert not may_help(BOTH, node().cluster())


@pytest.mark.parametrize("free", [False, True])
def test_a_pod_with_admin_access_only_is_always_requeued(*, free: bool) -> None:
    """Chosen freely, no counters need to be left for administrators, whatever kube-scheduler says of them."""
    cluster = (node().taken("a", 0) if free else node().taken("a", 0, 2)).cluster()

    assert isinstance(plan(WATCHED, cluster), Plan) is free
    assert may_help(WATCHED, cluster)


def test_a_node_with_too_few_devices_is_passed_over_whatever_they_are() -> None:
    three = a_pod("p", a_request("any", 3))

    assert not may_help(three, a_cluster().node("a").slice("a", [{}, {}], nodeName="a").cluster())
    assert not may_help(three, a_cluster().node("a").slice("a", [{}, {}, {}], nodeName="a").taken("a", 1).cluster())
    assert may_help(three, a_cluster().node("a").slice("a", [{}, {}, {}], nodeName="a").cluster())


def test_a_device_that_can_be_shared_may_do_for_more_requests_than_there_are_devices() -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    two = a_pod("p", *(a_request(name, 1, capacity={"requests": {"memory": "10"}}) for name in ("one", "two")))

    assert may_help(two, a_cluster().node("a").slice("a", [shared], nodeName="a").cluster())


def test_of_alternatives_the_smallest_that_is_free_helps() -> None:
    options = [{"name": f"a{count}", "deviceClassName": CLASS, "count": count} for count in (3, 1)]
    pod = a_pod("p", {"name": "gpu", "firstAvailable": options})

    assert may_help(pod, a_cluster().node("a").slice("a", 2, nodeName="a").cluster())
    assert not may_help(pod, a_cluster().node("a").slice("a", 1, nodeName="a").taken("a", 0).cluster())
