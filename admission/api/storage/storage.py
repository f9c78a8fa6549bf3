"""All storage objects of a cluster together."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.api.storage.csi import CsiDriver, CsiNode, StorageCapacity, VolumeAttachment
from admission.api.storage.persistent_volumes import PersistentVolume, StorageClass, VolumeClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """All storage objects, by name; claims and capacities by `namespace/name`.

    is_whole: whether what is not here does not exist. Of manifests that is not so.
    """

    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    claims: Mapping[str, VolumeClaim] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    nodes: Mapping[str, CsiNode] = field(default_factory=dict)
    drivers: Mapping[str, CsiDriver] = field(default_factory=dict)
    capacities: Mapping[str, StorageCapacity] = field(default_factory=dict)
    attachments: Mapping[str, VolumeAttachment] = field(default_factory=dict)
    is_whole: bool = True
    _by_class: Mapping[str, tuple[PersistentVolume, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _attached: Mapping[str, tuple[VolumeAttachment, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def volumes_of(self, class_name: str | None) -> tuple[PersistentVolume, ...]:
        """Return the volumes of a class."""
        found = self._by_class
        if found is None:
            by_class: dict[str, list[PersistentVolume]] = {}
            for one in self.volumes.values():
                by_class.setdefault(one.class_name, []).append(one)
            found = {name: tuple(those) for name, those in by_class.items()}
            object.__setattr__(self, "_by_class", found)
        return found.get(class_name or "", ())

    @property
    def attached(self) -> Mapping[str, tuple[VolumeAttachment, ...]]:
        """Return the attachments by node."""
        found = self._attached
        if found is None:
            by_node: dict[str, list[VolumeAttachment]] = {}
            for one in self.attachments.values():
                by_node.setdefault(one.node, []).append(one)
            found = {node: tuple(those) for node, those in by_node.items()}
            object.__setattr__(self, "_attached", found)
        return found
