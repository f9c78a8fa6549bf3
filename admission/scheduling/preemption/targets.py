"""The preemption targets of a held gang: whole gangs without which it has a plan.

`quota.preemption` enumerates the sets of gangs that may be evicted. For each set, this module makes the cycle's own
decision about the pending gang, in the cluster state and with the quotas without these gangs and without those that end
anyway, and with the reservations of heads ahead of it. So a victim is chosen only if its eviction lets the gang start.

Only a plan says what the gang is charged in full: its devices may have a price, its claims leave open which or how many
it gets, and an elastic gang starts with as many pods as fit. So the rules are asked again with the plan's charge, and
where they forbid it, as the queue would borrow, for a plan within its own quota. Else two such gangs would evict each
other in turn for ever, each for the little that is certain of its charge.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.api.muster.gangs import MADE_ROOM_FOR, Charge
from admission.api.muster.queues import Queue, Reclaim, WithinQueue
from admission.api.values import references
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import EvictionReason, Hold, HoldReason
from admission.api.values.references import Kind, Reference, Referent
from admission.dra.requests.gang_request import Affordable, Shortfall, anything
from admission.dra.state import what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Belongings
from admission.quota import preemption, preemption_rules
from admission.quota.headroom import QueueUsage
from admission.quota.preemption import Bounds, Victims
from admission.quota.preemption_rules import Candidate, Incoming
from admission.scheduling.backfill import single_gang
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.checks import chain, demand, preference
from admission.scheduling.checks.chain import Grant, Inputs, Rules
from admission.workloads.gangs import Group

HELPED = frozenset({HoldReason.QUOTA_EXCEEDED, HoldReason.DEVICES_BUSY})
"""The reasons of holds that an eviction may end."""

BOUNDS = Bounds(fits=48, sets=2_000)
"""Lower than the defaults, since each call of `fits` is a search for a plan."""

MOST_CHARGES = 8
"""The most charges by which the rules are asked, each half of the one before it, so that the smallest is 1 % of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionCandidate:
    """An admitted gang, and what its eviction frees. key: `namespace/name`."""

    key: str
    candidate: Candidate
    belongings: Belongings

    @property
    def referent(self) -> Referent:
        return Referent(kind=Kind.GANG, key=self.key, queue=self.queue)

    @property
    def uid(self) -> GangUid:
        return self.candidate.uid

    @property
    def queue(self) -> QueueName:
        return self.candidate.queue

    @property
    def charge(self) -> Charge:
        return self.candidate.charge


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionScope:
    """The inputs of the choice: the cluster state and quotas as they are now. going: gangs that end in any case."""

    rules: Rules
    cluster: ClusterState
    queue_usage: QueueUsage
    backfill: Backfill | None = None
    going: Sequence[PreemptionCandidate] = ()
    bounds: Bounds = BOUNDS

    def without(self, evictable: Iterable[PreemptionCandidate]) -> tuple[ClusterState, QueueUsage]:
        """Return the cluster state and usage without these gangs and those that end in any case."""
        removed = [*self.going, *evictable]
        queue_usage = self.queue_usage.copy()
        for one in removed:
            if queue_usage.tree.active(one.queue):
                queue_usage.give_back(one.queue, one.charge)
        return what_if.without_gangs(self.cluster, [one.belongings for one in removed]), queue_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionTargets:
    """The grant of a gang once the victims are gone; none are needed if the gangs that end anyway suffice.

    borrows: whether its queue then borrows itself, so that nothing is taken back. by_shares: whether
    it does so by shares, and not by priority.
    """

    group: Group
    grant: Grant
    victims: tuple[PreemptionCandidate, ...]
    borrows: bool = False
    by_shares: bool = False


def may_preempt(queue: Queue) -> bool:
    """Return whether a queue's gangs may preempt at all."""
    asked = queue.preemption
    return asked.within_queue is not WithinQueue.NEVER or asked.reclaim is not Reclaim.NEVER


def may_help(outcome: object) -> bool:
    """Return whether the outcome is a hold that an eviction may end."""
    return isinstance(outcome, Hold) and outcome.reason in HELPED


