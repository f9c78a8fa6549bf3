"""The decisions of one cycle over one frozen snapshot: to later gangs, what earlier ones are granted is taken.

Nothing is written here; `cycle.cycle` commits.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Hold
from admission.dra.requests.gang_request import Shortfall, anything
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.quota import evicted_usage
from admission.quota.fair_share import Shares
from admission.quota.headroom import QueueUsage, Usage, larger
from admission.quota.queue_order import Tournament
from admission.scheduling import postponed_grants
from admission.scheduling.backfill import reservation_refresh
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.cache import equivalence
from admission.scheduling.cache.plan_cache import Basis, PlanCache
from admission.scheduling.cache.queue_cache import Premise, ShortOf
from admission.scheduling.cache.verdict_cache import KINDS, PROOF, QUOTA, RESERVED, KeptFor, Verdict, VerdictCache
from admission.scheduling.checks import budget, chain, completeness, demand, elastic, faults, lender_quota, queue_rules
from admission.scheduling.checks.chain import Decision, Grant, Inputs, Rules
from admission.scheduling.checks.faults import During
from admission.scheduling.placement import mode
from admission.scheduling.postponed_grants import PostponedGrants
from admission.workloads import topology
from admission.workloads.gangs import Group

MOST_BY_PLAN = 8
"""The most gangs of a queue that are planned in a cycle to find one for which the queue keeps its own quota."""

MOST_KINDS = 16
"""The most kinds of gangs that `warm_caches` plans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDecisions:
    """The decisions of one cycle. updated: all but those of earlier cycles that still stand.

    is_complete: whether every pending gang was considered.
    """

    updated: tuple[Decision, ...] = ()
    is_complete: bool = True


@dataclass(slots=True)
class _State:
    """The state of a cycle after the grants so far. blocked: by strict queue, the first gang that is held.

    backfill: the reservations of heads; None without backfill. usages: now, and in the end, when the cycle began.
    """

    rules: Rules
    cluster: ClusterState
    queue_usage: QueueUsage
    backfill: Backfill | None
    usages: tuple[Usage, Usage | None]
    blocked: dict[QueueName, str] = field(default_factory=dict)
    kept_quota: dict[QueueName, KeptFor] = field(default_factory=dict)
    """By queue, its first gang held for quota, if the queue keeps its own quota for it."""
    kept_before: dict[QueueName, KeptFor] = field(default_factory=dict)
    """The same of the cycle before, where that still stands."""
    postponed: PostponedGrants[Group] = field(default_factory=PostponedGrants)
    by_plan: Counter[QueueName] = field(default_factory=Counter)
    """By queue, how many of its gangs were asked what they are charged within its own quota."""
    _idle: QueueUsage | None = None
    reserved: frozenset[GangUid] = field(init=False)
    """The gangs that had a reserved start when the cycle began, beside which others may borrow until then. One that is
    made on the way counts in the next cycle, so that it does not matter who is asked first."""

    def __post_init__(self) -> None:
        found = self.backfill.estimates if self.backfill is not None else {}
        self.reserved = frozenset(uid for uid, estimate in found.items() if estimate.at is not None)

    def decide(self, inputs: Inputs, first: Callable[[Inputs], Verdict] = chain.decide) -> Verdict:
        """Decide about a gang, beside the reservations of heads ahead of it. first: decides without these."""
        return first(inputs) if self.backfill is None else self.backfill.decide(inputs, first)

    def idle(self) -> QueueUsage:
        """Return the quotas as if nothing were used."""
        self._idle = self._idle or QueueUsage(self.rules.tree, {})
        return self._idle

    def note_change(self) -> None:
        """Record that cluster state or usage have changed, what queues keep included."""
        self.rules.workspace.verdicts.recount()
        self.postponed.note_change()


