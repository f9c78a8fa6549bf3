"""What is said of NodeShapes: whether gangs are planned with one, how many of its nodes are up, and where these differ.

When one was last seen is the time since which `Up` is false.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes import nodes
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.kubernetes.nodes import Node
from admission.api.muster.status_reports import ConditionReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.incremental import Memo

PLANNED_WITH = "gangs that no node has room for are planned over nodes of this shape, too"
UP = "Up"
MOST_NAMED = 3
"""The most nodes that a condition names."""


@dataclass(slots=True)
class ShapeStatus:
    """The conditions of all shapes. One per leader.

    Rule: they are made again only when a shape, a node or a slice has changed.
    """

    _reports: Memo[None, tuple[ConditionReport, ...]] = field(default_factory=Memo)

    def conditions(self, snapshot: Snapshot) -> tuple[ConditionReport, ...]:
        """Return the conditions of every shape that can be read."""
        inputs = (snapshot.shapes, snapshot.nodes, snapshot.slices)
        return self._reports.get(None, inputs, lambda: tuple(_reports(snapshot))) if snapshot.shapes else ()


def _reports(snapshot: Snapshot) -> Iterable[ConditionReport]:
    up = {
        name: [node for node in snapshot.nodes.values() if shape.is_shape_of(node) and not node.leaving]
        for name, shape in sorted(snapshot.shapes.items())
    }
    of_node: defaultdict[NodeName, list[NodeShape]] = defaultdict(list)
    for name, found in up.items():
        for node in found:
            of_node[node.name].append(snapshot.shapes[name])
    slices: defaultdict[NodeName, list[Slice]] = defaultdict(list)
    for slice_ in snapshot.slices.values():
        if slice_.node_name in of_node:
            slices[slice_.node_name].append(slice_)
    for name, found in up.items():
        shape = snapshot.shapes[name]
        conditions = [_condition("Ready", "Usable", PLANNED_WITH), _up(shape, len(found))]
        if found:
            conditions.append(_matching(shape, found, slices, of_node))
        yield ConditionReport(
            plural="nodeshapes", name=name, generation=shape.meta.generation, conditions=tuple(conditions)
        )


def _up(shape: NodeShape, count: int) -> Condition:
    most = f"of at most {shape.max_count} nodes"
    if not count:
        return _condition(UP, "NoNodes", f"none {most} is up", holds=False)
    return _condition(UP, "NodesUp", f"{count} {most} {'is' if count == 1 else 'are'} up")


def _matching(
    shape: NodeShape,
    up: Iterable[Node],
    slices: Mapping[NodeName, list[Slice]],
    of_node: Mapping[NodeName, list[NodeShape]],
) -> Condition:
    """Return whether the nodes of a shape are what it says, and are of no other one."""
    shared = {node.name: [one.name for one in of_node[node.name] if one is not shape] for node in up}
    others = sorted({name for found in shared.values() for name in found})
    if others:
        named = _named(sorted(name for name, found in shared.items() if found))
        message = f"{named}: of shape {', '.join(others)} as well, so that both count it; make matchLabels differ"
        return _condition("Matches", "Overlaps", message, holds=False)
    by_text: defaultdict[str, list[str]] = defaultdict(list)
    for node in up:
        text = difference(shape, node, slices.get(node.name, ()))
        if text:
            by_text[text].append(node.name)
    if not by_text:
        return _condition("Matches", "NodesMatch", "every node that is up has at least what the shape says")
    texts = [f"{_named(sorted(found))}: {text}" for text, found in sorted(by_text.items())]
    more = f"; and {len(texts) - MOST_NAMED} more differences" if len(texts) > MOST_NAMED else ""
    return _condition("Matches", "Differs", f"{'; '.join(texts[:MOST_NAMED])}{more}", holds=False)


def difference(shape: NodeShape, node: Node, slices: Iterable[Slice]) -> str:
    """Return in what a node falls short of its shape; empty if a gang that is planned on the shape fits it."""
    for key, value in sorted(shape.labels.items()):
        if node.meta.labels.get(key) != value:
            return f"without label {key}={value}"
    for name, amount in sorted(shape.allocatable.items()):
        found = amount if node.allocatable is None else node.allocatable.get(name, 0)
        if found < amount:
            has, says = nodes.render_resources({name: found}), nodes.render_resources({name: amount})
            return f"{has}, the shape says {says}"
    newest: dict[tuple[str, str], int] = {}
    slices = list(slices)
    for one in slices:
        newest[one.driver, one.pool] = max(newest.get((one.driver, one.pool), 0), one.generation)
    there: Counter[str] = Counter()
    for one in slices:
        there[one.driver] += len(one.devices) if one.generation == newest[one.driver, one.pool] else 0
    wanted: Counter[str] = Counter()
    for one in shape.slices:
        wanted[one.driver] += len(one.devices)
    for driver, count in sorted(wanted.items()):
        if there[driver] < count:
            return f"{there[driver]} devices of driver {driver}, the shape says {count}"
    return ""


def _named(found: list[str]) -> str:
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{'node' if len(found) == 1 else 'nodes'} {', '.join(found[:MOST_NAMED])}{more}"


def _condition(kind: str, reason: str, message: str, *, holds: bool = True) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=kind, status=status, reason=reason, message=message)
