"""The results of one cycle: the log that its steps write to, and the result that the loop gets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission.api.muster.gangs import Evicted, GangReport
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold
from admission.cycle.outcome import Outcome
from admission.dra.compatibility import SchedulerProfile
from admission.scheduling.checks.faults import Defect
from admission.status.device_allocations import AllocationsByClaim
from admission.workloads.gangs import Group


@dataclass(slots=True)
class CycleLog:
    """The log of one cycle, read at its end. Rule: steps only add to it, and set `budget_was_taken`."""

    placement_holds: dict[GangUid, Hold] = field(default_factory=dict)
    """Why gangs with a reservation could not be placed."""
    evicted: list[tuple[Group, Evicted]] = field(default_factory=list)
    """Gangs that were evicted although they could have run on; some have no pods left at the end of the cycle."""
    defects: list[Defect] = field(default_factory=list)
    """Unexpected exceptions, by gang."""
    budget_was_taken: bool = False
    """Whether another cluster took what this cycle was about to grant from a shared budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """The result of a cycle.

    granted: gangs granted in this cycle, in order. evicted: gangs that were evicted although they could have run on.
    next_try: when something changes by time alone (a back-off, a start timeout or an interval between marks ends), by
    the wall clock, which is never ahead of the ledger's time. behind: how far the wall clock is behind the ledger's
    time. unposted: entries that wait for the ledger's database. lag: the age of the oldest of them. protected: by
    driver that the settings name (`protection_conditions.EVERY` for all others), whether kube-scheduler leaves its
    devices to Muster. decisions: the new outcomes. defects: unexpected exceptions, by gang; other gangs are not
    affected. outside: by metered class, the devices that pods outside every queue hold. allocations: the devices of
    every allocated claim, if they are exported; a new mapping only if one changed. scheduler: the kube-scheduler
    that was predicted; None if its release is older than every known one. groups, snapshot: what the gangs are made of.
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
    outside: Mapping[str, int] = field(default_factory=dict)
    allocations: AllocationsByClaim = field(default_factory=dict)
    scheduler: SchedulerProfile | None = field(default_factory=SchedulerProfile)
    groups: Mapping[GangUid, Group] = field(default_factory=dict, repr=False, compare=False)
    snapshot: Snapshot = field(default_factory=Snapshot, repr=False, compare=False)
