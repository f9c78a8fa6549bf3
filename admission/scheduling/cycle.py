"""The decisions of one cycle over one frozen snapshot: later gangs see as taken what the cycle grants to earlier ones.

Nothing is written here; `cycle.cycle` commits.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.values.names import QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.quota.fair_share import Shares
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.queue_order import Tournament, in_order
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.cache import equivalence
from admission.scheduling.cache.plan_cache import Basis, PlanCache
from admission.scheduling.cache.queue_cache import Premise
from admission.scheduling.cache.verdict_cache import PROOF, RESERVED, Verdict, VerdictCache
from admission.scheduling.checks import budget, chain, completeness, elastic
from admission.scheduling.checks.chain import Decision, Grant, Inputs, Rules
from admission.scheduling.placement import mode
from admission.workloads import topology
from admission.workloads.gangs import Group

MOST_KINDS = 16
"""Kinds of gangs that are planned for in a rehearsal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleDecisions:
    """What one cycle has decided. updated: all but the decisions of an earlier cycle that stand as they are.

    is_complete: whether it came to every gang that waits.
    """

    updated: tuple[Decision, ...] = ()
    is_complete: bool = True


@dataclass(slots=True)
class _State:
    """How things stand in a round. blocked: by strict queue the first gang that waits.

    backfill: what the heads of the queues are promised; None where nobody is promised anything.
    """

    rules: Rules
    cluster: ClusterState
    queue_usage: QueueUsage
    backfill: Backfill | None
    blocked: dict[QueueName, str] = field(default_factory=dict)


def decide_all(
    groups: tuple[Group, ...], rules: Rules, cluster: ClusterState, usage: Usage, backfill: Backfill | None = None
) -> CycleDecisions:
    """Decide about the gangs that wait, in order; each sees what was granted to those before it.

    backfill: what the heads of the queues are promised; None where nobody is promised anything.

    Of queues that share fairly, the one with the smallest share is next, by what was granted before, too.
    After `most_grants` grants the rest is left out, so that those who may start need not wait for all the others; and
    after a gang that is planned again in the next cycle, so that nobody has what it gave back just now.
    """
    basis = Basis(
        cluster=cluster,
        usage=usage,
        queues=rules.snapshot.queues,
        meters=rules.meters,
        steps=rules.steps,
        protection=rules.protection,
    )
    rules.plans.begin(basis)
    rules.verdicts.begin(rules.snapshot, rules.tree.queues, rules.meters, rules.profile, rules.protection, rules.steps)
    if backfill is not None:
        waiting = {group.uid for group in groups if group.waiting}
        backfill.begin(rules, waiting, cluster)
    state = _State(rules, cluster, QueueUsage(rules.tree, usage), backfill)
    held = _all_held(groups, state) if rules.hold_beyond_limit is None else None
    if held is None:
        # What is decided beside grants that may come to nothing is found again.
        rules.verdicts.queue_cache.clear()
        _note_first(groups, state)
        state.blocked.clear()
    found = _grant_in_order(groups, usage, state) if held is None else CycleDecisions(updated=tuple(held))
    if backfill is not None:
        backfill.refresh(rules, state.cluster, state.queue_usage)
    return found


def rehearse(groups: tuple[Group, ...], rules: Rules, cluster: ClusterState, usage: Usage) -> None:
    """Find out beforehand what the first round of a leader would have to: who cannot start, and where gangs could.

    Nobody is promised anything. Of every kind of gang one is planned for though its queue may be full: the next one of
    its kind may not find it so.
    """
    decide_all(groups, rules, cluster, usage)
    rules = replace(rules, plans=PlanCache(), verdicts=VerdictCache(), mute=True)
    queue_usage, kinds = QueueUsage(rules.tree, {}), set[Hashable]()
    for group in groups:
        queue = completeness.entered(group, rules.snapshot) if group.waiting else None
        if not isinstance(queue, Queue):
            continue
        inputs = chain.with_demand(
            Inputs(rules=rules, group=group, queue=queue, cluster=cluster, queue_usage=queue_usage)
        )
        equivalent = equivalence.build(
            inputs.demands, mode.requested(group.record, queue), cluster, topology.question(group)
        )
        if equivalent is not None and equivalent.key not in kinds:
            chain.decide(inputs)
            kinds.add(equivalent.key)
            if len(kinds) == MOST_KINDS:
                return


def _note_first(groups: tuple[Group, ...], state: _State) -> None:
    """Let a leader that has just begun know who is ahead in each queue, before anybody starts.

    Fair shares may ask those first who have come later.
    """
    backfill = state.backfill
    if backfill is None or not backfill.is_new:
        return
    first: dict[QueueName, Group] = {}
    for group in in_order([group for group in groups if group.waiting]):
        first.setdefault(group.queue, group)
    for group in first.values():
        finding, inputs = _examine(group, state)
        if not isinstance(finding.outcome, Grant):
            backfill.note(finding, inputs)


