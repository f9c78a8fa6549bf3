"""What a search for devices answers, and the budget that it has."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pick:
    """A device for a request: number of the request, of the option that was chosen, and the unit's place."""

    request: int
    option: int
    at: int


@dataclass(frozen=True, slots=True)
class Match:
    """Per claim its devices, in the order in which kube-scheduler writes them."""

    picks: tuple[tuple[Pick, ...], ...]


class Failure(Enum):
    """What turned a device away that the request selects."""

    CONSTRAINT = "a constraint keeps them apart"
    COUNTERS = "the counters of their pool are used up"
    CAPACITY = "too little of their capacity is left"
    ALL = "it wants all of them"
    LIMIT = "the claim can hold no more devices"
    DISPUTED = "releases of kube-scheduler disagree about it"
    EVICTED = "a taint of theirs has the pod deleted, since no toleration names the effect NoExecute"


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """The farthest request that could not be served: its claim and place, and how many devices it had by then.

    reasons: what turned devices away there, beside their being in use. at: the place of a unit that was turned away.
    firm: whether it stays so when less is free; what is not promised, or refused by a defect, may come when another pod
    has taken the device that stood in the way.
    """

    claim: int
    request: int
    found: int
    reasons: frozenset[Failure] = frozenset()
    at: int | None = None
    disputed: str = ""
    firm: bool = True


class StepsEndedError(Exception):
    """Raised inside the planner only: the budget is spent."""


class Budget:
    """Steps that a search may still take.

    On its way straight to a plan a search spends one for every device tried and every pod placed, so that large gangs
    need no larger budget. Once it has stepped back it spends as many as the work is worth, by what it has to look at:
    about 100,000 of them are a second, so that no search keeps a controller for long.
    """

    __slots__ = ("left", "total")

    def __init__(self, steps: int) -> None:
        self.total = steps
        self.left = steps

    @property
    def spent(self) -> int:
        return self.total - max(0, self.left)

    def spend(self, steps: int = 1) -> None:
        """Spend steps. Raises StepsEndedError when there are not as many."""
        self.left -= steps
        if self.left < 0:
            raise StepsEndedError


class CachedIterator(Generic[T]):
    """What an iterator yields, kept to be looked at again."""

    def __init__(self, rest: Iterator[T]) -> None:
        self._remaining = rest
        self._items: list[T] = []

    def __iter__(self) -> Iterator[T]:
        at = 0
        while True:
            if at == len(self._items):
                for one in self._remaining:
                    self._items.append(one)
                    break
                else:
                    return
            yield self._items[at]
            at += 1
