"""What is said of NodeShapes: whether gangs are planned with one, how many of its nodes are up, and where these differ.

When one was last seen is the time since which `Up` is false for the reason `NoNodes`. How the last nodes fell short of
their shape is said until better ones are up or the shape is changed: nodes that were bought in vain go again. A node
that is just starting is compared with nothing: its drivers have not published yet what it has.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import NamedTuple

from admission.api.capacity import node_pools, node_shapes
from admission.api.capacity.node_shapes import PASSING_TAINTS, NodeShape
from admission.api.kubernetes import nodes
from admission.api.kubernetes.devices import AttributeValue, Device, Slice
from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.kubernetes.nodes import Node
from admission.api.muster.status_reports import ConditionReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.api.values.selectors import Taint
from admission.incremental import Memo
from admission.scheduling.capacity import pool_bounds

PLANNED_WITH = "gangs that no node has room for are planned over nodes of this shape, too"
UP = "Up"
NEVER_UP = "NeverUp"
"""The reason of `Up` of a shape of which no node has been up yet."""
MATCHES, DIFFERS, MATCH = "Matches", "Differs", "NodesMatch"
LAST_UP = "of those that were up last, "
"""What a message begins with about nodes that have gone."""

STARTUP = timedelta(minutes=10)
"""How long after it was made a node may take to be ready and its drivers to publish devices."""

STARTING_TAINTS = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cilium.io/agent-not-ready",
    }
)
"""Keys of the taints that a node has until it is ready."""
MOST_NAMED = 3
"""The most nodes that a condition names."""

MOST_KINDS = 64
"""The most kinds of devices of one driver that are compared, beside their number."""

KEEPING_OFF = ("NoSchedule", "NoExecute")
"""The effects of taints that keep pods off a node."""

Feature = tuple[str, AttributeValue | Fraction]
"""An attribute of a device and its value, or a capacity, whose amount is a fraction."""


class _Shortfall(NamedTuple):
    """How nodes fell short of a shape. generation: of the shape."""

    generation: int
    text: str


@dataclass(slots=True)
class ShapeStatus:
    """The conditions of all shapes. One per leader.

    Rule: they are made again only when a shape, a node, a slice or a NodePool has changed, or a node has had the time
    to start. A shortfall is kept from when it was seen, by this leader or in the status that an earlier one wrote,
    until nodes match or the shape has changed.
    """

    _reports: Memo[str | None, tuple[ConditionReport, ...]] = field(default_factory=Memo)
    """By why NodePools cannot be read."""
    _shortfalls: dict[str, _Shortfall] = field(default_factory=dict)
    _started_by: datetime | None = None
    """When the first of the nodes that are starting has had the time to."""

    def conditions(self, snapshot: Snapshot, now: datetime) -> tuple[ConditionReport, ...]:
        """Return the conditions of every shape that can be read."""
        if not snapshot.shapes:
            return ()
        unread = snapshot.unwatched.get(node_pools.KEY)
        is_due = self._started_by is not None and now >= self._started_by
        self._reports.keep_only([] if is_due else [unread])
        inputs = (snapshot.shapes, snapshot.nodes, snapshot.slices, snapshot.node_pools)
        return self._reports.get(unread, inputs, lambda: self._made(snapshot, now))

    @property
    def shortfalls(self) -> Mapping[str, str]:
        """Return how nodes of shapes fell short of them when some were last up, as the conditions had it."""
        return {name: one.text for name, one in self._shortfalls.items()}

    def shortfall(self, shapes: Iterable[str]) -> str:
        """Return how the last nodes of some shapes fell short of them; empty if they did not, or none was up yet."""
        known = ((name, self._shortfalls.get(name)) for name in sorted(shapes))
        return "; ".join(
            f"nodes of shape {name} fell short of it ({one.text})" for name, one in known if one is not None
        )

    def _made(self, snapshot: Snapshot, now: datetime) -> tuple[ConditionReport, ...]:
        before, self._shortfalls = self._shortfalls, {}
        nodes_up = _NodesUp.of(snapshot, now)
        self._started_by = min((at + STARTUP for at in nodes_up.starting), default=None)
        reports = _reports(snapshot, nodes_up)
        return tuple(self._with_last(report, snapshot.shapes[report.name], before) for report in reports)

    def _with_last(
        self, report: ConditionReport, shape: NodeShape, before: Mapping[str, _Shortfall]
    ) -> ConditionReport:
        """Return a report, while no node is up with how the last ones fell short; note what is to be kept of it."""
        seen = next((one for one in report.conditions if one.type == MATCHES), None)
        found = before.get(shape.name, _Shortfall(shape.meta.generation, shape.shortfall.removeprefix(LAST_UP)))
        if seen is not None and seen.reason == DIFFERS:
            found = _Shortfall(shape.meta.generation, seen.message)
        if not found.text or found.generation != shape.meta.generation or (seen is not None and seen.reason == MATCH):
            return report
        self._shortfalls[shape.name] = found
        if seen is not None:
            return report
        last = _condition(MATCHES, DIFFERS, f"{LAST_UP}{found.text}", holds=False)
        return replace(report, conditions=(*report.conditions, last))


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodesUp:
    """The nodes of shapes that are up. of_node: the shapes of each. starting: when those were made that are starting.

    by_shape: all. started: those that can be compared with the shape.
    """

    by_shape: Mapping[str, Sequence[Node]]
    started: Mapping[str, Sequence[Node]]
    of_node: Mapping[NodeName, Sequence[NodeShape]]
    slices: Mapping[NodeName, Sequence[Slice]]
    starting: Sequence[datetime]

    @classmethod
    def of(cls, snapshot: Snapshot, now: datetime) -> "_NodesUp":
        """Return those of a snapshot."""
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
        started: dict[str, list[Node]] = {}
        starting: list[datetime] = []
        for name, found in up.items():
            shape = snapshot.shapes[name]
            young = {node.name for node in found if _is_starting(shape, node, slices.get(node.name, ()), now)}
            started[name] = [node for node in found if node.name not in young]
            starting += [node.meta.created for node in found if node.name in young]
        return cls(by_shape=up, started=started, of_node=of_node, slices=slices, starting=starting)


def _is_starting(shape: NodeShape, node: Node, slices: Iterable[Slice], now: datetime) -> bool:
    """Return whether a node is too young to tell that what it lacks will not come."""
    if now - node.meta.created >= STARTUP:
        return False
    if any(taint.key in STARTING_TAINTS for taint in node.taints):
        return True
    if {one.driver for one in shape.slices} - {one.driver for one in slices}:
        return True
    # Device plugins register after the kubelet.
    return node.allocatable is not None and any(not node.allocatable.get(name) for name in shape.allocatable)


def _reports(snapshot: Snapshot, up: _NodesUp) -> Iterable[ConditionReport]:
    for name, found in up.by_shape.items():
        shape = snapshot.shapes[name]
        conditions = [_condition("Ready", "Usable", PLANNED_WITH), _up(shape, len(found))]
        overlaps = node_shapes.overlapping(shape, snapshot.shapes.values())
        is_shared = any(len(up.of_node[node.name]) > 1 for node in found)
        if up.started[name] or overlaps or is_shared:
            conditions.append(_matching(shape, overlaps, up))
        if shape.node_pool:
            pool = pool_bounds.judge(shape, snapshot)
            conditions.append(Condition(type="NodePool", status=pool.status, reason=pool.reason, message=pool.message))
        yield ConditionReport(
            plural="nodeshapes", name=name, generation=shape.meta.generation, conditions=tuple(conditions)
        )


def _up(shape: NodeShape, count: int) -> Condition:
    most = f"of at most {shape.max_count} nodes"
    if not count and not shape.was_up:
        return _condition(UP, NEVER_UP, f"none {most} has been up yet", holds=False)
    if not count:
        return _condition(UP, "NoNodes", f"none {most} is up", holds=False)
    return _condition(UP, "NodesUp", f"{count} {most} {'is' if count == 1 else 'are'} up")


def _matching(shape: NodeShape, overlaps: Sequence[str], up: _NodesUp) -> Condition:
    """Return whether the nodes of a shape are what it says, and are of no other one.

    overlaps: the other shapes of which new nodes would be as well.
    """
    shared = {
        node.name: [one.name for one in up.of_node[node.name] if one is not shape] for node in up.by_shape[shape.name]
    }
    others = sorted({name for found in shared.values() for name in found})
    if others:
        named = _named(sorted(name for name, found in shared.items() if found))
        message = f"{named}: of shape {', '.join(others)} as well, so that both count it; make matchLabels differ"
        return _condition(MATCHES, "Overlaps", message, holds=False)
    if overlaps:
        listed = ", ".join(overlaps)
        message = f"new nodes would be of shape {listed} as well, so that both count them; make matchLabels differ"
        return _condition(MATCHES, "Overlaps", message, holds=False)
    by_text: defaultdict[str, list[str]] = defaultdict(list)
    for node in up.started[shape.name]:
        text = difference(shape, node, up.slices.get(node.name, ()))
        if text:
            by_text[text].append(node.name)
    if not by_text:
        return _condition(MATCHES, MATCH, "every node that is up has at least what the shape says")
    texts = [f"{_named(sorted(found))}: {text}" for text, found in sorted(by_text.items())]
    more = f"; and {len(texts) - MOST_NAMED} more differences" if len(texts) > MOST_NAMED else ""
    return _condition(MATCHES, DIFFERS, f"{'; '.join(texts[:MOST_NAMED])}{more}", holds=False)


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
    taint = next((one for one in node.taints if _stays(one) and one not in shape.taints), None)
    if taint is not None:
        return (
            f"has taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}, which the shape has not"
        )
    return _lacking(shape, list(slices))


def _stays(taint: Taint) -> bool:
    return taint.effect in KEEPING_OFF and not taint.key.startswith(PASSING_TAINTS)


def _lacking(shape: NodeShape, slices: Sequence[Slice]) -> str:
    """Return which devices of a shape a node has too few of; empty if it has all."""
    newest: dict[tuple[str, str], int] = {}
    for one in slices:
        newest[one.driver, one.pool] = max(newest.get((one.driver, one.pool), 0), one.generation)
    there: defaultdict[str, list[Device]] = defaultdict(list)
    for one in slices:
        if one.generation == newest[one.driver, one.pool]:
            there[one.driver] += one.devices
    wanted: defaultdict[str, list[Device]] = defaultdict(list)
    for one in shape.slices:
        wanted[one.driver] += one.devices
    for driver, found in sorted(wanted.items()):
        kinds = [(), *dict.fromkeys(map(_features, found))][: MOST_KINDS + 1]
        for kind in kinds:
            text = _too_few(kind, sum(_has_all(device, kind) for device in found), there[driver], driver)
            if text:
                return text
    return ""


def _features(device: Device) -> tuple[Feature, ...]:
    """Return what a device of a shape has: attributes with their values, and at least such capacities."""
    attributes = [(name, value) for name, value in sorted(device.attributes.items()) if value is not None]
    return (*attributes, *((name, capacity.value) for name, capacity in sorted(device.capacity.items())))


def _has(device: Device, feature: Feature) -> bool:
    name, value = feature
    if isinstance(value, Fraction):
        return name in device.capacity and device.capacity[name].value >= value
    return device.attributes.get(name) == value


def _has_all(device: Device, kind: Iterable[Feature]) -> bool:
    return all(_has(device, feature) for feature in kind)


def _too_few(kind: Iterable[Feature], count: int, there: Sequence[Device], driver: str) -> str:
    """Return that fewer devices of a kind are there than the shape has, by the first feature of which that is so."""
    if len(there) < count:
        return f"{len(there)} devices of driver {driver}, the shape says {count}"
    for name, value in kind:
        there = [device for device in there if _has(device, (name, value))]
        if len(there) < count:
            least = "at least " if isinstance(value, Fraction) else ""
            return f"{len(there)} devices of driver {driver} with {name} {least}{value}, the shape says {count}"
    return ""


def _named(found: list[str]) -> str:
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"{'node' if len(found) == 1 else 'nodes'} {', '.join(found[:MOST_NAMED])}{more}"


def _condition(kind: str, reason: str, message: str, *, holds: bool = True) -> Condition:
    status = ConditionStatus.TRUE if holds else ConditionStatus.FALSE
    return Condition(type=kind, status=status, reason=reason, message=message)
