"""What a queue may still take of a meter: its own quota, and what the tree lends it.

The meaning is that of Kueue's `pkg/cache/scheduler/resource_node.go` (2026), over any depth of the tree:

- *subtree* is a queue's nominal quota plus what its children do not keep for themselves;
- *kept* is what a lending limit holds back from the parent: max(0, subtree - lendingLimit); 0 without a limit;
- *usage* is what the queue itself uses plus what its children use beyond what they keep;
- *available* is what is left of the kept part plus what the parent has available, and the loan from the parent is cut
  by the borrowing limit. At a root it is subtree - usage.

A meter that neither the queue nor any queue around it mentions is 0. Amounts are in the meter's base unit.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from admission.api.gangs import Charge
from admission.api.names import MeterName, QueueName
from admission.api.queues import Quota
from admission.api.reasons import Detail
from admission.quota.tree import Tree

Usage = Mapping[QueueName, Mapping[MeterName, int]]
"""Queue → meter → what it has reserved and used, together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """A charge that does not fit, by the first meter (in order of names) that it exceeds.

    left: what the queue may still take now; potential: what it could take if nobody used anything. meter is None when
    the queue is inactive or unknown and may take nothing at all.
    """

    queue: QueueName
    meter: MeterName | None
    needed: int = 0
    left: int = 0
    nominal: int = 0
    used: int = 0
    potential: int = 0

    @property
    def ever(self) -> bool:
        """Whether the charge would fit if nobody used anything."""
        return self.meter is not None and self.needed <= self.potential

    @property
    def message(self) -> str:
        """Say in one sentence what is short."""
        if self.meter is None:
            return f"queue {self.queue} is not active"
        return (
            f"queue {self.queue} has {self.left} {self.meter} left (nominal {self.nominal}, used {self.used}),"
            f" the gang needs {self.needed}"
            + ("" if self.ever else f"; the queue can never have more than {self.potential}")
        )

    @property
    def details(self) -> Mapping[str, Detail]:
        """Return the numbers; amounts are decimal strings."""
        if self.meter is None:
            return {"queue": self.queue}
        numbers = {name: str(getattr(self, name)) for name in ("needed", "left", "nominal", "used", "potential")}
        return {"queue": self.queue, "meter": self.meter, **numbers}


def of(tree: Tree, usage: Usage, queue: QueueName, meter: MeterName) -> int:
    """Return what the queue may still take; 0 when it is inactive, or when more is used than there is."""
    return max(0, _available(_Amounts(tree, usage, meter), queue)) if tree.active(queue) else 0


def potential(tree: Tree, queue: QueueName, meter: MeterName) -> int:
    """Return what the queue could take if nobody used anything."""
    return _potential(_Amounts(tree, {}, meter), queue) if tree.active(queue) else 0


