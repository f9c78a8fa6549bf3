"""The cache of pending gangs by queue: a queue for which nothing changed is skipped.

While no gang may start, a decision depends only on the gang, the gangs ahead of it in its own queue, and shared inputs:
the cluster state, and what the queue may take. So the verdicts of a queue stand as a whole while its gangs are the same
objects, none of its verdicts was dropped, and the few inputs of all of them are the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from admission.api.muster.gangs import Charge
from admission.api.snapshot import changed
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Hold
from admission.incremental import are_same
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


class PendingGangs:
    """The pending gangs of successive cycles by queue, followed by what differs.

    Rule: `follow` alone changes it. What it has by queue never changes; `uids` is of the last gangs that were followed.
    """

    def __init__(self) -> None:
        self._groups: tuple[Group, ...] = ()
        self._known: Mapping[GangUid, Group] = {}
        self._lines: dict[QueueName, dict[GangUid, Group]] = {}
        self._uids: dict[GangUid, None] = {}
        self._others: tuple[tuple[Group, ...], PendingGangs] | None = None
        """Those of the last gangs that were asked for and not followed: all but a few that have started."""
        self.by_queue: dict[QueueName, tuple[Group, ...]] = {}

    @property
    def uids(self) -> Collection[GangUid]:
        """Return all of them."""
        return self._uids.keys()

    def of(self, groups: tuple[Group, ...]) -> "PendingGangs":
        """Return those of some gangs: of the last ones without a look at them."""
        if groups is self._groups:
            return self
        if self._others is None or self._others[0] is not groups:
            self._others = groups, PendingGangs()
            self._others[1].follow(groups, {group.uid: group for group in groups})
        return self._others[1]

    def follow(self, groups: tuple[Group, ...], by_uid: Mapping[GangUid, Group]) -> None:
        """Go on to the gangs of another cycle. by_uid: the same."""
        queues = set[QueueName]()
        for uid in changed(self._known, by_uid):
            before, now = self._known.get(uid), by_uid.get(uid)
            if before is not None and before.waiting:
                queues.add(before.queue)
                del self._lines[before.queue][uid], self._uids[uid]
            if now is not None and now.waiting:
                queues.add(now.queue)
                self._lines.setdefault(now.queue, {})[uid] = now
                self._uids[uid] = None
        self._groups, self._known = groups, by_uid
        if queues:
            self.by_queue = {**self.by_queue, **{queue: tuple(self._lines[queue].values()) for queue in queues}}
            for queue in [queue for queue in queues if not self._lines[queue]]:
                del self.by_queue[queue], self._lines[queue]


@dataclass(slots=True)
class QueueCache:
    """The queues whose verdicts may still stand. One per leader, owned by its `VerdictCache`.

    Rule: a queue is in it from `keep` until `drop`, `clear`, or a cycle in which it has no pending gang.

    Whether a queue's verdicts stand is determined by their premises, not by the identity of inputs, so it is no value
    over `admission.incremental`.
    """

    _pending: PendingGangs = field(default_factory=PendingGangs)
    _queues: dict[QueueName, CachedQueue] = field(default_factory=dict)

    def clear(self) -> None:
        """Drop all queues."""
        self._queues.clear()

    def drop(self, queue: QueueName) -> None:
        """Drop a queue, since some verdict of it no longer stands."""
        self._queues.pop(queue, None)

    def follow(self, groups: tuple[Group, ...], by_uid: Mapping[GangUid, Group]) -> None:
        """Follow the gangs to those of this cycle. by_uid: the same, as a version that knows what differs."""
        self._pending.follow(groups, by_uid)

    def waiting(self, groups: tuple[Group, ...]) -> Mapping[QueueName, tuple[Group, ...]]:
        """Return the pending gangs, by queue."""
        return self._pending.of(groups).by_queue

    def waiting_uids(self, groups: tuple[Group, ...]) -> Collection[GangUid]:
        """Return the pending gangs."""
        return self._pending.of(groups).uids

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
