"""What the door reads of a pod: far less than the planner does, since this runs for every pod that anyone creates.

`api.pods` reads a whole pod. Here only the fields are touched that `doors` decides by; everything else about the pod is
for the API server to judge, which answers with its own words.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api import names
from admission.api.pods import PodClaim
from admission.api.reading import Json, Reader

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
        said = {"label": (self.labels or {}).get(key), "annotation": self.annotations.get(key)}
        return {where: text for where, text in said.items() if text}


def decode(obj: Json | None, namespace: str) -> Arrival:
    """Read a pod of that namespace (the request's; the object need not carry it). Raises MalformedObjectError."""
    reader = Reader(obj)
    for part in ("metadata", "spec"):
        if part not in reader:
            reader.flaw(part, "is required")
    meta, spec = reader.child("metadata"), reader.child("spec")
    result = Arrival(
        namespace=namespace,
        labels=meta.pairs("labels") if "labels" in meta else None,
        annotations=meta.pairs("annotations"),
        gates=tuple(gate.text("name") for gate in spec.children("schedulingGates"))
        if "schedulingGates" in spec
        else None,
        node=spec.text("nodeName"),
        scheduler=spec.text("schedulerName"),
        claims=tuple(map(_claim, spec.children("resourceClaims"))),
    )
    reader.finish("Pod", meta.text("name") or meta.text("generateName") or "(unnamed)")
    return result


def _claim(reader: Reader) -> PodClaim:
    return PodClaim(
        name=reader.text("name"),
        claim=reader.optional("resourceClaimName"),
        template=reader.optional("resourceClaimTemplateName"),
    )
