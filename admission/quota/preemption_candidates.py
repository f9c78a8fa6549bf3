"""Which sets of gangs may be evicted for another gang: lower priority in its own queue, what others have borrowed.

The rules are those of Kueue's `pkg/scheduler/preemption` (2026: `classical/hierarchical_preemption.go` and
`classical/candidate_generator.go`), said of the set of victims instead of the order in which they are removed:

- in the own queue, gangs of lower priority (withinQueue);
- in other queues under the same root, what was borrowed (reclaim): of some meter that is short, the victim's queue and
  those above it, below where its path meets that of the incoming gang, use no less than their own quota without the
  victims. Where a gang is borrowed only in part, Kueue removes it and the queue falls below its quota; here it stays;
- and that only to take back what is one's own: without the victims and with the incoming gang, its queue, or one above
  it but below where the paths meet, uses no more than its own quota of every meter that is short.

A meter is short when the gang needs more of it than its queue may take; where none is, and only devices are missing,
all meters of its charge count. Who may be evicted at all, `preemption` asks.
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
    """The gang for which others may be evicted. charge: what it costs; where its plans differ, the least of them."""

    queue: QueueName
    priority: int
    charge: Charge
    preemption: Preemption


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A gang that could be evicted, and what its queue would not use any more."""

    uid: GangUid
    queue: QueueName
    priority: int
    reserved_at: datetime
    charge: Charge


class Rules:
    """Judges sets of candidates for one incoming gang. The standing is the same after every question as before."""

    def __init__(self, queue_usage: QueueUsage, incoming: Incoming) -> None:
        self._queue_usage = queue_usage
        self._incoming = incoming
        self._path = queue_usage.tree.path(incoming.queue)
        self._common_ancestors: dict[QueueName, _CommonAncestor | None] = {}
        needed = {meter: amount for meter, amount in incoming.charge.items() if amount}
        margins = {meter: queue_usage.margin(incoming.queue, meter) for meter in needed}
        self.missing = {meter: amount - margins[meter] for meter, amount in needed.items() if amount > margins[meter]}
        """How much must at least be given back of every meter that is short: nothing given back frees more than it."""
        self._charge = {meter: amount for meter, amount in needed.items() if meter in self.missing or not self.missing}

    def level(self, candidate: Candidate) -> int | None:
        """Return how many queues of the own path lie below where the paths meet; None for the own queue's gangs."""
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
        """Return whether the gang's queue now uses beyond its own quota of something that evicting it gives back."""
        queue_usage, queue = self._queue_usage, candidate.queue
        return any(queue_usage.borrowed(queue, meter) for meter in self._charge if candidate.charge.get(meter))

    def takes_only_loans(self, victims: Sequence[Candidate]) -> bool:
        """Return whether no victim's queue falls below its own quota; then none does for fewer of them either."""
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
        """Return whether the incoming gang has its quota then, and takes nothing but its own from that level on."""
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
        """Return whether these may be evicted together, and give the incoming gang the quota that it needs."""
        return self.takes_only_loans(victims) and self.takes_back(victims, min(self.levels(victims), default=None))

    def _kind(self, victim: Candidate) -> tuple[QueueName, tuple[MeterName, ...]]:
        """Return the victim's queue and of what it gives back something: victims of one kind are loans together."""
        return victim.queue, tuple(meter for meter in self._charge if victim.charge.get(meter))

    def _is_loan(self, queue: QueueName, meters: Iterable[MeterName]) -> bool:
        """Return whether the queue and those above it, as they stand, still use all their own of one of the meters.

        Always so for the incoming gang's queue: its own gangs need not have borrowed.
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
    """Where a queue's path meets the incoming gang's. level: on its path; below: the queues under it on the other."""

    level: int
    below: tuple[QueueName, ...]


def _common_ancestor(path: Sequence[QueueName], own: Sequence[QueueName]) -> _CommonAncestor | None:
    """Return None for a queue under another root."""
    levels: Mapping[QueueName, int] = {queue: level for level, queue in enumerate(own)}
    for at, queue in enumerate(path):
        if queue in levels:
            return _CommonAncestor(levels[queue], tuple(path[:at]))
    return None
