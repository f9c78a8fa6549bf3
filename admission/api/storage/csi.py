"""What CSI drivers say: of nodes, of themselves, of space, and of the volumes that are attached.

Only what the filters of kube-scheduler read of them (`pkg/scheduler/framework/plugins`, v1.37).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.storage.persistent_volumes import decode_meta, decode_size
from admission.api.values import selectors
from admission.api.values.decoding import Reader
from admission.api.values.names import NodeName
from admission.api.values.selectors import LabelSelector

_MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiNode:
    """A CSINode. drivers: those on the node, each with the volumes that it attaches at most; None: no limit."""

    meta: Meta
    drivers: Mapping[str, int | None] = field(default_factory=dict)
    migrated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CsiDriver:
    """A CSIDriver. tells_capacity: whether it publishes CSIStorageCapacities. must_be_there: on a pod's node."""

    meta: Meta
    tells_capacity: bool = False
    must_be_there: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageCapacity:
    """A CSIStorageCapacity. largest: the largest volume in bytes; None: not known. topology: None: of no node."""

    meta: Meta
    class_name: str
    largest: int | None = None
    topology: LabelSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeAttachment:
    """A VolumeAttachment of a persistent volume."""

    meta: Meta
    attacher: str
    node: NodeName
    volume: str = ""


@meta.decoder("CSINode")
def decode_csi_node(reader: Reader) -> CsiNode:
    """Decode a CSINode."""
    drivers = {}
    for driver in reader.child("spec").children("drivers"):
        allocatable = driver.child("allocatable")
        drivers[driver.required("name")] = allocatable.integer("count") if "count" in allocatable else None
    migrated = reader.child("metadata").pairs("annotations").get(_MIGRATED, "")
    return CsiNode(meta=decode_meta(reader), drivers=drivers, migrated=frozenset(filter(None, migrated.split(","))))


@meta.decoder("CSIDriver")
def decode_csi_driver(reader: Reader) -> CsiDriver:
    """Decode a CSIDriver."""
    spec = reader.child("spec")
    return CsiDriver(
        meta=decode_meta(reader),
        tells_capacity=spec.flag("storageCapacity"),
        must_be_there=spec.flag("preventPodSchedulingIfMissing"),
    )


@meta.decoder("CSIStorageCapacity")
def decode_capacity(reader: Reader) -> StorageCapacity:
    """Decode a CSIStorageCapacity."""
    largest = decode_size(reader, "maximumVolumeSize")
    return StorageCapacity(
        meta=decode_meta(reader),
        class_name=reader.text("storageClassName"),
        largest=decode_size(reader, "capacity") if largest is None else largest,
        topology=selectors.decode_labels(reader.child("nodeTopology")) if "nodeTopology" in reader else None,
    )


@meta.decoder("VolumeAttachment")
def decode_attachment(reader: Reader) -> VolumeAttachment:
    """Decode a VolumeAttachment."""
    spec = reader.child("spec")
    return VolumeAttachment(
        meta=decode_meta(reader),
        attacher=spec.text("attacher"),
        node=NodeName(spec.text("nodeName")),
        volume=spec.child("source").text("persistentVolumeName"),
    )
