"""What depends on kube-scheduler's profile: selectors, the cluster state, plans, verdicts, meters and their health."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from admission.accounting.books import Book
from admission.api.kubernetes.nodes import Resources
from admission.api.muster.gangs import Charge
from admission.api.muster.meters import Meter
from admission.api.snapshot import Snapshot
from admission.api.values.names import MeterName, QueueName
from admission.cycle.state.inputs import CycleInputs
from admission.dra import compatibility
from admission.dra.allocator import nominated
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters, meter_health
from admission.dra.metering.device_meters import Meters
from admission.dra.metering.meter_health import MeterHealth
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.incremental import Memo
from admission.lifecycle.transitions import ObservedAllocations
from admission.scheduling.cache.device_companions import DeviceCompanions
from admission.scheduling.cache.member_usage import MemberUsage
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import VerdictCache


@dataclass(slots=True)
class SchedulingCache:
    """The caches. One per leader. Each checks its own inputs, except for kube-scheduler's profile.

    Rule: caches that depend on the profile are dropped only by `use_profile`; nothing outside replaces a cache.
    """

    _profile: SchedulerProfile = compatibility.NEWEST
    _selectors: Selectors = field(init=False)
    _cluster: ClusterState | None = field(init=False)
    _plans: PlanCache = field(init=False)
    _verdicts: VerdictCache = field(init=False)
    _health: MeterHealth = field(init=False)
    _members: MemberUsage = field(default_factory=MemberUsage)
    _usage: Memo[None, Mapping[QueueName, Charge]] = field(default_factory=Memo)
    _companions: DeviceCompanions = field(default_factory=DeviceCompanions)
    _meters: Memo[None, Meters] = field(default_factory=lambda: Memo(by_value=True))
    _observed: ObservedAllocations | None = None

    def __post_init__(self) -> None:
        self._reset(self._profile)

    @property
    def profile(self) -> SchedulerProfile:
        """Return the profile of all that is cached."""
        return self._profile

    @property
    def selectors(self) -> Selectors:
        return self._selectors

    @property
    def cluster(self) -> ClusterState | None:
        """Return the cluster state that was built last."""
        return self._cluster

    @property
    def plans(self) -> PlanCache:
        """Return the planner's answers that may still hold."""
        return self._plans

    @property
    def verdicts(self) -> VerdictCache:
        """Return the verdicts on pending gangs that may still hold."""
        return self._verdicts

    @property
    def health(self) -> MeterHealth:
        """Return the meters' health on the devices that were evaluated so far."""
        return self._health

    def beside(self, snapshot: Snapshot) -> tuple[Resources, KindsOfUse]:
        """Return what pods request of nodes beside each device, in the mean, and the kinds of use of devices."""
        return self._companions.update(snapshot, self._selectors), self._companions.kinds_of_use(self._selectors)

    @property
    def members(self) -> MemberUsage:
        """Return what the members of queues use."""
        return self._members

    def use_profile(self, profile: SchedulerProfile | None) -> None:
        """Predict another kube-scheduler from now on, and drop what depends on it; None changes nothing."""
        if profile is not None and profile != self._profile:
            self._reset(profile)

    def _reset(self, profile: SchedulerProfile) -> None:
        self._profile = profile
        self._selectors = Selectors(profile.cel)
        self._cluster, self._health = None, meter_health.NOTHING
        self._plans, self._verdicts = PlanCache(), VerdictCache()

    def meters(self, meters: Mapping[MeterName, Meter]) -> Meters:
        """Return the meters, compiled."""
        return self._meters.get(None, (meters,), lambda: device_meters.compile_meters(meters.values()))

    def observe(self, snapshot: Snapshot, meters: Meters) -> ObservedAllocations:
        """Return the observed allocations."""
        self._observed = ObservedAllocations.from_snapshot(snapshot, meters, self._observed)
        return self._observed

    def check_meters(self, inputs: CycleInputs) -> None:
        """Evaluate the meters' CEL on more devices, as many as one cycle may."""
        snapshot = inputs.snapshot
        self._health = meter_health.check(
            inputs.meters, snapshot.slices, snapshot.classes, selectors=self._selectors, before=self._health
        )

    def build_cluster(self, inputs: CycleInputs, book: Book) -> ClusterState:
        """Return the cluster state with all granted gangs as planned."""
        before, claims = self._cluster, inputs.observed.claims
        self._cluster = cluster_state.build(
            inputs.snapshot, book.placements.values(), profile=self._profile, before=before, claims=claims
        )
        if before is None or before.node_inventories is not self._cluster.node_inventories:
            self._selectors.keep(self._cluster.node_inventories)
        return self._cluster

    def usage(self, book: Book) -> Mapping[QueueName, Charge]:
        """Return the amount that queues have reserved and used, by meter."""
        return self._usage.get(None, (book.balances,), lambda: _usage(book))

    def predict_cluster(self, inputs: CycleInputs, book: Book, steps: int) -> ClusterState:
        """Return the cluster state with the devices that kube-scheduler is predicted to allocate to ungated pods."""
        return nominated.predict(self.build_cluster(inputs, book), selectors=self._selectors, steps=steps)


def _usage(book: Book) -> Mapping[QueueName, Charge]:
    return {queue: {meter: sum(use) for meter, use in meters.items()} for queue, meters in book.usage().items()}
