"""The policy on changes of pods: what the API server itself refuses while Muster is away, and what it lets pass."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from admission.api.values import names
from tests.controlplane import ControlPlane, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.controlplane.running import CommandFailed
from tests.e2e import intruders, musters, teams
from tests.e2e.intruders import refused
from tests.e2e.labs import Lab
from tests.e2e.musters import Muster
from tests.e2e.test_muster_security_gates import CONTROLLERS, OTHER_GATE
from tests.e2e.test_muster_security_namespaces import label

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
SAID = "ValidatingAdmissionPolicy 'muster' with binding 'muster' denied request: muster: GateTampering: "
SCHEDULER, KUBELET = "system:kube-scheduler", "system:node:n"


@pytest.fixture
def lab(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Lab]:
    """A stopped queue for all namespaces with a label, a pod of alice's in it, and one of a Job of hers."""
    label(namespace, namespace.name)
    selector = {"matchLabels": {"security-team": namespace.name}}
    with intruders.lab(control_plane, muster, namespace, namespaceSelector=selector, stopPolicy="Hold") as lab:
        pod = workloads.pod("held", template="gpu")
        pod["spec"]["schedulingGates"] = [{"name": OTHER_GATE}]
        alice = intruders.seen_by(lab, "alice")
        alice.create(pod)
        job = teams.job("train", pods=1, template="gpu", annotations={})
        job["metadata"]["labels"] = {names.QUEUE: lab.team.queue}
        alice.client.create(alice.jobs, job)
        eventually(lambda: all(map(intruders.is_gated, pods(lab))) and len(pods(lab)) == 2, what="both pods are held")
        checked = eventually(
            lambda: (policy(lab) or {}).get("status"), what="the policy is there, and its types checked"
        )
        assert not checked.get("typeChecking"), checked
        yield lab


def policy(lab: Lab) -> Any:
    return lab.client.find(f"{REGISTRATION}/validatingadmissionpolicies/muster")


def pods(lab: Lab) -> list[Any]:
    return lab.client.items(lab.namespace.pods)


def of_job(lab: Lab) -> Any:
    return next(pod for pod in pods(lab) if pod["metadata"]["name"] != "held")


def patched(lab: Lab, name: str, change: Any, user: str, *words: str) -> str:
    """Change a pod as somebody who may do everything, under another name."""
    who = ("--as", user, "--as-group", "system:masters", *words)
    return lab.control_plane.kubectl(
        "patch", "pod", name, "-n", lab.namespace.name, "--type=merge", "-p", json.dumps(change), *who
    )


OPENED = {"spec": {"schedulingGates": [{"name": OTHER_GATE}]}}
TRIES: dict[str, tuple[Any, str]] = {
    "the gate": (OPENED, "scheduling gate muster.dev/admission is removed by alice; only system:serviceaccount:"),
    "the gate and the queue": (
        {"metadata": {"labels": {names.QUEUE: None}}, **OPENED},
        "scheduling gate muster.dev/admission is removed by alice",
    ),
    "the queue": (
        {"metadata": {"labels": {names.QUEUE: "another"}}},
        "muster.dev/queue of a pod in a queue is changed from label '",
    ),
    "the gang": (
        {"metadata": {"annotations": {names.GANG: "g"}}},
        "muster.dev/gang of a pod in a queue is changed from nothing to annotation 'g'; queue, gang and claims are",
    ),
    "the maker": (
        {"metadata": {"annotations": {names.USER: "bob"}}},
        "annotation muster.dev/user of a pod in a queue is changed from 'alice' to 'bob'",
    ),
}


