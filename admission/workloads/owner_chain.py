"""The chain from a pod to its owners, each found by its UID in the pod's namespace.

A pod's creator may write any owner into it, so an owner counts only if the object exists. No controller makes pods in
another namespace, so an owner there is ignored.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.kubernetes.priority_classes import PriorityClass
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.workloads.kinds import catalog
from admission.workloads.kinds.registry import Link, WorkloadKind, kind_of

MAX_LENGTH = 8
"""The most owners that are followed. The longest real chain is four: from a worker to its LeaderWorkerSet."""

BATCH_JOB = "Job.batch"
POD = "Pod."
STATEFUL_SET = "StatefulSet.apps"
NO_PARENTS: Mapping[str, Parent] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChain:
    """The owners of a pod, of the kinds that determine gangs, the nearest first.

    workload_kind: the kind of the first owner that states a gang's size, where the chain ends. owner_missing: whether
    the last owner is not seen. endless: whether the chain is a cycle or too long. inputs: the UIDs of all owners that
    were looked up. deadline: the least of the owners' deadlines.
    """

    links: tuple[Link, ...] = ()
    workload_kind: WorkloadKind | None = None
    endless: bool = False
    inputs: tuple[str, ...] = ()
    deadline: timedelta | None = None

    @property
    def owner_missing(self) -> bool:
        return bool(self.links) and self.links[-1].obj is None


NO_OWNERS = OwnerChain()


def build(pod: Pod, snapshot: Snapshot) -> OwnerChain:
    """Return the owners of a pod."""
    owner = pod.meta.controller
    if owner is None:
        return NO_OWNERS
    links: list[Link] = []
    inputs: dict[str, None] = {pod.meta.uid: None}
    while owner is not None:
        kind = kind_of(owner)
        workload_kind = catalog.OWNERS.get(kind)
        if workload_kind is None and not links:
            workload_kind = catalog.PLANNED.get(kind)
        if workload_kind is None and kind not in (BATCH_JOB, POD):
            break
        if owner.uid in inputs or len(links) == MAX_LENGTH:
            return OwnerChain(links=(*links, Link(owner=owner, obj=None)), endless=True, inputs=tuple(inputs)[1:])
        inputs[owner.uid] = None
        obj = lookup(owner, snapshot)
        if "/" in owner.uid or (obj is not None and obj.meta.namespace != pod.meta.namespace):
            # The API server accepts any text as a UID. One with a slash could be a gang's UID, and is no object's.
            break
        links.append(Link(owner=owner, obj=obj))
        if workload_kind is not None and not workload_kind.is_link:
            holder = _holdable_owner(links[-1], inputs, snapshot)
            deadline = _earliest(links if holder is None else (*links, holder[0]))
            # A workload held as a whole stands for its pods: they are planned before the object between exists.
            if holder is not None and holder[0].obj is not None and names.HELD in holder[0].obj.meta.annotations:
                links.append(holder[0])
                workload_kind = holder[1]
            return OwnerChain(
                links=tuple(links), workload_kind=workload_kind, inputs=tuple(inputs)[1:], deadline=deadline
            )
        owner = obj.meta.controller if obj is not None else None
    return OwnerChain(links=tuple(links), inputs=tuple(inputs)[1:], deadline=_earliest(links))


def _earliest(links: Iterable[Link]) -> timedelta | None:
    """Return the least deadline of some workloads; None for no limit."""
    deadlines = (link.obj.deadline for link in links if isinstance(link.obj, Job | Parent))
    return min((deadline for deadline in deadlines if deadline is not None), default=None)


def _holdable_owner(link: Link, inputs: dict[str, None], snapshot: Snapshot) -> tuple[Link, WorkloadKind] | None:
    """Return the owner of an object that pods belong to, if the owner's kind may be held as a whole."""
    workload_kind, obj = catalog.HOLDERS.get(kind_of(link.owner)), link.obj
    owner = obj.meta.controller if obj is not None else None
    if workload_kind is None or obj is None or owner is None or kind_of(owner) != workload_kind.key:
        return None
    inputs[owner.uid] = None
    holder = snapshot.parents.get(workload_kind.key, NO_PARENTS).get(owner.uid)
    if holder is None or holder.meta.namespace != obj.meta.namespace:
        return None
    return Link(owner=owner, obj=holder), workload_kind


def lookup(owner: Owner, snapshot: Snapshot) -> Job | Pod | Parent | None:
    """Return the object with an owner's UID, if its kind determines gangs and it is seen."""
    kind = kind_of(owner)
    if kind == BATCH_JOB:
        return snapshot.jobs.get(owner.uid)
    if kind == POD:
        return snapshot.pods.get(owner.uid)
    return snapshot.parents.get(kind, NO_PARENTS).get(owner.uid)


def with_priority(pod: Pod, body: Json, classes: Mapping[str, PriorityClass]) -> Pod:
    """Return the pod with the priority of its PriorityClass, or of the default one. body: the pod as JSON.

    The priority is what the API server will set at creation, as `plugin/pkg/admission/priority` (v1.37.1) does; if
    several classes are the default, any of them may be used.
    """
    spec = body.get("spec") or {}
    if spec.get("priority") is not None:
        return pod
    named = classes.get(str(spec.get("priorityClassName")))
    priority_class = named or next((one for one in classes.values() if one.is_default), None)
    return replace(pod, priority=priority_class.value) if priority_class else pod
