"""The last decisions, statuses and outcomes, so that only changes are reported."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.api.muster.gangs import Evicted, GangReport, Phase, RecordedHold
from admission.api.muster.status_reports import QueueReport
from admission.api.snapshot import Snapshot, changed as changed_keys
from admission.api.values import reasons, references
from admission.api.values.names import GangUid
from admission.api.values.reasons import Denial
from admission.api.values.references import EVERYWHERE
from admission.cycle.hold_log import DueHold, HoldLog
from admission.cycle.outcome import Kind, Outcome
from admission.cycle.state.inputs import CycleInputs
from admission.incremental import Memo
from admission.scheduling.checks import budget
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.checks.faults import Defect
from admission.status import queue
from admission.status.gang import StatusInputs
from admission.status.gang_cache import GangStatusCache
from admission.status.queue import QueueStatusCache
from admission.workloads.gangs import Group

RESYNC = timedelta(minutes=1)
"""How often unchanged statuses are written again, since another client may have changed them."""

RESYNC_GANGS = 1_000
"""About how many gangs each resync writes, since each status is compared with the stored one."""

STEADY = timedelta(minutes=1)
"""How long the numbers of a budget's shortage are not updated, since they change every second."""


ReportedOutcome = tuple[Kind, str]
"""The kind and reason last reported of a held gang."""


