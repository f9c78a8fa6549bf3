"""The kinds of objects that Muster watches: their paths, decoders and keys."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from admission.api.capacity import node_pools, node_shapes, provisioning_requests
from admission.api.kubernetes import claims, device_taint_rules, devices, jobs, nodes, pods, priority_classes
from admission.api.kubernetes.meta import Meta
from admission.api.muster import claim_policies, gangs, meters, queues
from admission.api.storage import csi, persistent_volumes
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.workloads.kinds import catalog
from admission.workloads.kinds.registry import WorkloadKind


def _never(_: Any) -> bool:
    return False


class Decoded(Protocol):
    """A decoded object: a dataclass that has the object's metadata."""

    @property
    def meta(self) -> Meta: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind. field: the name of its mapping in `api.snapshot.Snapshot`; empty when it is not part of a snapshot.

    decode: returns the value of an object, or raises MalformedObjectError. by_uid: pods and jobs are keyed by UID,
    since one that was recreated under an old name is another; everything else by `namespace/name`, or the name where
    cluster-scoped. older: versions of the same shape, the newest first, that an API server may serve instead. optional:
    the API server may not serve the kind, which is then empty. may_be_missing: Muster works on where it cannot be read,
    and `Snapshot.unwatched` says why. workload_kind: the key of a workload kind; without
    permission to read it, Muster works on and gives the reason in the holds of its gangs. ignores_version: whether the
    present value may stay in the table when only its resourceVersion has changed, since no write to the object needs
    that version. storage: the name of its mapping in `api.storage.storage.Storage`; without permission to read all of
    these kinds, no volume is judged. all_fields: keep all fields of listed objects for `decode`, not only those that
    other decoders read.
    """

    name: str
    group: str
    version: str
    plural: str
    field: str
    decode: Callable[[Json], Meta | Decoded]
    by_uid: bool = False
    older: tuple[str, ...] = ()
    optional: bool = False
    may_be_missing: bool = False
    workload_kind: str = ""
    storage: str = ""
    ignores_version: Callable[[Any], bool] = _never
    all_fields: bool = False

    @property
    def may_be_forbidden(self) -> bool:
        """Return whether Muster works on without permission to read the kind.

        It does without kinds of its own that are optional, since roles may be applied later than CRDs.
        """
        return self.may_be_missing or bool(self.workload_kind or self.storage)

    @property
    def unwatched_key(self) -> str:
        """Return what `Snapshot.unwatched` calls the kind while it cannot be read; empty if it does not tell."""
        return f"{self.name}.{self.group}" if self.may_be_missing else self.workload_kind

    @property
    def path(self) -> str:
        """The path of the collection, in the best version."""
        return self.paths[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of the collection: one for each version, the best first."""
        root = f"/apis/{self.group}" if self.group else "/api"
        return tuple(f"{root}/{version}/{self.plural}" for version in (self.version, *self.older))

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


def _core(
    name: str,
    plural: str,
    decode: Callable[[Json], Any],
    *,
    by_uid: bool = False,
    ignores_version: Callable[[Any], bool] = _never,
) -> Kind:
    return Kind(
        name=name,
        group="",
        version="v1",
        plural=plural,
        field=plural,
        decode=decode,
        by_uid=by_uid,
        ignores_version=ignores_version,
    )


def _resource(name: str, plural: str, field: str, decode: Callable[[Json], Any]) -> Kind:
    return Kind(name=name, group="resource.k8s.io", version="v1", plural=plural, field=field, decode=decode)


def _parent(workload_kind: WorkloadKind) -> Kind:
    return Kind(
        name=workload_kind.kind,
        group=workload_kind.group,
        version=workload_kind.versions[0],
        plural=workload_kind.plural,
        field="parents",
        decode=workload_kind.decode,
        by_uid=not workload_kind.named,
        older=workload_kind.versions[1:],
        optional=True,
        workload_kind=workload_kind.key,
    )


def _storage(
    name: str, plural: str, storage: str, decode: Callable[[Json], Any], *, group: str = "storage.k8s.io"
) -> Kind:
    return Kind(
        name=name, group=group, version="v1", plural=plural, field="", decode=decode, storage=storage, all_fields=True
    )


def _own(name: str, plural: str, field: str, decode: Callable[[Json], Any], *, optional: bool = False) -> Kind:
    return Kind(
        name=name,
        group=names.GROUP,
        version=names.VERSION,
        plural=plural,
        field=field,
        decode=decode,
        optional=optional,
        may_be_missing=optional,
    )


