"""The preemption step: for which held gangs others are evicted, and the nominations of these gangs.

It is decided after everything else in a cycle, on the cluster state as it is then; a held gang is tried again only when
something has changed. The result is a nomination in this leader's memory; evictions are written to the status of the
victims and then to the ledger. The next leader reads there which gangs are evicted for which: it evicts no further gang
for one as long as those being evicted suffice.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from admission.api.muster import gang_references
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.status import StatusState
from admission.cycle.state.term import Term
from admission.cycle.steps.evict import GangEviction
from admission.dra.state.cluster_state import ClusterState
from admission.lifecycle import eviction as lifecycle_eviction
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.queue_order import Order, Tournament
from admission.scheduling import cycle
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.checks.chain import Decision, Grant, Rules
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.preemption import candidates, equivalence, nominations, targets
from admission.scheduling.preemption.nominations import Nomination, Nominations
from admission.scheduling.preemption.targets import PreemptionCandidate, PreemptionScope, PreemptionTargets
from admission.scheduling.preemption.victim_searches import VictimSearches
from admission.workloads.gang_cache import GangCache
from admission.workloads.gangs import Group

MOST_TRIES = 4
"""The most questions for which victims are searched in one cycle; the others follow in the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """Decides about pending gangs with preemption, and evicts the victims."""

    term: Term
    mirror: LedgerMirror
    evictions: EvictionState
    in_flight: InFlight
    gangs: GangCache
    nominations: Nominations
    searches: VictimSearches
    backfill: Backfill
    cache: SchedulingCache
    statuses: StatusState
    eviction: GangEviction

    def decide(
        self, inputs: CycleInputs, rules: Rules, cluster: ClusterState, usage: Usage
    ) -> tuple[CycleDecisions, tuple[PreemptionTargets, ...]]:
        """Decide about the pending gangs, and which gangs to evict for those that are held."""
        backfill = self.backfill
        if not self.nominations.by_gang and not any(map(targets.may_preempt, inputs.snapshot.queues.values())):
            self.nominations.mark_restored()
            return cycle.decide_all(inputs.groups, rules, cluster, usage, backfill), ()
        if not self.nominations.has_restored:
            self._nominate_restored(inputs, rules, cluster, usage)
            self.nominations.mark_restored()
        leaving = self.nominations.leaving(self.mirror.book.placements, cluster.users)
        decided = nominations.decide_all(
            inputs.groups, rules, cluster, usage, self.nominations, backfill=backfill, leaving=leaving
        )
        found = {decision.group.uid: decision for decision in decided.updated}
        dropped = self._drop_unreachable(inputs, found)
        chosen: tuple[PreemptionTargets, ...] = ()
        is_paid = rules.hold_beyond_limit is None and rules.workspace.balances is not None
        if is_paid and self.term.is_confirmed and not rules.first_in_next:
            before = {*self.nominations.by_gang}
            chosen = tuple(
                self._targets(
                    inputs,
                    found,
                    rules.order,
                    lambda: self._planned_state(inputs, rules, cluster, usage, decided=decided),
                    partial(_in_turn, rules, usage),
                )
            )
            dropped += before - {*self.nominations.by_gang}
        return replace(decided, updated=self.nominations.explain(found, dropped, self.statuses.decisions)), chosen

    async def evict(self, inputs: CycleInputs, chosen: Sequence[PreemptionTargets]) -> None:
        """Evict the victims; failed evictions are retried by the next cycles, also of another leader."""
        if not chosen:
            return
        found = self.gangs.groups(inputs.snapshot, self.mirror.book.placements, self.in_flight.leaving)
        groups = {group.uid: group for group in found}
        for one in chosen:
            if self.mirror.is_down:
                self.nominations.drop(one.group.uid)
                self.cache.verdicts.forget_queue(one.group.queue)
                continue
            for victim in one.victims:
                cause = targets.cause(one.group, victim)
                reason, preemptor = targets.reason(one.group, victim, borrows=one.borrows, by_shares=one.by_shares)
                group = groups.get(victim.uid)
                eviction = (
                    lifecycle_eviction.build(group, cause, reason, made_room_for=one.group.key, references=(preemptor,))
                    if group is not None
                    else None
                )
                if eviction is not None:
                    await self.eviction.evict_gang(inputs, eviction)

    # Nominations that no longer stand.

    def _drop_unreachable(self, inputs: CycleInputs, found: dict[GangUid, Decision]) -> list[GangUid]:
        """Drop the nominations of held gangs that no awaited victim can help any more; return the gangs."""
        dropped: list[GangUid] = []
        for uid, nomination in [*self.nominations.by_gang.items()]:
            decision = found.get(uid) or self.statuses.decisions.get(uid)
            outcome = decision.outcome if decision is not None else None
            is_pending = nomination.is_pending(self.mirror.book.placements, inputs.snapshot, inputs.now)
            if not isinstance(outcome, Grant) and not (is_pending and targets.may_help(outcome)):
                self.nominations.drop(uid)
                dropped.append(uid)
        return dropped

    # Targets.

    def _planned_state(
        self, inputs: CycleInputs, rules: Rules, cluster: ClusterState, usage: Usage, *, decided: CycleDecisions
    ) -> "_PlannedState":
        """Return cluster state and usage after the cycle's grants, with nominations taken, and the candidates."""
        grants = [(one.group, one.outcome) for one in decided.updated if isinstance(one.outcome, Grant)]
        started = {group.uid for group, _ in grants}
        left = [nomination for uid, nomination in self.nominations.by_gang.items() if uid not in started]
        charges = [(one.group.queue, one.grant.plan.charge) for one in left]
        charges += [(group.queue, grant.plan.charge) for group, grant in grants]
        cluster = self.nominations.over(cluster, left)
        for group, grant in grants:
            cluster = nominations.granted(cluster, group, grant)
        queue_usage = QueueUsage(rules.tree, nominations.charged(usage, charges))
        staying, going = self._candidates(inputs)
        staying += (one.candidate() for one in left if self._may_be_taken_over(one, going))
        backfill = self.backfill
        return _PlannedState(
            PreemptionScope(rules=rules, cluster=cluster, queue_usage=queue_usage, backfill=backfill, going=going),
            staying,
        )

    def _candidates(self, inputs: CycleInputs) -> tuple[list[PreemptionCandidate], list[PreemptionCandidate]]:
        """Return the gangs that could be evicted, and those that end anyway, stalled evictions in neither."""
        candidate_inputs = candidates.CandidateInputs(
            placements=self.mirror.book.placements,
            observed=inputs.observed,
            leaving=self.in_flight.leaving,
            now=inputs.now,
            idle=inputs.idle,
        )
        staying, going = candidates.candidates(inputs.groups, candidate_inputs)
        ending, evicted = {*self.evictions.ending}, self.evictions.evicted
        ending_soon = {uid for uid in ending if inputs.now <= evicted[uid].at + nominations.LONGEST}
        going += [one for one in staying if one.uid in ending_soon]
        busy = ending | inputs.taken_back
        return [one for one in staying if one.uid not in busy], going

    def _may_be_taken_over(self, nomination: Nomination, going: Iterable[PreemptionCandidate]) -> bool:
        """Return whether all victims of a nomination are ending, so that its devices will be free."""
        ending = {one.uid for one in going}
        return all(uid in ending for uid in nomination.victims if uid in self.mirror.book.placements)

    def _targets(
        self,
        inputs: CycleInputs,
        found: dict[GangUid, Decision],
        order: Order,
        make_state: Callable[[], "_PlannedState"],
        in_turn: Callable[[Iterable[Decision], "_PlannedState"], Tournament[Group]],
    ) -> Iterator[PreemptionTargets]:
        """Yield the targets for held gangs, and nominate these gangs for their plans.

        in_turn: in which order gangs have their turn once those that end anyway have ended.
        """
        searches, cluster = self.searches, self.cache.cluster
        made_from = (
            self.mirror.book.placements,
            inputs.tree,
            inputs.meters,
            *self.nominations.by_gang.values(),
            *self.backfill.estimates.values(),
        )
        if cluster is None or not searches.begin(inputs.groups, cluster, *made_from):
            return
        questions = self._questions(inputs, found, order)
        chosen = {questions[one][0].group.key: one for one in searches.next([*questions], MOST_TRIES)}
        if not chosen:
            return
        state = make_state()
        turns = in_turn([questions[one][0] for one in chosen.values()], state)
        for group in turns:
            question = chosen[group.key]
            decision, queue = questions[question]
            answer = targets.choose(
                group,
                queue,
                decision.needed,
                state.staying,
                state.scope,
                was_reclaimed=equivalence.was_reclaimed(group),
            )
            if answer is None or not answer.victims:
                searches.note_failed(question)
            if answer is None:
                continue
            if answer.victims:
                yield from self._nominate_first(inputs, answer, state.scope.going)
            state.apply(answer)
            turns.grant(group, answer.grant.plan.charge)
            for victim in answer.victims:
                turns.give_back(victim.queue, victim.charge)

    def _questions(
        self, inputs: CycleInputs, found: dict[GangUid, Decision], order: Order
    ) -> dict[Hashable, tuple[Decision, Queue]]:
        """Return the held gangs that may preempt, by question; of equivalent gangs the first by rank."""
        queues = {name: queue for name, queue in inputs.snapshot.queues.items() if targets.may_preempt(queue)}
        waiting = {group.uid for group in inputs.groups if group.queue in queues and group.waiting}
        held = [
            decision
            for uid, decision in {**self.statuses.decisions, **found}.items()
            if uid in waiting
            and decision.group.queue in queues
            and uid not in self.nominations.by_gang
            and uid not in inputs.unready
            and targets.may_help(decision.outcome)
            and not decision.group.started
        ]
        held.sort(key=lambda decision: order.rank(decision.group))
        kept = self.searches
        questions: dict[Hashable, tuple[Decision, Queue]] = {}
        for decision in held:
            queue = queues[decision.group.queue]
            question = kept.question(decision.group, queue, decision.needed, inputs.snapshot)
            questions.setdefault(question, (decision, queue))
        kept.keep(decision.group.uid for decision in held)
        return questions

    # Nominations.

    def _nominate_first(
        self, inputs: CycleInputs, answer: PreemptionTargets, going: Iterable[PreemptionCandidate]
    ) -> Iterator[PreemptionTargets]:
        """Nominate a gang for its plan; yield the targets that have to be evicted.

        Victims that are only nominated and do not run yet lose their nomination and stay pending.
        """
        before = [one for victim in answer.victims if (one := self.nominations.drop(victim.uid)) is not None]
        running = tuple(victim for victim in answer.victims if victim.uid not in {one.uid for one in before})
        self._nominate(inputs, replace(answer, victims=running), going, before)
        if running:
            yield replace(answer, victims=running)

    def _nominate(
        self,
        inputs: CycleInputs,
        answer: PreemptionTargets,
        going: Iterable[PreemptionCandidate],
        before: Sequence[Nomination] = (),
    ) -> None:
        """Record a nomination. before: the nominations that it takes over, with their victims."""
        group = answer.group
        leaving = [*answer.victims, *(one for one in going if self._goes_for(inputs, one, group))]
        victims = {uid: at for one in before for uid, at in one.victims.items()}
        placements = self.mirror.book.placements
        victims |= {one.uid: placements[one.uid].reserved_at for one in leaving if one.uid in placements}
        named = {referent for one in before for referent in one.named}.union(one.referent for one in leaving)
        self.nominations.nominate(
            Nomination(
                group=group,
                grant=answer.grant,
                victims=victims,
                named=tuple(sorted(named, key=lambda referent: referent.key)),
                pods=frozenset().union(*(one.pods for one in before), *(one.belongings.pods for one in leaving)),
                since=inputs.now,
            )
        )

    def _goes_for(self, inputs: CycleInputs, candidate: PreemptionCandidate, group: Group) -> bool:
        """Return whether an ending gang was evicted for this one, by this leader or an earlier one."""
        record = inputs.snapshot.gangs.get(candidate.key)
        evicted = self.evictions.evicted.get(candidate.uid) or (record.evicted if record is not None else None)
        return evicted is not None and gang_references.is_made_for(evicted, group.key, group.record)

    def _nominate_restored(self, inputs: CycleInputs, rules: Rules, cluster: ClusterState, usage: Usage) -> None:
        """Nominate the gangs for which an earlier leader evicted others, if these suffice, as they have their turn."""
        _, going = self._candidates(inputs)
        waiting = {group.key: group for group in inputs.groups if group.waiting} if going else {}
        scope = PreemptionScope(
            rules=rules,
            cluster=cluster,
            queue_usage=QueueUsage(rules.tree, usage),
            backfill=self.backfill,
            going=going,
        )
        state = _PlannedState(scope, [])
        victims = {key: [one for one in going if self._goes_for(inputs, one, group)] for key, group in waiting.items()}
        gangs = [group for key, group in waiting.items() if victims[key]]
        _, in_the_end = scope.without(())
        turns = cycle.turns(gangs, partial(cycle.needed, rules=rules), rules, usage, in_the_end)
        for group in turns:
            queue = inputs.snapshot.queues.get(group.queue)
            if queue is None:
                continue
            was_reclaimed = equivalence.was_reclaimed(group)
            grant = targets.plan_again(group, queue, victims[group.key], state.scope, was_reclaimed=was_reclaimed)
            if grant is not None:
                answer = PreemptionTargets(group=group, grant=grant, victims=())
                state.apply(answer)
                self._nominate(inputs, answer, going)
                turns.grant(group, grant.plan.charge)


