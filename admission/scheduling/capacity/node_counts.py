"""The search for the cheapest nodes with which a question has an answer, by trying numbers of nodes of each shape.

It relies on one law: what fits a cluster fits one with more nodes, too. So the least number of nodes of a shape, beside
given others, is found by bisection. The cheapest set is not searched among all sets, of which there are too many: the
best is taken of one shape each, and of a mixture from which the dearest nodes are left out first.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Generic, TypeVar

A = TypeVar("A")

Counts = Mapping[str, int]
"""The number of new nodes of each shape; shapes without any are left out."""

Cost = tuple[int, Fraction, int]
"""Nodes without a known price, the price of the others per hour, all nodes: the least is the best."""


class SearchEndedError(Exception):
    """No more numbers may be tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[A]):
    """Numbers of nodes, and the answer with them."""

    counts: Counts
    answer: A


def cost_of(counts: Counts, prices: Mapping[str, Fraction | None]) -> Cost:
    """Return what nodes cost."""
    unpriced = sum(count for name, count in counts.items() if prices[name] is None)
    total = sum(((prices[name] or Fraction(0)) * count for name, count in counts.items()), Fraction(0))
    return unpriced, total, sum(counts.values())


@dataclass(slots=True, kw_only=True)
class CountSearch(Generic[A]):
    """The search for one gang.

    ask: the answer with new nodes, None if there is none. used: how many new nodes of each shape an answer uses. most:
    how many nodes of each shape may come. tries: how many numbers may still be tried. needs_some: whether there is
    known to be no answer without new nodes; otherwise that is asked first where a similar question had one.
    """

    ask: Callable[[Counts], A | None]
    used: Callable[[A], Counts]
    most: Counts
    prices: Mapping[str, Fraction | None]
    tries: int
    needs_some: bool = False
    _known: dict[tuple[tuple[str, int], ...], A | None] = field(default_factory=dict)

    def cheapest(self, start: Counts | None = None) -> Found[A] | None:
        """Return the least nodes with which there is an answer; None if there is none with all of them.

        start: numbers that are likely to do, from a similar question. If no more may be tried, what was found until
        then is returned.
        """
        best: Found[A] | None = None
        try:
            for found in self._candidates(start):
                if best is None or self._cost(found.counts) < self._cost(best.counts):
                    best = found
        except SearchEndedError:
            pass
        return best

    def _candidates(self, start: Counts | None) -> "Iterable[Found[A]]":
        if self.needs_some:
            self._known[()] = None
        none = self._with({}) if start is not None else None
        if none is not None:
            yield none
            return
        first = self._with(start) if start is not None else None
        if first is not None:
            yield self._reduced(first, first.counts)
            return
        everything = self._with(self.most)
        if everything is None:
            return
        mixture = self._reduced(everything, self.most)
        yield mixture
        limit = self._cost(mixture.counts)
        for name in self._by_price():
            one = {name: 1}
            if set(mixture.counts) == {name} or self._cost(one) >= limit:
                continue
            all_of_one = {name: self.most[name]}
            alone = self._with(all_of_one)
            if alone is not None:
                yield self._reduced(alone, all_of_one)

    def _reduced(self, found: Found[A], limits: Counts) -> Found[A]:
        """Return an answer with as few nodes of each shape as do, the dearest shape first.

        limits: how many nodes there may be of the shapes that are not yet reduced.
        """
        fixed: dict[str, int] = {}
        rest = dict(limits)
        for name in reversed(self._by_price()):
            rest.pop(name, None)
            found = self._fewer(found, name, {**rest, **fixed})
            fixed[name] = found.counts.get(name, 0)
        return found

    def _fewer(self, found: Found[A], name: str, others: Counts) -> Found[A]:
        """Return an answer with as few nodes of a shape as do beside those of others."""
        low, high = -1, found.counts.get(name, 0)
        # Mostly an answer wastes nothing, so the next smaller number is tried first.
        middle = high - 1
        while low < high - 1:
            fewer = self._with({**others, name: middle})
            if fewer is None:
                low = middle
            else:
                found = fewer
                high = min(middle, fewer.counts.get(name, 0))
            middle = (low + high) // 2
        return found

    def _with(self, counts: Counts) -> Found[A] | None:
        """Return the answer with these nodes, and those of them that it uses; None if there is none."""
        counts = {name: min(count, self.most.get(name, 0)) for name, count in counts.items() if count > 0}
        counts = {name: count for name, count in counts.items() if count}
        key = tuple(sorted(counts.items()))
        if key not in self._known:
            if not self.tries:
                raise SearchEndedError
            self.tries -= 1
            self._known[key] = self.ask(counts)
        answer = self._known[key]
        return None if answer is None else Found(counts=self.used(answer), answer=answer)

    def _by_price(self) -> Sequence[str]:
        """Return the shapes, the cheapest node first, those without a price last."""
        return sorted(self.most, key=lambda name: (self._cost({name: 1}), name))

    def _cost(self, counts: Counts) -> Cost:
        return cost_of(counts, self.prices)
