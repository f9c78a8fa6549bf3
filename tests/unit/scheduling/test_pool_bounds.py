"""The NodePool that a shape names: whether it can start nodes, how many, and what is said of it."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.capacity import node_pools
from admission.api.capacity.node_pools import NodePool
from admission.api.snapshot import Snapshot
from admission.scheduling.capacity import pool_bounds
from admission.scheduling.capacity.pool_bounds import PoolBounds
from tests.builders import ClusterBuilder, a_cluster

READY = {"type": "Ready", "status": "True", "reason": "Ready", "message": ""}
GPU = {node_pools.LABEL: "gpu"}


def a_pool(*conditions: dict[str, str], deleted: bool = False, **spec: Any) -> NodePool:
    meta = {"name": "gpu", **({"deletionTimestamp": "2026-11-27T12:00:00Z"} if deleted else {})}
    return node_pools.decode({"metadata": meta, "spec": spec, "status": {"conditions": [*(conditions or (READY,))]}})


def snapshot(builder: ClusterBuilder, *pools: NodePool) -> Snapshot:
    return replace(builder.snapshot(), node_pools={pool.meta.name: pool for pool in pools})


def shaped(*, most: int = 8) -> ClusterBuilder:
    return a_cluster().shape("x8", gpus=8, most=most, pool="gpu")


CLASS = {"type": "NodeClassReady", "status": "False", "reason": "NodeClassNotFound", "message": "NodeClass\nis gone"}
NOT_READY = {"type": "Ready", "status": "False", "reason": "UnhealthyDependents", "message": ""}

CASES: dict[str, tuple[ClusterBuilder, tuple[NodePool, ...], tuple[str, str, str, int]]] = {
    "is ready": (shaped(), (a_pool(),), ("True", "Ready", "NodePool gpu is ready", 8)),
    "is not there": (shaped(), (), ("False", "NotFound", "there is no NodePool gpu: make it", 0)),
    "is being deleted": (shaped(), (a_pool(deleted=True),), ("False", "Deleting", "is being deleted", 0)),
    "has a fixed size": (shaped(), (a_pool(replicas=4),), ("False", "Static", "has spec.replicas", 0)),
    "is not ready": (
        shaped(),
        (a_pool(NOT_READY, CLASS),),
        ("False", "NotReady", "(NodeClassReady: NodeClassNotFound: NodeClass is gone; Ready: UnhealthyDependents)", 0),
    ),
    "was not looked at by Karpenter": (
        shaped(),
        (replace(a_pool(), ready=False),),
        ("False", "NotReady", "(Karpenter says nothing of it)", 0),
    ),
    "limits the number of nodes": (
        shaped(),
        (a_pool(limits={"nodes": "3"}),),
        ("True", "Ready", "lets at most 3 nodes come by its limit of 3 nodes", 3),
    ),
    "limits a resource": (
        shaped(),
        (a_pool(limits={"cpu": 130, "memory": "10Ti", "example.com/other": 0}),),
        ("True", "Ready", "lets at most 2 nodes come by its limit of 130 cpu", 2),
    ),
    "has nodes of another shape, too": (
        shaped().node("other", cpu="63500m", labels=GPU),
        (a_pool(limits={"cpu": 128, "nodes": 9}),),
        ("True", "Ready", "lets at most 1 node come by its limit of 128 cpu", 1),
    ),
    "is over its limit": (
        shaped().node("other", cpu="64", labels=GPU),
        (a_pool(limits={"cpu": 10}),),
        ("True", "Ready", "lets at most 0 nodes come", 0),
    ),
}


@pytest.mark.parametrize(("builder", "pools", "expected"), CASES.values(), ids=CASES)
def test_a_node_pool_that(
    builder: ClusterBuilder, pools: tuple[NodePool, ...], expected: tuple[str, str, str, int]
) -> None:
    status, reason, words, left = expected
    given = snapshot(builder, *pools)

    state = pool_bounds.judge(given.shapes["x8"], given)
    (shape,) = PoolBounds().apply(given).shapes.values()

    assert (state.status, state.reason) == (status, reason)
    assert words in state.message
    assert shape.left(given.nodes.values()) == left


def test_where_node_pools_cannot_be_read_the_shape_is_planned_with() -> None:
    given = replace(shaped().snapshot(), unwatched={node_pools.KEY: "the API server does not serve it"})

    state = pool_bounds.judge(given.shapes["x8"], given)

    assert (state.status, state.reason, state.most) == ("Unknown", "NotServed", None)
    assert "does not serve it; nodes are planned with as if it were ready" in state.message
    assert PoolBounds().apply(given) is given


def test_shapes_are_other_objects_only_when_what_their_pools_let_come_changes() -> None:
    bounds, given = PoolBounds(), snapshot(shaped(), a_pool(limits={"nodes": 3}))

    first = bounds.apply(given).shapes

    assert bounds.apply(replace(given, nodes={}, node_pools=dict(given.node_pools))).shapes is first
    assert bounds.apply(snapshot(shaped(), a_pool(limits={"nodes": 2}))).shapes is not first


def test_a_node_of_the_pool_is_one_of_the_shape_if_it_has_its_other_labels() -> None:
    given = shaped().node("a", labels={**GPU, "type": "x8"}).node("b", labels=GPU).node("c", labels={"type": "x8"})
    snapshot_ = given.snapshot()
    shape = snapshot_.shapes["x8"]

    assert shape.matches == {"type": "x8", node_pools.LABEL: "gpu"}
    assert [node.name for node in snapshot_.nodes.values() if shape.is_shape_of(node)] == ["a"]