@dataclass(slots=True)
class StatusState:
    """The decisions and statuses of this leader. One per leader.

    Rule: a decision stands until a different one is made; a status is pending until it is written.
    """

    _holds: HoldLog = field(default_factory=HoldLog)
    _decisions: dict[GangUid, Decision] = field(default_factory=dict)
    """The last decision about each pending gang."""
    _decided_groups: Mapping[GangUid, Group] = field(default_factory=dict)
    """The gangs that these decisions are about."""
    _is_decided: bool = False
    """Whether they are those of the last cycle, which may have ended before they were kept."""
    _steady_until: dict[GangUid, datetime] = field(default_factory=dict)
    """By gang that a budget cannot pay for, until when its numbers are not updated."""
    _gangs: GangStatusCache = field(default_factory=GangStatusCache)
    _queue_cache: QueueStatusCache = field(default_factory=QueueStatusCache)
    _queues: Memo[None, tuple[QueueReport, ...]] = field(default_factory=lambda: Memo(by_value=True))
    _pending: dict[str, GangReport] = field(default_factory=dict)
    """The statuses of gangs that are still to be written, by name."""
    _resync_at: datetime | None = None
    _resync_round: int = 0

    @property
    def decisions(self) -> Mapping[GangUid, Decision]:
        return self._decisions

    @property
    def gangs(self) -> tuple[GangReport, ...]:
        """Return the status of every gang."""
        return self._gangs.gangs

    @property
    def groups(self) -> Mapping[GangUid, Group]:
        """Return the gangs that these statuses are about."""
        return self._gangs.groups

    def due_holds(self, changed: Iterable[GangReport], now: datetime) -> list[DueHold]:
        """Return the holds that have to be emitted. changed: the gangs whose status changed."""
        return self._holds.due(changed, self.groups, now, recorded_hold=self._recorded_hold)

    def _recorded_hold(self, uid: GangUid) -> RecordedHold | None:
        """Return the hold in the status of a Gang, which this leader or the one before has written."""
        group = self.groups.get(uid)
        return group.record.recorded_hold if group is not None and group.record is not None else None

    @property
    def next_hold(self) -> datetime | None:
        """Return when the next hold has to be emitted, though nothing changes."""
        return self._holds.next_new

    def begin_decisions(self) -> bool:
        """Begin the decisions of a cycle. Return whether those of the cycle before were kept."""
        was_decided, self._is_decided = self._is_decided, False
        return was_decided

    def keep_decisions(self, inputs: CycleInputs, decisions: Iterable[Decision]) -> set[GangUid]:
        """Keep the last decision about every pending gang; return the gangs whose decision has changed."""
        changed: set[GangUid] = set()
        for made in decisions:
            decision = self._steady(made, inputs.now)
            uid, before = decision.group.uid, self._decisions.get(decision.group.uid)
            if before is None or not decision.is_same_as(before):
                self._decisions[uid] = decision
                changed.add(uid)
        for uid in {*changed, *changed_keys(self._decided_groups, inputs.by_uid)}:
            group = inputs.by_uid.get(uid)
            if group is None or not group.waiting:
                self._decisions.pop(uid, None)
                self._steady_until.pop(uid, None)
        self._decided_groups, self._is_decided = inputs.by_uid, True
        return changed

    def make_gangs(
        self, groups: Mapping[GangUid, Group], decided: Collection[GangUid], basis: StatusInputs, defects: list[Defect]
    ) -> list[GangReport]:
        """Return the statuses that changed. decided: gangs whose decision changed."""
        return self._gangs.refresh(groups, decided, basis, defects)

    def make_queues(self, basis: StatusInputs) -> tuple[QueueReport, ...]:
        """Return the status of every queue."""
        snapshot = basis.snapshot
        inputs = (
            *(snapshot.queues, snapshot.meters, snapshot.malformed, basis.tree, basis.book),
            *(self._gangs.version, basis.budgets, basis.protections, basis.refused, basis.scheduler),
        )
        return self._queues.get(
            None, inputs, lambda: (*self._queue_cache.refresh(self._gangs.tally, basis), *_malformed_queues(snapshot))
        )

    def due(self, changed: Iterable[GangReport], now: datetime, *, is_complete: bool) -> list[GangReport]:
        """Return the statuses to be written: changed and pending ones, and at each resync some others.

        The first resync has all gangs. is_complete: whether the book is; otherwise only statuses of pending gangs are
        written, since the others depend on the ledger.
        """
        if self._resync_at is None or now >= self._resync_at:
            known = self._gangs.gangs
            rounds = max(-(-len(known) // RESYNC_GANGS), 1) if self._resync_at is not None else 1
            self._pending |= {report.key: report for report in known[self._resync_round % rounds :: rounds]}
            self._resync_round += 1
            self._resync_at = now + RESYNC
        self._pending |= {report.key: report for report in changed}
        due = [report for report in self._pending.values() if is_complete or report.phase is Phase.PENDING]
        for report in due:
            del self._pending[report.key]
        return due

    def note_failed(self, reports: Sequence[GangReport]) -> None:
        """Keep statuses that could not be written as pending; newer ones take precedence."""
        self._pending = {**{report.key: report for report in reports}, **self._pending}

    def _steady(self, decision: Decision, now: datetime) -> Decision:
        """Return a decision with the numbers reported before, if only those of a budget have changed within `STEADY`.

        They change every second while anything runs, which is not worth a status update and an Event each time.
        """
        uid = decision.group.uid
        before = self._decisions.get(uid)
        is_steady = now < self._steady_until.get(uid, now)
        if is_steady and before is not None and budget.is_same_hold(before.outcome, decision.outcome):
            return replace(decision, outcome=before.outcome)
        self._steady_until[uid] = now + STEADY
        return decision


@dataclass(slots=True)
class OutcomeLog:
    """The kind and reason last reported of each held gang. One per leader.

    A held gang is decided about again in every cycle. Its outcome is reported when the hold begins and when its reason
    changes, but not when only the numbers in its message do.

    Rule: `new_outcomes` alone changes it, once a cycle; a gang that is no longer held has no entry.
    """

    _reported: dict[GangUid, ReportedOutcome] = field(default_factory=dict)

    def new_outcomes(
        self,
        decisions: Iterable[Decision],
        statuses: Iterable[GangReport],
        evicted: Iterable[tuple[Group, Evicted]],
        groups: Mapping[GangUid, Group],
        now: datetime,
    ) -> tuple[Outcome, ...]:
        """Return the new outcomes of a cycle. decisions, statuses: of this cycle. groups: all gangs."""
        admitted = [_admitted(one.group, one.outcome, now) for one in decisions if isinstance(one.outcome, Grant)]
        evicted_now = [_evicted(group, what) for group, what in evicted]
        waiting = [outcome for status in statuses if (outcome := self._waiting(status)) is not None]
        if len(self._reported) > len(groups):
            self._reported = {uid: said for uid, said in self._reported.items() if uid in groups}
        return (*admitted, *evicted_now, *waiting)

    def _waiting(self, status: GangReport) -> Outcome | None:
        """Return the outcome of a held gang, unless it was reported already."""
        hold = status.hold
        if hold is None:
            self._reported.pop(status.uid, None)
            return None
        kind = Kind.REFUSED if isinstance(hold, Denial) else Kind.HELD
        if self._reported.get(status.uid) == (kind, hold.reason):
            return None
        self._reported[status.uid] = kind, hold.reason
        hold = reasons.for_reader(hold, EVERYWHERE)
        return Outcome(
            kind=kind,
            gang=status.key,
            uid=status.uid,
            queue=status.queue,
            reason=hold.reason,
            message=hold.message,
            details=hold.details,
        )


def _malformed_queues(snapshot: Snapshot) -> list[QueueReport]:
    return [
        queue.malformed(name, str(error))
        for (kind, name), error in sorted(snapshot.malformed.items())
        if kind == "Queue"
    ]


def _admitted(group: Group, grant: Grant, now: datetime) -> Outcome:
    return Outcome(
        kind=Kind.ADMITTED,
        gang=group.key,
        uid=group.uid,
        queue=group.queue,
        message=references.words(grant.chosen.reason, grant.chosen.references, EVERYWHERE),
        pods=len(grant.plan.pods),
        charge=grant.plan.charge,
        user=group.user,
        waited=None if group.started else max(timedelta(0), now - group.first_queued),
    )


def _evicted(group: Group, what: Evicted) -> Outcome:
    return Outcome(
        kind=Kind.EVICTED,
        gang=group.key,
        uid=group.uid,
        queue=group.queue,
        reason=what.reason,
        message=references.words(what.message, what.references, EVERYWHERE),
        made_room_for=what.made_room_for,
    )