def _refuses_all_tries(lab: Lab) -> None:
    alice = intruders.seen_by(lab, "alice")
    for change, words in TRIES.values():
        assert SAID + words in refused(alice.client.merge_patch, f"{alice.pods}/held", change)
    for user in CONTROLLERS:
        assert f"{SAID}scheduling gate muster.dev/admission is removed by {user}" in refused(
            patched, lab, "held", OPENED, user
        )
    status = {"metadata": {"labels": {names.QUEUE: "another"}}}
    assert SAID in refused(patched, lab, "held", status, "alice", "--subresource=status")
    unowned = {"metadata": {"ownerReferences": None}}
    name = of_job(lab)["metadata"]["name"]
    assert f"{SAID}metadata.ownerReferences" in refused(alice.client.merge_patch, f"{alice.pods}/{name}", unowned)
    assert all(map(intruders.is_gated, pods(lab)))


def _lets_pass_what_others_write(lab: Lab) -> None:
    patched(lab, "held", {"status": {"message": "x"}}, KUBELET, "--subresource=status")
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "x"}
    patched(lab, "held", {"status": {"conditions": [condition]}}, SCHEDULER, "--subresource=status")
    patched(lab, "held", {"metadata": {"labels": {"app": "x"}, "annotations": {"note": "x"}}}, "alice")


@pytest.mark.timeout(300, func_only=True)
def test_while_muster_is_away_the_api_server_itself_guards_pods_in_queues(lab: Lab, muster: Muster) -> None:
    muster.end(hard=True)

    _refuses_all_tries(lab)
    _lets_pass_what_others_write(lab)

    label(lab.namespace, "another")  # the webhook of a namespace without a queue is open while nobody answers
    _refuses_all_tries(lab)
    _lets_pass_what_others_write(lab)
    patched(lab, "held", {"spec": {"schedulingGates": [{"name": workloads.GATE}]}}, "alice")
    lab.control_plane.kubectl("delete", "job", "train", "--cascade=orphan", "-n", lab.namespace.name, user="alice")
    eventually(lambda: not of_job(lab)["metadata"].get("ownerReferences"), what="the garbage collector has orphaned it")

    label(lab.namespace, lab.namespace.name)
    muster.start()
    lab.stop_queue("None")
    lab.namespace.bound("held")


@pytest.mark.since("1.36", "nothing adds the gate in the API server")
@pytest.mark.timeout(300, func_only=True)
def test_while_muster_is_away_pods_of_its_jobs_come_with_the_gate_and_wait(lab: Lab, muster: Muster) -> None:
    """The API server adds it, and shows such pods to nobody; without it they are not created while Muster is away."""
    first = of_job(lab)["metadata"]
    assert eventually(
        lambda: lab.client.find(f"{REGISTRATION}/mutatingadmissionpolicybindings/muster"), what="a policy"
    )
    muster.end(hard=True)

    lab.client.delete(f"{lab.namespace.pods}/{first['name']}?gracePeriodSeconds=0")
    made = eventually(
        lambda: [pod for pod in pods(lab) if pod["metadata"]["name"] not in ("held", first["name"])],
        what="the pod is made again",
    )

    assert all(map(intruders.is_gated, made))
    assert made[0]["metadata"]["annotations"][names.COMPLETE] == "true"
    muster.start()
    lab.stop_queue("None")
    lab.namespace.bound(made[0]["metadata"]["name"])


def test_whoever_deletes_the_webhooks_opens_no_gate_before_the_policy_is_gone_as_well(lab: Lab, muster: Muster) -> None:
    muster.end(hard=True)
    for kind in musters.CONFIGURED[:2]:
        lab.client.delete(f"{REGISTRATION}/{kind}/muster")

    assert SAID in refused(patched, lab, "held", OPENED, "an-administrator")
    for kind in musters.CONFIGURED[2:]:
        lab.client.delete(f"{REGISTRATION}/{kind}/muster")

    def opened() -> bool:
        with suppress(CommandFailed):  # an API server takes a moment to notice
            patched(lab, "held", OPENED, "an-administrator")
        return not intruders.is_gated(lab.namespace.pod("held"))

    eventually(opened, what="the gate is open")
