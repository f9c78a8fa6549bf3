"""Domains of a topology: the nodes that have one value of a label, as those of a rack, a zone or an NVLink domain."""

from collections.abc import Mapping
from dataclasses import replace

from admission.api.names import NodeName
from admission.dra.demands import Gang
from admission.dra.states import State
from admission.dra.traits import Traits
from admission.dra.worlds import World

Domains = Mapping[str, frozenset[NodeName]]
"""By the value of the label, the nodes that have it."""


def of(label: str, gang: Gang, world: World, known: Traits) -> Domains:
    """Return the domains where some pod may go, those with the fewest free devices first: large ones are kept whole."""
    state = State(gang, world, known)
    nodes: dict[str, set[NodeName]] = {}
    free: dict[str, int] = {}
    for name, signature in zip(state.names, state.signatures, strict=True):
        value = world.nodes[name].meta.labels.get(label)
        if value is not None:
            nodes.setdefault(value, set()).add(name)
            free[value] = free.get(value, 0) + signature.free
    return {value: frozenset(nodes[value]) for value in sorted(nodes, key=lambda value: (free[value], value))}


def within(gang: Gang, nodes: frozenset[NodeName]) -> Gang:
    """Return the gang as it is where it may go to these nodes only."""
    return replace(gang, kinds=tuple(replace(kind, nodes=kind.nodes & nodes) for kind in gang.kinds))
