"""What a leader works with during its term, and what one cycle gathers and finds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission import ports
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.owners import Parent
from admission.api.muster.gangs import Evicted, GangReport
from admission.api.muster.ledger_entries import BudgetShare, Entry
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import Hold
from admission.cycle import events, profile as cycle_profile
from admission.cycle.outcome import Outcome, OutcomeLog
from admission.cycle.state.assumed_claims import AssumedClaims
from admission.cycle.state.executor import BackgroundExecutor
from admission.cycle.state.pending_pods import PendingPods
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import meter_health
from admission.dra.metering.device_meters import Meters
from admission.dra.metering.meter_health import MeterHealth
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.incremental import Users
from admission.lifecycle.deleted_queues import Refusal
from admission.lifecycle.dirty import DirtyGangs
from admission.lifecycle.requeue_backoff import Backoff
from admission.lifecycle.transitions import ObservedAllocations
from admission.ports import Claims, Fences, Ledger, Pods, Queues, Reports, Scheduler, Templates, Traces, View, Workloads
from admission.quota import fair_share
from admission.quota.budgets import BudgetKey
from admission.quota.tree import Tree
from admission.review.caches import ReviewCaches
from admission.scheduling.backfill.expected_end import ExpectedEnds
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.running import RunningGangs
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import VerdictCache
from admission.scheduling.checks.chain import Decision
from admission.scheduling.checks.faults import Defect
from admission.scheduling.checks.replacement_slots import Vacancies
from admission.scheduling.placement import protection
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.protection import Protections
from admission.scheduling.placement.protection_conditions import Watch
from admission.scheduling.preemption import nominations
from admission.status.gang_cache import GangStatusCache
from admission.workloads.gang_cache import GangCache
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside, as a cycle needs it."""

    view: View
    pods: Pods
    claims: Claims
    workloads: Workloads
    reports: Reports
    ledger: Ledger
    scheduler: Scheduler = ports.NEWEST
    fences: Fences = field(default_factory=ports.NoFences)
    queues: Queues = ports.UNKEPT
    templates: Templates = field(default_factory=ports.KeptTemplates)
    traces: Traces = ports.UNTRACED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueStatusCache:
    """The statuses of all queues, and what they were made of."""

    inputs: tuple[object, ...]
    reports: tuple[QueueReport, ...]


@dataclass(slots=True, kw_only=True)
class ProcessState:
    """What one process has for all of its terms."""

    is_behind: bool = False
    """Whether it could not be confirmed in the last term that the view shows what an earlier leader has seen."""

    aside: BackgroundExecutor = field(default_factory=BackgroundExecutor)
    expecting: PendingPods = field(default_factory=PendingPods)
    """The pods that workloads will make which are held as a whole, as they were last seen."""


