"""The volumes of a pod that can keep it off a node: claims, and disks that one node or one writer has at a time.

Also what kube-scheduler knows of in-tree disks, all of which CSI drivers serve by now: their names and handles there
(`k8s.io/csi-translation-lib`, v0.37.1).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from admission.api.values.decoding import Reader


class InTree(NamedTuple):
    """A kind of in-tree disk. id_field: the field with its identity. topology: the node label of the driver's zones."""

    id_field: str
    plugin: str = ""
    driver: str = ""
    topology: str = ""


IN_TREE: Mapping[str, InTree] = {
    "awsElasticBlockStore": InTree(
        "volumeID", "kubernetes.io/aws-ebs", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone"
    ),
    "azureDisk": InTree("diskURI", "kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "cinder": InTree(
        "volumeID", "kubernetes.io/cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone"
    ),
    "gcePersistentDisk": InTree("pdName", "kubernetes.io/gce-pd", "pd.csi.storage.gke.io", "topology.gke.io/zone"),
    "portworxVolume": InTree("volumeID", "kubernetes.io/portworx-volume", "pxd.portworx.com"),
    "iscsi": InTree("iqn"),
    "rbd": InTree("image"),
}
"""By the field of a volume. Those without a driver are not migrated."""

DRIVERS: Mapping[str, str] = {one.plugin: one.driver for one in IN_TREE.values() if one.driver}
"""The CSI drivers of migrated plugins, by the name that StorageClasses give the plugin."""

NOT_MIGRATED = frozenset({"kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"})
"""Plugins with a CSI driver whose volumes kube-scheduler does not count."""

_EXCLUSIVE = frozenset({"awsElasticBlockStore", "gcePersistentDisk", "iscsi", "rbd"})
_UNSPECIFIED = "UNSPECIFIED"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """An in-tree disk: its kind by the field of the volume, its identity, and of `rbd` the monitors."""

    kind: str
    name: str
    read_only: bool = False
    monitors: frozenset[str] = frozenset()

    @property
    def is_exclusive(self) -> bool:
        """Return whether two pods on one node may not use it, unless both only read it."""
        return self.kind in _EXCLUSIVE

    def conflicts(self, other: "Disk") -> bool:
        """Return whether both cannot be on one node (`isVolumeConflict` of VolumeRestrictions)."""
        if not self.is_exclusive or (self.kind, self.name) != (other.kind, other.name):
            return False
        if self.kind == "rbd" and self.monitors.isdisjoint(other.monitors):
            return False
        return self.kind == "awsElasticBlockStore" or not (self.read_only and other.read_only)

    def handle(self, zones: str = "") -> tuple[str, str]:
        """Return driver and volume handle of the CSI volume that stands for it; empty text where none does.

        zones: of a persistent volume, the value of its zone label.
        """
        driver = IN_TREE[self.kind].driver
        if self.kind == "awsElasticBlockStore" and self.name.startswith("aws://"):
            return driver, self.name.removeprefix("aws://").partition("/")[2].strip("/")
        if self.kind == "gcePersistentDisk":
            several = zones.split("__")
            place = f"zones/{zones or _UNSPECIFIED}"
            if len(several) > 1:
                regions = {zone.rpartition("-")[0] for zone in several}
                if len(regions) > 1 or "" in regions:
                    return "", ""
                place = f"regions/{regions.pop()}"
            return driver, f"projects/{_UNSPECIFIED}/{place}/disks/{self.name}"
        return driver, self.name if driver else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodVolume:
    """A volume of a pod. claim: the name of its persistent volume claim; of an ephemeral one, its own name alone."""

    name: str
    claim: str = ""
    is_ephemeral: bool = False
    disk: Disk | None = None

    @property
    def text(self) -> str:
        """Return the volume as messages name it."""
        if self.disk is not None:
            return f"{self.disk.kind} {self.disk.name}"
        return f"ephemeral volume {self.name}" if self.is_ephemeral else f"persistent volume claim {self.claim}"

    def claim_of(self, pod: str) -> str:
        """Return the name of its claim, for a pod of this name; empty text where it has none."""
        return f"{pod}-{self.name}" if self.is_ephemeral else self.claim


def decode(spec: Reader) -> Iterable[PodVolume]:
    """Yield the volumes of a pod's spec, or template, that can keep it off a node."""
    for volume in spec.children("volumes"):
        name, claim = volume.text("name"), volume.child("persistentVolumeClaim").text("claimName")
        if claim:
            yield PodVolume(name=name, claim=claim)
        elif "ephemeral" in volume:
            yield PodVolume(name=name, is_ephemeral=True)
        elif (disk := decode_disk(volume)) is not None:
            yield PodVolume(name=name, disk=disk)


def decode_disk(source: Reader) -> Disk | None:
    """Return the in-tree disk of a volume or a persistent volume, if it is one of these kinds."""
    kind = next((kind for kind in IN_TREE if kind in source), None)
    if kind is None:
        return None
    disk = source.child(kind)
    name = disk.text(IN_TREE[kind].id_field)
    return Disk(
        kind=kind,
        name=f"{disk.text('pool') or 'rbd'}/{name}" if kind == "rbd" else name,
        read_only=disk.flag("readOnly"),
        monitors=frozenset(disk.texts("monitors")) if kind == "rbd" else frozenset(),
    )
