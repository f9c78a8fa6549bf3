"""Evicting gangs for others that are held: who it is decided for, and what these are promised.

Decided after everything else in a cycle, about the world as it is then; those who might be helped are looked at again
only when something has changed. What is found is a promise in this leader's memory, the evictions in the status of the
victims and then in the ledger. The next leader finds there who goes, and for whom: nobody else is evicted for that gang
as long as those who go are enough.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.cycle.steps import evict as steps_evict
from admission.dra.state.cluster_state import ClusterState
from admission.lifecycle import limits
from admission.quota import queue_order
from admission.quota.headroom import QueueUsage, Usage
from admission.scheduling import cycle
from admission.scheduling.checks.chain import Decision, Grant, Rules
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.preemption import candidates, nominations, targets
from admission.scheduling.preemption.nominations import Nomination
from admission.scheduling.preemption.targets import PreemptionCandidate, PreemptionScope, PreemptionTargets
from admission.workloads.gangs import Group

MOST_TRIES = 4
"""Different asks for which victims are looked for in one cycle; the others follow in the next one."""


def decide(
    desk: LeaderState, facts: CycleInputs, rules: Rules, cluster: ClusterState, usage: Usage
) -> tuple[CycleDecisions, tuple[PreemptionTargets, ...]]:
    """Decide about the gangs that wait, and who is evicted for those that are held."""
    memory = desk.preempting
    if not memory.nominations and not any(map(targets.may_preempt, facts.snapshot.queues.values())):
        memory.begun = True
        return cycle.decide_all(facts.groups, rules, cluster, usage, desk.reserve), ()
    if not memory.begun:
        _plans(desk, facts, rules, cluster, usage)
    memory.begun = True
    _forget_others(desk, facts)
    decided = nominations.decide_all(facts.groups, rules, cluster, usage, memory, reserve=desk.reserve)
    found = {decision.group.uid: decision for decision in decided.anew}
    dropped = _dropped(desk, facts, found)
    sacrifices: tuple[PreemptionTargets, ...] = ()
    if rules.beyond is None and rules.balances is not None and desk.caught_up and not rules.anew:
        promised = {*memory.nominations}
        sacrifices = tuple(
            _sacrifices(desk, facts, found, lambda: _scene(desk, facts, rules, cluster, usage, decided=decided))
        )
        dropped += promised - {*memory.nominations}
    return replace(decided, anew=_told(desk, found, dropped)), sacrifices


async def evict(desk: LeaderState, facts: CycleInputs, sacrifices: Sequence[PreemptionTargets]) -> None:
    """Evict the victims; where that fails, it is tried again by the next cycles, whoever leads then."""
    if not sacrifices:
        return
    groups = {group.uid: group for group in desk.census.groups(facts.snapshot, desk.book.placements, desk.leaving)}
    for one in sacrifices:
        if desk.away:
            desk.preempting.nominations.pop(one.group.uid, None)
            desk.rest.lines.drop(one.group.queue)
            continue
        for victim in one.victims:
            cause, reason = targets.cause(one.group, victim), targets.reason(one.group, victim)
            group = groups.get(victim.uid)
            eviction = limits.evicted(group, cause, reason, made_room_for=one.group.key) if group is not None else None
            if eviction is not None:
                await steps_evict.end(desk, facts, eviction)


def _forget_others(desk: LeaderState, facts: CycleInputs) -> None:
    """Forget the promises of gangs that do not wait for them any more."""
    memory = desk.preempting
    if memory.nominations:
        known = {group.uid: group for group in facts.groups if group.uid in memory.nominations}
        memory.nominations = {
            uid: nomination
            for uid, nomination in memory.nominations.items()
            if uid in known and nomination.is_for(known[uid])
        }


def _dropped(desk: LeaderState, facts: CycleInputs, found: dict[GangUid, Decision]) -> list[GangUid]:
    """Forget the promises that were in vain, and return whose they were."""
    memory, dropped = desk.preempting, []
    for uid, nomination in [*memory.nominations.items()]:
        decision = found.get(uid) or desk.decisions.get(uid)
        outcome = decision.outcome if decision is not None else None
        is_awaited = nomination.is_awaited(desk.book.placements, facts.snapshot, facts.now)
        if not isinstance(outcome, Grant) and not (is_awaited and targets.may_help(outcome)):
            del memory.nominations[uid]
            dropped.append(uid)
    return dropped


def _told(desk: LeaderState, found: dict[GangUid, Decision], dropped: Iterable[GangUid]) -> tuple[Decision, ...]:
    """Return the decisions; the holds of gangs that were promised something say so, and those of others do not."""
    memory = desk.preempting
    for uid in dropped:
        raw, before = memory.told.pop(uid, None), desk.decisions.get(uid)
        if raw is not None and before is not None and uid not in found:
            found[uid] = replace(before, outcome=raw[0])
    for uid, nomination in memory.nominations.items():
        decision = found.get(uid) or desk.decisions.get(uid)
        known = memory.told.get(uid)
        if decision is None or not isinstance(decision.outcome, Hold) or (known and decision.outcome is known[1]):
            continue
        if known is None or known[0] != decision.outcome:
            known = memory.told[uid] = decision.outcome, nomination.told(decision.outcome)
        found[uid] = replace(decision, outcome=known[1])
    memory.told = {uid: told for uid, told in memory.told.items() if uid in memory.nominations}
    return tuple(found.values())


def _scene(
    desk: LeaderState, facts: CycleInputs, rules: Rules, cluster: ClusterState, usage: Usage, *, decided: CycleDecisions
) -> "_Stage":
    """Return the world and the quotas after what was decided, with what is promised taken, and who is there."""
    memory = desk.preempting
    grants = [(one.group, one.outcome) for one in decided.anew if isinstance(one.outcome, Grant)]
    started = {group.uid for group, _ in grants}
    left = [nomination for uid, nomination in memory.nominations.items() if uid not in started]
    charges = [(one.group.queue, one.grant.plan.charge) for one in left]
    charges += [(group.queue, grant.plan.charge) for group, grant in grants]
    cluster = memory.laid.over(cluster, left)
    for group, grant in grants:
        cluster = nominations.granted(cluster, group, grant)
    queue_usage = QueueUsage(rules.tree, nominations.charged(usage, charges))
    staying, going = _tenants(desk, facts)
    staying += (nomination.tenant() for nomination in left if _may_be_taken_over(desk, nomination, going))
    return _Stage(
        PreemptionScope(rules=rules, cluster=cluster, queue_usage=queue_usage, reserve=desk.reserve, going=going),
        staying,
    )


@dataclass(slots=True)
class _Stage:
    """What the next gang finds that asks."""

    scene: PreemptionScope
    staying: list[PreemptionCandidate]

    def take(self, found: PreemptionTargets) -> None:
        """Let a gang have what it was planned to get, and the victims go."""
        scene, plan = self.scene, found.grant.plan
        queue_usage = scene.queue_usage.copy()
        queue_usage.take(found.group.queue, plan.charge)
        self.scene = replace(
            scene,
            cluster=nominations.promised(scene.cluster, found.group, found.grant),
            queue_usage=queue_usage,
            going=[*scene.going, *found.victims],
        )
        gone = {victim.uid for victim in found.victims}
        self.staying = [tenant for tenant in self.staying if tenant.uid not in gone]


def _tenants(desk: LeaderState, facts: CycleInputs) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
    """Return who could be evicted, and who goes anyway; an eviction that does not get on is not waited for."""
    seen = candidates.Seen(
        placements=desk.book.placements, observed=facts.observed, leaving=desk.leaving, now=facts.now
    )
    staying, going = candidates.candidates(facts.groups, seen)
    soon = {uid for uid in desk.ending if facts.now <= desk.evicted[uid].at + nominations.LONGEST}
    going += [tenant for tenant in staying if tenant.uid in soon]
    busy = desk.ending | facts.taken_back
    return [tenant for tenant in staying if tenant.uid not in busy], going


def _may_be_taken_over(desk: LeaderState, nomination: Nomination, going: Iterable[PreemptionCandidate]) -> bool:
    """Return whether all that is promised will be free."""
    goes = {tenant.uid for tenant in going}
    return all(uid in goes for uid in nomination.victims if uid in desk.book.placements)


def _sacrifices(
    desk: LeaderState, facts: CycleInputs, found: dict[GangUid, Decision], scene: Callable[[], "_Stage"]
) -> Iterator[PreemptionTargets]:
    """Yield who is evicted for whom, and promise these what they are planned to get."""
    memory = desk.preempting
    inputs = (
        desk.book.placements,
        facts.tree,
        facts.meters,
        *memory.nominations.values(),
        *desk.reserve.estimates.values(),
    )
    if desk.cluster is None or not memory.begin(facts.groups, desk.cluster, *inputs):
        return
    asking = _asking(desk, facts, found)
    chosen = memory.next([*asking], MOST_TRIES)
    stage: _Stage | None = None
    for ask, (decision, queue) in asking.items():
        if ask not in chosen:
            continue
        stage = stage or scene()
        answer = targets.choose(decision.group, queue, decision.needed, stage.staying, stage.scene)
        if answer is None or not answer.victims:
            memory.failed.add(ask)
        if answer is None:
            continue
        if answer.victims:
            yield from _promised(desk, facts, answer, stage.scene.going)
        stage.take(answer)


def _asking(
    desk: LeaderState, facts: CycleInputs, found: dict[GangUid, Decision]
) -> dict[Hashable, tuple[Decision, Queue]]:
    """Return the gangs that others may be evicted for, in order, of those that ask for the same the first."""
    queues = {name: queue for name, queue in facts.snapshot.queues.items() if targets.may_preempt(queue)}
    waiting = {group.uid for group in facts.groups if group.queue in queues and group.waiting}
    held = [
        decision
        for uid, decision in {**desk.decisions, **found}.items()
        if uid in waiting
        and decision.group.queue in queues
        and uid not in desk.preempting.nominations
        and uid not in facts.unready
        and targets.may_help(decision.outcome)
        and not decision.group.started
    ]
    held.sort(key=lambda decision: queue_order.rank(decision.group))
    asks = desk.preempting.asks
    asking: dict[Hashable, tuple[Decision, Queue]] = {}
    for decision in held:
        queue = queues[decision.group.queue]
        ask = asks.of(decision.group, queue, decision.needed, facts.snapshot)
        asking.setdefault(ask, (decision, queue))
    asks.keep(decision.group.uid for decision in held)
    return asking


def _promised(
    desk: LeaderState, facts: CycleInputs, answer: PreemptionTargets, going: Iterable[PreemptionCandidate]
) -> Iterator[PreemptionTargets]:
    """Promise a gang what it is planned to get; yield who is still to be evicted for it.

    Of those that it goes before some may not run yet: they lose what they were promised, and keep their places.
    """
    promises_ = desk.preempting.nominations
    before = [promises_.pop(victim.uid) for victim in answer.victims if victim.uid in promises_]
    running = tuple(victim for victim in answer.victims if victim.uid not in {one.uid for one in before})
    _promise(desk, facts, replace(answer, victims=running), going, before)
    if running:
        yield replace(answer, victims=running)


def _promise(
    desk: LeaderState,
    facts: CycleInputs,
    answer: PreemptionTargets,
    going: Iterable[PreemptionCandidate],
    before: Sequence[Nomination] = (),
) -> None:
    """Note a promise. before: those that it takes over, with the gangs that were evicted for these."""
    group = answer.group
    gone = [*answer.victims, *(tenant for tenant in going if _is_gone_for(desk, facts, tenant, group))]
    victims = {uid: at for one in before for uid, at in one.victims.items()}
    victims |= {tenant.uid: tenant.candidate.reserved_at for tenant in gone}
    named = {name for one in before for name in one.names}.union(tenant.key for tenant in gone)
    desk.preempting.nominations[group.uid] = Nomination(
        group=group,
        grant=answer.grant,
        victims=victims,
        names=tuple(sorted(named)),
        pods=frozenset().union(*(one.pods for one in before), *(tenant.belongings.pods for tenant in gone)),
        since=facts.now,
    )


def _is_gone_for(desk: LeaderState, facts: CycleInputs, tenant: PreemptionCandidate, group: Group) -> bool:
    """Return whether a gang that goes was evicted for this one, by this leader or an earlier one."""
    record = facts.snapshot.gangs.get(tenant.key)
    evicted = desk.evicted.get(tenant.uid) or (record.evicted if record is not None else None)
    return evicted is not None and evicted.made_room_for == group.key


def _plans(desk: LeaderState, facts: CycleInputs, rules: Rules, cluster: ClusterState, usage: Usage) -> None:
    """Promise anew what an earlier leader had promised to gangs for which others go."""
    _, going = _tenants(desk, facts)
    waiting = {group.key: group for group in facts.groups if group.waiting} if going else {}
    scene = PreemptionScope(
        rules=rules, cluster=cluster, queue_usage=QueueUsage(rules.tree, usage), reserve=desk.reserve, going=going
    )
    stage = _Stage(scene, [])
    for group in sorted(waiting.values(), key=queue_order.rank):
        if not any(_is_gone_for(desk, facts, tenant, group) for tenant in going):
            continue
        queue = facts.snapshot.queues.get(group.queue)
        grant = targets.plan(group, queue, (), stage.scene) if queue is not None else None
        if grant is not None:
            answer = PreemptionTargets(group=group, grant=grant, victims=())
            stage.take(answer)
            _promise(desk, facts, answer, going)