def decide_all(
    groups: tuple[Group, ...],
    rules: Rules,
    cluster: ClusterState,
    usage: Usage,
    backfill: Backfill | None = None,
    *,
    in_the_end: Usage | None = None,
) -> CycleDecisions:
    """Decide about the pending gangs in order; each sees what was granted to those before it.

    backfill: the reservations of heads, if any. usage: now. in_the_end: once evicted gangs are gone, if others wait.
    Queues that stay within their quota are next, then those that borrow, with fair sharing those with the smallest
    share, grants of this cycle included (`quota.queue_order`, `postponed_grants`). After `most_grants` grants the rest
    is left to the next cycle, so that granted gangs start without waiting for it; also after a gang that is planned
    again in the next cycle, so that no other gang gets what it has just given back.
    """
    basis = Basis(
        cluster=cluster,
        usage=usage,
        in_the_end=in_the_end,
        queues=rules.snapshot.queues,
        meters=rules.meters,
        steps=rules.steps,
        protection=rules.protection,
    )
    rules.workspace.plans.begin(basis)
    _renew_old_proof(rules, cluster)
    verdicts = rules.workspace.verdicts
    verdicts.begin(rules.snapshot, rules.tree.queues, rules.meters, rules.profile, rules.protection, rules.steps)
    if backfill is not None:
        backfill.begin(rules, verdicts.waiting_uids(groups), cluster)
    state = _State(rules, cluster, QueueUsage(rules.tree, usage, in_the_end), backfill, (usage, in_the_end))
    _keep_again(groups, state, verdicts.kept_quota)
    held = _all_held(groups, state) if rules.hold_beyond_limit is None else None
    if held is not None and state.kept_before.keys() - state.kept_quota.keys():
        # Others are held for what is kept no more.
        lenders, before = state.kept_quota, verdicts.kept_quota
        state = _State(rules, cluster, QueueUsage(rules.tree, usage, in_the_end), backfill, (usage, in_the_end))
        _keep_again(groups, state, {queue: before[queue] for queue in lenders if queue in before})
        new = {queue: one for queue, one in lenders.items() if queue not in before}
        held = _all_held(groups, state, held, new)
    if held is None:
        # Verdicts beside grants are not kept as a whole: a grant may fail when it is committed.
        verdicts.forget_queues()
        _note_first(groups, state)
        state = replace(state, blocked={}, kept_quota={}, postponed=PostponedGrants(), by_plan=Counter())
        found = _grant_in_order(groups, larger(usage, in_the_end), state)
    else:
        found = CycleDecisions(updated=tuple(held))
    if backfill is not None:
        known = {group.uid: group for group in groups} if state.kept_quota else {}
        keepers = {name: (known[one.uid], one.charge) for name, one in state.kept_quota.items() if one.uid in known}
        kept = reservation_refresh.refresh(backfill, rules, state.cluster, state.queue_usage, keepers)
        state.kept_quota = {name: state.kept_quota[name] for name in kept}
    verdicts.keep_for(state.kept_quota)
    return found


def _renew_old_proof(rules: Rules, cluster: ClusterState) -> None:
    """Ask once more for a plan whose proof of absence is worded by an old state of the cluster.

    A proof holds whatever the quota, so nothing of a queue is asked. An unexpected exception is reported when the
    question is asked for one of its gangs.
    """
    plans = rules.workspace.plans
    question = plans.old_question
    if question is None:
        return
    pods, wanted, together = question
    find = partial(chain.planner(rules).propose, pods, cluster, wanted, anything, together)
    answer = faults.guard(During.PLANNING, "", find, [])
    plans.renew(answer if isinstance(answer, Hold) else None)


def warm_caches(groups: tuple[Group, ...], rules: Rules, cluster: ClusterState, usage: Usage) -> None:
    """Fill the caches with what the first cycle of a leader needs: which gangs cannot start, and plans for the others.

    No reservations are made. One gang of every kind is planned even if its queue is full, since the quota may be free
    when the next gang of the kind comes.
    """
    decide_all(groups, rules, cluster, usage)
    rules = replace(rules, workspace=replace(rules.workspace, plans=PlanCache(), verdicts=VerdictCache()), mute=True)
    queue_usage, kinds = QueueUsage(rules.tree, {}), set[Hashable]()
    for group in groups:
        queue = completeness.entered(group, rules.snapshot) if group.waiting else None
        if not isinstance(queue, Queue):
            continue
        inputs = chain.with_demand(
            Inputs(rules=rules, group=group, queue=queue, cluster=cluster, queue_usage=queue_usage)
        )
        equivalent = equivalence.build(
            inputs.demands, mode.requested(group.record, queue), cluster, topology.request(group)
        )
        if equivalent is not None and equivalent.key not in kinds:
            chain.decide(inputs)
            kinds.add(equivalent.key)
            if len(kinds) == MOST_KINDS:
                return


