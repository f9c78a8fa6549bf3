"""What the door reads of a pod: far less than the planner does, since this runs for every pod that anyone creates.

`api.pods` reads a whole pod. Here only the fields are touched that `doors` decides by; everything else about the pod is
for the API server to judge, which answers with its own words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

import msgspec

from admission.api import meta, names
from admission.api.pods import PodClaim
from admission.api.reading import Json
from admission.errors import Flaw, MalformedObjectError

MIRROR = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A pod at the door. labels and gates: None when the pod has no such field, since a patch must then make it."""

    namespace: str
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] | None = None
    node: str = ""
    scheduler: str = ""
    claims: tuple[PodClaim, ...] = ()

    @property
    def queue(self) -> str:
        """Return the queue that the pod names, or nothing."""
        return (self.labels or {}).get(names.QUEUE, "")

    @property
    def gated(self) -> bool:
        return names.GATE in (self.gates or ())

    @property
    def is_mirror(self) -> bool:
        """Whether this stands for a static pod, which the kubelet runs already.

        The annotation alone proves nothing, anyone may write it; with a node name it is harmless, for a kubelet runs no
        mirror that it did not make (`pkg/kubelet/kubelet.go`, HandlePodAdditions).
        """
        return bool(self.node) and MIRROR in self.annotations

    def settings(self, key: str) -> Mapping[str, str]:
        """Return what the pod says under one key: `label` or `annotation` → text; an empty text says nothing."""
        label, annotation = (self.labels or {}).get(key), self.annotations.get(key)
        if not label and not annotation:
            return {}
        return {where: text for where, text in (("label", label), ("annotation", annotation)) if text}


class ClaimHead(TypedDict, total=False):
    """As much of an entry of spec.resourceClaims."""

    name: str | None
    resourceClaimName: str | None
    resourceClaimTemplateName: str | None


class GateHead(TypedDict, total=False):
    """As much of an entry of spec.schedulingGates."""

    name: str | None


class MetaHead(TypedDict, total=False):
    """As much of metadata."""

    name: str | None
    generateName: str | None
    labels: dict[str, str] | None
    annotations: dict[str, str] | None


class SpecHead(TypedDict, total=False):
    """As much of spec."""

    nodeName: str | None
    schedulerName: str | None
    schedulingGates: list[GateHead] | None
    resourceClaims: list[ClaimHead] | None


class PodHead(TypedDict):
    """The fields of a pod that `decode` reads; the webhook parses no more of a pod than this."""

    metadata: MetaHead
    spec: SpecHead


def decode(obj: Json | None, namespace: str) -> Arrival:
    """Read a pod of that namespace (the request's; the object need not carry it). Raises MalformedObjectError."""
    try:
        head = msgspec.convert(obj, PodHead)
    except msgspec.ValidationError as error:
        raise MalformedObjectError("Pod", meta.name_in(obj), (_flaw(error),)) from error
    labels, spec = head["metadata"].get("labels"), head["spec"]
    gates = spec.get("schedulingGates")
    return Arrival(
        namespace=namespace,
        labels=labels,
        annotations=head["metadata"].get("annotations") or {},
        gates=None if gates is None else tuple([gate.get("name") or "" for gate in gates]),
        node=spec.get("nodeName") or "",
        scheduler=spec.get("schedulerName") or "",
        claims=tuple([_claim(claim) for claim in spec.get("resourceClaims") or ()]),
    )


def _claim(head: ClaimHead) -> PodClaim:
    return PodClaim(
        name=head.get("name") or "",
        claim=head.get("resourceClaimName"),
        template=head.get("resourceClaimTemplateName"),
    )


def _flaw(error: msgspec.ValidationError) -> Flaw:
    """Turn `Expected X, got Y - at `$.spec.nodeName`` into the form of our other flaws."""
    message, _, path = str(error).partition(" - at `$.")
    return Flaw(path.rstrip("`") or ".", message)
