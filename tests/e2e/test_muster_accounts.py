"""What a real API server lets the accounts of the chart do: the webhook's is refused everything that writes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from admission.api.values import names
from admission.kube.cache import watched_resources
from tests.controlplane import ApiError, ControlPlane
from tests.controlplane.clients import Client
from tests.controlplane.namespaces import Namespace
from tests.e2e import rights, sites

REGISTRATION = "/apis/admissionregistration.k8s.io/v1"
SYSTEM = f"/api/v1/namespaces/{rights.NAMESPACE}"
OWN = "/apis/muster.dev/v1alpha1"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"

EVERYBODY = {"selfsubjectreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews"}
"""What Kubernetes lets every user create (system:basic-user); none of it is stored."""

ASKED = {"muster-webhook": EVERYBODY, "muster-dashboard": EVERYBODY | {"tokenreviews", "subjectaccessreviews"}}
"""What each account that may not write creates to ask something."""

WRITES: dict[str, tuple[str, str, str]] = {
    "open the gate of a pod": ("PATCH", "pods/held", "/api/v1/namespaces/{namespace}"),
    "delete a pod": ("DELETE", "pods/held", "/api/v1/namespaces/{namespace}"),
    "evict a pod": ("POST", "pods/held/eviction", "/api/v1/namespaces/{namespace}"),
    "create a pod": ("POST", "pods", "/api/v1/namespaces/{namespace}"),
    "resume a Job": ("PATCH", "jobs/train", "/apis/batch/v1/namespaces/{namespace}"),
    "allocate a claim": ("PATCH", "resourceclaims/gpu/status", "/apis/resource.k8s.io/v1/namespaces/{namespace}"),
    "make a claim template": ("POST", "resourceclaimtemplates", "/apis/resource.k8s.io/v1/namespaces/{namespace}"),
    "make a Gang": ("POST", "gangs", OWN + "/namespaces/{namespace}"),
    "report on a Gang": ("PATCH", "gangs/train/status", OWN + "/namespaces/{namespace}"),
    "change a queue": ("PATCH", "queues/research", OWN),
    "change a CRD": ("PATCH", "queues.muster.dev", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    "publish an Event": ("POST", "events", "/api/v1/namespaces/{namespace}"),
    "change what the API server asks it": ("PATCH", "mutatingwebhookconfigurations/muster", REGISTRATION),
    "be asked no more": ("DELETE", "validatingwebhookconfigurations/muster", REGISTRATION),
    "lead": ("PATCH", "leases/muster-controller", f"/apis/coordination.k8s.io/v1/namespaces/{rights.NAMESPACE}"),
    "make a Lease": ("POST", "leases", f"/apis/coordination.k8s.io/v1/namespaces/{rights.NAMESPACE}"),
    "replace its authorities and paths": ("PUT", "secrets/muster-webhook", SYSTEM),
    "make a Secret": ("POST", "secrets", SYSTEM),
    "have a token of the controller": ("POST", "serviceaccounts/muster/token", SYSTEM),
    "lift a fence": ("DELETE", "devicetaintrules/muster-fence-gpu.example.com", "/apis/resource.k8s.io/v1"),
}

READS: dict[str, str] = {
    "pods": "/api/v1/pods",
    "the books' Secret": f"{SYSTEM}/secrets/muster-ledger",
    "Secrets": f"{SYSTEM}/secrets",
    "its settings": f"{SYSTEM}/configmaps/muster",
    "other webhooks": f"{REGISTRATION}/mutatingwebhookconfigurations",
    "nodes": "/api/v1/nodes",
    "devices": "/apis/resource.k8s.io/v1/resourceslices",
}


@pytest.fixture(scope="module")
def granted(control_plane: ControlPlane) -> None:
    """The accounts with all that the chart ever gives them."""
    rights.grant(control_plane, tends=True)
    sites.grant(control_plane)


@pytest.fixture
def webhook(control_plane: ControlPlane, granted: None) -> Client:
    return replace(control_plane.client(), token=rights.token(control_plane, rights.WEBHOOK))


@pytest.mark.parametrize(("method", "what", "where"), WRITES.values(), ids=WRITES)
def test_the_webhooks_account_may_not(
    webhook: Client, namespace: Namespace, method: str, what: str, where: str
) -> None:
    path = f"{where.format(namespace=namespace.name)}/{what}"

    assert code(webhook, method, path) == 403


@pytest.mark.parametrize("path", READS.values(), ids=READS)
def test_the_webhooks_account_does_not_read(webhook: Client, path: str) -> None:
    assert code(webhook, "GET", path) == 403


def test_the_webhooks_account_reads_what_it_judges_by(webhook: Client) -> None:
    for kind in watched_resources.ADMISSION:
        codes = {code(webhook, "GET", path) for path in kind.paths}
        assert codes <= {0, 404}, kind
        assert 0 in codes or kind.optional or kind.group == names.GROUP, kind
    for named in (f"{REGISTRATION}/mutatingwebhookconfigurations/muster", f"{SYSTEM}/secrets/muster-webhook"):
        assert code(webhook, "GET", named) in (0, 404), "by which paths it is called"


@pytest.mark.parametrize("account", ASKED)
@pytest.mark.parametrize("where", ["a namespace", "muster's namespace"])
def test_the_rules_of_who_answers_others_write_nothing(
    control_plane: ControlPlane, granted: None, namespace: Namespace, account: str, where: str
) -> None:
    client = replace(control_plane.client(), token=rights.token(control_plane, f"{rights.ACCOUNTS}/{account}"))
    place = rights.NAMESPACE if where == "muster's namespace" else namespace.name

    answer = client.create(REVIEWS, {"spec": {"namespace": place}})["status"]

    assert not answer["incomplete"]
    granted_verbs = {
        (resource, verb)
        for rule in answer["resourceRules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert granted_verbs == {(resource, "create") for resource in ASKED[account]}
    assert {verb for rule in answer["nonResourceRules"] for verb in rule["verbs"]} == {"get"}


def code(client: Client, method: str, path: str) -> int:
    """Return the code with which a request is refused; 0 if it is not."""
    body: dict[str, Any] = {"metadata": {}}
    calls: dict[str, Callable[[], Any]] = {
        "GET": lambda: client.get(path),
        "POST": lambda: client.create(path, body),
        "PUT": lambda: client.replace(path, body),
        "PATCH": lambda: client.merge_patch(path, body),
        "DELETE": lambda: client.delete(path),
    }
    try:
        calls[method]()
    except ApiError as error:
        return error.code
    return 0