def _note_first(groups: tuple[Group, ...], state: _State) -> None:
    """Find the head of each queue in the first cycle of a leader, before any gang starts.

    With fair shares the cycle may consider gangs first that rank behind a head of another queue.
    """
    backfill = state.backfill
    if backfill is None or not backfill.is_new:
        return
    first: dict[QueueName, Group] = {}
    for group in state.rules.order.sorted([group for group in groups if group.waiting]):
        first.setdefault(group.queue, group)
    for group in first.values():
        verdict, inputs = _examine(group, state)
        if not isinstance(verdict.outcome, Grant):
            backfill.note(verdict, inputs)


def _grant_in_order(groups: tuple[Group, ...], usage: Usage, state: _State) -> CycleDecisions:
    rules, queue_usage = state.rules, state.queue_usage
    waiting = [group for group in groups if group.waiting]
    decisions: list[Decision] = []
    positions: dict[QueueName, int] = {}
    granted = 0
    contest = _contest(waiting, usage, state)
    for group in contest:
        position = positions.get(group.queue, 0) + 1
        if granted >= rules.most_grants:
            if rules.hold_beyond_limit is None:
                break
            decisions.append(Decision(group=group, outcome=rules.hold_beyond_limit, position=position))
            positions[group.queue] = position
            continue
        verdict, inputs = _examine(group, state)
        if inputs is not None and state.postponed.postpone(contest, group, verdict, inputs):
            continue
        if inputs is not None:
            verdict = state.postponed.beside_owners(contest, verdict, inputs, state.decide)
            _block(verdict, inputs, state)
        outcome = verdict.outcome
        positions[group.queue] = position
        if state.backfill is not None:
            state.backfill.note(verdict, inputs)
        _keep(verdict, inputs, state)
        if isinstance(outcome, Grant):
            pods = {pod.meta.uid: pod for pod in group.waiting}
            state.cluster = cluster_state.granted(state.cluster, outcome.plan, pods, group.key, outcome.claims)
            queue_usage.charge(group.queue, outcome.plan.charge)
            contest.grant(group, outcome.plan.charge)
            if rules.workspace.balances is not None:
                rules.workspace.balances.charge(group.queue, outcome.plan.charge, budget.runtime_of(group))
            rules.workspace.plans.end()
            state.note_change()
            granted += 1
        decisions.append(Decision(group=group, outcome=outcome, position=position, needed=verdict.needed))
        if group.uid in rules.first_in_next:
            break
    return CycleDecisions(updated=tuple(decisions), is_complete=len(decisions) == len(waiting))


def _contest(waiting: list[Group], usage: Usage, state: _State) -> Tournament[Group]:
    """Return the turns of the pending gangs, by whose order reservations rank them as well."""
    contest = turns(waiting, partial(needed, rules=state.rules), state.rules, usage, state.queue_usage)
    if state.backfill is not None:
        state.backfill.rank_by(contest.order)
    return contest


def turns(
    gangs: list[Group], needed: Callable[[Group], Charge], rules: Rules, usage: Usage, queue_usage: QueueUsage
) -> Tournament[Group]:
    """Return gangs in the order in which they have their turn, by shares of their queues and rank.

    needed: a lower bound on a gang's charge. usage: by which past usage counts. queue_usage: what is used now, which
    the caller keeps up to date with every grant.
    """
    shares = Shares(queue_usage, usage, rules.sharing, rules.history)
    return Tournament(shares, gangs, lambda group: group.queue, needed, rules.order)


def _keep_again(groups: tuple[Group, ...], state: _State, kept_quota: Mapping[QueueName, KeptFor]) -> None:
    """Keep the quota that queues have kept for a gang in an earlier cycle, where it still waits for it."""
    known = {group.uid: group for group in groups} if kept_quota else {}
    for name, one in kept_quota.items():
        group, queue = known.get(one.uid), state.rules.tree.queues.get(name)
        if group is None or queue is None or one.uid in state.reserved:
            continue
        if lender_quota.keep_again(group, queue, one.charge):
            state.kept_before[name] = one
    for name, one in state.kept_before.items():
        state.queue_usage.keep(name, one.charge)


def _keep(verdict: Verdict, inputs: Inputs | None, state: _State) -> None:
    """Let a queue keep its own quota for its first gang that is held for quota, or no longer keep it."""
    name = verdict.group.queue
    if name in state.kept_quota:
        return
    is_kept, found = _is_kept_before(verdict.group, state), _kept_for(verdict, inputs, state)
    if found is not None and inputs is not None:
        if state.backfill is not None and not is_kept:
            # The reservations of gangs ahead are made before this quota is kept, so that they do not depend on it.
            state.backfill.ensure_reservations(inputs, found.charge)
        state.kept_quota[name] = found
        state.queue_usage.keep(name, found.charge)
        state.note_change()
    elif is_kept:
        state.queue_usage.keep(name, {})
        state.note_change()


