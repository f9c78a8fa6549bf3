"""The amount that a queue may still take of a meter, for single queries of tests.

The rules are those of `borrowing`; a meter for which no queue around has quota is 0. Amounts are in the meter's base
unit.
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
    """Return what the queue may still take; 0 if it is inactive, or if more is used than its quota."""
    return QueueUsage(tree, usage).available(queue, meter)


def potential(tree: Tree, queue: QueueName, meter: MeterName) -> int:
    """Return what the queue could take if nothing were used."""
    return QueueUsage(tree, {}).potential(queue, meter)


class Loans:
    """The amounts borrowed and lent of one meter, for every queue of a tree."""

    def __init__(self, tree: Tree, usage: Usage, meter: MeterName) -> None:
        self._queue_usage = QueueUsage(tree, usage)
        self._meter = meter

    def borrowed(self, queue: QueueName) -> int:
        """Return how much usage under the queue is beyond its subtree's quota."""
        return self._queue_usage.borrowed(queue, self._meter)

    def lent(self, queue: QueueName) -> int:
        """Return how much of the queue's quota other queues under the same parent use."""
        return self._queue_usage.lent(queue, self._meter)


def charge_fits(tree: Tree, usage: Usage, queue: QueueName, charge: Charge) -> Shortage | None:
    """Return None if the queue may take the whole charge, else the first meter that is short."""
    return QueueUsage(tree, usage).charge_fits(queue, charge)


def mentioned(tree: Tree, queue: QueueName) -> Iterator[MeterName]:
    """Yield, in order of names, every meter for which the queue or a queue above it has quota."""
    yield from sorted({meter for name in tree.path(queue) for meter in tree.quotas.get(name, {})})
