"""ClaimPolicies on a real control plane: what claims get when they are stored, and which are refused."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import intruders, policies
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, found_team

RESOURCE = "/apis/resource.k8s.io"
TOLERATION = {"key": "example.com/draining", "operator": "Exists", "effect": "NoSchedule"}
CONFIG = {"opaque": {"driver": fleet.DRIVER, "parameters": {"sharing": "none"}}}
SELECTOR = {"cel": {"expression": f"device.driver == '{fleet.DRIVER}'"}}


@pytest.fixture
def policy(muster: Muster, namespace: Namespace) -> Iterator[str]:
    """A policy for one namespace, in force."""
    spec = {
        "defaults": [
            {"deviceClasses": ["gpu"], "deviceClassName": fleet.DEVICE_CLASS, "count": 4, "selectors": [SELECTOR]},
            {"when": "user.username != 'nobody'", "tolerations": [TOLERATION], "config": [CONFIG]},
            {"labels": {"cost-centre": "r-17"}},
        ],
        "rules": [
            {"cel": "request.exactly.count <= 8", "message": "ask for at most 8 GPUs per claim"},
            {"cel": "request.exactly.count <= 6", "message": "more than 6 wait for long", "action": "Warn"},
            {"cel": "pod.metadata.name != 'greedy'", "message": "nobody likes greedy pods"},
        ],
    }
    with policies.in_force(namespace, spec) as name:
        yield name


def asked(*, count: int | None = None, device_class: str = "gpu") -> dict[str, Any]:
    return {"name": "gpu", "exactly": {"deviceClassName": device_class, **({"count": count} if count else {})}}


@pytest.mark.usefixtures("policy")
@pytest.mark.since("1.36", "tolerations of claims are dropped")
def test_claims_and_templates_are_stored_with_their_defaults(namespace: Namespace) -> None:
    namespace.create(workloads.claim("mine", asked()), workloads.claim_template("theirs", asked(count=2)))

    claim, template = namespace.claim("mine"), namespace.client.get(f"{namespace.templates}/theirs")
    for stored, spec, count in ((claim, claim["spec"], 1), (template, template["spec"]["spec"], 2)):
        assert stored["metadata"]["labels"] == {"cost-centre": "r-17"}
        assert spec["devices"]["requests"] == [
            {
                "name": "gpu",
                "exactly": {
                    "deviceClassName": fleet.DEVICE_CLASS,
                    "allocationMode": "ExactCount",
                    "count": count,
                    "selectors": [SELECTOR],
                    "tolerations": [TOLERATION],
                },
            }
        ]
        assert spec["devices"]["config"] == [CONFIG]


@pytest.mark.usefixtures("policy")
@pytest.mark.since("1.36", "tolerations of claims are dropped")
def test_each_alternative_gets_its_own_defaults(namespace: Namespace) -> None:
    subs = [{"name": "alias", "deviceClassName": "gpu"}, {"name": "other", "deviceClassName": "other.example.com"}]
    namespace.create(workloads.claim("mine", {"name": "gpu", "firstAvailable": subs}))

    first, second = namespace.claim("mine")["spec"]["devices"]["requests"][0]["firstAvailable"]

    assert (first["deviceClassName"], first["selectors"]) == (fleet.DEVICE_CLASS, [SELECTOR])
    assert first["tolerations"] == second["tolerations"] == [TOLERATION]
    assert second["deviceClassName"] == "other.example.com"
    assert "selectors" not in second


@pytest.mark.usefixtures("policy")
def test_the_same_manifest_can_be_applied_again(control_plane: ControlPlane, namespace: Namespace) -> None:
    """kubectl notes what the author wrote, so that a count may be given, too; and sends the bare spec again."""
    manifest = json.dumps(workloads.claim("mine", asked()))
    apply = ("apply", "-n", namespace.name, "-f", "-")

    control_plane.kubectl(*apply, input=manifest)
    control_plane.kubectl(*apply, input=manifest)

    assert namespace.claim("mine")["spec"]["devices"]["requests"][0]["exactly"]["count"] == 4


@pytest.mark.usefixtures("policy")
@pytest.mark.since("1.36", "tolerations of claims are dropped")
@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_older_versions_are_handled_as_v1(control_plane: ControlPlane, namespace: Namespace, version: str) -> None:
    client = control_plane.client()
    served = [entry["version"] for entry in client.get(RESOURCE)["versions"]]
    if version not in served:
        pytest.skip(f"this API server serves {', '.join(served)}")
    request = {"name": "gpu", **asked()["exactly"]} if version == "v1beta1" else asked()
    spec = {"devices": {"requests": [request]}}
    head = {"apiVersion": f"resource.k8s.io/{version}", "metadata": {"name": "old"}}
    root = f"{RESOURCE}/{version}/namespaces/{namespace.name}"

    client.create(f"{root}/resourceclaims", {**head, "kind": "ResourceClaim", "spec": spec})
    client.create(f"{root}/resourceclaimtemplates", {**head, "kind": "ResourceClaimTemplate", "spec": {"spec": spec}})

    claim, template = namespace.claim("old"), client.get(f"{namespace.templates}/old")
    for stored in (claim["spec"], template["spec"]["spec"]):
        exactly = stored["devices"]["requests"][0]["exactly"]
        assert (exactly["deviceClassName"], exactly["tolerations"]) == (fleet.DEVICE_CLASS, [TOLERATION])
    too_many = {**request, "count": 9} if version == "v1beta1" else asked(count=9)
    with pytest.raises(ApiError, match="ask for at most 8 GPUs per claim"):
        client.create(
            f"{root}/resourceclaims",
            {
                **head,
                "kind": "ResourceClaim",
                "metadata": {"name": "bad"},
                "spec": {"devices": {"requests": [too_many]}},
            },
        )


def test_what_may_not_be_asked_is_refused_with_reason_and_mend(
    control_plane: ControlPlane, namespace: Namespace, policy: str
) -> None:
    def refused(*requests: Any) -> str:
        said = []
        for manifest in (workloads.claim("bad", *requests), workloads.claim_template("bad", *requests)):
            with pytest.raises(ApiError) as caught:
                namespace.create(manifest)
            said.append(str(caught.value))
        return said[0]

    assert f"PolicyViolation: ClaimPolicy {policy}: request gpu: ask for at most 8" in refused(asked(count=9))
    assert "ClaimTooLarge: ResourceClaim bad asks for 33 devices" in refused(asked(count=33))

    team = found_team(control_plane, namespace, gpus=4)
    message = eventually(
        lambda: said if "NeverFits" in (said := refused(asked(count=7))) else None, what="the queue's limit is known"
    )
    assert f"needs at least 7 gpus; queue {team.queue} can never have more than 4" in message
    assert "UnmeteredClass" in refused(asked(device_class="unknown.example.com"))
    team.disband()


@pytest.mark.usefixtures("policy")
def test_a_rule_that_reads_the_pod_is_asked_when_it_uses_a_claim(namespace: Namespace) -> None:
    namespace.create(workloads.claim("mine", asked()))
    modest = workloads.pod("modest", claim="mine")
    eventually(lambda: intruders.is_taken(namespace, modest), what="the webhook has seen the claim")

    with pytest.raises(ApiError, match="nobody likes greedy pods"):
        namespace.create(workloads.pod("greedy", claim="mine"))
    namespace.create(modest)


@pytest.mark.usefixtures("policy")
def test_a_rule_that_reads_the_pod_is_not_escaped_by_a_claim_that_comes_later(namespace: Namespace) -> None:
    for pod in (workloads.pod("greedy", claim="late"), workloads.pod("greedy", template="late")):
        with pytest.raises(ApiError, match=r"late is not there yet, and this rule is asked when the pod is created"):
            namespace.create(pod)


def test_a_rule_for_a_queue_is_not_escaped_by_a_claim_that_comes_later(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    """The claim itself would say that it is for another queue, or for none."""
    client, team = control_plane.client(), found_team(control_plane, namespace, gpus=4)
    name = f"policy-{namespace.name}"
    rules = [{"cel": "request.exactly.count < 2", "message": "one GPU"}]
    spec = {"queues": [team.queue], "rules": rules}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "ClaimPolicy", "metadata": {"name": name}, "spec": spec}
    client.create(f"{GROUP}/claimpolicies", body)
    try:

        def said() -> str:
            try:
                client.create(f"{namespace.pods}?dryRun=All", workloads.pod("early", claim="late"))
            except ApiError as error:
                return str(error)
            return ""

        eventually(lambda: "ResourceClaim late is not there yet" in said(), what="the pod is refused")
        namespace.create(workloads.claim("late", workloads.device_request(count=1)))
        eventually(lambda: not said(), what="it is taken once its claim is there")
    finally:
        client.delete(f"{GROUP}/claimpolicies/{name}")
        team.disband()


@pytest.mark.usefixtures("policy")
def test_a_namespace_outside_gets_nothing(control_plane: ControlPlane) -> None:
    outside = Namespace(name="default", client=control_plane.client())
    outside.create(workloads.claim("outside", asked(count=9)))

    stored = outside.claim("outside")

    assert "labels" not in stored["metadata"]
    assert stored["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    outside.client.delete(f"{outside.claims}/outside")


def test_a_policy_says_whether_it_is_applied(
    control_plane: ControlPlane, muster: Muster, policy: str, namespace: Namespace
) -> None:
    """A flawed one is refused, but may have been written while Muster was away."""
    client, path = control_plane.client(), f"{GROUP}/claimpolicies/{policy}"

    def ready(status: str) -> Any:
        seen = client.get(path)
        known = seen.get("status", {})
        current = known.get("observedGeneration") == seen["metadata"]["generation"]
        found = [one for one in known.get("conditions", []) if one["type"] == "Ready" and one["status"] == status]
        return found[0] if current and found else None

    eventually(lambda: ready("True"), what="the policy is ready")
    flawed = {"spec": {"rules": [{"cel": "request.", "message": "m"}]}}
    with pytest.raises(ApiError, match=r"spec\.rules\[0\]\.cel"):
        client.merge_patch(path, flawed)
    muster.end()
    client.merge_patch(path, flawed)
    muster.start()
    condition = eventually(lambda: ready("False"), what="its flaw is told")
    assert condition["reason"] == "Malformed"
    assert "spec.rules[0].cel" in condition["message"]
    assert "counts as false until then (failurePolicy: Fail): spec.rules[0] (Deny)" in condition["message"]
    said = rf"PolicyViolation: ClaimPolicy {policy}: request gpu: spec\.rules\[0\]\.cel: is not CEL"
    with pytest.raises(ApiError, match=said):
        namespace.create(workloads.claim("flawed", asked(count=1)))
