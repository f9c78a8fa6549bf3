"""The rules of which sets of gangs may be evicted for an incoming one: by priority within its queue, by loans outside.

The rules are those of Kueue's `pkg/scheduler/preemption` (2026: `classical/hierarchical_preemption.go` and
`classical/candidate_generator.go`), stated for the set of victims instead of the order in which they are removed:

- in the own queue, gangs of lower priority (withinQueue);
- in other queues under the same root, borrowed quota (reclaim): of some short meter, the victim's queue and those above
  it, up to where its path meets that of the incoming gang, still use at least their own quota without the victims.
  A gang that is borrowed only in part stays; Kueue removes it, and its queue falls below its quota;
- and this only to reclaim own quota: without the victims and with the incoming gang, its queue, or one above it but
  below where the paths meet, uses no more than its own quota of every short meter.

A meter is short if the gang needs more of it than its queue may take; if none is, and only devices are missing, all
meters of its charge count. `preemption` searches the sets that these rules allow.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Preemption, Reclaim, WithinQueue
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.quota.headroom import QueueUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Incoming:
    """The gang for which others may be evicted. charge: of its plan; if plans differ, the lowest per meter."""

    queue: QueueName
    priority: int
    charge: Charge
    preemption: Preemption


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A gang that could be evicted. charge: what its queue would no longer use."""

    uid: GangUid
    queue: QueueName
    priority: int
    reserved_at: datetime
    charge: Charge


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

    def level(self, candidate: Candidate) -> int | None:
        """Return how many queues of the own path are below where the paths meet; None for the own queue's gangs."""
        ancestor = self._common_ancestor(candidate.queue)
        return None if ancestor is None or candidate.queue == self._incoming.queue else ancestor.level

    def levels(self, victims: Iterable[Candidate]) -> list[int]:
        """Return the levels of the victims in other queues."""
        return [level for victim in victims if (level := self.level(victim)) is not None]

    def is_eligible(self, candidate: Candidate) -> bool:
        """Return whether the gang may be evicted, alone or with others."""
        preemption, lower = self._incoming.preemption, candidate.priority < self._incoming.priority
        if candidate.queue == self._incoming.queue:
            return lower and preemption.within_queue is WithinQueue.LOWER_PRIORITY
        if preemption.reclaim is Reclaim.NEVER or (preemption.reclaim is Reclaim.LOWER_PRIORITY and not lower):
            return False
        return self._common_ancestor(candidate.queue) is not None and self.takes_only_loans([candidate])

    def borrows(self, candidate: Candidate) -> bool:
        """Return whether the gang's queue borrows of a meter that evicting the gang gives back."""
        queue_usage, queue = self._queue_usage, candidate.queue
        return any(queue_usage.borrowed(queue, meter) for meter in self._charge if candidate.charge.get(meter))

    def takes_only_loans(self, victims: Sequence[Candidate]) -> bool:
        """Return whether no victim's queue falls below its own quota. Monotone: true for every subset as well."""
        self._evict(victims)
        try:
            return all(self._is_loan(*kind) for kind in {self._kind(victim) for victim in victims})
        finally:
            self._restore(victims)

    def loans(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Return, in order, those of the candidates that can be evicted together with all before them."""
        chosen: list[Candidate] = []
        kinds: set[tuple[QueueName, tuple[MeterName, ...]]] = set()
        for candidate in candidates:
            self._evict([candidate])
            kind = self._kind(candidate)
            if all(self._is_loan(queue, meters) for queue, meters in {*kinds, kind}):
                chosen.append(candidate)
                kinds.add(kind)
            else:
                self._restore([candidate])
        self._restore(chosen)
        return chosen

    def takes_back(self, victims: Sequence[Candidate], level: int | None) -> bool:
        """Return whether, without the victims, the incoming gang fits its quota and only reclaims its own.

        It only reclaims if its queue, or one above it below `level` on its path, then uses no more than its own quota.
        level: None if all victims are in the own queue, so that nothing is reclaimed.
        """
        queue = self._incoming.queue
        self._evict(victims)
        try:
            if self.missing and self._queue_usage.charge_fits(queue, self._charge) is not None:
                return False
            if level is None:
                return True
            self._queue_usage.charge(queue, self._charge)
            try:
                return self._own_usage_is_within_quota() or any(map(self._is_within_quota, self._path[:level]))
            finally:
                self._queue_usage.give_back(queue, self._charge)
        finally:
            self._restore(victims)

    def allow(self, victims: Sequence[Candidate]) -> bool:
        """Return whether these may be evicted together and the incoming gang then fits its quota."""
        return self.takes_only_loans(victims) and self.takes_back(victims, min(self.levels(victims), default=None))

    def _kind(self, victim: Candidate) -> tuple[QueueName, tuple[MeterName, ...]]:
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


def _common_ancestor(path: Sequence[QueueName], own: Sequence[QueueName]) -> _CommonAncestor | None:
    """Return where two paths meet; None for a queue under another root."""
    levels: Mapping[QueueName, int] = {queue: level for level, queue in enumerate(own)}
    for at, queue in enumerate(path):
        if queue in levels:
            return _CommonAncestor(levels[queue], tuple(path[:at]))
    return None
