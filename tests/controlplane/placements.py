"""The writes that place a pod without kube-scheduler's choice of devices, one function each.

They are spelled out here a second time, apart from Muster's own code, so that the tests of what Kubernetes does with
such writes do not change when Muster does.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from tests.controlplane.clients import Client
from tests.controlplane.fleet import DRIVER, Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually

FINALIZER = "resource.kubernetes.io/delete-protection"
RBAC_GROUP = "rbac.authorization.k8s.io"
ROLES = f"/apis/{RBAC_GROUP}/v1"
RESOURCE_GROUP = "resource.k8s.io"

# What a placement needs and no more. The binding rule is new in Kubernetes 1.36 and counts only cluster-wide.
RULES_WITHOUT_BINDING: Sequence[Manifest] = (
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [RESOURCE_GROUP], "resources": ["resourceclaims"], "verbs": ["get", "list", "watch", "patch"]},
    {"apiGroups": [RESOURCE_GROUP], "resources": ["resourceclaims/status"], "verbs": ["get", "patch"]},
)
BINDING_RULE: Manifest = {"apiGroups": [RESOURCE_GROUP], "resources": ["resourceclaims/binding"], "verbs": ["patch"]}
RULES = (*RULES_WITHOUT_BINDING, BINDING_RULE)


def allocation(*, node: str, device: str, request: str = "gpu", at: datetime | None = None) -> Manifest:
    """An allocation of one node-local device, complete: what kube-scheduler would write for it."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    return {
        "allocationTimestamp": (at or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "devices": {"results": [{"request": request, "driver": DRIVER, "pool": node, "device": device}]},
        "nodeSelector": {"nodeSelectorTerms": [term]},
    }


def protect(namespace: Namespace, claim: str) -> None:
    """Add the finalizer that keeps a claim in use from being deleted under its pod."""
    operation = {"op": "add", "path": "/metadata/finalizers", "value": [FINALIZER]}
    namespace.client.json_patch(f"{namespace.claims}/{claim}", [operation])


def write_allocation(namespace: Namespace, claim: str, written: Manifest | None) -> Any:
    """Write the allocation of a claim, or take it back with None; reservedFor is kube-scheduler's to write."""
    return namespace.client.merge_patch(f"{namespace.claims}/{claim}/status", {"status": {"allocation": written}})


def allocate(namespace: Namespace, claim: str, *, node: str, device: str) -> None:
    """Give the claim this device, in the two writes and the order that it takes."""
    protect(namespace, claim)
    write_allocation(namespace, claim, allocation(node=node, device=device))


def open_gate(namespace: Namespace, pod: str, *, pin_to: str | None = None) -> None:
    """Let the pod go with one PATCH, which may pin it to a node as well."""
    operations: list[Manifest] = [{"op": "remove", "path": "/spec/schedulingGates"}]
    if pin_to is not None:
        operations.append({"op": "add", "path": "/spec/nodeSelector", "value": {"kubernetes.io/hostname": pin_to}})
    namespace.client.json_patch(f"{namespace.pods}/{pod}", operations)


@contextmanager
def granted(admin: Client, user: Client, rules: Sequence[Manifest], *, namespace: str | None = None) -> Iterator[None]:
    """Give a user these rights for a while, everywhere or in one namespace; no other rights of RULES may be held."""
    scope = f"namespaces/{namespace}/" if namespace else ""
    kind = "Role" if namespace else "ClusterRole"
    subject, name = _who(user), f"placements-{_who(user)}"
    role, binding = f"{ROLES}/{scope}{kind.lower()}s/{name}", f"{ROLES}/{scope}{kind.lower()}bindings/{name}"
    admin.apply(role, {**_of_rbac(kind, name), "rules": list(rules)})
    try:
        reference = {"apiGroup": RBAC_GROUP, "kind": kind, "name": name}
        subjects = [{"apiGroup": RBAC_GROUP, "kind": "User", "name": subject}]
        admin.apply(binding, {**_of_rbac(f"{kind}Binding", name), "roleRef": reference, "subjects": subjects})
        eventually(
            lambda: all(_may(user, namespace, rule) is (rule in rules) for rule in RULES),
            what=f"the rights of {subject} are in force",
        )
        yield
    finally:
        admin.delete(binding)
        admin.delete(role)


def _of_rbac(kind: str, name: str) -> Manifest:
    return {"apiVersion": f"{RBAC_GROUP}/v1", "kind": kind, "metadata": {"name": name}}


def _who(user: Client) -> str:
    review = user.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    name: str = review["status"]["userInfo"]["username"]
    return name


def _may(user: Client, namespace: str | None, rule: Manifest) -> bool:
    """Ask the API server whether a rule's last verb is allowed to this user, in a namespace or in all."""
    resource, _, subresource = rule["resources"][0].partition("/")
    attributes = {
        "namespace": namespace or "",
        "group": rule["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][-1],
    }
    review = {"spec": {"resourceAttributes": attributes}}
    allowed: bool = user.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]
    return allowed
