"""Reviews of pods with claims by annotation and with extended resources: what is stored, and what is judged."""

from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from admission.api.kubernetes.admission_review import Verdict
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.values import names
from admission.api.values.reasons import DenyReason
from admission.review import reviewer
from admission.review.caches import ReviewCaches
from admission.webhook import codec
from tests.unit.claimpolicy.policies import a_policy
from tests.unit.webhook.cases import RULES, MemoryView, World, a_pod, exactly

GPU = "nvidia.com/gpu"
CLASS = "gpu.example.com"
CONVERTS = a_policy(conversions=[{"extendedResource": GPU, "deviceClassName": CLASS}])
PROVIDES = a_policy(templates=[{"name": "h100x8", "spec": {"devices": {"requests": [exactly("gpu", CLASS, 8)]}}}])


def a_cluster(nominal: str = "8") -> World:
    """Return a cluster whose namespace `ml` has a default queue of so many GPUs."""
    return World().queue("team-a", default=True, quotas=[{"meter": "gpus", "nominal": nominal}])


def asking(gpus: int, **rest: Any) -> dict[str, Any]:
    pod = a_pod(**rest)
    pod["spec"]["containers"][0]["resources"] = {"limits": {GPU: gpus}, "requests": {GPU: gpus}}
    return pod


def at_the_door(pod: dict[str, Any], *policies: ClaimPolicy, cluster: World | None = None) -> tuple[Any, Verdict]:
    """Send a pod through both halves as the API server does: read as fast as may be. Return the pod, and the verdict.

    A second pass of the first half changes nothing.
    """
    snapshot = replace((cluster or a_cluster()).build(), policies={policy.name: policy for policy in policies})
    view, caches = MemoryView(snapshot), ReviewCaches()
    changed = reviewer.mutate(_review(pod), view, caches=caches)
    if changed.denial is not None:
        return pod, changed
    pod = jsonpatch.apply_patch(pod, list(changed.patch))
    assert reviewer.mutate(_review(pod), view, caches=caches).patch == ()
    return pod, reviewer.validate(_review(pod), view, rules=RULES, caches=caches)


