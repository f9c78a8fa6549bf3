"""The order in which pending gangs are considered.

Inside a queue: higher priority first, then the longer wait; where its members have shares, the gang of the smallest
share first (`member_places`). Between the children of one parent those come first that stay within their quota with
their next gang, as in Kueue; then, where fair sharing is declared, the one with the smallest share with that gang;
then the rank of the gangs, which alone decides between the roots.

Whether a head that cannot start holds the gangs behind it (strict order) or not (best effort) is decided by the caller,
per queue.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from admission.api.muster.gangs import Charge
from admission.api.values.names import MeterName, QueueName
from admission.quota.fair_share import MemberShares, Place, Shares


class Waiting(Protocol):
    """The fields of a gang that the order reads. key is `namespace/name`."""

    @property
    def priority(self) -> int: ...

    @property
    def queued_since(self) -> datetime: ...

    @property
    def key(self) -> str: ...


W = TypeVar("W", bound=Waiting)
Q = TypeVar("Q")
Rank = tuple[int, datetime, str]


def rank(waiting: Waiting) -> Rank:
    """Return the sort key: higher priority, then longer wait, then name, so that no two gangs are equal."""
    return (-waiting.priority, waiting.queued_since, waiting.key)


@dataclass(frozen=True, slots=True)
class Order:
    """The ranks of gangs in one cycle. places: by gang, the rank that it has instead of its own."""

    places: Mapping[str, Rank] = field(default_factory=dict)

    def rank(self, waiting: Waiting) -> Rank:
        """Return the sort key: the gang's place, or else `rank`."""
        return self.places.get(waiting.key) or rank(waiting)

    def sorted(self, waiting: Iterable[W]) -> list[W]:
        """Return all gangs in the order that holds inside a queue."""
        return sorted(waiting, key=self.rank)


BY_RANK = Order()
"""Every gang has its own rank."""


def in_order(waiting: Iterable[W]) -> list[W]:
    """Return all gangs in the order that holds inside a queue without shares of members."""
    return BY_RANK.sorted(waiting)


def heads(waiting: Iterable[W], queue_of: Callable[[W], Q]) -> list[W]:
    """Return the first gang of every queue, in order."""
    first: dict[Q, W] = {}
    for gang in in_order(waiting):
        first.setdefault(queue_of(gang), gang)
    return list(first.values())


def member_places(
    waiting: Iterable[W], member_of: Callable[[W], str], charge_of: Callable[[W], Charge], shares: MemberShares
) -> dict[str, Rank]:
    """Return the ranks of the gangs of one queue, by key: those that they have by themselves, in the order of shares.

    So the queue competes with others as before. What a member's gangs ahead of a gang would take counts as used, as if
    each were let in, so members take turns. That does not change when these gangs start: a grant moves no other gang.
    charge_of: of each gang, at least.
    """
    gangs = in_order(waiting)
    used: dict[str, defaultdict[MeterName, int]] = {}
    shared: list[tuple[tuple[float, float], int]] = []
    for number, gang in enumerate(gangs):
        member = member_of(gang)
        if member not in used:
            used[member] = defaultdict(int, shares.used.get(member, {}))
        shared.append((shares.share(member, used[member]), number))
        for meter, amount in charge_of(gang).items():
            used[member][meter] += amount
    return {gangs[number].key: rank(before) for before, (_, number) in zip(gangs, sorted(shared), strict=True)}


