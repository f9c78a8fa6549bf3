"""The annotation `muster.dev/claims: "gpu=h100x8"` of a pod: claims from templates, for its containers, in one line.

It is a list, separated by commas, of `NAME=TEMPLATE` or `CONTAINER/NAME=TEMPLATE`: the pod's own name for the claim,
and the ResourceClaimTemplate to make it from. An entry without a container is for all containers, including init
containers and sidecars; several containers may name the same claim. What the pod's spec has already is not added again.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from admission.api.values import formats, names
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import Work
from admission.claimpolicy import draft as claimpolicy_draft
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.pods import container_paths
from admission.claimpolicy.pods.container_paths import ContainerPath

EXAMPLE = 'write NAME=TEMPLATE or CONTAINER/NAME=TEMPLATE, separated by commas, as in "gpu=h100x8, trainer/nic=rdma"'


MAX_ENTRIES = 256
"""The most entries of one annotation."""

MOST_NAMED = 10
"""The most containers in a message."""


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
    wanted = _ContainerClaims(claim_entries)
    for container_path in container_paths.container_paths(draft):
        names_of_claims = wanted.names(container_path.name)
        draft.work.charge(Work.CONTAINER_CLAIM, len(names_of_claims))
        used = _used(draft, container_path)
        missing = [{"name": name} for name in names_of_claims if name not in used]
        draft.extend((*container_path.path, "resources", "claims"), missing)
    return None


class _ContainerClaims:
    """The names of the claims of each container, in the order of the annotation; looked up, not searched."""

    def __init__(self, claim_entries: Sequence[ClaimEntry]) -> None:
        self._entries = claim_entries
        self._of_all = self._names(None)
        named = {claim_entry.container for claim_entry in claim_entries if claim_entry.container is not None}
        self._of_named = {container: self._names(container) for container in named}

    def names(self, container: str) -> Sequence[str]:
        """Return the names of the claims of a container, each once."""
        return self._of_named.get(container, self._of_all)

    def _names(self, container: str | None) -> Sequence[str]:
        return tuple(dict.fromkeys(one.name for one in self._entries if one.container in (None, container)))


def _read(text: str) -> Iterator[ClaimEntry]:
    entries = text.count(",") + 1
    if entries > MAX_ENTRIES:
        raise _RefusedError(f"it has {entries:,} entries, and at most {MAX_ENTRIES} are read; write fewer")
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
            more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
            containers = ", ".join(sorted(found)[:MOST_NAMED])
            raise _RefusedError(f"there is no container {claim_entry.container}; the pod has {containers}{more}")


def _pod_claims(draft: Draft) -> dict[str, str | None]:
    """Return the pod's claims: the pod's own name → the template, None for a claim without one."""
    claims = draft.objects("spec", "resourceClaims")
    return {str(claim.get("name", "")): claim.get("resourceClaimTemplateName") for claim in claims}


def _used(draft: Draft, container_path: ContainerPath) -> set[str]:
    """Return the names of the claims that a container has."""
    return {str(one.get("name", "")) for one in draft.objects(*container_path.path, "resources", "claims")}
