"""Cluster states with nodes that are not there yet, made of NodeShapes.

A node to come has a name that says its shape and number, so that the same question gives the same answer. Its devices
are those of the shape's slices, with the taints of DeviceTaintRules, as if its drivers had published them. No plan over
such a state may be carried out as it is: the nodes do not exist.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes.devices import Slice
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Node
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.dra.inventory import device_taints, pools
from admission.dra.inventory.device_taints import TaintedSlices
from admission.dra.inventory.pools import NodeInventory, Slices
from admission.dra.state.cluster_state import ClusterState

SERIES = "nodes to come"
"""The series of these states."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeToCome:
    """One node that is not there yet, and the slices that its drivers would publish."""

    shape: str
    node: Node
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodesToCome:
    """The nodes that may come to one observed cluster, by shape and in order, and what they would see."""

    by_shape: Mapping[str, tuple[NodeToCome, ...]]
    nodes: Mapping[NodeName, NodeToCome]
    slices: Slices
    tainted: TaintedSlices
    _inventories: dict[NodeName, NodeInventory] = field(default_factory=dict)
    """Of those that were asked for: mostly few of the nodes that may come do."""

    @classmethod
    def build(cls, cluster: ClusterState, snapshot: Snapshot, counts: Mapping[str, int]) -> "NodesToCome":
        """Return as many nodes of each shape as `counts` says. cluster: the state that was built of the snapshot."""
        by_shape = {
            name: tuple(make(snapshot.shapes[name], count, snapshot.nodes)) for name, count in counts.items() if count
        }
        nodes = {one.node.name: one for found in by_shape.values() for one in found}
        pieces = {piece.meta.name: piece for one in nodes.values() for piece in one.slices}
        release = cluster.profile.release
        tainted = device_taints.apply_rules(
            {**snapshot.slices, **pieces}, snapshot.taint_rules, release, cluster.tainted
        )
        slices = Slices(tainted.slices, cluster.profile, cluster.slices)
        return cls(by_shape=by_shape, nodes=nodes, slices=slices, tainted=tainted)

    def joined(self, cluster: ClusterState, come: Iterable[NodeName]) -> ClusterState:
        """Return a state with some of these nodes, empty. cluster: the observed state, or one that follows from it."""
        new = {name: self.nodes[name].node for name in come}
        return replace(
            cluster,
            is_what_if=True,
            series=SERIES,
            nodes={**cluster.nodes, **new},
            node_inventories={**cluster.node_inventories, **{name: self._inventory(name) for name in new}},
            left={**cluster.left, **{name: node.allocatable for name, node in new.items()}},
            placed=replace(cluster.placed),
            slices=self.slices,
            tainted=self.tainted,
        )

    def _inventory(self, name: NodeName) -> NodeInventory:
        found = self._inventories.get(name)
        if found is None:
            found = self._inventories[name] = pools.gather(self.nodes[name].node, self.slices)
        return found

    @staticmethod
    def parted(cluster: ClusterState, going: Collection[NodeName]) -> ClusterState:
        """Return a state without some nodes: what is granted on them stays granted, and nobody else sees it."""
        return replace(
            cluster,
            nodes={name: node for name, node in cluster.nodes.items() if name not in going},
            node_inventories={name: one for name, one in cluster.node_inventories.items() if name not in going},
            left={name: left for name, left in cluster.left.items() if name not in going},
            placed=replace(cluster.placed),
        )


def joined_to(cluster: ClusterState, snapshot: Snapshot, *, most: int) -> ClusterState:
    """Return a state with all nodes that may come. most: of each shape at most so many."""
    existing = snapshot.nodes.values()
    come = NodesToCome.build(
        cluster, snapshot, {name: min(shape.left(existing), most) for name, shape in snapshot.shapes.items()}
    )
    return come.joined(cluster, come.nodes)


def slices(snapshot: Snapshot) -> Iterable[Slice]:
    """Yield the slices of all nodes that may come."""
    for shape in snapshot.shapes.values():
        for one in make(shape, shape.left(snapshot.nodes.values()), snapshot.nodes):
            yield from one.slices


def make(shape: NodeShape, count: int, existing: Mapping[NodeName, Node]) -> Iterable[NodeToCome]:
    """Yield nodes of a shape, by number, without the names of nodes that exist."""
    number = made = 0
    while made < count:
        number += 1
        name = NodeName(f"{shape.name}.new-{number}")
        if name in existing:
            continue
        made += 1
        yield NodeToCome(shape=shape.name, node=_node(shape, name), slices=tuple(_slices(shape, name)))


def _node(shape: NodeShape, name: NodeName) -> Node:
    labels = {**shape.labels, names.HOSTNAME: name}
    return Node(
        meta=Meta(name=name, uid=Uid(name), labels=labels),
        allocatable=shape.allocatable,
        taints=shape.taints,
    )


def _slices(shape: NodeShape, name: NodeName) -> Iterable[Slice]:
    """Yield the slices of a node.

    Slices of one shape at one place have the same version, since they have the same devices: selectors are evaluated
    once for all nodes of a shape.
    """
    version = f"{shape.meta.uid or shape.name}/{shape.meta.resource_version}"
    for index, slice_ in enumerate(shape.slices):
        meta = Meta(name=f"{name}-{index}", uid=Uid(f"{version}/{index}"), resource_version=version)
        yield replace(slice_, meta=meta, node_name=name, pool=str(name))