class Tournament(Generic[W]):
    """Yields the pending gangs one by one; grants in between change the order of the rest.

    At every parent the child with the smallest `Shares.place` wins, of those that are equal the one whose next gang has
    the better rank; a parent's own gangs compete with the winner by rank. The winner at the top is next, as in Kueue's
    fair sharing iterator (KEP 1714). A gang is yielded once, whether it is then granted or not, unless it is entered
    again. Inactive and unknown queues compete as roots without usage.

    Building it costs a step per gang, and the first gang a place per queue above one; each further gang, granted or
    not, one comparison among siblings per level, in heaps: outdated entries stay in them until they come to the top.
    """

    def __init__(
        self,
        shares: Shares,
        waiting: Iterable[W],
        queue_of: Callable[[W], QueueName],
        charge_of: Callable[[W], Charge],
        order: Order = BY_RANK,
    ) -> None:
        """charge_of: of each gang, at least; called once it is the next of its queue."""
        self._shares = shares
        self._rank = order.rank
        self._queue_of = queue_of
        self._charge_of = charge_of
        self._charges: dict[str, Charge] = {}
        """By gang, its charge in place of that of `charge_of`."""
        self._gangs: defaultdict[QueueName, list[W]] = defaultdict(list)
        self._contests: defaultdict[QueueName | None, _Contest[W]] = defaultdict(lambda: _Contest(order))
        for gang in sorted(waiting, key=self._rank, reverse=True):
            self._gangs[queue_of(gang)].append(gang)
        self._changed: dict[QueueName, None] = dict.fromkeys(self._gangs)
        """The queues whose places, and those of the queues above them, are to be found before the next gang."""

    def __iter__(self) -> "Tournament[W]":
        return self

    def __next__(self) -> W:
        """Return the next gang and remove it."""
        self._enter_changed()
        gang = self._contests[None].first()
        if gang is None:
            raise StopIteration
        queue = self._queue_of(gang)
        self._gangs[queue].pop()
        self._update(queue)
        return gang

    def enter(self, gang: W, charge: Charge | None = None) -> None:
        """Add one more gang. charge: of it, where more is known than by `charge_of`."""
        if charge is not None:
            self._charges[gang.key] = charge
        queue = self._queue_of(gang)
        self._gangs[queue].append(gang)
        self._gangs[queue].sort(key=self._rank, reverse=True)
        self._update(queue)

    def comes_later(self, gang: W, charge: Charge) -> bool:
        """Return whether the queue of a gang, or one above it, has a larger place with this charge than is known."""
        queue, known = self._queue_of(gang), self._known_charge(gang)
        if charge == known:
            return False
        place = self._shares.place
        return any(place(name, queue, charge) > place(name, queue, known) for name in self._shares.tree.path(queue))

    def borrows_more(self, gang: W, charge: Charge) -> bool:
        """Return whether the queue of a gang, or one above it, borrows with this charge and not with the least one."""
        queue, least, place = self._queue_of(gang), self._charge_of(gang), self._shares.place
        return any(
            place(name, queue, charge)[0] > place(name, queue, least)[0] for name in self._shares.tree.path(queue)
        )

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count the charge of a gang that was granted, as usage of its queue."""
        self._shares.charge(queue, charge)
        self._update(queue)

    def give_back(self, queue: QueueName, charge: Charge) -> None:
        """Undo `charge` for a gang whose grant was taken back."""
        self._shares.give_back(queue, charge)
        self._update(queue)

    def _update(self, queue: QueueName) -> None:
        """Have a queue, and those above it, entered into the contests with their siblings again.

        Once before the next gang: most that are taken out are granted, and change the places once more.
        """
        self._changed[queue] = None

    def _enter_changed(self) -> None:
        path = self._shares.tree.path
        names = [*dict.fromkeys(name for queue in self._changed for name in path(queue))]
        if len(self._changed) > 1:
            names.sort(key=lambda name: len(path(name)), reverse=True)
        for name in names:
            self._enter(name)
        self._changed.clear()

    def _enter(self, name: QueueName) -> None:
        gang = self._next(name)
        contest = self._contests[self._shares.tree.parents.get(name)]
        if gang is None:
            contest.leave(name)
        else:
            contest.enter(name, self._shares.place(name, self._queue_of(gang), self._known_charge(gang)), gang)

    def _known_charge(self, gang: W) -> Charge:
        return self._charge_of(gang) if gang.key not in self._charges else self._charges[gang.key]

    def _next(self, queue: QueueName) -> W | None:
        """Return the next gang of a queue or one under it; None if there is none."""
        gangs = self._gangs.get(queue)
        own = gangs[-1] if gangs else None
        below = self._contests[queue].first() if queue in self._contests else None
        if own is None or below is None:
            return below or own
        return min(own, below, key=self._rank)


class _Contest(Generic[W]):
    """The children of one parent that have pending gangs, by place and by the rank of their next gang."""

    __slots__ = ("_entered", "_heap", "_places", "_rank")

    def __init__(self, order: Order) -> None:
        self._rank = order.rank
        self._heap: list[tuple[Place, Rank, int, QueueName, W]] = []
        self._places: dict[QueueName, int] = {}
        self._entered = 0

    def enter(self, child: QueueName, place: Place, gang: W) -> None:
        """Enter a child with its next gang, in place of its earlier entry."""
        self._entered += 1
        self._places[child] = self._entered
        heapq.heappush(self._heap, (place, self._rank(gang), self._entered, child, gang))

    def leave(self, child: QueueName) -> None:
        self._places.pop(child, None)

    def first(self) -> W | None:
        """Return the next gang of the child that wins; None if none is left."""
        while self._heap:
            _, _, entered, child, gang = self._heap[0]
            if self._places.get(child) == entered:
                return gang
            heapq.heappop(self._heap)
        return None
