"""A shape's status says how many of its nodes are up, and where they fall short of it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.capacity import node_shapes
from admission.api.kubernetes import devices
from admission.api.kubernetes.meta import Condition
from admission.api.snapshot import Snapshot
from admission.api.values.selectors import Taint
from admission.status import node_shapes as status_shapes
from admission.status.node_shapes import LAST_UP, ShapeStatus
from tests.builders import NOON, ClusterBuilder, a_cluster

X8 = {"type": "x8"}


def a_shape() -> ClusterBuilder:
    return a_cluster().shape("x8", gpus=8)


def found(builder: ClusterBuilder) -> dict[str, Condition]:
    (report, *_) = ShapeStatus().conditions(builder.snapshot(), NOON)
    return {one.type: one for one in report.conditions}


UP = {
    "none": (a_shape().node("n", gpus=8), "False", "none of at most 4 nodes has been up yet"),
    "one": (a_shape().node("n", gpus=8, labels=X8), "True", "1 of at most 4 nodes is up"),
    "two": (a_shape().node("n", gpus=8, labels=X8).node("m", labels=X8), "True", "2 of at most 4 nodes are up"),
}


@pytest.mark.parametrize(("builder", "status", "message"), UP.values(), ids=UP)
def test_a_shape_says_how_many_nodes_are_up(builder: ClusterBuilder, status: str, message: str) -> None:
    up = found(builder)["Up"]

    assert (up.status, up.message) == (status, message)


@pytest.mark.parametrize(
    ("before", "reason"), [("", "NeverUp"), ("NeverUp", "NeverUp"), ("NodesUp", "NoNodes"), ("NoNodes", "NoNodes")]
)
def test_a_shape_of_which_none_is_up_says_whether_one_ever_was(before: str, reason: str) -> None:
    """The status that was written before says it, so a new leader knows it, too."""
    snapshot = a_shape().snapshot()
    condition = {"type": "Up", "status": "False", "reason": before, "message": "", "lastTransitionTime": None}
    spec = {"maxCount": 4, "matchLabels": X8, "allocatable": {"cpu": 1}}
    shape = node_shapes.decode({"metadata": {"name": "x8"}, "spec": spec, "status": {"conditions": [condition]}})

    (report,) = ShapeStatus().conditions(replace(snapshot, shapes={"x8": shape}), NOON)

    assert report.conditions[1].reason == reason


def test_how_nodes_fell_short_is_said_until_better_ones_are_up_or_the_shape_is_changed() -> None:
    poor, none = a_shape().node("n", gpus=7, labels=X8).snapshot(), a_shape().snapshot()
    better = a_shape().node("m", gpus=8, labels=X8).snapshot()
    (shape,) = none.shapes.values()
    changed = replace(none, shapes={"x8": replace(shape, meta=replace(shape.meta, generation=2))})
    status = ShapeStatus()

    def matches(snapshot: Snapshot) -> str | None:
        (report,) = status.conditions(snapshot, NOON)
        return next((f"{one.status} {one.message}" for one in report.conditions if one.type == "Matches"), None)

    assert matches(none) is None
    short = "node n: 7 devices of driver gpu.example.com, the shape says 8"
    assert matches(poor) == f"False {short}"
    assert matches(none) == f"False of those that were up last, {short}"
    assert status.shortfalls == {"x8": short}
    assert str(matches(better)).startswith("True")
    assert (matches(none), status.shortfalls) == (None, {})
    matches(poor)
    assert (matches(changed), status.shortfalls) == (None, {})


@pytest.mark.parametrize("generation", [1, 2])
def test_the_next_leader_reads_how_nodes_fell_short_of_this_generation_of_a_shape(generation: int) -> None:
    text = "node n: 7 devices of driver gpu.example.com, the shape says 8"
    condition = {"type": "Matches", "status": "False", "reason": "Differs", "message": f"{LAST_UP}{text}"}
    spec = {"maxCount": 1, "matchLabels": X8, "allocatable": {"cpu": "1"}}
    obj = {
        "metadata": {"name": "x8", "generation": 1},
        "spec": spec,
        "status": {"conditions": [{"type": "Up"}, {**condition, "observedGeneration": generation}]},
    }
    status = ShapeStatus()

    (report,) = status.conditions(replace(a_shape().snapshot(), shapes={"x8": node_shapes.decode(obj)}), NOON)

    assert status.shortfalls == ({"x8": text} if generation == 1 else {})
    assert [one.message for one in report.conditions if one.type == "Matches"] == (
        [f"{LAST_UP}{text}"] if generation == 1 else []
    )


def test_a_node_that_is_being_taken_away_is_not_up() -> None:
    snapshot = a_shape().node("n", gpus=8, labels=X8).node("m", labels=X8).snapshot()
    taint = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")
    (first, second) = snapshot.nodes.values()
    leaving = [replace(first, taints=(taint,)), replace(second, meta=replace(second.meta, deleted=NOON))]

    (report,) = ShapeStatus().conditions(replace(snapshot, nodes={node.name: node for node in leaving}), NOON)

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
    "a taint that keeps pods off": (
        a_shape().node("n", gpus=8, labels=X8, taints=[{"key": "gpu", "value": "a", "effect": "NoSchedule"}]),
        "False",
        "node n: has taint gpu=a:NoSchedule, which the shape has not",
    ),
    "taints that pass or keep nobody off": (
        a_shape().node(
            "n",
            gpus=8,
            labels=X8,
            taints=[
                {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
                {"key": "gpu", "effect": "PreferNoSchedule"},
            ],
        ),
        "True",
        "every node",
    ),
    "devices of another kind": (
        a_shape().node("n", gpus=8, labels=X8, model="h100"),
        "False",
        "node n: 0 devices of driver gpu.example.com with model a100, the shape says 8",
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


def test_devices_are_compared_by_attributes_and_capacities_whatever_their_names() -> None:
    def slice_(*devices: tuple[str, str, str]) -> dict[str, Any]:
        listed = [
            {"name": name, "attributes": {"model": {"string": model}}, "capacity": {"memory": {"value": memory}}}
            for name, model, memory in devices
        ]
        return {"driver": "gpu.example.com", "devices": listed}

    spec = {"maxCount": 4, "matchLabels": X8, "allocatable": {"cpu": 1}}
    says = slice_(("a", "x", "80Gi"), ("b", "x", "80Gi"), ("c", "y", "40Gi"))
    shape = node_shapes.decode({"metadata": {"name": "x8"}, "spec": {**spec, "resourceSlices": [says]}})
    (node,) = a_cluster().node("n", labels=X8).snapshot().nodes.values()

    def difference(*devices_: tuple[str, str, str]) -> str:
        pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
        made = devices.decode_slice({"metadata": {"name": "s"}, "spec": {**slice_(*devices_), "pool": pool}})
        return status_shapes.difference(shape, node, [made])

    assert difference(("1", "y", "40Gi"), ("2", "x", "80Gi"), ("3", "x", "96Gi")) == ""
    assert "1 devices of driver gpu.example.com with model x" in difference(
        ("1", "y", "40Gi"), ("2", "y", "80Gi"), ("3", "x", "96Gi")
    )
    assert f"1 devices of driver gpu.example.com with memory at least {80 * 2**30}" in difference(
        ("1", "y", "40Gi"), ("2", "x", "80Gi"), ("3", "x", "40Gi")
    )


@pytest.mark.parametrize(
    ("other", "overlaps"),
    [({"type": "x8"}, True), ({"zone": "a"}, True), ({"type": "x8", "rack": "r"}, True), ({"type": "y8"}, False)],
)
def test_two_shapes_overlap_before_a_node_is_up(other: dict[str, str], overlaps: bool) -> None:
    spec = {"maxCount": 4, "allocatable": {"cpu": 1}}
    shapes = [
        node_shapes.decode({"metadata": {"name": name}, "spec": {**spec, "matchLabels": matches, "labels": labels}})
        for name, matches, labels in (("x8", X8, {"zone": "a"}), ("y8", other, {}))
    ]
    snapshot = replace(a_cluster().snapshot(), shapes={shape.name: shape for shape in shapes})

    found = [{one.type: one for one in report.conditions} for report in ShapeStatus().conditions(snapshot, NOON)]

    assert ["Matches" in one for one in found] == [overlaps] * 2
    if overlaps:
        assert "new nodes would be of shape y8 as well" in found[0]["Matches"].message


def test_a_shape_says_what_its_node_pool_is_like_and_one_without_says_nothing() -> None:
    assert "NodePool" not in found(a_shape())
    pool = found(a_cluster().shape("x8", gpus=8, pool="gpu"))["NodePool"]
    assert (pool.status, pool.reason) == ("False", "NotFound")


def test_the_conditions_of_shapes_are_made_again_only_when_nodes_shapes_or_slices_change() -> None:
    state, snapshot = ShapeStatus(), a_shape().node("n", gpus=8, labels=X8).snapshot()

    def conditions(changed: Snapshot) -> object:
        return state.conditions(changed, NOON)

    assert conditions(snapshot) is conditions(replace(snapshot, pods={}))
    assert conditions(replace(snapshot, slices={})) is not conditions(snapshot)
    assert conditions(replace(snapshot, node_pools={})) is not conditions(snapshot)


NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}
STARTING = {
    "not ready": (a_shape().node("n", gpus=7, labels=X8, taints=[NOT_READY]), "7 devices of driver"),
    "without slices": (a_shape().node("n", labels=X8), "0 devices of driver"),
    "without a device plugin": (
        a_cluster().shape("x8", allocatable={"nvidia.com/gpu": "8"}).node("n", labels=X8),
        "0 nvidia.com/gpu",
    ),
}


@pytest.mark.parametrize(("builder", "short"), STARTING.values(), ids=STARTING)
def test_a_node_is_compared_with_its_shape_when_it_has_started_or_had_the_time_to(
    builder: ClusterBuilder, short: str
) -> None:
    """The time passes without a change of any object."""
    snapshot, state = builder.snapshot(), ShapeStatus()
    (node,) = snapshot.nodes.values()
    snapshot = replace(snapshot, nodes={node.name: replace(node, meta=replace(node.meta, created=NOON))})

    def matches(minutes: int) -> str:
        (report,) = state.conditions(snapshot, NOON + timedelta(minutes=minutes))
        assert report.conditions[1].reason == "NodesUp"
        return "".join(one.message for one in report.conditions if one.type == "Matches")

    assert (matches(0), matches(9), state.shortfalls) == ("", "", {})
    assert short in matches(10)
    assert "x8" in state.shortfalls


def test_a_node_that_starts_says_nothing_about_how_those_before_it_fell_short() -> None:
    poor = a_shape().node("n", gpus=7, labels=X8).snapshot()
    starting = a_shape().node("m", labels=X8).snapshot()
    (node,) = starting.nodes.values()
    starting = replace(starting, nodes={node.name: replace(node, meta=replace(node.meta, created=NOON))})
    state = ShapeStatus()
    state.conditions(poor, NOON)

    state.conditions(starting, NOON)

    assert state.shortfalls == {"x8": "node n: 7 devices of driver gpu.example.com, the shape says 8"}
