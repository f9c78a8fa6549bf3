"""From an empty cluster to a first gang by `muster init`, what demands a queue, and Muster taken away again.

On a control plane of its own, since all that Muster has put there is removed.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.values import names
from admission.scheduling.capacity import scale_down
from tests.controlplane import ApiError, Client, ControlPlane, fleet
from tests.controlplane.observing import eventually
from tests.docs import commanding, pages
from tests.e2e import musters, readers
from tests.e2e.musters import Muster

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
MUSTER = "/apis/muster.dev/v1alpha1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
REQUESTS_CRD = Path(__file__).parent / "data" / "autoscaler" / "provisioningrequests.yaml"
MARKED = {**dict.fromkeys(scale_down.ANNOTATIONS, "true"), names.SCALE_DOWN: ",".join(scale_down.ANNOTATIONS)}
SECONDS_TO_FIRST_GANG = 60.0
"""Of `muster init --apply`, its waiting included."""


@pytest.fixture(scope="module")
def control_plane(kubernetes: str, options: dict[str, Any]) -> Iterator[ControlPlane]:
    """A cluster with two nodes of four GPUs each, and nothing of Muster's."""
    with ControlPlane(kubernetes, **options) as started:
        known = [one for one in yaml.safe_load_all(readers.HARDWARE.read_text()) if one["kind"] != "Node"]
        nodes = [fleet.node(name, allocatable={"cpu": "96", "memory": "1Ti"}) for name in ("node-a", "node-b")]
        fleet.install(started.client(), [*nodes, *known])
        yield started


def test_init_makes_a_gang_that_runs_in_one_command(control_plane: ControlPlane, muster: Muster) -> None:
    began = time.monotonic()

    said = muster.command("init", "--team", "vision", "--apply")

    took = time.monotonic() - began
    print(f"muster init took {took:.1f} s")
    assert took < SECONDS_TO_FIRST_GANG
    assert "Job vision/first-gang would start now" in said
    assert "Queue vision created" in said
    assert "is Running on node-" in said, said
    pods = control_plane.client().items("/api/v1/namespaces/vision/pods")
    assert [pod["status"]["phase"] for pod in pods] == ["Running", "Running"]
    _see_what_the_newcomers_page_shows(control_plane, muster, said)


def _see_what_the_newcomers_page_shows(control_plane: ControlPlane, muster: Muster, said_by_init: str) -> None:
    [block] = [block for block in pages.blocks("docs/tasks/first-gang.md") if block.language == "console"]
    [init, *questions] = commanding.steps(block)
    changing = {**commanding.CHANGING, **commanding.PLACES}
    assert init.command == "muster init --team vision --apply"
    assert commanding.is_like(init.shown or "", said_by_init, changing), said_by_init
    for step in questions:
        program, *words = step.command.split()
        ask = control_plane.kubectl if program == "kubectl" else muster.command

        def answer(ask: Callable[..., str] = ask, words: list[str] = words, shown: str = step.shown or "") -> bool:
            return commanding.is_like(shown, ask(*words), changing)

        eventually(answer, what=step.command)


def test_init_again_leaves_all_as_it_is_and_another_team_gets_a_queue_beside_it(muster: Muster) -> None:
    again, other = muster.command("init", "--team", "vision"), muster.command("init", "--team", "speech", "--apply")

    assert "kind:" not in again
    assert "Queue speech created" in other
    assert "is Running on node-" in other, other


def test_a_smoke_test_sees_a_gang_admitted_and_leaves_nothing_of_its_own(
    control_plane: ControlPlane, muster: Muster
) -> None:
    client = control_plane.client()

    said = muster.command("smoke-test")

    assert "of 2 pods was admitted and started within" in said, said
    for path in ("/api/v1/namespaces", f"{MUSTER}/queues", f"{MUSTER}/meters"):
        assert client.find(f"{path}/muster-smoke-test") is None


def test_a_smoke_test_of_a_cluster_that_is_full_says_why_its_gang_waits(
    control_plane: ControlPlane, muster: Muster
) -> None:
    client = control_plane.client()
    nodes = [node["metadata"]["name"] for node in client.items("/api/v1/nodes")]
    for name in nodes:
        client.merge_patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})

    said: list[str] = []

    def tells() -> bool:
        """Within five seconds a busy machine may not have come so far; then the command is run again."""
        said[:] = [muster.command("smoke-test", "--timeout", "5")]
        return "is Pending: NoFeasiblePlacement: no node takes pod" in said[0]

    try:
        eventually(tells, what=lambda: f"the command tells why; it says {said}")
    finally:
        for name in nodes:
            client.merge_patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})
    assert client.find("/api/v1/namespaces/muster-smoke-test") is None


