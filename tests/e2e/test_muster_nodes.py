"""Gangs on a cluster without nodes: their pods are let in towards a shape, and a stand-in autoscaler starts nodes.

The stand-in does what Karpenter and Cluster Autoscaler do: it makes nodes with the labels that pending pods ask for. A
stand-in for the driver publishes their devices a moment later. KWOK plays the nodes; kube-scheduler gives the devices.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team

POOL = {"example.com/pool": "a100x8"}
SHAPE = f"{GROUP}/nodeshapes/a100x8"
GPUS = 8
CLUSTER_AUTOSCALER = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER = "karpenter.sh/do-not-disrupt"
ANNOTATIONS = (CLUSTER_AUTOSCALER, KARPENTER)
SCALE_DOWN = "muster.dev/scale-down-disabled"
MARKED = {CLUSTER_AUTOSCALER: "true", KARPENTER: "true", SCALE_DOWN: f"{CLUSTER_AUTOSCALER},{KARPENTER}"}

hardware = fixtures.hardware([fleet.device_class()])
muster = fixtures.muster(scope="module")


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with a quota of 16 GPUs that asks for nodes, of a shape of which three may come."""
    client = control_plane.client()
    devices = fleet.resource_slice("node", [fleet.gpu("node", at) for at in range(GPUS)])["spec"]["devices"]
    for device in devices:
        del device["attributes"]["uuid"]  # no two devices have the same one
    spec = {
        "maxCount": 3,
        "matchLabels": POOL,
        "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"},
        "resourceSlices": [{"driver": fleet.DRIVER, "devices": devices}],
    }
    meta = {"name": "a100x8"}
    client.apply(SHAPE, {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeShape", "metadata": meta, "spec": spec})
    team = found_team(control_plane, namespace, gpus=16, provisioning={"mode": "Pods"})
    yield team
    team.disband()
    client.delete(SHAPE)


def pending(team: Team, name: str) -> list[Any]:
    """Return the pods of a Job that an autoscaler would start nodes for."""
    pods = [pod for pod in team.pods(name) if not pod["spec"].get("schedulingGates") and "nodeName" not in pod["spec"]]
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return [
        pod for pod in pods if any(unschedulable.items() <= one.items() for one in pod["status"].get("conditions", []))
    ]


def asked(pod: Any) -> dict[str, str]:
    """Return the labels of the nodes to which a pod is kept."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert "matchFields" not in term, "no node's name: Karpenter would refuse the pod"
    return {one["key"]: one["values"][0] for one in term["matchExpressions"]}


def test_a_gang_on_an_empty_cluster_starts_whole_and_one_over_quota_causes_no_node(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    client = control_plane.client()
    team.submit("train", pods=4, gpus=4)
    team.submit("large", pods=5, gpus=4)

    pods = eventually(lambda: found if len(found := pending(team, "train")) == 4 else None, what="all pods are pending")
    assert [asked(pod) for pod in pods] == [POOL] * 4
    eventually(lambda: team.used("gpus") == (16, 0), what="the gang is charged")
    assert "nodes were asked for (2 of shape a100x8)" in team.placed("train")[1]
    assert team.wait_held("large", "QuotaExceeded")
    assert pending(team, "large") == []

    nodes = [fleet.node(f"{team.namespace.name}-{at}", labels=POOL) for at in range(2)]
    slices = [
        fleet.resource_slice(node["metadata"]["name"], [fleet.gpu(node["metadata"]["name"], at) for at in range(GPUS)])
        for node in nodes
    ]
    with fleet.installed(client, nodes), fleet.installed(client, slices):
        team.wait_running("train", 4, within=120)
        assert sorted(pod["spec"]["nodeName"] for pod in team.pods("train")) == sorted(
            node["metadata"]["name"] for node in nodes * 2
        )
        eventually(lambda: team.used("gpus") == (0, 16), what="what kube-scheduler gave is settled")
        assert muster.wrong_books() is None
        client.delete(f"{team.jobs}/train?propagationPolicy=Background")
        eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")


def test_a_gang_whose_nodes_never_come_is_taken_back_in_time_with_what_it_is_charged(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    changes = {"spec": {"provisioning": {"timeout": "5s"}, "requeue": {"base": "1h"}}}
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", changes)
    team.submit("train", pods=4, gpus=4)

    said = "nodes that were asked for (2 of shape a100x8) did not come within 5s"
    eventually(lambda: said in team.hold("train").get("message", ""), what=lambda: f"{said}: {team.standing('train')}")
    assert team.hold("train")["reason"] == "PlacementFailed"
    (entry,) = muster.entries(f"{team.namespace.name}/train", "reserve")
    assert sum(int(one["charge"]["gpus"]) for one in json.loads(entry["holdings"])) == 16, "it was charged"
    eventually(lambda: len(team.gated("train")) == 4, what="its pods wait again")
    eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")
    assert "did not come within 5s" in muster.command("why", f"{team.namespace.name}/train")
    assert muster.wrong_books() is None


def hardware_of(name: str, **annotations: str) -> list[fleet.Manifest]:
    """Return a node of the shape and its devices, as an autoscaler and a driver make them."""
    node = fleet.node(name, labels=POOL)
    node["metadata"]["annotations"] |= annotations
    return [node, fleet.resource_slice(name, [fleet.gpu(name, at) for at in range(GPUS)])]


def kept(team: Team, name: str) -> dict[str, str]:
    """Return the annotations of a node that keep autoscalers from it, and the one that says whose they are."""
    found = team.control_plane.client().get(f"/api/v1/nodes/{name}")["metadata"]["annotations"]
    return {key: value for key, value in found.items() if key in (*ANNOTATIONS, SCALE_DOWN)}


def test_autoscalers_are_kept_from_nodes_on_which_a_gang_is_placed_until_all_of_it_runs(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    client = control_plane.client()
    first, second, own = (f"{team.namespace.name}-{name}" for name in ("first", "second", "own"))
    team.submit("train", pods=4, gpus=4)
    eventually(lambda: len(pending(team, "train")) == 4, what="all pods are pending")

    without_shape = fleet.gpu_node(own, gpus=1)
    with fleet.installed(client, without_shape), fleet.installed(client, hardware_of(first)):
        eventually(lambda: team.phases("train").count("Running") == 2, what="half of it runs")
        eventually(lambda: kept(team, first) == MARKED, what="its node is kept")
        assert kept(team, own) == {}
        with fleet.installed(client, hardware_of(second, **{CLUSTER_AUTOSCALER: "true"})):
            team.wait_running("train", 4, within=120)
            eventually(lambda: kept(team, first) == {}, what="the gang runs: its first node is let go")
            eventually(
                lambda: kept(team, second) == {CLUSTER_AUTOSCALER: "true"}, what="so is the second, but for theirs"
            )
            client.delete(f"{team.jobs}/train?propagationPolicy=Background")
            eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")


def test_the_next_leader_lets_a_node_go_whose_gang_was_deleted_while_nobody_led(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    client = control_plane.client()
    node = f"{team.namespace.name}-first"
    team.submit("train", pods=4, gpus=4)
    eventually(lambda: len(pending(team, "train")) == 4, what="all pods are pending")
    with fleet.installed(client, hardware_of(node)):
        eventually(lambda: kept(team, node) == MARKED, what="its node is kept")

        muster.end(hard=True)
        client.delete(f"{team.jobs}/train?propagationPolicy=Background")
        muster.start()

        eventually(lambda: kept(team, node) == {}, what="the node is let go")
        eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")
        assert muster.wrong_books() is None


def test_a_running_gang_that_loses_a_node_is_given_another_and_without_it_loses_only_what_came_late(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    """The Job controller makes a pod in place of a failed one after a pause, which doubles with each failure."""
    client = control_plane.client()
    first, second, third = (f"{team.namespace.name}-{name}" for name in ("first", "second", "third"))
    team.submit("train", pods=2, gpus=8, backoff_limit=20)
    eventually(lambda: len(pending(team, "train")) == 2, what="all pods are pending")

    with fleet.installed(client, hardware_of(first)):
        with fleet.installed(client, hardware_of(second)):
            team.wait_running("train", 2, within=120)
            client.merge_patch(f"{GROUP}/queues/{team.queue}", {"spec": {"provisioning": {"timeout": "10s"}}})
        (lost,) = [pod for pod in team.pods("train") if pod["spec"].get("nodeName") == second]
        client.delete(f"{team.namespace.pods}/{lost['metadata']['name']}?gracePeriodSeconds=0")
        (stays,) = team.pods("train")

        (late,) = eventually(lambda: pending(team, "train"), what="a pod in place of the lost one is pending")
        eventually(lambda: team.used("gpus") == (8, 8), what="it is charged")
        eventually(lambda: team.used("gpus") == (0, 8), what="it is taken back, with its charge")
        assert late["metadata"]["uid"] not in [pod["metadata"]["uid"] for pod in team.pods("train")]
        eventually(lambda: team.hold("train").get("reason") == "PlacementFailed", what="the next one waits")
        assert "nodes that were asked for (1 of shape a100x8) did not come within 10s" in team.hold("train")["message"]
        eventually(lambda: pending(team, "train"), what="it is asked for again", within=150)

        with fleet.installed(client, hardware_of(third)):
            team.wait_running("train", 2, within=120)
            assert stays["metadata"]["uid"] in [pod["metadata"]["uid"] for pod in team.pods("train")]
            eventually(lambda: team.used("gpus") == (0, 16), what="what it was given is settled")
            assert muster.wrong_books() is None
            client.delete(f"{team.jobs}/train?propagationPolicy=Background")
            eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")
