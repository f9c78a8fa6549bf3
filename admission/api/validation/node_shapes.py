"""Validation of NodeShapes: their slices and taints are those of a node, which an API server would judge.

The CRD keeps devices as they are written, so nobody else would find what is wrong with them before a node comes.
"""

from admission.api.capacity import node_shapes
from admission.api.validation import slices
from admission.api.validation.pods import placement
from admission.api.values.decoding import Reader


def validate(reader: Reader) -> None:
    """Judge a NodeShape."""
    spec = reader.child("spec")
    placement.validate_taints(spec)
    for slice_ in node_shapes.slices_of(spec):
        slices.validate(slice_)