def test_a_smoke_test_touches_nothing_of_its_name_that_is_not_its_own(
    control_plane: ControlPlane, muster: Muster
) -> None:
    client = control_plane.client()
    client.create("/api/v1/namespaces", {"metadata": {"name": "muster-smoke-test"}})

    said = muster.command("smoke-test")

    assert "somebody else's" in said
    assert "deletionTimestamp" not in client.get("/api/v1/namespaces/muster-smoke-test")["metadata"]
    client.delete("/api/v1/namespaces/muster-smoke-test")


def pod_with_a_claim() -> dict[str, Any]:
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "late"}]
    spec = {"containers": [container], "resourceClaims": claims, "restartPolicy": "Never"}
    return {"metadata": {"generateName": "outside-"}, "spec": spec}


def test_a_namespace_of_no_queue_refuses_pods_with_claims_once_it_demands_a_queue(
    control_plane: ControlPlane, muster: Muster
) -> None:
    client = control_plane.client()
    client.create("/api/v1/namespaces", {"metadata": {"name": "elsewhere"}})
    pods = "/api/v1/namespaces/elsewhere/pods"
    client.create(pods, pod_with_a_claim())

    client.merge_patch("/api/v1/namespaces/elsewhere", {"metadata": {"labels": {"muster.dev/require-queue": "true"}}})

    def refusal() -> str:
        try:
            client.create(f"{pods}?dryRun=All", pod_with_a_claim())
        except ApiError as error:
            return error.message if "QueueRequired" in error.message else ""
        return ""

    said = eventually(refusal, what="a pod with a claim is refused")
    assert "no queue is open to namespace elsewhere" in said
    plain = pod_with_a_claim()
    plain["spec"] = {"containers": [{"name": "main", "image": "none"}]}
    client.create(pods, plain)


def what_autoscalers_were_asked_for(client: Client) -> list[str]:
    """Leave behind what a controller does that died while it asked for nodes, and the same of somebody else."""
    client.create(CRDS, yaml.safe_load((REQUESTS_CRD).read_text()))
    client.merge_patch("/api/v1/nodes/node-a", {"metadata": {"annotations": {**MARKED}}})
    requests = "/apis/autoscaling.x-k8s.io/v1/namespaces/vision/provisioningrequests"
    templates = "/api/v1/namespaces/vision/podtemplates"

    def is_served() -> bool:
        try:
            return client.items(requests) == []
        except ApiError:
            return False

    eventually(is_served, what="ProvisioningRequests are served")
    ours = {"labels": {names.MANAGED_BY: names.FIELD_MANAGER}, "annotations": {names.GANG: "vision/late"}}
    pod = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    made: list[str] = []
    for name, marks in (("late-1", ours), ("theirs-1", {})):
        client.create(templates, {"metadata": {"name": f"{name}-0", **marks}, "template": pod})
        sets = [{"count": 1, "podTemplateRef": {"name": f"{name}-0"}}]
        spec = {"provisioningClassName": "check-capacity.autoscaling.x-k8s.io", "podSets": sets}
        kind = {"apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest"}
        client.create(requests, {**kind, "metadata": {"name": name, **marks}, "spec": spec})
        made += [f"{requests}/{name}", f"{templates}/{name}-0"]
    client.create(templates, {"metadata": {"name": "never-asked-0", **ours}, "template": pod})
    return [*made, f"{templates}/never-asked-0"]


def test_uninstalling_waits_for_controllers_and_then_leaves_nothing(
    control_plane: ControlPlane, muster: Muster
) -> None:
    client = control_plane.client()

    assert "a controller leads still" in muster.command("uninstall", "--yes")
    assert client.find(f"{CONFIGURATIONS}/validatingwebhookconfigurations/muster") is not None
    muster.end()
    asked = what_autoscalers_were_asked_for(client)
    before = muster.command("uninstall")
    said = muster.command("uninstall", "--yes", "--purge")

    assert {path: client.find(path) for path in asked if "theirs" not in path} == dict.fromkeys(
        [path for path in asked if "theirs" not in path]
    ), said
    assert all(client.find(path) for path in asked if "theirs" in path)
    annotations = client.get("/api/v1/nodes/node-a")["metadata"].get("annotations", {})
    assert not {*scale_down.ANNOTATIONS, names.SCALE_DOWN} & annotations.keys()
    assert "vision/first-gang-" in before
    assert "nothing is removed" in before
    assert "removed the finalizer of Queue vision" in said, said
    for kind in musters.CONFIGURED:
        assert client.find(f"{CONFIGURATIONS}/{kind}/muster") is None
    assert not [crd["metadata"]["name"] for crd in client.items(CRDS) if "muster.dev" in crd["metadata"]["name"]]
    for path in (musters.SECRET, musters.HEADS, musters.HEADS_KEY):
        assert client.find(path) is None
    assert client.find("/apis/coordination.k8s.io/v1/namespaces/muster-system/leases/muster-controller") is None
    client.create("/api/v1/namespaces/vision/pods", pod_with_a_claim())
    phases = {pod["status"]["phase"] for pod in client.items("/api/v1/namespaces/vision/pods")}
    assert phases >= {"Running"}, "what runs goes on"
