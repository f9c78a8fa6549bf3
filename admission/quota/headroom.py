"""The headroom of queues in one cycle: what each may still take, kept up to date with every charge.

`QueueUsage` is built from the tree and what is reserved and used; `charge` and `give_back` change it. The rules are
those of `borrowing`. A meter for which no queue around has quota is 0. An inactive queue may take nothing; its usage
counts against the queues of `Tree.bearing`.

What a queue keeps of its own quota for a gang that waits binds only who would borrow where both meet. Who stays within
its own quota, of the queue itself or of the lowest one above that would not borrow, is bound by nothing that is kept
beyond that; others have to leave what is kept.

With gangs that are being evicted for others, there are two usages: what is used now, with the victims that are still
there, and what is used in the end, with those for which they go. A charge fits if it fits beside both, and borrows what
it borrows beside either. Their sum would count the quota of victims twice, as theirs and as that of their successors.
Where they do not differ, for a queue and all above it, only one is asked.

Building it costs a step per quota and usage; the first query about a meter a step per queue; each further one a step
per level of the tree.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Quota, Reclaim
from admission.api.values.names import MeterName, QueueName
from admission.quota import borrowing, usage_matrix
from admission.quota.shortage import MOST_NAMED, BorrowingLimit, Eviction, Loan, LoanReclaim, Shortage
from admission.quota.tree import Tree
from admission.quota.usage_matrix import ROOT, Column, Pool

Usage = Mapping[QueueName, Mapping[MeterName, int]]
"""Queue → meter → the amount reserved or used."""


def larger(usage: Usage, other: Usage | None) -> Usage:
    """Return by queue and meter the larger of two usages, by which the shares of queues are compared."""
    if other is None:
        return usage
    found = {queue: dict(amounts) for queue, amounts in usage.items()}
    for queue, amounts in other.items():
        known = found.setdefault(queue, {})
        known.update({meter: max(amount, known.get(meter, 0)) for meter, amount in amounts.items()})
    return found


class _Kept(NamedTuple):
    """What a queue keeps of its own quota. needed: by its gang that waits. amounts: of that what it has left."""

    needed: Charge
    amounts: Mapping[MeterName, int]


class QueueUsage:
    """The quota, usage and headroom of every queue of a tree. Not thread-safe."""

    def __init__(self, tree: Tree, usage: Usage, in_the_end: Usage | None = None) -> None:
        """in_the_end: the usage once gangs that are being evicted are gone and others have their quota, if any are."""
        self.tree = tree
        self._end = QueueUsage(tree, in_the_end) if in_the_end is not None else None
        """What is used in the end; None if that is what is used now."""
        self._differing: set[QueueName] | None = None
        """The queues of which other amounts may be used or kept in the end; None if these were not looked for yet."""
        self._numbers = {name: number for number, name in enumerate(tree.order)}
        self._parents = [self._numbers[tree.parents[name]] if name in tree.parents else ROOT for name in tree.order]
        self._quotas: dict[MeterName, dict[int, Quota]] = {}
        self._usage: dict[MeterName, dict[int, int]] = {}
        self._columns: dict[MeterName, Column] = {}
        self._kept: dict[int, _Kept] = {}
        """By queue, what it keeps of its own quota; it counts as used to all other queues that would borrow."""
        self._held: dict[MeterName, Column] = {}
        """By meter of which anything is kept, the column as if that were used."""
        for name, number in self._numbers.items():
            for meter, quota in tree.quotas[name].items():
                self._quotas.setdefault(meter, {})[number] = quota
        for name, amounts in usage.items():
            bearers = tree.bearing(name)
            for meter, amount in amounts.items() if bearers else ():
                number, used = self._numbers[bearers[0]], self._usage.setdefault(meter, {})
                used[number] = used.get(number, 0) + amount

    def copy(self) -> Self:
        """Return an independent copy, for what-if questions; immutable parts are shared."""
        copied = object.__new__(type(self))
        copied.tree, copied._numbers, copied._parents = self.tree, self._numbers, self._parents
        copied._quotas, copied._usage = self._quotas, self._usage
        copied._end = self._end.copy() if self._end is not None else None
        copied._differing = set(self._differing) if self._differing is not None else None
        copied._kept = dict(self._kept)
        copied._held = {meter: column.copy() for meter, column in self._held.items()}
        copied._columns = {meter: column.copy() for meter, column in self._columns.items()}
        return copied

    def available(self, queue: QueueName, meter: MeterName) -> int:
        """Return what the queue may still take; 0 if it is inactive, or if more is used than its quota."""
        return max(0, self.margin(queue, meter))

    def margin(self, queue: QueueName, meter: MeterName) -> int:
        """Return what is available; if negative, at least that much must be given back before anything is."""
        found = self._available(self._numbers[queue], meter) if self.tree.active(queue) else 0
        return found if (end := self._differing_end(queue)) is None else min(found, end.margin(queue, meter))

    def potential(self, queue: QueueName, meter: MeterName) -> int:
        """Return what the queue could take if nothing were used; 0 if it is inactive."""
        return self._column(meter).potential(self._numbers[queue]) if self.tree.active(queue) else 0

    def charge_fits(self, queue: QueueName, charge: Charge) -> Shortage | None:
        """Return None if the queue may take the whole charge, else the first meter that is short."""
        if not self.tree.active(queue):
            return Shortage(queue=queue, meter=None)
        number = self._numbers[queue]
        for meter, needed in sorted(charge.items()):
            if not self._is_left(number, meter, needed):
                return self._shortage(queue, meter, charge)
        return None if (end := self._differing_end(queue)) is None else end.charge_fits(queue, charge)

    def fits(self, queue: QueueName, charge: Charge) -> bool:
        """Return whether the queue may take the whole charge; cheaper than `charge_fits`."""
        if not self.tree.active(queue):
            return False
        number = self._numbers[queue]
        is_left = all(self._is_left(number, meter, needed) for meter, needed in charge.items())
        return is_left and ((end := self._differing_end(queue)) is None or end.fits(queue, charge))

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a charge as used by the queue, whether it fits or not. Does nothing for a queue without a place."""
        if self._end is not None:
            self._end.charge(queue, charge)
        number = self._numbers.get(queue)
        if number is not None:
            self._move(number, charge, 1)
            self._find_differing(queue, charge)
            if number in self._kept:
                self.keep(queue, self._kept[number].needed)

    def keep(self, queue: QueueName, needed: Charge) -> None:
        """Let no other queue borrow what the queue has left of its own quota, as far as a gang of it needs that.

        Who stays within its own quota may take that, also where so much is lent already that the gang has to wait.
        It replaces what the queue has kept before, and follows what is charged to the queue.
        """
        if self._end is not None:
            self._end.keep(queue, needed)
        number = self._numbers.get(queue)
        if number is None:
            return
        self._release(number)
        left = {meter: self._nominal(number, meter) - self._column(meter).own[number] for meter in needed}
        amounts = {meter: min(amount, left[meter]) for meter, amount in needed.items() if min(amount, left[meter]) > 0}
        for meter, amount in amounts.items():
            if meter not in self._held:
                self._held[meter] = self._column(meter).copy()
            self._held[meter].move(number, amount)
        self._kept[number] = _Kept(needed, amounts)
        self._find_differing(queue, self._held)

    def release_all(self) -> None:
        """Let every queue lend again what it has kept."""
        if self._end is not None:
            self._end.release_all()
        self._kept, self._held = {}, {}

    def give_back(self, queue: QueueName, charge: Charge) -> None:
        """Undo `charge`. Raises ValueError, with nothing changed, if the queue does not use as much."""
        number = self._numbers.get(queue)
        if number is None:
            return
        for meter, amount in charge.items():
            used = self._column(meter).own[number]
            if amount > used:
                raise ValueError(f"queue {queue} uses {used} {meter}, it cannot give back {amount}")
        if self._end is not None:
            self._end.give_back(queue, charge)
        self._move(number, charge, -1)
        self._find_differing(queue, charge)

    def give_back_at_most(self, charges: Usage, in_the_end: Usage) -> None:
        """Undo charges of queues, as far as these use so much. charges: of what is used now."""
        if self._end is not None:
            self._end.give_back_at_most(in_the_end, in_the_end)
            self._differing = None
        for queue, charge in charges.items():
            number = self._numbers.get(queue)
            if number is not None:
                self._move(number, {meter: min(amount, self.own(queue, meter)) for meter, amount in charge.items()}, -1)

    def own(self, queue: QueueName, meter: MeterName) -> int:
        """Return what the queue itself uses, without those under it."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).own[number]

    def usage(self, queue: QueueName, meter: MeterName) -> int:
        """Return what counts against the queue's quota: its own usage, and its children's beyond what they keep."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).usage[number]

    def quota(self, queue: QueueName, meter: MeterName) -> int:
        """Return the queue's nominal quota plus what its children do not keep for themselves."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).subtree[number]

    def fits_beside(self, queue: QueueName, charge: Charge, others: Sequence[tuple[QueueName, Charge | None]]) -> bool:
        """Return whether the queue may take the whole charge if others used so much more of their own quota first.

        others: no queue twice on one path; with None, all that they have left. Of a queue above only its own nominal
        quota counts. What queues keep is lent.
        """
        if not self.tree.active(queue):
            return False
        number = self._numbers[queue]
        above = {self._numbers[name] for name in self.tree.path(queue)}
        for meter, needed in charge.items():
            column, moved = self._column(meter), list[tuple[int, int]]()
            for name, more in others:
                other = self._numbers[name]
                left = column.subtree[other] - column.usage[other]
                left = min(left, self._nominal(other, meter) - column.own[other]) if other in above else left
                amount = max(0, left if more is None else min(left, more.get(meter, 0)))
                column.move(other, amount)
                moved.append((other, amount))
            available = column.available(number)
            for other, amount in moved:
                column.move(other, -amount)
            if needed > max(0, available):
                return False
        return self._end is None or self._end.fits_beside(queue, charge, others)

    def borrows_early(self, queue: QueueName, charge: Charge) -> QueueName | None:
        """Return the first queue, of a queue and those above it, that borrows more for a charge now than in the end."""
        end = self._differing_end(queue)
        if end is None:
            return None
        for name in self.tree.path(queue):
            then = end.borrowed_with(name, charge, queue, charge)
            now = self._borrowed_with(name, charge, queue, charge)
            if any(amount > then.get(meter, 0) for meter, amount in now.items()):
                return name
        return None

    def borrowed(self, queue: QueueName, meter: MeterName) -> int:
        """Return how much usage under the queue is beyond its subtree's quota."""
        number = self._numbers.get(queue)
        return 0 if number is None else self._column(meter).borrowed(number)

    def borrowed_with(
        self, queue: QueueName, meters: Collection[MeterName], user: QueueName, charge: Charge
    ) -> dict[MeterName, int]:
        """Return, by meter, what `borrowed` would be if `user`, the queue or one under it, took a charge; without 0."""
        found = self._borrowed_with(queue, meters, user, charge)
        end = self._differing_end(user)
        then = end.borrowed_with(queue, meters, user, charge) if end is not None else found
        if found == then:
            return found
        return {meter: max(found.get(meter, 0), then.get(meter, 0)) for meter in {**found, **then}}

    def _borrowed_with(
        self, queue: QueueName, meters: Iterable[MeterName], user: QueueName, charge: Charge
    ) -> dict[MeterName, int]:
        number, below = self._numbers.get(queue), self._numbers.get(user)
        if number is None or below is None:
            return {}
        found = ((meter, self._column(meter).borrowed_with(number, below, charge.get(meter, 0))) for meter in meters)
        return {meter: amount for meter, amount in found if amount}

    def borrows(self, queue: QueueName, user: QueueName, charge: Charge) -> bool:
        """Return whether a queue borrows what `user`, the queue or one under it, would be charged."""
        number, below = self._numbers.get(queue), self._numbers.get(user)
        if number is None or below is None:
            return False
        columns = ((self._column(meter), amount) for meter, amount in charge.items() if amount)
        found = any(column.borrowed_with(number, below, amount) for column, amount in columns)
        return found or ((end := self._differing_end(user)) is not None and end.borrows(queue, user, charge))

    def loan_level(self, queue: QueueName, charge: Charge) -> int:
        """Return how far up the queue would borrow for a charge: 0 if not at all, 1 from the queues beside it, ….

        The first queue on its path that stays within its own quota with all of the charge ends the loan
        (Kueue's `FindHeightOfLowestSubtreeThatFits`). 0 for a queue without a place.
        """
        path = [self._numbers[name] for name in self.tree.path(queue)] if queue in self._numbers else []
        columns = [(self._column(meter), amount) for meter, amount in charge.items() if amount]
        found = next(
            (
                level
                for level, number in enumerate(path)
                if not any(column.borrowed_with(number, path[0], amount) for column, amount in columns)
            ),
            len(path),
        )
        return found if (end := self._differing_end(queue)) is None else max(found, end.loan_level(queue, charge))

    def lent(self, queue: QueueName, meter: MeterName) -> int:
        """Return how much of the queue's quota other queues under the same parent use.

        The first such query after a change costs a step per queue under that parent.
        """
        number = self._numbers.get(queue)
        return 0 if number is None else self._lent(number, meter)

    def _differing_end(self, queue: QueueName) -> "QueueUsage | None":
        """Return what is used in the end; None where a queue and all above it use and keep then what they do now."""
        if self._end is None:
            return None
        if self._differing is None:
            self._differing = self._all_differing(self._end)
        return None if self._differing.isdisjoint(self.tree.path(queue)) else self._end

    def _all_differing(self, end: "QueueUsage") -> set[QueueName]:
        pairs = (pair for meter in self.meters() | end.meters() for pair in self._pairs(meter, end))
        return {self.tree.order[number] for now, then in pairs for number in now.differing(then)}

    def _pairs(self, meter: MeterName, end: "QueueUsage") -> Iterable[tuple[Column, Column]]:
        return zip(self.columns(meter), end.columns(meter), strict=True)

    def meters(self) -> set[MeterName]:
        """Return the meters of which anything is used, and maybe more."""
        return {*self._usage, *self._columns}

    def columns(self, meter: MeterName) -> tuple[Column, Column]:
        """Return what is used of a meter, and the same with what queues keep counted as used."""
        column = self._column(meter)
        return column, self._held.get(meter, column)

    def _find_differing(self, queue: QueueName, meters: Iterable[MeterName]) -> None:
        """Find which of the queues above differ since amounts of these meters changed alike, now and in the end.

        Only above a queue that differs may another one come to do so, as what each passes up depends on what it uses.
        """
        end, differing, is_below = self._end, self._differing, False
        if end is None or not differing:
            return
        for name in self.tree.path(queue):
            is_known = name in differing
            if is_below and not is_known:
                number = self._numbers[name]
                pairs = (pair for meter in meters for pair in self._pairs(meter, end))
                if any(now.usage[number] != then.usage[number] for now, then in pairs):
                    differing.add(name)
                    is_known = True
            is_below = is_known

    def _release(self, number: int) -> None:
        kept = self._kept.pop(number, None)
        for meter, amount in kept.amounts.items() if kept is not None else ():
            self._held[meter].move(number, -amount)

    def _available(self, number: int, meter: MeterName) -> int:
        """Return what the queue may still take, what it keeps itself included."""
        column, held = self._column(meter), self._held.get(meter)
        if held is None:
            return column.available(number)
        kept = self._kept.get(number)
        return column.available_beside(held, number, kept.amounts.get(meter, 0) if kept is not None else 0)

    def _is_left(self, number: int, meter: MeterName, needed: int) -> bool:
        held = self._held.get(meter)
        if held is not None and needed <= held.available(number):  # cheaper, and mostly so: no more than is available
            return True
        return needed <= max(0, self._available(number, meter))

    def _keepers(self, number: int, meter: MeterName, needed: int) -> tuple[QueueName, ...]:
        """Return the queues without whose kept quota the queue could take as much; none if that is not enough.

        Not those that keep only what would not be lent anyway.
        """
        if meter not in self._held or needed > self._column(meter).available(number):
            return ()
        keepers = [other for other, kept in self._kept.items() if other != number and meter in kept.amounts]
        return tuple(sorted(self.tree.order[other] for other in keepers if self._binds(other, number, meter, needed)))

    def _binds(self, keeper: int, number: int, meter: MeterName, needed: int) -> bool:
        """Return whether a queue, and all above it, would borrow below where its path meets that of a keeper.

        Only if what that one keeps counts there.

        What is kept below that counts as used: who takes it makes the queues above borrow for those that keep it.
        """
        column, held, kept = self._column(meter), self._held[meter], self._kept.get(number)
        above = {self._numbers[name] for name in self.tree.path(self.tree.order[keeper])}
        if column.own[number] + needed <= self._nominal(number, meter):
            return False
        beyond_kept = needed - (kept.amounts.get(meter, 0) if kept is not None else 0)
        branch = number
        while branch not in above:
            if branch == ROOT or not held.borrowed_with(branch, number, beyond_kept):
                return False
            branch = self._parents[branch]
        return held.passed_up(keeper, -self._kept[keeper].amounts[meter], above=branch) != 0

    def _move(self, number: int, charge: Charge, sign: int) -> None:
        for meter, amount in charge.items():
            self._column(meter).move(number, sign * amount)
            if meter in self._held:
                self._held[meter].move(number, sign * amount)

    def _column(self, meter: MeterName) -> Column:
        column = self._columns.get(meter)
        if column is None:
            column = usage_matrix.build(self._parents, self._quotas.get(meter, {}), self._usage.get(meter, {}))
            self._columns[meter] = column
        return column

    def _shortage(self, queue: QueueName, meter: MeterName, charge: Charge) -> Shortage:
        number, column, needed = self._numbers[queue], self._column(meter), charge[meter]
        potential = column.potential(number)
        keepers = self._keepers(number, meter, needed)
        may_evict = needed <= potential and not keepers
        lender = self._lender(number, meter) if may_evict else None
        limit = column.borrowing_limit_on(number) if may_evict and lender is None else None
        return Shortage(
            queue=queue,
            meter=meter,
            needed=needed,
            left=max(0, self._available(number, meter)),
            nominal=self._nominal(number, meter),
            used=column.own[number],
            borrowed=column.borrowed(number),
            potential=potential,
            loan=self._loan_of(lender, meter) if lender is not None else None,
            limit=BorrowingLimit(self.tree.order[limit[0]], limit[1]) if limit is not None else None,
            eviction=self._eviction(queue, meter, charge, lender) if may_evict else None,
            within_queue=self.tree.queues[queue].preemption.within_queue,
            keepers=keepers,
            is_named=number in self._quotas.get(meter, {}),
        )

    def _lender(self, number: int, meter: MeterName) -> int | None:
        """Return the nearest that lends, of the queue and those above; None if a borrowing limit is what stops it."""
        column = self._column(meter)
        while (parent := self._parents[number]) != ROOT and not column.is_limited(number):
            if self._lent(number, meter):
                return number
            number = parent
        return None

    def _eviction(self, queue: QueueName, meter: MeterName, charge: Charge, lender: int | None) -> Eviction:
        """Return whether gangs of others are evicted for the charge, which is short of the meter, maybe of others."""
        number = self._numbers[queue]
        top = number if lender is None else lender
        short = {name: needed for name, needed in charge.items() if needed > max(0, self._available(number, name))}
        is_own, borrowed = self._is_own(number, top, short), None
        if not is_own and self._is_own(number, top, {meter: short[meter]}):
            borrowed = next(
                (name for name in sorted(short) if not self._is_own(number, top, {name: short[name]})), None
            )
        preemption = self.tree.queues[queue].preemption
        return Eviction(
            queue=queue,
            reclaim=LoanReclaim.for_queue(preemption, is_own=is_own),
            borrowed=borrowed,
            lower_only=preemption.reclaim is Reclaim.LOWER_PRIORITY,
        )

    def _is_own(self, number: int, top: int, charge: Charge) -> bool:
        """Return whether a queue, or one above it up to the top, uses no more than its own quota with a charge."""
        columns = [(self._column(meter), meter, needed) for meter, needed in charge.items()]
        if all(column.own[number] + needed <= self._nominal(number, meter) for column, meter, needed in columns):
            return True
        while not all(column.usage[number] + needed <= column.subtree[number] for column, _, needed in columns):
            if number == top:
                return False
            number = self._parents[number]
        return True

    def _nominal(self, number: int, meter: MeterName) -> int:
        quota = self._column(meter).quotas.get(number)
        return quota.nominal if quota else 0

    def _loan_of(self, number: int, meter: MeterName) -> Loan:
        names = self.tree.order
        pool = self._pool(self._parents[number], meter)
        others = [borrower for borrower in pool.borrowers if borrower != number]
        idle = self._column(meter).idle(number)
        return Loan(
            lender=names[number],
            amount=self._lent(number, meter),
            is_rounded=borrowing.is_lent_in_part(idle=idle, loans=pool.loans, pool=pool.amount),
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
        """Return what the children of a parent may borrow and have borrowed; computed once per change."""
        column = self._column(meter)
        pool = column.pools.get(parent)
        if pool is None:
            names = self.tree.order
            children = [self._numbers[child] for child in self.tree.children[names[parent]]]
            pool = column.pools[parent] = column.pool(parent, children)
        return pool
