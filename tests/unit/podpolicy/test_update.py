"""What may not be changed of a pod that is there."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.reasons import DenyReason
from tests.unit.scheduling import plan_inputs
from tests.unit.webhook.cases import CONTROLLER, GATES, RULES, World, a_pod, held

JOB_INDEX = "jobset.sigs.k8s.io/job-index"
KUEUE = "kueue.x-k8s.io/pod-group-name"
ROLE = "training.kubeflow.org/replica-type"

FIXED = {
    "queue": ({names.QUEUE: "team-a"}, {names.QUEUE: "team-b"}),
    "queue, taken away": ({names.QUEUE: "team-a"}, {}),
    "queue, given to a pod that had none": ({}, {names.QUEUE: "team-a"}),
    "gang": ({names.QUEUE: "q", names.GANG: "one"}, {names.QUEUE: "q", names.GANG: "two"}),
    "size": ({names.QUEUE: "q"}, {names.QUEUE: "q", names.GANG_SIZE: "2"}),
    "topology": ({names.QUEUE: "q", names.TOPOLOGY: "rack"}, {names.QUEUE: "q", names.TOPOLOGY: "zone"}),
    "topology of its subgroup": (
        {names.QUEUE: "q", names.SUBGROUP_TOPOLOGY: "rack"},
        {names.QUEUE: "q", names.SUBGROUP_TOPOLOGY: "zone"},
    ),
    "subgroup": ({names.QUEUE: "q", names.SUBGROUP: "a"}, {names.QUEUE: "q", names.SUBGROUP: "b"}),
    "subgroup, given to a pod that had none": ({names.QUEUE: "q"}, {names.QUEUE: "q", names.SUBGROUP: "b"}),
    "number of its Job in a JobSet": ({names.QUEUE: "q", JOB_INDEX: "0"}, {names.QUEUE: "q", JOB_INDEX: "1"}),
    "preferred topology": ({names.QUEUE: "q", names.TOPOLOGY_PREFERRED: "rack"}, {names.QUEUE: "q"}),
    "group of Kueue": ({names.QUEUE: "q", KUEUE: "one"}, {names.QUEUE: "q", KUEUE: "two"}),
    "group of Kueue, taken away": ({names.QUEUE: "q", KUEUE: "one"}, {names.QUEUE: "q"}),
    "role of an MPIJob": ({names.QUEUE: "q", ROLE: "worker"}, {names.QUEUE: "q", ROLE: "launcher"}),
    "least size": ({names.QUEUE: "q", names.GANG_MIN: "2"}, {names.QUEUE: "q", names.GANG_MIN: "1"}),
    "claims": ({names.QUEUE: "q", names.CLAIMS: "gpu=x8"}, {names.QUEUE: "q", names.CLAIMS: "gpu=x1"}),
    "what was converted": ({names.QUEUE: "q", names.CONVERTED: "p:nvidia.com/gpu=8"}, {names.QUEUE: "q"}),
}


@pytest.mark.parametrize(("before", "after"), FIXED.values(), ids=FIXED)
def test_queue_and_gang_are_fixed_when_the_pod_is_created(before: dict[str, str], after: dict[str, str]) -> None:
    denial = plan_inputs.change(a_pod(labels=before, gates=GATES), a_pod(labels=after, gates=GATES))

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert "delete the pod and create it" in denial.message


def test_an_annotation_of_the_gang_is_fixed_as_well() -> None:
    denial = plan_inputs.change(
        held(annotations=plan_inputs.gangs(gang_size="2")), held(annotations=plan_inputs.gangs(gang_size="1"))
    )

    assert denial is not None
    assert "from annotation '2' to annotation '1'" in denial.message


@pytest.mark.parametrize("pod", [held(), a_pod(gates=GATES)], ids=["queued", "outside"])
def test_only_the_controller_may_open_a_gate(pod: dict[str, Any]) -> None:
    opened = {**pod, "spec": {**pod["spec"], "schedulingGates": [plan_inputs.OTHER_GATE]}}

    denial = plan_inputs.change(pod, opened)

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert denial.message.startswith("scheduling gate muster.dev/admission is removed by alice")
    assert plan_inputs.change(pod, opened, username=CONTROLLER) is None


UNTOUCHED = {
    "a group of another system that its controller adds": (held(), held(annotations={"pod-group-name": "x"})),
    "another label": (held(), held(labels={"app": "x"})),
    "another gate": (held(gates=[plan_inputs.OTHER_GATE, *GATES]), held()),
    "a gang label of a pod of no queue": (a_pod(labels={names.GANG: "a"}), a_pod(labels={names.GANG: "b"})),
    "a pod whose gate was opened before": (held(gates=[]), held(gates=[], annotations={"note": "x"})),
    "a pod that was deleted, losing a finalizer": (held(gates=[]), held(gates=None)),
}


@pytest.mark.parametrize(("old", "new"), UNTOUCHED.values(), ids=UNTOUCHED)
def test_other_changes_of_a_queued_pod_are_allowed(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert plan_inputs.change(old, new) is None


@pytest.mark.parametrize("after", [{names.USER: "bob"}, {names.USER: ""}])
def test_the_maker_annotation_of_a_queued_pod_cannot_be_changed(after: dict[str, str]) -> None:
    denial = plan_inputs.change(held(), held(annotations=after))

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert plan_inputs.change(held(), held(annotations=after), username=RULES.controller) is None
    assert plan_inputs.change(a_pod(annotations={names.USER: "x"}), a_pod(annotations=after)) is None


IDLE, URGENT = ({names.PRIORITY_CLASS: name} for name in ("idle", "urgent"))

CLASSES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "given to a pod that waits": (held(), held(labels=URGENT), ""),
    "changed of a pod that waits": (held(labels=IDLE), held(labels=URGENT), ""),
    "one that the queue does not have": (
        held(labels=IDLE),
        held(annotations={names.PRIORITY_CLASS: "urgnt"}, labels=IDLE),
        "annotation muster.dev/priority-class names urgnt, which is no priority class of queue team-a",
    ),
    "taken away": (held(labels=URGENT), held(), "cannot be taken away"),
    "given to an admitted pod": (
        held(gates=[]),
        held(gates=[], labels=URGENT),
        "changed from nothing to label 'urgent'",
    ),
    "changed of an admitted pod": (held(gates=[], labels=IDLE), held(gates=[], labels=URGENT), "the pod is admitted"),
    "changed as the gate is opened": (held(labels=IDLE), held(gates=[], labels=URGENT), "scheduling gate"),
}


@pytest.mark.parametrize(("old", "new", "why"), CLASSES.values(), ids=CLASSES)
def test_the_priority_class_may_change_while_the_pod_waits(old: dict[str, Any], new: dict[str, Any], why: str) -> None:
    classes = [{"name": "urgent", "value": 7}, {"name": "idle", "value": -1}]

    denial = plan_inputs.change(old, new, cluster=World().queue("team-a", priorityClasses=classes))

    assert (denial is not None) == bool(why)
    assert why in (denial.message if denial is not None else "")


def of_job(uid: str | None, **owner: Any) -> dict[str, Any]:
    pod = held()
    if uid is not None:
        reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True, **owner}
        pod["metadata"]["ownerReferences"] = [reference]
    return pod


MOVES: dict[str, tuple[str | None, str | None]] = {
    "to another Job": ("one", "two"),
    "to a Job": (None, "two"),
    "away from its Job": ("one", None),
}


@pytest.mark.parametrize(("before", "after"), MOVES.values(), ids=MOVES)
def test_a_pod_is_moved_between_jobs_by_kubernetes_alone(before: str | None, after: str | None) -> None:
    denial = plan_inputs.change(of_job(before), of_job(after))

    assert denial is not None
    assert denial.reason == DenyReason.GATE_TAMPERING
    assert "metadata.ownerReferences of a pod in a queue" in denial.message
    said = [f"train (UID {uid})" if uid is not None else "none" for uid in (before, after)]
    assert f"the Job that controls it is changed from {said[0]} to {said[1]} by alice" in denial.message
    for controller in ("job-controller", "generic-garbage-collector"):
        username = f"system:serviceaccount:kube-system:{controller}"
        assert plan_inputs.change(of_job(before), of_job(after), username=username) is None


def test_owners_that_make_no_gang_may_change() -> None:
    for owner in ({"controller": False}, {"kind": "ReplicaSet", "apiVersion": "apps/v1"}):
        assert plan_inputs.change(of_job(None), of_job("one", **owner)) is None


def test_a_pod_that_comes_from_a_controller_of_another_kind_comes_from_no_job() -> None:
    denial = plan_inputs.change(of_job("one", kind="ReplicaSet", apiVersion="apps/v1"), of_job("two"))

    assert denial is not None
    assert "is changed from none to train (UID two) by alice" in denial.message
