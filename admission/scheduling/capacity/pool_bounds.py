"""How many nodes of a NodeShape the NodePool of Karpenter lets come that the shape names.

A pool that is not there, not ready, or of a fixed size starts no node for pods. Its limits are those of all of its
nodes: those of other shapes are taken off, and what is left is divided by what a node of the shape has for pods. A node
takes more of the limits than that, so Karpenter may start fewer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from admission.api.capacity import node_pools
from admission.api.capacity.node_pools import NodePool
from admission.api.capacity.node_shapes import NodeShape
from admission.api.kubernetes import nodes
from admission.api.kubernetes.meta import ConditionStatus
from admission.api.snapshot import Snapshot


class PoolState(NamedTuple):
    """What is known of the NodePool of a shape. most: how many nodes of the shape it lets come; None if any number."""

    status: ConditionStatus
    reason: str
    message: str
    most: int | None


def judge(shape: NodeShape, snapshot: Snapshot) -> PoolState:
    """Return the state of the NodePool that a shape names."""
    unread = snapshot.unwatched.get(node_pools.KEY)
    if unread is not None:
        message = f"NodePools (karpenter.sh/v1) cannot be read: {unread}; nodes are planned with as if it were ready"
        return PoolState(ConditionStatus.UNKNOWN, "NotServed", message, None)
    pool = snapshot.node_pools.get(shape.node_pool)
    if pool is None:
        return _closed("NotFound", f"there is no NodePool {shape.node_pool}: make it, or name another in spec.nodePool")
    closed = _why_closed(pool)
    if closed is not None:
        return closed
    most, by = _limited(shape, pool, snapshot)
    if most is None:
        return PoolState(ConditionStatus.TRUE, "Ready", f"NodePool {shape.node_pool} is ready", None)
    plural = "node" if most == 1 else "nodes"
    message = f"NodePool {shape.node_pool} is ready, and lets at most {most} {plural} come by its limit of {by}"
    return PoolState(ConditionStatus.TRUE, "Ready", message, most)


def _why_closed(pool: NodePool) -> PoolState | None:
    """Return why a pool starts no node; None if it may."""
    name = pool.meta.name
    if pool.meta.deleted is not None:
        return _closed("Deleting", f"NodePool {name} is being deleted, with its nodes")
    if pool.static:
        return _closed("Static", f"NodePool {name} has spec.replicas, and starts no node for pods that wait")
    if not pool.ready:
        said = "; ".join(f"{kind}: {words}" for kind, words in sorted(pool.conditions.items()))
        return _closed("NotReady", f"NodePool {name} is not ready ({said or 'Karpenter says nothing of it'})")
    return None


def _closed(reason: str, message: str) -> PoolState:
    return PoolState(ConditionStatus.FALSE, reason, message, 0)


def _limited(shape: NodeShape, pool: NodePool, snapshot: Snapshot) -> tuple[int | None, str]:
    """Return how many nodes of a shape there may be by the limits of its pool, and by which; None without any."""
    others = [
        node.allocatable or {}
        for node in snapshot.nodes.values()
        if node.meta.labels.get(node_pools.LABEL) == shape.node_pool and not shape.is_shape_of(node)
    ]
    taken = {**nodes.total(others), node_pools.NODES: len(others)}
    needed = {**shape.allocatable, node_pools.NODES: 1}
    found = [
        (max(0, limit - taken.get(name, 0)) // needed[name], nodes.render_resources({name: limit}))
        for name, limit in sorted(pool.limits.items())
        if needed.get(name)
    ]
    return min(found, default=(None, ""), key=lambda one: one[0])


@dataclass(slots=True)
class PoolBounds:
    """The shapes with what their NodePools let come. One per leader.

    Rule: while that does not change, nor the shapes, the result is the same object, so that what follows from it is
    kept; of its inputs the nodes change often, and what follows from them rarely, so it is no Memo.
    """

    _shapes: Mapping[str, NodeShape] = field(default_factory=dict)
    _most: Mapping[str, int | None] = field(default_factory=dict)
    _bounded: Mapping[str, NodeShape] = field(default_factory=dict)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot whose shapes say what their pools let come."""
        most = {name: judge(shape, snapshot).most for name, shape in snapshot.shapes.items() if shape.node_pool}
        if not any(one is not None for one in most.values()):
            return snapshot
        if snapshot.shapes is not self._shapes or most != self._most:
            self._shapes, self._most = snapshot.shapes, most
            self._bounded = {
                name: replace(shape, pool_most=most[name]) if most.get(name) is not None else shape
                for name, shape in snapshot.shapes.items()
            }
        return replace(snapshot, shapes=self._bounded)
