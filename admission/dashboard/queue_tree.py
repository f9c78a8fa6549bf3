"""The tree of queues as pages show it: the lines of its open branches, and the sums over each subtree.

Pure. Queues whose parents form a circle are in no branch; a search finds them, and their sums are their own.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from admission.api.muster.gangs import Phase
from admission.api.muster.observed import ObservedQueue
from admission.api.muster.status_reports import MeterUse
from admission.api.values.names import MeterName, QueueName

STARTED = (Phase.RESERVED, Phase.ADMITTED, Phase.RUNNING)

MOST_CHILDREN = 100
"""The most queues of one branch that are shown within the tree; the branch by itself has all of them, in pages."""
MOST_LINES = 1_000
"""The most lines of a tree."""

PARTS = 10**9
"""Uses of meters are compared in parts of their nominal quotas; what has no quota is busier than all else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubtreeSums:
    """The sums of a queue and all queues below it.

    uses: by meter; what is borrowed and lent, which does not add up, is the queue's own. waiting, started: gangs.
    """

    uses: Mapping[MeterName, MeterUse] = field(default_factory=dict)
    waiting: int = 0
    started: int = 0

    @property
    def busiest(self) -> str:
        """The meter of which the largest part is taken; "" without meters."""
        return next(iter(busiest_first(self.uses)), "")


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
        found = {name: _own_sums(observed_queue) for name, observed_queue in self._queues.items()}
        order = list(self.children.get("", ()))
        for name in order:  # grows as it is walked: every queue comes after its parent
            order.extend(self.children.get(name, ()))
        for name in reversed(order):
            parent = self._queues[name].queue.parent
            if parent and parent in found:
                found[parent] = _added(found[parent], found[name])
        return found

    @cached_property
    def meters(self) -> Sequence[MeterName]:
        """The meters of all queues, the busiest first."""
        total = SubtreeSums()
        for observed_queue in self._queues.values():
            total = _added(total, _own_sums(observed_queue))
        return busiest_first(total.uses)

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


def busiest_first(uses: Mapping[MeterName, MeterUse]) -> list[MeterName]:
    """Return meters, those of which the largest part of the nominal quota is taken first."""
    return sorted(uses, key=lambda meter: (-taken_parts(uses[meter]), meter))


def taken_parts(use: MeterUse) -> int:
    """Return how much of the nominal quota is reserved or used, in `PARTS`."""
    taken = use.reserved + use.used
    return taken * PARTS // use.nominal if use.nominal else taken * PARTS * PARTS


def _own_sums(observed_queue: ObservedQueue) -> SubtreeSums:
    report = observed_queue.report
    return SubtreeSums(
        uses=report.meters,
        waiting=report.gangs.get(Phase.PENDING, 0),
        started=sum(report.gangs.get(phase, 0) for phase in STARTED),
    )


def _added(above: SubtreeSums, below: SubtreeSums) -> SubtreeSums:
    uses = dict(above.uses)
    for meter, use in below.uses.items():
        own = uses.get(meter, MeterUse())
        uses[meter] = MeterUse(
            nominal=own.nominal + use.nominal,
            reserved=own.reserved + use.reserved,
            used=own.used + use.used,
            pending=own.pending + use.pending,
            borrowed=own.borrowed,
            lent=own.lent,
        )
    return SubtreeSums(uses=uses, waiting=above.waiting + below.waiting, started=above.started + below.started)
