"""Gangs on a cluster without nodes, whose queue asks Cluster Autoscaler by ProvisioningRequests.

The API is served for real, by a CRD written from the published one. Cluster Autoscaler is no Go module that can be had
here: a stand-in sets the conditions that its documentation names (Accepted, then Provisioned or Failed), and makes the
nodes. kube-scheduler binds the pods and gives the devices, the garbage collector deletes what has lost its owner.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.clients import ApiError
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, herds
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team
from tests.e2e.test_muster_nodes import GPUS, POOL, SHAPE, asked

ATOMIC = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
CRD = yaml.safe_load((Path(__file__).parent / "data" / "autoscaler" / "provisioningrequests.yaml").read_text())
KIND = ("autoscaling.x-k8s.io/v1", "ProvisioningRequest")
MANAGED = "app.kubernetes.io/managed-by=muster"

hardware = fixtures.hardware([fleet.device_class()])
muster = fixtures.muster(scope="module")


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane, hardware: None) -> Iterator[None]:
    """Have the API server know ProvisioningRequests before Muster starts."""
    client = control_plane.client()
    herds.remove(client, KIND)
    client.create(herds.CRDS, CRD)
    path = f"/apis/{KIND[0]}/provisioningrequests"

    def is_served() -> bool:
        with suppress(ApiError):  # of a kind that is just being set up it says so, with 429
            return client.find(path) is not None
        return False

    eventually(is_served, what="ProvisioningRequests are served")
    yield
    herds.remove(client, KIND)


@pytest.fixture
def team(control_plane: ControlPlane, served: None, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with a quota of 16 GPUs that asks for nodes, of a shape of which three may come."""
    client = control_plane.client()
    devices = fleet.resource_slice("node", [fleet.gpu("node", at) for at in range(GPUS)])["spec"]["devices"]
    spec = {
        "maxCount": 3,
        "matchLabels": POOL,
        "allocatable": {"cpu": "32", "memory": "256Gi", "pods": "110"},
        "resourceSlices": [{"driver": fleet.DRIVER, "devices": devices}],
    }
    meta = {"name": "a100x8"}
    client.apply(SHAPE, {"apiVersion": "muster.dev/v1alpha1", "kind": "NodeShape", "metadata": meta, "spec": spec})
    provisioning = {"mode": "ProvisioningRequest", "class": ATOMIC, "parameters": {"ValidUntilSeconds": "600"}}
    team = found_team(control_plane, namespace, gpus=16, provisioning=provisioning, requeue={"base": "1s", "max": "2s"})
    yield team
    team.disband()
    client.delete(SHAPE)


def requests(team: Team) -> list[Any]:
    return team.control_plane.client().items(f"/apis/{KIND[0]}/namespaces/{team.namespace.name}/provisioningrequests")


def templates(team: Team) -> list[Any]:
    path = f"/api/v1/namespaces/{team.namespace.name}/podtemplates?labelSelector={MANAGED.replace('=', '%3D')}"
    return team.control_plane.client().items(path)


def requested(team: Team, but: str = "") -> Any:
    """Return the team's request, once there is exactly one. but: the name of one that goes."""

    def found() -> Any:
        names = [one for one in requests(team) if one["metadata"]["name"] != but]
        return names[0] if len(names) == 1 and len(requests(team)) == 1 else None

    return eventually(found, what="there is one request")


