"""The tree of queues as pages show it: the lines of its open branches.

Pure. Queues whose parents form a circle are in no branch; a search finds them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from admission.api.muster.observed import ObservedQueue
from admission.api.values.names import MeterName, QueueName
from admission.status import queue_sums
from admission.status.queue_sums import SubtreeSums

MOST_CHILDREN = 100
"""The most queues of one branch that are shown within the tree; the branch by itself has all of them, in pages."""
MOST_LINES = 1_000
"""The most lines of a tree."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the tree. level: from 1. opened: whether the queues below it follow. more: of them, left out."""

    name: QueueName
    level: int
    opened: bool
    more: int = 0


class QueueTree:
    """The queues of one view by parent. Never changes."""

    def __init__(self, queues: Mapping[QueueName, ObservedQueue]) -> None:
        self._queues = queues

    @cached_property
    def children(self) -> Mapping[str, Sequence[QueueName]]:
        """Queues by parent, in order of names; under "" those without a parent, or with a missing one."""
        found: dict[str, list[QueueName]] = {}
        for name in sorted(self._queues):
            parent = self._queues[name].queue.parent
            found.setdefault(parent if parent and parent in self._queues else "", []).append(name)
        return found

    def path(self, name: str) -> list[QueueName]:
        """Return the names from the root to a queue; in a circle, each queue once."""
        found: list[QueueName] = []
        at: QueueName | None = QueueName(name)
        while at is not None and at in self._queues and at not in found:
            found.append(at)
            at = self._queues[at].queue.parent
        return found[::-1]

    @cached_property
    def sums(self) -> Mapping[QueueName, SubtreeSums]:
        """The sums over the subtree of every queue."""
        observed = self._queues.items()
        return queue_sums.sums(
            {name: one.report for name, one in observed}, {name: one.queue for name, one in observed}
        )

    @cached_property
    def meters(self) -> Sequence[MeterName]:
        """The meters of all queues, the busiest first."""
        own = [SubtreeSums(uses=one.report.meters) for one in self._queues.values()]
        return queue_sums.busiest_first(queue_sums.total([SubtreeSums(), *own]).uses)

    def lines(
        self,
        top: Sequence[QueueName],
        opened: Collection[str],
        *,
        level: int = 1,
        ordered: Callable[[Sequence[QueueName]], Sequence[QueueName]] = tuple,
        most: int = MOST_LINES,
    ) -> list[Line]:
        """Return the lines of some queues, each with those below it as far as branches are open.

        level: of these. ordered: puts the queues of one branch into order. most: how many lines; with more than
        `MOST_LINES`, no branch is cut.
        """
        most_children = MOST_CHILDREN if most <= MOST_LINES else most
        found: list[Line] = []
        pending = [(name, level) for name in reversed(top)]
        while pending and len(found) < most:
            name, level = pending.pop()
            children = self.children.get(name, ())
            is_open = bool(children) and name in opened
            more = max(0, len(children) - most_children) if is_open else 0
            found.append(Line(name=name, level=level, opened=is_open, more=more))
            if is_open:
                pending.extend((child, level + 1) for child in reversed(ordered(children)[:most_children]))
        return found
