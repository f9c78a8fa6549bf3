"""Reviews of pods as the API server sends them: what rules see of them, and what the answer carries."""

import json
from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster.claim_policies import ClaimPolicy
from admission.claimpolicy.rules import AUDIT
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.webhook import handler
from tests.unit.claimpolicy.policies import a_policy
from tests.unit.webhook.cases import RULES, MemoryView, World, exactly, held

CLASSY = {"cel": "pod.spec.priorityClassName != 'high'", "message": "not now", "reason": "NotNow"}


def answered(policy: ClaimPolicy, **spec: Any) -> dict[str, Any]:
    """Return the response to the creation of a pod that uses the template `one`, read as fast as may be."""
    cluster = World().queue("team-a", unmeteredClasses="Allow").template("one", exactly("gpu", "gpu", 1))
    view = MemoryView(replace(cluster.build(), policies={policy.name: policy}))
    pod = held(templates=("one",))
    pod["spec"].update(spec)
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ml",
        "userInfo": {"username": "alice", "groups": ["vision"]},
        "object": pod,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = handler.answer(
        json.dumps(body).encode(),
        lambda review: reviewer.validate(review, view, rules=RULES, caches=ReviewCaches()),
    )
    assert answer.code == 200
    response: dict[str, Any] = json.loads(answer.body)["response"]
    return response


def test_a_rule_reads_fields_of_the_pod_that_nothing_else_reads() -> None:
    assert answered(a_policy(rules=[CLASSY]), priorityClassName="low")["allowed"] is True

    refused = answered(a_policy(rules=[CLASSY]), priorityClassName="high")

    assert refused["allowed"] is False
    assert refused["status"]["message"] == (
        "muster: PolicyViolation: ClaimPolicy p: ResourceClaimTemplate one, request gpu: NotNow: not now"
    )


def test_the_answer_carries_warnings_and_notes_beside_the_queue() -> None:
    rules = [{**CLASSY, "action": action} for action in ("Warn", "Audit")]

    response = answered(a_policy(rules=rules), priorityClassName="high")

    assert response["allowed"] is True
    assert response["warnings"] == ["muster: ClaimPolicy p: ResourceClaimTemplate one, request gpu: NotNow: not now"]
    assert response["auditAnnotations"]["queue"] == "team-a"
    (noted,) = json.loads(response["auditAnnotations"][AUDIT])
    assert (noted["policy"], noted["rule"], noted["object"]) == ("p", "spec.rules[1]", "ResourceClaimTemplate one")


@pytest.mark.parametrize("cel", ["request.exactly.count > 1", "user.username == 'bob'", "queue == 'other'"])
def test_every_rule_is_asked_of_what_a_pod_uses(cel: str) -> None:
    refused = answered(a_policy(rules=[{"cel": cel, "message": "no"}]))

    assert refused["status"]["message"].endswith("request gpu: no")
