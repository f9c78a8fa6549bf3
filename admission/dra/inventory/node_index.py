"""The inventories of all nodes, kept between cluster states: only nodes that see a changed pool are evaluated again.

An index is an immutable part of its cluster state, since several states may follow one (what-if states do), so it is
built from the one before instead of being a declaration over `admission.incremental`, which follows one history. The
law is tested in `tests/property/test_cluster_state.py`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from admission.api.kubernetes.nodes import Node
from admission.api.snapshot import changed
from admission.api.values.names import NodeName
from admission.dra.inventory import pools
from admission.dra.inventory.pools import NodeInventory, Slices


class NodeIndex(NamedTuple):
    """The node inventories of an earlier cluster state, and the inputs they were built from."""

    nodes: Mapping[NodeName, Node]
    node_inventories: Mapping[NodeName, NodeInventory]
    slices: Slices


def build(nodes: Mapping[NodeName, Node], slices: Slices, before: NodeIndex | None) -> Mapping[NodeName, NodeInventory]:
    """Return the inventory of every node."""
    touched = _touched(slices, before.slices) if before is not None else None
    if before is None or touched is None:
        return {name: _node_inventory(node, slices, before) for name, node in nodes.items()}
    touched.update(changed(before.nodes, nodes))
    again = {name: _node_inventory(nodes[name], slices, before) for name in touched & nodes.keys()}
    if (
        all(before.node_inventories.get(name) is node_inventory for name, node_inventory in again.items())
        and touched <= nodes.keys()
    ):
        return before.node_inventories
    return {name: again[name] if name in again else before.node_inventories[name] for name in nodes}


def _touched(slices: Slices, old: Slices) -> set[NodeName] | None:
    """Return the nodes of pools that changed; None if nodes may see slices that do not name them."""
    if old.elsewhere or slices.elsewhere or old.has_broken or slices.has_broken:
        return None
    keys = changed(old.by_key, slices.by_key)
    pieces = (some.by_key[key] for key in keys for some in (old, slices) if key in some.by_key)
    pools_ = {(piece.driver, piece.pool) for piece in pieces}
    return {piece.node_name for pool in pools_ for one in (old, slices) for piece in one.members.get(pool, ())}


def _node_inventory(node: Node, slices: Slices, before: NodeIndex | None) -> NodeInventory:
    known = before.node_inventories.get(node.name) if before is not None else None
    if known is not None and pools.unchanged(known, node, slices):
        return known
    return pools.gather(node, slices)