def _is_kept_before(group: Group, state: _State) -> bool:
    before = state.kept_before.get(group.queue)
    return before is not None and before.uid == group.uid


def _kept_for(verdict: Verdict, inputs: Inputs | None, state: _State) -> KeptFor | None:
    """Return what the queue of a gang keeps for it; None if it keeps nothing."""
    group = verdict.group
    if inputs is None or not lender_quota.is_short(verdict.outcome) or group.runs or group.uid in state.reserved:
        return None
    if verdict.by != QUOTA:
        state.by_plan[group.queue] += 1
        if state.by_plan[group.queue] > MOST_BY_PLAN:
            return None
    before = state.rules.workspace.verdicts.kept_quota.get(group.queue)
    last = before.charge if before is not None and before.uid == group.uid else {}
    inputs = replace(inputs, cluster=state.cluster)
    found = faults.guard(
        During.PLANNING, group.key, lambda: lender_quota.kept_charge(verdict, inputs, last, state.idle()), []
    )
    return None if found is None else KeptFor(group.uid, found)


def needed(group: Group, rules: Rules) -> Charge:
    """Return a lower bound on a gang's charge with the fewest pods that may start, for its place in the order.

    Empty if it cannot be computed.
    """
    known = rules.workspace.verdicts.needed(group)
    if known is not None:
        return known

    def bound() -> Charge:
        demands = demand.demands(elastic.smallest(group), rules.snapshot)
        return demand.at_least(demands, rules.meters, rules.snapshot.nodes.values())

    # The decision about the gang, which computes the same, is what reports a defect.
    return faults.guard(During.PLANNING, group.key, bound, []) or {}


def _all_held(
    groups: tuple[Group, ...],
    state: _State,
    before: Iterable[Decision] = (),
    kept: Mapping[QueueName, KeptFor] = MappingProxyType({}),
) -> list[Decision] | None:
    """Return the decisions for all gangs of changed queues if all are held; None if any gang may start.

    before, kept: decisions of this cycle about queues that may not have changed since, and what these keep since.

    While no gang is granted, every gang is decided on the same cluster state and usage, so the order between queues
    does not matter.
    """
    rules, verdicts = state.rules, state.rules.workspace.verdicts
    decisions: list[Decision] = []
    noted: list[Examined] = []
    seen: set[QueueName] = set()
    unsteady, quotas = {*rules.unready, *rules.backoffs}, (rules.tree, *state.usages, state.kept_before)
    holds = partial(_holds, state=state, is_same_quota=verdicts.begin_quota(quotas))
    for queue, waiting in verdicts.changed_queues(groups, holds, unsteady, rules.order):
        ordered, examined = rules.order.sorted(waiting), list[Examined]()
        for group in ordered:
            examined.append(_examine(group, state))
            if isinstance(examined[-1][0].outcome, Grant):
                return None
        new_verdicts = [verdict for verdict, _ in examined]
        found_for = (_kept_for(one, inputs, state) for one, inputs in examined)
        first = next((one for one in found_for if one is not None), None)
        seen.add(queue)
        if first is not None:
            state.kept_quota[queue] = first
        found = [
            Decision(group=group, outcome=verdict.outcome, position=at, needed=verdict.needed)
            for at, (group, verdict) in enumerate(zip(ordered, new_verdicts, strict=True), 1)
        ]
        verdicts.keep_queue(queue, waiting, new_verdicts, rules.order)
        decisions += found
        noted += examined
    verdicts.end_quota(quotas)
    kept = {**kept, **state.kept_before}
    state.kept_quota |= {queue: one for queue, one in kept.items() if queue not in seen}
    verdicts.keep_only(groups)
    if state.backfill is not None:
        for verdict, inputs in noted:
            state.backfill.note(verdict, inputs)
    decided = {decision.group.uid for decision in decisions}
    return [*(decision for decision in before if decision.group.uid not in decided), *decisions]


Examined = tuple[Verdict, Inputs | None]
"""The verdict on a gang and its inputs; None for a gang that may not enter its queue."""


