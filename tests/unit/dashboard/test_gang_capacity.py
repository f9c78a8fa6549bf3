"""How many more gangs would find devices and quota, by what the dashboard reads."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.capacity import gang_shapes
from admission.api.muster import observed
from admission.api.values.names import QueueName
from admission.dashboard.devices import gang_capacity
from admission.dashboard.devices.gang_capacity import GangCapacity, Shape
from admission.scheduling import fragments
from tests import dashboard_clusters

CLASS = "gpu"
CARD = 80 * 2**30
"""The memory of a device."""


def a_cluster() -> dashboard_clusters.Cluster:
    """Return two nodes of four devices: one is free but for a small gang, of the other one device is free."""
    return (
        dashboard_clusters.Cluster()
        .node("node-1", gpus=4)
        .node("node-2", gpus=4)
        .queue("q", gpus=6, used=4)
        .queue("held", gpus=9, spec={"stopPolicy": "Hold"})
        .queue("lost", "nowhere", spec={"stopPolicy": "Hold"})
        .queue("full", gpus=2, used=2, spec={"stopPolicy": "Hold"})
        .gang("ml/small", "q", "Running", places=[("node-1", ["gpu-0"])])
        .gang("ml/large", "q", "Running", places=[("node-2", [f"gpu-{at}"]) for at in range(3)])
    )


def find(pods: int, devices: int, queue: str = "", cluster: dashboard_clusters.Cluster | None = None) -> GangCapacity:
    shape = gang_capacity.shape(pods, devices, CLASS)
    assert shape is not None
    return gang_capacity.find((cluster or a_cluster()).observe(), shape, QueueName(queue))


STARTS = {
    "as many as there are devices": (1, 1, "", 4, "there is no place for another one"),
    "over both nodes": (2, 1, "", 2, "there is no place for another one"),
    "what is left in pieces is of no use": (1, 2, "", 1, "there is no place for another one"),
    "as many as there is quota for": (1, 1, "q", 2, "queue q has 0 gpus left, and a gang needs 1"),
    "fewer than there is quota for": (1, 2, "q", 1, "there is no place for another one"),
    "none in a queue that is stopped": (1, 1, "held", 0, "queue held is stopped"),
    "nor in one that has no quota left besides": (
        *(1, 1, "full", 0),
        "queue full is stopped, and has 0 gpus left, and a gang needs 1",
    ),
    "none in a queue below one that is not there": (1, 1, "lost", 0, "queue lost is not active"),
    "none in a queue that is not there": (1, 1, "nope", 0, "there is no queue nope"),
}


@pytest.mark.parametrize(("pods", "devices", "queue", "starts", "stopped"), STARTS.values(), ids=STARTS)
def test_gangs_start_as_far_as_devices_and_quota_go(
    pods: int, devices: int, queue: str, starts: int, stopped: str
) -> None:
    found = find(pods, devices, queue)
    assert (found.starts, found.is_bound, found.stopped) == (starts, False, stopped)


METERS: dict[str, tuple[Any, int, int, str]] = {
    "a capacity": (
        *({"capacity": {"name": "memory"}}, 3 * CARD - 1),
        *(2, f"queue q has {CARD - 1} gpus left, and a gang needs {CARD}"),
    ),
    "a counter": (
        *({"counter": {"name": "memory"}}, CARD + CARD // 4),
        *(1, f"queue q has {CARD // 4} gpus left, and a gang needs {CARD}"),
    ),
    "an expression": (
        *({"expression": {"cel": "device.driver == '' ? 0 : 5"}}, 11),
        *(2, "queue q has 1 gpus left, and a gang needs 5"),
    ),
    "what a selector takes": (
        *({"count": {}, "selector": "device.driver != ''"}, 3),
        *(3, "queue q has 0 gpus left, and a gang needs 1"),
    ),
    "what no device has": (
        *({"capacity": {"name": "gone"}}, 3),
        *(0, "has no capacity gone; correct the name or give the source a selector"),
    ),
}


@pytest.mark.parametrize(("source", "quota", "starts", "stopped"), METERS.values(), ids=METERS)
def test_quota_counts_by_what_the_devices_are_charged(source: Any, quota: int, starts: int, stopped: str) -> None:
    cluster = dashboard_clusters.Cluster().queue("q", gpus=quota)
    cluster = cluster.parted_node("node-1") if "counter" in source else cluster.node("node-1", gpus=8)
    spec = {"sources": [{"deviceClasses": [CLASS], **source}]}
    measuring = observed.decode_meter({"metadata": {"name": "gpus"}, "spec": spec})
    seen = replace(cluster.observe(), meters={measuring.meter.name: measuring})

    found = gang_capacity.find(seen, Shape(1, 1, CLASS), QueueName("q"))

    assert (found.starts, found.is_bound) == (starts, False)
    assert found.stopped.endswith(stopped)


def test_a_class_that_does_not_exist_is_told() -> None:
    shape = gang_capacity.shape(1, 1, "gone")
    assert shape is not None
    found = gang_capacity.find(a_cluster().observe(), shape, QueueName(""))
    assert (found.starts, found.is_bound, found.stopped) == (0, False, "there is no device class gone")
    assert [one.free for one in found.free] == [3, 1]


def test_of_gangs_larger_than_what_is_counted_one_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "MOST_PODS", 2)
    found = gang_capacity.find(a_cluster().observe(), Shape(3, 1, CLASS), QueueName(""))
    assert (found.starts, found.is_bound, [*found.moves]) == (1, True, [])


def test_a_gang_that_could_be_elsewhere_is_named_with_what_that_would_free() -> None:
    found = find(1, 4)
    usable = {one.node: (one.free, one.total, one.usable[f"1x4:{CLASS}"]) for one in found.free}
    assert usable == {"node-1": (3, 4, 0), "node-2": (1, 4, 0)}
    moves = [(one.gang, one.source, one.target, one.starts) for one in found.moves]
    assert moves == [("ml/small", ("node-1",), ("node-2",), 1), ("ml/large", ("node-2",), ("node-1",), 1)]


def test_devices_of_a_gang_that_has_only_been_granted_them_are_not_free() -> None:
    cluster = a_cluster().gang("ml/granted", "q", "Reserved", places=[("node-1", ["gpu-1"])], allocated=False)
    assert find(1, 1, cluster=cluster).starts == 3


@pytest.mark.parametrize("is_tied", [False, True])
def test_a_gang_that_has_to_be_in_a_domain_is_not_moved_out_of_it(is_tied: bool) -> None:
    topology: Any = {"topology": {"required": "topology.kubernetes.io/rack", "domains": []}}  # no node has the label
    places = [("node-1", ["gpu-1"])]
    cluster = a_cluster().gang("ml/tied", "q", "Running", places=places, **(topology if is_tied else {}))
    assert ("ml/tied" in {one.gang for one in find(1, 3, cluster=cluster).moves}) is not is_tied


def test_a_shape_of_the_books_is_asked_for_only_if_it_says_no_more() -> None:
    plain = '{"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}'
    picky = plain.replace('"count": 2', '"selectors": [{"cel": {"expression": "x"}}]')
    parsed = [gang_shapes.parse(f'[{{"count": 4, "claims": [{{"devices": {text}}}]}}]') for text in (plain, picky)]
    assert [gang_capacity.simple(one) for one in parsed] == [Shape(4, 2, "gpu"), None]


@pytest.mark.parametrize(
    ("pods", "devices", "name"), [(0, 1, "gpu"), (1, 33, "gpu"), (1001, 1, "gpu"), (1, 1, ""), (None, 1, "gpu")]
)
def test_a_shape_has_pods_and_devices_within_what_is_counted(pods: int | None, devices: int, name: str) -> None:
    assert gang_capacity.shape(pods, devices, name) is None
