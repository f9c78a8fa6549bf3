"""The last decisions and statuses, so that only changes are reported."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.status_reports import QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.cycle import events
from admission.cycle.outcome import OutcomeLog
from admission.cycle.state.inputs import CycleInputs
from admission.incremental import Memo
from admission.scheduling.checks import budget
from admission.scheduling.checks.chain import Decision
from admission.scheduling.checks.faults import Defect
from admission.status import queue
from admission.status.gang import StatusInputs
from admission.status.gang_cache import GangStatusCache
from admission.workloads.gangs import Group

RESYNC = timedelta(minutes=1)
"""How often unchanged statuses are written again, since another client may have changed them."""

RESYNC_GANGS = 1_000
"""About how many gangs each resync writes, since each status is compared with the stored one."""

STEADY = timedelta(minutes=1)
"""How long the numbers of a budget's shortage are not updated, since they change every second."""


@dataclass(slots=True)
class StatusState:
    """The decisions and statuses of this leader. One per leader.

    Rule: a decision stands until a different one is made; a status is pending until it is written.
    """

    reported: dict[GangUid, events.Reported] = field(default_factory=dict)
    """What was last reported of each gang in an Event; kept by `events.gangs_held`."""
    outcomes: OutcomeLog = field(default_factory=OutcomeLog)
    _decisions: dict[GangUid, Decision] = field(default_factory=dict)
    """The last decision about each pending gang."""
    _decided_groups: tuple[Group, ...] = ()
    """The gangs that these decisions are about."""
    _is_decided: bool = False
    """Whether they are those of the last cycle, which may have ended before they were kept."""
    _steady_until: dict[GangUid, datetime] = field(default_factory=dict)
    """By gang that a budget cannot pay for, until when its numbers are not updated."""
    _gangs: GangStatusCache = field(default_factory=GangStatusCache)
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
        if self._decided_groups is not inputs.groups:
            waiting = {group.uid for group in inputs.groups if group.waiting}
            for uid in self._decisions.keys() - waiting:
                del self._decisions[uid]
            self._steady_until = {uid: until for uid, until in self._steady_until.items() if uid in waiting}
        self._decided_groups, self._is_decided = inputs.groups, True
        return changed

    def make_gangs(
        self, groups: tuple[Group, ...], decided: Collection[GangUid], basis: StatusInputs, defects: list[Defect]
    ) -> list[GangReport]:
        """Return the statuses that changed. decided: gangs whose decision changed."""
        return self._gangs.refresh(groups, decided, basis, defects)

    def make_queues(self, basis: StatusInputs) -> tuple[QueueReport, ...]:
        """Return the status of every queue."""
        snapshot = basis.snapshot
        inputs = (
            *(snapshot.queues, snapshot.meters, snapshot.malformed, basis.tree, basis.book),
            *(self._gangs.version, basis.budgets, basis.protections, basis.refused),
        )
        return self._queues.get(
            None, inputs, lambda: (*queue.queues(self._gangs.tally, basis), *_malformed_queues(snapshot))
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


def _malformed_queues(snapshot: Snapshot) -> list[QueueReport]:
    return [
        queue.malformed(name, str(error))
        for (kind, name), error in sorted(snapshot.malformed.items())
        if kind == "Queue"
    ]
