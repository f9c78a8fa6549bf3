"""Who made a pod, written on it and believed."""

from typing import Any

import pytest

from admission.api.values import names
from admission.api.values.reasons import DenyReason
from admission.podpolicy import admission, pod_view, queue_selection
from admission.review.caches import ReviewCaches
from tests.unit.webhook import patching
from tests.unit.webhook.cases import RULES, World, a_cluster, a_pod, held


def of(owner: dict[str, Any], said: str | None) -> dict[str, Any]:
    """Return a pod with an owner, whose template names its maker."""
    pod = a_pod(annotations=None if said is None else {names.USER: said})
    pod["metadata"]["ownerReferences"] = [owner]
    return pod


JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j", "controller": True}
JOB_CONTROLLER = "system:serviceaccount:kube-system:job-controller"

MAKERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "who creates a pod": (a_pod(), "alice", "alice"),
    "whatever the author wrote": (a_pod(annotations={names.USER: "bob"}), "alice", "alice"),
    "the Job's maker, of a pod that the Job controller creates": (of(JOB, "bob"), JOB_CONTROLLER, "bob"),
    "the same, where controllers have no accounts of their own": (
        of(JOB, "bob"),
        "system:kube-controller-manager",
        "bob",
    ),
    "the Job controller, of a Job that was made unseen": (of(JOB, None), JOB_CONTROLLER, JOB_CONTROLLER),
    "who says that a Job owns it": (of({**JOB, "controller": False}, "bob"), "alice", "alice"),
    "another controller": (of({**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet"}, "bob"), "rs", "rs"),
    "the Job controller, of a pod of no Job": (
        of({**JOB, "kind": "ReplicaSet"}, "bob"),
        JOB_CONTROLLER,
        JOB_CONTROLLER,
    ),
    "the Job controller, of a pod that a Job owns but does not control": (
        of({**JOB, "controller": False}, "bob"),
        JOB_CONTROLLER,
        JOB_CONTROLLER,
    ),
}


@pytest.mark.parametrize(("pod", "username", "maker"), MAKERS.values(), ids=MAKERS)
def test_a_pod_in_a_queue_names_its_maker(pod: dict[str, Any], username: str, maker: str) -> None:
    snapshot = World().queue("team-a", default=True).build()
    arrival = pod_view.decode(pod, "ml")

    queue = queue_selection.select_queue(arrival, snapshot, ReviewCaches().defaults(snapshot)).queue
    patch = admission.additions(arrival, queue, username=username)

    patched = patching.applied(pod, patch)
    assert patched["metadata"]["annotations"][names.USER] == maker
    judgement = admission.judge_creation(
        pod_view.decode(patched, "ml"),
        snapshot,
        rules=RULES,
        defaults=ReviewCaches().defaults(snapshot),
        username=username,
    )
    assert judgement.denial is None


def test_a_pod_of_no_queue_is_not_marked() -> None:
    snapshot, pod = a_cluster().build(), pod_view.decode(a_pod(), "ml")
    queue = queue_selection.select_queue(pod, snapshot, ReviewCaches().defaults(snapshot)).queue

    assert admission.additions(pod, queue, username="alice") == ()


@pytest.mark.parametrize("said", ["bob", ""])
def test_a_pod_that_names_another_maker_is_refused(said: str) -> None:
    snapshot = a_cluster().build()
    pod = pod_view.decode(held(annotations={names.USER: said}), "ml")

    verdict = admission.judge_creation(
        pod, snapshot, rules=RULES, defaults=ReviewCaches().defaults(snapshot), username="alice"
    )

    assert verdict.denial is not None
    assert verdict.denial.reason == DenyReason.GATE_TAMPERING
    assert "made by alice" in verdict.denial.message


def test_a_pod_made_by_a_user_that_names_a_job_as_its_controller_is_refused() -> None:
    """The UID of the Job is what its gang is known by."""
    snapshot = a_cluster().build()
    pod = held()
    pod["metadata"]["ownerReferences"] = [JOB]
    arrival = pod_view.decode(pod, "ml")

    verdict = admission.judge_creation(
        arrival, snapshot, rules=RULES, defaults=ReviewCaches().defaults(snapshot), username="alice"
    )

    assert verdict.denial is not None
    assert verdict.denial.reason == DenyReason.GATE_TAMPERING
    assert "only the Job controller makes pods of Jobs" in verdict.denial.message
