"""The order in which pending gangs are considered.

Inside a queue: higher priority first, then the longer wait; where its members have shares, the gang of the smallest
share first (`MemberTurns`). Between the children of one parent those come first that stay within their quota with
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
from admission.api.values.names import QueueName
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
class Members:
    """Who the members of one queue are, by gang, and their shares when a cycle begins."""

    of: Mapping[str, str]
    shares: MemberShares


@dataclass(frozen=True, slots=True)
class Order:
    """The ranks of gangs in one cycle. places: by gang, the rank that it has instead of its own.

    members: of the queues whose gangs have places.
    """

    places: Mapping[str, Rank] = field(default_factory=dict)
    members: Mapping[QueueName, Members] = field(default_factory=dict)

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


def member_places(waiting: Iterable[W], members: Members, charge_of: Callable[[W], Charge]) -> dict[str, Rank]:
    """Return the ranks of the gangs of one queue, by key: those that they have by themselves, in the order of shares.

    So the queue competes with others as before. charge_of: of each gang, at least.
    """
    gangs = in_order(waiting)
    turns = MemberTurns(gangs, members, charge_of)
    return {turns.pop().key: rank(gang) for gang in gangs}


class MemberTurns(Generic[W]):
    """The gangs of one queue, the one of the member with the smallest share first; then rank decides.

    What a member's gangs ahead of a gang would take counts as used, as if each were let in, so members take turns. That
    does not change when these gangs start: a grant moves no other gang, unless it is charged other than was known.
    """

    def __init__(self, gangs: Iterable[W], members: Members, charge_of: Callable[[W], Charge]) -> None:
        """charge_of: of each gang, at least; called when it is taken."""
        self._members = members
        self._charge_of = charge_of
        self._gangs: dict[str, list[W]] = {}
        """By member, the last first."""
        for gang in sorted(gangs, key=rank, reverse=True):
            self._gangs.setdefault(members.of[gang.key], []).append(gang)
        used = members.shares.used
        self._used = {member: defaultdict(int, used.get(member, {})) for member in self._gangs}
        self._counted: dict[str, Charge] = {}
        """By gang that was taken, what counts of it."""
        self._heap: list[tuple[tuple[float, float], Rank, str]] = []
        self._entries: dict[str, tuple[tuple[float, float], Rank, str]] = {}
        for member in self._gangs:
            self._enter(member)

    def first(self) -> W | None:
        """Return the next gang; None if none is left."""
        while self._heap:
            entry = self._heap[0]
            if self._entries.get(entry[2]) is entry:
                return self._gangs[entry[2]][-1]
            heapq.heappop(self._heap)
        return None

    def pop(self) -> W:
        """Return the next gang and remove it. Raises IndexError if none is left."""
        gang = self.first()
        if gang is None:
            raise IndexError
        self._gangs[self._members.of[gang.key]].pop()
        self.count(gang, self._charge_of(gang))
        return gang

    def put_back(self, gang: W) -> None:
        """Undo `pop`."""
        self._gangs[self._members.of[gang.key]].append(gang)
        self.count(gang, {})

    def count(self, gang: W, charge: Charge) -> None:
        """Count this charge of a gang that was taken, in place of what has counted."""
        before, member = self._counted.get(gang.key, {}), self._members.of[gang.key]
        self._counted[gang.key] = charge
        for sign, amounts in ((-1, before), (1, charge)):
            for meter, amount in amounts.items():
                self._used[member][meter] += sign * amount
        self._enter(member)

    def _enter(self, member: str) -> None:
        if not self._gangs[member]:
            self._entries.pop(member, None)
            return
        entry = self._members.shares.share(member, self._used[member]), rank(self._gangs[member][-1]), member
        self._entries[member] = entry
        heapq.heappush(self._heap, entry)


class _RankedGangs(Generic[W]):
    """The gangs of one queue in the order of their ranks."""

    def __init__(self, gangs: Iterable[W]) -> None:
        self._gangs = sorted(gangs, key=rank, reverse=True)
        """The last first."""

    def first(self) -> W | None:
        return self._gangs[-1] if self._gangs else None

    def pop(self) -> W:
        return self._gangs.pop()

    def put_back(self, gang: W) -> None:
        self._gangs.append(gang)
        self._gangs.sort(key=rank, reverse=True)

    def count(self, gang: W, charge: Charge) -> None:
        """Nobody's place depends on what a gang is charged."""


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
        self._places = _Places(order)
        self.order = self._places.order
        """The ranks of gangs as they are now: what a gang is charged may change those of its queue that follow."""
        self._shares = shares
        self._queue_of = queue_of
        self._charge_of = charge_of
        self._charges: dict[str, Charge] = {}
        """By gang, its charge in place of that of `charge_of`."""
        self._contests: defaultdict[QueueName | None, _Contest[W]] = defaultdict(lambda: _Contest(self.order))
        by_queue: defaultdict[QueueName, list[W]] = defaultdict(list)
        for gang in waiting:
            by_queue[queue_of(gang)].append(gang)
        self._gangs: dict[QueueName, MemberTurns[W] | _RankedGangs[W]] = {
            queue: _RankedGangs(gangs)
            if queue not in order.members
            else MemberTurns(gangs, order.members[queue], self._known_charge)
            for queue, gangs in by_queue.items()
        }
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
        self._places.take(queue)
        self._update(queue)
        return gang

    def enter(self, gang: W, charge: Charge | None = None) -> None:
        """Add one more gang. charge: of it, where more is known than by `charge_of`."""
        if charge is not None:
            self._charges[gang.key] = charge
        queue = self._queue_of(gang)
        self._gangs.setdefault(queue, _RankedGangs(())).put_back(gang)
        self._places.put_back(queue, gang)
        self._update(queue)

    def comes_later(self, gang: W, charge: Charge) -> bool:
        """Return whether the queue of a gang, or one above it, has a larger place with this charge than is known."""
        queue, known = self._queue_of(gang), self._known_charge(gang)
        if charge == known:
            return False
        place = self._shares.place
        return any(place(name, queue, charge) > place(name, queue, known) for name in self._shares.tree.path(queue))

    def grant(self, gang: W, charge: Charge) -> None:
        """Count the charge of a gang that was granted, as usage of its queue and of its member."""
        queue = self._queue_of(gang)
        if charge != self._known_charge(gang):
            self._gangs[queue].count(gang, charge)
        self.charge(queue, charge)

    def borrows_more(self, gang: W, charge: Charge) -> bool:
        """Return whether the queue of a gang, or one above it, borrows with this charge and not with the least one."""
        queue, least, place = self._queue_of(gang), self._charge_of(gang), self._shares.place
        return any(
            place(name, queue, charge)[0] > place(name, queue, least)[0] for name in self._shares.tree.path(queue)
        )

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a charge as usage of a queue."""
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
        own = gangs.first() if gangs is not None else None
        if own is not None:
            self._places.put_first(queue, own)
        below = self._contests[queue].first() if queue in self._contests else None
        if own is None or below is None:
            return below or own
        return min(own, below, key=self.order.rank)


class _Places:
    """The places of gangs in queues whose members have shares; each is that of one gang at any time."""

    def __init__(self, order: Order) -> None:
        self._places = dict(order.places)
        self._gangs = {place: key for key, place in self._places.items()}
        self._left: dict[QueueName, list[Rank]] = {
            queue: sorted((self._places[key] for key in members.of), reverse=True)
            for queue, members in order.members.items()
        }
        """By queue, the places of gangs that were not taken yet, the last first."""
        self.order = Order(self._places, order.members) if self._left else order

    def put_first(self, queue: QueueName, gang: Waiting) -> None:
        """Give a gang the first place that is left in its queue, and its own to the gang that had that."""
        if queue not in self._left:
            return
        own, first = self._places[gang.key], self._left[queue][-1]
        other = self._gangs[first]
        self._places[gang.key], self._places[other] = first, own
        self._gangs[first], self._gangs[own] = gang.key, other

    def take(self, queue: QueueName) -> None:
        """Take the first place that is left in a queue out of those that are given to gangs."""
        if queue in self._left:
            self._left[queue].pop()

    def put_back(self, queue: QueueName, gang: Waiting) -> None:
        """Undo `take` for a gang."""
        if queue in self._left:
            self._left[queue].append(self._places[gang.key])
            self._left[queue].sort(reverse=True)


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
