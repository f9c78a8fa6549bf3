from typing import Any

import pytest

from admission.api.kubernetes.admission_review import ALLOWED, Review
from admission.api.values import json_patch, names
from admission.api.values.reasons import DenyReason
from admission.errors import RetryError
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from tests.unit.webhook.cases import (
    CACHES,
    CONTROLLER,
    GATES,
    RULES,
    MemoryView,
    World,
    a_cluster,
    a_job,
    a_pod,
    creation,
    exactly,
    held,
    mutate,
    update,
    validate,
)


def test_a_new_pod_of_a_queue_gets_the_gate_and_its_user() -> None:
    verdict = mutate(creation(a_pod(labels={names.QUEUE: "team-a"})))

    assert verdict.denial is None
    assert verdict.patch == (
        {"op": "add", "path": "/spec/schedulingGates", "value": GATES},
        {"op": "add", "path": "/metadata/annotations", "value": {names.USER: "alice"}},
    )


def test_a_dry_run_of_a_pod_is_answered_like_its_creation() -> None:
    pod = a_pod(labels={names.QUEUE: "team-a"})

    assert mutate(creation(pod, dry_run=True)) == mutate(creation(pod))


def test_the_namespace_of_the_request_counts_not_that_of_the_object() -> None:
    pod = a_pod(labels={names.QUEUE: "team-a"})
    pod["metadata"]["namespace"] = "elsewhere"

    assert mutate(creation(pod)).patch


def test_a_new_pod_is_judged() -> None:
    assert validate(creation(held())).denial is None
    assert validate(creation(held("nope"))).denial.reason == DenyReason.UNKNOWN_QUEUE


def test_opening_a_gate_is_refused_to_a_user_and_allowed_to_the_controller() -> None:
    opened = update(held(), held(gates=[]))

    assert validate(opened).denial.reason == DenyReason.GATE_TAMPERING
    assert validate(update(held(), held(gates=[]), username=CONTROLLER)) == ALLOWED


def test_a_pod_for_more_than_its_queue_can_ever_have_is_refused() -> None:
    quotas = [{"meter": "gpus", "nominal": "8"}]
    cluster = World().queue("team-a", quotas=quotas).template("t", exactly("gpu", "gpu.example.com", 9))

    denial = reviewer.validate(
        creation(held(templates=("t",))), MemoryView(cluster.build()), rules=RULES, caches=ReviewCaches()
    ).denial

    assert denial is not None
    assert denial.reason == DenyReason.NEVER_FITS


def test_a_label_is_not_changed_by_way_of_the_status() -> None:
    moved = update(held(), held("team-b"), subresource="status")

    assert validate(moved).denial.reason == DenyReason.GATE_TAMPERING
    assert mutate(moved) == ALLOWED
    assert validate(update(held(), held(), subresource="status")) == ALLOWED
    assert validate(update(held(), held("team-b"), subresource="status", username=CONTROLLER)) == ALLOWED


@pytest.mark.parametrize("answer", [mutate, validate])
@pytest.mark.parametrize("subresource", ["binding", "ephemeralcontainers", "eviction"])
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_subresources_are_let_through(answer: Any, subresource: str, operation: str) -> None:
    review = creation({"kind": "Binding"}, subresource=subresource)

    assert answer(reviewing_with(review, operation=operation)) == ALLOWED


MISDIRECTED: dict[str, dict[str, Any]] = {
    "another kind": {"resource": "configmaps", "kind": "ConfigMap"},
    "another group": {"group": "metrics.k8s.io"},
    "another version": {"version": "v2"},
    "a deletion": {"operation": "DELETE"},
    "a connection": {"operation": "CONNECT"},
    "a subresource of another kind": {"resource": "deployments", "group": "apps", "subresource": "scale"},
}


@pytest.mark.parametrize("answer", [mutate, validate])
@pytest.mark.parametrize("fields", MISDIRECTED.values(), ids=MISDIRECTED)
def test_a_review_of_an_unregistered_kind_is_refused_with_a_message(answer: Any, fields: dict[str, Any]) -> None:
    denial = answer(reviewing_with(creation(held()), **fields)).denial

    assert denial.reason == DenyReason.MALFORMED_REQUEST
    assert "correct the rules of the webhook configuration" in denial.message


def test_the_mutating_half_answers_creations_only() -> None:
    assert mutate(update(held(), held())).denial.reason == DenyReason.MALFORMED_REQUEST


@pytest.mark.parametrize("answer", [mutate, validate])
@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (None, "Expected `object`, got `null`"),
        ({"metadata": {}}, "missing required field `spec`"),
        ({**a_pod(), "spec": {"schedulingGates": "x"}}, "spec.schedulingGates"),
        ({**a_pod(), "metadata": {"labels": {"a": 1}}}, "metadata.labels"),
    ],
)
def test_an_unreadable_pod_is_refused_with_its_problems(answer: Any, pod: Any, field: str) -> None:
    denial = answer(creation(pod)).denial

    assert denial.reason == DenyReason.MALFORMED_REQUEST
    assert field in denial.message


def test_a_change_without_its_old_object_is_refused() -> None:
    review = reviewing_with(creation(held()), operation="UPDATE")

    assert validate(review).denial.reason == DenyReason.MALFORMED_REQUEST


