"""Nodes that were asked for and whose pods are not all bound yet: how many of each shape, and which have come.

The books say it: a gang has seats on nodes to come, and some of its pods are on no node. So a new leader knows as much
as the one that asked. Nodes that come count as those that were asked for, and are no other gang's; where more come than
were asked for, the rest is anybody's.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import NamedTuple

from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Seat
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.dra.planner import node_filters
from admission.incremental import Memo
from admission.lifecycle import placement_progress
from admission.scheduling.capacity import unread_shapes
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The nodes of one shape that are expected. since: when the first of their gangs asked.

    used: by pods for whose gangs they are. passed: by pods that asked, too, and wait for them no more. pods: those that
    were let in towards them and are not bound.
    """

    count: int
    since: datetime
    used: frozenset[NodeName]
    passed: frozenset[NodeName] = frozenset()
    pods: tuple[Pod, ...] = ()


def by_shape(granted: Iterable[Group], groups: Iterable[Group], nodes: Container[NodeName]) -> dict[str, Expected]:
    """Return the nodes that are expected. granted: of all gangs those with a place that do not run in full.

    nodes: those that are there. One that has come and is gone is expected again.
    """
    found = _by_shape(granted, nodes)
    if not found:
        return found
    have = frozenset(chain.from_iterable(_nodes_that_came(group, nodes) for group in groups))
    return {shape: replace(one, passed=one.passed | have) for shape, one in found.items()}


def _nodes_that_came(group: Group, nodes: Container[NodeName]) -> Iterator[NodeName]:
    """Yield the nodes that a gang has of those that it asked for."""
    seats = group.placement.seats if group.placement is not None else {}
    for pod in group.pods:
        seat = seats.get(pod.meta.uid)
        if seat is not None and names.shape_of(seat.as_asked) is not None:
            node = _node_of(pod, seat, nodes)
            if node is not None:
                yield node


def _by_shape(granted: Iterable[Group], nodes: Container[NodeName]) -> dict[str, Expected]:
    found: dict[str, Expected] = {}
    for group in granted:
        placement = group.placement
        seats = placement.seats if placement is not None else {}
        settled = {pod.meta.uid: node for pod in group.pods if (node := _node_of(pod, seats.get(pod.meta.uid), nodes))}
        waiting = placement_progress.outstanding(group, is_there=_is_bound)
        come = {seats[uid].as_asked for uid in waiting if names.shape_of(seats[uid].as_asked) is not None}
        if placement is None or not any(seats[uid].as_asked in come for uid in waiting - settled.keys()):
            continue
        used = frozenset(node for uid, node in settled.items() if seats[uid].as_asked in come)
        passed = frozenset(settled.values()) - used
        let_in: defaultdict[NodeName, list[Pod]] = defaultdict(list)
        for pod in group.pods:
            if pod.meta.uid in waiting and not (pod.node or pod.gated):
                let_in[seats[pod.meta.uid].as_asked].append(pod)
        for name in come:
            shape, since = names.shape_of(name) or "", names.asked_at(name) or placement.reserved_at
            known = found.get(shape, Expected(count=0, since=since, used=used))
            found[shape] = Expected(
                count=known.count + 1,
                since=min(known.since, since),
                used=known.used | used,
                passed=known.passed | passed,
                pods=(*known.pods, *let_in[name]),
            )
    return found


def _node_of(pod: Pod, seat: Seat | None, nodes: Container[NodeName]) -> NodeName | None:
    """Return the node of a pod with a place, of those that are there: where it is bound or its seat was moved."""
    if seat is None:
        return None
    return pod.node or (seat.node if seat.asked_as and seat.node in nodes else None)


def _is_bound(pod: Pod) -> bool:
    return bool(pod.node)


