"""What one cycle did: the log that its steps write to, and the result that the loop gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission.api.muster.gangs import Evicted, GangReport
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold
from admission.cycle.outcome import Outcome
from admission.scheduling.checks.faults import Defect
from admission.workloads.gangs import Group


@dataclass(slots=True)
class CycleLog:
    """What steps note for the end of their cycle. Made when a cycle starts; steps only add to it."""

    placement_holds: dict[GangUid, Hold] = field(default_factory=dict)
    """Why gangs with a reservation could not be placed."""
    evicted: list[tuple[Group, Evicted]] = field(default_factory=list)
    """Gangs that could have run on and were taken back; of some no pod is left by the end of the cycle."""
    defects: list[Defect] = field(default_factory=list)
    """Failures of Muster itself, gang by gang."""
    budget_was_taken: bool = False
    """Whether another cluster took from a shared budget what this cycle was about to grant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """What a cycle found and did.

    granted: gangs granted in this cycle, in order. evicted: gangs that could have run on and were taken back.
    next_try: when something changes by time alone (a back-off, a start timeout or an interval between marks ends), by
    the wall clock; the time of the books is never behind it. behind: how far the wall clock is behind the books, whose
    time was used. unposted: entries that wait for the ledger's database. lag: the age of the oldest of them.
    protected: by driver that the settings name (`protection_conditions.EVERY` for all others), whether kube-scheduler
    leaves its devices to Muster. decisions: those that differ from what was decided before. defects: failures of Muster
    itself, gang by gang; other gangs are not affected.
    """

    gangs: tuple[GangReport, ...] = ()
    queues: tuple[QueueReport, ...] = ()
    conditions: tuple[ConditionReport, ...] = ()
    granted: tuple[GangUid, ...] = ()
    evicted: Mapping[GangUid, Evicted] = field(default_factory=dict)
    next_try: datetime | None = None
    behind: timedelta = timedelta(0)
    unposted: int = 0
    lag: timedelta = timedelta(0)
    protected: Mapping[str, bool] = field(default_factory=dict)
    decisions: tuple[Outcome, ...] = ()
    defects: tuple[Defect, ...] = ()
