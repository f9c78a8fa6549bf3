"""All storage objects of a cluster together."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from admission.api.storage.csi import CsiDriver, CsiNode, StorageCapacity, VolumeAttachment
from admission.api.storage.free_volumes import FreeVolumes
from admission.api.storage.persistent_volumes import PersistentVolume, StorageClass, VolumeClaim
from admission.api.values.names import NodeName

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


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
    _free: Mapping[str, FreeVolumes] | None = field(default=None, init=False, repr=False, compare=False)
    _kept: Mapping[tuple[str, str], tuple[PersistentVolume, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )
    _unbound: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)
    _selected_by: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)
    _limited: frozenset[str] | None = field(default=None, init=False, repr=False, compare=False)
    _attached: Mapping[NodeName, tuple[VolumeAttachment, ...]] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    @property
    def free(self) -> Mapping[str, FreeVolumes]:
        """Return the available volumes without a claim, by class."""
        found = self._free
        if found is None:
            free = (one for one in self.volumes.values() if one.claim is None and one.is_available)
            grouped = _grouped((one.class_name, one) for one in free)
            found = {name: FreeVolumes(volumes) for name, volumes in grouped.items()}
            object.__setattr__(self, "_free", found)
        return found

    @property
    def kept(self) -> Mapping[tuple[str, str], tuple[PersistentVolume, ...]]:
        """Return the volumes that are bound to a claim or kept for it, by the claim's namespace and name."""
        found = self._kept
        if found is None:
            found = _grouped(
                ((one.claim.namespace, one.claim.name), one) for one in self.volumes.values() if one.claim is not None
            )
            object.__setattr__(self, "_kept", found)
        return found

    @property
    def unbound(self) -> frozenset[str]:
        """Return the claims that are not bound to a volume."""
        found = self._unbound
        if found is None:
            found = frozenset(key for key, claim in self.claims.items() if not claim.is_bound)
            object.__setattr__(self, "_unbound", found)
        return found

    @property
    def selected_by(self) -> frozenset[str]:
        """Return the labels by which claims that are not bound select volumes."""
        found = self._selected_by
        if found is None:
            selectors = (self.claims[key].selector for key in self.unbound)
            found = frozenset(rule.key for one in selectors if one is not None for rule in one.requirements)
            object.__setattr__(self, "_selected_by", found)
        return found

    @property
    def limited(self) -> frozenset[str]:
        """Return the CSI drivers that some node limits."""
        found = self._limited
        if found is None:
            limits = (pair for node in self.nodes.values() for pair in node.drivers.items())
            found = frozenset(driver for driver, limit in limits if limit is not None)
            object.__setattr__(self, "_limited", found)
        return found

    @property
    def attached(self) -> Mapping[NodeName, tuple[VolumeAttachment, ...]]:
        """Return the attachments by node."""
        found = self._attached
        if found is None:
            found = _grouped((one.node, one) for one in self.attachments.values())
            object.__setattr__(self, "_attached", found)
        return found


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, tuple[V, ...]]:
    found: dict[K, list[V]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in found.items()}
