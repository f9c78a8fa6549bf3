"""NodePools (karpenter.sh/v1): the nodes that Karpenter may start, how many, and whether it can now.

Source: sigs.k8s.io/karpenter v1.14.1, pkg/apis/v1/nodepool.go and nodepool_status.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api.kubernetes import meta, nodes
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Resources
from admission.api.values.decoding import Json, Reader

GROUP = "karpenter.sh"
VERSION = "v1"
KIND = "NodePool"
PLURAL = "nodepools"

KEY = f"{KIND}.{GROUP}"
"""What `Snapshot.unwatched` calls the kind."""

LABEL = "karpenter.sh/nodepool"
"""The label that Karpenter gives each node of a NodePool, with the pool's name."""

NODES = "nodes"
"""What `spec.limits` calls the number of nodes."""

LONGEST_MESSAGE = 400
"""Characters that are kept of what Karpenter says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A NodePool object. limits: of all of its nodes together, with `nodes` for their number; empty if there are none.

    static: whether it has a fixed number of nodes, whatever pods wait. conditions: those that are not true, with the
    words that are said of each. ready: whether Karpenter says that it can start nodes.
    """

    meta: Meta
    limits: Resources = field(default_factory=dict)
    static: bool = False
    ready: bool = False
    conditions: Mapping[str, str] = field(default_factory=dict)


def decode(obj: Json) -> NodePool:
    """Decode a NodePool."""
    reader = Reader(obj)
    spec = reader.child("spec")
    ready, failing = False, dict[str, str]()
    for condition in reader.child("status").children("conditions"):
        kind = condition.text("type")
        if condition.text("status") != "True":
            failing[kind] = _words(condition.text("reason"), condition.text("message"))
        ready = ready or (kind == "Ready" and condition.text("status") == "True")
    result = NodePool(
        meta=meta.decode(reader),
        limits=nodes.decode_resources(spec, "limits"),
        static="replicas" in spec,
        ready=ready,
        conditions=failing,
    )
    reader.finish(KIND, result.meta.name)
    return result


def _words(reason: str, message: str) -> str:
    text = ": ".join(part for part in (reason, message) if part)
    text = text if len(text) <= LONGEST_MESSAGE else f"{text[: LONGEST_MESSAGE - 1]}…"
    return "".join(letter if letter.isprintable() else " " for letter in text)
