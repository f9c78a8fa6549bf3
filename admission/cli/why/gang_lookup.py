"""The gang of a pod, identified as the controller does it: from the pod's owners and the objects that it names."""

from dataclasses import dataclass, field, replace
from typing import Any

from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.owners import UNSERVED
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values.names import Uid
from admission.cli.cluster_options import Cluster
from admission.errors import MusterError
from admission.kube.cache import watched_resources
from admission.kube.cache.watched_resources import Kind
from admission.workloads import gang_key, owner_chain
from admission.workloads.kinds import foreign_queues, podgroup
from admission.workloads.kinds.foreign_queues import NamedQueue
from admission.workloads.kinds.registry import WorkloadKind, key, kind_of

_OWNERS = {
    key(kind.name, kind.group): kind
    for kind in (watched_resources.PODS, watched_resources.JOBS, *watched_resources.PARENTS)
}


@dataclass(frozen=True, slots=True)
class PodGang:
    """A pod, the name of its gang's Gang object, and the UIDs of the pod and its known owners.

    named: the first of these owners whose label names a queue, with that label; None if none does.
    """

    pod: Pod
    gang: str
    owner_uids: frozenset[Uid]
    named: tuple[Owner, NamedQueue] | None = None


@dataclass(slots=True)
class _ReadObjects:
    """The objects read for one pod. An object that the user may not read counts as absent."""

    pods: dict[Uid, Any] = field(default_factory=dict)
    jobs: dict[Uid, Any] = field(default_factory=dict)
    parents: dict[str, dict[str, Any]] = field(default_factory=dict)
    unwatched: dict[str, str] = field(default_factory=dict)

    def add(self, kind: Kind, obj: Any) -> None:
        if kind.workload_kind:
            by_key = obj.meta.uid if kind.by_uid else obj.meta.key
            self.parents.setdefault(kind.workload_kind, {})[by_key] = obj
        else:
            (self.pods if kind is watched_resources.PODS else self.jobs)[obj.meta.uid] = obj

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(pods=self.pods, jobs=self.jobs, parents=self.parents, unwatched=self.unwatched)


async def find(pod: Pod, cluster: Cluster) -> PodGang:
    """Return the gang's name and the owners of a pod, from objects in the API server."""
    read_objects, owner_uids = _ReadObjects(pods={pod.meta.uid: pod}), {pod.meta.uid}
    owner, named = pod.meta.controller, None
    while owner is not None and owner.uid not in owner_uids and len(owner_uids) <= owner_chain.MAX_LENGTH:
        owner_uids.add(owner.uid)
        obj = await _read_owner(owner, pod.meta.namespace, read_objects, cluster)
        label = foreign_queues.of_owner(obj.meta.labels) if obj is not None else None
        named = named or (None if label is None else (owner, label))
        owner = obj.meta.controller if obj is not None else None
    group_names = [
        (podgroup.GANGS, pod.group),
        *((workload_kind, name_of(pod)) for workload_kind, name_of in podgroup.NAMED),
    ]
    for workload_kind, name in group_names:
        if name:
            await _read_group(workload_kind, name, pod.meta.namespace, read_objects, cluster)
    gang = gang_key.identify(pod, read_objects.snapshot).name
    return PodGang(pod=pod, gang=gang, owner_uids=frozenset(owner_uids), named=named)


async def _read_owner(owner: Owner, namespace: str, read_objects: _ReadObjects, cluster: Cluster) -> Any | None:
    """Read an owner; None if it is of another kind, or is not there."""
    kind = _OWNERS.get(kind_of(owner))
    if kind is None:
        return None
    obj = await _read(replace(kind, version=owner.api_version.rpartition("/")[2]), owner.name, namespace, cluster)
    if obj is None or obj.meta.uid != owner.uid:
        return None
    read_objects.add(kind, obj)
    return obj


async def _read_group(
    workload_kind: WorkloadKind, name: str, namespace: str, read_objects: _ReadObjects, cluster: Cluster
) -> None:
    """Read a PodGroup that a pod names."""
    kind = _OWNERS[workload_kind.key]
    for version in (kind.version, *kind.older):
        obj = await _read(replace(kind, version=version), name, namespace, cluster)
        if obj is not None:
            read_objects.add(kind, obj)
            return
    read_objects.unwatched[workload_kind.key] = UNSERVED


async def _read(kind: Kind, name: str, namespace: str, cluster: Cluster) -> Any | None:
    """Read one object; None if it does not exist, or the user may not read it, or it is malformed."""
    try:
        obj = await cluster.get_object(kind, name, namespace)
        return None if obj is None else kind.decode(obj)
    except MusterError:
        return None
