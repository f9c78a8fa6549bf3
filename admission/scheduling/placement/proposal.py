"""The proposal for a gang: a plan and its placement mode.

If Muster picks the devices, the plan may use any of them; if kube-scheduler does, only those that it will choose. Which
applies depends on the drivers that the plan uses, so it is known only with a plan: if kube-scheduler has to carry out a
plan with free devices, it is made again under first fit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.nodes import Resources
from admission.api.muster.queues import PlacementMode
from admission.api.values.reasons import Hold, HoldReason
from admission.dra import gang_planner
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import Meters
from admission.dra.planner import no_plan
from admission.dra.planner.candidate_nodes import CapacityBound
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests.gang_request import Affordable, Choice, Plan, PodDemand, Topology
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.placement import count_only, mode
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.protection import NOTHING, Protections
from admission.workloads import topology as workloads_topology

HOLDS = {
    no_plan.Kind.BUSY: HoldReason.DEVICES_BUSY,
    no_plan.Kind.INFEASIBLE: HoldReason.NO_FEASIBLE_PLACEMENT,
    no_plan.Kind.FATAL: HoldReason.NO_FEASIBLE_PLACEMENT,
    no_plan.Kind.OVER_QUOTA: HoldReason.QUOTA_EXCEEDED,
    no_plan.Kind.STEPS_ENDED: HoldReason.SEARCH_LIMIT,
    no_plan.Kind.UNPRICED: HoldReason.NOT_SIMULATED,
    no_plan.Kind.POOL_INCOMPLETE: HoldReason.POOL_INCOMPLETE,
    no_plan.Kind.NO_DOMAIN: HoldReason.NO_FEASIBLE_PLACEMENT,
}


@dataclass(frozen=True, slots=True)
class Proved(Hold):
    """There is no plan, whatever the quota: only a change of nodes or of devices in use can help.

    capacity_bound: the proof by counting, to be repeated in other cluster states, if there is one.
    """

    capacity_bound: CapacityBound | None = field(default=None, compare=False, repr=False)


def _hold(answer: NoPlan, why: NoPlan) -> Hold:
    """Return the hold for an answer. why: the answer with its explanation."""
    if answer.kind is no_plan.Kind.INFEASIBLE:
        return Proved(HOLDS[why.kind], why.message, why.details, why.references, answer.capacity_bound)
    return Hold(HOLDS[why.kind], why.message, why.details, why.references)


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A plan and the mode in which it is carried out."""

    plan: Plan
    chosen: Chosen


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """The inputs that all plans of a cycle share. steps: of each search."""

    selectors: Selectors
    steps: int
    meters: Meters = device_meters.NONE
    protection: Protections = field(default=NOTHING)
    mute: bool = False
    """Whether explanations are not needed: they cost more than the answers."""
    beside: Resources = field(default_factory=dict)
    """What pods request beside each device, in the mean: see `gang_planner.plan`."""
    kinds_of_use: KindsOfUse = ()
    """To what devices are to stay of use: the same."""

    def propose(
        self,
        demands: Sequence[PodDemand],
        cluster: ClusterState,
        wanted: PlacementMode,
        affordable: Affordable,
        topology: Topology | None = None,
    ) -> Proposal | Hold:
        """Return how a gang may start now, or why it may not. wanted: the requested placement."""
        if wanted is PlacementMode.COUNT:
            if topology is not None and topology.is_required:
                return workloads_topology.hold_for_count(topology)
            return self._counted(demands, cluster, affordable, topology)
        if self._may_choose(demands, wanted):
            anywhere = [replace(one, kept_to=None) if one.kept_to is not None else one for one in demands]
            found = self._planned(anywhere, cluster, wanted, affordable, Choice.FREE, topology)
            # If no choice of devices has a plan, that of kube-scheduler has none either.
            if isinstance(found, Hold) or found.chosen.mode is PlacementMode.ALLOCATE:
                return found
            held = self._planned(demands, cluster, wanted, affordable, Choice.FIRST_FIT, topology)
            # Not Proved: there is a plan with free devices, and another one might be allocated by Muster.
            return Hold(held.reason, held.message, held.details, held.references) if isinstance(held, Proved) else held
        return self._planned(demands, cluster, wanted, affordable, Choice.FIRST_FIT, topology)

    def capacity_bound(
        self, demands: Sequence[PodDemand], cluster: ClusterState, wanted: PlacementMode
    ) -> CapacityBound | None:
        """Return the proof by counting that there is no plan, whatever the quota; None if there can be none."""
        if wanted is PlacementMode.COUNT:
            return None
        choice = Choice.FREE if self._may_choose(demands, wanted) else Choice.FIRST_FIT
        return gang_planner.capacity_bound(
            demands,
            cluster,
            meters=self.meters,
            selectors=self.selectors,
            choice=choice,
            beside=self.beside,
            kinds_of_use=self.kinds_of_use,
        )

    def _may_choose(self, demands: Sequence[PodDemand], wanted: PlacementMode) -> bool:
        """Return whether to plan with a free choice of devices: pods without claims have none to choose."""
        return mode.may_allocate(wanted, self.protection) and any(demand.claims for demand in demands)

    def _counted(
        self, demands: Sequence[PodDemand], cluster: ClusterState, affordable: Affordable, topology: Topology | None
    ) -> Proposal | Hold:
        plan = count_only.plan(demands, cluster, self.meters)
        if isinstance(plan, Hold):
            return plan
        shortfall = affordable(plan.charge)
        if shortfall is not None:
            return Hold(HoldReason.QUOTA_EXCEEDED, shortfall.message, shortfall.details)
        barred = count_only.barred(demands, cluster, self.protection, self.selectors)
        if barred is not None:
            return barred
        is_ignored = topology is not None and topology.is_asked
        plan = replace(plan, apart=workloads_topology.IGNORED_BY_COUNT if is_ignored else "")
        chosen = mode.mode(PlacementMode.COUNT, plan.holdings, self.protection)
        return chosen if isinstance(chosen, Hold) else Proposal(plan=plan, chosen=chosen)

    def _planned(  # noqa: PLR0917 - the same
        self,
        demands: Sequence[PodDemand],
        cluster: ClusterState,
        wanted: PlacementMode,
        affordable: Affordable,
        choice: Choice,
        topology: Topology | None,
    ) -> Proposal | Hold:
        answer = gang_planner.plan(
            demands,
            cluster,
            meters=self.meters,
            selectors=self.selectors,
            steps=self.steps,
            affordable=affordable,
            choice=choice,
            topology=topology,
            mute=self.mute,
            beside=self.beside,
            kinds_of_use=self.kinds_of_use,
        )
        if isinstance(answer, NoPlan) and self.mute:
            return _hold(answer, answer)
        if isinstance(answer, NoPlan):
            why = gang_planner.diagnose(
                answer,
                demands,
                cluster,
                meters=self.meters,
                selectors=self.selectors,
                steps=self.steps,
                choice=choice,
                topology=topology,
            )
            return _hold(answer, why)
        chosen = mode.mode(wanted, answer.holdings, self.protection)
        return chosen if isinstance(chosen, Hold) else Proposal(plan=answer, chosen=chosen)
