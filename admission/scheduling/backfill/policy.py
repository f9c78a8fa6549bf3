"""EASY backfill: the head of a queue gets a reservation, and later gangs start only if they do not delay it.

Source: Lifka, *The ANL/IBM SP scheduling system*, JSSPP 1995, with plans in place of processor counts. A *head* is the
first gang of a queue that waits for devices or quota held by gangs which will end. Its *reservation* is the first
expected end of a running gang by which a plan exists for it, and that plan: devices, nodes, quota. A later gang (lower
priority, or equal priority and queued later) starts if it ends before the reservation begins or leaves it untouched.
Reservations of heads that rank higher come first; but between queues that lend each other, those of heads that do not
borrow (`precedence`). Where expected ends are unknown, there is no reservation and gangs that fit may pass; a gang
without a declared run time is assumed to run for ever. A reservation is made when a later gang would conflict with it;
it stands until it begins or an expectation fails.
"""

import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Hold
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Plan
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.what_if import Interval, WhatIfSeries
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import BY_RANK, Order, Rank
from admission.scheduling.backfill import earliest_start, precedence, queue_head, reservations
from admission.scheduling.backfill.queue_head import NEVER, QueueHead, waits
from admission.scheduling.backfill.reservations import (
    Estimate,
    ExpectedEnd,
    Moment,
    Reservation,
    Times,
    UsageExcludingReserved,
)
from admission.scheduling.backfill.reserved_states import ReservedStates
from admission.scheduling.backfill.running_gangs import RunningGangs
from admission.scheduling.backfill.unreachable import NeverFits
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.queue_cache import Premise
from admission.scheduling.cache.verdict_cache import PROOF, QUOTA, RESERVED, Verdict
from admission.scheduling.checks import chain, runtime
from admission.scheduling.checks.chain import Grant, Inputs, Rules
from admission.workloads.gangs import Group

MOST = 16
"""The most heads with a reservation, first ones first: each costs plans, and a check for every gang behind it."""


