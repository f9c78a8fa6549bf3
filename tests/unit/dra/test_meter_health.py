"""Meters whose CEL fails on devices are found before a gang asks, and no device is looked at twice for it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceClass
from admission.api.muster.meters import Meter
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters, meter_health
from admission.dra.metering.device_meters import Meters
from admission.dra.metering.meter_health import NOTHING, MeterHealth
from tests.unit.dra.clusters import CLASS, ClusterBuilder, a_cluster, a_meter, a_source

SIZE = "device.attributes['gpu.example.com'].size"
SIZED = {"attributes": {"size": {"int": 4}}}
PRICE = a_meter("price", a_source("expression", {"cel": SIZE}))


def look(cluster: ClusterBuilder, *meters: Meter, before: MeterHealth = NOTHING, most: int = 100) -> MeterHealth:
    snapshot = cluster.snapshot()
    return meter_health.check(
        device_meters.compile_meters(meters),
        snapshot.slices,
        snapshot.classes,
        selectors=Selectors(),
        before=before,
        most=most,
    )


def found(health: MeterHealth) -> dict[str, str]:
    return {name: failure.message for name, failure in health.failures.items()}


def test_the_first_device_on_which_a_price_fails_is_named() -> None:
    (message,) = found(look(a_cluster().node("a", gpus=[SIZED, {}, {}]).node("b", gpus=2), PRICE)).values()

    assert message.startswith("meter price: spec.sources[0].expression.cel fails on device gpu.example.com/a/gpu-1: ")


FINE: dict[str, tuple[ClusterBuilder, Meter]] = {
    "every device has what is asked": (a_cluster().node("a", gpus=[SIZED]), PRICE),
    "a guard keeps others out": (
        a_cluster().node("a", gpus=[{}]),
        a_meter("price", a_source("expression", {"cel": f"has({SIZE}) ? {SIZE} : 0"})),
    ),
    "a device that the class does not select": (
        a_cluster().device_class("small", "device.driver == 'other.example.com'").node("a", gpus=1),
        a_meter("price", a_source("expression", {"cel": SIZE}, "small")),
    ),
    "a class that is not there": (
        a_cluster().node("a", gpus=1),
        a_meter("price", a_source("expression", {"cel": SIZE}, "none")),
    ),
    "a device of an older generation of its pool": (
        a_cluster().slice("old", 1, pool="p").slice("new", [SIZED], pool="p", generation=2),
        PRICE,
    ),
    "a meter that has a flaw already": (
        a_cluster().node("a", gpus=1),
        a_meter("price", a_source("expression", {"cel": SIZE}), a_source("expression", {"cel": "1 +"})),
    ),
}


@pytest.mark.parametrize(("cluster", "meter"), FINE.values(), ids=FINE)
def test_a_sound_meter_has_no_problem(cluster: ClusterBuilder, meter: Meter) -> None:
    assert found(look(cluster, meter)) == {}


UNCOUNTABLE: dict[str, tuple[dict[str, Any], str]] = {
    "a negative price": (a_source("expression", {"cel": "-1"}), "gives -1 for device"),
    "a selector of claims": (a_source("claims", selector=f"{SIZE} > 1"), "spec.sources[0].selector fails on device"),
    "a capacity that is not there": (a_source("capacity", {"name": "memory"}), "has no capacity memory"),
}


@pytest.mark.parametrize(("source", "says"), UNCOUNTABLE.values(), ids=UNCOUNTABLE)
def test_a_meter_that_cannot_price_a_device_is_reported_with_the_reason(source: dict[str, Any], says: str) -> None:
    assert says in found(look(a_cluster().node("a", gpus=1), a_meter("price", source)))["price"]


def test_a_meter_health_check_examines_a_bounded_number_of_devices_and_the_next_continues() -> None:
    cluster = a_cluster().node("a", gpus=[SIZED] * 2).node("b", gpus=[SIZED] * 2).node("c", gpus=1)
    meters, snapshot, selectors = device_meters.compile_meters([PRICE]), cluster.snapshot(), Selectors()

    def again(before: MeterHealth) -> MeterHealth:
        return meter_health.check(meters, snapshot.slices, snapshot.classes, selectors=selectors, before=before, most=3)

    first = again(NOTHING)
    second = again(first)

    assert (first.left, found(first)) == (1, {})
    assert (second.left, list(found(second))) == (0, ["price"])
    assert again(second) is second


def test_a_meter_health_check_examines_changed_slices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, meters = (
        a_cluster().node("a", gpus=2).node("b", gpus=[SIZED]).snapshot(),
        device_meters.compile_meters([PRICE]),
    )
    before = meter_health.check(meters, snapshot.slices, snapshot.classes, selectors=Selectors())
    looked = _looked_at(monkeypatch)

    changed = {**snapshot.slices, "b": replace(snapshot.slices["b"], devices=snapshot.slices["b"].devices * 2)}
    after = meter_health.check(meters, changed, snapshot.classes, selectors=Selectors(), before=before)

    assert looked == ["b/gpu-0", "b/gpu-0"]
    assert found(after) == found(before)


def test_meters_that_only_count_examine_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = _looked_at(monkeypatch)

    health = look(a_cluster().node("a", gpus=2).node("b", gpus=2), a_meter("gpus", a_source("count")), most=1)

    assert (looked, health.left) == ([], 0)


def _looked_at(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    looked: list[str] = []
    original = device_meters.failure

    def failure(meters: Meters, name: Any, device_class: str, device_id: Any, device: Any) -> Any:
        looked.append(f"{device_id.pool}/{device_id.device}")
        return original(meters, name, device_class, device_id, device)

    monkeypatch.setattr(device_meters, "failure", failure)
    return looked


def test_a_meter_health_check_starts_over_for_other_meters_or_classes() -> None:
    snapshot, meters = a_cluster().node("a", gpus=1).snapshot(), device_meters.compile_meters([PRICE])
    none = a_cluster().device_class(CLASS, "false").snapshot().classes

    def again(before: MeterHealth, using: Meters, classes: Mapping[str, DeviceClass]) -> MeterHealth:
        return meter_health.check(using, snapshot.slices, classes, selectors=Selectors(), before=before)

    first = again(NOTHING, meters, snapshot.classes)
    assert list(found(first)) == ["price"]
    assert found(again(first, meters, none)) == {}
    assert found(again(first, device_meters.NONE, snapshot.classes)) == {}