def plan(
    group: Group,
    queue: Queue,
    evictable: Iterable[PreemptionCandidate],
    scope: PreemptionScope,
    kind: str | None = None,
    *,
    allows: Affordable = anything,
) -> Grant | None:
    """Return the grant of a gang without these gangs and those that end anyway, beside reservations; None if held.

    kind: of devices, if only that is to be tried, of those that the queue prefers. allows: what its charge keeps to.
    """
    evictable = [*evictable]
    inputs = replace(_inputs(group, queue, evictable, scope, kind), allows=allows)
    found = single_gang.granted(inputs, {one.key for one in (*scope.going, *evictable)}, scope.backfill)
    return None if found is None else found.outcome


def choose(
    group: Group,
    queue: Queue,
    needed: Charge,
    evictable: Iterable[PreemptionCandidate],
    scope: PreemptionScope,
    *,
    was_reclaimed: bool,
) -> PreemptionTargets | None:
    """Return the gangs to evict for a gang; None if no set helps, or none is found within the bounds.

    needed: a lower bound on its charge. evictable: the admitted gangs. was_reclaimed: whether the gang waits since
    others took back what its queue had borrowed. Of the kinds of devices that the queue prefers one is taken for which
    no gang of the queue itself is evicted, then one for which the queue does not borrow, then the first.
    """
    evictable = [*evictable]
    inputs = chain.with_demand(_inputs(group, queue, (), scope)) if queue.preferences is not None else None
    tried = chain.attempts(inputs) if inputs is not None else ()
    kinds: list[tuple[str | None, Charge]] = [(one.name, chain.least_charge(one, inputs)) for one in tried if inputs]
    found = [
        one
        for kind, least in kinds or [(None, needed)]
        if (one := _choose(group, queue, least, evictable, scope, kind, was_reclaimed=was_reclaimed)) is not None
    ]
    return min(
        found, key=lambda one: (any(victim.queue == queue.name for victim in one.victims), one.borrows), default=None
    )


def plan_again(
    group: Group,
    queue: Queue,
    victims: Sequence[PreemptionCandidate],
    scope: PreemptionScope,
    *,
    was_reclaimed: bool,
) -> Grant | None:
    """Return the grant of a gang for which victims were evicted before, which end anyway; None if there is none.

    By the rules for which they went: if these were to take back the queue's own, or by its share, so is the plan.
    """
    found = plan(group, queue, (), scope)
    if found is None:
        return None
    uids = {one.uid for one in victims}
    others = replace(scope, going=[one for one in scope.going if one.uid not in uids])
    _, queue_usage = others.without(())
    incoming = _incoming(group, queue, found.plan.charge, was_reclaimed=was_reclaimed)
    rules, evicted = preemption_rules.Rules(queue_usage, incoming), [one.candidate for one in victims]
    allows = _within_rules(queue, rules, evicted)
    if allows(found.plan.charge) is None:
        return found
    less = plan(group, queue, (), scope, allows=allows)
    return found if less is None and rules.may_borrow(evicted) else less


def _inputs(
    group: Group,
    queue: Queue,
    evictable: Iterable[PreemptionCandidate],
    scope: PreemptionScope,
    kind: str | None = None,
) -> Inputs:
    """Return the inputs of the decision about a gang without these gangs and those that end anyway."""
    cluster, queue_usage = scope.without(evictable)
    rules = scope.rules.on_trial()
    return Inputs(rules=rules, group=group, queue=queue, cluster=cluster, queue_usage=queue_usage, only=kind)


def _choose(  # noqa: PLR0917 - as `choose`
    group: Group,
    queue: Queue,
    needed: Charge,
    evictable: Sequence[PreemptionCandidate],
    scope: PreemptionScope,
    kind: str | None,
    *,
    was_reclaimed: bool,
) -> PreemptionTargets | None:
    candidates = {
        one.uid: one for one in evictable if one.uid != group.uid and scope.queue_usage.tree.active(one.queue)
    }
    incoming = _incoming(group, queue, needed, was_reclaimed=was_reclaimed)
    _, queue_usage = scope.without(())
    return _Search(group, queue, scope, kind, candidates, incoming, queue_usage).targets()