@dataclass(slots=True)
class Backfill:
    """The heads of the queues, their reservations, and the running gangs. One per leader.

    Rule: only this class changes heads, reservations and running gangs. `expect` comes before `begin` in a cycle, and
    `note` follows every verdict.

    The heads are kept by hand, since they change within a cycle with every verdict and grant; states beside sets of
    reservations are kept for one cluster state each.
    """

    _present: RunningGangs
    revision: int = 0
    """Grows when a reservation is dropped."""
    is_new: bool = False
    """Whether this is the first cycle, in which the heads are not known yet."""
    _heads: dict[QueueName, QueueHead] = field(default_factory=dict)
    _order: Order = BY_RANK
    _front: list[tuple[Rank, QueueHead]] | None = None
    """The heads that may have a reservation, in order; None until recomputed."""
    _made_from: tuple[Hashable, ...] = ()
    _seen: ClusterState | None = None
    """The cluster state of the last cycle."""
    _unsure: dict[QueueName, tuple[GangUid, Estimate]] = field(default_factory=dict)
    """By queue, the first gang that waits for gangs with unknown ends, and its estimate."""
    _keepers: Mapping[QueueName, tuple[GangUid, Charge]] = field(default_factory=dict)
    """By queue, the gang for which it kept quota at the end of the last cycle, and for which charge."""
    _guesses: dict[QueueName, datetime] = field(default_factory=dict)
    """By queue, the start computed for its last head, as a first guess for the next one."""
    _plans: PlanCache = field(default_factory=PlanCache)
    """Proofs that there is no plan beside reservations."""
    _later: WhatIfSeries = field(default_factory=lambda: WhatIfSeries("later"))
    _states: ReservedStates = field(default_factory=ReservedStates)
    _never_fits: NeverFits = field(init=False)

    def __post_init__(self) -> None:
        self._never_fits = NeverFits(self._present)

    @property
    def now(self) -> datetime:
        return self._present.now

    def expect(self, expected_ends: Mapping[str, ExpectedEnd], now: datetime) -> None:
        """Replace the running gangs at the beginning of a cycle."""
        self._present.expect(expected_ends, now)

    def move_to(self, now: datetime) -> None:
        """Set the time."""
        self._present.move_to(now)

    def rank_by(self, order: Order) -> None:
        """Set the ranks of gangs. Those of gangs that were not considered yet may change while they are granted."""
        self._order, self._front = order, None

    def begin(self, rules: Rules, waiting: Collection[GangUid], cluster: ClusterState) -> None:
        """Start a cycle. waiting: the pending gangs.

        If the cluster state or running gangs have changed, a reservation is proved again when it is needed; if other
        inputs have, it is made again. Heads stay heads.
        """
        present = self._present
        present.move_to(rules.now)
        self.rank_by(rules.order)
        made_from = rules.profile, rules.workspace.verdicts.cleared
        self.is_new = not self._made_from
        if made_from != self._made_from:
            self._made_from = made_from
            self._reset(rules.snapshot.queues)
        is_vague, is_same, late = present.is_vague, cluster is self._seen, present.late()
        self._seen = cluster
        if is_vague:
            self._never_fits.clear()
        for queue, head in [*self._heads.items()]:
            if head.group.uid not in waiting:
                self._drop(queue)
            elif head.reservation is not None:
                # Who is late is expected to go on for longer, though nothing has changed.
                head.reservation.is_proved &= is_same and not head.reservation.is_overrun(late)
                if head.may_start_sooner(present):
                    self._cancel(head)
        present.reset_flags()
        self._unsure = {queue: one for queue, one in self._unsure.items() if one[0] in waiting}
        if not self._heads and not self._never_fits:
            self._plans = PlanCache()
            self._never_fits.forget()
        self._never_fits.begin(waiting, 2 * len(waiting) + MOST)

    def _reset(self, queues: Mapping[QueueName, Queue]) -> None:
        for name, head in [*self._heads.items()]:
            queue = queues.get(name)
            if queue is None:
                self._drop(name)
            else:
                self._cancel(head)
                head.queue, head.tried = queue, NEVER
        self._forget()

    def advance(self, now: datetime) -> bool:
        """Advance the time between cycles; return whether a reservation was dropped."""
        present = self._present
        present.move_to(now)
        late, before = present.late(), self.revision
        for head in self._heads.values():
            one = head.reservation
            if one is not None and (head.may_start_sooner(present) or one.at <= now or one.is_overrun(late)):
                self._cancel(head)
        present.reset_ends()
        return self.revision != before

    def require_proofs(self) -> None:
        """Have each reservation proved again when it is needed, since it was proved on another usage."""
        for head in self._heads.values():
            if head.reservation is not None:
                head.reservation.is_proved = False

    @property
    def next(self) -> datetime | None:
        """Return when the next reservation begins; None if there is none."""
        found = (head.reservation for head in self._heads.values())
        return min((one.at for one in found if one is not None and one.at > self._present.now), default=None)

    def decide(self, inputs: Inputs, first: Callable[[Inputs], Verdict] = chain.decide) -> Verdict:
        """Decide about a gang; hold it if it would delay a reservation of a head ahead of it. first: without these."""
        short = self._shortly(inputs) if inputs.rules.mute else None
        if short is not None:
            return short
        found = first(inputs)
        if not isinstance(found.outcome, Grant):
            return found
        verdict = self._beside_reserved(inputs, found)
        if isinstance(verdict.outcome, Grant) or (own := precedence.without_loans(inputs, verdict.bound)) is None:
            return verdict
        found = chain.decide(own)
        again = self._beside_reserved(own, found) if isinstance(found.outcome, Grant) else verdict
        return again if isinstance(again.outcome, Grant) else verdict

    def _beside_reserved(self, inputs: Inputs, found: Verdict) -> Verdict:
        """Return the verdict on a gang that is granted, beside the reservations that bind it."""
        plan = found.outcome.plan
        ahead = self._ahead(inputs, plan.charge)
        end = self._end(inputs.group, inputs.queue) if ahead else None
        bound = tuple(one for one in ahead if precedence.reaches(end, one))
        # Claims keep their volumes when their gang has ended.
        robbed = tuple(one for one in ahead if not one.leaves_volumes(inputs.group, plan))
        if not robbed and all(one.leaves(inputs.group, plan) for one in bound):
            return found
        bound = (*bound, *(one for one in robbed if one not in bound))
        rules = replace(inputs.rules, workspace=replace(inputs.rules.workspace, plans=self._plans), mute=True)
        cluster, queue_usage = self._cluster(bound, inputs.cluster), UsageExcludingReserved(inputs.queue_usage, bound)
        decision = chain.decide(replace(inputs, rules=rules, cluster=cluster, queue_usage=queue_usage))
        if isinstance(decision.outcome, Grant):
            plan = decision.outcome.plan
            # Another plan may borrow where the first one does not, and is bound by others then.
            is_bound = any(one not in ahead for one in self._ahead(inputs, plan.charge))
            if not is_bound and all(one.leaves_pods(inputs.group, plan) for one in bound):
                return decision
        return Verdict(
            group=inputs.group,
            outcome=reservations.behind(inputs.group, inputs.queue, bound, self._order),
            needed=found.needed,
            by=RESERVED if decision.by in {PROOF, QUOTA} else "",
            equivalent=decision.equivalent,
            proof=decision.proof,
            bound=bound,
            bound_by_loan=precedence.behind_in_rank(bound, inputs.group, self._order),
        )

    def _shortly(self, inputs: Inputs) -> Verdict | None:
        """Hold a gang for which quota is too short, reservations excluded, without planning for it.

        Used where the reason of a hold does not matter. None if reservations have to be made or proved first.
        """
        ahead = [head for own, head in self._ranked_heads() if own < self._order.rank(inputs.group)]
        made = [head.reservation for head in ahead if head.tried != self._present.changes]
        if not ahead or not all(one is not None and one.is_proved and self._present.now < one.at for one in made):
            return None
        end = self._end(inputs.group, inputs.queue)
        reached = [one for one in made if one is not None and precedence.reaches(end, one)]
        asked = chain.with_demand(inputs) if reached else inputs
        bound = tuple(precedence.binding(reached, inputs.group, asked.needed, inputs.queue_usage, self._order))
        if not bound or not chain.is_short(asked, UsageExcludingReserved(inputs.queue_usage, bound)):
            return None
        behind = reservations.behind(inputs.group, inputs.queue, bound, self._order)
        return Verdict(group=inputs.group, outcome=behind, needed=asked.needed, by=RESERVED, bound=bound)

    def stands(
        self, held: Verdict | Premise, queue: QueueName, cluster: ClusterState, usage: QueueUsage, selectors: Selectors
    ) -> bool:
        """Return whether a gang of a queue would still delay a reservation."""
        bound: tuple[Reservation, ...] = held.bound
        heads = {id(head.reservation): head for head in self._heads.values()}
        is_kept = all(id(one) in heads and self._is_kept(heads[id(one)], one, cluster, usage) for one in bound)
        if not is_kept or not precedence.still_bind(held, queue, usage, self._order):
            return False
        if held.proof is None or held.equivalent is None:
            return not UsageExcludingReserved(usage, bound).fits(queue, held.needed)
        return self._plans.proof(held.equivalent.key, self._cluster(bound, cluster), selectors) is held.proof

    def until(self, bounds: Iterable[Sequence[Reservation]]) -> datetime | None:
        """Return by when a gang behind others must end to be bound by fewer reservations than in any of `bounds`.

        None if no end helps. bounds: of those others. Only those whose reservations all still exist count.
        """
        made = {id(one) for one in self.made()}
        kept = (bound for bound in bounds if all(id(one) in made for one in bound))
        return min((max(one.at for one in bound) for bound in kept), default=None)

    def note(self, verdict: Verdict, inputs: Inputs | None) -> None:
        """Record the verdict on a gang, in the order of its queue. A granted gang starts.

        inputs: those of the verdict; None for a gang that may not enter its queue.
        """
        if inputs is not None and isinstance(verdict.outcome, Grant):
            self.start(verdict.group, inputs.queue, verdict.outcome.plan)
            return
        group, head = verdict.group, self._heads.get(verdict.group.queue)
        is_head = head is not None and head.group.uid == group.uid
        # A gang that runs is no head: its other pods join as they fit, and nothing is reserved for them.
        if inputs is None or not waits(verdict) or group.runs:
            holds_up = inputs is not None and not group.runs and isinstance(verdict.outcome, Hold)
            if head is not None and (is_head or (holds_up and head.is_behind(group, self._order))):
                self._drop(group.queue)
            return
        if head is not None and not is_head and self._order.rank(head.group) < self._order.rank(group):
            return
        if head is not None and is_head and reservations.are_equivalent(head.group, group):
            head.group = group
            return
        never_fits = self._never_fits.refresh(inputs, verdict)
        if head is not None and (is_head or not never_fits or head.is_behind(group, self._order)):
            self._drop(group.queue)
        if not never_fits:
            self._heads[group.queue] = QueueHead(group=group, queue=inputs.queue)
            self._front = None
            if self._unsure.get(group.queue, ("",))[0] == group.uid:
                del self._unsure[group.queue]
        elif group.queue not in self._heads:
            self._unsure |= queue_head.unknown_start(verdict, self._unsure.get(group.queue), self._present)

    def start(self, group: Group, queue: Queue, plan: Plan) -> None:
        """Record that a gang starts: charge the reservations that it leaves untouched, drop the others."""
        head = self._heads.get(group.queue)
        if head is not None and head.group.uid == group.uid:
            self._drop(group.queue)
        requests, end = reservations.requests(group, plan), self._end(group, queue)
        for one in self._heads.values():
            reservation = one.reservation
            if reservation is None or not reservation.is_proved:
                continue
            reaches = precedence.reaches(end, reservation)
            if not reservation.note_volumes(group, plan) or (reaches and not reservation.leaves(group, plan)):
                self._cancel(one)
            elif reaches:
                # As a borrower's it may bind fewer gangs.
                self.revision += reservation.charge(plan.charge, requests, group.queue)
            else:
                reservation.passed.add(group.key)
        self._never_fits.note_arrival(group.uid, end)
        devices = tuple(use.device for uses in plan.uses.values() for use in uses)
        pods = frozenset(place.uid for place in plan.pods)
        interval = Interval(gang=group.key, requests=requests, devices=devices, pods=pods)
        self._present.add(ExpectedEnd(interval=interval, queue=group.queue, charge=plan.charge, end=end))

    def end(self, gang: str) -> None:
        """Record that a gang has given everything back."""
        known = self._present.remove(gang)
        if known is not None and known.end is None:
            self._never_fits.clear()
        if known is not None and (known.end is None or known.end > self.now):
            # Reservations were proved beside it.
            self.require_proofs()

    def head(self, queue: QueueName) -> Group | None:
        """Return the head of a queue, if it has one."""
        head = self._heads.get(queue)
        return None if head is None else head.group

    def never_fits(self, group: Group) -> bool:
        """Return whether it is known that a gang would not fit even after all known ends, so that it is no head."""
        return self._never_fits.is_known(group)

    def refresh(self, rules: Rules, cluster: ClusterState, usage: QueueUsage, but: Collection[GangUid] = ()) -> None:
        """Make or prove the reservations of the first heads, at the end of a cycle. but: heads that are left out."""
        # The second time for those beside which a head of a lower rank, which does not borrow, has come to one.
        for head in 2 * [head for _, head in self._ranked_heads() if head.group.uid not in but]:
            inputs = Inputs(rules=rules, group=head.group, queue=head.queue, cluster=cluster, queue_usage=usage)
            self._reservation(head, inputs)

    def note_kept_quota(self, keepers: Mapping[QueueName, tuple[GangUid, Charge]]) -> bool:
        """Record by queue for which gang and charge it keeps quota; return whether these are others than before.

        Then heads without a reservation may come to one.
        """
        is_new, self._keepers = keepers != self._keepers, keepers
        for head in self._heads.values() if is_new else ():
            head.tried = NEVER
        return is_new

    def ahead(
        self, inputs: Inputs, charge: Charge, absent: Collection[str], start: datetime
    ) -> Iterator[Reservation | None]:
        """Yield the reservations that bind a gang which starts at a time, as they are in the state of the inputs.

        None for a reservation that falls in that state anyway. charge: of the gang. absent: running gangs that are
        removed in that state.
        """
        end = runtime.end(start, runtime.declared_runtime(inputs.group, inputs.queue))
        for head in self._heads_that_may_bind(inputs, charge):
            known = head.reservation
            if known is not None and self._present.now < known.at and precedence.reaches(end, known):
                found = self._renewed(head, known, inputs.cluster, inputs.queue_usage, absent)
                if precedence.binding([found or known], inputs.group, charge, inputs.queue_usage, self._order):
                    yield found

    @property
    def estimates(self) -> Mapping[GangUid, Estimate]:
        """Return the computed starts of gangs, or why they cannot be computed."""
        heads = {head.group.uid: one.estimate for head in self._heads.values() if (one := head.reservation) is not None}
        return dict(self._unsure.values()) | heads

    def _drop(self, queue: QueueName) -> None:
        """Remove the head of a queue."""
        self._cancel(self._heads.pop(queue))
        self._front = None

    def _cancel(self, head: QueueHead) -> None:
        """Drop the reservation of a head."""
        self.revision += head.reservation is not None
        head.reservation = None

    def _forget(self) -> None:
        self.revision += 1
        self._never_fits.clear()
        self._never_fits.forget()
        self._guesses.clear()
        self._plans = PlanCache()
        self._states.forget()
        self._present.note_change()

    def _ranked_heads(self) -> list[tuple[Rank, QueueHead]]:
        """Return the heads that may have a reservation, in order, each with its rank."""
        if self._front is None:
            ranked = [(self._order.rank(head.group), head) for head in self._heads.values()]
            self._front = sorted(ranked, key=lambda one: one[0])[:MOST]
        return self._front

    def _heads_that_may_bind(self, inputs: Inputs, charge: Charge) -> list[QueueHead]:
        """Return the heads ahead of a gang with this charge, and those of queues beside which it borrows, in order."""
        rank, may_bind = self._order.rank(inputs.group), partial(precedence.may_bind, inputs, charge)
        return [head for own, head in self._ranked_heads() if own < rank or may_bind(head.queue.name)]

    def made(self, but: QueueHead | None = None) -> list[Reservation]:
        """Return the reservations of the heads, in order; but that of one head."""
        heads = self._ranked_heads()
        return [one.reservation for _, one in heads if one is not but and one.reservation is not None]

    def _ahead(self, inputs: Inputs, charge: Charge) -> tuple[Reservation, ...]:
        """Return the reservations that bind a gang with this charge; those not yet made are made."""
        made = self.ensure_reservations(inputs, charge)
        return tuple(precedence.binding(made, inputs.group, charge, inputs.queue_usage, self._order))

    def ensure_reservations(self, inputs: Inputs, charge: Charge) -> list[Reservation]:
        """Return those that may bind a gang with this charge, proved; those not yet made are made."""
        heads = self._heads_that_may_bind(inputs, charge)
        return [one for head in heads if (one := self._reservation(head, inputs)) is not None]

    def _end(self, group: Group, queue: Queue) -> datetime | None:
        """Return when a gang that starts now ends; None if unknown."""
        return runtime.end(self._present.now, runtime.declared_runtime(group, queue))

    def _cluster(self, bound: tuple[Reservation, ...], cluster: ClusterState) -> ClusterState:
        """Return the cluster state beside reservations."""
        if not self._states.is_for(cluster):
            self._plans.forget_changes()
        return self._states.excluding(bound, cluster)

    def _reservation(self, head: QueueHead, inputs: Inputs) -> Reservation | None:
        """Return the reservation of a head; make it again if it no longer stands."""
        known = head.reservation
        if known is not None and self._is_kept(head, known, inputs.cluster, inputs.queue_usage):
            return known
        self._cancel(head)
        if head.tried != self._present.changes:
            head.reservation, head.made, head.is_old = self._reserve(head, inputs), self._present.now, False
            head.tried = self._present.changes if head.reservation is None else NEVER
            if head.reservation is not None:
                precedence.require_proofs(self.made(), head.reservation)
        return head.reservation

    def _is_kept(self, head: QueueHead, known: Reservation, cluster: ClusterState, queue_usage: QueueUsage) -> bool:
        """Return whether a reservation still stands and has not begun."""
        return self._present.now < known.at and (known.is_proved or self._prove(head, known, cluster, queue_usage))

    def _prove(self, head: QueueHead, known: Reservation, cluster: ClusterState, queue_usage: QueueUsage) -> bool:
        """Return whether a reservation of an earlier cycle stands; update what is left beside it."""
        if (found := self._renewed(head, known, cluster, queue_usage, ())) is not None:
            known.prove(found.queue_usage, found.arrival.room, found.placed)
        return found is not None

    def _renewed(
        self, head: QueueHead, known: Reservation, cluster: ClusterState, usage: QueueUsage, absent: Collection[str]
    ) -> Reservation | None:
        """Return a reservation as it is in a state without the absent gangs; None if it falls in that state."""
        removed = [one for one in self._present.removed(known.at) if one.interval.gang not in absent]
        usage = reservations.usage_without(usage, removed)
        names = {one.interval.gang for one in removed}.union(absent)
        if any(gang in self._present.expected_ends and gang not in names for gang in known.removed):
            return None
        others = self._others(head, known.at, known.plan.charge, usage)
        then = (WhatIfSeries("absent") if absent else self._later).cluster(
            cluster, removed=[one.interval for one in removed], arrived=[one.arrival for one in others]
        )
        reservations.charge(usage, others)
        return reservations.renewed(known, Moment(known.at, then, usage, removed))

    def _others(self, head: QueueHead, at: datetime, charge: Charge, usage: QueueUsage) -> list[Reservation]:
        """Return the reservations of the heads ahead of another that have not ended at a time.

        charge, usage: of that other one, and of the queues at the time.
        """
        left = [one for one in self.made(head) if one.until is None or one.until > at]
        return precedence.binding(left, head.group, charge, usage, self._order)

    def _reserve(self, head: QueueHead, inputs: Inputs) -> Reservation | None:
        """Return a reservation from the first time at which a head has a plan; None if there is no such time."""
        others = sorted(one.until for one in self.made(head) if one.until is not None)
        times = Times(heapq.merge(self._present.ends, others), self._present.now)
        search = earliest_start.Search(
            inputs=chain.with_demand(head.inputs_of(inputs)),
            present=self._present,
            later=self._later,
            others=partial(self._others, head),
        )
        found = search.first(times, self._guesses.get(head.queue.name))
        if found is None:
            return None
        moment, plan = found
        self._guesses[head.queue.name] = moment.at
        already = len(self._present.removed(moment.at - runtime.SECOND))
        return reservations.made(
            head.group,
            plan,
            moment,
            until=runtime.end(moment.at, runtime.declared_runtime(head.group, head.queue)),
            awaits=reservations.pending_gangs(moment, plan, inputs.cluster, already),
            drawn=reservations.drawn(plan, inputs.cluster),
        )
