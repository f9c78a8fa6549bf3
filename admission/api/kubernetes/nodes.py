"""Nodes and namespaces: their resources, taints and labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import chain

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import NodeName
from admission.api.values.selectors import Taint

Resources = Mapping[str, int]
"""Amounts by resource name: `cpu` in thousandths, everything else in whole units (memory in bytes)."""

LEAVING_TAINTS = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption"})
"""The taints of nodes that autoscalers are taking away: Cluster Autoscaler, Karpenter from 1.0 on and before.

Not `DeletionCandidateOfClusterAutoscaler`: such a node is idle, and stays where a pod comes to it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. allocatable: None when the node does not report it, which means no limit. features: those it declares.

    reserved: whether it came for a gang that it was asked for, whose pods are not all bound yet.
    """

    meta: Meta
    allocatable: Resources | None = None
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    features: frozenset[str] = frozenset()
    reserved: bool = False

    @property
    def name(self) -> NodeName:
        return NodeName(self.meta.name)

    @property
    def leaving(self) -> str:
        """Return how it is known that the node is being taken away; empty if it stays."""
        if self.meta.deleted is not None:
            return "is being deleted"
        taint = next((one for one in self.taints if one.key in LEAVING_TAINTS and one.blocks), None)
        return "" if taint is None else f"is being taken away (taint {taint.text})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace; queues select namespaces by their labels."""

    meta: Meta
    labels: Mapping[str, str] = field(default_factory=dict)


def decode(obj: Json) -> Node:
    """Decode a Node."""
    reader = Reader(obj)
    spec, status = reader.child("spec"), reader.child("status")
    result = Node(
        meta=meta.decode(reader),
        allocatable=decode_resources(status, "allocatable") if "allocatable" in status else None,
        taints=tuple(map(selectors.decode_taint, spec.children("taints"))),
        unschedulable=spec.flag("unschedulable"),
        features=frozenset(status.texts("declaredFeatures")),
    )
    reader.finish("Node", result.meta.key)
    return result


def decode_namespace(obj: Json) -> Namespace:
    """Decode a Namespace. It always has the label kubernetes.io/metadata.name, which the API server sets."""
    reader = Reader(obj)
    values = meta.decode(reader)
    reader.finish("Namespace", values.key)
    return Namespace(meta=values, labels={"kubernetes.io/metadata.name": values.name, **values.labels})


def decode_resources(reader: Reader, name: str) -> dict[str, int]:
    """Decode a ResourceList, with amounts rounded up to the unit of `Resources`."""
    values = reader.child(name)
    return {
        resource: values.parsed(resource, quantities.parse_millis if resource == "cpu" else quantities.parse_ceiling, 0)
        for resource in reader.keys(name)
    }


def total(parts: Iterable[Resources]) -> Resources:
    """Return the sum of resources."""
    several = [part for part in parts if part]
    if len(several) == 1:
        return several[0]
    return {name: sum(part.get(name, 0) for part in several) for name in dict.fromkeys(chain.from_iterable(several))}


def render_resources(resources: Resources) -> str:
    """Return resources for people: `2 cpu, 8Gi memory`."""
    return ", ".join(f"{_render(name, amount)} {name}" for name, amount in sorted(resources.items()))


def _render(name: str, amount: int) -> str:
    return quantities.write(Fraction(amount, 1000)) if name == "cpu" else quantities.render(amount)
