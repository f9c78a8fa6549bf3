"""The annotation `muster.dev/claims: "gpu=h100x8"` of a pod: claims from templates, for its containers, in one line.

It is a list, separated by commas, of `NAME=TEMPLATE` or `CONTAINER/NAME=TEMPLATE`: the pod's own name for the claim,
and the ResourceClaimTemplate to make it from. An entry without a container is for all containers, including init
containers and sidecars; several containers may name the same claim. What the pod's spec has already is not added again.
"""

from collections.abc import Iterator
from typing import NamedTuple

from admission.api.values import formats, names
from admission.api.values.reasons import Denial, DenyReason
from admission.claimpolicy import draft as claimpolicy_draft
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.pods import container_paths
from admission.claimpolicy.pods.container_paths import ContainerPath

EXAMPLE = 'write NAME=TEMPLATE or CONTAINER/NAME=TEMPLATE, separated by commas, as in "gpu=h100x8, trainer/nic=rdma"'


class ClaimEntry(NamedTuple):
    """One entry. container: None for all containers."""

    container: str | None
    name: str
    template: str


class _RefusedError(Exception):
    """The annotation cannot be followed."""


def attach(draft: Draft, text: str) -> Denial | None:
    """Add the claims of the annotation to a pod; refuse an annotation that cannot be followed."""
    try:
        claim_entries = list(_read(text))
        _check(claim_entries, draft)
    except _RefusedError as refused:
        return Denial(
            DenyReason.MALFORMED_REQUEST, f"annotation {names.CLAIMS}: {refused}", {"key": names.CLAIMS, "value": text}
        )
    known = _pod_claims(draft)
    for claim_entry in claim_entries:
        if claim_entry.name not in known:
            known[claim_entry.name] = claim_entry.template
            entry = {"name": claim_entry.name, "resourceClaimTemplateName": claim_entry.template}
            draft.put(("spec", "resourceClaims", claimpolicy_draft.END), entry)
        for container_path in container_paths.container_paths(draft):
            if claim_entry.container in (None, container_path.name) and not _uses(
                draft, container_path, claim_entry.name
            ):
                draft.put(
                    (*container_path.path, "resources", "claims", claimpolicy_draft.END), {"name": claim_entry.name}
                )
    return None


def _read(text: str) -> Iterator[ClaimEntry]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        target, equals, template = (piece.strip() for piece in part.partition("="))
        container, slash, name = (piece.strip() for piece in target.rpartition("/"))
        if not equals or (slash and not container):
            raise _RefusedError(f"{part!r} is no claim; {EXAMPLE}")
        problem = formats.label(name) or (formats.label(container) if slash else None) or formats.subdomain(template)
        if problem is not None:
            raise _RefusedError(f"{part!r}: {problem}; {EXAMPLE}")
        yield ClaimEntry(container if slash else None, name, template)


def _check(claim_entries: list[ClaimEntry], draft: Draft) -> None:
    known = _pod_claims(draft)
    found = {container_path.name for container_path in container_paths.container_paths(draft)}
    for claim_entry in claim_entries:
        template = known.setdefault(claim_entry.name, claim_entry.template)
        if template != claim_entry.template:
            other = f"template {template}" if template else "another claim"
            raise _RefusedError(
                f"{claim_entry.name} shall be a claim from template {claim_entry.template}, and is one of"
                f" {other} already; give one of them another name"
            )
        if claim_entry.container is not None and claim_entry.container not in found:
            raise _RefusedError(
                f"there is no container {claim_entry.container}; the pod has {', '.join(sorted(found))}"
            )


def _pod_claims(draft: Draft) -> dict[str, str | None]:
    """Return the pod's claims: the pod's own name → the template, None for a claim without one."""
    entries = draft.get("spec", "resourceClaims")
    return {
        str(entry.get("name", "")): entry.get("resourceClaimTemplateName")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    }


def _uses(draft: Draft, container_path: ContainerPath, name: str) -> bool:
    entries = draft.get(*container_path.path, "resources", "claims")
    return isinstance(entries, list) and any(isinstance(one, dict) and one.get("name") == name for one in entries)