class Loans:
    """Who has borrowed and who has lent of one meter, for every queue of a tree: asked of all, it costs one walk."""

    def __init__(self, tree: Tree, usage: Usage, meter: MeterName) -> None:
        self._tree = tree
        self._amounts = _Amounts(tree, usage, meter)
        self._meter = meter
        self._under: dict[QueueName, tuple[int, int]] = {}

    def borrowed(self, queue: QueueName) -> int:
        """Return how much of what is used under the queue is beyond its own subtree's quota."""
        amounts = self._amounts
        return max(0, amounts.usage(queue) - amounts.subtree(queue)) if self._tree.active(queue) else 0

    def lent(self, queue: QueueName) -> int:
        """Return how much of the queue's quota the others under the same parent use.

        What they use beyond their own quota is taken from what the queue and its siblings leave idle, and each lender
        bears a part in proportion to what it has idle; the parts are rounded up, so that a loan is never invisible.
        """
        parent = self._tree.parents.get(queue)
        if parent is None or not self._tree.active(queue):
            return 0
        if parent not in self._under:
            self._under[parent] = self._loans_and_pool(parent)
        loans, pool = self._under[parent]
        idle = self._amounts.idle(queue)
        return min(idle, -(-loans * idle // pool)) if pool else 0

    def _loans_and_pool(self, parent: QueueName) -> tuple[int, int]:
        """Return what the children of a parent have borrowed, and what there is to borrow from."""
        children = self._tree.children[parent]
        own = max(0, _nominal(self._tree, parent, self._meter))
        return sum(map(self.borrowed, children)), own + sum(map(self._amounts.idle, children))


def charge_fits(tree: Tree, usage: Usage, queue: QueueName, charge: Charge) -> Shortage | None:
    """Return None when the queue may take the whole charge, else the first meter that is short."""
    if not tree.active(queue):
        return Shortage(queue=queue, meter=None)
    for meter, needed in sorted(charge.items()):
        left = of(tree, usage, queue, meter)
        if needed > left:
            return Shortage(
                queue=queue,
                meter=meter,
                needed=needed,
                left=left,
                nominal=_nominal(tree, queue, meter),
                used=usage.get(queue, {}).get(meter, 0),
                potential=potential(tree, queue, meter),
            )
    return None


def mentioned(tree: Tree, queue: QueueName) -> Iterator[MeterName]:
    """Yield, in order of names, every meter for which the queue or a queue above it has quota."""
    yield from sorted({meter for name in tree.path(queue) for meter in tree.quotas.get(name, {})})


class _Amounts:
    """Subtree and usage of one meter, computed once per queue."""

    def __init__(self, tree: Tree, usage: Usage, meter: MeterName) -> None:
        self.tree = tree
        self._usage = usage
        self._meter = meter
        self._subtrees: dict[QueueName, int] = {}
        self._usages: dict[QueueName, int] = {}

    def quota(self, queue: QueueName) -> Quota | None:
        return self.tree.quotas.get(queue, {}).get(self._meter)

    def subtree(self, queue: QueueName) -> int:
        if queue not in self._subtrees:
            given = sum(self.subtree(child) - self.kept(child) for child in self.tree.children.get(queue, ()))
            self._subtrees[queue] = _nominal(self.tree, queue, self._meter) + given
        return self._subtrees[queue]

    def kept(self, queue: QueueName) -> int:
        quota = self.quota(queue)
        if quota is None or quota.lending_limit is None:
            return 0
        return max(0, self.subtree(queue) - quota.lending_limit)

    def usage(self, queue: QueueName) -> int:
        if queue not in self._usages:
            own = self._usage.get(queue, {}).get(self._meter, 0)
            self._usages[queue] = own + sum(map(self.passed_up, self.tree.children.get(queue, ())))
        return self._usages[queue]

    def passed_up(self, queue: QueueName) -> int:
        """Return the part of the queue's usage that counts against its parent."""
        return max(0, self.usage(queue) - self.kept(queue))

    def idle(self, queue: QueueName) -> int:
        """Return what the queue offers its parent and does not use itself."""
        return max(0, self.subtree(queue) - max(self.kept(queue), self.usage(queue)))


def _available(amounts: _Amounts, queue: QueueName) -> int:
    parent = amounts.tree.parents.get(queue)
    if parent is None:
        return amounts.subtree(queue) - amounts.usage(queue)
    from_parent = _available(amounts, parent)
    kept = amounts.kept(queue)
    quota = amounts.quota(queue)
    if quota is not None and quota.borrowing_limit is not None:
        stored = amounts.subtree(queue) - kept
        from_parent = min(from_parent, stored - amounts.passed_up(queue) + quota.borrowing_limit)
    return max(0, kept - amounts.usage(queue)) + from_parent


def _potential(amounts: _Amounts, queue: QueueName) -> int:
    parent = amounts.tree.parents.get(queue)
    if parent is None:
        return amounts.subtree(queue)
    most = amounts.kept(queue) + _potential(amounts, parent)
    quota = amounts.quota(queue)
    if quota is not None and quota.borrowing_limit is not None:
        most = min(most, amounts.subtree(queue) + quota.borrowing_limit)
    return most


def _nominal(tree: Tree, queue: QueueName, meter: MeterName) -> int:
    quota = tree.quotas.get(queue, {}).get(meter)
    return 0 if quota is None else quota.nominal
