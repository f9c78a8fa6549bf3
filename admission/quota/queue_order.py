"""The order in which waiting gangs are looked at.

Inside a queue: priority first, then who has waited longest. Between queues it is the same, unless fair shares are
declared there: then the queue with the smallest share goes first, and rank decides between equal ones only.

Whether a head that cannot start holds back those behind it (strict order) or not (best effort) is the caller's to
decide, queue by queue.
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
    """What the order reads of a gang. key is `namespace/name`."""

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
    """Return the sort key: higher priority first, then the longer wait, then the name, so that no two are equal."""
    return (-waiting.priority, waiting.queued_since, waiting.key)


def in_order(waiting: Iterable[W]) -> list[W]:
    """Return all gangs in the order in which they are looked at where no fair shares are declared."""
    return sorted(waiting, key=rank)


def heads(waiting: Iterable[W], queue_of: Callable[[W], Q]) -> list[W]:
    """Return the first gang of every queue, in order among themselves."""
    first: dict[Q, W] = {}
    for gang in in_order(waiting):
        first.setdefault(queue_of(gang), gang)
    return list(first.values())


class Tournament(Generic[W]):
    """Yields the waiting gangs one by one; what is granted in between changes the order of the rest.

    At every parent the child with the smallest share wins, or the one whose first gang has the better rank where shares
    do not matter; a parent's own gangs compete with the winner by rank. The winner at the top is next, as in Kueue's
    fair sharing iterator (KEP 1714). Without any `fairSharing` the order is that of `in_order`. A gang is yielded once,
    whether it is then granted or not. Inactive and unknown queues compete as roots that use nothing.

    Making it costs a step for every gang and level; each gang, and each grant, one comparison among siblings for every
    level, in heaps: out-of-date entries stay in them until they come to the top.
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
        """Return the gang that is next, and leave it out from now on."""
        queue = self._contests[None].first()
        if queue is None:
            raise StopIteration
        while (child := self._winner(queue)) is not None:
            queue = child
        gang = self._gangs[queue].pop()
        self._update(queue)
        return gang

    def enter(self, gang: W) -> None:
        """Let one more gang compete."""
        queue = self._queue_of(gang)
        self._gangs[queue].append(gang)
        self._gangs[queue].sort(key=rank, reverse=True)
        self._update(queue)

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count what was granted to a gang of a queue."""
        self._shares.charge(queue, charge)
        self._update(queue)

    def give_back(self, queue: QueueName, charge: Charge) -> None:
        """Count what was taken back from a gang of a queue."""
        self._shares.give_back(queue, charge)
        self._update(queue)

    def _update(self, queue: QueueName) -> None:
        """Enter a queue, and those above it, again into the contest with their siblings."""
        tree = self._shares.tree
        for name in tree.path(queue):
            best = self._best(name)
            contest = self._contests[tree.parents.get(name)]
            if best is None:
                contest.leave(name)
            else:
                contest.enter(name, self._shares.share(name), best)

    def _winner(self, queue: QueueName) -> QueueName | None:
        """Return the child whose gang is the queue's next, or None when it is one of its own."""
        child = self._contests[queue].first() if queue in self._contests else None
        gangs = self._gangs.get(queue)
        if child is None or not gangs:
            return child
        return child if self._contests[queue].best() < rank(gangs[-1]) else None

    def _best(self, queue: QueueName) -> Rank | None:
        """Return the rank of the gang that is next under a queue."""
        gangs = self._gangs.get(queue)
        own = rank(gangs[-1]) if gangs else None
        if queue not in self._contests or self._contests[queue].first() is None:
            return own
        below = self._contests[queue].best()
        return below if own is None else min(own, below)


class _Contest:
    """The children of one parent that have gangs waiting, by share and by the rank of their next gang."""

    __slots__ = ("_entered", "_heap", "_places")

    def __init__(self) -> None:
        self._heap: list[tuple[float, Rank, int, QueueName]] = []
        self._places: dict[QueueName, int] = {}
        self._entered = 0

    def enter(self, child: QueueName, share: float, best: Rank) -> None:
        """Enter a child, in place of what it was entered with before."""
        self._entered += 1
        self._places[child] = self._entered
        heapq.heappush(self._heap, (share, best, self._entered, child))

    def leave(self, child: QueueName) -> None:
        self._places.pop(child, None)

    def first(self) -> QueueName | None:
        """Return the child that wins; None when nobody is left."""
        while self._heap:
            _, _, place, child = self._heap[0]
            if self._places.get(child) == place:
                return child
            heapq.heappop(self._heap)
        return None

    def best(self) -> Rank:
        """Return the rank of the winner's next gang, after `first` has named it."""
        return self._heap[0][1]
