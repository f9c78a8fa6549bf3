"""The claims of a new pod whose specs are known: those that exist, and those of templates that exist."""

from dataclasses import dataclass

from admission.api import suggestions
from admission.api.kubernetes.claims import ClaimSpec
from admission.api.kubernetes.pods import PodClaim
from admission.api.snapshot import Snapshot
from admission.podpolicy.pod_view import PodView


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownClaim:
    """One of the pod's claims whose spec is known. source: its name in messages, `ResourceClaimTemplate gpu`."""

    source: str
    spec: ClaimSpec
    allocated: bool = False


def look_up(new_pod: PodView, snapshot: Snapshot) -> tuple[tuple[KnownClaim, ...], tuple[str, ...]]:
    """Return the pod's claims whose specs are known, and the names of the templates and claims that are not."""
    known: list[KnownClaim] = []
    missing: list[str] = []
    for claim in new_pod.claims:
        source = _source(claim)
        spec = _spec(claim, source, new_pod.namespace, snapshot)
        if spec is not None:
            known.append(spec)
        elif source:
            missing.append(source)
    return tuple(known), tuple(missing)


def _source(claim: PodClaim) -> str:
    """Return a pod's claim for messages; "" if it names neither claim nor template, which the API server refuses."""
    if claim.template:
        return f"ResourceClaimTemplate {claim.template}"
    return f"ResourceClaim {claim.claim}" if claim.claim else ""


def _spec(claim: PodClaim, source: str, namespace: str, snapshot: Snapshot) -> KnownClaim | None:
    if claim.template:
        template = snapshot.templates.get(f"{namespace}/{claim.template}")
        return None if template is None else KnownClaim(source=source, spec=template.spec)
    found = snapshot.claims.get(f"{namespace}/{claim.claim}")
    if found is None:
        return None
    return KnownClaim(source=source, spec=found.spec, allocated=found.allocation is not None)


def existing(source: str, namespace: str, snapshot: Snapshot) -> str:
    """Return the templates or claims of a namespace by name, those like the missing one first."""
    kind, _, name = source.partition(" ")
    table = snapshot.templates if kind == "ResourceClaimTemplate" else snapshot.claims
    inside = (key.removeprefix(f"{namespace}/") for key in table if key.startswith(f"{namespace}/"))
    return suggestions.listed(name, inside)
