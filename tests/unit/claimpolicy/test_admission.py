"""Reviews of claims and templates: what they get, and which are refused."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.values import names
from admission.api.values.reasons import DenyReason
from admission.claimpolicy.admission import CLAIM_CONTROLLERS, POD_CLAIM, SCHEDULER
from admission.errors import RetryError
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from tests.unit.claimpolicy.policies import a_claim, a_policy, a_template, alternatives, exactly
from tests.unit.webhook.cases import RULES, MemoryView, World

CLASS = "gpu.example.com"
QUOTAS = [{"meter": "gpus", "nominal": "8"}]
PLURALS = {"ResourceClaim": "resourceclaims", "ResourceClaimTemplate": "resourceclaimtemplates"}


def a_review(obj: dict[str, Any], **rest: Any) -> Review:
    fields: dict[str, Any] = {
        "uid": "u-1",
        "group": "resource.k8s.io",
        "version": "v1",
        "resource": PLURALS[obj["kind"]],
        "kind": obj["kind"],
        "operation": "CREATE",
        "namespace": "ml",
        "username": "alice",
        "groups": ("vision",),
        "obj": obj,
    }
    return Review(**{**fields, **rest})


def mutate(obj: dict[str, Any], *policies: ClaimPolicy, cluster: World | None = None, **rest: Any) -> Verdict:
    return reviewer.mutate(a_review(obj, **rest), view(cluster or World(), policies), caches=ReviewCaches())


def validate(obj: dict[str, Any], *policies: ClaimPolicy, cluster: World | None = None, **rest: Any) -> Verdict:
    found = view(cluster or World(), policies)
    return reviewer.validate(a_review(obj, **rest), found, rules=RULES, caches=ReviewCaches())


def view(cluster: World, policies: tuple[ClaimPolicy, ...]) -> MemoryView:
    return MemoryView(replace(cluster.build(), policies={policy.name: policy for policy in policies}))


def denied(verdict: Verdict) -> tuple[DenyReason, str]:
    assert verdict.denial is not None
    return verdict.denial.reason, verdict.denial.message


LABEL = a_policy(defaults=[{"labels": {"cost-centre": "r-17"}}])
QUEUED = a_policy(queues=["team-a"], defaults=[{"labels": {"cost-centre": "r-17"}}])


@pytest.mark.parametrize("make", [a_claim, a_template])
def test_claims_and_templates_get_their_defaults(make: Any) -> None:
    assert mutate(make(exactly()), LABEL).patch == (
        {"op": "add", "path": "/metadata/labels", "value": {"cost-centre": "r-17"}},
    )


def test_a_spec_that_is_written_again_gets_the_same_defaults_again() -> None:
    assert mutate(a_claim(exactly()), LABEL, operation="UPDATE").patch
    assert validate(a_claim(exactly(count=40)), operation="UPDATE") == ALLOWED


def test_a_dry_run_of_a_claim_gets_the_same_defaults() -> None:
    assert mutate(a_claim(exactly()), LABEL, dry_run=True) == mutate(a_claim(exactly()), LABEL)


def test_outside_of_all_policies_nothing_happens() -> None:
    assert mutate(a_claim(exactly()), a_policy(namespaceSelector={"matchLabels": {"x": "y"}})) == ALLOWED
    assert validate(a_claim(exactly())) == ALLOWED


def test_a_claim_that_kube_scheduler_makes_is_left_alone() -> None:
    assert mutate(a_claim(exactly()), LABEL, username=SCHEDULER) == ALLOWED
    assert validate(a_claim(exactly(count=40)), username=SCHEDULER) == ALLOWED


def test_a_claim_is_for_the_default_queue_of_its_namespace() -> None:
    assert mutate(a_claim(exactly()), QUEUED, cluster=World().queue("team-a", default=True)).patch
    assert mutate(a_claim(exactly()), QUEUED, cluster=World().queue("team-a")) == ALLOWED


def test_a_claim_or_the_claims_of_a_template_may_name_a_queue() -> None:
    cluster = World().queue("team-a").queue("other", default=True)
    labels = {names.QUEUE: "team-a"}
    inner = a_template(exactly())
    inner["spec"]["metadata"] = {"labels": labels}

    assert mutate(a_claim(exactly(), labels=labels), QUEUED, cluster=cluster).patch
    assert mutate(a_template(exactly(), labels=labels), QUEUED, cluster=cluster).patch
    assert mutate(inner, QUEUED, cluster=cluster).patch
    assert mutate(a_claim(exactly()), QUEUED, cluster=cluster) == ALLOWED


def test_a_queue_that_is_not_there_or_not_open_is_refused() -> None:
    cluster = World().queue("team-b", team="b")

    for queue, reason in (("nope", DenyReason.UNKNOWN_QUEUE), ("team-b", DenyReason.QUEUE_NOT_OPEN)):
        assert denied(validate(a_claim(exactly(), labels={names.QUEUE: queue}), cluster=cluster))[0] == reason


@pytest.mark.parametrize("make", [a_claim, a_template])
def test_a_claim_that_no_allocator_can_serve_is_refused(make: Any) -> None:
    reason, message = denied(validate(make(exactly(count=33))))

    assert reason == DenyReason.CLAIM_TOO_LARGE
    assert "asks for 33 devices; Kubernetes allocates at most 32" in message
    assert validate(make(exactly(count=32))) == ALLOWED


def test_a_claim_for_an_unmetered_device_class_is_refused_where_there_is_a_queue() -> None:
    cluster = World().queue("team-a", default=True)

    assert denied(validate(a_claim(exactly(device_class="odd")), cluster=cluster)) == (
        DenyReason.UNMETERED_CLASS,
        (
            "ResourceClaim c asks in request gpu for device class odd, which no Meter counts (counted:"
            " gpu.example.com), and queue team-a refuses what is not counted; add the class to a Meter's sources, use"
            " another class, or set unmeteredClasses: Allow on the queue"
        ),
    )
    assert validate(a_claim(exactly(device_class="odd")), cluster=World().queue("team-a")) == ALLOWED


def test_a_claim_for_more_than_its_queue_can_ever_have_is_refused_with_numbers() -> None:
    cluster = World().queue("team-a", default=True, quotas=QUOTAS)

    assert denied(validate(a_template(exactly(device_class=CLASS, count=9)), cluster=cluster)) == (
        DenyReason.NEVER_FITS,
        (
            "ResourceClaimTemplate c needs at least 9 gpus; queue team-a can never have more than 8, with all that it"
            " may borrow; ask for less, or for more quota"
        ),
    )
    assert validate(a_claim(exactly(device_class=CLASS, count=8)), cluster=cluster) == ALLOWED


def test_a_claim_that_another_queue_of_the_namespace_could_hold_is_allowed() -> None:
    more = [{"meter": "gpus", "nominal": "16"}]
    cluster = World().queue("small", default=True, quotas=QUOTAS).queue("large", quotas=more)
    nine, many = (a_claim(exactly(device_class=CLASS, count=count)) for count in (9, 17))

    assert validate(nine, cluster=cluster) == ALLOWED
    assert "nor can any other queue that is open to namespace ml" in denied(validate(many, cluster=cluster))[1]
    nine["metadata"]["labels"] = {names.QUEUE: "small"}
    assert denied(validate(nine, cluster=cluster))[0] == DenyReason.NEVER_FITS


def test_a_claim_made_from_a_template_by_its_controller_is_not_judged_again() -> None:
    cluster = World().queue("team-a", default=True, quotas=QUOTAS)
    made = a_claim(exactly(device_class=CLASS, count=9), annotations={POD_CLAIM: "gpu"})

    assert validate(made, cluster=cluster, username=CLAIM_CONTROLLERS[0]) == ALLOWED
    assert denied(validate(made, cluster=cluster))[0] == DenyReason.NEVER_FITS, "whoever only says so is not believed"


def test_a_selector_that_no_api_server_takes_is_refused_with_its_place() -> None:
    bad = [{"cel": {"expression": "device.driver ==\n  device.nope"}}]
    subs: list[dict[str, Any]] = [
        {"name": "a", "deviceClassName": CLASS},
        {"name": "b", "deviceClassName": CLASS, "selectors": bad},
    ]

    reason, message = denied(validate(a_claim(alternatives(*subs))))

    assert reason == DenyReason.MALFORMED_CLAIM
    assert message.startswith(
        "ResourceClaim c, request gpu/b, selectors[0]: compile error: 2:9: undefined field 'nope'"
    )


def test_a_selector_that_is_a_trap_is_warned_about() -> None:
    risky = a_claim(exactly(selectors=[{"cel": {"expression": "device.attributes['a.example.com'].b == 1"}}]))
    cluster = World().offered("gpu", "example.com/gpu")

    verdict = validate(risky, cluster=cluster)

    assert verdict.denial is None
    assert "write: 'b' in device.attributes['a.example.com'] && device" in verdict.warnings[0]
    risky["metadata"]["annotations"] = {POD_CLAIM: "gpu"}
    assert validate(risky, cluster=cluster, username=CLAIM_CONTROLLERS[0]) == ALLOWED


def test_a_claim_that_cannot_be_read_is_refused_with_its_fields() -> None:
    obj = a_claim({"name": "gpu"})

    assert denied(validate(obj)) == (
        DenyReason.MALFORMED_CLAIM,
        "ResourceClaim ml/c: spec.devices.requests[0]: needs `exactly` or `firstAvailable`",
    )


def test_v1beta1_is_read_as_v1() -> None:
    claim = a_claim({"name": "gpu", "deviceClassName": CLASS, "count": 33}) | {"apiVersion": "resource.k8s.io/v1beta1"}
    template = claim | {"kind": "ResourceClaimTemplate", "spec": {"spec": claim["spec"]}}

    for obj in (claim, template):
        assert denied(validate(obj, version="v1beta1"))[0] == DenyReason.CLAIM_TOO_LARGE
    for odd in ({}, {"spec": 1}, {"spec": {"devices": {"requests": [1]}}}):
        sent = {"apiVersion": "resource.k8s.io/v1beta1", **odd}
        assert claims.upgraded(sent).get("spec") == odd.get("spec")


RULE = {"cel": "request.exactly.count <= 8", "message": "at most 8 per claim", "action": "Deny"}


def test_claim_rules_read_the_defaulted_claim_and_its_user() -> None:
    mine = {**RULE, "cel": "user.username == 'bob' || 'root' in user.groups || user.uid == 'x' || 'k' in user.extra"}

    assert denied(validate(a_claim(exactly(count=9)), a_policy(rules=[RULE]))) == (
        DenyReason.POLICY_VIOLATION,
        "ClaimPolicy p: request gpu: at most 8 per claim",
    )
    assert denied(validate(a_template(exactly(count=9)), a_policy(rules=[RULE])))[0] == DenyReason.POLICY_VIOLATION
    assert denied(validate(a_claim(exactly()), a_policy(rules=[mine])))[0] == DenyReason.POLICY_VIOLATION
    for known in ({"username": "bob"}, {"groups": ("root",)}, {"user_uid": "x"}, {"extra": {"k": ("v",)}}):
        assert validate(a_claim(exactly()), a_policy(rules=[mine]), **known) == ALLOWED


def test_rules_may_warn_and_note() -> None:
    verdict = validate(
        a_claim(exactly(count=9)), a_policy(rules=[{**RULE, "action": "Warn"}, {**RULE, "action": "Audit"}])
    )

    assert verdict.denial is None
    assert verdict.warnings == ("muster: ClaimPolicy p: request gpu: at most 8 per claim",)
    assert "spec.rules[1]" in verdict.annotations["claim-policies"]


def test_nothing_is_said_of_a_namespace_that_was_not_seen_yet() -> None:
    with pytest.raises(RetryError):
        mutate(a_claim(exactly()), LABEL, namespace="new")
