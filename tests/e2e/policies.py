"""ClaimPolicies of one namespace on a real control plane."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.controlplane import ApiError, workloads
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e.teams import GROUP

PATH = f"{GROUP}/claimpolicies"
MOST_DEVICES = 32
"""Of one claim, in Kubernetes; Muster refuses a larger one when it is made."""


def a_policy(namespace: Namespace, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A policy for the claims of one namespace, named after it."""
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}
    meta = {"name": f"policy-{namespace.name}"}
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "ClaimPolicy", "metadata": meta}
    return {**body, "spec": {"namespaceSelector": selector, **spec}}


@contextmanager
def in_force(namespace: Namespace, spec: Mapping[str, Any]) -> Iterator[str]:
    """Have a policy that labels claims, once both webhooks are asked about claims of the namespace; yield its name."""
    policy = a_policy(namespace, spec)
    name: str = policy["metadata"]["name"]
    namespace.client.create(PATH, policy)

    dry_run = f"{namespace.claims}?dryRun=All"

    def applied() -> bool:
        try:
            answer = namespace.client.create(dry_run, workloads.claim("probe"))
        except ApiError:  # one of the two webhooks is registered a moment before the other
            return False
        return "labels" in answer["metadata"]

    def judged() -> bool:
        too_large = workloads.device_request(count=MOST_DEVICES + 1)
        try:
            namespace.client.create(dry_run, workloads.claim("probe", too_large))
        except ApiError:
            return True
        return False

    try:
        eventually(lambda: applied() and judged(), what=f"{name} is applied")
        yield name
    finally:
        namespace.client.delete(f"{PATH}/{name}")