def _in_turn(rules: Rules, usage: Usage, held: Iterable[Decision], state: "_PlannedState") -> Tournament[Group]:
    """Return held gangs as they have their turn once those that end anyway have ended: as in a cycle after that.

    By rank alone an older gang would be planned on what a queue with a smaller share gets then, and others be evicted
    for that queue in vain.
    """
    _, queue_usage = state.scope.without(())
    needed = {decision.group.key: decision.needed for decision in held}
    return cycle.turns(
        [decision.group for decision in held], lambda group: needed[group.key], rules, usage, queue_usage
    )


@dataclass(slots=True)
class _PlannedState:
    """The state for the next preempting gang. staying: the gangs that could be evicted."""

    scope: PreemptionScope
    staying: list[PreemptionCandidate]

    def apply(self, found: PreemptionTargets) -> None:
        """Take a gang's plan, and count the victims as ending."""
        scope, plan = self.scope, found.grant.plan
        queue_usage = scope.queue_usage.copy()
        queue_usage.charge(found.group.queue, plan.charge)
        self.scope = replace(
            scope,
            cluster=nominations.with_nomination(scope.cluster, found.group, found.grant),
            queue_usage=queue_usage,
            going=[*scope.going, *found.victims],
        )
        victims = {victim.uid for victim in found.victims}
        self.staying = [one for one in self.staying if one.uid not in victims]
