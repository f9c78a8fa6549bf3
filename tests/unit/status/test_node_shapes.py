"""A shape's status says how many of its nodes are up, and where they fall short of it."""

from dataclasses import replace

import pytest

from admission.api.kubernetes.meta import Condition
from admission.api.values.selectors import Taint
from admission.status.node_shapes import ShapeStatus
from tests.builders import NOON, ClusterBuilder, a_cluster

X8 = {"type": "x8"}


def a_shape() -> ClusterBuilder:
    return a_cluster().shape("x8", gpus=8)


def found(builder: ClusterBuilder) -> dict[str, Condition]:
    (report, *_) = ShapeStatus().conditions(builder.snapshot())
    return {one.type: one for one in report.conditions}


UP = {
    "none": (a_shape().node("n", gpus=8), "False", "none of at most 4 nodes is up"),
    "one": (a_shape().node("n", gpus=8, labels=X8), "True", "1 of at most 4 nodes is up"),
    "two": (a_shape().node("n", gpus=8, labels=X8).node("m", labels=X8), "True", "2 of at most 4 nodes are up"),
}


@pytest.mark.parametrize(("builder", "status", "message"), UP.values(), ids=UP)
def test_a_shape_says_how_many_nodes_are_up(builder: ClusterBuilder, status: str, message: str) -> None:
    up = found(builder)["Up"]

    assert (up.status, up.message) == (status, message)


def test_a_node_that_is_being_taken_away_is_not_up() -> None:
    snapshot = a_shape().node("n", gpus=8, labels=X8).node("m", labels=X8).snapshot()
    taint = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    (first, second) = snapshot.nodes.values()
    leaving = [replace(first, taints=(taint,)), replace(second, meta=replace(second.meta, deleted=NOON))]

    (report,) = ShapeStatus().conditions(replace(snapshot, nodes={node.name: node for node in leaving}))

    assert [(one.type, str(one.status)) for one in report.conditions] == [("Ready", "True"), ("Up", "False")]


MATCHING = {
    "as it says": (a_shape().node("n", gpus=8, labels=X8), "True", "every node that is up has at least"),
    "more than it says": (a_shape().node("n", gpus=9, cpu="99", labels=X8), "True", "every node"),
    "fewer devices": (
        a_shape().node("n", gpus=7, labels=X8).node("m", gpus=7, labels=X8).node("l", gpus=8, labels=X8),
        "False",
        "nodes m, n: 7 devices of driver gpu.example.com, the shape says 8",
    ),
    "less of a resource": (
        a_shape().node("n", gpus=8, cpu="63500m", labels=X8),
        "False",
        "n: 63500m cpu, the shape says 64 cpu",
    ),
    "of another shape as well": (
        a_shape().shape("y8", matches=X8).node("n", gpus=8, labels=X8),
        "False",
        "node n: of shape y8 as well, so that both count it",
    ),
}


@pytest.mark.parametrize(("builder", "status", "message"), MATCHING.values(), ids=MATCHING)
def test_a_shape_says_where_nodes_fall_short_of_it(builder: ClusterBuilder, status: str, message: str) -> None:
    matches = found(builder)["Matches"]

    assert matches.status == status
    assert message in matches.message


def test_the_conditions_of_shapes_are_made_again_only_when_nodes_shapes_or_slices_change() -> None:
    state, snapshot = ShapeStatus(), a_shape().node("n", gpus=8, labels=X8).snapshot()

    assert state.conditions(snapshot) is state.conditions(replace(snapshot, pods={}))
    assert state.conditions(replace(snapshot, slices={})) is not state.conditions(snapshot)
