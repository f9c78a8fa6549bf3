"""Rules in the review of a pod: the claims and templates that a pod refers to, by what is known of them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster import claim_policies
from admission.api.snapshot import Snapshot
from admission.claimpolicy import claim_documents
from admission.claimpolicy.cel_subject import User
from admission.claimpolicy.match import Policies
from admission.claimpolicy.pods.pod_rules import Rulings
from admission.claimpolicy.rules import Ruling
from admission.podpolicy.pod_view import PodView

ALICE = User(username="alice")
POD = {"metadata": {"name": "train-0"}, "spec": {"priorityClassName": "high"}}
REQUEST = {"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 9}}
SPEC = {"devices": {"requests": [REQUEST]}}
NAMESPACES = {"vision": Namespace(meta=Meta(name="vision"), labels={"team": "vision"})}


def template(name: str = "one", *, metadata: Any = None) -> ClaimTemplate:
    body = {"metadata": {"name": name, "namespace": "vision"}, "spec": {"metadata": metadata, "spec": SPEC}}
    return claims.decode_template(body)


def claim(name: str = "shared") -> Claim:
    return claims.decode({"metadata": {"name": name, "namespace": "vision", "labels": {"a": "b"}}, "spec": SPEC})


def snapshot(*objects: Claim | ClaimTemplate) -> Snapshot:
    return Snapshot(
        namespaces=NAMESPACES,
        claims={obj.meta.key: obj for obj in objects if isinstance(obj, Claim)},
        templates={obj.meta.key: obj for obj in objects if isinstance(obj, ClaimTemplate)},
    )


def of(*rules: str, **spec: Any) -> Policies:
    listed = [{"cel": cel, "message": f"not {cel}"} for cel in rules]
    policy = claim_policies.decode({"metadata": {"name": "house"}, "spec": {"rules": listed, **spec}})
    return Policies.build({policy.name: policy}, NAMESPACES)


def judged(
    known: Policies, view: Snapshot, *used: PodClaim, user: User = ALICE, pod: Any = POD, rulings: Rulings | None = None
) -> Ruling:
    arrival = PodView(namespace="vision", labels={"muster.dev/queue": "research"}, claims=used)
    return (rulings or Rulings()).evaluate(arrival, view, known, pod=lambda: pod, user=user)


ONE = PodClaim(name="gpus", template="one")
SHARED = PodClaim(name="gpus", claim="shared")


def said(ruling: Ruling) -> list[str]:
    return [str(finding) for finding in ruling.findings]


@pytest.mark.parametrize(("used", "label"), [(ONE, "ResourceClaimTemplate one"), (SHARED, "ResourceClaim shared")])
def test_the_claims_and_templates_of_a_pod_are_judged(used: PodClaim, label: str) -> None:
    found = judged(of("request.exactly.count <= 8"), snapshot(template(), claim()), used)

    assert said(found) == [f"ClaimPolicy house: {label}, request gpu: not request.exactly.count <= 8"]


def test_a_claim_template_used_twice_by_a_pod_is_reported_once() -> None:
    found = judged(of("false"), snapshot(template()), ONE, PodClaim(name="more", template="one"))

    assert len(found.findings) == 1


def test_a_claim_that_does_not_exist_yet_is_not_judged_with_its_pod() -> None:
    assert judged(of("false"), snapshot(), ONE, SHARED).findings == ()


@pytest.mark.parametrize(("used", "label"), [(ONE, "ResourceClaimTemplate one"), (SHARED, "ResourceClaim shared")])
def test_a_pod_is_refused_while_a_claim_that_a_pod_rule_reads_does_not_exist(used: PodClaim, label: str) -> None:
    """Made after the pod it would never be asked about together with it."""
    known = of("pod.metadata.name != 'x'", "user.username != 'x'", "request.exactly.count < 2")

    denial = judged(known, snapshot(), used).denial

    assert denial is not None
    assert denial.message == (
        f"ClaimPolicy house: {label}: {label} is not there yet, and this rule is asked when the pod is created;"
        f" create {label} before the pod"
    )
    warning = {"rules": [{"cel": "pod.metadata.name != 'x'", "message": "m", "action": "Warn"}]}
    assert not judged(of(**warning), snapshot(), used).findings


def test_a_claim_of_a_policy_for_some_queues_must_be_there() -> None:
    """One that comes after its pod may say that it is for another queue."""
    known = of("request.exactly.count < 2", "user.username != 'x'", queues=["research"])

    assert len(judged(known, snapshot(), SHARED).findings) == 2
    assert len(judged(known, snapshot(), SHARED, user=User(username=CONTROLLERS[0])).findings) == 1
    assert not judged(of("request.exactly.count < 2", queues=["other"]), snapshot(), SHARED).findings


def test_rules_see_the_pod() -> None:
    known = of("pod.spec.priorityClassName == 'low' || request.exactly.count <= 8")

    assert judged(known, snapshot(template()), ONE).findings
    assert not judged(known, snapshot(template()), ONE, pod={"spec": {"priorityClassName": "low"}}).findings


CONTROLLERS = ("system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager")


@pytest.mark.parametrize("username", CONTROLLERS)
def test_controllers_of_kubernetes_are_not_the_user(username: str) -> None:
    known = of("user.username == 'alice'")

    assert not judged(known, snapshot(template()), ONE, user=User(username=username)).findings
    assert judged(known, snapshot(template()), ONE, user=User(username="bob")).findings


def test_a_rule_whose_message_alone_reads_the_user_is_asked_of_every_pod() -> None:
    rule = {"cel": "false", "message": "no", "messageExpression": "'no, ' + user.username"}
    policy = claim_policies.decode({"metadata": {"name": "house"}, "spec": {"rules": [rule]}})
    known = Policies.build({policy.name: policy}, NAMESPACES)

    words = [
        judged(known, snapshot(template()), ONE, user=User(username=name)).findings[0].message
        for name in ("bob", CONTROLLERS[0])
    ]

    assert words == ["no, bob", "no"]


def test_labels_of_the_claims_that_a_template_makes_are_read() -> None:
    known = of("claim.metadata.labels.team == 'vision' && claim.metadata.namespace == 'vision'")

    assert not judged(known, snapshot(template(metadata={"labels": {"team": "vision"}})), ONE).findings
    assert judged(known, snapshot(template(metadata={"labels": {"team": "speech"}})), ONE).findings


def test_policies_of_other_queues_are_not_asked() -> None:
    assert not judged(of("false", queues=["other"]), snapshot(template()), ONE).findings
    assert judged(of("false", queues=["research"]), snapshot(template()), ONE).findings


def test_a_claim_template_created_again_under_its_name_is_judged_again() -> None:
    rulings, known, before = Rulings(), of("request.exactly.count <= 8"), template()
    few = replace(before.spec.requests[0].alternatives[0], count=1)
    after = replace(before, spec=claims.ClaimSpec(requests=(claims.Request(name="gpu", alternatives=(few,)),)))

    assert judged(known, snapshot(before), ONE, rulings=rulings).findings
    assert judged(known, snapshot(before), ONE, rulings=rulings).findings
    assert not judged(known, snapshot(after), ONE, rulings=rulings).findings


def test_a_pod_is_judged_again_by_changed_policies() -> None:
    rulings, view = Rulings(), snapshot(template())

    assert not judged(of("true"), view, ONE, rulings=rulings).findings
    assert judged(of("false"), view, ONE, rulings=rulings).findings


def test_a_pod_is_decoded_only_for_rules_that_read_the_pod() -> None:
    asked: list[int] = []

    def pod() -> Any:
        asked.append(1)
        return POD

    arrival = PodView(namespace="vision", claims=(ONE,))
    Rulings().evaluate(arrival, snapshot(template()), of("request.exactly.count < 10"), pod=pod, user=ALICE)
    assert asked == []
    Rulings().evaluate(arrival, snapshot(template()), of("pod.metadata.name != ''"), pod=pod, user=ALICE)
    assert asked == [1]


SPECS: dict[str, Sequence[Any]] = {
    "a count": [REQUEST],
    "all of them, for an administrator": [
        {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "All", "adminAccess": True}}
    ],
    "alternatives": [
        {
            "name": "a",
            "firstAvailable": [
                {"name": "x", "deviceClassName": "c", "allocationMode": "ExactCount", "count": 2},
                {"name": "y", "deviceClassName": "d", "allocationMode": "All"},
            ],
        }
    ],
    "selectors, tolerations and capacity": [
        {
            "name": "a",
            "exactly": {
                "deviceClassName": "c",
                "allocationMode": "ExactCount",
                "count": 1,
                "capacity": {"requests": {"memory": "20Gi", "cores": "1500m"}},
                "selectors": [{"cel": {"expression": "true"}}],
                "tolerations": [{"key": "k", "value": "v", "effect": "NoExecute", "operator": "Equal"}],
            },
        }
    ],
}


@pytest.mark.parametrize("requests", SPECS.values(), ids=SPECS)
def test_a_claim_spec_survives_a_round_trip(requests: Sequence[Any]) -> None:
    spec = {
        "devices": {
            "requests": list(requests),
            "constraints": [{"requests": ["a"], "matchAttribute": "d/x"}, {"distinctAttribute": "d/y"}],
            "config": [{"requests": ["a"], "opaque": {"driver": "d", "parameters": {"a": 1}}}],
        }
    }
    read = claims.decode({"metadata": {"name": "one", "namespace": "vision", "uid": "u-1"}, "spec": spec})

    assert claim_documents.encode_claim(read) == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one", "namespace": "vision", "uid": "u-1"},
        "spec": spec,
    }


def test_cached_rulings_of_a_pod_are_judged_again_when_a_claim_changes() -> None:
    known, rulings = of("request.exactly.count <= 8"), Rulings()
    before, after = snapshot(template(), claim()), snapshot(template(), replace(claim(), spec=NONE.spec))
    both = (ONE, SHARED)

    first = judged(known, before, *both, rulings=rulings)
    assert judged(known, before, *both, rulings=rulings) is first
    assert judged(known, before, ONE, rulings=rulings) is not first

    assert len(first.findings) == 2
    assert len(judged(known, after, *both, rulings=rulings).findings) == 1


def test_a_ruling_cut_short_by_the_cost_budget_is_not_cached() -> None:
    """Each claim costs more than half of what the claims of one pod may."""
    known, rulings = of("lists.range(250).all(x, lists.range(250).all(y, x + y >= 0))"), Rulings()
    view = snapshot(template(), claim())

    both = judged(known, view, ONE, SHARED, rulings=rulings)
    assert ["limit exceeded" in text for text in said(both)] == [True]
    assert not judged(known, view, SHARED, rulings=rulings).findings
    assert not judged(known, view, ONE, rulings=rulings).findings
    assert not judged(known, view, ONE, SHARED, rulings=rulings).findings


NONE = claims.decode({"metadata": {"name": "none", "namespace": "vision"}, "spec": {"devices": {"requests": []}}})
