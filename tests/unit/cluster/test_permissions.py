"""The shipped roles allow every call that Muster makes; the calls are written here as they are sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.cluster import failures, kinds
from admission.cluster.kinds import Kind

MANIFEST = Path(__file__).parents[3] / "deploy" / "manifests" / "rbac.yaml"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
SECRETS = "/api/v1/namespaces/muster-system/secrets"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"

CALLS: dict[str, tuple[str, str]] = {
    "pods are listed": ("GET", "/api/v1/pods"),
    "taint rules are listed": ("GET", "/apis/resource.k8s.io/v1/devicetaintrules"),
    "a gate is opened": ("PATCH", "/api/v1/namespaces/team/pods/train-0"),
    "a pod is evicted": ("POST", "/api/v1/namespaces/team/pods/train-0/eviction"),
    "a gated pod is deleted": ("DELETE", "/api/v1/namespaces/team/pods/train-0"),
    "a claim is read again": ("GET", "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/gpu"),
    "a claim is protected": ("PATCH", "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/gpu"),
    "a claim is allocated": ("PATCH", "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/gpu/status"),
    "an allocation is a binding": ("PATCH", "/apis/resource.k8s.io/v1/namespaces/team/resourceclaims/gpu/binding"),
    "a claim template is made": ("POST", "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates"),
    "a claim template is removed": ("DELETE", "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/h100x8"),
    "a fence is put up": ("POST", "/apis/resource.k8s.io/v1/devicetaintrules"),
    "a fence is mended": ("PUT", "/apis/resource.k8s.io/v1/devicetaintrules/muster-fence-gpu.example.com"),
    "a fence is taken away": ("DELETE", "/apis/resource.k8s.io/v1/devicetaintrules/muster-fence-gpu.example.com"),
    "policies are listed": ("GET", f"{REGISTRATION}/validatingadmissionpolicies"),
    "a policy is made": ("POST", f"{REGISTRATION}/validatingadmissionpolicies"),
    "a policy is mended": ("PUT", f"{REGISTRATION}/validatingadmissionpolicies/muster-fence"),
    "a policy is removed": ("DELETE", f"{REGISTRATION}/validatingadmissionpolicies/muster-coverage"),
    "bindings are listed": ("GET", f"{REGISTRATION}/validatingadmissionpolicybindings"),
    "a binding is made": ("POST", f"{REGISTRATION}/validatingadmissionpolicybindings"),
    "a binding is mended": ("PUT", f"{REGISTRATION}/validatingadmissionpolicybindings/muster-coverage"),
    "a binding is removed": ("DELETE", f"{REGISTRATION}/validatingadmissionpolicybindings/muster-fence"),
    "a policy is proved": ("POST", "/apis/resource.k8s.io/v1/namespaces/muster-system/resourceclaims"),
    "the webhooks are looked at": ("GET", f"{REGISTRATION}/validatingwebhookconfigurations"),
    "a job is suspended and resumed": ("PATCH", "/apis/batch/v1/namespaces/team/jobs/train"),
    "a JobSet is held": ("PATCH", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train"),
    "a training job is held": ("PATCH", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/train"),
    "an MPIJob is held": ("PATCH", "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/train"),
    "a RayJob is held": ("PATCH", "/apis/ray.io/v1/namespaces/team/rayjobs/train"),
    "a gang is made": ("PATCH", "/apis/muster.dev/v1alpha1/namespaces/team/gangs/train"),
    "the gang of an earlier workload is removed": ("DELETE", "/apis/muster.dev/v1alpha1/namespaces/team/gangs/train"),
    "a gang's status is written": ("PATCH", "/apis/muster.dev/v1alpha1/namespaces/team/gangs/train/status"),
    "a queue is kept while it is in use": ("PATCH", "/apis/muster.dev/v1alpha1/queues/q"),
    "a queue is read again": ("GET", "/apis/muster.dev/v1alpha1/queues/q"),
    "a queue's status is written": ("PATCH", "/apis/muster.dev/v1alpha1/queues/q/status"),
    "a meter's condition is written": ("PATCH", "/apis/muster.dev/v1alpha1/meters/gpus/status"),
    "an event is published": ("POST", "/apis/events.k8s.io/v1/namespaces/team/events"),
    "an event is counted": ("PATCH", "/apis/events.k8s.io/v1/namespaces/team/events/train-0.1"),
    "the webhook is proved": ("POST", LEASES),
    "the webhook's authorities are read": ("GET", f"{SECRETS}/muster-webhook"),
    "the webhook's authorities are made": ("POST", SECRETS),
    "the webhook's authorities are replaced": ("PUT", f"{SECRETS}/muster-webhook"),
    "the webhooks are read": ("GET", f"{REGISTRATION}/mutatingwebhookconfigurations/muster"),
    "the lease is taken": ("POST", LEASES),
    "the lease is renewed": ("PATCH", f"{LEASES}/muster-controller"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_the_shipped_roles_allow(call: tuple[str, str]) -> None:
    target = failures.target(*call)

    assert any(_allows(rule, target) for rule in _rules(target.namespace)), target.permission


@pytest.mark.parametrize("kind", kinds.ALL, ids=str)
def test_the_shipped_roles_allow_to_read_every_kind(kind: Kind) -> None:
    for path in kind.paths:
        for watch in (False, True):
            target = failures.target("GET", path, watch=watch)
            assert any(_allows(rule, target) for rule in _rules("")), target.permission


def _rules(namespace: str) -> Iterator[dict[str, Any]]:
    """Yield the rules that hold in a namespace: those of the cluster, and those of the namespace's own role."""
    for document in yaml.safe_load_all(MANIFEST.read_text()):
        if document["kind"] == "ClusterRole" or (
            document["kind"] == "Role" and document["metadata"]["namespace"] == namespace
        ):
            yield from document["rules"]


def _allows(rule: dict[str, Any], target: failures.Target) -> bool:
    return (
        target.group in rule["apiGroups"]
        and target.resource in rule["resources"]
        and target.verb in rule["verbs"]
        and target.name in rule.get("resourceNames", [target.name])
    )
