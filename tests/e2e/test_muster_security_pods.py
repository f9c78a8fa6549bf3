"""Tries to make a pod that no queue holds: docs/security.md lists them."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import intruders, teams
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster

MIRROR = {"kubernetes.io/config.mirror": "x"}
LABELS = {"app": "made"}


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    with intruders.lab(control_plane, muster, namespace) as lab:
        yield lab
        for kind in ("deployments", "replicasets", "statefulsets", "daemonsets"):
            lab.client.delete(f"/apis/apps/v1/namespaces/{namespace.name}/{kind}")
        lab.client.delete(f"/api/v1/namespaces/{namespace.name}/replicationcontrollers/made")


def node(lab: Lab) -> str:
    (name,) = [one["metadata"]["name"] for one in lab.hardware if one["kind"] == "Node"]
    return str(name)


def of_apps(kind: str, plural: str, **more: Any) -> Callable[[Lab], None]:
    """Return what makes a pod by a controller: one that wants 3 GPUs, more than the queue has."""

    def create(lab: Lab) -> None:
        template = {"metadata": {"labels": LABELS}, "spec": pod_spec()}
        spec = {"selector": {"matchLabels": LABELS}, "template": template, **more}
        path = f"/apis/apps/v1/namespaces/{lab.namespace.name}/{plural}"
        body = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "made"}, "spec": spec}
        lab.control_plane.client("alice").create(path, body)

    return create


def pod_spec() -> Any:
    spec = workloads.pod("-", template="gpu")["spec"]
    del spec["schedulingGates"]
    return spec


def by_generated_name(lab: Lab) -> None:
    pod = workloads.pod("-", template="gpu", labels=LABELS)
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = "made-"
    intruders.seen_by(lab, "alice").create(pod)


def by_replication_controller(lab: Lab) -> None:
    template = {"metadata": {"labels": LABELS}, "spec": pod_spec()}
    path = f"/api/v1/namespaces/{lab.namespace.name}/replicationcontrollers"
    body = {"metadata": {"name": "made"}, "spec": {"selector": LABELS, "template": template}}
    lab.control_plane.client("alice").create(path, body)


WAYS: dict[str, Callable[[Lab], None]] = {
    "a generated name": by_generated_name,
    "Deployment": of_apps("Deployment", "deployments"),
    "ReplicaSet": of_apps("ReplicaSet", "replicasets"),
    "StatefulSet": of_apps("StatefulSet", "statefulsets", serviceName="made"),
    "DaemonSet": of_apps("DaemonSet", "daemonsets"),
    "ReplicationController": by_replication_controller,
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_however_a_pod_is_made_it_is_held(lab: Lab, way: Callable[[Lab], None]) -> None:
    lab.stop_queue("Hold")

    way(lab)

    listed = f"{lab.namespace.pods}?labelSelector=app%3Dmade"
    pods = eventually(lambda: lab.client.items(listed), what="its pod is there")
    assert all(intruders.is_gated(pod) for pod in pods)
    assert {pod["metadata"]["labels"][names.QUEUE] for pod in pods} == {lab.team.queue}


def test_a_copy_of_an_admitted_pod_waits_for_its_own_turn(lab: Lab) -> None:
    """With all its labels and annotations, as `kubectl debug --copy-to` makes it, and charged to who made the copy."""
    bob = intruders.seen_by(lab, "bob")
    bob.create(workloads.pod("first", template="gpu"), workloads.pod("second", template="gpu"))
    lab.namespace.bound("first")
    lab.namespace.bound("second")

    copy = ("debug", "first", "--copy-to=copy", "--keep-labels", "--keep-annotations", "--attach=false", "-q")
    image = ("--image=registry.k8s.io/pause:3.10", "-c", "debugger")
    lab.control_plane.kubectl(*copy, *image, "-n", lab.namespace.name, user="alice")

    copied = lab.namespace.pod("copy")
    assert intruders.is_gated(copied)
    assert copied["metadata"]["annotations"][names.USER] == "alice"
    intruders.wait_hold(lab, "copy", "QuotaExceeded")


@pytest.mark.parametrize("annotations", [{}, {names.USER: "bob", "example.com/admitted": "true"}])
def test_a_pod_that_names_its_node_is_refused(lab: Lab, annotations: dict[str, str]) -> None:
    pod = workloads.pod("direct", template="gpu", annotations=annotations, nodeName=node(lab))

    said = refused(intruders.seen_by(lab, "alice").create, pod)

    assert f"PolicyViolation: spec.nodeName is set to {node(lab)}" in said


def test_the_mirror_of_a_static_pod_is_the_kubelets_and_has_no_claims(lab: Lab) -> None:
    """A kubelet shows what it runs already. Anybody may write the annotation, and gets no device by it."""
    alice = intruders.seen_by(lab, "alice")

    homeless = workloads.pod("homeless", annotations=MIRROR)
    assert "must set spec.nodeName if mirror pod annotation is set" in refused(alice.create, homeless)
    greedy = workloads.pod("greedy", template="gpu", annotations=MIRROR, nodeName=node(lab))
    assert "static pods do not support resource claims" in refused(alice.create, greedy)
    forged = workloads.pod("forged", annotations=MIRROR, nodeName=node(lab))
    alice.create(forged)
    mirror = json.dumps(workloads.pod("mirror", annotations=MIRROR, nodeName=node(lab)))
    kubelet = ("--as", f"system:node:{node(lab)}", "--as-group", "system:nodes")
    lab.control_plane.kubectl("create", "-n", lab.namespace.name, "-f", "-", *kubelet, input=mirror)

    for name in ("forged", "mirror"):
        pod = lab.namespace.pod(name)
        assert names.QUEUE not in pod["metadata"].get("labels", {})
        assert not pod["spec"].get("schedulingGates")
        assert "GateTampering" in refused(enter, lab, name)
    held = workloads.pod("held", **intruders.KEPT)
    alice.create(held)
    later = {"metadata": {"annotations": MIRROR}}
    said = refused(alice.client.merge_patch, f"{alice.pods}/held", later)
    assert "may not add mirror pod annotation" in said
    assert not [gang for gang in intruders.gangs(lab) if gang["spec"]["workload"]["name"] in ("forged", "mirror")]


def enter(lab: Lab, pod: str) -> None:
    """Have alice label a pod with the queue."""
    change = {"metadata": {"labels": {names.QUEUE: lab.team.queue}}}
    lab.control_plane.client("alice").merge_patch(f"{lab.namespace.pods}/{pod}", change)


def test_a_pod_from_before_muster_enters_no_queue_later(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """It was never held, so a queue that it entered would count a gang that nobody has granted anything."""
    namespace.create(workloads.pod("old", **intruders.KEPT))

    with intruders.lab(control_plane, muster, namespace) as lab:
        alice = intruders.seen_by(lab, "alice")
        assert "GateTampering" in refused(enter, lab, "old")
        alice.client.merge_patch(f"{alice.pods}/old", {"metadata": {"labels": {"app": "old"}}})
        alice.create(workloads.pod("new", **intruders.KEPT))
        assert not intruders.is_gated(namespace.pod("old"))
        assert intruders.is_gated(namespace.pod("new")), "also for another scheduler"
        eventually(partial(intruders.gangs, lab), what="the new pod has a gang")
        assert {gang["spec"]["workload"]["name"] for gang in intruders.gangs(lab)} == {"new"}


DRY = "?dryRun=All"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/muster"


def test_dry_runs_leave_nothing_behind(lab: Lab) -> None:
    """No pod, no claim, no Gang, no Event, no line in the ledger; and the answer is the one of a real request."""
    alice = intruders.seen_by(lab, "alice")
    pod = workloads.pod("dry", template="gpu")
    made = alice.client.create(f"{alice.pods}{DRY}", pod)
    assert intruders.is_gated(made)
    claim = workloads.claim("dry", workloads.device_request(device_class=lab.driver, count=1))
    alice.client.create(f"{alice.claims}{DRY}", claim)
    alice.client.create(f"{alice.templates}{DRY}", intruders.template(lab, "dry"))
    job = teams.job("dry", pods=2, template="gpu", annotations={})
    made = alice.client.create(f"{lab.team.jobs}{DRY}", job)
    assert made["spec"]["template"]["metadata"]["annotations"][names.USER] == "alice"
    direct = workloads.pod("direct", nodeName=node(lab))
    assert "PolicyViolation" in refused(alice.client.create, f"{alice.pods}{DRY}", direct)

    body = {
        "apiVersion": names.API_VERSION,
        "kind": "Queue",
        "metadata": {"name": "dry"},
        "spec": {"namespaceSelector": {}},
    }
    before = lab.client.get(WEBHOOKS)["metadata"]["generation"]
    lab.client.create(f"{teams.GROUP}/queues{DRY}", body)

    events = f"/api/v1/namespaces/{lab.namespace.name}/events"
    left = ((alice.pods, 0), (alice.claims, 0), (alice.templates, 1), (events, 0), (lab.team.jobs, 0))
    holds_for(
        3,
        lambda: not intruders.gangs(lab) and all(len(lab.client.items(path)) == count for path, count in left),
        what="nothing is there",
    )
    assert not lab.entries("dry", "reserve")
    assert lab.client.get(WEBHOOKS)["metadata"]["generation"] == before
