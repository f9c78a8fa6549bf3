"""Checks of a NodeShape against the others."""

from collections.abc import Iterable, Iterator

from admission.api.capacity import node_shapes
from admission.api.capacity.node_shapes import NodeShape
from admission.objectpolicy import findings
from admission.objectpolicy.findings import ObjectFinding


def check_write(shape: NodeShape, shapes: Iterable[NodeShape]) -> Iterator[ObjectFinding]:
    """Yield that nodes would be of two shapes, both of which would count them."""
    others = node_shapes.overlapping(shape, shapes)
    if others:
        message = (
            f"match new nodes of NodeShape {findings.listed(others)} as well, so that both count them; make them differ"
        )
        yield ObjectFinding(field="spec.matchLabels", message=message)
