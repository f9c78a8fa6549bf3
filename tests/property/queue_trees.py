"""Random trees of queues with several meters, what is used in them, and a slow reading of the rules to judge by.

`Model` follows docs of Kueue word by word, one recursive question at a time, and remembers nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import strategies as st

from admission.api.kubernetes.meta import Meta
from admission.api.muster.queues import Queue, Quota
from admission.api.values.names import MeterName, QueueName
from admission.quota.tree import Tree

METERS = (MeterName("gpu"), MeterName("memory"))
MOST_QUEUES = 8

Usage = dict[QueueName, dict[MeterName, int]]

NONE = -1
"""Drawn for what is absent: cheaper than a choice of two strategies."""

_quota = st.tuples(st.integers(NONE, 8), st.integers(NONE, 6), st.integers(NONE, 6))
_queue = st.tuples(st.integers(0, 3), *[_quota] * len(METERS))


@st.composite
def trees(draw: st.DrawFn) -> Tree:
    """Draw up to eight queues under one or more roots; some chains are deep, some queues do not mention a meter."""
    made = []
    for number, (back, *quotas) in enumerate(draw(st.lists(_queue, min_size=1, max_size=MOST_QUEUES))):
        parent = QueueName(f"q-{number - back}") if 0 < back <= number else None
        mentioned = tuple(_made(meter, *quota) for meter, quota in zip(METERS, quotas, strict=True) if quota[0] != NONE)
        made.append(Queue(meta=Meta(name=f"q-{number}"), parent=parent, quotas=mentioned))
    return Tree.build(made)


def _made(meter: MeterName, nominal: int, borrowing: int, lending: int) -> Quota:
    return Quota(
        meter=meter,
        nominal=nominal,
        borrowing_limit=None if borrowing == NONE else borrowing,
        lending_limit=None if lending == NONE else lending,
    )


def charges(most: int = 5) -> st.SearchStrategy[dict[MeterName, int]]:
    return st.dictionaries(st.sampled_from(METERS), st.integers(0, most), max_size=len(METERS))


@st.composite
def usages(draw: st.DrawFn, tree: Tree) -> Usage:
    """Draw what is used, whether there is as much or not: quotas are lowered below what is used, too."""
    size = len(tree.order)
    amounts = draw(st.lists(charges(10), min_size=size, max_size=size))
    return {name: amount for name, amount in zip(sorted(tree.order), amounts, strict=True) if amount}


@dataclass(frozen=True)
class Model:
    """One meter of a tree, by the rules and nothing else."""

    tree: Tree
    used: Mapping[QueueName, Mapping[MeterName, int]]
    meter: MeterName

    def quota(self, queue: QueueName) -> Quota:
        return self.tree.quotas[queue].get(self.meter, Quota(meter=self.meter, nominal=0))

    def under(self, queue: QueueName) -> list[QueueName]:
        return [name for name, parent in self.tree.parents.items() if parent == queue]

    def subtree(self, queue: QueueName) -> int:
        return self.quota(queue).nominal + sum(self.subtree(one) - self.kept(one) for one in self.under(queue))

    def kept(self, queue: QueueName) -> int:
        limit = self.quota(queue).lending_limit
        return 0 if limit is None else max(0, self.subtree(queue) - limit)

    def own(self, queue: QueueName) -> int:
        return self.used.get(queue, {}).get(self.meter, 0)

    def usage(self, queue: QueueName) -> int:
        return self.own(queue) + sum(max(0, self.usage(one) - self.kept(one)) for one in self.under(queue))

    def available(self, queue: QueueName) -> int:
        parent = self.tree.parents.get(queue)
        if parent is None:
            return self.subtree(queue) - self.usage(queue)
        kept, usage, limit = self.kept(queue), self.usage(queue), self.quota(queue).borrowing_limit
        from_parent = self.available(parent)
        if limit is not None:
            stored, passed = self.subtree(queue) - kept, max(0, usage - kept)
            from_parent = min(from_parent, stored - passed + limit)
        return max(0, kept - usage) + from_parent

    def potential(self, queue: QueueName) -> int:
        return Model(self.tree, {}, self.meter).available(queue)

    def borrowed(self, queue: QueueName) -> int:
        return max(0, self.usage(queue) - self.subtree(queue))
