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


class ClaimWish(NamedTuple):
    """One entry. container: None for all containers."""

    container: str | None
    name: str
    template: str


class _RefusedError(Exception):
    """The annotation cannot be followed."""


def attach(draft: Draft, text: str) -> Denial | None:
    """Add the claims of the annotation to a pod; refuse an annotation that cannot be followed."""
    try:
        wishes = list(_read(text))
        _check(wishes, draft)
    except _RefusedError as refused:
        return Denial(
            DenyReason.MALFORMED_REQUEST, f"annotation {names.CLAIMS}: {refused}", {"key": names.CLAIMS, "value": text}
        )
    known = _referred(draft)
    for wish in wishes:
        if wish.name not in known:
            known[wish.name] = wish.template
            entry = {"name": wish.name, "resourceClaimTemplateName": wish.template}
            draft.put(("spec", "resourceClaims", claimpolicy_draft.END), entry)
        for place in container_paths.container_paths(draft):
            if wish.container in (None, place.name) and not _uses(draft, place, wish.name):
                draft.put((*place.way, "resources", "claims", claimpolicy_draft.END), {"name": wish.name})
    return None


def _read(text: str) -> Iterator[ClaimWish]:
    parts = [part.strip() for part in text.split(",")]
    for part in parts:
        target, equals, template = (piece.strip() for piece in part.partition("="))
        container, slash, name = (piece.strip() for piece in target.rpartition("/"))
        if not equals or (slash and not container):
            raise _RefusedError(f"{part!r} is no claim; {EXAMPLE}")
        wrong = formats.label(name) or (formats.label(container) if slash else None) or formats.subdomain(template)
        if wrong is not None:
            raise _RefusedError(f"{part!r}: {wrong}; {EXAMPLE}")
        yield ClaimWish(container if slash else None, name, template)


def _check(wishes: list[ClaimWish], draft: Draft) -> None:
    known = _referred(draft)
    found = {place.name for place in container_paths.container_paths(draft)}
    for wish in wishes:
        template = known.setdefault(wish.name, wish.template)
        if template != wish.template:
            of = f"template {template}" if template else "another claim"
            raise _RefusedError(
                f"{wish.name} shall be a claim from template {wish.template}, and is one of {of} already; give one of"
                " them another name"
            )
        if wish.container is not None and wish.container not in found:
            raise _RefusedError(f"there is no container {wish.container}; the pod has {', '.join(sorted(found))}")


def _referred(draft: Draft) -> dict[str, str | None]:
    """Return the pod's claims: the pod's own name → the template, None for a claim without one."""
    entries = draft.get("spec", "resourceClaims")
    return {
        str(entry.get("name", "")): entry.get("resourceClaimTemplateName")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict)
    }


def _uses(draft: Draft, place: ContainerPath, name: str) -> bool:
    entries = draft.get(*place.way, "resources", "claims")
    return isinstance(entries, list) and any(isinstance(one, dict) and one.get("name") == name for one in entries)
