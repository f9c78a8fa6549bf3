"""The order in which pending gangs are considered.

Inside a queue: higher priority first, then the longer wait. Between queues it is the same, unless fair sharing is
declared there: then the queue with the smallest share goes first, and rank decides between equal shares only.

Whether a head that cannot start holds the gangs behind it (strict order) or not (best effort) is decided by the caller,
per queue.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Generic, Protocol, TypeVar

from admission.api.muster.gangs import Charge
from admission.api.values.names import QueueName
from admission.quota.fair_share import Shares


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


def in_order(waiting: Iterable[W]) -> list[W]:
    """Return all gangs in the order that holds where no fair sharing is declared."""
    return sorted(waiting, key=rank)


def heads(waiting: Iterable[W], queue_of: Callable[[W], Q]) -> list[W]:
    """Return the first gang of every queue, in order."""
    first: dict[Q, W] = {}
    for gang in in_order(waiting):
        first.setdefault(queue_of(gang), gang)
    return list(first.values())


class Tournament(Generic[W]):
    """Yields the pending gangs one by one; grants in between change the order of the rest.

    At every parent the child with the smallest share wins or, where shares do not matter, the one whose first gang has
    the better rank; a parent's own gangs compete with the winner by rank. The winner at the top is next, as in Kueue's
    fair sharing iterator (KEP 1714). Without any `fairSharing` the order is that of `in_order`. A gang is yielded once,
    whether it is then granted or not. Inactive and unknown queues compete as roots without usage.

    Building it costs a step per gang and level; each gang, and each grant, one comparison among siblings per level, in
    heaps: outdated entries stay in them until they come to the top.
    """

    def __init__(self, shares: Shares, waiting: Iterable[W], queue_of: Callable[[W], QueueName]) -> None:
        self._shares = shares
        self._queue_of = queue_of
        self._gangs: defaultdict[QueueName, list[W]] = defaultdict(list)
        self._contests: defaultdict[QueueName | None, _Contest] = defaultdict(_Contest)
        for gang in sorted(waiting, key=rank, reverse=True):
            self._gangs[queue_of(gang)].append(gang)
        for queue in tuple(self._gangs):
            self._update(queue)

    def __iter__(self) -> "Tournament[W]":
        return self

    def __next__(self) -> W:
        """Return the next gang and remove it."""
        queue = self._contests[None].first()
        if queue is None:
            raise StopIteration
        while (child := self._winner(queue)) is not None:
            queue = child
        gang = self._gangs[queue].pop()
        self._update(queue)
        return gang

    def enter(self, gang: W) -> None:
        """Add one more gang."""
        queue = self._queue_of(gang)
        self._gangs[queue].append(gang)
        self._gangs[queue].sort(key=rank, reverse=True)
        self._update(queue)

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count the charge of a gang that was granted, as usage of its queue."""
        self._shares.charge(queue, charge)
        self._update(queue)

    def give_back(self, queue: QueueName, charge: Charge) -> None:
        """Undo `charge` for a gang whose grant was taken back."""
        self._shares.give_back(queue, charge)
        self._update(queue)

    def _update(self, queue: QueueName) -> None:
        """Enter a queue, and those above it, into the contests with their siblings again."""
        tree = self._shares.tree
        for name in tree.path(queue):
            best = self._best(name)
            contest = self._contests[tree.parents.get(name)]
            if best is None:
                contest.leave(name)
            else:
                contest.enter(name, self._shares.share(name), best)

    def _winner(self, queue: QueueName) -> QueueName | None:
        """Return the child whose gang is the queue's next; None if it is one of the queue's own gangs."""
        child = self._contests[queue].first() if queue in self._contests else None
        gangs = self._gangs.get(queue)
        if child is None or not gangs:
            return child
        return child if self._contests[queue].best() < rank(gangs[-1]) else None

    def _best(self, queue: QueueName) -> Rank | None:
        """Return the rank of the next gang under a queue; None if there is none."""
        gangs = self._gangs.get(queue)
        own = rank(gangs[-1]) if gangs else None
        if queue not in self._contests or self._contests[queue].first() is None:
            return own
        below = self._contests[queue].best()
        return below if own is None else min(own, below)


class _Contest:
    """The children of one parent that have pending gangs, by share and by the rank of their next gang."""

    __slots__ = ("_entered", "_heap", "_places")

    def __init__(self) -> None:
        self._heap: list[tuple[float, Rank, int, QueueName]] = []
        self._places: dict[QueueName, int] = {}
        self._entered = 0

    def enter(self, child: QueueName, share: float, best: Rank) -> None:
        """Enter a child, in place of its earlier entry."""
        self._entered += 1
        self._places[child] = self._entered
        heapq.heappush(self._heap, (share, best, self._entered, child))

    def leave(self, child: QueueName) -> None:
        self._places.pop(child, None)

    def first(self) -> QueueName | None:
        """Return the child that wins; None if none is left."""
        while self._heap:
            _, _, place, child = self._heap[0]
            if self._places.get(child) == place:
                return child
            heapq.heappop(self._heap)
        return None

    def best(self) -> Rank:
        """Return the rank of the winner's next gang; to be called after `first`, which drops outdated entries."""
        return self._heap[0][1]
