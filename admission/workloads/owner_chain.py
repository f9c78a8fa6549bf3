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

LONGEST = 8
"""The most owners that are followed. The longest real chain is four: from a worker to its LeaderWorkerSet."""

BATCH_JOB = "Job.batch"
POD = "Pod."
STATEFUL_SET = "StatefulSet.apps"
NONE: Mapping[str, Parent] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerChain:
    """The owners of a pod, of the kinds that determine gangs, the nearest first.

    family: the kind of the first owner that states a gang's size, where the chain ends. lost: whether the last owner is
    not seen. endless: whether the chain is a cycle or too long. inputs: the UIDs of all owners that were looked up.
    deadline: the least of the owners' deadlines.
    """

    links: tuple[Link, ...] = ()
    family: WorkloadKind | None = None
    endless: bool = False
    inputs: tuple[str, ...] = ()
    deadline: timedelta | None = None

    @property
    def lost(self) -> bool:
        return bool(self.links) and self.links[-1].found is None


ALONE = OwnerChain()


def build(pod: Pod, snapshot: Snapshot) -> OwnerChain:
    """Return the owners of a pod."""
    owner = pod.meta.controller
    if owner is None:
        return ALONE
    links: list[Link] = []
    inputs: dict[str, None] = {pod.meta.uid: None}
    while owner is not None:
        kind = kind_of(owner)
        family = catalog.OWNERS.get(kind)
        if family is None and not links:
            family = catalog.PLANNED.get(kind)
        if family is None and kind not in (BATCH_JOB, POD):
            break
        if owner.uid in inputs or len(links) == LONGEST:
            return OwnerChain(links=(*links, Link(owner=owner, found=None)), endless=True, inputs=tuple(inputs)[1:])
        inputs[owner.uid] = None
        seen = found(owner, snapshot)
        if "/" in owner.uid or (seen is not None and seen.meta.namespace != pod.meta.namespace):
            # The API server accepts any text as a UID. One with a slash could be a gang's UID, and is no object's.
            break
        links.append(Link(owner=owner, found=seen))
        if family is not None and not family.is_link:
            above = _above(links[-1], inputs, snapshot)
            ends = _earliest(links if above is None else (*links, above[0]))
            # A workload held as a whole stands for its pods: they are planned before the object between exists.
            if above is not None and above[0].found is not None and names.HELD in above[0].found.meta.annotations:
                links.append(above[0])
                family = above[1]
            return OwnerChain(links=tuple(links), family=family, inputs=tuple(inputs)[1:], deadline=ends)
        owner = seen.meta.controller if seen is not None else None
    return OwnerChain(links=tuple(links), inputs=tuple(inputs)[1:], deadline=_earliest(links))


def _earliest(links: Iterable[Link]) -> timedelta | None:
    """Return the least deadline of some workloads; None for no limit."""
    found = (link.found.deadline for link in links if isinstance(link.found, Job | Parent))
    return min((one for one in found if one is not None), default=None)


def _above(below: Link, inputs: dict[str, None], snapshot: Snapshot) -> tuple[Link, WorkloadKind] | None:
    """Return the owner of an object that pods belong to, if the owner's kind may be held as a whole."""
    family, made = catalog.HOLDERS.get(kind_of(below.owner)), below.found
    owner = made.meta.controller if made is not None else None
    if family is None or made is None or owner is None or kind_of(owner) != family.key:
        return None
    inputs[owner.uid] = None
    above = snapshot.parents.get(family.key, NONE).get(owner.uid)
    if above is None or above.meta.namespace != made.meta.namespace:
        return None
    return Link(owner=owner, found=above), family


def found(owner: Owner, snapshot: Snapshot) -> Job | Pod | Parent | None:
    """Return the object with an owner's UID, if its kind determines gangs and it is seen."""
    kind = kind_of(owner)
    if kind == BATCH_JOB:
        return snapshot.jobs.get(owner.uid)
    if kind == POD:
        return snapshot.pods.get(owner.uid)
    return snapshot.parents.get(kind, NONE).get(owner.uid)


def prioritized(pod: Pod, body: Json, classes: Mapping[str, PriorityClass]) -> Pod:
    """Return the pod with the priority of its PriorityClass, or of the default one. body: the pod as JSON.

    The priority is what the API server will set at creation, as `plugin/pkg/admission/priority` (v1.37.1) does; if
    several classes are the default, any of them may be used.
    """
    spec = body.get("spec") or {}
    if spec.get("priority") is not None:
        return pod
    named = classes.get(str(spec.get("priorityClassName")))
    found = named or next((known for known in classes.values() if known.is_default), None)
    return replace(pod, priority=found.value) if found else pod
