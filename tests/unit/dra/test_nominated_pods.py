"""Pods of others for which kube-scheduler keeps a node, as `RunFilterPluginsWithNominatedPods` counts them."""

from typing import Any

import pytest

from admission.api.kubernetes import pods as api_pods
from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import PlacementMode
from admission.api.values.names import NodeName
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from admission.scheduling.cache import equivalence
from tests.unit.dra.clusters import STEPS, a_cluster, places

HOST, ZONE = "kubernetes.io/hostname", "zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def requests(cpu: int) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}]}


def apart(key: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {REQUIRED: [term]}}}


def beside(key: str, app: str) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {REQUIRED: [term]}}}


PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
SPREAD = {
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["n", "x"]}]},
        }
    ]
}


def pod(name: str, spec: dict[str, Any], app: str = "x", nominated: str = "") -> Pod:
    status = {"nominatedNodeName": nominated} if nominated else {}
    meta = {"name": name, "namespace": "team", "uid": f"pod-{name}", "labels": {"app": app}}
    return api_pods.decode({"metadata": meta, "spec": {"containers": [{"name": "c"}], **spec}, "status": status})


def demands(count: int, **spec: Any) -> list[PodDemand]:
    return [PodDemand(pod=pod(f"p-{at}", {"priority": 5, **spec}), claims=()) for at in range(count)]


def state(*nominated: Pod) -> cluster_state.ClusterState:
    builder = a_cluster()
    for name in ("a", "b"):
        builder.node(name, allocatable={"cpu": "8", "pods": "10"}, labels={HOST: name, ZONE: "z"})
    builder.pods += nominated
    return builder.cluster()


def plan(count: int, cluster: cluster_state.ClusterState, choice: Choice, **spec: Any) -> Plan | NoPlan:
    return gang_planner.plan(demands(count, **spec), cluster, selectors=Selectors(), steps=STEPS, choice=choice)


@pytest.mark.parametrize("choice", Choice)
@pytest.mark.parametrize(
    ("kept", "own"),
    [
        (requests(6), requests(4)),
        (PORT, PORT),
        (apart(HOST, "x"), apart(HOST, "unrelated")),
        ({}, apart(HOST, "n")),
        ({}, SPREAD),
    ],
    ids=["resources", "host ports", "its anti-affinity", "anti-affinity to it", "spread"],
)
def test_a_node_kept_for_a_pod_of_no_lower_priority_is_kept(
    kept: dict[str, Any], own: dict[str, Any], choice: Choice
) -> None:
    of_equal = state(pod("n", {"priority": 5, **kept}, "n", nominated="a"))
    of_lower = state(pod("n", {"priority": 4, **kept}, "n", nominated="a"))

    assert set(places(plan(1, of_equal, choice, **own)).values()) == {"b"}
    assert set(places(plan(1, of_lower, choice, **own)).values()) == {"a"}


def test_a_pod_that_has_to_be_with_another_does_not_count_one_that_is_to_come() -> None:
    cluster = state(pod("n", {"priority": 5}, "n", nominated="a"))

    assert isinstance(plan(1, cluster, Choice.FIRST_FIT, **beside(HOST, "n")), NoPlan)


def test_a_node_is_judged_beside_the_pods_that_it_is_kept_for_alone() -> None:
    """As kube-scheduler, which adds the pods that are nominated to the node that it looks at and no others."""
    cluster = state(pod("n", {"priority": 5}, "n", nominated="a"))

    assert set(places(plan(1, cluster, Choice.FIRST_FIT, **apart(ZONE, "n"))).values()) == {"b"}


def test_a_gang_waits_where_nodes_are_kept_until_the_pods_are_bound_elsewhere() -> None:
    cluster = state(pod("n", {"priority": 5, **requests(6)}, nominated="a"))
    asked = demands(4, **requests(4))
    answer = gang_planner.plan(asked, cluster, selectors=Selectors(), steps=STEPS)
    assert isinstance(answer, NoPlan)
    told = gang_planner.diagnose(answer, asked, cluster, selectors=Selectors(), steps=STEPS)
    assert told.kind is Kind.BUSY
    assert told.message.endswith("; kube-scheduler keeps a for pods that it has nominated there")

    builder = a_cluster()
    for name in ("a", "b"):
        builder.node(name, allocatable={"cpu": "8", "pods": "10"})
    builder.pods.append(pod("n", {"priority": 5, **requests(6)}, nominated="a"))
    snapshot = builder.snapshot()
    before = cluster_state.build(snapshot, ())
    gone = cluster_state.build(snapshot.__class__(nodes=snapshot.nodes, classes=snapshot.classes), (), before=before)

    assert cluster_state.changed(before, gone) == frozenset({NodeName("a")})
    assert not gone.placed.nominated
    assert len(places(plan(4, gone, Choice.FIRST_FIT, **requests(4)))) == 4


def test_gangs_of_different_priority_get_no_common_answer() -> None:
    cluster = state(pod("n", {"priority": 5, **requests(6)}, nominated="a"))
    keys = [
        equivalence.build(
            [PodDemand(pod=pod("p", {"priority": priority, **requests(4)}), claims=())], PlacementMode.PIN, cluster
        )
        for priority in (4, 5, 5)
    ]

    assert [keys[0] is not None and keys[0].key == keys[1].key, keys[1].key == keys[2].key] == [False, True]  # type: ignore[union-attr]
