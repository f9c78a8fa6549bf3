"""The shipped roles allow every call that a part makes, and no other; the calls are written here as they are sent."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.kube import fence_controller
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.kube.client import errors
from admission.kube.webhook_config import gate_policy, pod_policy

MANIFEST = Path(__file__).parents[3] / "deploy" / "manifests" / "rbac.yaml"
REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
SECRETS = "/api/v1/namespaces/muster-system/secrets"
CONFIG_MAPS = "/api/v1/namespaces/muster-system/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/muster-system/leases"

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OWN = "/apis/muster.dev/v1alpha1"
REQUESTS = "/apis/autoscaling.x-k8s.io/v1/namespaces/team"

CALLS: dict[str, tuple[str, str]] = {
    "pods are listed": ("GET", "/api/v1/pods"),
    "taint rules are listed": ("GET", "/apis/resource.k8s.io/v1/devicetaintrules"),
    "Muster's namespace is looked at": ("GET", "/api/v1/namespaces/muster-system"),
    "Muster asks who it is": ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    "a pod is read again": ("GET", "/api/v1/namespaces/team/pods/train-0"),
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
    **{
        f"{kind} {what}": (verb, f"{REGISTRATION}/validatingadmission{kind}{name}")
        for kind in ("policies", "policybindings")
        for what, verb, name in (
            ("are listed", "GET", ""),
            ("are made", "POST", ""),
            *(
                (f"muster-{one} are {done}", verb, f"/muster-{one}")
                for one in ("fence", "coverage")
                for done, verb in (("mended", "PUT"), ("removed", "DELETE"))
            ),
        )
    },
    "a policy is proved": ("POST", "/apis/resource.k8s.io/v1/namespaces/muster-system/resourceclaims"),
    "a job is suspended and resumed": ("PATCH", "/apis/batch/v1/namespaces/team/jobs/train"),
    "a TFJob is held": ("PATCH", "/apis/kubeflow.org/v1/namespaces/team/tfjobs/train"),
    "an XGBoostJob is held": ("PATCH", "/apis/kubeflow.org/v1/namespaces/team/xgboostjobs/train"),
    "a PaddleJob is held": ("PATCH", "/apis/kubeflow.org/v1/namespaces/team/paddlejobs/train"),
    "a JAXJob is held": ("PATCH", "/apis/kubeflow.org/v1/namespaces/team/jaxjobs/train"),
    "a JobSet is held": ("PATCH", "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets/train"),
    "a training job is held": ("PATCH", "/apis/kubeflow.org/v1/namespaces/team/pytorchjobs/train"),
    "an MPIJob is held": ("PATCH", "/apis/kubeflow.org/v2beta1/namespaces/team/mpijobs/train"),
    "a RayJob is held": ("PATCH", "/apis/ray.io/v1/namespaces/team/rayjobs/train"),
    "a gang is made": ("POST", f"{OWN}/namespaces/team/gangs"),
    "a gang is changed": ("PATCH", f"{OWN}/namespaces/team/gangs/train"),
    "a gang is read again": ("GET", f"{OWN}/namespaces/team/gangs/train"),
    "the gang of an earlier workload is removed": ("DELETE", "/apis/muster.dev/v1alpha1/namespaces/team/gangs/train"),
    "a gang's status is written": ("PATCH", "/apis/muster.dev/v1alpha1/namespaces/team/gangs/train/status"),
    "a queue is kept while it is in use": ("PATCH", "/apis/muster.dev/v1alpha1/queues/q"),
    "a queue is read again": ("GET", "/apis/muster.dev/v1alpha1/queues/q"),
    "a queue's status is written": ("PATCH", "/apis/muster.dev/v1alpha1/queues/q/status"),
    "a meter's condition is written": ("PATCH", "/apis/muster.dev/v1alpha1/meters/gpus/status"),
    "a meter is read again": ("GET", f"{OWN}/meters/gpus"),
    "a policy of claims is read again": ("GET", f"{OWN}/claimpolicies/defaults"),
    "a policy of claims has a condition": ("PATCH", f"{OWN}/claimpolicies/defaults/status"),
    "a node shape is read again": ("GET", f"{OWN}/nodeshapes/gpu-8"),
    "a node shape has a condition": ("PATCH", f"{OWN}/nodeshapes/gpu-8/status"),
    "a node is read again": ("GET", "/api/v1/nodes/n1"),
    "a node is kept from autoscalers": ("PATCH", "/api/v1/nodes/n1"),
    "nodes are asked for": ("POST", f"{REQUESTS}/provisioningrequests"),
    "a request that is there is read": ("GET", f"{REQUESTS}/provisioningrequests/train-1"),
    "a request is deleted": ("DELETE", f"{REQUESTS}/provisioningrequests/train-1"),
    "the template of a request is made": ("POST", "/api/v1/namespaces/team/podtemplates"),
    "the template of a request gets its owner": ("PATCH", "/api/v1/namespaces/team/podtemplates/train-1-0"),
    "templates without a request are looked for": ("GET", "/api/v1/podtemplates"),
    "the template of a request is deleted": ("DELETE", "/api/v1/namespaces/team/podtemplates/train-1-0"),
    "an event is published": ("POST", "/api/v1/namespaces/team/events"),
    "an event is counted": ("PATCH", "/api/v1/namespaces/team/events/train-0.1"),
    "the CRDs are made": ("POST", CRD),
    **{
        f"the CRD {name} is {done}": (verb, f"{CRD}/{name}.muster.dev")
        for name in ("queues", "meters", "claimpolicies", "nodeshapes", "gangs")
        for done, verb in (("written", "PATCH"), ("looked at", "GET"))
    },
    **{
        f"the {kind} webhooks are {done}": (verb, f"{REGISTRATION}/{kind}webhookconfigurations{name}")
        for kind in ("mutating", "validating")
        for done, verb, name in (
            ("made", "POST", ""),
            ("written", "PATCH", "/muster"),
            ("read", "GET", "/muster"),
            ("listed", "GET", ""),
        )
    },
    **{
        f"the policy on changes of pods, and that for their gates, is {done}: {plural}": (
            verb,
            f"{REGISTRATION}/{plural}{name}",
        )
        for plural in (*pod_policy.KINDS.values(), *gate_policy.KINDS.values())
        for done, verb, name in (("made", "POST", ""), ("written", "PATCH", "/muster"))
    },
    "the webhook is proved": ("POST", LEASES),
    "the webhook's authorities are read": ("GET", f"{SECRETS}/muster-webhook"),
    "the webhook's authorities are made": ("POST", SECRETS),
    "the webhook's authorities are replaced": ("PUT", f"{SECRETS}/muster-webhook"),
    "the key of heads is read": ("GET", f"{SECRETS}/muster-heads-key"),
    "the key of heads is made": ("POST", SECRETS),
    "the key of heads is replaced": ("PUT", f"{SECRETS}/muster-heads-key"),
    "heads are read": ("GET", f"{CONFIG_MAPS}/muster-heads"),
    "heads are published": ("POST", CONFIG_MAPS),
    "heads are published again": ("PUT", f"{CONFIG_MAPS}/muster-heads"),
    "the lease is taken": ("POST", LEASES),
    "the lease is read": ("GET", f"{LEASES}/muster-controller"),
    "the lease is renewed": ("PATCH", f"{LEASES}/muster-controller"),
}


WEBHOOK_CALLS: dict[str, tuple[str, str]] = {
    "it asks who it is": ("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews"),
    "its authorities and its paths are read": ("GET", f"{SECRETS}/muster-webhook"),
    "plain paths are looked for among the mutating webhooks": (
        "GET",
        f"{REGISTRATION}/mutatingwebhookconfigurations/muster",
    ),
    "plain paths are looked for among the validating webhooks": (
        "GET",
        f"{REGISTRATION}/validatingwebhookconfigurations/muster",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What one part does. name: of its ClusterRole and Role."""

    name: str
    calls: Mapping[str, tuple[str, str]]
    watched: Sequence[Kind]
    further: Sequence[Kind] = ()
    """Kinds that are watched for some settings."""


