"""The tree of queues: the parent of each, and which queues are inactive.

Nothing here raises: a queue whose place in the tree is invalid, or that is being deleted, is inactive, with a reason
and a fix. An inactive queue takes nothing more, but its usage still counts against the queues above it, if they are
known: above a missing parent there are none, and in a cycle they are undefined. What a queue may take is in `headroom`.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from admission.api.muster.queues import Queue, Quota
from admission.api.values.names import MeterName, QueueName

MAX_DEPTH = 16
"""The most queues on a path from a root to a leaf."""


class Inactive(StrEnum):
    """Why a queue is inactive. Every member is a reason of the condition Active=False."""

    CYCLE = "ParentCycle"
    """The queue is its own ancestor."""
    MISSING_PARENT = "ParentMissing"
    TOO_DEEP = "TooDeep"
    TERMINATING = "Terminating"
    """The queue is being deleted. Kueue has the same reason (ClusterQueue, condition Active)."""
    ANCESTOR = "AncestorInactive"
    """The queue itself is valid, but one above it is inactive."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProblem:
    """Why a queue is inactive: a code, and a message with the fix."""

    reason: Inactive
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """All queues and their places. parents, children and order: of placed queues; a parent before its children.

    placed: the queues of `order`. problems: of inactive queues, also of placed ones that are being deleted or are below
    one that is.
    """

    queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    parents: Mapping[QueueName, QueueName] = field(default_factory=dict)
    children: Mapping[QueueName, tuple[QueueName, ...]] = field(default_factory=dict)
    quotas: Mapping[QueueName, Mapping[MeterName, Quota]] = field(default_factory=dict)
    problems: Mapping[QueueName, QueueProblem] = field(default_factory=dict)
    order: tuple[QueueName, ...] = ()
    placed: frozenset[QueueName] = frozenset()

    @classmethod
    def build(cls, queues: Iterable[Queue], gone: Iterable[Queue] = ()) -> Self:
        """Return the tree of these queues; invalid ones are in `problems`. Of two with one name the last counts.

        gone: deleted queues of other names that keep their place; to the queues below they are missing parents.
        """
        absent = {queue.name: queue for queue in gone}
        by_name = {queue.name: queue for queue in sorted([*queues, *absent.values()], key=lambda queue: queue.name)}
        parents = {name: queue.parent for name, queue in by_name.items() if queue.parent is not None}
        depths = _depths(by_name, _children(parents))
        deep = {name: _too_deep(name, depth) for name, depth in depths.items() if depth > MAX_DEPTH}
        rootless = _rootless({name: parent for name, parent in parents.items() if name not in depths})
        order = tuple(name for name in depths if name not in deep)
        places = {name: parents[name] for name in sorted(order) if name in parents}
        stopped = _inactive([by_name[name] for name in order], absent)
        return cls(
            queues=by_name,
            parents=places,
            children=_children(places),
            quotas={name: {quota.meter: quota for quota in queue.quotas} for name, queue in by_name.items()},
            problems=dict(sorted((deep | rootless | stopped).items())),
            order=order,
            placed=frozenset(order),
        )

    def active(self, queue: QueueName) -> bool:
        """Return whether the queue exists, is placed, and neither it nor one above it is being deleted."""
        return queue in self.queues and queue not in self.problems

    def path(self, queue: QueueName) -> tuple[QueueName, ...]:
        """Return the queue and those above it, up to its root."""
        path = [queue]
        while (parent := self.parents.get(path[-1])) is not None:
            path.append(parent)
        return tuple(path)

    def branches(self, queue: QueueName, other: QueueName) -> tuple[QueueName, QueueName] | None:
        """Return the queues below the one where two paths meet, of each path; None if there are no two such queues."""
        path, beside = self.path(queue), self.path(other)
        while path and beside and path[-1] == beside[-1]:
            path, beside = path[:-1], beside[:-1]
        found = self.parents.get(path[-1]) if path and beside else None
        return (path[-1], beside[-1]) if found is not None else None

    def bearing(self, queue: QueueName) -> tuple[QueueName, ...]:
        """Return the queues against which the usage of a queue counts: itself and those above it, up to its root.

        For a queue without a place, as one that is too deep: the nearest placed queue above it, and those above that.
        """
        seen: set[QueueName] = set()
        place: QueueName | None = queue
        while place is not None and place not in self.placed and place not in seen:
            seen.add(place)
            declared = self.queues.get(place)
            place = declared.parent if declared is not None else None
        return self.path(place) if place is not None and place in self.placed else ()


