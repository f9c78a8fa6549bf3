"""The decision whether a gang may start now: an ordered chain of checks, then the plan.

`CHECKS` documents the policy. `cycle` calls `decide` for all gangs of a cycle. Nothing is written here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import PlacementMode, Queue
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, MeterName, Uid
from admission.api.values.reasons import Denial, Hold, HoldReason
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering.device_meters import Meters
from admission.dra.planner import device_kinds
from admission.dra.planner.device_kinds import Attempt
from admission.dra.requests.gang_request import Affordable, Plan, PodDemand, Shortfall, Topology, anything
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.state.cluster_state import ClusterState
from admission.lifecycle import refusals, requeue_backoff
from admission.lifecycle.refusals import Refusals
from admission.lifecycle.requeue_backoff import Backoff
from admission.quota import fair_share
from admission.quota.budgets import Balances, BudgetShortage
from admission.quota.evicted_usage import EvictedUsage
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import BY_RANK, Order
from admission.quota.tree import Tree
from admission.scheduling.cache import equivalence
from admission.scheduling.cache.equivalence import GangEquivalence
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import KINDS, PROOF, QUOTA, Verdict, VerdictCache
from admission.scheduling.checks import (
    budget,
    claim_readiness,
    completeness,
    demand,
    device_classes,
    elastic,
    faults,
    preference,
    queue_rules,
    replacement_slots,
)
from admission.scheduling.checks.faults import Defect, During
from admission.scheduling.checks.replacement_slots import Vacancies
from admission.scheduling.placement import alternatives, mode
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.proposal import Planner, Proved
from admission.scheduling.placement.protection import NOTHING, Protections
from admission.workloads import name_conflicts, topology as workloads_topology
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """What decisions change while they read the rules; those made on trial get some of their own."""

    plans: PlanCache = field(default_factory=PlanCache)
    """The planner's answers of earlier cycles that may still hold."""
    verdicts: VerdictCache = field(default_factory=VerdictCache)
    """The verdicts of earlier cycles that may still hold."""
    balances: Balances | None = None
    """The balances of budgets, charged with every grant. None if they are unknown; the caller then grants nothing."""
    defects: list[Defect] = field(default_factory=list)
    """Receives unexpected exceptions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The inputs that all decisions of a cycle share; they change only the workspace. backoffs: of evicted gangs.

    now: the ledger's time. clock: the system clock, if it is behind the ledger's time; back-offs end by it. profile:
    the kube-scheduler to predict; None if its choice of devices cannot be predicted. beside, kinds_of_use: see
    `Planner`.
    """

    snapshot: Snapshot
    tree: Tree
    meters: Meters
    selectors: Selectors
    backoffs: Mapping[GangUid, Backoff] = field(default_factory=dict)
    now: datetime
    clock: datetime | None = None
    steps: int
    beside: Mapping[str, int] = field(default_factory=dict)
    kinds_of_use: KindsOfUse = ()
    profile: SchedulerProfile | None = field(default_factory=SchedulerProfile)
    workspace: Workspace = field(default_factory=Workspace)
    sharing: fair_share.Rules = field(
        default_factory=lambda: fair_share.Rules(weights={}, half_lives={}, counted_half_lives={})
    )
    history: fair_share.UsageHistory | None = None
    """The past usage of queues, for fair shares."""
    order: Order = BY_RANK
    most_grants: int = 64
    """The most grants of a cycle; the gangs behind them are decided in the next one."""
    hold_beyond_limit: Hold | None = None
    """The hold for the gangs behind them, if nothing will be committed; else None."""
    protection: Protections = NOTHING
    """The drivers whose devices only Muster allocates."""
    unready: Mapping[GangUid, Hold] = field(default_factory=dict)
    """The holds of gangs whose claims are still being deallocated."""
    first_in_next: frozenset[GangUid] = frozenset()
    """Those of `unready` that the next cycle plans again; no gang behind them is planned before."""
    unfit: Mapping[GangUid, Hold | Denial] = field(default_factory=dict)
    """The holds of workloads whose pods cannot be derived from their templates."""
    vacant: Vacancies = field(default_factory=dict)
    """The nodes that pods of running gangs have left."""
    evicted: tuple[EvictedUsage, ...] = ()
    """What evicted gangs that come back had, on which no gang grows that runs."""
    mute: bool = False
    """Whether the planner's explanations are not needed."""

    def on_trial(self) -> "Rules":
        """Return the rules for a decision on trial: nothing is remembered of it or before it, and nothing explained."""
        return replace(self, workspace=Workspace(balances=self.workspace.balances), mute=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The inputs of the decision about one gang: the rules, and cluster state and usage after earlier grants."""

    rules: Rules
    group: Group
    queue: Queue
    cluster: ClusterState
    queue_usage: QueueUsage
    blocked_by: str = ""
    """The gang ahead of it in a strict queue that is held; empty if there is none."""
    demands: tuple[PodDemand, ...] = ()
    needed: Charge = field(default_factory=dict)
    """A lower bound on the gang's charge."""
    known: "Known | None" = None
    """Results for the gang under the same rules, if the caller has kept them."""
    terms: preference.Terms = preference.ANY
    """With the kind of devices that the demands are narrowed to."""
    allows: Affordable = anything
    """What the charge has to keep to besides."""
    only: str | None = None
    """The one kind to be tried, of those that the queue prefers; None for all of them."""

    @property
    def refusals(self) -> Refusals:
        """Return where kube-scheduler refused pods of the gang."""
        backoff = self.rules.backoffs.get(self.group.uid)
        return () if backoff is None else backoff.refusals


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Results that hold while neither the gang nor the rules change, for a gang held for quota, budget or devices.

    So all checks but those of quotas and budgets pass, and need not be repeated.
    """

    group: Group
    demands: tuple[PodDemand, ...]
    needed: Charge
    equivalent: GangEquivalence | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """A gang may start. claims: by pod, all claims it uses, shared and earlier allocated ones included.

    chosen: the placement mode and its reason. warnings: shortages of budgets that only warn. kind: of devices, of those
    that the queue prefers; empty if the claims left none open.
    """

    plan: Plan
    claims: Mapping[Uid, tuple[Uid, ...]]
    chosen: Chosen
    warnings: tuple[str, ...] = ()
    kind: str = ""


Outcome = Grant | Hold | Denial


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about one gang. position: its place among the pending gangs of its queue, from 1.

    needed: a lower bound on its charge, for the queue's pending amounts.
    """

    group: Group
    outcome: Outcome
    position: int
    needed: Charge = field(default_factory=dict)

    def is_same_as(self, other: "Decision") -> bool:
        """Return whether both decisions are equal, by identity of gang and outcome."""
        same = self.group is other.group and self.outcome is other.outcome and self.position == other.position
        return same and self.needed == other.needed


def decide(inputs: Inputs) -> Verdict:
    """Return the first objection of the chain, else the plan, with a lower bound on the charge.

    If an unexpected exception is raised, the gang is held, and the exception is added to the defects of the rules.
    """
    defects = inputs.rules.workspace.defects
    found = faults.guard(During.PLANNING, inputs.group.key, lambda: _decide(inputs), defects)
    return Verdict(group=inputs.group, outcome=faults.hold(defects[-1])) if found is None else found


def _decide(inputs: Inputs) -> Verdict:
    """Decide about all pending pods of a gang, or as many as may start; replacements go to the nodes of lost pods."""
    rules, group = inputs.rules, inputs.group

    def verdict_of(part: Group) -> Verdict:
        return _verdict(inputs if part is group else replace(inputs, group=part, known=None))

    found = elastic.largest(group, verdict_of)
    return replacement_slots.reassigned(found, rules.vacant.get(group.uid, ()), rules.snapshot.nodes, verdict_of)


def _verdict(inputs: Inputs) -> Verdict:
    inputs = with_demand(inputs)
    found = first_failure(inputs) or _preferred(inputs)
    outcome = found.outcome
    if inputs.refusals and found.by in {"", PROOF, KINDS} and isinstance(outcome, Hold):
        outcome = refusals.explained(outcome, inputs.refusals)
    open_meters = _open_meters(inputs) if found.by == QUOTA else found.open_meters
    return replace(found, outcome=outcome, needed=inputs.needed, open_meters=open_meters)


def with_demand(inputs: Inputs) -> Inputs:
    """Return the inputs with the demands of the gang's pods and a lower bound on its charge."""
    if inputs.known is not None:
        return replace(inputs, demands=inputs.known.demands, needed=inputs.known.needed)
    demands = refusals.avoiding(demand.demands(inputs.group, inputs.rules.snapshot), inputs.refusals)
    needed = demand.at_least(demands, inputs.rules.meters, inputs.rules.snapshot.nodes.values())
    return replace(inputs, demands=demands, needed=needed)


def is_short(inputs: Inputs, excluding: QueueUsage) -> bool:
    """Return whether a gang is held only since its quota does not fit `excluding`, while it fits otherwise.

    inputs: with demands (`asked`). False for gangs that may start with fewer pods.
    """
    name, needed = inputs.queue.name, inputs.needed
    if not elastic.is_whole(inputs.group) or excluding.fits(name, needed) or not inputs.queue_usage.fits(name, needed):
        return False
    return inputs.known is not None or all(check(inputs) is None for check in CHECKS[: -len(AFFORDABILITY)])


def first_failure(inputs: Inputs) -> Verdict | None:
    """Return the first objection of the chain; None if all checks pass."""
    checks = CHECKS if inputs.known is None else AFFORDABILITY
    objections = ((check.__name__, check(inputs)) for check in checks)
    found = next(((by, objection) for by, objection in objections if objection is not None), None)
    return Verdict(group=inputs.group, outcome=found[1], by=found[0], ahead=inputs.blocked_by) if found else None


def queue_is_active(inputs: Inputs) -> Hold | None:
    """Hold the gang while its queue is inactive."""
    return queue_rules.inactive(inputs.queue.name, inputs.rules.tree)


def queue_is_not_stopped(inputs: Inputs) -> Hold | None:
    """Hold the gang while its queue, or one above it, is stopped."""
    return queue_rules.stopped(inputs.queue.name, inputs.rules.tree)


def workload_yields_pods(inputs: Inputs) -> Hold | Denial | None:
    """Hold a gang for a suspended workload whose pods cannot be derived from its templates."""
    return inputs.rules.unfit.get(inputs.group.uid)


def pods_replaced_expected(inputs: Inputs) -> Hold | None:
    """Hold the pods of a resumed workload, whose nodes were granted to it before, until all of them exist."""
    return completeness.not_replaced(inputs.group)


def name_is_its_own(inputs: Inputs) -> Denial | None:
    """Refuse pods of several controllers under the name of one gang if they exceed its size."""
    return name_conflicts.denial(inputs.group, inputs.rules.snapshot)


def gang_is_complete(inputs: Inputs) -> Hold | None:
    """Hold a gang that has not started until all of its pods exist, without gates of others; late pods join it."""
    found = completeness.hold(inputs.group, inputs.rules.snapshot, inputs.queue.start_timeout)
    return found or completeness.gated(inputs.group)


def pods_agree(inputs: Inputs) -> Denial | None:
    """Refuse a gang whose pods name different queues, sizes or topologies: one queue pays for all of it."""
    return completeness.denial(inputs.group, inputs.queue)


def earlier_life_is_over(inputs: Inputs) -> Hold | None:
    """Hold a gang while an earlier gang of its name or workload still holds devices in another queue."""
    return queue_rules.held_elsewhere(inputs.queue.name, inputs.group)


def claims_are_free(inputs: Inputs) -> Hold | None:
    """Hold a gang whose grant was just taken back until its claims are observed as deallocated."""
    return inputs.rules.unready.get(inputs.group.uid)


def claims_exist(inputs: Inputs) -> Hold | None:
    """Hold the gang until every claim of its pods exists, may be used by them, and is not being deleted."""
    return claim_readiness.hold(inputs.group, inputs.rules.snapshot)


def backoff_is_over(inputs: Inputs) -> Hold | None:
    """Hold an evicted gang until its next try, and for good after its last one."""
    rules = inputs.rules
    backoff = rules.backoffs.get(inputs.group.uid)
    return None if backoff is None else requeue_backoff.hold(backoff, inputs.queue, rules.clock or rules.now)


def meters_are_known(inputs: Inputs) -> Hold | None:
    """Hold the gang while a quota or budget of its queues is of a Meter that does not exist."""
    return queue_rules.unknown_meter(inputs.queue.name, inputs.rules.tree, inputs.rules.snapshot)


def classes_exist(inputs: Inputs) -> Hold | None:
    """Hold a gang whose claims ask for a class that does not exist."""
    return device_classes.missing(inputs.demands, inputs.rules.snapshot)


def classes_are_metered(inputs: Inputs) -> Denial | None:
    """Refuse claims of a class that no meter counts, unless the queue allows them."""
    return device_classes.unmetered(inputs.demands, inputs.queue, inputs.rules.meters, inputs.rules.snapshot.classes)


def scheduler_is_known(inputs: Inputs) -> Hold | None:
    """Hold a gang that needs devices if nothing is known of the kube-scheduler that picks them."""
    return demand.unpredictable(inputs.demands) if inputs.rules.profile is None else None


def order_is_kept(inputs: Inputs) -> Hold | None:
    """Hold the gang behind an earlier one that is held, in a strict queue."""
    return queue_rules.behind(inputs.queue.name, inputs.blocked_by)


def quota_may_suffice(inputs: Inputs) -> Hold | None:
    """Hold the gang if even the lower bound on its charge exceeds its quota; the plan checks its real charge."""
    found = _shortage(inputs, inputs.needed)
    return None if found is None else queue_rules.over_quota(found, _open_meters(inputs))


def budget_may_suffice(inputs: Inputs) -> Hold | None:
    """Hold the gang if a budget cannot pay even the lower bound on its charge for its declared run time."""
    shortage = budget.shortage(inputs.rules.workspace.balances, inputs.group, inputs.needed)
    return None if shortage is None else budget.hold(shortage)


AFFORDABILITY: tuple[Callable[[Inputs], Hold | Denial | None], ...] = (quota_may_suffice, budget_may_suffice)

CHECKS: tuple[Callable[[Inputs], Hold | Denial | None], ...] = (
    queue_is_active,
    queue_is_not_stopped,
    pods_agree,
    earlier_life_is_over,
    workload_yields_pods,
    pods_replaced_expected,
    name_is_its_own,
    gang_is_complete,
    claims_exist,
    claims_are_free,
    backoff_is_over,
    meters_are_known,
    classes_are_metered,
    classes_exist,
    scheduler_is_known,
    order_is_kept,
    *AFFORDABILITY,
)
"""In order: cheap checks before expensive ones, and what the owner can fix before what only time can."""


def _preferred(inputs: Inputs) -> Verdict:
    """Return the verdict on the kind of devices that the queue prefers of those that fit, if claims leave it open."""
    preferences, tried = inputs.queue.preferences, attempts(inputs)
    if preferences is None or not tried:
        return _plan(inputs)
    least = {one.name: least_charge(one, inputs) for one in tried}

    def plan(attempt: Attempt, terms: preference.Terms) -> Verdict:
        needed = least[attempt.name]
        narrowed = replace(inputs, demands=attempt.demands, needed=needed, terms=terms, known=None)
        short = quota_may_suffice(narrowed)
        if short is None:
            return replace(_plan(narrowed), needed=needed)
        return Verdict(group=inputs.group, outcome=short, by=QUOTA, needed=needed, open_meters=_open_meters(narrowed))

    level = partial(preference.loan_level, inputs.queue, meters=inputs.rules.meters, queue_usage=inputs.queue_usage)
    return preference.first(tried, preferences.when_can_borrow, plan, level, inputs.cluster.node_inventories)


def attempts(inputs: Inputs) -> tuple[Attempt, ...]:
    """Return the demands for each kind that its queue prefers; none if the gang is about none of them."""
    preferences = inputs.queue.preferences
    if preferences is None or mode.requested(inputs.group.record, inputs.queue) is PlacementMode.COUNT:
        return ()
    cluster, selectors, placement = inputs.cluster, inputs.rules.selectors, inputs.group.placement
    found = device_kinds.attempts(inputs.demands, preferences, cluster, selectors, placement)
    return tuple(one for one in found if inputs.only in {None, one.name})


def least_charge(attempt: Attempt, inputs: Inputs) -> Charge:
    """Return a lower bound on the charge of the gang with devices of a kind."""
    return demand.at_least(attempt.demands, inputs.rules.meters, inputs.rules.snapshot.nodes.values())


def _plan(inputs: Inputs) -> Verdict:
    rules, group = inputs.rules, inputs.group
    wanted = mode.requested(group.record, inputs.queue)
    topology = workloads_topology.request(group)
    inputs = replace(inputs, demands=workloads_topology.with_subgroups(inputs.demands, topology, group))
    equivalent = _equivalent(inputs, wanted, topology)
    plans = rules.workspace.plans
    proof = plans.proof(equivalent.key, inputs.cluster, rules.selectors) if equivalent is not None else None
    if equivalent is not None and proof is not None:
        return Verdict(group=group, outcome=equivalent.hold(proof.hold), by=PROOF, equivalent=equivalent, proof=proof)
    question = (inputs.demands, wanted, topology)
    known = plans.hold(group.uid, question, inputs.terms)
    if known is not None:
        return Verdict(group=group, outcome=known)
    unpaid: dict[str, BudgetShortage] = {}
    answer = _propose(inputs, wanted, topology, equivalent, unpaid)
    if equivalent is not None and isinstance(answer, Proved):
        proof = plans.prove(equivalent.key, answer, (equivalent.question, wanted, topology), inputs.cluster)
        return Verdict(group=group, outcome=equivalent.hold(answer), by=PROOF, equivalent=equivalent, proof=proof)
    if equivalent is not None and isinstance(answer, Hold):
        answer = equivalent.hold(answer)
    # A hold for a budget is not kept: with time alone the budget may pay for the gang.
    if isinstance(answer, Hold) and not unpaid:
        plans.keep(group.uid, question, answer, inputs.terms)
    return Verdict(group=group, outcome=answer)


def _equivalent(inputs: Inputs, wanted: PlacementMode, topology: Topology | None) -> GangEquivalence | None:
    """Return the gang's question in numbered names; None if it depends on particular objects."""
    if inputs.known is not None and (known := inputs.known.equivalent) and known.is_fresh(inputs.cluster):
        return known
    return equivalence.build(inputs.demands, wanted, inputs.cluster, topology)


def _propose(
    inputs: Inputs,
    wanted: PlacementMode,
    topology: Topology | None,
    equivalent: GangEquivalence | None,
    unpaid: dict[str, BudgetShortage],
) -> Grant | Hold:
    """Return the planner's answer; if `equivalent` is given, a hold is in numbered names.

    unpaid: receives, by message, the budget shortages for which alternatives were rejected.
    """
    rules = inputs.rules

    def shortage(charge: Charge) -> Shortfall | None:
        found = _shortage(inputs, charge) or budget.shortage(rules.workspace.balances, inputs.group, charge)
        if isinstance(found, BudgetShortage):
            unpaid[found.message] = found
        return found

    propose = partial(
        planner(rules).propose, cluster=inputs.cluster, wanted=wanted, affordable=shortage, topology=topology
    )
    question = equivalent.question if equivalent is not None else inputs.demands
    answer = propose(question)
    if isinstance(answer, Hold):
        over_budget = unpaid.get(answer.message) if answer.reason is HoldReason.QUOTA_EXCEEDED else None
        hold = answer if over_budget is None else budget.hold(over_budget)
        return hold if rules.mute else alternatives.explained(hold, question, propose)
    claims = {one.pod.meta.uid: tuple(claim.meta.uid for claim in one.claims) for one in inputs.demands}
    plan = equivalent.plan(answer.plan) if equivalent is not None else answer.plan
    warnings = budget.warnings(rules.workspace.balances, inputs.group, plan.charge)
    return Grant(plan=plan, claims=claims, chosen=answer.chosen, warnings=warnings)


def planner(rules: Rules) -> Planner:
    """Return the planner by the rules of a cycle."""
    found = Planner(selectors=rules.selectors, steps=rules.steps, meters=rules.meters, protection=rules.protection)
    return replace(found, mute=rules.mute, beside=rules.beside, kinds_of_use=rules.kinds_of_use)


def _open_meters(inputs: Inputs) -> frozenset[MeterName]:
    meters = inputs.rules.meters
    return frozenset(meters.meters) if inputs.group.identity.elastic else demand.open_meters(inputs.demands, meters)


def _shortage(inputs: Inputs, charge: Charge) -> Shortfall | None:
    usage, queue = inputs.queue_usage, inputs.queue
    if (found := usage.charge_fits(queue.name, charge)) is not None:
        return replace(found, has_started=inputs.group.started)
    borrows = not inputs.terms.may_borrow and preference.loan_level(queue, charge, inputs.rules.meters, usage)
    return preference.WouldBorrow(queue.name) if borrows else inputs.allows(charge)