ACCOUNTS = {
    "the controller": Account(
        name="muster", calls=CALLS, watched=watched_resources.ALL, further=fence_controller.KINDS
    ),
    "the webhook": Account(name="muster-webhook", calls=WEBHOOK_CALLS, watched=watched_resources.ADMISSION),
}

each = pytest.mark.parametrize("account", ACCOUNTS.values(), ids=ACCOUNTS)


@each
def test_the_shipped_roles_allow_every_call_that_muster_makes(account: Account) -> None:
    targets = {what: errors.target(*call) for what, call in account.calls.items()}

    assert {
        what: target.permission
        for what, target in targets.items()
        if not any(_allows(rule, target) for rule in _rules(account, target.namespace))
    } == {}


@each
def test_the_shipped_roles_allow_to_read_every_kind(account: Account) -> None:
    paths = [path for kind in account.watched for path in kind.paths]
    targets = [errors.target("GET", path, watch=watch) for path in paths for watch in (False, True)]

    assert [one.permission for one in targets if not any(_allows(rule, one) for rule in _rules(account, ""))] == []


@each
def test_the_shipped_roles_allow_nothing_else(account: Account) -> None:
    kinds = (*account.watched, *account.further)
    reads = [("GET", path, watch) for kind in kinds for path in kind.paths for watch in (False, True)]
    made = [errors.target(*call) for call in account.calls.values()]
    made += [errors.target(verb, path, watch=watch) for verb, path, watch in reads]

    idle = [
        f"{verb} {resource}.{group} {name}".strip()
        for group, resource, verb, name, of in _rights(account)
        if not any(
            (one.group, one.resource, one.verb) == (group, resource, verb)
            and name in ("", one.name)
            and of in ("", one.namespace)
            for one in made
        )
    ]

    assert idle == []


@cache
def _documents(name: str) -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(MANIFEST.read_text())
    return [found for found in documents if found["kind"] in ("ClusterRole", "Role") and _name(found) == name]


def _name(document: dict[str, Any]) -> str:
    return str(document["metadata"]["name"])


def _rights(account: Account) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield group, resource, verb, name and namespace of all that is granted; empty: of any."""
    for document in _documents(account.name):
        for rule in document["rules"]:
            of = document["metadata"].get("namespace", "")
            names = rule.get("resourceNames", [""])
            for group, resource, verb, name in product(rule["apiGroups"], rule["resources"], rule["verbs"], names):
                yield group, resource, verb, name, of


def _rules(account: Account, namespace: str) -> Iterator[dict[str, Any]]:
    """Yield the rules that hold in a namespace: those of the cluster, and those of the namespace's own role."""
    for document in _documents(account.name):
        if document["kind"] == "ClusterRole" or document["metadata"]["namespace"] == namespace:
            yield from document["rules"]


def _allows(rule: dict[str, Any], target: errors.Target) -> bool:
    return (
        target.group in rule["apiGroups"]
        and target.resource in rule["resources"]
        and target.verb in rule["verbs"]
        and target.name in rule.get("resourceNames", [target.name])
    )