def _children(parents: Mapping[QueueName, QueueName]) -> dict[QueueName, tuple[QueueName, ...]]:
    found: dict[QueueName, list[QueueName]] = {}
    for name, parent in parents.items():
        found.setdefault(parent, []).append(name)
    return {parent: tuple(names) for parent, names in found.items()}


def _depths(
    queues: Mapping[QueueName, Queue], children: Mapping[QueueName, tuple[QueueName, ...]]
) -> dict[QueueName, int]:
    """Return the level of every queue under a root, in ascending order; a root is on level 1."""
    depths = {name: 1 for name, queue in queues.items() if queue.parent is None}
    worklist = list(depths)
    # The list grows while it is iterated, so this is a breadth-first search.
    for name in worklist:
        for child in children.get(name, ()):
            depths[child] = depths[name] + 1
            worklist.append(child)
    return depths


def _too_deep(name: QueueName, depth: int) -> QueueProblem:
    return QueueProblem(
        reason=Inactive.TOO_DEEP,
        message=f"queue {name} is {depth} levels deep, at most {MAX_DEPTH} are supported;"
        " give it or a queue above it a parent nearer to the root",
    )


def _inactive(placed: Iterable[Queue], absent: Collection[QueueName]) -> dict[QueueName, QueueProblem]:
    """Return why placed queues are inactive: they are being deleted, or one above them is, or is already gone.

    placed: a parent before its children.
    """
    problems: dict[QueueName, QueueProblem] = {}
    reasons: dict[QueueName, str] = {}
    for queue in placed:
        name, parent = queue.name, queue.parent
        if queue.meta.deleted is not None and name not in absent:
            problems[name], reasons[name] = _terminating(name), f"queue {name} is being deleted"
        elif parent is None:
            continue
        elif parent in absent:
            problems[name], reasons[name] = _missing(name, parent), f"parent {parent} of queue {name} does not exist"
        elif parent in reasons:
            problems[name], reasons[name] = _ancestor_problem(name, reasons[parent]), reasons[parent]
    return problems


def _rootless(parents: Mapping[QueueName, QueueName]) -> dict[QueueName, QueueProblem]:
    """Return the problems of queues without a root above them: a parent is missing, or there is a cycle."""
    problems: dict[QueueName, QueueProblem] = {}
    reasons: dict[QueueName, str] = {}
    for name in parents:
        path: dict[QueueName, None] = {}
        end = name
        while end in parents and end not in reasons and end not in path:
            path[end] = None
            end = parents[end]
        own_problems: Mapping[QueueName, QueueProblem] = {}
        if end in path:
            loop = list(path)[list(path).index(end) :]
            reason, own_problems = f"its ancestors run in a circle ({_format_cycle(loop, 0)})", _cycles(loop)
        elif end in reasons:
            reason = reasons[end]
        else:
            last = next(reversed(path))
            reason, own_problems = f"parent {end} of queue {last} does not exist", {last: _missing(last, end)}
        reasons |= dict.fromkeys(path, reason)
        problems |= {member: own_problems.get(member) or _ancestor_problem(member, reason) for member in path}
    return problems


def _missing(name: QueueName, parent: QueueName) -> QueueProblem:
    return QueueProblem(
        reason=Inactive.MISSING_PARENT,
        message=f"parent {parent} of queue {name} does not exist; create it or correct spec.parent",
    )


def _terminating(name: QueueName) -> QueueProblem:
    return QueueProblem(
        reason=Inactive.TERMINATING,
        message=f"queue {name} is being deleted and takes no new gangs; name another queue, or create it anew when it"
        " is gone",
    )


def _cycles(loop: list[QueueName]) -> dict[QueueName, QueueProblem]:
    return {
        name: QueueProblem(
            reason=Inactive.CYCLE,
            message=f"queue {name} is its own ancestor ({_format_cycle(loop, at)});"
            " take spec.parent from one of these queues",
        )
        for at, name in enumerate(loop)
    }


def _format_cycle(loop: list[QueueName], start: int) -> str:
    """Return the cycle in words, from one of its queues back to it; a long one is cut."""
    formatted: list[str] = [loop[(start + step) % len(loop)] for step in range(min(len(loop), MAX_DEPTH))]
    return " → ".join([*formatted, *(["…"] if len(loop) > MAX_DEPTH else []), loop[start]])


def _ancestor_problem(name: QueueName, why: str) -> QueueProblem:
    return QueueProblem(
        reason=Inactive.ANCESTOR,
        message=f"queue {name} is under an inactive queue: {why}; mend that queue, or choose another parent",
    )