PODS = _core("Pod", "pods", pods.decode, by_uid=True, ignores_version=lambda pod: bool(pod.node))
NODES = _core("Node", "nodes", nodes.decode, ignores_version=lambda _: True)
NAMESPACES = _core("Namespace", "namespaces", nodes.decode_namespace)
CLAIMS = _resource("ResourceClaim", "resourceclaims", "claims", claims.decode)
TEMPLATES = _resource("ResourceClaimTemplate", "resourceclaimtemplates", "templates", claims.decode_template)
SLICES = _resource("ResourceSlice", "resourceslices", "slices", devices.decode_slice)
CLASSES = _resource("DeviceClass", "deviceclasses", "classes", devices.decode_class)
TAINT_RULES = Kind(
    name="DeviceTaintRule",
    group="resource.k8s.io",
    version="v1",
    plural="devicetaintrules",
    field="taint_rules",
    decode=device_taint_rules.decode,
    older=("v1beta2", "v1alpha3"),
    optional=True,
)
"""Served in v1 since Kubernetes 1.37; before, only where a beta or alpha version is switched on."""
JOBS = Kind(name="Job", group="batch", version="v1", plural="jobs", field="jobs", decode=jobs.decode_live, by_uid=True)
PARENTS = tuple(map(_parent, catalog.ALL))
"""The workload kinds to which pods belong, besides batch Jobs; most clusters serve few of them."""
PRIORITIES = Kind(
    name="PriorityClass",
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    field="priorities",
    decode=priority_classes.decode,
)
"""Read for the future pods of workloads held as a whole; the API server has set the priority of existing pods."""
STORAGE = (
    _storage("PersistentVolume", "persistentvolumes", "volumes", persistent_volumes.decode_volume, group=""),
    _storage("PersistentVolumeClaim", "persistentvolumeclaims", "claims", persistent_volumes.decode_claim, group=""),
    _storage("StorageClass", "storageclasses", "classes", persistent_volumes.decode_class),
    _storage("CSINode", "csinodes", "nodes", csi.decode_csi_node),
    _storage("CSIDriver", "csidrivers", "drivers", csi.decode_csi_driver),
    _storage("CSIStorageCapacity", "csistoragecapacities", "capacities", csi.decode_capacity),
    _storage("VolumeAttachment", "volumeattachments", "attachments", csi.decode_attachment),
)
"""What the volumes of pods are. They are in snapshots only while a pod that has volumes waits behind its gate."""
QUEUES = _own("Queue", "queues", "queues", queues.decode)
METERS = _own("Meter", "meters", "meters", meters.decode)
GANGS = _own("Gang", "gangs", "gangs", gangs.decode)
POLICIES = _own("ClaimPolicy", "claimpolicies", "policies", claim_policies.decode_stored)
SHAPES = _own(node_shapes.KIND, "nodeshapes", "shapes", node_shapes.decode, optional=True)
"""Optional: an upgrade may leave the CRD to be applied later, and nothing but plans for nodes to come reads it."""
REQUESTS = Kind(
    name=provisioning_requests.KIND,
    group=provisioning_requests.GROUP,
    version=provisioning_requests.VERSION,
    plural=provisioning_requests.PLURAL,
    field="provisioning_requests",
    decode=provisioning_requests.decode,
    optional=True,
    may_be_missing=True,
)
"""What Cluster Autoscaler is asked for, where queues say so; most clusters do not serve it."""

NODE_POOLS = Kind(
    name=node_pools.KIND,
    group=node_pools.GROUP,
    version=node_pools.VERSION,
    plural=node_pools.PLURAL,
    field="node_pools",
    decode=node_pools.decode,
    optional=True,
    may_be_missing=True,
)
"""What Karpenter may start, where NodeShapes name them; most clusters do not serve it."""

ALL = (
    *(PODS, NODES, NAMESPACES, CLAIMS, TEMPLATES, SLICES, CLASSES, TAINT_RULES, JOBS, PRIORITIES),
    *PARENTS,
    *STORAGE,
    *(QUEUES, METERS, GANGS, POLICIES, SHAPES, NODE_POOLS, REQUESTS),
)
"""The kinds that the controller watches."""

ADMISSION = (NAMESPACES, CLAIMS, TEMPLATES, CLASSES, JOBS, *PARENTS, QUEUES, METERS, GANGS, POLICIES)
"""The kinds that a webhook alone watches: it judges requests, not placement, so it needs no nodes, slices or pods."""
