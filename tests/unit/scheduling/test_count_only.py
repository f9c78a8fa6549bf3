"""What a gang costs when nobody looks for devices."""

from typing import Any

import pytest

from admission.api.kubernetes import claims, pods
from admission.api.muster import meters
from admission.api.values.reasons import Hold, HoldReason
from admission.dra.metering import device_meters
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state.cluster_state import ClusterState
from admission.scheduling.placement import count_only

A, B = "a.example.com", "b.example.com"


def meter(name: str, **source: Any) -> Any:
    return meters.decode({"metadata": {"name": name}, "spec": {"sources": [{"deviceClasses": [A], **source}]}})


COUNTS = device_meters.compile_meters([meter("gpus", count={}), meter("claims", claims={})])


def exactly(device_class: str = A, **more: Any) -> dict[str, Any]:
    return {"name": "r", "exactly": {"deviceClassName": device_class, **more}}


def either(*options: tuple[str, int]) -> dict[str, Any]:
    found = [{"name": f"o{at}", "deviceClassName": name, "count": count} for at, (name, count) in enumerate(options)]
    return {"name": "r", "firstAvailable": found}


def demand(name: str, *requests: dict[str, Any], claim: str = "") -> PodDemand:
    """A pod with one claim, its own or a shared one."""
    named = claim or f"{name}-claim"
    spec = {"devices": {"requests": list(requests)}}
    meta = {"name": named, "namespace": "team", "uid": f"uid-{named}"}
    pod = pods.decode({"metadata": {"name": name, "namespace": "team", "uid": name}, "spec": {}})
    return PodDemand(pod=pod, claims=(claims.decode({"metadata": meta, "spec": spec}),))


CHARGES: dict[str, tuple[list[PodDemand], dict[str, int]]] = {
    "a claim costs what it asks for": ([demand("p", exactly(count=3))], {"gpus": 3, "claims": 1}),
    "every pod's claim counts": ([demand("p", exactly()), demand("q", exactly())], {"gpus": 2, "claims": 2}),
    "a shared claim counts once": (
        [demand("p", exactly(count=2), claim="s"), demand("q", exactly(count=2), claim="s")],
        {"gpus": 2, "claims": 1},
    ),
    "of alternatives the dearest counts": ([demand("p", either((A, 1), (A, 4)))], {"gpus": 4, "claims": 1}),
    "an alternative that no meter knows is free": ([demand("p", either((B, 9), (A, 1)))], {"gpus": 1, "claims": 1}),
    "a class that no meter knows is free": ([demand("p", exactly(B))], {}),
    "administrators take nothing": ([demand("p", exactly(adminAccess=True))], {}),
}


@pytest.mark.parametrize(("demands", "charge"), CHARGES.values(), ids=CHARGES)
def test_a_counted_gang_has_the_expected_charge(demands: list[PodDemand], charge: dict[str, int]) -> None:
    plan = count_only.plan(demands, ClusterState(), COUNTS)

    assert isinstance(plan, Plan)
    assert plan.charge == charge
    assert [(pod.pod, pod.node) for pod in plan.pods] == [(d.pod.meta.key, "") for d in demands]
    assert all(holding.devices == () for holding in plan.holdings)


UNKNOWN: dict[str, tuple[Any, dict[str, Any], str]] = {
    "all devices": (meter("gpus", count={}), exactly(allocationMode="All"), "how many that are is not known"),
    "a selector": (
        meter("gpus", count={}, selector="device.driver == 'x'"),
        exactly(),
        "meter gpus needs to know the devices of class a.example.com",
    ),
    "a capacity": (meter("memory", capacity={"name": "memory"}), exactly(), "meter memory needs to know"),
    "a price": (meter("price", expression={"cel": "3"}), exactly(), "meter price needs to know"),
    "a flawed meter": (meter("gpus", count={}, selector="device.nonsense =="), exactly(), "meter gpus cannot be used"),
}


@pytest.mark.parametrize(("metered", "request_", "why"), UNKNOWN.values(), ids=UNKNOWN)
def test_a_counted_gang_whose_charge_depends_on_the_device_is_held(
    metered: Any, request_: dict[str, Any], why: str
) -> None:
    hold = count_only.plan([demand("p", request_)], ClusterState(), device_meters.compile_meters([metered]))

    assert isinstance(hold, Hold)
    assert hold.reason is HoldReason.NOT_SIMULATED
    assert why in hold.message
