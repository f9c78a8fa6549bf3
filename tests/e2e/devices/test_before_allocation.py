"""What is planned and not allocated yet: it counts, also after a restart, and what pods get in the end is booked."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.controlplane import ControlPlane
from tests.controlplane.observing import holds_for
from tests.e2e.labs import Lab, of_profile, partitioned, plain, share, shared

GI = 2**30


@pytest.mark.since("1.36", "partitions, shares and extended resources are off")
def test_what_is_planned_counts_until_it_is_allocated_also_after_a_restart(
    lab: Lab, resume: Callable[[], None]
) -> None:
    """kube-scheduler is away between the grants and the allocations, and Muster dies in that time."""
    partitioned(lab, "mig", gpus=1)
    lab.node("shared", shared(1))
    lab.node("plain", plain(2))
    resource = f"{lab.driver}/gpu"
    is_part, is_shared = f"'profile' in device.attributes['{lab.driver}']", "device.allowMultipleAllocations"
    parts = lab.device_class(is_part, suffix="part.")
    shares = lab.device_class(is_shared, suffix="share.")
    plains = lab.device_class(f"!({is_part} || {is_shared})", suffix="plain.", extendedResourceName=resource)
    lab.meter("gpus", plains, count={})
    lab.meter("devices", parts, shares, count={})
    team = lab.found()
    kinds: dict[str, dict[str, Any]] = {
        "parts": {"request": of_profile(lab, "half", deviceClassName=parts)},
        "shares": {"request": share("20Gi", shares)},
        "extended": {"resources": {resource: "1"}},
    }
    for name, asked in kinds.items():
        lab.let_in(name, pods=2, **asked)
    for name, asked in kinds.items():
        lab.submit(f"next-{name}", pods=1, **asked)
        team.wait_held(f"next-{name}", "DevicesBusy")
    lab.wait_used(devices=(4, 0), gpus=(2, 0))

    lab.muster.end(hard=True)
    lab.muster.start()

    waiting = [f"next-{name}" for name in kinds]
    holds_for(5, lambda: all(team.gated(name) for name in waiting), what="nobody else is let in")
    lab.wait_used(devices=(4, 0), gpus=(2, 0))
    resume()
    for name in kinds:
        lab.wait_running(name, 2)
        # A kube-scheduler that starts takes the pods that wait in any order.
        assert sorted(lab.allocated(name).values()) == sorted(lab.booked(name, "reserve").values())
        assert len(lab.entries(name, "reserve")) == 1
    lab.wait_used(devices=(0, 4), gpus=(0, 2))
    for name in kinds:
        team.finish(name)
        lab.wait_running(f"next-{name}", 1)
    lab.end(*waiting)


@pytest.fixture
def high(control_plane: ControlPlane) -> Iterator[str]:
    """A priority before which everything else waits at kube-scheduler."""
    client, path = control_plane.client(), "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.create(path, {"metadata": {"name": "devices-high"}, "value": 1000, "preemptionPolicy": "Never"})
    yield "devices-high"
    client.delete(f"{path}/devices-high")


@pytest.mark.since("1.36", "shared devices are off")
def test_pods_that_kube_scheduler_takes_in_another_order_are_booked_with_what_they_got(
    lab: Lab, resume: Callable[[], None], high: str
) -> None:
    """The gang that was granted first is served last, and finds its devices taken and others free."""
    lab.node("shared", shared(2))
    lab.device_class()
    lab.meter("memory", capacity={"name": "memory"})
    team = lab.found()
    lab.let_in("low", pods=2, request=share("16Gi", lab.driver))
    lab.let_in("high", pods=1, request=share("36Gi", lab.driver), priorityClassName=high)
    lab.submit("next", pods=1, request=share("12Gi", lab.driver))
    team.wait_held("next", "DevicesBusy")

    resume()

    for name, pods, device in (("low", 2, "gpu-1"), ("high", 1, "gpu-0")):
        lab.wait_running(name, pods)
        assert [given[0][3] for given in lab.allocated(name).values()] == [device] * pods
        assert lab.booked(name, "settle") != lab.booked(name, "reserve")
    lab.wait_used(memory=(0, 68 * GI))
    holds_for(3, lambda: team.gated("next"), what="12Gi are left of no device")
    team.finish("low")
    lab.wait_running("next", 1)
    lab.end("high", "next")
