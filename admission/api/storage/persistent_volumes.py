"""Persistent volumes, claims for them, and StorageClasses.

Only what the filters of kube-scheduler read of them (`pkg/scheduler/framework/plugins/volume*`, v1.37).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.scheduling import pod_volumes
from admission.api.scheduling.pod_volumes import Disk
from admission.api.values import quantities, selectors
from admission.api.values.decoding import Reader
from admission.api.values.selectors import LabelSelector, NodeSelector, Requirement

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE, BETA_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"

NO_PROVISIONER = "kubernetes.io/no-provisioner"
ONE_POD = "ReadWriteOncePod"
FILESYSTEM = "Filesystem"

_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"


class ClaimRef(NamedTuple):
    """The claim that a volume is bound to, or kept for; uid: empty where anyone of that name is meant."""

    namespace: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentVolume:
    """A PersistentVolume. capacity: in bytes. driver, handle: of a CSI volume. disk: of an in-tree one."""

    meta: Meta
    class_name: str = ""
    capacity: int = 0
    access_modes: frozenset[str] = frozenset()
    mode: str = FILESYSTEM
    attributes_class: str = ""
    is_available: bool = False
    claim: ClaimRef | None = None
    affinity: NodeSelector | None = None
    driver: str = ""
    handle: str = ""
    disk: Disk | None = None

    @property
    def zones(self) -> Mapping[str, frozenset[str]]:
        """Return the values that it allows of labels of zones and regions; what cannot be read is left out."""
        found = {}
        for key in (BETA_ZONE, BETA_REGION, ZONE, REGION):
            values = [one.strip() for one in self.meta.labels.get(key, "").split("__")]
            if all(values):
                found[key] = frozenset(values)
        return found

    @property
    def csi_volume(self) -> tuple[str, str]:
        """Return driver and handle, also of a migrated in-tree disk; empty text where it has none."""
        if self.driver or self.disk is None:
            return self.driver, self.handle
        return self.disk.handle(self.meta.labels.get(BETA_ZONE) or self.meta.labels.get(ZONE, ""))

    def is_for(self, claim: "VolumeClaim") -> bool:
        """Return whether it is bound to a claim, or kept for it."""
        reference = self.claim
        return (
            reference is not None
            and (reference.namespace, reference.name) == (claim.meta.namespace, claim.meta.name)
            and reference.uid in ("", claim.meta.uid)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeClaim:
    """A PersistentVolumeClaim. class_name: None where it names none. size: in bytes; None where it asks for none.

    selected_node: where its volume is to be made; None before a node is chosen.
    """

    meta: Meta
    class_name: str | None = None
    size: int | None = None
    access_modes: frozenset[str] = frozenset()
    mode: str = FILESYSTEM
    attributes_class: str = ""
    selector: LabelSelector | None = None
    volume: str = ""
    is_bound: bool = False
    is_lost: bool = False
    selected_node: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageClass:
    """A StorageClass. waits: whether a volume is made or chosen for the first pod that uses it.

    topologies: the nodes for which volumes are made: those with the labels of one term. Without terms, every node.
    """

    meta: Meta
    provisioner: str = ""
    waits: bool = False
    topologies: tuple[tuple[Requirement, ...], ...] = ()
    is_default: bool = False

    def allows(self, labels: Mapping[str, str]) -> bool:
        """Return whether volumes can be made for a node with these labels."""
        return not self.topologies or any(term and all(one.matches(labels) for one in term) for term in self.topologies)


@meta.decoder("PersistentVolume")
def decode_volume(reader: Reader) -> PersistentVolume:
    """Decode a PersistentVolume."""
    spec = reader.child("spec")
    csi, reference, affinity = spec.child("csi"), spec.child("claimRef"), spec.child("nodeAffinity")
    return PersistentVolume(
        meta=decode_meta(reader, labels=True),
        class_name=_class_name(reader) or "",
        capacity=decode_size(spec.child("capacity"), "storage") or 0,
        access_modes=frozenset(spec.texts("accessModes")),
        mode=spec.text("volumeMode") or FILESYSTEM,
        attributes_class=spec.text("volumeAttributesClassName"),
        is_available=reader.child("status").text("phase") == "Available",
        claim=ClaimRef(reference.text("namespace"), reference.text("name"), reference.text("uid"))
        if "claimRef" in spec
        else None,
        affinity=selectors.decode_nodes(affinity.child("required")) if "required" in affinity else None,
        driver=csi.text("driver"),
        handle=csi.text("volumeHandle"),
        disk=pod_volumes.decode_disk(spec),
    )


@meta.decoder("PersistentVolumeClaim")
def decode_claim(reader: Reader) -> VolumeClaim:
    """Decode a PersistentVolumeClaim."""
    spec, notes = reader.child("spec"), reader.child("metadata").pairs("annotations")
    volume = spec.text("volumeName")
    return VolumeClaim(
        meta=decode_meta(reader),
        class_name=_class_name(reader),
        size=decode_size(spec.child("resources").child("requests"), "storage"),
        access_modes=frozenset(spec.texts("accessModes")),
        mode=spec.text("volumeMode") or FILESYSTEM,
        attributes_class=spec.text("volumeAttributesClassName"),
        selector=selectors.decode_labels(spec.child("selector")) if "selector" in spec else None,
        volume=volume,
        is_bound=bool(volume) and BIND_COMPLETED in notes,
        is_lost=reader.child("status").text("phase") == "Lost",
        selected_node=notes.get(_SELECTED_NODE),
    )


@meta.decoder("StorageClass")
def decode_class(reader: Reader) -> StorageClass:
    """Decode a StorageClass."""
    terms = (
        tuple(
            Requirement(key=one.required("key"), operator="In", values=one.texts("values"))
            for one in term.children("matchLabelExpressions")
        )
        for term in reader.children("allowedTopologies")
    )
    return StorageClass(
        meta=decode_meta(reader),
        provisioner=reader.text("provisioner"),
        waits=reader.text("volumeBindingMode") == "WaitForFirstConsumer",
        topologies=tuple(terms),
        is_default=reader.child("metadata").pairs("annotations").get(_IS_DEFAULT) == "true",
    )


def decode_meta(reader: Reader, *, labels: bool = False) -> Meta:
    """Decode the metadata that is read: of many thousand claims and volumes the annotations are most of the text."""
    whole = meta.decode(reader)
    return Meta(
        name=whole.name,
        namespace=whole.namespace,
        uid=whole.uid,
        resource_version=whole.resource_version,
        labels=whole.labels if labels else {},
        owners=whole.owners,
        deleted=whole.deleted,
    )


def _class_name(reader: Reader) -> str | None:
    noted = reader.child("metadata").pairs("annotations").get(_BETA_CLASS)
    return reader.child("spec").optional("storageClassName") if noted is None else noted


def decode_size(reader: Reader, name: str) -> int | None:
    """Decode a quantity of bytes, rounded up; None where there is none."""
    return reader.parsed(name, quantities.parse_ceiling, 0) if name in reader else None
