"""The state of evictions: back-offs, causes, and evictions in progress.

All of it is derived from what is written (the gang's status, the ledger), so the next leader continues from there.
"""

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.pods import Pod
from admission.api.muster import gang_references
from admission.api.muster.gang_requests import Action, AnsweredRequest
from admission.api.muster.gangs import Charge, Evicted, Gang
from admission.api.muster.ledger_entries import Entry, Placement
from admission.api.muster.queues import Queue
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.api.values.reasons import EvictionReason
from admission.api.values.references import References
from admission.cycle.state.inputs import CycleInputs
from admission.incremental import Derived
from admission.lifecycle import refusals, requeue_backoff
from admission.lifecycle.eviction import BACKING_OFF, Eviction
from admission.lifecycle.refusals import Refusals
from admission.lifecycle.requeue_backoff import Backoff
from admission.quota.evicted_usage import EvictedUsage
from admission.scheduling.checks import replacement_slots
from admission.scheduling.checks.replacement_slots import Vacancies
from admission.workloads.gang_cache import GangCache, QueuePosition
from admission.workloads.gangs import Group

FORGET_AFTER = timedelta(hours=1)
"""How long a back-off outlives the pods of its gang, so that their controller has time to create new ones."""

Placements = Mapping[GangUid, Placement]


MAKE_ROOM = frozenset({EvictionReason.PREEMPTED, EvictionReason.RECLAIMED})
"""The causes after which a gang may evict others in turn."""


@dataclass(slots=True)
class _EvictedGang:
    """A gang that comes back. key: `namespace/name`. charge: what it had; None if that is not known.

    gone: when its last pod is gone, its grace period included. uid: None if no pod of it was seen since this leader
    began.
    """

    key: str
    queue: QueueName
    charge: Charge | None
    gone: datetime
    uid: GangUid | None
    position_key: str


@dataclass(slots=True)
class EvictedGangs:
    """The gangs that were evicted for others and come back: what they had, and until when that is left alone.

    A gang makes room for another one as a whole, and its controller makes its pods again only once the old ones are
    gone. Should the other one grow meanwhile on quota that is the evicted gang's own, this would take that back by
    evicting the other as a whole, and so in turn for ever (`quota.evicted_usage`).

    Rule: a gang is in it from `note`, or the first `follow` of a leader who finds it in the status of Gangs, until it
    runs again, nobody makes it any more, or its pods are late by its queue's `startTimeout`.
    """

    _gangs: dict[str, _EvictedGang] = field(default_factory=dict)
    _has_read: bool = False

    def note(self, group: Group, cause: EvictionReason | None, now: datetime) -> None:
        """Record the eviction of a gang that holds a place."""
        controllers = [pod.meta.controller for pod in group.pods if pod.meta.controller is not None]
        if cause not in MAKE_ROOM or group.placement is None or not controllers:
            return
        self._gangs[group.key] = _EvictedGang(
            group.key, group.queue, _charge(group.placement), now, group.uid, group.identity.position_key
        )

    def follow(
        self,
        inputs: CycleInputs,
        placements: Mapping[GangUid, Placement],
        evicted: Mapping[GangUid, Evicted],
        positions: Collection[str],
    ) -> None:
        """Forget those that run again or will not come.

        evicted: the gangs that were evicted and have not run again. positions: those kept for gangs that their
        controllers make again as other ones.
        """
        if not self._has_read:
            self._read(inputs, placements)
            self._has_read = True
        for one in self._gangs.values():
            seats = placements[one.uid].seats if one.uid is not None and one.uid in placements else {}
            pods = (inputs.snapshot.pods.get(uid) for uid in seats)
            one.gone = max(one.gone, *(pod.meta.deleted for pod in pods if pod is not None and pod.meta.deleted), EPOCH)
        over = [key for key, one in self._gangs.items() if self._is_over(one, inputs, evicted, positions)]
        for key in over:
            del self._gangs[key]

    def usage(self, queues: Mapping[QueueName, Queue]) -> tuple[EvictedUsage, ...]:
        """Return what each of them had, and until when its pods are waited for. queues: all."""
        known = ((one, queues.get(one.queue)) for one in self._gangs.values())
        return tuple(
            EvictedUsage(queue=one.queue, charge=one.charge, until=one.gone + queue.start_timeout)
            for one, queue in known
            if queue is not None
        )

    def _read(self, inputs: CycleInputs, placements: Mapping[GangUid, Placement]) -> None:
        uids = {placement.gang: uid for uid, placement in placements.items()}
        for key, record in inputs.snapshot.gangs.items():
            if record.evicted is None or record.evicted.reason not in MAKE_ROOM or key in self._gangs:
                continue
            charge, uid = record.charges or None, uids.get(key)
            at, position_key = record.evicted.at, record.position_key
            self._gangs[key] = _EvictedGang(key, record.queue, charge, at, uid, position_key)

    def _is_over(
        self,
        one: _EvictedGang,
        inputs: CycleInputs,
        evicted: Mapping[GangUid, Evicted],
        positions: Collection[str],
    ) -> bool:
        queue, record = inputs.snapshot.queues.get(one.queue), inputs.snapshot.gangs.get(one.key)
        if queue is None or inputs.now >= one.gone + queue.start_timeout:
            return True
        if one.uid is not None and one.uid not in evicted:
            return True
        if record is None:
            return one.uid not in inputs.by_uid
        # A successor under another UID has taken its position, and runs.
        is_succeeded = bool(one.position_key) and one.position_key not in positions
        return is_succeeded if one.uid is not None else record.evicted is None


