"""The gangs of successive snapshots: only gangs with changes are grouped again.

A gang whose pods, owners, Gang object and placement are the same objects as before is also the same object, so values
derived from it stay valid. `gangs` alone defines what the gangs are.

Dependencies are tracked by hand instead of by `admission.incremental`: a gang depends on its pods, on objects that its
pods name and on the ledger at once, and which pods it has depends on all three.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import PriorityClass, Queue
from admission.api.snapshot import Snapshot, Version, changed
from admission.api.values.names import GangUid, Uid
from admission.incremental import Derived
from admission.workloads import gang_key, gangs
from admission.workloads.gang_key import Identity
from admission.workloads.gangs import Group


class QueuePosition(NamedTuple):
    """A retained place in the queue order. since: when its gang began to wait. evicted_at: when it was evicted."""

    since: datetime
    evicted_at: datetime


@dataclass(slots=True)
class GangCache:
    """The gangs of the last snapshot. One per leader.

    Rule: `groups` alone derives the gangs; a position is kept from `keep_position` until it is dropped.
    """

    _positions: dict[str, QueuePosition] = field(default_factory=dict)
    """The places of evicted gangs whose controllers create them again as other gangs, by `Identity.position_key`."""
    _snapshot: Snapshot = field(default_factory=Snapshot)
    _placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    _leaving: frozenset[Uid] = frozenset()
    _gangs: dict[Uid, GangUid] = field(default_factory=dict)
    """The gang of every pod in a queue."""
    _members: dict[GangUid, dict[Uid, None]] = field(default_factory=dict)
    _inputs: dict[Uid, tuple[str, ...]] = field(default_factory=dict)
    """The keys of the objects on which such a pod's gang depends (`Identity.inputs`)."""
    _dependent: dict[str, dict[Uid, None]] = field(default_factory=dict)
    """By such a key, the pods whose gangs depend on the object."""
    _seated: dict[Uid, GangUid] = field(default_factory=dict)
    """The gang in which each pod was granted a place."""
    _identified: dict[Uid, Identity] = field(default_factory=dict)
    """The pods that the present call of `groups` has identified; a gang of them is built by the same identities."""
    _groups: Version[GangUid, Group] = field(default_factory=Version)
    _by_record: dict[str, set[GangUid]] = field(default_factory=dict)
    """By the name of a Gang object, `namespace/name`, the gangs that have it."""
    _all_groups: tuple[Group, ...] = ()
    _granted: Derived[GangUid, Group, Group] = field(default_factory=lambda: Derived(_granted))
    _requested: Derived[GangUid, Group, Group] = field(default_factory=lambda: Derived(_requested))
    _noted: Derived[GangUid, Group, Group] = field(default_factory=lambda: Derived(_noted))

    def __contains__(self, gang: GangUid) -> bool:
        """Return whether the gang was there at the last call of `groups`."""
        return gang in self._groups

    @property
    def positions(self) -> Mapping[str, QueuePosition]:
        return self._positions

    @property
    def granted(self) -> tuple[Group, ...]:
        """Return the gangs with a place that do not run in full, as of the last call of `groups`: few, beside all."""
        return tuple(self._granted.values.values())

    @property
    def requested(self) -> tuple[Group, ...]:
        """Return the gangs whose objects have a request of a user, as of the last call of `groups`."""
        return tuple(self._requested.values.values())

    @property
    def noted(self) -> Mapping[GangUid, Group]:
        """Return the gangs of which the status says what their devices do, as of the last call of `groups`."""
        return self._noted.values

    @property
    def by_uid(self) -> Mapping[GangUid, Group]:
        """Return all gangs as of the last call of `groups`, in a version that knows what differs from earlier ones."""
        return self._groups

    def keep_position(self, key: str, position: QueuePosition) -> None:
        """Keep a place for gangs that are built from now on. key: their `Identity.position_key`."""
        self._positions[key] = position

    def drop_position(self, key: str) -> None:
        self._positions.pop(key, None)

    def drop_positions_before(self, evicted_at: datetime) -> None:
        """Drop the places of gangs that were evicted before a time."""
        self._positions = {key: one for key, one in self._positions.items() if one.evicted_at >= evicted_at}

    def groups(
        self, snapshot: Snapshot, placements: Mapping[GangUid, Placement], leaving: Collection[Uid] = ()
    ) -> tuple[Group, ...]:
        """Return every gang, as `gangs.groups` does."""
        changed_gangs = self._changed_gangs(snapshot, placements, frozenset(leaving))
        self._snapshot, self._placements, self._leaving = snapshot, placements, frozenset(leaving)
        if changed_gangs:
            self._groups = Version(self._groups)
            for uid in changed_gangs:
                self._rebuild(uid)
            self._all_groups = tuple(self._groups.values())
            self._granted.update(self._groups)
            self._requested.update(self._groups)
            self._noted.update(self._groups)
        self._identified.clear()
        return self._all_groups

    def _changed_gangs(
        self, snapshot: Snapshot, placements: Mapping[GangUid, Placement], leaving: frozenset[Uid]
    ) -> set[GangUid]:
        """Return the gangs to build again, and record which pods they have now."""
        before, changed_gangs = self._snapshot, set[GangUid]()
        pods = changed(before.pods, snapshot.pods)
        regrouped = dict.fromkeys(
            (*pods, *self._pods_with_changed_owners(pods, snapshot), *self._pods_with_changed_seats(placements))
        )
        for uid in pods:
            changed_gangs |= self._remove_pod(uid)
        record_changed = set[GangUid]()
        for key in changed(before.gangs, snapshot.gangs):
            record_changed |= {GangUid(key), *self._by_record.get(key, ())}
        for gang in record_changed & self._members.keys():
            changed_gangs.add(gang)
            regrouped |= self._members[gang]
        for uid in regrouped:
            pod = snapshot.pods.get(uid)
            if pod is not None:
                changed_gangs |= self._add_pod(pod, snapshot)
        changed_gangs |= set(changed(self._placements, placements)) & self._members.keys()
        changed_gangs |= self._gangs_of_changed_classes(snapshot)
        changed_gangs |= {self._gangs[uid] for uid in leaving ^ self._leaving if uid in self._gangs}
        return changed_gangs

    def _gangs_of_changed_classes(self, snapshot: Snapshot) -> set[GangUid]:
        """Return the gangs of queues whose priority classes have changed."""
        before, after = self._snapshot.queues, snapshot.queues
        queues = {name for name in changed(before, after) if _classes(before.get(name)) != _classes(after.get(name))}
        return {uid for uid, group in self._groups.items() if group.queue in queues} if queues else set()

    def _pods_with_changed_owners(self, pods: Iterable[Uid], snapshot: Snapshot) -> Iterator[Uid]:
        """Yield the pods whose gang or its size may differ because an object above them changed.

        They are identified again. pods: the changed pods, which may be owners themselves.
        """
        before = self._snapshot
        if before.unwatched != snapshot.unwatched or before.malformed != snapshot.malformed:
            yield from self._gangs
            return
        input_keys: list[str] = [*pods, *changed(before.jobs, snapshot.jobs)]
        for kind, objects in snapshot.parents.items():
            for key in changed(before.parents.get(kind, {}), objects):
                input_keys += (key, gang_key.input_key(kind, key))
        for input_key in input_keys:
            yield from self._dependent.get(input_key, ())

    def _pods_with_changed_seats(self, placements: Mapping[GangUid, Placement]) -> Iterator[Uid]:
        """Record granted and released places, and yield the pods concerned."""
        for uid in changed(self._placements, placements):
            before, after = self._placements.get(uid), placements.get(uid)
            old, new = before.seats if before else {}, after.seats if after else {}
            if old is new:
                continue
            for pod in old.keys() - new.keys():
                if self._seated.get(pod) == uid:
                    del self._seated[pod]
                    yield pod
            for pod in new.keys() - old.keys():
                self._seated[pod] = uid
                yield pod

    def _remove_pod(self, uid: Uid) -> set[GangUid]:
        gang = self._gangs.pop(uid, None)
        if gang is None:
            return set()
        del self._members[gang][uid]
        for input_key in self._inputs.pop(uid, ()):
            self._dependent[input_key].pop(uid, None)
            if not self._dependent[input_key]:
                del self._dependent[input_key]
        return {gang}

    def _add_pod(self, pod: Pod, snapshot: Snapshot) -> set[GangUid]:
        if not pod.queue or pod.mirror:
            return set()
        previous = self._remove_pod(pod.meta.uid)
        identity = self._identified[pod.meta.uid] = gang_key.identify(pod, snapshot)
        gang = self._seated.get(pod.meta.uid, identity.uid)
        if identity.inputs:
            self._inputs[pod.meta.uid] = identity.inputs
            for input_key in identity.inputs:
                self._dependent.setdefault(input_key, {})[pod.meta.uid] = None
        self._gangs[pod.meta.uid] = gang
        self._members.setdefault(gang, {})[pod.meta.uid] = None
        return {gang, *previous}

    def _rebuild(self, uid: GangUid) -> None:
        """Build one gang again."""
        before = self._groups.get(uid)
        if before is not None:
            self._groups.drop(uid)
            self._forget_record(before.key, uid)
        members = self._members.get(uid, {})
        if not members:
            self._members.pop(uid, None)
            return
        pods = (self._snapshot.pods[pod] for pod in members)
        known, granted = self._identified, (self._placements, self._leaving, self._seated)
        for group in gangs.groups_of(pods, self._snapshot, *granted, identities=known):
            self._groups.put(uid, self._in_position(group))
            self._by_record.setdefault(group.key, set()).add(uid)

    def _in_position(self, group: Group) -> Group:
        """Return a gang in the place of its predecessor, until its own Gang object has a place."""
        position = self._positions.get(group.identity.position_key)
        if position is None or (group.record is not None and group.record.queued_since is not None):
            return group
        since = min(position.since, group.first_queued)
        is_joining = group.runs and group.waiting
        return replace(group, first_queued=since, queued_since=group.queued_since if is_joining else since)

    def _forget_record(self, key: str, uid: GangUid) -> None:
        gangs_of_record = self._by_record[key]
        gangs_of_record.discard(uid)
        if not gangs_of_record:
            del self._by_record[key]


def _requested(_: GangUid, group: Group) -> Group | None:
    return group if group.record is not None and group.record.request is not None else None


def _noted(_: GangUid, group: Group) -> Group | None:
    record = group.record
    return group if record is not None and (record.idle is not None or record.memory is not None) else None


def _granted(_: GangUid, group: Group) -> Group | None:
    return group if group.placement is not None and not group.is_complete else None


def _classes(queue: Queue | None) -> tuple[PriorityClass, ...]:
    return () if queue is None else queue.priority_classes
