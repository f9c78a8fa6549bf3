"""The claims that kube-scheduler may allocate in spite of a fence, or that it may be about to allocate."""

from collections.abc import Iterator

from admission.api.kubernetes import device_taint_rules
from admission.api.kubernetes.claims import Claim, ClaimSpec
from admission.api.snapshot import Snapshot
from admission.api.values.references import Kind, Referent

UNREADABLE = "which cannot be read"


def tolerating(snapshot: Snapshot) -> Iterator[Referent]:
    """Yield the claims and templates that tolerate a fence, with the request; also those that cannot be read."""
    for kind, key in snapshot.malformed:
        if kind in (Kind.CLAIM, Kind.TEMPLATE):
            yield Referent(kind=Kind(kind), key=key, note=UNREADABLE)
    for claim in snapshot.claims.values():
        request = _tolerant(claim.spec)
        if request is not None and may_be_allocated(claim):
            yield Referent(kind=Kind.CLAIM, key=claim.meta.key, uid=claim.meta.uid, note=f"request {request}")
    for template in snapshot.templates.values():
        request = _tolerant(template.spec)
        if request is not None:
            yield Referent(kind=Kind.TEMPLATE, key=template.meta.key, uid=template.meta.uid, note=f"request {request}")


def _tolerant(spec: ClaimSpec) -> str | None:
    """Return the first request that tolerates a fence, without those with admin access, which take nothing."""
    for request in spec.requests:
        for option in request.alternatives:
            if option.admin_access or not option.tolerations:
                continue
            if any(toleration.tolerates(device_taint_rules.FENCE) for toleration in option.tolerations):
                return f"{request.name}/{option.name}" if request.first_available else request.name
    return None


def may_be_allocated(claim: Claim) -> bool:
    """Return whether kube-scheduler may allocate the claim, now or again after a deallocation.

    A claim that was created for a pod is never allocated again.
    """
    return claim.allocation is None or not any(owner.kind == "Pod" for owner in claim.meta.owners)


def takes_devices(spec: ClaimSpec) -> bool:
    """Return whether a claim takes devices: not if all it asks for is admin access."""
    return not all(option.admin_access for request in spec.requests for option in request.alternatives)
