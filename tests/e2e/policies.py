"""ClaimPolicies of one namespace on a real control plane."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.controlplane import ApiError, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.teams import GROUP

PATH = f"{GROUP}/claimpolicies"


def a_policy(namespace: Namespace, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A policy for the claims of one namespace, named after it."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    meta = {"name": f"policy-{namespace.name}"}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "ClaimPolicy", "metadata": meta}
    return {**body, "spec": {"namespaceSelector": selector, **spec}}


@contextmanager
def in_force(namespace: Namespace, spec: Mapping[str, Any]) -> Iterator[str]:
    """Have a policy that labels claims, once a claim of the namespace gets its labels, and yield its name."""
    policy = a_policy(namespace, spec)
    name: str = policy["metadata"]["name"]
    namespace.client.create(PATH, policy)

    def applied() -> bool:
        try:
            answer = namespace.client.create(f"{namespace.claims}?dryRun=All", workloads.claim("probe"))
        except ApiError:  # one of the two webhooks is registered a moment before the other
            return False
        return "labels" in answer["metadata"]

    eventually(applied, what=f"{name} is applied")
    yield name
    namespace.client.delete(f"{PATH}/{name}")
