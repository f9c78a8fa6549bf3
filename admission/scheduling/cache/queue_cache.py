"""The cache of pending gangs by queue: a queue for which nothing changed is skipped.

While no gang may start, a decision depends only on the gang, the gangs ahead of it in its own queue, and shared inputs:
the cluster state, and what the queue may take. So the verdicts of a queue stand as a whole while its gangs are the same
objects, none of its verdicts was dropped, and the few inputs of all of them are the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admission.api.muster.gangs import Charge
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold
from admission.incremental import Memo, are_same
from admission.quota.queue_order import Order, Rank
from admission.scheduling.cache.equivalence import GangEquivalence
from admission.scheduling.cache.plan_cache import InfeasibilityProof
from admission.workloads.gangs import Group


class ShortOf(NamedTuple):
    """What a shortage says of a gang. open_meters: those of which a plan may be charged more. has_started: it has."""

    open_meters: frozenset[MeterName] = frozenset()
    has_started: bool = False


class Premise(NamedTuple):
    """An input of verdicts of one queue: what it lacks for a charge (None: nothing), and the proof, if any.

    bound: the reservations that the gang would delay. bound_by_loan: those that bind it only since it borrows.
    inventories: the devices of nodes, if a gang's kinds were read from them; None if it has none. of: beside
    the charge, what the words of what it lacks depend on.
    """

    needed: Charge
    shortage: Hold | None
    equivalent: GangEquivalence | None
    proof: InfeasibilityProof | None
    bound: tuple[Any, ...] = ()
    bound_by_loan: tuple[Any, ...] = ()
    inventories: object = None
    of: ShortOf = ShortOf()


Holds = Callable[[QueueName, Premise], bool]
"""Returns whether a premise still holds."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CachedQueue:
    """The pending gangs of one queue, all with verdicts that stand while these inputs do."""

    groups: tuple[Group, ...]
    places: tuple[Rank | None, ...]
    """Those that the gangs have by the shares of members."""
    inputs: tuple[Premise, ...]
    uids: frozenset[GangUid]


@dataclass(slots=True)
class QueueCache:
    """The queues whose verdicts may still stand. One per leader, owned by its `VerdictCache`.

    Rule: a queue is in it from `keep` until `drop`, `clear`, or a cycle in which it has no pending gang.

    Whether a queue's verdicts stand is determined by their premises, not by the identity of inputs, so it is no value
    over `admission.incremental`.
    """

    _waiting: Memo[None, Mapping[QueueName, tuple[Group, ...]]] = field(default_factory=Memo)
    _uids: Memo[None, frozenset[GangUid]] = field(default_factory=Memo)
    _queues: dict[QueueName, CachedQueue] = field(default_factory=dict)

    def clear(self) -> None:
        """Drop all queues."""
        self._queues.clear()

    def drop(self, queue: QueueName) -> None:
        """Drop a queue, since some verdict of it no longer stands."""
        self._queues.pop(queue, None)

    def waiting(self, groups: tuple[Group, ...]) -> Mapping[QueueName, tuple[Group, ...]]:
        """Return the pending gangs, by queue."""
        return self._waiting.get(None, (groups,), lambda: _waiting(groups))

    def waiting_uids(self, groups: tuple[Group, ...]) -> frozenset[GangUid]:
        """Return the pending gangs."""
        return self._uids.get(None, (groups,), lambda: frozenset([one.uid for one in groups if one.waiting]))

    def changed(
        self, groups: tuple[Group, ...], holds: Holds, unsteady: Collection[GangUid], order: Order
    ) -> Iterator[tuple[QueueName, tuple[Group, ...]]]:
        """Yield the queues whose gangs have to be decided again. unsteady: gangs whose verdicts are never kept."""
        found = self.waiting(groups)
        for queue in self._queues.keys() - found.keys():
            del self._queues[queue]
        for queue, waiting in found.items():
            cached = self._queues.get(queue)
            is_same = (
                cached is not None
                and are_same(cached.groups, waiting)
                and cached.places == _places(waiting, order)
                and cached.uids.isdisjoint(unsteady)
            )
            if cached is None or not is_same or not all(holds(queue, basis) for basis in cached.inputs):
                yield queue, waiting

    def keep(self, queue: QueueName, groups: tuple[Group, ...], inputs: Iterable[Premise], order: Order) -> None:
        """Keep a queue: the verdicts of all its gangs stand while the inputs do."""
        uids = frozenset(group.uid for group in groups)
        self._queues[queue] = CachedQueue(groups=groups, places=_places(groups, order), inputs=tuple(inputs), uids=uids)


def _places(groups: Iterable[Group], order: Order) -> tuple[Rank | None, ...]:
    return tuple(order.places.get(group.key) for group in groups) if order.places else ()


def _waiting(groups: Iterable[Group]) -> dict[QueueName, tuple[Group, ...]]:
    found: dict[QueueName, list[Group]] = {}
    for group in groups:
        if group.waiting:
            found.setdefault(group.queue, []).append(group)
    return {queue: tuple(gangs) for queue, gangs in found.items()}
