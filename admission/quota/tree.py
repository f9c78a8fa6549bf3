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
    """All queues and their places. parents and children: of active queues only."""

    queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    parents: Mapping[QueueName, QueueName] = field(default_factory=dict)
    children: Mapping[QueueName, tuple[QueueName, ...]] = field(default_factory=dict)
    quotas: Mapping[QueueName, Mapping[MeterName, Quota]] = field(default_factory=dict)
    flaws: Mapping[QueueName, QueueFlaw] = field(default_factory=dict)

    @classmethod
    def of(cls, queues: Iterable[Queue]) -> Self:
        """Return the tree of these queues; the flawed ones stand in `flaws`."""
        by_name = {queue.name: queue for queue in sorted(queues, key=lambda queue: queue.name)}
        flaws = _flaws(by_name)
        parents = {name: q.parent for name, q in by_name.items() if name not in flaws and q.parent is not None}
        children: dict[QueueName, tuple[QueueName, ...]] = {}
        for name, parent in parents.items():
            children[parent] = (*children.get(parent, ()), name)
        return cls(
            queues=by_name,
            parents=parents,
            children=children,
            quotas={name: {quota.meter: quota for quota in queue.quotas} for name, queue in by_name.items()},
            flaws=flaws,
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


def _flaws(queues: Mapping[QueueName, Queue]) -> dict[QueueName, QueueFlaw]:
    return {name: flaw for name in queues if (flaw := _flaw(name, queues)) is not None}


def _flaw(name: QueueName, queues: Mapping[QueueName, Queue]) -> QueueFlaw | None:
    """Walk up from a queue; the first thing that is wrong on the way is its flaw."""
    path = [name]
    while (parent := queues[path[-1]].parent) is not None:
        if parent not in queues:
            return _missing(path, parent)
        if parent in path:
            return _cycle(path, parent)
        path.append(parent)
    if len(path) > MAX_DEPTH:
        return QueueFlaw(
            reason=Inactive.TOO_DEEP,
            message=f"queue {name} is {len(path)} levels deep, at most {MAX_DEPTH} are supported;"
            " give it or a queue above it a parent nearer to the root",
        )
    return None


def _missing(path: list[QueueName], parent: QueueName) -> QueueFlaw:
    if len(path) == 1:
        return QueueFlaw(
            reason=Inactive.MISSING_PARENT,
            message=f"parent {parent} of queue {path[0]} does not exist; create it or correct spec.parent",
        )
    return _above(path[0], f"parent {parent} of queue {path[-1]} does not exist")


def _cycle(path: list[QueueName], parent: QueueName) -> QueueFlaw:
    loop = path[path.index(parent) :]
    circle = " → ".join([*loop, parent])
    if path[0] in loop:
        return QueueFlaw(
            reason=Inactive.CYCLE,
            message=f"queue {path[0]} is its own ancestor ({circle}); take spec.parent from one of these queues",
        )
    return _above(path[0], f"its ancestors run in a circle ({circle})")


def _above(name: QueueName, why: str) -> QueueFlaw:
    return QueueFlaw(
        reason=Inactive.ANCESTOR, message=f"queue {name} is under an inactive queue: {why}; mend that queue"
    )