def _incoming(group: Group, queue: Queue, charge: Charge, *, was_reclaimed: bool) -> Incoming:
    return Incoming(
        queue=queue.name,
        priority=group.priority,
        queued_since=group.queued_since,
        charge=charge,
        preemption=queue.preemption,
        was_reclaimed=was_reclaimed,
    )


def _within_own(queue: Queue, rules: preemption_rules.Rules, evicted: Sequence[Candidate]) -> Affordable:
    """Return what only charges pass with which the queue takes back its own, by the meters of the rules."""

    def allows(charge: Charge) -> Shortfall | None:
        return None if rules.stays_own(evicted, charge) else preference.WouldBorrow(queue.name)

    return allows


def _within_rules(queue: Queue, rules: preemption_rules.Rules, evicted: Sequence[Candidate]) -> Affordable:
    """Return what only charges pass with which the queue takes back its own, or has a share that is small enough.

    So an elastic gang starts with fewer pods than there is room for, as with partial admission in Kueue.
    """
    within_own = _within_own(queue, rules, evicted)

    def allows(charge: Charge) -> Shortfall | None:
        return None if rules.keeps_shares(evicted, charge) else within_own(charge)

    return allows


def _at_most_half(queue: Queue, most: Charge) -> Affordable:
    """Return what only charges pass that are at most half of another by some meter, and no more by the others."""

    def allows(charge: Charge) -> Shortfall | None:
        is_less = any(charge.get(meter, 0) * 2 <= amount for meter, amount in most.items() if amount)
        is_more = any(amount > most.get(meter, 0) for meter, amount in charge.items())
        return None if is_less and not is_more else preference.WouldBorrow(queue.name)

    return allows


