"""Pods of different priority that compete for volumes: kube-scheduler takes those of higher priority first."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import pods as api_pods
from admission.api.kubernetes.pods import Pod
from admission.api.storage import persistent_volumes
from admission.api.storage.storage import Storage
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.unit.dra.clusters import STEPS, a_cluster, places


def a_pod(name: str, priority: int) -> Pod:
    """Return a pod with a claim of its own name."""
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    spec = {"containers": [{"name": "c"}], "priority": priority, "volumes": volumes}
    return api_pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec})


def volume(name: str, size: str, *nodes: str) -> persistent_volumes.PersistentVolume:
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": [host(*nodes)]}]}}
    spec = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    return persistent_volumes.decode_volume(
        {
            "metadata": {"name": name, "labels": {"is": name}},
            "spec": spec | {"nodeAffinity": affinity},
            "status": {"phase": "Available"},
        }
    )


def host(*nodes: str) -> dict[str, Any]:
    return {"key": "host", "operator": "In", "values": [*nodes]}


def claim(name: str, **labels: str) -> persistent_volumes.VolumeClaim:
    selector = {"selector": {"matchLabels": labels}} if labels else {}
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return persistent_volumes.decode_claim(
        {"metadata": {"name": name, "namespace": "team"}, "spec": spec | {"storageClassName": "local"} | selector}
    )


LOCAL = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}


def cluster(nodes: tuple[str, ...]) -> ClusterState:
    """Return nodes with a small volume on the first one, which is all that `low` may have, and a large one on all."""
    builder = a_cluster()
    for name in nodes:
        builder.node(name, labels={"host": name})
    found = [volume("small", "1Gi", nodes[0]), volume("large", "5Gi", *nodes)]
    claims = [claim("low", **{"is": "small"}), claim("high")]
    storage = Storage(
        volumes={one.meta.name: one for one in found},
        claims={one.meta.key: one for one in claims},
        classes={"local": persistent_volumes.decode_class({"metadata": {"name": "local"}, **LOCAL})},
    )
    return cluster_state.build(replace(builder.snapshot(), storage=storage), ())


def plan(found: ClusterState, choice: Choice, *pods: Pod) -> Plan | NoPlan:
    return gang_planner.plan(
        [PodDemand(pod=pod) for pod in pods], found, selectors=Selectors(), steps=STEPS, choice=choice
    )


@pytest.mark.parametrize("choice", Choice)
def test_pods_of_higher_priority_get_their_volumes_first(choice: Choice) -> None:
    found = plan(cluster(("a", "b")), choice, a_pod("low", 0), a_pod("high", 10))

    assert isinstance(found, Plan)
    assert [one.pod for one in found.pods] == ["team/high", "team/low"]
    assert places(found) == {"high": "b", "low": "a"}


@pytest.mark.parametrize("choice", Choice)
def test_no_plan_needs_a_pod_of_lower_priority_to_come_first(choice: Choice) -> None:
    one_node = cluster(("a",))

    assert isinstance(plan(one_node, choice, a_pod("low", 0), a_pod("high", 0)), Plan)
    assert isinstance(plan(one_node, choice, a_pod("low", 0), a_pod("high", 10)), NoPlan)


def test_a_gang_that_could_take_what_is_planned_for_pods_of_lower_priority_waits_until_these_are_bound() -> None:
    before = cluster(("a",))
    first = a_pod("low", 0)
    granted = plan(before, Choice.FIRST_FIT, first)
    assert isinstance(granted, Plan)
    after = cluster_state.granted(before, granted, {first.meta.uid: first}, "team/low")
    equal, higher = (plan(after, Choice.FIRST_FIT, a_pod("high", priority)) for priority in (0, 10))

    assert isinstance(equal, Plan)
    assert isinstance(higher, NoPlan)
    asked = [PodDemand(pod=a_pod("high", 10))]
    told = gang_planner.diagnose(higher, asked, after, selectors=Selectors(), steps=STEPS)
    assert told.kind is Kind.BUSY
    assert "could get a volume that is planned for a pod of lower priority, which waits to be bound" in told.message
