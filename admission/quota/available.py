"""What a queue may still take of a meter, for a single question. Who asks many makes a `standing.Standing` once.

The rules are those of `borrowing`; a meter that neither the queue nor any queue around it mentions is 0. Amounts are in
the meter's base unit.
"""

from collections.abc import Iterator

from admission.api.muster.gangs import Charge
from admission.api.values.names import MeterName, QueueName
from admission.quota import headroom, shortage
from admission.quota.headroom import QueueUsage
from admission.quota.tree import Tree

Shortage = shortage.Shortage
Usage = headroom.Usage


def available(tree: Tree, usage: Usage, queue: QueueName, meter: MeterName) -> int:
    """Return what the queue may still take; 0 when it is inactive, or when more is used than there is."""
    return QueueUsage(tree, usage).available(queue, meter)


def potential(tree: Tree, queue: QueueName, meter: MeterName) -> int:
    """Return what the queue could take if nobody used anything."""
    return QueueUsage(tree, {}).potential(queue, meter)


class Loans:
    """Who has borrowed and who has lent of one meter, for every queue of a tree."""

    def __init__(self, tree: Tree, usage: Usage, meter: MeterName) -> None:
        self._queue_usage = QueueUsage(tree, usage)
        self._meter = meter

    def borrowed(self, queue: QueueName) -> int:
        """Return how much of what is used under the queue is beyond its own subtree's quota."""
        return self._queue_usage.borrowed(queue, self._meter)

    def lent(self, queue: QueueName) -> int:
        """Return how much of the queue's quota the others under the same parent use."""
        return self._queue_usage.lent(queue, self._meter)


def charge_fits(tree: Tree, usage: Usage, queue: QueueName, charge: Charge) -> Shortage | None:
    """Return None when the queue may take the whole charge, else the first meter that is short."""
    return QueueUsage(tree, usage).charge_fits(queue, charge)


def mentioned(tree: Tree, queue: QueueName) -> Iterator[MeterName]:
    """Yield, in order of names, every meter for which the queue or a queue above it has quota."""
    yield from sorted({meter for name in tree.path(queue) for meter in tree.quotas.get(name, {})})