@dataclass(slots=True)
class EvictionState:
    """The gangs that were taken back, are being taken back, or lack pods. One per leader.

    Rule: a gang is `ending` from `note` until `finish`, and has an entry in `evicted` during that time.
    `restore_backoffs` takes over what an earlier leader wrote, and drops what running or long deleted gangs do not
    need.
    """

    _gangs: GangCache
    """Knows which gangs exist, and keeps the place in the order for gangs that are recreated."""
    _backoffs: dict[GangUid, Backoff] = field(default_factory=dict)
    _workload_backoffs: dict[str, Backoff] = field(default_factory=dict)
    """Back-offs of gangs that their controller recreates under another UID, by their `Identity.position_key`."""
    _evicted: dict[GangUid, Evicted] = field(default_factory=dict)
    """Gangs that any leader evicted although they could have run on, until they run again."""
    _ending: set[GangUid] = field(default_factory=set)
    """Those of them that still have pods or slots."""
    _requeues: dict[GangUid, int] = field(default_factory=dict)
    """How often a gang could not be placed as planned since it last ran."""
    _sizes: dict[GangUid, int] = field(default_factory=dict)
    """By incomplete gang, how many slots it had when it was last complete, or when it started."""
    _partial: dict[GangUid, str] = field(default_factory=dict)
    """By gang of which some but not all pods were evicted, the reason."""
    _vacancies: Vacancies = field(default_factory=dict)
    """Slots that pods of running gangs have left."""
    _returning: EvictedGangs = field(default_factory=EvictedGangs)
    """Those that were evicted for others and come back."""
    _answered: dict[GangUid, AnsweredRequest] = field(default_factory=dict)
    """The last request of users about a gang that this leader has answered."""
    _restored: Mapping[GangUid, Group] = field(default_factory=dict)
    """The gangs whose statuses were last read."""
    _written: Derived[GangUid, Group, Group] = field(default_factory=lambda: Derived(_with_eviction))
    """Those of them whose status says that they were evicted."""
    _to_resume: Derived[Uid, Job, Job] = field(default_factory=lambda: Derived(_suspended_by_eviction))
    """The Jobs that were suspended to take their pods back, and not resumed yet."""

    @property
    def backoffs(self) -> Mapping[GangUid, Backoff]:
        return self._backoffs

    @property
    def evicted(self) -> Mapping[GangUid, Evicted]:
        return self._evicted

    @property
    def ending(self) -> Collection[GangUid]:
        return self._ending

    @property
    def unfinished(self) -> set[GangUid]:
        """Return the gangs whose eviction is in progress, for any cause."""
        return self._ending | self._partial.keys()

    @property
    def returning(self) -> EvictedGangs:
        """Return the gangs that were evicted for others and come back."""
        return self._returning

    @property
    def answered(self) -> Mapping[GangUid, AnsweredRequest]:
        return self._answered

    @property
    def vacancies(self) -> Vacancies:
        return self._vacancies

    # One eviction.

    def note_sizes(self, granted: Iterable[Group], placements: Placements) -> None:
        """Record the slots of gangs that start, lose a pod or are scaled, until they are complete again.

        granted: the gangs that have slots and are not complete.
        """
        self._partial = {uid: reason for uid, reason in self._partial.items() if uid in placements}
        placed = ((group.uid, group.placement) for group in granted)
        before = self._sizes
        self._sizes = {
            uid: before.get(uid, len(placement.seats))
            for uid, placement in placed
            if placement is not None and placement.seats
        }

    def size(self, gang: GangUid) -> int:
        """Return how many slots a gang had when it was last complete; a very large number if not known."""
        return self._sizes.get(gang, sys.maxsize)

    def note_partial(self, gang: GangUid, reason: str) -> None:
        self._partial[gang] = reason

    def clear_partial(self, gang: GangUid) -> None:
        self._partial.pop(gang, None)

    def partial_reason(self, gang: GangUid) -> str:
        """Return why some pods of a gang were evicted; empty if none were."""
        return self._partial.get(gang, "")

    def note(self, inputs: CycleInputs, eviction: Eviction) -> bool:
        """Record an eviction: its back-off, and its cause if the gang could have run on. Return whether it is new."""
        group, queue = eviction.group, inputs.snapshot.queues.get(eviction.group.queue)
        if group.identity.position_key:
            position = QueuePosition(since=group.first_queued, evicted_at=inputs.now)
            self._gangs.keep_position(group.identity.position_key, position)
        backs_off = eviction.timed_out and queue is not None and not self._is_repeated(eviction)
        if backs_off and queue is not None:
            self._back_off(
                *(inputs, group, queue, eviction.failure, eviction.references),
                cause=eviction.cause,
                refused=eviction.refusals,
            )
            if eviction.longest:
                self._backoffs[group.uid] = requeue_backoff.longest(self._backoffs[group.uid], queue, inputs.clock)
            if group.identity.position_key:
                self._workload_backoffs[group.identity.position_key] = self._backoffs[group.uid]
        if eviction.cause is None or group.uid in self._ending:
            return backs_off
        self._evicted[group.uid] = Evicted(
            reason=eviction.cause,
            message=eviction.reason,
            at=inputs.now,
            made_room_for=eviction.made_room_for,
            references=eviction.references,
        )
        self._ending.add(group.uid)
        self._returning.note(group, eviction.cause, inputs.now)
        return True

    def finish(self, gang: GangUid) -> Evicted | None:
        """Record that a gang has given everything back; return why it was evicted, if it could have run on."""
        if gang not in self._ending:
            return None
        self._ending.discard(gang)
        return self._evicted[gang]

    def note_requeue(
        self,
        inputs: CycleInputs,
        group: Group,
        reason: str,
        references: References = (),
        *,
        most: int,
        of_joining: bool = False,
        longest: bool = False,
    ) -> bool:
        """Count a failed placement of a gang. Return whether it backs off, as after more than `most`.

        of_joining: whether it runs on, and only pods that join it could not be placed. longest: as in `Eviction`.
        """
        times = self._requeues[group.uid] = self._requeues.get(group.uid, 0) + 1
        queue = inputs.snapshot.queues.get(group.queue)
        if times <= most or queue is None:
            return False
        self._back_off(inputs, group, queue, reason, references)
        backoff = replace(self._backoffs[group.uid], of_joining=of_joining)
        self._backoffs[group.uid] = requeue_backoff.longest(backoff, queue, inputs.clock) if longest else backoff
        return True

    def note_overdue(
        self, inputs: CycleInputs, group: Group, reason: str, since: datetime, *, longest: bool = False
    ) -> bool:
        """Record that pods that join a gang did not run in time. since: when their nodes were asked for.

        Return whether it is new: an earlier cycle may have begun to take them back. longest: as in `Eviction`.
        """
        backoff = self._backoffs.get(group.uid)
        if backoff is not None and backoff.of_joining and backoff.since >= since:
            return False
        return self.note_requeue(inputs, group, reason, most=0, of_joining=True, longest=longest)

    def _back_off(
        self,
        inputs: CycleInputs,
        group: Group,
        queue: Queue,
        failure: str,
        references: References,
        *,
        cause: EvictionReason | None = None,
        refused: Refusals = (),
    ) -> None:
        backoff = requeue_backoff.next_backoff(
            self._backoffs.get(group.uid),
            queue,
            clock=inputs.clock,
            since=inputs.now,
            failure=failure,
            cause=cause,
            refusals=refused,
        )
        self._backoffs[group.uid] = replace(backoff, references=references)

    def _is_repeated(self, eviction: Eviction) -> bool:
        """Return whether an earlier cycle began the same eviction but could not delete all pods."""
        backoff = self._backoffs.get(eviction.group.uid)
        placement = eviction.group.placement
        return backoff is not None and placement is not None and backoff.since >= placement.reserved_at

    def jobs_to_resume(self, jobs: Mapping[Uid, Job]) -> Collection[Job]:
        """Return the Jobs that were suspended to take their pods back. jobs: all."""
        self._to_resume.update(jobs)
        return self._to_resume.values.values()

    def note_answered(self, group: Group, answered: AnsweredRequest) -> None:
        """Record the answer to a request."""
        self._answered[group.uid] = answered

    def forget_backoff(self, group: Group) -> None:
        """Let a gang be tried again at once, on any node, as if it had never been evicted."""
        self._backoffs.pop(group.uid, None)
        self._workload_backoffs.pop(group.identity.position_key, None)
        self._requeues.pop(group.uid, None)

    # Slots that pods left.

    def note_released(self, placements: Placements, entries: Iterable[Entry]) -> None:
        """Record the slots that entries give back. placements: those before the entries."""
        self._vacancies = replacement_slots.after(self._vacancies, placements, entries)

    def fill(self, gang: GangUid, pods: Iterable[Pod]) -> None:
        """Drop the vacant slots that these pods have filled."""
        places = self._vacancies.get(gang)
        if places:
            self._vacancies = {**self._vacancies, gang: replacement_slots.without_filled(places, pods)}

    # What an earlier leader wrote.

    def restore_backoffs(self, inputs: CycleInputs, placements: Placements) -> None:
        """Take over what the status of Gangs says; drop gangs that run, or were deleted long ago.

        A gang that its controller recreates under another UID after an eviction continues the back-off of the old one.
        """
        self._gangs.drop_positions_before(inputs.now - FORGET_AFTER)
        if inputs.by_uid is not self._restored:
            self._read_records(inputs)
            self._restored = inputs.by_uid
        self._ending = {uid for uid in self._ending if uid in placements and placements[uid].seats}
        absent = [uid for uid in (*self._evicted, *self._backoffs) if uid not in self._gangs and uid not in placements]
        for uid in absent:
            if uid in self._evicted and inputs.now - self._evicted[uid].at > FORGET_AFTER:
                del self._evicted[uid]
            if uid in self._backoffs and inputs.clock - self._backoffs[uid].next_try > FORGET_AFTER:
                del self._backoffs[uid]
        self._answered = {
            uid: one
            for uid, one in self._answered.items()
            if uid in self._gangs or uid in placements or inputs.now - one.at <= FORGET_AFTER
        }
        self._drop_outdated_refusals(inputs)
        clock = inputs.clock
        self._backoffs = {uid: requeue_backoff.bounded(one, clock) for uid, one in self._backoffs.items()}
        bounded = ((key, requeue_backoff.bounded(one, clock)) for key, one in self._workload_backoffs.items())
        self._workload_backoffs = {key: one for key, one in bounded if clock - one.next_try <= FORGET_AFTER}
        self._returning.follow(inputs, placements, self._evicted, self._gangs.positions)

    def _drop_outdated_refusals(self, inputs: CycleInputs) -> None:
        """Let gangs try nodes again on which something has changed since kube-scheduler refused their pods."""

        def with_valid(one: Backoff) -> Backoff:
            left = refusals.valid(one.refusals, inputs.snapshot, inputs.now) if one.refusals else ()
            return one if len(left) == len(one.refusals) else replace(one, refusals=left)

        self._backoffs = {uid: with_valid(one) for uid, one in self._backoffs.items()}
        self._workload_backoffs = {key: with_valid(one) for key, one in self._workload_backoffs.items()}

    def _read_records(self, inputs: CycleInputs) -> None:
        self._written.update(inputs.by_uid)
        noted = (*self._written.values, *self._evicted, *self._backoffs, *self._requeues)
        keys = {*self._workload_backoffs, *self._gangs.positions}
        in_line = [uid for uid, one in inputs.by_uid.items() if one.identity.position_key in keys] if keys else ()
        for group in [inputs.by_uid[uid] for uid in dict.fromkeys((*in_line, *noted)) if uid in inputs.by_uid]:
            self._restore_eviction(inputs, group)
            started = len(group.pods) - len(group.waiting)
            if started and sum(pod.phase == "Running" for pod in group.pods) == started:
                self._follow_running(inputs, group)
            elif group.uid not in self._backoffs and group.identity.position_key in self._workload_backoffs:
                self._backoffs[group.uid] = self._workload_backoffs[group.identity.position_key]
            elif group.uid not in self._backoffs and self._has_written_backoff(group) and group.record is not None:
                self._backoffs[group.uid] = self._written_backoff(inputs, group, group.record)
        self._requeues = {uid: times for uid, times in self._requeues.items() if uid in self._gangs}

    def _has_written_backoff(self, group: Group) -> bool:
        """Return whether the status has a back-off that no request has ended since it was written."""
        record, answered = group.record, self._answered.get(group.uid)
        if record is None or not record.evictions:
            return False
        is_seen = answered is None or (record.answered is not None and record.answered.id == answered.id)
        return is_seen or (answered is not None and answered.action is not Action.REQUEUE)

    def _follow_running(self, inputs: CycleInputs, group: Group) -> None:
        """Forget what a gang that runs needs no more: all, but for the back-off of pods that are still to join it.

        Their controller may pause before it makes them again.
        """
        backoff = self._backoffs.get(group.uid)
        if backoff is None and self._has_written_backoff(group) and group.record is not None:
            backoff = replace(self._written_backoff(inputs, group, group.record), of_joining=True)
        is_needed = backoff is not None and (group.waiting or inputs.clock - backoff.next_try <= FORGET_AFTER)
        if backoff is not None and is_needed and backoff.is_untried(group.placement):
            self._backoffs[group.uid] = backoff
        else:
            self._forget_running(group)

    def _forget_running(self, group: Group) -> None:
        self._backoffs.pop(group.uid, None)
        self._workload_backoffs.pop(group.identity.position_key, None)
        if group.uid not in self._ending:
            self._gangs.drop_position(group.identity.position_key)
        self._requeues.pop(group.uid, None)

    def _written_backoff(self, inputs: CycleInputs, group: Group, record: Gang) -> Backoff:
        """Return the back-off that an earlier leader wrote, with times by its clock."""
        evicted, queue = self._evicted.get(group.uid), inputs.snapshot.queues.get(group.queue)
        return Backoff(
            evictions=record.evictions,
            next_try=record.next_try or EPOCH,
            wait=requeue_backoff.wait_after(record.evictions, queue) if queue is not None else requeue_backoff.MAX_WAIT,
            cause=evicted.reason if evicted is not None and evicted.reason in BACKING_OFF else None,
            refusals=refusals.restored(record.refused, group, inputs.snapshot),
        )

    def _restore_eviction(self, inputs: CycleInputs, group: Group) -> None:
        """Take over from the status that a gang was or has to be evicted; drop that once the gang runs again."""
        uid, placement = group.uid, group.placement
        written = group.record.evicted if group.record is not None else None
        if written is not None and uid not in self._evicted:
            written = gang_references.evicted_by_name(written, inputs.snapshot.gangs)
        if written is not None and uid not in self._evicted:
            self._evicted[uid] = written
            if placement is not None and placement.seats and placement.reserved_at <= written.at <= inputs.now:
                self._ending.add(uid)
        # An elastic gang runs with fewer than all of its pods.
        admitted = len(group.pods) - len(group.waiting)
        runs = group.runs and sum(pod.phase == "Running" for pod in group.pods) == admitted
        if runs and placement is not None and uid not in self._ending:
            self._evicted.pop(uid, None)


def _suspended_by_eviction(_: Uid, job: Job) -> Job | None:
    return job if job.suspended and names.REQUEUED in job.meta.annotations else None


def _with_eviction(_: GangUid, group: Group) -> Group | None:
    record = group.record
    return group if record is not None and (record.evicted is not None or record.evictions) else None


def _charge(placement: Placement) -> Charge:
    total: dict[MeterName, int] = {}
    for holding in placement.holdings.values():
        for meter, amount in holding.charge.items():
            total[meter] = total.get(meter, 0) + amount
    return total