@dataclass(slots=True, kw_only=True)
class LeaderState:
    """What one leader works with.

    The book is what the ledger holds, and what of it waits in `unposted` for the database to be back.
    """

    ports: Ports
    actor: str
    epoch: int
    lasting: ProcessState = field(default_factory=ProcessState)
    steps: int = 50_000
    writes: int = 32
    book: Book = field(default_factory=Book)
    loaded: bool = False
    """Whether the book is what the ledger holds; it is read again when the outcome of a write is not known, or when
    somebody else has written."""
    ahead: bool = False
    """Whether the book was read while standing by, and is not this leader's yet: others may have written since."""
    known: bool = False
    """Whether the book was read and nothing of it is lost since, so that it can go on while the database is away."""
    away: bool = False
    """Whether the database did not answer in this cycle."""
    caught_up: bool = True
    """Whether the view shows all that an earlier leader may have seen. Until then nothing is concluded from what is not
    there: only gangs that the books do not know are let in, and nobody is released, taken back, evicted or told."""
    unposted: list[Entry] = field(default_factory=list)
    """What has happened and the ledger may not have yet, in order; the book has it already."""
    booked: dict[datetime, dict[QueueMeter, int]] = field(default_factory=dict)
    """Meter-seconds in the books from some moments on (where budgets' periods begin) up to their mark."""
    history: fair_share.UsageHistory | None = None
    """What queues have used before, up to the mark, for fair shares; None where it has to be read."""
    split: set[datetime] = field(default_factory=set)
    """Those of these moments that lay between two marks, so that the ledger has to be asked again."""
    overtaken: bool = False
    """Whether another cluster took from a shared budget in this cycle what this one was about to grant."""
    shares: tuple[BudgetShare, ...] | None = None
    """What this leader has last told of what it takes of shared budgets; None before it has."""
    elsewhere: dict[BudgetKey, int] = field(default_factory=dict)
    """What other clusters have taken of shared budgets."""
    profile: SchedulerProfile = cycle_profile.NEWEST
    """Which kube-scheduler was last decided like; what is remembered below is of that one."""
    selectors: Selectors = field(default_factory=lambda: Selectors(cycle_profile.NEWEST.cel))
    meters: Meters = field(default_factory=Meters)
    """The meters of the last cycle, compiled; made anew only when a Meter has changed."""
    protection: Protections = protection.NOTHING
    """Which drivers' devices kube-scheduler leaves to Muster, as it was judged last."""
    judged: datetime = EPOCH
    """When that was, by the clock of the cycle."""
    watch: Watch = field(default_factory=Watch)
    """What was seen of others who allocate, too."""
    guarded: frozenset[str] = frozenset()
    """Of which drivers it was last told that their devices are protected."""
    vacant: Vacancies = field(default_factory=dict)
    """Places that pods have left of gangs that run, as this leader has seen it."""
    chosen: dict[GangUid, Chosen] = field(default_factory=dict)
    """How the gangs that this leader has let in were placed, and why."""
    queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    """The queues of the last cycle."""
    gone: Mapping[QueueName, Queue] = field(default_factory=dict)
    """Queues that this leader has seen go; what they still use counts where they were."""
    tree: Tree | None = None
    """The tree of all of these."""
    refused: dict[str, Refusal] = field(default_factory=dict)
    """Queues that are deleted and unused, and that the finalizer could not be taken from."""
    kept: dict[QueueName, str] = field(default_factory=dict)
    """Queues that the finalizer was put on, or would not take, with the version that they had then."""
    cluster: ClusterState | None = None
    """The world of the last cycle; what has not changed since is taken from it."""
    health: MeterHealth = meter_health.NOTHING
    """What the meters' CEL says of the devices that are there, as far as they have been looked at."""
    census: GangCache = field(default_factory=GangCache)
    """The gangs as they were last counted."""
    recalled: tuple[Group, ...] = ()
    """The gangs whose records were last looked at for what an earlier leader wrote there."""
    observed: ObservedAllocations | None = None
    """What was last seen of what the books are about."""
    dirty: DirtyGangs = field(default_factory=DirtyGangs)
    """The gangs in the books about which something changed."""
    users: Users = field(default_factory=Users)
    """The pods with a seat that use each claim."""
    plans: PlanCache = field(default_factory=PlanCache)
    """The planner's holds that may still stand."""
    rest: VerdictCache = field(default_factory=VerdictCache)
    """What was found of the gangs that wait, as far as it may still stand."""
    expected_ends: ExpectedEnds = field(default_factory=ExpectedEnds)
    """Who has devices, and until when."""
    reserve: Backfill = field(default_factory=lambda: Backfill(RunningGangs(EPOCH)))
    """What the heads of the queues are promised."""
    remembered: ReviewCaches = field(default_factory=ReviewCaches)
    """The ClaimPolicies, compiled."""
    decisions: dict[GangUid, Decision] = field(default_factory=dict)
    """What was last decided of each gang that waits."""
    kept_of: tuple[Group, ...] = ()
    """The gangs whose decisions these are."""
    is_decided: bool = False
    """Whether these are the decisions of the last cycle; not where it has ended before they were kept."""
    fresh: dict[GangUid, datetime] = field(default_factory=dict)
    """Until when the numbers need not be told anew of gangs that a budget cannot pay for."""
    backoffs: dict[GangUid, Backoff] = field(default_factory=dict)
    lines: dict[str, Backoff] = field(default_factory=dict)
    """The back-offs of gangs that their controller makes anew as other gangs, by what these have in common."""
    evicted: dict[GangUid, Evicted] = field(default_factory=dict)
    """Gangs that were let in and taken back, by this leader or an earlier one, until they run again."""
    ending: set[GangUid] = field(default_factory=set)
    """Those of these that are still to be taken back, or of which some pods are."""
    returned: dict[GangUid, int] = field(default_factory=dict)
    """How often gangs that have not run since could not be placed as planned."""
    assumed: AssumedClaims = field(default_factory=AssumedClaims)
    """Claims that this leader has written, as long as the view does not show it."""
    started: dict[Uid, Job | Parent] = field(default_factory=dict)
    """Workloads that this leader has resumed, as they were seen then: the view may not show it yet."""
    had: dict[GangUid, int] = field(default_factory=dict)
    """How many places gangs had that are not whole now, when they last were, or as they began."""
    opened: set[Uid] = field(default_factory=set)
    """Pods whose gate this leader has opened, though the view may not show it yet."""
    leaving: set[Uid] = field(default_factory=set)
    """Pods that this leader has evicted, though the view may not show it yet."""
    halfway: dict[GangUid, str] = field(default_factory=dict)
    """Gangs of which this leader has evicted some pods and others not yet, and why."""
    retelling: GangStatusCache = field(default_factory=GangStatusCache)
    """The statuses of all gangs, as they were last made."""
    untold: dict[str, GangReport] = field(default_factory=dict)
    """Statuses of gangs that are still to be written, by name."""
    tell_again: datetime | None = None
    """When statuses are handed over again: somebody may have written something else."""
    told_again: int = 0
    """How often that was done."""
    entitled: QueueStatusCache | None = None
    """The statuses of all queues, as they were last made."""
    preempting: nominations.Nominations = field(default_factory=nominations.Nominations)
    """What gangs are promised for which others were evicted."""
    told: dict[GangUid, events.Told] = field(default_factory=dict)
    """What was last said of each gang in Events."""
    teller: OutcomeLog = field(default_factory=OutcomeLog)
    """Tells each decision once, for the log and for those who count."""
    stuck: dict[GangUid, Hold] = field(default_factory=dict)
    """What keeps gangs from being placed that have their reservation, as of this cycle."""
    taken: list[tuple[Group, Evicted]] = field(default_factory=list)
    """Gangs that could go on and were taken back in this cycle; of some no pod is left by its end."""
    defects: list[Defect] = field(default_factory=list)
    """What Muster itself failed of in this cycle, gang by gang."""

    @property
    def aside(self) -> BackgroundExecutor:
        """Where what takes long is run."""
        return self.lasting.aside

    @property
    def expecting(self) -> PendingPods:
        """The pods that workloads will make which are held as a whole."""
        return self.lasting.expecting


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleInputs:
    """What one cycle is about.

    taken_back: gangs that it evicts, or has tried to. unready: why gangs are not planned in it that it has just taken
    back otherwise, or whose claims it could not free. anew: those of them that the next cycle plans anew, before
    anybody who is behind them gets what they gave back. now: by the books, whose time never goes back. clock: what the
    clock says: back-offs end by it, and whatever is tried again after a while.
    profile: which kube-scheduler to decide like; None for one that nothing is predicted for.
    """

    snapshot: Snapshot
    observed: ObservedAllocations
    tree: Tree
    meters: Meters
    now: datetime
    clock: datetime
    profile: SchedulerProfile | None = None
    groups: tuple[Group, ...] = ()
    taken_back: frozenset[GangUid] = frozenset()
    unready: Mapping[GangUid, Hold] = field(default_factory=dict)
    anew: frozenset[GangUid] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """What a cycle found and did."""

    gangs: tuple[GangReport, ...] = ()
    queues: tuple[QueueReport, ...] = ()
    conditions: tuple[ConditionReport, ...] = ()
    granted: tuple[GangUid, ...] = ()
    """Gangs granted in this cycle, in order."""
    evicted: Mapping[GangUid, Evicted] = field(default_factory=dict)
    """Gangs that could go on and were taken back in this cycle."""
    next_try: datetime | None = None
    """When something will change though nothing happens: a back-off, a start timeout or a time between marks ends. By
    the clock, which the time of the books is never behind."""
    behind: timedelta = timedelta(0)
    """How far the clock is behind the books; their time was decided by."""
    unposted: int = 0
    """Entries that wait for the ledger's database."""
    lag: timedelta = timedelta(0)
    """How old the first of these is."""
    protected: Mapping[str, bool] = field(default_factory=dict)
    """Whether kube-scheduler leaves the devices of a driver to Muster, by those of which the settings ask for that;
    `guarding.EVERY` for all others."""
    decisions: tuple[Outcome, ...] = ()
    """What was decided in this cycle, gang by gang, as far as it is not what was decided before."""
    defects: tuple[Defect, ...] = ()
    """What Muster itself failed of, gang by gang; the others were not kept waiting."""
