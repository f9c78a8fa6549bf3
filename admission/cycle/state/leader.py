"""The leader's ports, settings and state during its term.

Each part of the state owns its fields and keeps its rule; a step of the cycle is given the parts that it uses, by name.
The whole `Leader` is seen only by `cycle.composition`, which wires the steps, by `cycle.cycle`, which runs them, and by
the loop that runs the cycles.
"""

from dataclasses import dataclass, field

from admission import default_ports
from admission.accounting.memory_use import MemoryUse
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.meta import EPOCH
from admission.api.muster.ledger_entries import Placement
from admission.api.values.names import Uid
from admission.cycle.executor import BackgroundExecutor
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.fences import FenceState
from admission.cycle.state.in_flight import InFlight, RequestState, ScaleDownState
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.pending_pods import PendingPods
from admission.cycle.state.queues import QueueRegistry
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.status import OutcomeLog, StatusState
from admission.cycle.state.term import CycleSettings, Term
from admission.cycle.state.usage_history import UsageHistory
from admission.dra.state import incremental
from admission.incremental import Derived, Inverted
from admission.lifecycle import transitions
from admission.lifecycle.dirty import DirtyGangs
from admission.ports import (
    CapacityRequests,
    Claims,
    Fences,
    Ledger,
    Nodes,
    Pods,
    Queues,
    Reports,
    Scheduler,
    Templates,
    Traces,
    View,
    Workloads,
)
from admission.review.caches import ReviewCaches
from admission.scheduling.backfill.expected_end import ExpectedEnds
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.capacity.arrival_times import ArrivalTimes
from admission.scheduling.capacity.expected_nodes import ExpectedNodes
from admission.scheduling.capacity.pool_bounds import PoolBounds
from admission.scheduling.capacity.seat_moves import Turns
from admission.scheduling.preemption.nominations import Nominations
from admission.scheduling.preemption.victim_searches import VictimSearches
from admission.status.device_allocations import DeviceAllocations
from admission.status.idle_gangs import IdleGangs
from admission.status.later_waves import LaterWaves
from admission.status.node_shapes import ShapeStatus
from admission.status.nodes_needed import NodesNeededState
from admission.status.outside_queues import OutsideQueues
from admission.workloads.gang_cache import GangCache


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The ports that a cycle uses."""

    view: View
    pods: Pods
    claims: Claims
    workloads: Workloads
    reports: Reports
    ledger: Ledger
    scheduler: Scheduler = default_ports.NEWEST
    fences: Fences = field(default_factory=default_ports.NoFences)
    queues: Queues = default_ports.NO_QUEUE_FINALIZER
    templates: Templates = field(default_factory=default_ports.FixedTemplates)
    requests: CapacityRequests = field(default_factory=default_ports.NoAutoscaler)
    nodes: Nodes = field(default_factory=default_ports.NoAutoscaler)
    traces: Traces = default_ports.UNTRACED


@dataclass(slots=True, kw_only=True)
class ProcessState:
    """The state that one process keeps through all of its terms.

    Rule: a part is never replaced. Only the loop that runs the cycles calls `fall_behind` and `catch_up`, around the
    wait for a confirmed view.
    """

    executor: BackgroundExecutor = field(default_factory=BackgroundExecutor)
    pending: PendingPods = field(default_factory=PendingPods)
    """The pods that suspended workloads will create."""
    _is_behind: bool = field(default=False, init=False)

    @property
    def is_behind(self) -> bool:
        """Return whether the last term ended before the view was confirmed."""
        return self._is_behind

    def fall_behind(self) -> None:
        """Note that the view is to be confirmed, in case the term ends before it is."""
        self._is_behind = True

    def catch_up(self) -> None:
        """Note that the view is confirmed."""
        self._is_behind = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The state of one leader. A part is never replaced."""

    ports: Ports
    term: Term
    settings: CycleSettings
    process: ProcessState
    mirror: LedgerMirror
    fences: FenceState
    queues: QueueRegistry
    evictions: EvictionState
    in_flight: InFlight
    gangs: GangCache
    scheduling: SchedulingCache
    statuses: StatusState
    outcomes: OutcomeLog = field(default_factory=OutcomeLog)
    dirty: DirtyGangs = field(default_factory=DirtyGangs)
    """The gangs in the ledger that have to be checked, since something of them changed."""
    claim_users: Inverted[Placement, Uid, Uid] = field(default_factory=lambda: Inverted(incremental.claim_users))
    """By claim, the pods with a slot that use it."""
    unreserved: Derived[str, Claim, Claim] = field(default_factory=lambda: Derived(transitions.unreserved))
    """The claims that Muster allocated and no pod has reserved."""
    expected_ends: ExpectedEnds = field(default_factory=ExpectedEnds)
    backfill: Backfill = field(default_factory=lambda: Backfill(RunningGangs(EPOCH)))
    nominations: Nominations = field(default_factory=Nominations)
    searches: VictimSearches = field(default_factory=VictimSearches)
    policies: ReviewCaches = field(default_factory=ReviewCaches)
    """ClaimPolicies, compiled."""
    outside: OutsideQueues = field(default_factory=OutsideQueues)
    """The devices that pods outside queues hold."""
    allocations: DeviceAllocations | None = None
    """The devices of allocated claims; None if they are not exported."""
    idle: IdleGangs = field(default_factory=IdleGangs)
    """Which gangs leave their devices idle."""
    memory: MemoryUse = field(default_factory=MemoryUse)
    """Which gangs use more memory than was asked for."""
    later_waves: LaterWaves = field(default_factory=LaterWaves)
    """Why pods that workloads make later never fit."""
    node_needs: NodesNeededState = field(default_factory=NodesNeededState)
    """What held gangs need of nodes that are not there."""
    seat_turns: Turns = field(default_factory=Turns)
    """Whose turn it is of gangs that wait behind a fence for nodes that came."""
    expected_nodes: ExpectedNodes = field(default_factory=ExpectedNodes)
    """Which nodes came for gangs that they were asked for."""
    pool_bounds: PoolBounds = field(default_factory=PoolBounds)
    """What NodePools let come of shapes."""
    arrivals: ArrivalTimes = field(default_factory=ArrivalTimes)
    """How long nodes have taken to come."""
    requests: RequestState = field(default_factory=RequestState)
    """The ProvisioningRequests that were made and are not seen yet."""
    scale_down: ScaleDownState = field(default_factory=ScaleDownState)
    """Which nodes autoscalers are kept from taking away."""
    shapes: ShapeStatus = field(default_factory=ShapeStatus)
    """What is said of NodeShapes."""

    @classmethod
    def build(
        cls,
        *,
        ports: Ports,
        actor: str,
        epoch: int,
        settings: CycleSettings | None = None,
        process: ProcessState | None = None,
        allocations: DeviceAllocations | None = None,
        idle: IdleGangs | None = None,
    ) -> "Leader":
        """Return a leader that has read nothing yet.

        allocations: None if no metrics of devices are exported. idle: None if nothing is known of their use.
        """
        term, gangs = Term(actor=actor, epoch=epoch), GangCache()
        return cls(
            ports=ports,
            term=term,
            settings=settings or CycleSettings(),
            process=process or ProcessState(),
            mirror=LedgerMirror(ports.ledger, term, UsageHistory(ports.ledger)),
            fences=FenceState(),
            queues=QueueRegistry(),
            evictions=EvictionState(gangs),
            in_flight=InFlight(),
            gangs=gangs,
            scheduling=SchedulingCache(),
            statuses=StatusState(),
            allocations=allocations,
            idle=idle or IdleGangs(),
        )