def arrived(expected: Mapping[str, Expected], snapshot: Snapshot) -> Mapping[str, frozenset[NodeName]]:
    """Return the nodes that came for those who asked, by shape, as many as were asked for. Each is of one shape alone.

    A node counts that was made since then, by the API server's clock and in whole seconds, and is not being taken away;
    those first on which pods of these gangs are. One that is of several shapes is given to the one of which the fewest
    have come. Of a shape that cannot be read are nodes to which pods are kept that were let in towards it.
    """
    known = [name for name in sorted(expected) if not unread_shapes.is_gone(name, snapshot)]
    if not known:
        return {}
    used = frozenset(chain.from_iterable(one.used for one in expected.values()))
    passed = frozenset(chain.from_iterable(one.passed for one in expected.values())) - used
    options: dict[NodeName, list[str]] = {}
    for node in snapshot.nodes.values():
        of = [name for name in known if _is_new(node, snapshot.shapes.get(name), expected[name])]
        if of and not node.leaving and node.name not in passed:
            options[node.name] = of
    come = Counter(chain.from_iterable(options.values()))
    found: defaultdict[str, set[NodeName]] = defaultdict(set)

    def order(name: NodeName) -> tuple[bool, int, datetime, str]:
        # A node of one shape can be nobody else's, so it goes before those that may be several shapes'.
        return name not in used, len(options[name]), snapshot.nodes[name].meta.created, name

    for name in sorted(options, key=order):
        open_ = [one for one in options[name] if len(found[one]) < expected[one].count]
        if open_:
            found[min(open_, key=lambda one: (name not in expected[one].used, come[one]))].add(name)
    return {shape: frozenset(nodes) for shape, nodes in found.items() if nodes}


class Expectations(NamedTuple):
    """The nodes that are expected, and those of them that have come, by shape."""

    expected: Mapping[str, Expected]
    come: Mapping[str, frozenset[NodeName]]

    def outstanding(self, shapes: Mapping[str, NodeShape]) -> Mapping[str, int]:
        """Return how many nodes count towards `maxCount` of each shape that were asked for and have not come.

        One that is of several shapes counts for each of them.
        """
        found = Counter[str]()
        for name, one in self.expected.items():
            missing = one.count - len(self.come.get(name, ()))
            for counting in counting_with(name, shapes):
                found[counting] += missing
        return found


def counting_with(name: str, shapes: Mapping[str, NodeShape]) -> list[str]:
    """Return the shapes that count a new node of a shape as theirs, itself included."""
    labels = shapes[name].labels if name in shapes else {}
    others = (other for other, shape in shapes.items() if other != name and _has_all(labels, shape.matches))
    return [name, *others]


def _has_all(labels: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _is_new(node: Node, shape: NodeShape | None, expected: Expected) -> bool:
    """Return whether a node of a shape was made since the first gang asked, or has pods of those who asked.

    shape: None if it cannot be read.
    """
    if shape is not None and not shape.is_shape_of(node):
        return False
    if node.name in expected.used:
        return True
    if node.meta.created < expected.since.replace(microsecond=0):
        return False
    return shape is not None or any(node_filters.matches(pod, node) for pod in expected.pods)


@dataclass(slots=True)
class ExpectedNodes:
    """The expected nodes, and the snapshot's nodes, those marked that came for gangs. One per leader.

    Rule: while neither the nodes nor which of them are marked change, the marked nodes are the same object, so that
    what follows from the nodes is kept; they have two inputs of which one is compared by value, so they are no Memo.
    """

    _found: Memo[None, Expectations] = field(default_factory=Memo)
    _nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    _arrived: Collection[NodeName] = frozenset()
    _marked: Mapping[NodeName, Node] = field(default_factory=dict)

    def find(self, snapshot: Snapshot, granted: Iterable[Group], groups: tuple[Group, ...]) -> Expectations:
        """Return the nodes that are expected and have come. granted: as for `by_shape`; they follow from `groups`.

        They are looked for once for the same gangs, nodes and shapes, of which a mark changes nothing.
        """
        nodes = self._nodes if snapshot.nodes is self._marked else snapshot.nodes
        shapes = snapshot.shapes, snapshot.malformed, snapshot.unwatched

        def make() -> Expectations:
            expected = by_shape(granted, groups, snapshot.nodes)
            return Expectations(expected, arrived(expected, snapshot))

        return self._found.get(None, (groups, nodes, *shapes), make)

    def mark(self, snapshot: Snapshot, granted: Iterable[Group], groups: tuple[Group, ...]) -> Snapshot:
        """Return the snapshot in which no gang is planned on nodes that came for another."""
        may_come = snapshot.shapes or unread_shapes.any_unread(snapshot)
        come = self.find(snapshot, granted, groups).come if may_come else {}
        found = frozenset(chain.from_iterable(come.values()))
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
