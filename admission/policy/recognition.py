"""Which pods belong together: from the pods of a snapshot to the gangs that are decided about.

Identity comes from the owner's UID or from the pod's own, so that nobody joins a Job's gang by writing its name, and a
Job that was deleted and made again is another gang. Only `muster.dev/gang` names one outright: it gathers what its
author chose to gather, inside one namespace.
"""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from admission.api import names
from admission.api.entries import Placement
from admission.api.gangs import Gang
from admission.api.meta import Owner
from admission.api.names import GangUid, QueueName, Uid
from admission.api.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.workloads import Job

LARGEST_SIZE = 10_000

UNKNOWN_SIZE = LARGEST_SIZE + 1
"""Pods that a gang needs of which nobody has said how large it is: more than it can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a gang is: its UID, the name that people see, and what makes its pods.

    size: how many pods it has; 0 while that is not known. needed: how many must be there before any starts, which is
    fewer towards a Job's end.
    """

    uid: GangUid
    namespace: str
    name: str
    size: int
    needed: int
    workload: Owner | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A gang as it stands: its pods, what the ledger has open for it, and its object in the cluster.

    pods: those that have not ended and are not being deleted. ended: those that have succeeded or failed. waiting:
    those that are held and have no seat yet.
    """

    identity: Identity
    queue: QueueName
    priority: int
    queued_since: datetime
    pods: tuple[Pod, ...]
    ended: tuple[Pod, ...] = ()
    placement: Placement | None = None
    record: Gang | None = None
    waiting: tuple[Pod, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        waiting = tuple(pod for pod in self.pods if pod.gated and not self._is_seated(pod))
        object.__setattr__(self, "waiting", waiting)

    @property
    def key(self) -> str:
        return self.identity.key

    @property
    def uid(self) -> GangUid:
        return self.identity.uid

    @property
    def user(self) -> str:
        """Return who made the first of the pods that wait and say so, as the API server knew them."""
        return next((pod.user for pod in self.waiting if pod.user), "")

    @property
    def half_open(self) -> tuple[Pod, ...]:
        """Return the pods that have a seat but whose gate is still closed: granted, not yet placed."""
        return tuple(pod for pod in self.pods if pod.gated and self._is_seated(pod))

    @property
    def started(self) -> bool:
        """Whether the gang was admitted before: late pods then join it one by one."""
        return any(not pod.gated or self._is_seated(pod) for pod in self.pods)

    def _is_seated(self, pod: Pod) -> bool:
        return self.placement is not None and pod.meta.uid in self.placement.seats


@dataclass(slots=True)
class _Members:
    identity: Identity
    alive: list[Pod] = field(default_factory=list)
    ended: list[Pod] = field(default_factory=list)


def groups(snapshot: Snapshot, placements: Mapping[GangUid, Placement], leaving: Collection[Uid] = ()) -> list[Group]:
    """Return every gang that has a pod in a queue, in no particular order.

    leaving: pods that were evicted, though the snapshot does not show yet that they are being deleted.
    """
    return groups_of(snapshot.pods.values(), snapshot, placements, leaving)


def groups_of(
    pods: Iterable[Pod],
    snapshot: Snapshot,
    placements: Mapping[GangUid, Placement],
    leaving: Collection[Uid] = (),
) -> list[Group]:
    """Return the gangs that some pods make, as if there were no others. What the first pod of a gang says counts."""
    members: dict[GangUid, _Members] = {}
    for pod in sorted(pods, key=_order):
        if not pod.queue or pod.mirror:
            continue
        identity = identify(pod, snapshot)
        found = members.setdefault(identity.uid, _Members(identity))
        if pod.finished:
            found.ended.append(pod)
        elif pod.meta.deleted is None and pod.meta.uid not in leaving:
            found.alive.append(pod)
    return [
        _group(found, placements.get(uid), snapshot.gangs.get(found.identity.key))
        for uid, found in members.items()
        if found.alive or found.ended
    ]


def identify(pod: Pod, snapshot: Snapshot) -> Identity:
    """Return the gang that a pod belongs to: a named one, its Job's, or one of its own."""
    named = setting(pod, names.GANG)
    if named:
        return _named(pod, named, snapshot)
    owner = pod.meta.controller
    if owner is not None and owner.kind == "Job" and owner.api_version == "batch/v1":
        job = snapshot.jobs.get(owner.uid)
        if _may_be_of(pod, owner, job):
            return _of_job(pod, owner, job)
    alone = Owner(api_version="v1", kind="Pod", name=pod.meta.name, uid=pod.meta.uid)
    return Identity(
        uid=GangUid(pod.meta.uid),
        namespace=pod.meta.namespace,
        name=unique_name(pod.meta.name, pod.meta.uid),
        size=1,
        needed=1,
        workload=alone,
    )