def _examine(group: Group, state: _State) -> Examined:
    """Return the verdict on a gang; if it is the first of a strict queue to be held, it blocks those behind it."""
    queue = completeness.entered(group, state.rules.snapshot)
    if not isinstance(queue, Queue):
        return Verdict(group=group, outcome=queue), None
    inputs = Inputs(
        rules=state.rules,
        group=group,
        queue=queue,
        cluster=state.cluster,
        queue_usage=state.queue_usage,
        blocked_by=state.blocked.get(group.queue, ""),
    )
    found = _beside_evicted(_verdict(inputs, state), inputs, state)
    _block(found, inputs, state)
    return found, inputs


def _block(found: Verdict, inputs: Inputs, state: _State) -> None:
    """Let a held gang block those behind it, if it is the first of a strict queue to be held."""
    if isinstance(found.outcome, Hold) and elastic.blocks(inputs.group, inputs.queue):
        state.blocked.setdefault(inputs.queue.name, inputs.group.key)


def _verdict(inputs: Inputs, state: _State) -> Verdict:
    """Return the verdict on a gang from an earlier cycle if it still stands, else decide."""
    rules, group = inputs.rules, inputs.group
    is_cacheable = (
        group.uid not in rules.unready
        and group.uid not in rules.backoffs
        and not budget.may_run_out(rules.tree, group.queue)
    )
    verdicts = rules.workspace.verdicts
    known = verdicts.lookup(group, inputs.blocked_by, partial(_shortage, inputs.queue_usage)) if is_cacheable else None
    if known is not None and known.by == RESERVED and _still_reserved(known, group.queue, state):
        return known
    if known is not None and known.by == KINDS and all(_holds(group.queue, one, state) for one in known.premises):
        return known
    if known is not None and known.by not in {PROOF, RESERVED, KINDS}:
        return known
    if known is not None and known.equivalent is not None and known.by == PROOF:
        proof = rules.workspace.plans.proof(known.equivalent.key, inputs.cluster, rules.selectors)
        if proof is not None and proof is known.proof:
            return known
        if proof is not None and known.equivalent.is_fresh(inputs.cluster):
            hold = known.equivalent.hold(proof.hold)
            renewed = replace(known, outcome=known.outcome if hold == known.outcome else hold, proof=proof)
            verdicts.keep(renewed)
            return renewed
    verdict = state.decide(inputs, state.postponed.decide)
    # A verdict with extended resources is not kept: their least cost depends on the nodes.
    if is_cacheable and not any(pod.containers for pod in group.pods):
        verdicts.keep(verdict)
    return verdict


def _beside_evicted(found: Verdict, inputs: Inputs, state: _State) -> Verdict:
    """Return the verdict with which a gang that runs leaves alone what evicted gangs come back to.

    It is the verdict itself if that is no grant, or takes nothing of it. Another one ends by time alone, so nothing of
    it is remembered.
    """
    queue_usage, queue, evicted = inputs.queue_usage, inputs.queue.name, inputs.rules.evicted
    if not evicted or not inputs.group.runs or not isinstance(found.outcome, Grant):
        return found

    def allows(charge: Charge) -> Shortfall | None:
        return evicted_usage.shortfall(queue_usage, queue, charge, evicted)

    if allows(found.outcome.plan.charge) is None:
        return found
    return state.decide(postponed_grants.with_condition(inputs, allows))


def _holds(queue: QueueName, basis: Premise, state: _State, *, is_same_quota: bool = False) -> bool:
    """Return whether an input of verdicts of a queue is what it was. is_same_quota: shortages are known to be."""
    rules, cluster, verdicts = state.rules, state.cluster, state.rules.workspace.verdicts
    if basis.inventories is not None and basis.inventories is not cluster.node_inventories:
        return False
    key = basis.equivalent.key if basis.equivalent is not None and not basis.bound else None
    if basis.bound and not _still_reserved(basis, queue, state):
        return False
    is_proved = key is None or rules.workspace.plans.proof(key, cluster, rules.selectors) is basis.proof
    return is_proved and (is_same_quota or verdicts.stands(queue, basis, partial(_shortage, state.queue_usage)))


def _still_reserved(held: Verdict | Premise, queue: QueueName, state: _State) -> bool:
    """Return whether the gang would still delay a reservation."""
    backfill, selectors = state.backfill, state.rules.selectors
    return backfill is not None and backfill.stands(held, queue, state.cluster, state.queue_usage, selectors)


def _shortage(queue_usage: QueueUsage, queue: QueueName, charge: Charge, of: ShortOf) -> Hold | None:
    shortage = queue_usage.charge_fits(queue, charge)
    if shortage is None:
        return None
    return queue_rules.over_quota(replace(shortage, has_started=of.has_started), of.open_meters)
