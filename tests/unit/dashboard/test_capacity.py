"""Capacity by class: what is used, free and closed, also where a physical device is handed out in parts."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from admission.api.kubernetes import devices
from admission.api.kubernetes.devices import DeviceClass
from admission.dashboard.devices import capacity, inventory
from admission.dashboard.devices.capacity import ClassCapacity, ClassMembers
from admission.dashboard.devices.inventory import DeviceHolders, Inventory
from tests.dashboard_clusters import DRIVER, Cluster


def a_class(name: str, *texts: str) -> DeviceClass:
    selectors = [{"cel": {"expression": text}} for text in texts]
    return devices.decode_class({"metadata": {"name": name}, "spec": {"selectors": selectors}})


def classes(**texts: str) -> Mapping[str, DeviceClass]:
    return {name: a_class(name, text) for name, text in texts.items()}


GPU = classes(gpu=f"device.driver == '{DRIVER}'", other="device.driver == 'other.example.com'")


def counted(
    cluster: Cluster, known: Mapping[str, DeviceClass] = GPU, outside: Mapping[str, int] | None = None
) -> list[ClassCapacity]:
    seen = cluster.observe()
    units = inventory.inventory(seen.slices.values())
    return capacity.capacity(
        ClassMembers().updated(known, seen.slices, units),
        units,
        DeviceHolders().updated(seen.claims, seen.gangs).holders,
        seen.nodes,
        outside or {},
    )


def a_device(node: str, name: str) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": node, "device": name}


CLUSTERS: dict[str, tuple[Cluster, Sequence[int]]] = {
    "all free": (Cluster().node("a"), (8, 0, 0, 8)),
    "two allocated": (Cluster().node("a").claim("x/c", [a_device("a", "gpu-0"), a_device("a", "gpu-1")]), (8, 2, 0, 6)),
    "promised, and not allocated yet": (
        Cluster().node("a").gang("x/g", "q", "Reserved", places=[("a", ["gpu-0"])], allocated=False),
        (8, 1, 0, 7),
    ),
    "a cordoned node, of which one is still used": (
        Cluster().node("a", cordoned=True).claim("x/c", [a_device("a", "gpu-0")]),
        (8, 1, 7, 0),
    ),
    "half of a partitioned device takes away the whole, and no other part": (
        Cluster().parted_node("a", gpus=1).claim("x/c", [a_device("a", "gpu-0-half-0")]),
        (5, 2, 0, 3),
    ),
    "an allocation of a device that is not published any more": (
        Cluster().node("a").claim("x/c", [a_device("gone", "gpu-0")]),
        (8, 0, 0, 8),
    ),
}


@pytest.mark.parametrize(("cluster", "numbers"), CLUSTERS.values(), ids=CLUSTERS)
def test_capacity_of_a_class(cluster: Cluster, numbers: Sequence[int]) -> None:
    [gpu] = counted(cluster)

    assert (gpu.devices, gpu.used, gpu.closed, gpu.free) == tuple(numbers)


def test_a_class_without_devices_is_shown_only_if_some_are_held_outside_queues() -> None:
    found = counted(Cluster().node("a"), outside={"other": 2})

    assert [(one.name, one.devices, one.outside) for one in found] == [("gpu", 8, 0), ("other", 0, 2)]


def test_only_slices_and_classes_that_changed_are_evaluated_again() -> None:
    one, two = Cluster().node("a").observe().slices, Cluster().node("b").observe().slices
    units = inventory.inventory([*one.values(), *two.values()])
    first = ClassMembers().updated(GPU, one, units)

    both = first.updated(GPU, {**one, **two}, units)
    fewer = both.updated(classes(gpu="false"), {**one, **two}, units)

    assert first.updated(GPU, one, units) is first
    assert both.slices["a-0"] is first.slices["a-0"]
    assert (len(first.devices["gpu"]), len(both.devices["gpu"]), len(fewer.devices["gpu"])) == (8, 16, 0)


def test_with_too_many_classes_those_that_a_meter_counts_are_kept() -> None:
    many = classes(**{f"c{number:03}": "true" for number in range(capacity.MOST_CLASSES + 5)})
    members = ClassMembers().updated(many, {}, Inventory({}), {"c068"})

    assert len(members.devices) == capacity.MOST_CLASSES
    assert {"c068", "c000"} <= members.devices.keys()
