"""The shapes of nodes that may still come: how many are up, how many more there may be, and who waits for them.

Pure: from observed NodeShapes, nodes and gangs to rows.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from admission.api.capacity import node_shapes
from admission.api.kubernetes.meta import Condition, ConditionStatus
from admission.api.muster.gangs import Phase
from admission.api.muster.observed import ObservedGang, ObservedObjects, ObservedShape
from admission.api.values import names
from admission.api.values.reasons import HoldReason

ASKED = frozenset({Phase.RESERVED, Phase.ADMITTED})
"""The phases of gangs whose nodes are still expected: not all of their pods run, late ones apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One NodeShape. up: its nodes that are up; most: how many there may be; left: less all nodes that exist.

    expected: nodes of the shape that were asked for and are not all in use, by gang (namespace/name). seen: when one
    was last up; None if one is up now, none ever was, or it is not known. node_pool: of Karpenter, if it names one.
    ready, pool, differs: why Muster does not plan with it, why its NodePool starts no node, and where its nodes are not
    what it says; empty if all is well.
    """

    name: str
    up: int
    most: int
    left: int
    expected: Mapping[str, int]
    seen: datetime | None
    never_up: bool
    price: str
    node_pool: str
    ready: str
    pool: str
    differs: str

    @property
    def asked(self) -> int:
        """Return how many nodes are expected."""
        return sum(self.expected.values())

    @property
    def more(self) -> int:
        """Return how many more may be asked for, but for what limits of a NodePool forbid."""
        return 0 if self.pool else max(0, self.left - self.asked)


def rows(observed: ObservedObjects) -> list[Row]:
    """Return a row for each shape that can be read, by name."""
    expected: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for gang in observed.gangs.values():
        for shape, count in _asked(gang).items():
            expected[shape][gang.key] = count
    return [_row(one, expected.get(name, {}), observed) for name, one in sorted(observed.shapes.items())]


def problems(observed: ObservedObjects) -> Sequence[str]:
    """Return what is wrong with shapes that cannot be read."""
    found = [error for (kind, _), error in sorted(observed.malformed.items()) if kind == "NodeShape"]
    return list(map(str, found))


def _row(observed_shape: ObservedShape, expected: Mapping[str, int], observed: ObservedObjects) -> Row:
    shape = observed_shape.shape
    nodes = [node for node in observed.nodes.values() if shape.is_shape_of(node) and not node.leaving]
    return Row(
        name=shape.name,
        up=len(nodes),
        most=shape.max_count,
        left=shape.left(observed.nodes.values()),
        expected=expected,
        seen=observed_shape.up_since if shape.was_up and not nodes else None,
        never_up=not nodes and not shape.was_up,
        price=node_shapes.render_price(shape.price) if shape.price is not None else "",
        node_pool=shape.node_pool,
        pool=_trouble(observed_shape.conditions.get("NodePool")),
        ready=_trouble(observed_shape.conditions.get("Ready")),
        differs=_trouble(observed_shape.conditions.get("Matches")),
    )


def _asked(gang: ObservedGang) -> Counter[str]:
    """Return how many nodes of each shape were asked for a gang and may still be expected."""
    nodes = {pod.node for pod in gang.report.plan}
    if gang.report.phase not in ASKED:
        # Others are asked for when all are bound for which nodes were asked before, so the last ones are waited for.
        last = max(filter(None, map(names.joined_at, nodes)), default=None) if _has_late(gang) else None
        nodes = {node for node in nodes if last is not None and names.joined_at(node) == last}
    shapes = map(names.shape_of, nodes)
    return Counter(shape for shape in shapes if shape is not None)


def _has_late(gang: ObservedGang) -> bool:
    """Return whether pods that join a gang wait for nodes that were asked for."""
    hold = gang.report.hold
    return hold is not None and hold.reason is HoldReason.NODES_NEEDED and "instead" not in hold.details


def _trouble(condition: Condition | None) -> str:
    return condition.message if condition is not None and condition.status is ConditionStatus.FALSE else ""
