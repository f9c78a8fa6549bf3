"""Gangs on a cluster without nodes, for which Karpenter itself starts nodes: its core, with its KWOK provider.

A stand-in for the driver publishes the devices of each node a moment after it is there. kube-scheduler gives them.
"""

import threading
from collections.abc import Iterator
from typing import Self

import pytest

from tests.controlplane import ControlPlane, fleet, workloads
from tests.controlplane.karpenters import NODE_POOLS, Karpenter
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import fixtures
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team, job

POOL = {"example.com/pool": "a100x8"}
SHAPE = f"{GROUP}/nodeshapes/a100x8"
DEVICES = fleet.resource_slice("node", [fleet.gpu("node", at) for at in range(8)])["spec"]["devices"]
SLICES = [{"driver": fleet.DRIVER, "devices": DEVICES}]
SECONDS_BETWEEN_LOOKS = 0.3

control_plane = fixtures.own_control_plane()
hardware = fixtures.hardware([fleet.device_class()])
muster = fixtures.muster(scope="module")


class Driver:
    """Publishes the devices of Karpenter's nodes. The slices go with their nodes."""

    def __init__(self, karpenter: Karpenter) -> None:
        self.karpenter = karpenter
        self.devices = len(DEVICES)
        """How many devices a node has that comes."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="driver")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        client = self.karpenter.client
        while not self._over.wait(SECONDS_BETWEEN_LOOKS):
            slices = {one["spec"].get("nodeName") for one in client.items(fleet.COLLECTIONS["ResourceSlice"])}
            for node in self.karpenter.nodes:
                if node["metadata"]["name"] not in slices:
                    client.create(fleet.COLLECTIONS["ResourceSlice"], self._slice(node["metadata"]))

    def _slice(self, node: fleet.Manifest) -> fleet.Manifest:
        """Return the devices of a node. node: its metadata."""
        name = node["name"]
        made = fleet.resource_slice(name, [fleet.gpu(name, at) for at in range(self.devices)])
        made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["uid"]}]
        return made


@pytest.fixture(scope="module")
def driver(control_plane: ControlPlane, hardware: None) -> Iterator[Driver]:
    """Karpenter, and who publishes the devices of its nodes."""
    resources = {"cpu": "32", "memory": "256Gi"}
    started = Karpenter(control_plane, "a100x8", labels=POOL, resources=resources, slices=SLICES)
    with started, Driver(started) as driver:
        yield driver


@pytest.fixture
def karpenter(driver: Driver) -> Iterator[Karpenter]:
    """Karpenter without any node, before a test and after it."""
    yield driver.karpenter
    driver.devices = len(DEVICES)
    empty = lambda: driver.karpenter.nodes == driver.karpenter.claims == []  # noqa: E731
    eventually(empty, what="Karpenter has taken all nodes away", within=120)


@pytest.fixture
def team(control_plane: ControlPlane, karpenter: Karpenter, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with a quota of 16 GPUs that asks for nodes, of a shape of which the NodePool lets three come."""
    client = control_plane.client()
    spec = {
        "maxCount": 9,
        "nodePool": karpenter.name,
        "matchLabels": POOL,
        "allocatable": {"cpu": "31", "memory": "250Gi", "pods": "110"},
        "resourceSlices": SLICES,
    }
    meta = {"name": "a100x8"}
    client.apply(SHAPE, {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeShape", "metadata": meta, "spec": spec})
    team = found_team(control_plane, namespace, gpus=16, provisioning={"mode": "Pods"})
    yield team
    team.disband()
    client.delete(SHAPE)


def test_karpenter_makes_the_nodes_of_a_gang_which_starts_whole_and_none_for_one_over_quota(
    control_plane: ControlPlane, muster: Muster, karpenter: Karpenter, team: Team
) -> None:
    team.submit("large", pods=5, gpus=4)
    assert team.wait_held("large", "QuotaExceeded")
    holds_for(5, lambda: karpenter.nodes == karpenter.claims == [], what="a gang over quota causes no node")

    team.submit("train", pods=4, gpus=4)
    team.wait_running("train", 4, within=120)

    nodes = sorted(node["metadata"]["name"] for node in karpenter.nodes)
    assert len(nodes) == len(karpenter.claims) == 2
    assert sorted(pod["spec"]["nodeName"] for pod in team.pods("train")) == sorted(nodes * 2)
    why = "nodes were asked for (2 of shape a100x8)"
    eventually(lambda: why in team.placed("train")[1], what=lambda: f"it is said: {team.standing('train')}")
    eventually(lambda: team.used("gpus") == (0, 16), what="what kube-scheduler gave is settled")
    assert len(team.gated("large")) == 5
    assert muster.wrong_books() is None

    control_plane.client().delete(f"{team.jobs}/train?propagationPolicy=Background")
    eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")


def test_karpenter_makes_the_nodes_of_a_gang_whose_claims_have_alternatives(
    control_plane: ControlPlane, muster: Muster, karpenter: Karpenter, team: Team
) -> None:
    """Sixteen devices are more than a node of the shape has, so each pod gets the four that it wants else."""
    wanted = [
        {"name": name, "deviceClassName": fleet.DEVICE_CLASS, "count": n} for name, n in (("all", 16), ("few", 4))
    ]
    team.namespace.create(workloads.claim_template("either", {"name": "gpu", "firstAvailable": wanted}))
    control_plane.client().create(team.jobs, job("train", pods=3, template="either", annotations={}))
    team.wait_running("train", 3, within=120)

    assert len(karpenter.nodes) == len(karpenter.claims) == 2
    assert "nodes were asked for (2 of shape a100x8)" in team.placed("train")[1]
    eventually(lambda: team.used("gpus") == (0, 12), what="what kube-scheduler gave is settled")
    assert muster.wrong_books() is None

    control_plane.client().delete(f"{team.jobs}/train?propagationPolicy=Background")
    eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")


@pytest.mark.since("1.36", "there are no DeviceTaintRules in v1beta2 to make a fence of")
def test_behind_a_fence_karpenter_makes_the_nodes_of_a_gang_and_muster_gives_it_their_devices_whole(
    control_plane: ControlPlane, muster: Muster, karpenter: Karpenter, team: Team
) -> None:
    client = control_plane.client()
    muster.end()
    muster.configure(fence=[fleet.DRIVER])
    muster.start()
    try:
        team.submit("train", pods=4, gpus=4)
        team.wait_running("train", 4, within=120)

        nodes = sorted(node["metadata"]["name"] for node in karpenter.nodes)
        assert len(nodes) == len(karpenter.claims) == 2
        assert sorted(pod["spec"]["nodeName"] for pod in team.pods("train")) == sorted(nodes * 2)
        _, why = eventually(
            lambda: found if (found := team.placed("train"))[0] == "Allocate" else None,
            what="it is said",
        )
        assert f"nodes were asked for (2 of shape a100x8); driver {fleet.DRIVER}: " in why
        claims = client.items(f"/apis/resource.k8s.io/v1/namespaces/{team.namespace.name}/resourceclaims")
        marks = [claim["metadata"]["annotations"]["muster.dev/placement"] for claim in claims]
        assert [mark.startswith("allocated") for mark in marks] == [True] * 4
        eventually(lambda: team.used("gpus") == (0, 16), what="what Muster gave is settled")
        assert muster.wrong_books() is None
        client.delete(f"{team.jobs}/train?propagationPolicy=Background")
        eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")
    finally:
        muster.unprotect()


def pool_condition(control_plane: ControlPlane) -> tuple[str, str, str]:
    """Return what the shape says of its NodePool."""
    conditions = control_plane.client().get(SHAPE).get("status", {}).get("conditions", [])
    found = [(one["status"], one["reason"], one["message"]) for one in conditions if one["type"] == "NodePool"]
    return found[0] if found else ("", "", "")


def test_a_shape_says_what_its_node_pool_is_like_and_while_that_cannot_start_nodes_none_are_asked_for(
    control_plane: ControlPlane, muster: Muster, karpenter: Karpenter, team: Team
) -> None:
    client, pool = control_plane.client(), f"{NODE_POOLS}/{karpenter.name}"
    ready = "NodePool a100x8 is ready, and lets at most 3 nodes come by its limit of 3 nodes"
    eventually(lambda: pool_condition(control_plane) == ("True", "Ready", ready), what="the shape knows its NodePool")

    client.merge_patch(SHAPE, {"spec": {"nodePool": "other"}})
    eventually(lambda: pool_condition(control_plane)[:2] == ("False", "NotFound"), what="there is no such NodePool")
    team.submit("train", pods=4, gpus=4)
    assert team.wait_held("train", "NoFeasiblePlacement")
    # Between the two, and until both are seen, three nodes might come.
    queue = f"{GROUP}/queues/{team.queue}"
    client.merge_patch(queue, {"spec": {"stopPolicy": "Hold"}})
    team.wait_held("train", "QueueStopped")
    client.merge_patch(pool, {"spec": {"limits": {"nodes": "1"}}})
    client.merge_patch(SHAPE, {"spec": {"nodePool": karpenter.name}})
    eventually(lambda: "at most 1 node come" in pool_condition(control_plane)[2], what="the limit is known")
    client.merge_patch(queue, {"spec": {"stopPolicy": "None"}})
    team.wait_held("train", "NoFeasiblePlacement")
    holds_for(3, lambda: karpenter.claims == [], what="two nodes are needed, and one may come")
    assert team.used("gpus") == (0, 0)

    client.merge_patch(pool, {"spec": {"template": {"spec": {"nodeClassRef": {"name": "gone"}}}}})
    eventually(lambda: pool_condition(control_plane)[1] == "NotReady", what="Karpenter says that the pool is not ready")
    assert "NodeClass" in pool_condition(control_plane)[2]
    restored = {"limits": {"nodes": "3"}, "template": {"spec": {"nodeClassRef": {"name": karpenter.name}}}}
    client.merge_patch(pool, {"spec": restored})
    team.wait_running("train", 4, within=120)
    assert len(karpenter.nodes) == 2
    assert {node["metadata"]["labels"]["karpenter.sh/nodepool"] for node in karpenter.nodes} == {karpenter.name}
    assert muster.wrong_books() is None
    client.delete(f"{team.jobs}/train?propagationPolicy=Background")
    eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")


def test_a_launch_that_fails_gives_everything_back_and_the_gang_starts_once_there_are_machines(
    control_plane: ControlPlane, muster: Muster, karpenter: Karpenter, team: Team
) -> None:
    changes = {"spec": {"provisioning": {"timeout": "10s"}, "requeue": {"base": "15s", "max": "15s"}}}
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", changes)
    karpenter.sell_out(sold_out=True)
    team.submit("train", pods=4, gpus=4)

    eventually(lambda: muster.entries(f"{team.namespace.name}/train", "reserve"), what="the gang is charged")
    eventually(lambda: "no machine for a100x8-" in karpenter.log, what="a launch fails")
    eventually(lambda: team.hold("train").get("reason") == "PlacementFailed", what="the gang is taken back")
    assert "nodes that were asked for (2 of shape a100x8) did not come within 10s" in team.hold("train")["message"]
    eventually(lambda: len(team.gated("train")) == 4, what="its pods wait again")
    eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")
    eventually(lambda: karpenter.claims == [], what="nothing is left of the launch")
    assert karpenter.nodes == []
    assert muster.wrong_books() is None

    karpenter.sell_out(sold_out=False)
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", {"spec": {"provisioning": {"timeout": "5m"}}})
    team.wait_running("train", 4, within=150)
    assert len(karpenter.nodes) == 2
    control_plane.client().delete(f"{team.jobs}/train?propagationPolicy=Background")
    eventually(lambda: team.used("gpus") == (0, 0), what="the gang is gone")


def test_nodes_that_come_with_fewer_devices_are_kept_while_the_gang_waits_and_go_once_it_is_taken_back(
    control_plane: ControlPlane, muster: Muster, driver: Driver, karpenter: Karpenter, team: Team
) -> None:
    queue = f"{GROUP}/queues/{team.queue}"
    changes = {"spec": {"provisioning": {"timeout": "10m"}, "requeue": {"base": "1h", "max": "1h"}}}
    control_plane.client().merge_patch(queue, changes)
    driver.devices = 2
    team.submit("train", pods=4, gpus=4)

    kept = eventually(lambda: found if len(found := kept_nodes(karpenter)) == 2 else None, what="two nodes are kept")
    seen: set[str] = set()

    def gone() -> set[str]:
        there = {node["metadata"]["name"] for node in karpenter.nodes}
        seen.update(there)
        return seen - there

    what = "Karpenter starts a node more than it was asked for, and takes it away, since it is empty"
    left = eventually(gone, what=what, within=150)
    assert left.isdisjoint(kept)
    assert kept_nodes(karpenter) == kept
    assert team.used("gpus") == (16, 0)

    control_plane.client().merge_patch(queue, {"spec": {"provisioning": {"timeout": "1s"}}})
    eventually(lambda: team.hold("train").get("reason") == "PlacementFailed", what="the gang is taken back")
    assert "have no room for its pods" in team.hold("train")["message"]
    eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")
    eventually(lambda: kept_nodes(karpenter) == [], what="no node is kept")
    assert muster.wrong_books() is None


def kept_nodes(karpenter: Karpenter) -> list[str]:
    """Return the names of the nodes that Karpenter may not take away."""
    nodes = [node["metadata"] for node in karpenter.nodes]
    return sorted(node["name"] for node in nodes if node["annotations"].get("karpenter.sh/do-not-disrupt") == "true")


def test_as_it_is_shipped_karpenter_starts_no_node_for_a_gang_with_claims_which_gets_all_back(
    control_plane: ControlPlane, muster: Muster, karpenter: Karpenter, team: Team
) -> None:
    changes = {"spec": {"provisioning": {"timeout": "10s"}, "requeue": {"base": "1h", "max": "1h"}}}
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", changes)
    karpenter.start(ignores_claims=True)
    try:
        team.submit("train", pods=4, gpus=4)
        skipped = "skipping pod with Dynamic Resource Allocation requirements"
        eventually(lambda: skipped in karpenter.log, what="Karpenter passes the pods by")
        eventually(lambda: team.hold("train").get("reason") == "PlacementFailed", what="the gang is taken back")
        eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")
        assert karpenter.nodes == karpenter.claims == []
    finally:
        karpenter.start()
