"""The answers of a search for devices, and its budget."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pick:
    """A device for a request: numbers of the request and of the chosen option, and the device's place."""

    request: int
    option: int
    at: int


@dataclass(frozen=True, slots=True)
class Match:
    """The devices of each claim, in the order in which kube-scheduler writes them."""

    picks: tuple[tuple[Pick, ...], ...]


class Failure(Enum):
    """Why a device that the request selects was not taken."""

    CONSTRAINT = "a constraint keeps them apart"
    COUNTERS = "the counters of their pool are used up"
    CAPACITY = "too little of their capacity is left"
    ALL = "it wants all of them, and not all can be given"
    LIMIT = "the claim can hold no more devices"
    DISPUTED = "releases of kube-scheduler disagree about it"
    UNORDERED = "kube-scheduler of this release takes their slices in random order, on which no promise may rest"
    EVICTED = "a taint of theirs has the pod deleted unless a toleration names the effect NoExecute, without an end"


@dataclass(frozen=True, slots=True)
class DeadEnd:
    """The farthest request that could not be served: its claim and place, and how many devices it had by then.

    reasons: why devices were not taken there, beside being in use. at: the place of one such device. firm: whether the
    dead end remains when less is free. It may not where devices were refused as uncertain, or because of a defect:
    after another pod has taken the device in question the search may succeed. picked: by claim, the devices that it had
    by then.
    """

    claim: int
    request: int
    found: int
    reasons: frozenset[Failure] = frozenset()
    at: int | None = None
    disputed: str = ""
    firm: bool = True
    picked: tuple[tuple[Pick, ...], ...] = field(default=(), compare=False)

    def joined(self, other: "DeadEnd") -> "DeadEnd":
        """Return another dead end that is at least as far; where it is as far, with the reasons of both."""
        if (self.claim, self.request, self.found) != (other.claim, other.request, other.found):
            return other
        reasons = self.reasons | other.reasons
        # A constraint may only keep other devices from those picked, so what is used up says more.
        if self.at is not None and other.reasons == {Failure.CONSTRAINT}:
            return replace(self, reasons=reasons)
        return replace(other, reasons=reasons, at=self.at if other.at is None else other.at)


class StepsEndedError(Exception):
    """Raised inside the planner only: the budget is spent."""


class Budget:
    """The steps that a search has left.

    While a search has not stepped back it spends one step for every device tried and every pod placed, so that a large
    gang with an easy plan needs no larger budget. After the first step back it spends what the work is worth, by what
    it looks at: about 100,000 steps are a second, so no search occupies the controller for long.
    """

    __slots__ = ("left", "total")

    def __init__(self, steps: int) -> None:
        self.total = steps
        self.left = steps

    @property
    def spent(self) -> int:
        return self.total - max(0, self.left)

    def renew(self, steps: int) -> None:
        """Have so many steps left again; those that were spent still count."""
        self.total, self.left = self.spent + steps, steps

    def spend(self, steps: int = 1) -> None:
        """Spend steps. Raises StepsEndedError when fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise StepsEndedError


class CachedIterator(Generic[T]):
    """The items of an iterator, kept so that they can be iterated again; the iterator advances only as needed."""

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
