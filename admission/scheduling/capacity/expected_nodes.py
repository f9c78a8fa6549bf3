"""Nodes that were asked for and whose pods are not all bound yet: how many of each shape, and which have come.

The books say it: a gang has seats on nodes to come, and some of its pods are on no node. So a new leader knows as much
as the one that asked. Nodes that come count as those that were asked for, and are no other gang's; where more come than
were asked for, the rest is anybody's.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from admission.api.kubernetes.nodes import Node
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The nodes of one shape that are expected. since: when the first of their gangs asked. used: by pods of these."""

    count: int
    since: datetime
    used: frozenset[NodeName]


def by_shape(granted: Iterable[Group]) -> dict[str, Expected]:
    """Return the nodes that are expected. granted: the gangs with a place that do not run in full."""
    found: dict[str, Expected] = {}
    for group in granted:
        placement = group.placement
        seats = placement.seats if placement is not None else {}
        come = {uid: seat.node for uid, seat in seats.items() if names.shape_of(seat.node) is not None}
        bound = {pod.meta.uid: pod.node for pod in group.pods if pod.node and pod.meta.uid in come}
        if placement is None or come.keys() <= bound.keys():
            continue
        used = frozenset(bound.values())
        for name in set(come.values()):
            shape = names.shape_of(name) or ""
            known = found.get(shape, Expected(count=0, since=placement.reserved_at, used=used))
            found[shape] = Expected(
                count=known.count + 1, since=min(known.since, placement.reserved_at), used=known.used | used
            )
    return found


def arrived(expected: Mapping[str, Expected], snapshot: Snapshot) -> frozenset[NodeName]:
    """Return the nodes that came for those who asked, as many as were asked for.

    A node counts that was made since then, by the API server's clock and in whole seconds; those first on which pods of
    these gangs are.
    """
    found: set[NodeName] = set()
    for name, one in expected.items():
        shape = snapshot.shapes.get(name)
        since = one.since.replace(microsecond=0)
        new = [
            node
            for node in snapshot.nodes.values()
            if shape is not None and shape.is_shape_of(node) and (node.meta.created >= since or node.name in one.used)
        ]
        new.sort(key=lambda node: (node.name not in one.used, node.meta.created, node.name))
        found.update(node.name for node in new[: one.count])
    return frozenset(found)


@dataclass(slots=True)
class ExpectedNodes:
    """The snapshot's nodes, those marked that came for gangs. One per leader.

    Rule: while neither the nodes nor which of them are marked change, the result is the same object, so that what
    follows from the nodes is kept; it has two inputs of which one is compared by value, so it is no Memo.
    """

    _nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    _arrived: Collection[NodeName] = frozenset()
    _marked: Mapping[NodeName, Node] = field(default_factory=dict)

    def mark(self, snapshot: Snapshot, granted: Iterable[Group]) -> Snapshot:
        """Return the snapshot in which no gang is planned on nodes that came for another."""
        found = arrived(by_shape(granted), snapshot) if snapshot.shapes else frozenset()
        if not found:
            return snapshot
        if snapshot.nodes is not self._nodes or found != self._arrived:
            self._nodes, self._arrived = snapshot.nodes, found
            before = self._marked
            self._marked = {
                name: _marked(node, before.get(name)) if name in found else node
                for name, node in snapshot.nodes.items()
            }
        return replace(snapshot, nodes=self._marked)


def _marked(node: Node, before: Node | None) -> Node:
    marked = replace(node, reserved=True)
    return before if before == marked else marked
