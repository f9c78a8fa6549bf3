"""The rules of which sets of gangs may be evicted for an incoming one: by priority within its queue, by loans outside.

The rules are those of Kueue's `pkg/scheduler/preemption` (2026: `classical/hierarchical_preemption.go` and
`classical/candidate_generator.go`), stated for the set of victims instead of the order in which they are removed:

- in the own queue, gangs of lower priority, or also those of the same that were queued later (withinQueue); for a gang
  that was reclaimed itself, only if the queue borrows no more than before. Kueue has no such exception, and two queues
  can evict each other's gangs in turn for ever: by priority to borrow, and to take that back;
- in other queues under the same root, borrowed quota (reclaim): the victims can go one after the other so that each,
  before it goes, is of a queue that borrows: of some short meter, the queue and those above it, up to where its path
  meets that of the incoming gang, use more than their own quota. So a gang that is borrowed only in part may go as
  well, and its queue falls below its quota; a set that takes nothing but loans (`takes_only_loans`) is better, and of
  the others the one that takes least of what is no loan (`beyond_loans`);
- and this only to reclaim own quota: without the victims and with the incoming gang, its queue, or one above it but
  below where the paths meet, uses no more than its own quota of every short meter;
- or to borrow, gangs of lower priority, up to a threshold (borrowWithinCohort), of loans alone. In Kueue also gangs
  that are borrowed in part: their queue then takes its own back, and both evict each other in turn for ever;
- or by shares (byShares), of loans alone: the share that the incoming gang's side then has, against that of each
  victim's side, where their paths meet: of what is borrowed of what could be lent, by weight, as in `fair_share`. In
  Kueue the shares are those when a victim is chosen; here they are those in the end, so that no victim goes for the
  share that its side had with another one. A gang that was reclaimed evicts nobody by shares until it has run again,
  so each of the gangs that there are evicts others by shares at most once.

A meter is short if the gang needs more of it than its queue may take; if none is, and only devices are missing, all
meters of its charge count. `preemption` searches the sets that these rules allow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import assert_never

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import BorrowPolicy, ByShares, Preemption, Reclaim, WithinQueue
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.quota.fair_share import Share, share_of_loans
from admission.quota.headroom import QueueUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """The gang for which others may be evicted. charge: of its plan, or a lower bound as long as there is none.

    was_reclaimed: whether it waits since others took back what its queue had borrowed.
    """

    queue: QueueName
    priority: int
    queued_since: datetime
    charge: Charge
    preemption: Preemption
    was_reclaimed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A gang that could be evicted. charge: what its queue would no longer use. queued_since: its place in line.

    is_idle: whether its queue has it evicted before others since its devices are idle.
    """

    uid: GangUid
    queue: QueueName
    priority: int
    reserved_at: datetime
    queued_since: datetime
    charge: Charge
    is_idle: bool = False


BY_SHARES = -1
"""The level (`Rules.level`) at which all may be evicted, whichever queues then borrow."""

_Kind = tuple[QueueName, tuple[MeterName, ...]]
_Unused = dict[tuple[QueueName, MeterName], tuple[int, int]]


