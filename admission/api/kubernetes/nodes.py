"""Nodes: what a pod needs of them besides devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import quantities, selectors
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import NodeName
from admission.api.values.selectors import Taint

Resources = Mapping[str, int]
"""Amounts by resource name: `cpu` in thousandths, everything else in whole units (memory in bytes)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node. allocatable: None when the node says nothing, and then it limits nothing."""

    meta: Meta
    allocatable: Resources | None = None
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False

    @property
    def name(self) -> NodeName:
        return NodeName(self.meta.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A namespace; queues choose them by label."""

    meta: Meta
    labels: Mapping[str, str] = field(default_factory=dict)


def decode(obj: Json) -> Node:
    """Read a Node."""
    reader = Reader(obj)
    spec, status = reader.child("spec"), reader.child("status")
    result = Node(
        meta=meta.decode(reader),
        allocatable=decode_resources(status, "allocatable") if "allocatable" in status else None,
        taints=tuple(map(selectors.decode_taint, spec.children("taints"))),
        unschedulable=spec.flag("unschedulable"),
    )
    reader.finish("Node", result.meta.key)
    return result


def decode_namespace(obj: Json) -> Namespace:
    """Read a Namespace. It always carries the label kubernetes.io/metadata.name, as the API server sees to."""
    reader = Reader(obj)
    values = meta.decode(reader)
    reader.finish("Namespace", values.key)
    return Namespace(meta=values, labels={"kubernetes.io/metadata.name": values.name, **values.labels})


def decode_resources(reader: Reader, name: str) -> dict[str, int]:
    """Read a ResourceList, rounded up to the unit that is counted."""
    values = reader.child(name)
    return {
        resource: values.parsed(resource, quantities.parse_millis if resource == "cpu" else quantities.parse_ceiling, 0)
        for resource in reader.keys(name)
    }
