"""The gangs of a snapshot: pods that belong together, with their open ledger entries and their Gang objects.

`gang_key` decides which gang a pod is in. But a pod that was granted a place stays in the gang of that place: its
labels and owners may change or disappear while it runs, and the ledger records what was granted.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Gang
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName, Uid
from admission.workloads import gang_key, succeeded
from admission.workloads.gang_key import UNKNOWN_SIZE, Identity
from admission.workloads.kinds import catalog, labels, registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A gang in a snapshot: its pods, its open ledger entries, and its Gang object.

    pods: those that have not ended and are not being deleted. ended: those that have succeeded or failed. waiting:
    those that are gated and have no seat. first_queued: its place in the order, which it gets again after an eviction.
    queued_since: its place now; for a running gang, that of the oldest pod that waits to join it. done_count: how many
    of the pods that it needs have ended and will not be replaced. is_complete: whether exactly its running pods fill
    all of its places, so that there is nothing to do for it.
    """

    identity: Identity
    queue: QueueName
    priority: int
    first_queued: datetime
    queued_since: datetime
    pods: tuple[Pod, ...]
    ended: tuple[Pod, ...] = ()
    placement: Placement | None = None
    record: Gang | None = None
    deadline: timedelta | None = None
    done_count: int = 0
    waiting: tuple[Pod, ...] = field(init=False, compare=False, repr=False)
    is_complete: bool = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        waiting = tuple(pod for pod in self.pods if pod.gated and not self._is_seated(pod))
        object.__setattr__(self, "waiting", waiting)
        seats = self.placement.seats if self.placement is not None else {}
        is_complete = 0 < len(seats) == len(self.pods) and all(
            pod.meta.uid in seats and _runs(pod) for pod in self.pods
        )
        object.__setattr__(self, "is_complete", is_complete)

    @property
    def key(self) -> str:
        return self.identity.key

    @property
    def uid(self) -> GangUid:
        return self.identity.uid

    @property
    def user(self) -> str:
        """Return the user who made the first waiting pod with a recorded maker."""
        return next((pod.user for pod in self.waiting if pod.user), "")

    @property
    def still_needed(self) -> int:
        """Return how many unfinished pods it needs; at least one."""
        most = self.identity.size if self.identity.elastic else self.identity.needed
        return max(min(self.identity.needed, most - self.done_count), 1)

    def without(self, pods: Collection[Pod]) -> "Group":
        """Return the gang without some of its pods."""
        removed = {pod.meta.uid for pod in pods}
        return replace(self, pods=tuple(pod for pod in self.pods if pod.meta.uid not in removed))

    @property
    def granted_pods(self) -> tuple[Pod, ...]:
        """Return the pods that have a seat but whose gate is still closed: granted, not yet placed."""
        return tuple(pod for pod in self.pods if pod.gated and self._is_seated(pod))

    @property
    def started(self) -> bool:
        """Whether the gang was admitted before; late pods then join it one by one."""
        return any(not pod.gated or self._is_seated(pod) for pod in self.pods)

    @property
    def runs(self) -> bool:
        """Whether as many of its pods as it needs have a place."""
        return self.started and len(self.pods) - len(self.waiting) >= self.still_needed

    def _is_seated(self, pod: Pod) -> bool:
        return self.placement is not None and pod.meta.uid in self.placement.seats


NO_SEATS: Mapping[Uid, GangUid] = {}
NOT_IDENTIFIED: Mapping[Uid, Identity] = {}


@dataclass(slots=True)
class _Members:
    """The pods of a gang. is_own: whether the identity comes from one of its pods, and not from the ledger alone."""

    identity: Identity
    is_own: bool
    alive: list[Pod] = field(default_factory=list)
    deadlines: list[timedelta | None] = field(default_factory=list)
    """Those of the pods in `alive`."""
    ended: list[Pod] = field(default_factory=list)


def groups(snapshot: Snapshot, placements: Mapping[GangUid, Placement], leaving: Collection[Uid] = ()) -> list[Group]:
    """Return every gang that has a pod in a queue, in no particular order.

    leaving: pods that were evicted but are not shown as being deleted yet.
    """
    seated = {pod: uid for uid, placement in placements.items() for pod in placement.seats}
    return groups_of(snapshot.pods.values(), snapshot, placements, leaving, seated)