def _grant_in_order(groups: tuple[Group, ...], usage: Usage, state: _State) -> CycleDecisions:
    rules, queue_usage = state.rules, state.queue_usage
    waiting = [group for group in groups if group.waiting]
    decisions: list[Decision] = []
    positions: dict[QueueName, int] = {}
    granted = 0
    contest = Tournament(Shares(queue_usage, usage, rules.sharing, rules.history), waiting, lambda group: group.queue)
    for group in contest:
        positions[group.queue] = positions.get(group.queue, 0) + 1
        if granted >= rules.most_grants:
            if rules.hold_beyond_limit is None:
                break
            decisions.append(Decision(group=group, outcome=rules.hold_beyond_limit, position=positions[group.queue]))
            continue
        finding, inputs = _examine(group, state)
        outcome = finding.outcome
        if state.backfill is not None:
            state.backfill.note(finding, inputs)
        if isinstance(outcome, Grant):
            pods = {pod.meta.uid: pod for pod in group.waiting}
            state.cluster = cluster_state.granted(state.cluster, outcome.plan, pods, group.key, outcome.claims)
            queue_usage.charge(group.queue, outcome.plan.charge)
            contest.charge(group.queue, outcome.plan.charge)
            if rules.balances is not None:
                rules.balances.charge(group.queue, outcome.plan.charge, budget.runtime_of(group))
            rules.plans.end()
            rules.verdicts.recount()
            granted += 1
        decisions.append(Decision(group=group, outcome=outcome, position=positions[group.queue], needed=finding.needed))
        if group.uid in rules.first_in_next:
            break
    return CycleDecisions(updated=tuple(decisions), is_complete=len(decisions) == len(waiting))


def _all_held(groups: tuple[Group, ...], state: _State) -> list[Decision] | None:
    """Return what holds every gang of a queue of which something changed; None when one of any may start.

    As long as none is granted, each is decided on the same cluster state and the same use, whoever is first.
    """
    rules, verdicts = state.rules, state.rules.verdicts
    shortage_of = partial(_shortage, state.queue_usage)

    def holds(queue: QueueName, basis: Premise) -> bool:
        if basis.bound:
            return _still_reserved(basis, queue, state) and verdicts.stands(queue, basis, shortage_of)
        key = basis.equivalent.key if basis.equivalent is not None else None
        is_proved = key is None or rules.plans.proof(key, state.cluster, rules.selectors) is basis.proof
        return is_proved and verdicts.stands(queue, basis, shortage_of)

    decisions: list[Decision] = []
    noted: list[Examined] = []
    for queue, waiting in verdicts.queue_cache.changed(groups, holds, {*rules.unready, *rules.backoffs}):
        verdicts.queue_cache.drop(queue)
        ordered, examined = in_order(waiting), list[Examined]()
        for group in ordered:
            examined.append(_examine(group, state))
            if isinstance(examined[-1][0].outcome, Grant):
                return None
        findings = [finding for finding, _ in examined]
        found = [
            Decision(group=group, outcome=finding.outcome, position=at, needed=finding.needed)
            for at, (group, finding) in enumerate(zip(ordered, findings, strict=True), 1)
        ]
        if all(map(verdicts.is_kept, findings)):
            verdicts.queue_cache.keep(queue, waiting, verdicts.inputs(findings))
        decisions += found
        noted += examined
    verdicts.keep_only(groups)
    if state.backfill is not None:
        for finding, inputs in noted:
            state.backfill.note(finding, inputs)
    return decisions


Examined = tuple[Verdict, Inputs | None]
"""What was found of a gang, and on what; on nothing where it may not enter its queue."""


def _examine(group: Group, state: _State) -> Examined:
    """Return what is found of a gang, and note it where it is the first of a strict queue to wait."""
    name = group.queue
    queue = completeness.entered(group, state.rules.snapshot)
    if not isinstance(queue, Queue):
        return Verdict(group=group, outcome=queue), None
    inputs = Inputs(
        rules=state.rules,
        group=group,
        queue=queue,
        cluster=state.cluster,
        queue_usage=state.queue_usage,
        blocked_by=state.blocked.get(name, ""),
    )
    found = _verdict(inputs, state)
    if isinstance(found.outcome, Hold) and elastic.blocks(group, queue):
        state.blocked.setdefault(name, group.key)
    return found, inputs


def _verdict(inputs: Inputs, state: _State) -> Verdict:
    """Return what was found of a gang and still stands, or else decide about it."""
    rules, group, backfill = inputs.rules, inputs.group, state.backfill
    is_cacheable = (
        group.uid not in rules.unready
        and group.uid not in rules.backoffs
        and not budget.may_run_out(rules.tree, group.queue)
    )
    known = (
        rules.verdicts.lookup(group, inputs.blocked_by, partial(_shortage, inputs.queue_usage))
        if is_cacheable
        else None
    )
    if known is not None and known.by == RESERVED and _still_reserved(known, group.queue, state):
        return known
    if known is not None and known.by not in {PROOF, RESERVED}:
        return known
    if known is not None and known.equivalent is not None and known.by == PROOF:
        proof = rules.plans.proof(known.equivalent.key, inputs.cluster, rules.selectors)
        if proof is not None and proof is known.proof:
            return known
        if proof is not None and known.equivalent.is_fresh(inputs.cluster):
            hold = known.equivalent.hold(proof.hold)
            known.outcome, known.proof = known.outcome if hold == known.outcome else hold, proof
            return known
    finding = chain.decide(inputs) if backfill is None else backfill.decide(inputs)
    # What extended resources cost at least depends on the nodes.
    if is_cacheable and not any(pod.containers for pod in group.pods):
        rules.verdicts.keep(finding)
    return finding


def _still_reserved(held: Verdict | Premise, queue: QueueName, state: _State) -> bool:
    """Return whether somebody would still be in the way of what is reserved."""
    backfill, selectors = state.backfill, state.rules.selectors
    return backfill is not None and backfill.stands(held, queue, state.cluster, state.queue_usage, selectors)


def _shortage(queue_usage: QueueUsage, queue: QueueName, charge: Charge) -> Hold | None:
    shortage = queue_usage.charge_fits(queue, charge)
    return None if shortage is None else Hold(HoldReason.QUOTA_EXCEEDED, shortage.message, shortage.details)