@dataclass(slots=True)
class _Search:
    """The search for the victims of one gang, on one kind of devices if `kind` names one.

    incoming: with a lower bound on the charge. queue_usage: without the gangs that end anyway.
    """

    group: Group
    queue: Queue
    scope: PreemptionScope
    kind: str | None
    candidates: Mapping[GangUid, PreemptionCandidate]
    incoming: Incoming
    queue_usage: QueueUsage
    _plans: dict[frozenset[GangUid], Grant | None] = field(default_factory=dict)
    _grants: dict[frozenset[GangUid], Grant] = field(default_factory=dict)
    """By what was removed, the grant that counts: that of `_plans`, or one within the own quota."""
    _charge: Charge = field(default_factory=dict)
    """By which the rules are asked."""

    def targets(self) -> PreemptionTargets | None:
        """Return the targets by what is certain of the charge, else by the charges of plans."""
        return next((found for charge in self._charges() if (found := self._targets(charge)) is not None), None)

    def _charges(self) -> Iterator[Charge]:
        """Yield what the gang may be charged: what is certain, then what plans without all that may go are charged."""
        least = self.incoming.charge
        yield least
        rules = self._rules(least)
        removed = [uid for uid, one in self.candidates.items() if rules.may_be_eligible(one.candidate)]
        if not removed:
            return
        inputs = chain.with_demand(_inputs(self.group, self.queue, (), self.scope, self.kind))
        if demand.is_certain(inputs.demands, self.scope.rules.meters):
            return
        found = self._grants.get(frozenset(removed)) if self._fits(frozenset(removed)) else None
        if found is None:
            return
        yield from reversed([*self._smaller_charges(frozenset(removed), found.plan.charge)])
        rules, evicted = self._rules(found.plan.charge), self._evicted(removed)
        if not rules.stays_own(evicted, found.plan.charge):
            own = self._plan(frozenset(removed), _within_own(self.queue, rules, evicted))
            if own is not None and own.plan.charge != least:
                yield own.plan.charge

    def _smaller_charges(self, removed: frozenset[GangUid], charge: Charge) -> Iterator[Charge]:
        """Yield the charge of a plan, then of plans for half of it and less: for fewer pods, or for other devices.

        Fewer have to go for these, as where the charge is certain: there the least counts.
        """
        for _ in range(MOST_CHARGES):
            if charge != self.incoming.charge:
                yield charge
            found = self._plan(removed, _at_most_half(self.queue, charge))
            if found is None:
                return
            charge = found.plan.charge

    def _targets(self, charge: Charge) -> PreemptionTargets | None:
        rules, known = self._rules(charge), [one.candidate for one in self.candidates.values()]
        if not self.scope.going and not any(map(rules.is_eligible, known)):
            return None
        self._charge = charge
        incoming = replace(self.incoming, charge=charge)
        found = preemption.choose_fewest(
            self.queue_usage, incoming, known, self._fits, self.scope.bounds, permits=self._permits
        )
        if not isinstance(found, Victims):
            return None
        grant = self._grants[frozenset(found.gangs)]
        evicted, rules = self._evicted(found.gangs), self._rules(grant.plan.charge)
        borrows = not rules.reclaims(evicted)
        return PreemptionTargets(
            group=self.group,
            grant=grant,
            victims=tuple(self.candidates[uid] for uid in found.gangs),
            borrows=borrows,
            by_shares=borrows and not rules.allow_by_priority(evicted),
        )

    def _fits(self, removed: frozenset[GangUid]) -> bool:
        if removed not in self._plans:
            self._plans[removed] = self._plan(removed, anything)
        found = self._plans[removed]
        if found is not None:
            self._grants[removed] = found
        return found is not None

    def _permits(self, removed: frozenset[GangUid]) -> bool:
        """Return whether the rules allow the eviction for the charge of the plan, or of one that they allow."""
        charge, evicted = self._grants[removed].plan.charge, self._evicted(removed)
        if charge == self._charge:
            return True
        rules = self._rules(charge)
        if rules.allow(evicted):
            return True
        # Within its own quota a gang may be allowed more than by its share, and the other way round.
        for allows in (_within_rules(self.queue, rules, evicted), _within_own(self.queue, rules, evicted)):
            found = self._plan(removed, allows)
            if found is not None and self._rules(found.plan.charge).allow(evicted):
                self._grants[removed] = found
                return True
        return False

    def _plan(self, removed: frozenset[GangUid], allows: Affordable) -> Grant | None:
        evicted = [self.candidates[uid] for uid in removed]
        return plan(self.group, self.queue, evicted, self.scope, self.kind, allows=allows)

    def _evicted(self, removed: Iterable[GangUid]) -> list[Candidate]:
        return [self.candidates[uid].candidate for uid in removed]

    def _rules(self, charge: Charge) -> preemption_rules.Rules:
        return preemption_rules.Rules(self.queue_usage, replace(self.incoming, charge=charge))


def cause(group: Group, victim: PreemptionCandidate) -> EvictionReason:
    """Return the reason code of a victim's eviction."""
    return EvictionReason.PREEMPTED if victim.queue == group.queue else EvictionReason.RECLAIMED


def reason(
    group: Group, victim: PreemptionCandidate, *, borrows: bool = False, by_shares: bool = False
) -> tuple[str, Reference]:
    """Return the reason of a victim's eviction in words, with its reference to the gang that it makes room for.

    borrows: whether the gang's queue then borrows itself. by_shares: as in `PreemptionTargets`.
    """
    referent = Referent(kind=Kind.GANG, key=group.key, queue=group.queue)
    reference = references.refer([referent], detail=MADE_ROOM_FOR)
    if victim.queue == group.queue:
        is_above = group.priority > victim.candidate.priority
        what = f"above {victim.candidate.priority}" if is_above else "the same, and queued earlier"
        above = f"priority {group.priority}, {what}"
        return f"{reference.phrase} needs its place in the same queue ({above})", reference
    if by_shares:
        return f"{reference.phrase} is of a queue with a smaller share of what is lent than {victim.queue}", reference
    if borrows:
        above = f"priority {group.priority}, above {victim.candidate.priority}"
        return f"{reference.phrase} borrows what queue {victim.queue} has borrowed ({above})", reference
    borrowed = f"what queue {victim.queue} has borrowed from queue {group.queue} or those above"
    return f"{reference.phrase} takes back {borrowed}", reference