def test_nothing_is_answered_before_the_view_is_synced() -> None:
    view = MemoryView(a_cluster().build(), synced=False)

    with pytest.raises(RetryError, match="not all read yet"):
        reviewer.mutate(creation(held()), view, caches=CACHES)
    with pytest.raises(RetryError, match="not all read yet"):
        reviewer.validate(creation(held()), view, rules=RULES, caches=CACHES)


def of_job(operation: str, new: Any, old: Any = None, *, username: str = "alice") -> Review:
    fields = {"group": "batch", "resource": "jobs", "kind": "Job"}
    return reviewing_with(creation(new, username=username), operation=operation, old=old, **fields)


STAMP = "/spec/template/metadata/annotations"
NEW_JOBS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a template without metadata": (
        a_job(metadata=None),
        {"op": "add", "path": "/spec/template/metadata", "value": {"annotations": {names.USER: "alice"}}},
    ),
    "a template without annotations": (
        a_job(),
        {"op": "add", "path": STAMP, "value": {names.USER: "alice"}},
    ),
    "a template with others": (
        a_job(annotations={"note": "x"}),
        {"op": "add", "path": f"{STAMP}/muster.dev~1user", "value": "alice"},
    ),
    "one that names somebody else": (
        a_job(annotations={names.USER: "bob"}),
        {"op": "add", "path": f"{STAMP}/muster.dev~1user", "value": "alice"},
    ),
}


@pytest.mark.parametrize(("job", "step"), NEW_JOBS.values(), ids=NEW_JOBS)
def test_the_pod_template_of_a_new_job_gets_the_user_annotation(job: Any, step: dict[str, Any]) -> None:
    assert mutate(of_job("CREATE", job)).patch == (step,)


@pytest.mark.parametrize("key", ["kueue.x-k8s.io/queue-name", "kai.scheduler/queue"])
def test_the_template_of_a_new_job_says_what_the_job_calls_its_queue(key: str) -> None:
    job = a_job(annotations={"app": "x"})
    job["metadata"]["labels"] = {key: "user-queue"}

    steps = mutate(of_job("CREATE", job)).patch

    assert {(step["path"].rpartition("/")[2], step["value"]) for step in steps} == {
        ("muster.dev~1user", "alice"),
        ("muster.dev~1queue-alias", "user-queue"),
    }


@pytest.mark.parametrize("job", [job for job, _ in NEW_JOBS.values()], ids=NEW_JOBS)
def test_one_call_suspends_a_new_job_and_records_its_maker(job: Any) -> None:
    view = MemoryView(World().queue("team-a", default=True, holdAt="Workload").build())

    patch = reviewer.hold(of_job("CREATE", job), view, caches=CACHES).patch

    found = json_patch.apply(job, patch)
    assert found["spec"]["suspend"] is True
    assert found["spec"]["template"]["metadata"]["annotations"][names.USER] == "alice"
    assert found["spec"]["template"]["metadata"]["labels"] == {names.QUEUE: "team-a"}


def test_a_job_without_a_template_is_left_to_the_api_server() -> None:
    view = MemoryView(World().queue("team-a", default=True, holdAt="Workload").build())

    verdict = reviewer.hold(of_job("CREATE", {"metadata": {"name": "j"}, "spec": {}}), view, caches=CACHES)

    assert names.USER not in str(verdict.patch)


def test_a_job_is_stamped_before_anything_else_is_known() -> None:
    view = MemoryView(a_cluster().build(), synced=False)

    assert reviewer.mutate(of_job("CREATE", a_job()), view, caches=CACHES).patch


CHANGED_JOBS: dict[str, tuple[Any, Any, list[tuple[str, Any]]]] = {
    "nothing": (a_job(annotations={names.USER: "alice"}), a_job(annotations={names.USER: "alice"}), []),
    "another name": (
        a_job(annotations={names.USER: "alice"}),
        a_job(annotations={names.USER: "bob"}),
        [("add", "alice")],
    ),
    "no name any more": (
        a_job(annotations={names.USER: "alice"}),
        a_job(),
        [("add", {names.USER: "alice"})],
    ),
    "a name that was not there": (a_job(), a_job(annotations={names.USER: "bob"}), [("remove", None)]),
}


@pytest.mark.parametrize(("old", "new", "steps"), CHANGED_JOBS.values(), ids=CHANGED_JOBS)
def test_the_user_annotation_of_a_job_survives_a_change(old: Any, new: Any, steps: list[tuple[str, Any]]) -> None:
    patch = mutate(of_job("UPDATE", new, old, username="mallory")).patch

    assert [(step["op"], step.get("value")) for step in patch] == steps


@pytest.mark.parametrize("job", [None, {"spec": {"template": {"metadata": {"annotations": {"a": 1}}}}}])
def test_an_unreadable_job_is_refused_with_its_problems(job: Any) -> None:
    assert mutate(of_job("CREATE", job)).denial.reason == DenyReason.MALFORMED_REQUEST


def reviewing_with(review: Review, **fields: Any) -> Review:
    values = {name: getattr(review, name) for name in Review.__dataclass_fields__}
    return Review(**{**values, **fields})
