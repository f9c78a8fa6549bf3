"""The page's part about allocated devices: what Prometheus reads of it, and that it is bounded."""

from prometheus_client.parser import text_string_to_metric_families

from admission.cycle.state.result import CycleResult
from admission.status.device_allocations import DeviceAllocation
from admission.telemetry import metric_catalog
from admission.telemetry.metrics import Metrics

LABELS = metric_catalog.ALLOCATIONS.label_names


def a_device(name: str, **values: str) -> DeviceAllocation:
    return DeviceAllocation(*LABELS)._replace(device=name, **values)


def shown(metrics: Metrics) -> tuple[list[dict[str, str]] | None, float | None]:
    """Return the labels of every allocated device on the page, and how many are left out; None without a family."""
    page, _ = metrics.render([], {})
    families = {family.name: family.samples for family in text_string_to_metric_families(page.decode())}
    info, omitted = families.get("muster_device_allocation_info"), families.get("muster_device_allocations_omitted")
    assert all(sample.value == 1 for sample in info or ())
    devices = [sample.labels for sample in info] if info is not None else None
    return devices, omitted[0].value if omitted else None


def leader(allocations: int) -> Metrics:
    metrics = Metrics(allocations=allocations)
    metrics.set_term(7)
    return metrics


def test_every_allocated_device_has_a_series_with_what_is_known_of_it() -> None:
    metrics, odd = leader(9), a_device("gpu-1", uuid='a "b" \\ c\nd', pod="")

    metrics.record_cycle(CycleResult(allocations={"ml/c": (a_device("gpu-0"), odd)}), 0.1)

    assert shown(metrics) == (
        [dict(zip(LABELS, device, strict=True)) for device in (a_device("gpu-0"), odd)],
        0,
    )


def test_the_series_follow_what_changes_and_end_with_the_term() -> None:
    metrics, one, other = leader(9), (a_device("gpu-0"),), (a_device("gpu-1"),)
    metrics.record_cycle(CycleResult(allocations={"ml/c": one, "ml/d": other}), 0.1)
    first = shown(metrics)
    metrics.record_cycle(CycleResult(allocations={"ml/d": (a_device("gpu-2"),)}), 0.1)
    second = shown(metrics)
    metrics.set_term(None)

    devices = [[labels["device"] for labels in found or ()] for found, _ in (first, second)]
    assert devices == [["gpu-0", "gpu-1"], ["gpu-2"]]
    assert shown(metrics) == ([], None)


def test_devices_beyond_the_bound_are_counted_and_the_others_stay_the_same() -> None:
    metrics = leader(3)
    claims = {f"ml/{name}": (a_device(f"{name}-0"), a_device(f"{name}-1")) for name in "cab"}

    metrics.record_cycle(CycleResult(allocations=claims), 0.1)

    found, omitted = shown(metrics)
    assert [labels["device"] for labels in found or ()] == ["a-0", "a-1", "b-0"]
    assert omitted == 3


def test_nothing_is_exported_of_devices_where_the_settings_say_so() -> None:
    metrics = leader(0)

    metrics.record_cycle(CycleResult(allocations={"ml/c": (a_device("gpu-0"),)}), 0.1)

    assert shown(metrics) == (None, None)