class Rules:
    """Checks sets of candidates for one incoming gang. Every method restores the queue usage that it changes."""

    def __init__(self, queue_usage: QueueUsage, incoming: Incoming) -> None:
        self._queue_usage = queue_usage
        self._incoming = incoming
        self._path = queue_usage.tree.path(incoming.queue)
        self._common_ancestors: dict[QueueName, _CommonAncestor | None] = {}
        needed = {meter: amount for meter, amount in incoming.charge.items() if amount}
        margins = {meter: queue_usage.margin(incoming.queue, meter) for meter in needed}
        self.missing = {meter: amount - margins[meter] for meter, amount in needed.items() if amount > margins[meter]}
        """By short meter, the least to be given back: an amount given back frees at most that amount."""
        self._charge = {meter: amount for meter, amount in needed.items() if meter in self.missing or not self.missing}
        self._meters = {*needed, *(meter for quotas in queue_usage.tree.quotas.values() for meter in quotas)}
        self._borrowed_before = {meter: queue_usage.borrowed(incoming.queue, meter) for meter in self._charge}

    @property
    def is_by_shares(self) -> bool:
        """Return whether others may be evicted by shares."""
        return self._incoming.preemption.by_shares is not ByShares.NEVER and not self._incoming.was_reclaimed

    def by_shares(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return the candidates of other queues in the order in which each is of the side with the largest share.

        candidates: the most preferred first, which is so among those of one side.
        """
        sides: dict[QueueName, list[Candidate]] = {}
        for candidate in candidates:
            both = self._sides(candidate.queue)
            if both is not None and not self.is_own(candidate):
                sides.setdefault(both[1], []).append(candidate)
        heap = [(_reversed(self._share(side)), side) for side in sides]
        heapify(heap)
        found: list[Candidate] = []
        while heap:
            _, side = heappop(heap)
            found.append(sides[side].pop(0))
            self._queue_usage.give_back(found[-1].queue, found[-1].charge)
            if sides[side]:
                heappush(heap, (_reversed(self._share(side)), side))
        for candidate in found:
            self._queue_usage.charge(candidate.queue, candidate.charge)
        return found

    def level(self, candidate: Candidate) -> int | None:
        """Return how many queues of the own path are below where the paths meet.

        None for gangs that may go even if the incoming one borrows: those of the own queue, and where the own queue
        preempts to borrow.
        """
        ancestor = self._common_ancestor(candidate.queue)
        return (
            None if ancestor is None or self.is_own(candidate) or self._may_borrow_from(candidate) else ancestor.level
        )

    def levels(self, victims: Iterable[Candidate]) -> list[int]:
        """Return the levels of the victims that may go only to reclaim own quota."""
        return [level for victim in victims if (level := self.level(victim)) is not None]

    def is_eligible(self, candidate: Candidate) -> bool:
        """Return whether the gang may be evicted, alone or with others."""
        return self._is_named(candidate) and self._borrows(*self._kind(candidate))

    def may_be_eligible(self, candidate: Candidate) -> bool:
        """Return whether the gang may be evicted for some charge, of whatever meters."""
        given_back = sorted(meter for meter, amount in candidate.charge.items() if amount and meter in self._meters)
        return self._is_named(candidate) and self._borrows(candidate.queue, given_back)

    def _is_named(self, candidate: Candidate) -> bool:
        """Return whether the policies of the incoming gang's queue name the gang, by priority."""
        preemption, lower = self._incoming.preemption, candidate.priority < self._incoming.priority
        if self.is_own(candidate):
            return self._may_go_within(candidate)
        return preemption.reclaim is Reclaim.ANY or (preemption.reclaim is Reclaim.LOWER_PRIORITY and lower)

    def is_own(self, candidate: Candidate) -> bool:
        """Return whether the gang is of the incoming gang's queue."""
        return candidate.queue == self._incoming.queue

    def takes_only_loans(self, victims: Sequence[Candidate]) -> bool:
        """Return whether no victim's queue falls below its own quota. Monotone: true for every subset as well."""
        self._evict(victims)
        try:
            return all(self._is_loan(*kind) for kind in {self._kind(victim) for victim in victims})
        finally:
            self._restore(victims)

    def takes_loans(self, victims: Sequence[Candidate]) -> bool:
        """Return whether the victims can go in some order in which the queue of each borrows before it goes.

        Monotone: true for every subset as well. They are put back one by one, each as soon as its queue then borrows;
        what is put back only helps the others, so if any order will do, this finds one.
        """
        self._evict(victims)
        left, known = [*victims], set[_Kind]()
        try:
            while left:
                rest = []
                for victim in left:
                    kind = self._kind(victim)
                    self._restore([victim])
                    if kind in known or self._borrows(*kind):
                        known.add(kind)
                    else:
                        self._evict([victim])
                        rest.append(victim)
                if len(rest) == len(left):
                    return False
                left = rest
            return True
        finally:
            self._restore(left)

    def beyond_loans(self, victims: Sequence[Candidate]) -> Fraction:
        """Return how much of their own quota other queues have left unused without the victims, beyond what they had.

        In parts of what the incoming gang needs, added up over the meters that count. What a queue loses counts once,
        not again for the queues above it. Monotone: no less for more victims.
        """
        below = {name for victim in victims for name in self._below(victim.queue)}
        touched = sorted(below, key=lambda name: len(self._queue_usage.tree.path(name)))
        before = self._unused(touched)
        self._evict(victims)
        try:
            after = self._unused(touched)
        finally:
            self._restore(victims)
        return sum((self._lost(touched, meter, before, after) for meter in self._charge), Fraction())

    def loans(self, candidates: Iterable[Candidate], *, whole: bool) -> list[Candidate]:
        """Return, in order, those of the candidates that can be evicted together with all before them.

        whole: whether no queue may fall below its own quota; else its queue only has to borrow before a gang goes.
        """
        chosen: list[Candidate] = []
        kinds: set[_Kind] = set()
        for candidate in candidates:
            kind = self._kind(candidate)
            may_go = whole or self._borrows(*kind)
            self._evict([candidate])
            if may_go and (not whole or all(self._is_loan(queue, meters) for queue, meters in {*kinds, kind})):
                chosen.append(candidate)
                kinds.add(kind)
            else:
                self._restore([candidate])
        self._restore(chosen)
        return chosen

    def takes_back(self, victims: Sequence[Candidate], level: int | None) -> bool:
        """Return whether, without the victims, the incoming gang fits its quota and only reclaims its own.

        It only reclaims if its queue, or one above it below `level` on its path, then uses no more than its own quota.
        level: None if all victims may go even if the gang borrows (`level`), so that nothing is reclaimed.
        """
        queue = self._incoming.queue
        self._evict(victims)
        try:
            if self.missing and self._queue_usage.charge_fits(queue, self._charge) is not None:
                return False
            if level == BY_SHARES or (level is None and not (victims and self._incoming.was_reclaimed)):
                return True
            return self._stays_own(self._charge, level)
        finally:
            self._restore(victims)

    def may_borrow(self, victims: Sequence[Candidate]) -> bool:
        """Return whether some such gangs may be evicted though the incoming one then borrows."""
        preemption = self._incoming.preemption
        if all(map(self.is_own, victims)):
            return not self._incoming.was_reclaimed
        return self.is_by_shares or preemption.borrow_within_cohort.policy is not BorrowPolicy.NEVER

    def stays_own(self, victims: Sequence[Candidate], charge: Charge) -> bool:
        """Return whether, without the victims and with this charge, the incoming gang only reclaims its own quota.

        By the meters that count for `Incoming.charge`. Monotone: false for every larger charge as well.
        """
        self._evict(victims)
        try:
            return self._stays_own(self._short_meters(charge), self._lowest_level(victims))
        finally:
            self._restore(victims)

    def _stays_own(self, charge: Charge, level: int | None) -> bool:
        queue = self._incoming.queue
        self._queue_usage.charge(queue, charge)
        try:
            if level is None:
                return self._borrows_no_more_than_before()
            return self._own_usage_is_within_quota() or any(map(self._is_within_quota, self._path[:level]))
        finally:
            self._queue_usage.give_back(queue, charge)

    def allow(self, victims: Sequence[Candidate]) -> bool:
        """Return whether these may be evicted together and the incoming gang then fits its quota."""
        if self.reclaims(victims):
            return self.takes_loans(victims)
        return self.allow_by_priority(victims) or (self.is_by_shares and self._go_by_shares(victims))

    def allow_by_priority(self, victims: Sequence[Candidate]) -> bool:
        """Return whether these may be evicted together to borrow what gangs of lower priority borrow."""
        if not any(map(self._may_borrow_from, victims)):
            return False
        return self.takes_back(victims, min(self.levels(victims), default=None)) and self.takes_only_loans(victims)

    def reclaims(self, victims: Sequence[Candidate]) -> bool:
        """Return whether, without the victims, the incoming gang fits its quota and only reclaims its own."""
        return self.takes_back(victims, self._lowest_level(victims))

    def _lowest_level(self, victims: Sequence[Candidate]) -> int | None:
        found = (self._common_ancestor(victim.queue) for victim in victims if not self.is_own(victim))
        return min((one.level for one in found if one is not None), default=None)

    def _go_by_shares(self, victims: Sequence[Candidate]) -> bool:
        """Return whether the incoming gang then fits its quota, and its share is small enough for each victim."""
        return (
            self.takes_back(victims, BY_SHARES)
            and self.takes_only_loans(victims)
            and self.keeps_shares(victims, self._incoming.charge)
        )

    def keeps_shares(self, victims: Sequence[Candidate], charge: Charge) -> bool:
        """Return whether the share of the incoming gang's side with this charge is small enough for each victim.

        Monotone: false for every larger charge as well.
        """
        others = [victim for victim in victims if not self.is_own(victim)]
        if not self.is_by_shares or not others:
            return False
        queue_usage, queue = self._queue_usage, self._incoming.queue
        for victim in victims:
            queue_usage.give_back(victim.queue, victim.charge)
        queue_usage.charge(queue, charge)
        try:
            return all(map(self._is_above, others))
        finally:
            queue_usage.give_back(queue, charge)
            for victim in victims:
                queue_usage.charge(victim.queue, victim.charge)

    def _is_above(self, victim: Candidate) -> bool:
        """Return whether the victim's side has a larger share than the incoming gang's. Both are as in the end."""
        sides = self._sides(victim.queue)
        if sides is None:
            return False
        own, final = map(self._share, sides)
        self._queue_usage.charge(victim.queue, victim.charge)
        initial = self._share(sides[1])
        self._queue_usage.give_back(victim.queue, victim.charge)
        is_final = self._incoming.preemption.by_shares is ByShares.FINAL_SHARE
        return final < initial and (own <= final if is_final else own < initial)

    def _sides(self, queue: QueueName) -> tuple[QueueName, QueueName] | None:
        """Return the queues below where the paths meet, the incoming gang's first; None if one is above the other."""
        ancestor = self._common_ancestor(queue)
        if ancestor is None or not ancestor.level or not ancestor.below:
            return None
        return self._path[ancestor.level - 1], ancestor.below[-1]

    def _share(self, side: QueueName) -> Share:
        """Return the share of what is borrowed of all meters, as in `fair_share`; the weight is 1 by default."""
        sharing = self._queue_usage.tree.queues[side].fair_sharing
        found = ((meter, self._queue_usage.borrowed(side, meter)) for meter in self._meters)
        borrowed = {meter: amount for meter, amount in found if amount}
        return share_of_loans(self._queue_usage, side, borrowed, sharing.weight if sharing else Fraction(1))

    def _may_go_within(self, candidate: Candidate) -> bool:
        incoming = self._incoming
        match incoming.preemption.within_queue:
            case WithinQueue.NEVER:
                return False
            case WithinQueue.LOWER_PRIORITY:
                return candidate.priority < incoming.priority
            case WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY:
                is_newer = candidate.priority == incoming.priority and incoming.queued_since < candidate.queued_since
                return is_newer or candidate.priority < incoming.priority
            case _:
                assert_never(incoming.preemption.within_queue)

    def _may_borrow_from(self, candidate: Candidate) -> bool:
        rule = self._incoming.preemption.borrow_within_cohort
        most = rule.max_priority_threshold
        return (
            rule.policy is BorrowPolicy.LOWER_PRIORITY
            and candidate.priority < self._incoming.priority
            and (most is None or candidate.priority <= most)
        )

    def _kind(self, victim: Candidate) -> _Kind:
        """Return the victim's queue and the meters that it gives back, on which alone `_is_loan` depends."""
        return victim.queue, tuple(meter for meter in self._charge if victim.charge.get(meter))

    def _is_loan(self, queue: QueueName, meters: Iterable[MeterName]) -> bool:
        """Return whether the queue and those above it still use at least their own quota of one of the meters.

        Always true for the incoming gang's queue, whose gangs need not have borrowed.
        """
        ancestor, queue_usage = self._common_ancestor(queue), self._queue_usage
        return queue == self._incoming.queue or (
            ancestor is not None
            and any(
                queue_usage.own(queue, meter) >= self._nominal(queue, meter)
                and all(queue_usage.usage(above, meter) >= queue_usage.quota(above, meter) for above in ancestor.below)
                for meter in meters
            )
        )

    def _borrows(self, queue: QueueName, meters: Iterable[MeterName]) -> bool:
        """Return whether the queue and those above it use more than their own quota of one of the meters.

        Always true for the incoming gang's queue, whose gangs need not have borrowed.
        """
        ancestor, queue_usage = self._common_ancestor(queue), self._queue_usage
        return queue == self._incoming.queue or (
            ancestor is not None
            and any(
                queue_usage.own(queue, meter) > self._nominal(queue, meter)
                and all(queue_usage.borrowed(above, meter) for above in ancestor.below)
                for meter in meters
            )
        )

    def _below(self, queue: QueueName) -> tuple[QueueName, ...]:
        """Return the queues from which the gangs of a queue would take; none for the incoming gang's queue."""
        ancestor = self._common_ancestor(queue)
        return () if ancestor is None or queue == self._incoming.queue else ancestor.below

    def _unused(self, queues: Sequence[QueueName]) -> _Unused:
        """Return, by queue and meter, what its own gangs and all gangs under it leave unused of their quota."""
        queue_usage = self._queue_usage
        return {
            (queue, meter): (
                max(0, self._nominal(queue, meter) - queue_usage.own(queue, meter)),
                max(0, queue_usage.quota(queue, meter) - queue_usage.usage(queue, meter)),
            )
            for queue in queues
            for meter in self._charge
        }

    def _lost(self, touched: Sequence[QueueName], meter: MeterName, before: _Unused, after: _Unused) -> Fraction:
        """Return what the queues lose of a meter, in parts of what the incoming gang needs. touched: parents first."""
        tree, total = self._queue_usage.tree, 0
        lost_below = dict.fromkeys(touched, 0)
        for queue in reversed(touched):
            own, subtree = (now - then for now, then in zip(after[queue, meter], before[queue, meter], strict=True))
            lost = max(subtree, lost_below[queue] + own)
            parent = tree.parents.get(queue)
            if parent in lost_below:
                lost_below[parent] += lost
            else:
                total += lost
        return Fraction(total, self._charge[meter])

    def _borrows_no_more_than_before(self) -> bool:
        return all(
            self._queue_usage.borrowed(self._incoming.queue, meter) <= self._borrowed_before[meter]
            for meter in self._charge
        )

    def _own_usage_is_within_quota(self) -> bool:
        """Return whether the queue itself, without those under it, uses no more than its nominal quota."""
        queue = self._incoming.queue
        return all(self._queue_usage.own(queue, meter) <= self._nominal(queue, meter) for meter in self._charge)

    def _is_within_quota(self, queue: QueueName) -> bool:
        return not any(self._queue_usage.borrowed(queue, meter) for meter in self._charge)

    def _nominal(self, queue: QueueName, meter: MeterName) -> int:
        quota = self._queue_usage.tree.quotas[queue].get(meter)
        return quota.nominal if quota else 0

    def _common_ancestor(self, queue: QueueName) -> "_CommonAncestor | None":
        if queue not in self._common_ancestors:
            self._common_ancestors[queue] = _common_ancestor(self._queue_usage.tree.path(queue), self._path)
        return self._common_ancestors[queue]

    def _evict(self, victims: Iterable[Candidate]) -> None:
        for victim in victims:
            self._queue_usage.give_back(victim.queue, self._short_meters(victim.charge))

    def _restore(self, victims: Iterable[Candidate]) -> None:
        for victim in victims:
            self._queue_usage.charge(victim.queue, self._short_meters(victim.charge))

    def _short_meters(self, charge: Charge) -> Charge:
        return {meter: charge[meter] for meter in self._charge if meter in charge}


@dataclass(frozen=True, slots=True)
class _CommonAncestor:
    """Where a queue's path meets that of the incoming gang. level: on the latter. below: the former up to there."""

    level: int
    below: tuple[QueueName, ...]


def _reversed(share: Share) -> Share:
    """Return a key that is the smaller, the larger the share is."""
    return -share[0], -share[1]


def _common_ancestor(path: Sequence[QueueName], own: Sequence[QueueName]) -> _CommonAncestor | None:
    """Return where two paths meet; None for a queue under another root."""
    levels: Mapping[QueueName, int] = {queue: level for level, queue in enumerate(own)}
    for at, queue in enumerate(path):
        if queue in levels:
            return _CommonAncestor(levels[queue], tuple(path[:at]))
    return None