def setting(pod: Pod, key: str) -> str:
    """Return what a pod says of its gang; a label goes before an annotation of the same key."""
    return pod.meta.labels.get(key) or pod.meta.annotations.get(key, "")


def declared_size(pod: Pod) -> int | None:
    """Return `muster.dev/gang-size`, or None when it is absent or not a size (the webhook has refused that)."""
    text = setting(pod, names.GANG_SIZE)
    # Python refuses to read a number of thousands of digits.
    if not text.isascii() or not text.isdigit() or len(text) > len(str(LARGEST_SIZE)):
        return None
    size = int(text)
    return size if 1 <= size <= LARGEST_SIZE else None


def unique_name(name: str, uid: str) -> str:
    """Return a name for the gang of a workload: the workload's own, and five letters that tell its lives apart.

    Offline a manifest has no UID yet, and its name alone is the clearest.
    """
    if not uid:
        return name
    return f"{name[:247]}-{hashlib.sha256(uid.encode()).hexdigest()[:5]}"


def _named(pod: Pod, named: str, snapshot: Snapshot) -> Identity:
    record = snapshot.gangs.get(f"{pod.meta.namespace}/{named}")
    written = record.size if record is not None and record.written_by_user else None
    size = written or declared_size(pod) or 0
    uid = f"{pod.meta.namespace}/{named}"
    return Identity(uid=GangUid(uid), namespace=pod.meta.namespace, name=named, size=size, needed=size or UNKNOWN_SIZE)


def _may_be_of(pod: Pod, owner: Owner, job: Job | None) -> bool:
    """Whether a pod may be a Job's that it names. No Job makes pods in another namespace.

    The API server takes any text for an owner's UID. One with a slash is that of a named gang, and of no Job.
    """
    return job.meta.namespace == pod.meta.namespace if job is not None else "/" not in owner.uid


def _of_job(pod: Pod, owner: Owner, job: Job | None) -> Identity:
    """Return the gang of a Job; while the Job itself is not seen yet, one that cannot be complete."""
    declared = declared_size(pod)
    size = declared or (0 if job is None else job.together)
    needed = declared or (UNKNOWN_SIZE if job is None else _left_of(job))
    return Identity(
        uid=GangUid(owner.uid),
        namespace=pod.meta.namespace,
        name=unique_name(owner.name, owner.uid),
        size=size,
        needed=needed,
        workload=owner,
    )


def _left_of(job: Job) -> int:
    """Return how many pods the Job still runs at a time: fewer than its parallelism towards its end."""
    left = job.together if job.completions is None else min(job.parallelism, job.completions - job.succeeded)
    return max(left, 1)


def _group(found: _Members, placement: Placement | None, record: Gang | None) -> Group:
    alive = tuple(found.alive)
    everyone = alive or tuple(found.ended)
    since = record.queued_since if record is not None and record.queued_since else min(p.meta.created for p in everyone)
    return Group(
        identity=found.identity,
        queue=QueueName(everyone[0].queue),
        priority=max(pod.priority for pod in everyone),
        queued_since=since,
        pods=alive,
        ended=tuple(found.ended),
        placement=placement,
        record=record,
    )


def _order(pod: Pod) -> tuple[datetime, str, str]:
    return pod.meta.created, pod.meta.name, pod.meta.uid
