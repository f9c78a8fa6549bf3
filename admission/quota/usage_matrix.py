"""The quota and usage of all queues for one meter, added up through the tree by the rules of `borrowing`.

Queues go by their number in the tree's order, in which a parent comes before its children. Only `headroom` changes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from admission.api.muster.queues import Quota
from admission.quota import borrowing

ROOT = -1
"""The parent number of a root."""


@dataclass(frozen=True, slots=True)
class Pool:
    """What the queues under one parent may lend and have borrowed. borrowers: the largest first, then by number."""

    amount: int
    loans: int
    borrowers: tuple[int, ...]


@dataclass(slots=True)
class Column:
    """The quota and usage of one meter, by the number of the queue.

    subtree: nominal plus what the children do not keep. guaranteed: kept from the parent. own: used by the queue
    itself. usage: own plus what the children pass up. pools: by parent, those computed since the last change.
    """

    parents: Sequence[int]
    quotas: Mapping[int, Quota]
    subtree: list[int]
    guaranteed: list[int]
    own: list[int]
    usage: list[int]
    pools: dict[int, Pool] = field(default_factory=dict)

    def copy(self) -> Self:
        return replace(self, own=self.own.copy(), usage=self.usage.copy(), pools=self.pools.copy())

    def available(self, number: int) -> int:
        """Return what the queue may still take; negative if more is used than its quota."""
        parent = self.parents[number]
        if parent == ROOT:
            return self.subtree[number] - self.usage[number]
        above = self.available(parent)
        allowance = self.allowance(number)
        return borrowing.available(
            above=above if allowance is None else min(above, allowance),
            guaranteed=self.guaranteed[number],
            usage=self.usage[number],
        )

    def available_beside(self, held: "Column", number: int, own: int) -> int:
        """Return what the queue may still take where queues keep quota for gangs of theirs, negative as `available`.

        held: the same with what queues keep counted as used. own: what this queue itself keeps.
        """
        plain, beside = self._beside_those_above(held, number)
        quota = self.quotas.get(number)
        return borrowing.beside_kept(
            available=plain,
            offered=(quota.nominal if quota else 0) - self.own[number],
            left=beside - (held.usage[number] - self.usage[number] - own),
        )

    def _beside_those_above(self, held: "Column", number: int) -> tuple[int, int]:
        """Return what is available, and what is beside what queues keep that are neither the queue nor under it."""
        parent, guaranteed, usage = self.parents[number], self.guaranteed[number], self.usage[number]
        if parent == ROOT:
            return (self.subtree[number] - usage,) * 2
        plain, beside = self._beside_those_above(held, parent)
        kept = held.usage[parent] - self.usage[parent] - _passed_up(guaranteed, usage, held.usage[number] - usage)
        offered = borrowing.allowance(
            subtree=self.subtree[number], guaranteed=guaranteed, usage=usage, borrowing_limit=0
        )
        beside = borrowing.beside_kept(available=plain, offered=offered, left=beside - kept)
        allowance = self.allowance(number)
        if allowance is not None:
            plain, beside = min(plain, allowance), min(beside, allowance)
        return (
            borrowing.available(above=plain, guaranteed=guaranteed, usage=usage),
            borrowing.available(above=beside, guaranteed=guaranteed, usage=usage),
        )

    def allowance(self, number: int) -> int | None:
        """Return the most that the queue may take from its parent; None if it has no borrowing limit."""
        quota = self.quotas.get(number)
        if quota is None or quota.borrowing_limit is None:
            return None
        return borrowing.allowance(
            subtree=self.subtree[number],
            guaranteed=self.guaranteed[number],
            usage=self.usage[number],
            borrowing_limit=quota.borrowing_limit,
        )

    def is_limited(self, number: int) -> bool:
        """Return whether the queue could take more if it had no borrowing limit."""
        allowance = self.allowance(number)
        return allowance is not None and allowance < self.available(self.parents[number])

    def borrowing_limit_on(self, number: int) -> tuple[int, int] | None:
        """Return the first queue, of this one and those above, whose borrowing limit keeps it from more, and the limit.

        None if none does: nothing is left above, or only what its owners do not lend.
        """
        while self.parents[number] != ROOT:
            quota = self.quotas.get(number)
            if quota is not None and quota.borrowing_limit is not None and self.is_limited(number):
                return number, quota.borrowing_limit
            number = self.parents[number]
        return None

    def potential(self, number: int) -> int:
        parent = self.parents[number]
        if parent == ROOT:
            return self.subtree[number]
        quota = self.quotas.get(number)
        return borrowing.potential(
            above=self.potential(parent),
            subtree=self.subtree[number],
            guaranteed=self.guaranteed[number],
            borrowing_limit=None if quota is None else quota.borrowing_limit,
        )

    def borrowed(self, number: int) -> int:
        return borrowing.borrowed(subtree=self.subtree[number], usage=self.usage[number])

    def borrowed_with(self, number: int, user: int, amount: int) -> int:
        """Return what is borrowed if `user`, the queue or one under it, took an amount more."""
        amount = self.passed_up(user, amount, above=number)
        return borrowing.borrowed(subtree=self.subtree[number], usage=self.usage[number] + amount)

    def passed_up(self, number: int, amount: int, *, above: int) -> int:
        """Return how much more counts against a queue above if a queue used an amount more, which may be negative."""
        while number != above and amount:
            amount = _passed_up(self.guaranteed[number], self.usage[number], amount)
            number = self.parents[number]
        return amount

    def differing(self, other: "Column") -> set[int]:
        """Return the queues that use another amount, or of which another one counts, than in another column."""
        if (self.own, self.usage) == (other.own, other.usage):
            return set()
        both = zip(self.own, self.usage, other.own, other.usage, strict=True)
        return {number for number, (own, usage, own_, usage_) in enumerate(both) if own != own_ or usage != usage_}

    def idle(self, number: int) -> int:
        return borrowing.idle(
            subtree=self.subtree[number], guaranteed=self.guaranteed[number], usage=self.usage[number]
        )

    def move(self, number: int, amount: int) -> None:
        """Add to the usage of a queue, and what is passed up to that of the queues above. amount may be negative."""
        self.own[number] += amount
        parents, guaranteed, usage, pools = self.parents, self.guaranteed, self.usage, self.pools
        while number != ROOT and amount:
            before, kept = usage[number], guaranteed[number]
            after = usage[number] = before + amount
            # As `_passed_up`, which costs a call.
            if before < kept or after < kept:
                amount = max(after, kept) - max(before, kept)
            number = parents[number]
            if pools:
                pools.pop(number, None)

    def pool(self, parent: int, children: Sequence[int]) -> Pool:
        quota = self.quotas.get(parent)
        loans = {child: amount for child in children if (amount := self.borrowed(child))}
        return Pool(
            amount=(quota.nominal if quota else 0) + sum(map(self.idle, children)),
            loans=sum(loans.values()),
            borrowers=tuple(sorted(loans, key=lambda child: (-loans[child], child))),
        )


def _passed_up(guaranteed: int, before: int, amount: int) -> int:
    """Return how much more counts against the parent if the usage of a queue grows by an amount.

    That is the difference of what is passed up (`borrowing.passed_up`) with it and without.
    """
    after = before + amount
    if before >= guaranteed <= after:  # mostly so, and asked on each level for each meter of each grant
        return amount
    return max(after, guaranteed) - max(before, guaranteed)


def build(parents: Sequence[int], quotas: Mapping[int, Quota], used: Mapping[int, int]) -> Column:
    """Add up one meter from the leaves to the roots: in the tree's order a parent comes before its children."""
    subtree, guaranteed, own = [0] * len(parents), [0] * len(parents), [0] * len(parents)
    for number, quota in quotas.items():
        subtree[number] = quota.nominal
    for number, amount in used.items():
        own[number] = amount
    usage = own.copy()
    for number in range(len(parents) - 1, -1, -1):
        declared = quotas.get(number)
        if declared is not None:
            guaranteed[number] = borrowing.guaranteed(subtree=subtree[number], lending_limit=declared.lending_limit)
        parent = parents[number]
        if parent != ROOT:
            subtree[parent] += subtree[number] - guaranteed[number]
            usage[parent] += borrowing.passed_up(usage=usage[number], guaranteed=guaranteed[number])
    return Column(parents=parents, quotas=quotas, subtree=subtree, guaranteed=guaranteed, own=own, usage=usage)
