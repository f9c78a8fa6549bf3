"""Namespaces that come under a queue, leave it, or are never its business: docs/security.md lists the tries."""

from collections.abc import Iterator

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import intruders
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster

TEAM = "security-team"


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    """A queue for all namespaces with a label, which this one has."""
    label(namespace, namespace.name)
    selector = {"matchLabels": {TEAM: namespace.name}}
    with intruders.lab(control_plane, muster, namespace, namespaceSelector=selector) as lab:
        yield lab


def label(namespace: Namespace, team: str | None) -> None:
    namespace.client.merge_patch(f"/api/v1/namespaces/{namespace.name}", {"metadata": {"labels": {TEAM: team}}})


def test_a_gang_whose_namespace_is_labelled_otherwise_is_held_and_still_guarded(lab: Lab) -> None:
    lab.stop_queue("Hold")
    alice = intruders.seen_by(lab, "alice")
    alice.create(workloads.pod("train", template="gpu"))
    intruders.wait_hold(lab, "train", "QueueStopped")

    label(lab.namespace, "another")
    opened = {"spec": {"schedulingGates": None}, "metadata": {"labels": {names.QUEUE: None}}}
    assert "GateTampering" in refused(alice.client.merge_patch, f"{alice.pods}/train", opened)
    lab.stop_queue("None")
    hold = intruders.wait_hold(lab, "train", "QueueNotOpen")
    assert f"namespace {lab.namespace.name} has " in hold["message"]

    label(lab.namespace, lab.namespace.name)
    lab.namespace.bound("train")


def test_a_gang_that_runs_while_its_namespace_is_labelled_otherwise_stays_charged(lab: Lab) -> None:
    alice = intruders.seen_by(lab, "alice")
    alice.create(workloads.pod("train", template="gpu"))
    lab.namespace.bound("train")
    lab.wait_used(gpus=(0, 1))

    label(lab.namespace, None)
    named = workloads.pod("next", template="gpu", labels={names.QUEUE: lab.team.queue})
    intruders.wait_refused(alice, named, "QueueNotOpen")
    assert lab.used(lab.meters[0]) == (0, 1)

    change = {"metadata": {"annotations": {workloads.FINISH: "true"}}}
    lab.client.merge_patch(f"{alice.pods}/train", change)
    lab.wait_used(gpus=(0, 0))


def test_pods_that_were_there_when_a_namespace_comes_under_a_queue_stay_outside(lab: Lab) -> None:
    alice = intruders.seen_by(lab, "alice")
    dry = f"{alice.pods}?dryRun=All"

    def queued() -> bool:
        return intruders.is_gated(alice.client.create(dry, workloads.pod("dry")))

    label(lab.namespace, None)
    eventually(lambda: not queued(), what="the namespace is out of the queue")
    alice.create(workloads.pod("old", **intruders.KEPT))
    assert not intruders.is_gated(lab.namespace.pod("old"))

    label(lab.namespace, lab.namespace.name)
    eventually(queued, what="new pods are queued again")

    change = {"metadata": {"labels": {names.QUEUE: lab.team.queue}}}
    assert "GateTampering" in refused(alice.client.merge_patch, f"{alice.pods}/old", change)
    assert not intruders.gangs(lab)


def test_a_pod_that_slips_in_where_nobody_asks_is_held_by_the_gate_it_wrote_itself(
    lab: Lab, control_plane: ControlPlane
) -> None:
    """Muster is never asked about kube-system; a pod there that names a queue is not let in by it."""
    client = control_plane.client()
    system = Namespace(name="kube-system", client=client)
    pod = workloads.pod(f"thief-{lab.namespace.name}", labels={names.QUEUE: lab.team.queue}, gates=[workloads.GATE])
    system.create(pod)
    name = pod["metadata"]["name"]

    hold = intruders.wait_hold(lab, name, "QueueNotOpen", system)

    assert "namespace kube-system has " in hold["message"]
    client.delete(f"{system.pods}/{name}?gracePeriodSeconds=0")


def test_a_namespace_calls_itself_by_no_other_name(namespace: Namespace) -> None:
    """By that label Muster knows the namespaces that it spares."""
    path, key = f"/api/v1/namespaces/{namespace.name}", "kubernetes.io/metadata.name"

    namespace.client.merge_patch(path, {"metadata": {"labels": {key: "kube-system"}}})

    assert namespace.client.get(path)["metadata"]["labels"][key] == namespace.name
