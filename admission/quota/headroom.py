"""How the queues stand in one round of decisions: what each may still take, kept up to date with every charge.

A `QueueUsage` is made from the tree and what is reserved and used. It is then asked and told in turn: `charge_fits`,
`charge`, and `give_back` to undo that. The rules are those of `borrowing`. A meter that neither the queue nor
any queue around it mentions is 0. An inactive queue may take nothing; what it uses counts as `Tree.bearing` says.

Making one costs a step for every quota and every use; the first question about a meter a step for every queue; each
further one a step for every level of the tree.
"""

from collections.abc import Mapping
from typing import Self

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Quota
from admission.api.values.names import MeterName, QueueName
from admission.quota import borrowing, usage_matrix
from admission.quota.shortage import Loan, Shortage
from admission.quota.tree import Tree
from admission.quota.usage_matrix import ROOT, Column, Pool

Usage = Mapping[QueueName, Mapping[MeterName, int]]
"""Queue → meter → what it has reserved and used, together."""

MOST_NAMED = 3
"""Borrowers that the message of a shortage names."""


class QueueUsage:
    """What every queue of a tree has, uses and may still take. Not for two threads at once."""

    def __init__(self, tree: Tree, usage: Usage) -> None:
        self.tree = tree
        self._numbers = {name: number for number, name in enumerate(tree.order)}
        self._parents = [self._numbers[tree.parents[name]] if name in tree.parents else ROOT for name in tree.order]
        self._quotas: dict[MeterName, dict[int, Quota]] = {}
        self._usage: dict[MeterName, dict[int, int]] = {}
        self._columns: dict[MeterName, Column] = {}
        for name, number in self._numbers.items():
            for meter, quota in tree.quotas[name].items():
                self._quotas.setdefault(meter, {})[number] = quota
        for name, amounts in usage.items():
            bearers = tree.bearing(name)
            for meter, amount in amounts.items() if bearers else ():
                number, used = self._numbers[bearers[0]], self._usage.setdefault(meter, {})
                used[number] = used.get(number, 0) + amount

    def copy(self) -> Self:
        """Return a standing of its own, for trying something out; what never changes is shared."""
        copied = object.__new__(type(self))
        copied.tree, copied._numbers, copied._parents = self.tree, self._numbers, self._parents
        copied._quotas, copied._usage = self._quotas, self._usage
        copied._columns = {meter: column.copy() for meter, column in self._columns.items()}
        return copied

    def available(self, queue: QueueName, meter: MeterName) -> int:
        """Return what the queue may still take; 0 when it is inactive, or when more is used than there is."""
        return max(0, self.margin(queue, meter))

    def margin(self, queue: QueueName, meter: MeterName) -> int:
        """Return what is available, below 0 by what must at least be given back before anything is."""
        return self._column(meter).available(self._numbers[queue]) if self.tree.active(queue) else 0

    def potential(self, queue: QueueName, meter: MeterName) -> int:
        """Return what the queue could take if nobody used anything; 0 when it is inactive."""
        return self._column(meter).potential(self._numbers[queue]) if self.tree.active(queue) else 0

    def charge_fits(self, queue: QueueName, charge: Charge) -> Shortage | None:
        """Return None when the queue may take the whole charge, else the first meter that is short."""
        if not self.tree.active(queue):
            return Shortage(queue=queue, meter=None)
        number = self._numbers[queue]
        for meter, needed in sorted(charge.items()):
            if needed > max(0, self._column(meter).available(number)):
                return self._shortage(queue, meter, needed)
        return None

    def fits(self, queue: QueueName, charge: Charge) -> bool:
        """Return whether the queue may take the whole charge, for callers that do not ask what is short."""
        if not self.tree.active(queue):
            return False
        number = self._numbers[queue]
        return all(needed <= max(0, self._column(meter).available(number)) for meter, needed in charge.items())

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a charge as used by the queue, whether it fits or not. Of one without a place nothing is counted."""
        number = self._numbers.get(queue)
        if number is not None:
            for meter, amount in charge.items():
                self._column(meter).move(number, amount)

    def give_back(self, queue: QueueName, charge: Charge) -> None:
        """Undo `charge`. Raises ValueError, with nothing changed, when the queue does not use as much."""
        number = self._numbers.get(queue)
        if number is None:
            return
        for meter, amount in charge.items():
            used = self._column(meter).own[number]
            if amount > used:
                raise ValueError(f"queue {queue} uses {used} {meter}, it cannot give back {amount}")
        for meter, amount in charge.items():
            self._column(meter).move(number, -amount)

    def own(self, queue: QueueName, meter: MeterName) -> int:
        """Return what the queue itself uses, without those under it."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).own[number]

    def usage(self, queue: QueueName, meter: MeterName) -> int:
        """Return what counts against the queue's quota: its own use, and its children's beyond what they keep."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).usage[number]

    def quota(self, queue: QueueName, meter: MeterName) -> int:
        """Return the queue's nominal quota and what its children do not keep for themselves."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).subtree[number]

    def borrowed(self, queue: QueueName, meter: MeterName) -> int:
        """Return how much of what is used under the queue is beyond its own subtree's quota."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).borrowed(number)

    def lent(self, queue: QueueName, meter: MeterName) -> int:
        """Return how much of the queue's quota the others under the same parent use.

        The first such question after a change costs a step for every queue under that parent.
        """
        number = self._numbers.get(queue)
        return 0 if number is None else self._lent(number, meter)

    def _column(self, meter: MeterName) -> Column:
        column = self._columns.get(meter)
        if column is None:
            column = usage_matrix.build(self._parents, self._quotas.get(meter, {}), self._usage.get(meter, {}))
            self._columns[meter] = column
        return column

    def _shortage(self, queue: QueueName, meter: MeterName, needed: int) -> Shortage:
        number, column = self._numbers[queue], self._column(meter)
        potential = column.potential(number)
        quota = column.quotas.get(number)
        return Shortage(
            queue=queue,
            meter=meter,
            needed=needed,
            left=max(0, column.available(number)),
            nominal=quota.nominal if quota else 0,
            used=column.own[number],
            borrowed=column.borrowed(number),
            potential=potential,
            loan=self._loan(number, meter) if needed <= potential else None,
        )

    def _loan(self, number: int, meter: MeterName) -> Loan | None:
        """Return the nearest loan, by the queue or one above it, unless the queue's own limit is what stops it."""
        column = self._column(meter)
        while (parent := self._parents[number]) != ROOT and not column.is_limited(number):
            amount = self._lent(number, meter)
            if amount:
                return self._loan_of(number, meter, amount)
            number = parent
        return None

    def _loan_of(self, number: int, meter: MeterName, amount: int) -> Loan:
        names = self.tree.order
        pool = self._pool(self._parents[number], meter)
        others = [borrower for borrower in pool.borrowers if borrower != number]
        return Loan(
            lender=names[number],
            amount=amount,
            quota=self._column(meter).subtree[number],
            borrowers=tuple(names[borrower] for borrower in others[:MOST_NAMED]),
            others=max(0, len(others) - MOST_NAMED),
        )

    def _lent(self, number: int, meter: MeterName) -> int:
        parent = self._parents[number]
        if parent == ROOT:
            return 0
        pool = self._pool(parent, meter)
        return borrowing.lent(idle=self._column(meter).idle(number), loans=pool.loans, pool=pool.amount)

    def _pool(self, parent: int, meter: MeterName) -> Pool:
        """Return what the children of a parent may borrow and have borrowed."""
        column = self._column(meter)
        pool = column.pools.get(parent)
        if pool is None:
            names = self.tree.order
            children = [self._numbers[child] for child in self.tree.children[names[parent]]]
            pool = column.pools[parent] = column.pool(parent, children)
        return pool