def groups_of(
    pods: Iterable[Pod],
    snapshot: Snapshot,
    placements: Mapping[GangUid, Placement],
    leaving: Collection[Uid] = (),
    seated: Mapping[Uid, GangUid] = NO_SEATS,
    *,
    identities: Mapping[Uid, Identity] = NOT_IDENTIFIED,
) -> list[Group]:
    """Return the gangs of some pods, ignoring all others. The first pod of a gang determines its identity.

    seated: the gang of every pod that has a place. identities: of pods that were identified in this snapshot.
    """
    members_by_gang: dict[GangUid, _Members] = {}
    for pod in sorted(pods, key=_order):
        if not pod.queue or pod.mirror:
            continue
        identity = identities.get(pod.meta.uid) or gang_key.identify(pod, snapshot)
        gang = seated.get(pod.meta.uid, identity.uid)
        is_own = gang == identity.uid
        members = members_by_gang.get(gang)
        if members is None:
            own_identity = identity if is_own else _granted(identity, placements[gang], snapshot)
            members = members_by_gang[gang] = _Members(own_identity, is_own=is_own)
        elif is_own and not members.is_own:
            members.identity, members.is_own = identity, True
        if pod.finished:
            members.ended.append(pod)
        elif pod.meta.deleted is None and pod.meta.uid not in leaving:
            members.alive.append(pod)
            members.deadlines.append(min(filter(None, (pod.deadline, identity.deadline)), default=None))
    return [
        _group(members, placements.get(uid), snapshot)
        for uid, members in members_by_gang.items()
        if members.alive or (members.ended and members.identity.needed != UNKNOWN_SIZE)
    ]


def _granted(identity: Identity, placement: Placement, snapshot: Snapshot) -> Identity:
    """Return the gang in which a pod was granted a place, if the pod and its owners no longer identify it."""
    namespace, _, name = placement.gang.partition("/")
    record = snapshot.gangs.get(placement.gang)
    return replace(
        identity,
        uid=placement.gang_uid,
        namespace=namespace,
        name=name,
        size=len(placement.seats),
        needed=len(placement.seats),
        workload=record.workload if record is not None else None,
        unknown="",
        named_by="",
    )


def _group(members: _Members, placement: Placement | None, snapshot: Snapshot) -> Group:
    record = snapshot.gangs.get(members.identity.key)
    alive = tuple(members.alive)
    pods = alive or tuple(members.ended)
    since = record.queued_since if record is not None and record.queued_since else min(pod.meta.created for pod in pods)
    group = Group(
        identity=members.identity,
        queue=QueueName(pods[0].queue),
        priority=_priority(pods, snapshot.queues.get(QueueName(pods[0].queue)), record),
        first_queued=since,
        queued_since=since,
        pods=alive,
        ended=tuple(members.ended),
        placement=placement,
        record=record,
        deadline=registry.latest(members.deadlines),
        done_count=succeeded.done_count(members.identity, members.alive, members.ended, snapshot.jobs),
    )
    if not group.runs or not group.waiting:
        return group
    # If it kept its first place, a running elastic gang would precede all later gangs with whatever pods it adds.
    return replace(group, queued_since=min(pod.meta.created for pod in group.waiting))


def _priority(pods: Collection[Pod], queue: Queue | None, record: Gang | None) -> int:
    """Return the highest priority of the pods: of the class of the queue that a pod names, or else its own.

    Of classes only those of admitted pods count, if there are any: a pod that waits may be given another one. A class
    that the whole gang was given by request, as it was while the gang waited, counts in place of all of these.
    """
    classes = {one.name: one.value for one in queue.priority_classes} if queue is not None else {}
    if not classes:
        return max(pod.priority for pod in pods)
    requested = record.answered.priority_class if record is not None and record.answered is not None else ""
    if requested in classes:
        return classes[requested]
    admitted = [pod for pod in pods if not pod.gated] or pods
    return max(classes.get(labels.setting(pod, names.PRIORITY_CLASS), pod.priority) for pod in admitted)


def _runs(pod: Pod) -> bool:
    return pod.phase == "Running" and bool(pod.node) and not pod.gated


def _order(pod: Pod) -> tuple[datetime, str, str]:
    return pod.meta.created, pod.meta.name, pod.meta.uid


def subgroup_of(pod: Pod) -> str:
    """Return the name of a pod's subgroup; "" if it has none.

    It comes from the pod's own annotation, or else from its kind's name for its parts. A subgroup is only a name inside
    one gang, so the pod's word suffices: it gains no gang, quota or device by it. It matters only in gangs whose
    subgroups have a topology.
    """
    return next((name for read_subgroup in catalog.SUBGROUPS if (name := read_subgroup(pod))), "")