def _review(pod: dict[str, Any]) -> Any:
    request = {
        "uid": "u-1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "operation": "CREATE",
        "namespace": "ml",
        "userInfo": {"username": "alice"},
        "object": pod,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    review = codec.read(body)
    assert review is not None
    return review


def test_claims_of_the_annotation_are_added_beside_the_gate() -> None:
    pod, verdict = at_the_door(a_pod(annotations={names.CLAIMS: "gpu=h100x8"}), PROVIDES)

    assert pod["spec"]["schedulingGates"] == [{"name": names.GATE}]
    assert pod["spec"]["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "h100x8"}]
    assert pod["spec"]["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    assert pod["metadata"]["annotations"] == {names.CLAIMS: "gpu=h100x8", names.USER: "alice"}
    assert (verdict.denial, verdict.warnings) == (None, ()), "the template is about to be there"


def test_a_template_that_nobody_provides_is_warned_about() -> None:
    _, verdict = at_the_door(a_pod(annotations={names.CLAIMS: "gpu=h100x4"}), PROVIDES)

    assert verdict.denial is None
    (warning,) = verdict.warnings
    assert "ResourceClaimTemplate h100x4 is not there in namespace ml; the pod waits until it exists" in warning


def test_an_annotation_that_cannot_be_followed_is_refused() -> None:
    _, verdict = at_the_door(a_pod(annotations={names.CLAIMS: "gpu"}))

    assert verdict.denial is not None
    assert verdict.denial.reason is DenyReason.MALFORMED_REQUEST


def test_an_extended_resource_is_converted_and_judged_as_a_claim() -> None:
    pod, verdict = at_the_door(asking(8), CONVERTS)

    assert pod["metadata"]["annotations"][names.CONVERTED] == "p:nvidia.com/gpu=8"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {}
    assert (verdict.denial, verdict.warnings) == (None, ())

    _, verdict = at_the_door(asking(9), CONVERTS)
    assert verdict.denial is not None
    assert verdict.denial.reason is DenyReason.NEVER_FITS


def test_a_converted_claim_has_the_defaults_of_its_template() -> None:
    """Such as the class behind an alias; a class that no meter counts is refused."""
    other = a_policy(conversions=[{"extendedResource": GPU, "deviceClassName": "h100"}])
    alias = a_policy("q", defaults=[{"deviceClasses": ["h100"], "deviceClassName": CLASS}])

    _, unmetered = at_the_door(asking(1), other)
    _, verdict = at_the_door(asking(1), other, alias)

    assert unmetered.denial is not None
    assert unmetered.denial.reason is DenyReason.UNMETERED_CLASS
    assert verdict.denial is None


def test_rules_are_asked_about_what_a_policy_is_about_to_provide() -> None:
    rule = a_policy("r", rules=[{"cel": "request.exactly.count < 8", "message": "too many"}])

    for pod in (asking(8), a_pod(annotations={names.CLAIMS: "gpu=h100x8"})):
        provided = a_policy(
            templates=[{"name": one.name, "spec": one.spec} for one in PROVIDES.templates],
            conversions=[{"extendedResource": GPU, "deviceClassName": CLASS}],
        )
        _, verdict = at_the_door(pod, provided, rule)
        assert verdict.denial is not None
        assert verdict.denial.reason is DenyReason.POLICY_VIOLATION


@pytest.mark.parametrize(
    "policy",
    [
        a_policy(queues=["team-b"], conversions=[{"extendedResource": GPU, "deviceClassName": CLASS}]),
        a_policy(conversions=[{"extendedResource": "example.com/nic", "deviceClassName": CLASS}]),
        PROVIDES,
    ],
    ids=["of another queue", "of another resource", "without conversions"],
)
def test_a_policy_that_is_not_for_the_pod_converts_nothing(policy: ClaimPolicy) -> None:
    pod, _ = at_the_door(asking(1), policy)

    assert pod["spec"]["containers"] == asking(1)["spec"]["containers"]


def test_a_pod_without_a_queue_is_converted_and_not_gated() -> None:
    pod, verdict = at_the_door(asking(1), CONVERTS, cluster=World())

    assert "schedulingGates" not in pod["spec"]
    assert len(pod["spec"]["resourceClaims"]) == 1
    assert verdict.denial is None


def test_a_pod_with_a_node_name_is_not_converted() -> None:
    pod = asking(1, annotations={names.CLAIMS: "gpu=h100x8"}, nodeName="n")

    assert at_the_door(pod, CONVERTS, cluster=World())[0] == pod


def test_a_forged_note_is_refused_where_the_pod_has_no_such_claim() -> None:
    pod, _ = at_the_door(asking(2), CONVERTS)
    pod["metadata"]["annotations"][names.CONVERTED] = "p:nvidia.com/gpu=1"

    _, verdict = at_the_door(pod, CONVERTS)

    assert verdict.denial is not None
    assert verdict.denial.reason is DenyReason.GATE_TAMPERING
    assert "a claim from ResourceClaimTemplate nvidia-com-gpu-" in verdict.denial.message


def judged(pod: Any, *policies: ClaimPolicy) -> Verdict:
    """Ask the second half alone, as after a webhook that came in between."""
    snapshot = replace(a_cluster().build(), policies={policy.name: policy for policy in policies})
    return reviewer.validate(_review(pod), MemoryView(snapshot), rules=RULES, caches=ReviewCaches())


TAKEN: dict[str, list[dict[str, Any]]] = {
    "from a container": [{"op": "remove", "path": "/spec/containers/0/resources/claims"}],
    "one of the requests": [{"op": "remove", "path": "/spec/containers/0/resources/claims/0/request"}],
    "with the pod's claim": [
        {"op": "remove", "path": "/spec/containers/0/resources/claims"},
        {"op": "remove", "path": "/spec/resourceClaims"},
    ],
    "for another template": [
        {"op": "replace", "path": "/spec/resourceClaims/0/resourceClaimTemplateName", "value": "other"}
    ],
}


@pytest.mark.parametrize("operations", TAKEN.values(), ids=TAKEN)
def test_a_pod_without_the_claims_that_its_resources_became_is_refused(operations: list[dict[str, Any]]) -> None:
    """Another mutating webhook may have put the containers back that it knew."""
    pod, verdict = at_the_door(asking(2), CONVERTS)
    assert verdict.denial is None

    denial = judged(jsonpatch.apply_patch(pod, operations), CONVERTS).denial

    assert denial is not None
    assert denial.reason is DenyReason.GATE_TAMPERING
    assert "in place of nvidia.com/gpu" in denial.message
    assert "another webhook takes away what Muster's mutating webhook adds" in denial.message


def test_a_pod_without_the_claims_of_its_annotation_is_refused() -> None:
    pod, verdict = at_the_door(a_pod(annotations={names.CLAIMS: "gpu=h100x8"}), PROVIDES)
    assert verdict.denial is None

    del pod["spec"]["containers"][0]["resources"]
    denial = judged(pod, PROVIDES).denial

    assert denial is not None
    assert denial.reason is DenyReason.GATE_TAMPERING
    assert "annotation muster.dev/claims says that the pod has the claims 'gpu=h100x8'" in denial.message
