"""The tree of queues: who is whose parent, and which queues cannot take part.

Nothing here raises: a queue whose place in the tree is wrong is inactive, and says why and what would mend it. What a
queue may take is in `available`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from admission.api.names import MeterName, QueueName
from admission.api.queues import Queue, Quota

MAX_DEPTH = 16
"""Queues on the longest path from a root to a leaf."""


class Inactive(StrEnum):
    """Why a queue takes no part. Every member is the reason of its condition Active=False."""

    CYCLE = "ParentCycle"
    """The queue is its own ancestor."""
    MISSING_PARENT = "ParentMissing"
    TOO_DEEP = "TooDeep"
    ANCESTOR = "AncestorInactive"
    """The queue is right, but one above it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFlaw:
    """Why a queue is inactive: code, and a sentence with the mend."""

    reason: Inactive
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """All queues and their places. parents, children and order: of active queues only; a parent before its children."""

    queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    parents: Mapping[QueueName, QueueName] = field(default_factory=dict)
    children: Mapping[QueueName, tuple[QueueName, ...]] = field(default_factory=dict)
    quotas: Mapping[QueueName, Mapping[MeterName, Quota]] = field(default_factory=dict)
    flaws: Mapping[QueueName, QueueFlaw] = field(default_factory=dict)
    order: tuple[QueueName, ...] = ()

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> Self:
        """Return the tree of these queues; the flawed ones stand in `flaws`. Of two with one name the last counts."""
        by_name = {queue.name: queue for queue in sorted(queues, key=lambda queue: queue.name)}
        parents = {name: queue.parent for name, queue in by_name.items() if queue.parent is not None}
        depths = _depths(by_name, _children(parents))
        deep = {name: _too_deep(name, depth) for name, depth in depths.items() if depth > MAX_DEPTH}
        rootless = _rootless({name: parent for name, parent in parents.items() if name not in depths})
        order = tuple(name for name in depths if name not in deep)
        places = {name: parents[name] for name in sorted(order) if name in parents}
        return cls(
            queues=by_name,
            parents=places,
            children=_children(places),
            quotas={name: {quota.meter: quota for quota in queue.quotas} for name, queue in by_name.items()},
            flaws=dict(sorted((deep | rootless).items())),
            order=order,
        )

    def active(self, queue: QueueName) -> bool:
        """Return whether the queue exists and has its place."""
        return queue in self.queues and queue not in self.flaws

    def path(self, queue: QueueName) -> tuple[QueueName, ...]:
        """Return the queue and those above it, up to its root."""
        path = [queue]
        while (parent := self.parents.get(path[-1])) is not None:
            path.append(parent)
        return tuple(path)


def _children(parents: Mapping[QueueName, QueueName]) -> dict[QueueName, tuple[QueueName, ...]]:
    found: dict[QueueName, list[QueueName]] = {}
    for name, parent in parents.items():
        found.setdefault(parent, []).append(name)
    return {parent: tuple(names) for parent, names in found.items()}


def _depths(
    queues: Mapping[QueueName, Queue], children: Mapping[QueueName, tuple[QueueName, ...]]
) -> dict[QueueName, int]:
    """Return on which level every queue is that is under a root, level by level; a root is on level 1."""
    depths = {name: 1 for name, queue in queues.items() if queue.parent is None}
    reached = list(depths)
    # The list grows while it is walked: what is reached last is looked at last.
    for name in reached:
        for child in children.get(name, ()):
            depths[child] = depths[name] + 1
            reached.append(child)
    return depths


def _too_deep(name: QueueName, depth: int) -> QueueFlaw:
    return QueueFlaw(
        reason=Inactive.TOO_DEEP,
        message=f"queue {name} is {depth} levels deep, at most {MAX_DEPTH} are supported;"
        " give it or a queue above it a parent nearer to the root",
    )


def _rootless(parents: Mapping[QueueName, QueueName]) -> dict[QueueName, QueueFlaw]:
    """Return what is wrong with queues that no root is above: a parent is missing, or they run in a circle."""
    flaws: dict[QueueName, QueueFlaw] = {}
    above: dict[QueueName, str] = {}
    for name in parents:
        path: dict[QueueName, None] = {}
        end = name
        while end in parents and end not in above and end not in path:
            path[end] = None
            end = parents[end]
        own: Mapping[QueueName, QueueFlaw] = {}
        if end in path:
            loop = list(path)[list(path).index(end) :]
            why, own = f"its ancestors run in a circle ({_circle(loop, 0)})", _cycles(loop)
        elif end in above:
            why = above[end]
        else:
            last = next(reversed(path))
            why, own = f"parent {end} of queue {last} does not exist", {last: _missing(last, end)}
        above |= dict.fromkeys(path, why)
        flaws |= {one: own.get(one) or _above(one, why) for one in path}
    return flaws


def _missing(name: QueueName, parent: QueueName) -> QueueFlaw:
    return QueueFlaw(
        reason=Inactive.MISSING_PARENT,
        message=f"parent {parent} of queue {name} does not exist; create it or correct spec.parent",
    )


def _cycles(loop: list[QueueName]) -> dict[QueueName, QueueFlaw]:
    return {
        name: QueueFlaw(
            reason=Inactive.CYCLE,
            message=f"queue {name} is its own ancestor ({_circle(loop, at)});"
            " take spec.parent from one of these queues",
        )
        for at, name in enumerate(loop)
    }


def _circle(loop: list[QueueName], start: int) -> str:
    """Write the circle from one of its queues back to it; of a long one the beginning."""
    shown: list[str] = [loop[(start + step) % len(loop)] for step in range(min(len(loop), MAX_DEPTH))]
    return " → ".join([*shown, *(["…"] if len(loop) > MAX_DEPTH else []), loop[start]])


def _above(name: QueueName, why: str) -> QueueFlaw:
    return QueueFlaw(
        reason=Inactive.ANCESTOR, message=f"queue {name} is under an inactive queue: {why}; mend that queue"
    )