def answer(team: Team, request: Any, *conditions: tuple[str, str, str]) -> None:
    """Set conditions as Cluster Autoscaler does. conditions: type, reason, message; all are True."""
    now = "2026-11-27T12:00:00Z"
    written = [
        {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
        for kind, reason, message in conditions
    ]
    path = f"/apis/{KIND[0]}/namespaces/{team.namespace.name}/provisioningrequests/{request['metadata']['name']}"
    team.control_plane.client().merge_patch(f"{path}/status", {"status": {"conditions": written}})


ACCEPTED = ("Accepted", "Accepted", "the request is taken up")
PROVISIONED = ("Provisioned", "Provisioned", "all of the nodes are started")


def test_a_gang_is_charged_then_asked_for_and_starts_whole_when_its_request_is_provisioned(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    client = control_plane.client()
    team.submit("train", pods=4, gpus=4)
    team.submit("large", pods=5, gpus=4)

    request = requested(team)
    assert team.wait_held("large", "QuotaExceeded")
    eventually(lambda: team.used("gpus") == (16, 0), what="the gang is charged")
    name, spec = request["metadata"]["name"], request["spec"]
    assert spec["provisioningClassName"] == ATOMIC
    assert spec["parameters"] == {"ValidUntilSeconds": "600"}
    assert [one["count"] for one in spec["podSets"]] == [4]
    team.wait_held("train", "NodesNeeded", f"ProvisioningRequest {team.namespace.name}/{name}")

    (template,) = eventually(lambda: found if owned(found := templates(team)) else None, what="the request owns it")
    pod = template["template"]
    assert template["metadata"]["ownerReferences"][0]["uid"] == request["metadata"]["uid"]
    assert asked(pod) == POOL
    assert not pod["spec"].get("schedulingGates")
    assert pod["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "gpus-4"}]

    answer(team, request, ACCEPTED)
    eventually(lambda: "was accepted" in team.hold("train").get("message", ""), what="its progress is told")
    assert len(team.gated("train")) == 4
    assert "was accepted (Accepted: the request is taken up)" in muster.command("why", f"{team.namespace.name}/train")

    nodes = [fleet.node(f"{team.namespace.name}-{at}", labels=POOL) for at in range(2)]
    slices = [
        fleet.resource_slice(node["metadata"]["name"], [fleet.gpu(node["metadata"]["name"], at) for at in range(GPUS)])
        for node in nodes
    ]
    with fleet.installed(client, nodes), fleet.installed(client, slices):
        answer(team, request, ACCEPTED, PROVISIONED)
        team.wait_running("train", 4, within=120)
        for pod in team.pods("train"):
            annotations = pod["metadata"]["annotations"]
            assert annotations["autoscaling.x-k8s.io/consume-provisioning-request"] == name
            assert annotations["autoscaling.x-k8s.io/provisioning-class-name"] == ATOMIC
        eventually(lambda: team.used("gpus") == (0, 16), what="what kube-scheduler gave is settled")
        assert [one["metadata"]["name"] for one in requests(team)] == [name]
        assert muster.wrong_books() is None
        client.delete(f"{team.jobs}/train?propagationPolicy=Background")
        eventually(lambda: requests(team) == [], what="the request is gone with the gang")
        eventually(lambda: templates(team) == [], what="so are its templates")
        eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")


def owned(found: list[Any]) -> bool:
    return len(found) == 1 and found[0]["metadata"]["ownerReferences"][0]["kind"] == "ProvisioningRequest"


def test_a_request_that_fails_gives_everything_back_and_is_made_anew_also_by_the_next_leader(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    team.submit("train", pods=4, gpus=4)
    first = requested(team)
    pods = {pod["metadata"]["uid"] for pod in team.pods("train")}

    answer(team, first, ACCEPTED, ("Failed", "OutOfStock", "no such machines in the zone"))
    second = requested(team, but=first["metadata"]["name"])

    assert {pod["metadata"]["uid"] for pod in team.pods("train")} == pods, "its pods wait, none is deleted"
    eventually(lambda: team.status("train").get("evictions") == 1, what="its status tells of the first try")
    muster.end(hard=True)
    muster.start()
    assert requested(team)["metadata"]["uid"] == second["metadata"]["uid"], "the next leader knows it from the books"

    changes = {"spec": {"requeue": {"base": "1h", "max": "1h"}}}
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", changes)
    answer(team, second, ACCEPTED, ("Failed", "OutOfStock", "no such machines in the zone"))
    hold = team.wait_held("train", "PlacementFailed")
    assert "OutOfStock: no such machines in the zone" in hold["message"]
    eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")
    eventually(lambda: requests(team) == [] and templates(team) == [], what="nothing is left behind")
    assert muster.wrong_books() is None


def test_without_the_crd_nothing_is_charged_and_gang_and_queue_say_what_is_missing(
    control_plane: ControlPlane, muster: Muster, team: Team
) -> None:
    client = control_plane.client()
    herds.remove(client, KIND)
    try:
        team.submit("train", pods=4, gpus=4)

        def is_told() -> bool:
            hold = team.hold("train")
            return hold.get("reason") == "NodesNeeded" and "install the CRD" in hold["message"]

        eventually(is_told, what="the gang says what is missing", within=150)
        eventually(lambda: team.used("gpus") == (0, 0), what="nothing is charged")

        def served() -> str:
            conditions = client.get(f"{GROUP}/queues/{team.queue}")["status"].get("conditions", [])
            found = [str(one["status"]) for one in conditions if one["type"] == "ProvisioningRequestsServed"]
            return found[0] if found else ""

        eventually(lambda: served() == "False", what="the queue says what is missing")
    finally:
        client.create(herds.CRDS, CRD)
