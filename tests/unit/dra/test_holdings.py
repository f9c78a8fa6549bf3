"""What is held: devices by class, and what device plugins gave, with its charge."""

from collections.abc import Mapping
from typing import Any

import pytest

from admission.api.kubernetes.claims import Claim, ClaimSpec
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.meters import Meter
from admission.api.values.names import Uid
from admission.dra.metering import device_meters, holdings
from admission.dra.requests.gang_request import Plan
from tests.unit.dra.clusters import CLASS, DRIVER, a_claim, a_cluster, a_meter, a_pod, a_request, a_source

GPU, NIC, HIDDEN = "example.com/gpu", "example.com/nic", "example.com/hidden"

EITHER = {
    "name": "gpu",
    "firstAvailable": [
        {"name": "large", "deviceClassName": "large", "count": 1},
        {"name": "small", "deviceClassName": "small", "count": 2},
    ],
}
SHARED = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}
FREE, PAID = (a_meter("m", a_source("count"), adminAccess=access) for access in ("Free", "Charge"))
OTHERS = a_meter("m", a_source("count", None, "others"), adminAccess="Charge")


def given(*requests: str, admin: bool = False) -> list[tuple[RequestDevice, bool]]:
    return [
        (RequestDevice(request=name, device=DeviceId(DRIVER, "p", str(at))), admin) for at, name in enumerate(requests)
    ]


CLASSES: dict[str, tuple[Claim, list[tuple[RequestDevice, bool]], Meter, Mapping[str, int]]] = {
    "each device counts for the class of its request": (
        a_claim("c", a_request("gpu", 2), a_request("nic", deviceClassName="nic")),
        given("gpu", "gpu", "nic"),
        FREE,
        {CLASS: 2, "nic": 1},
    ),
    "of alternatives the one that was chosen": (
        a_claim("c", EITHER),
        given("gpu/small", "gpu/small"),
        FREE,
        {"small": 2},
    ),
    "of All what there was": (
        a_claim("c", {"name": "gpu", "exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}),
        given("gpu", "gpu", "gpu"),
        FREE,
        {CLASS: 3},
    ),
    "under admin access nothing is held": (a_claim("c", a_request("gpu", 2)), given("gpu", admin=True), FREE, {}),
    "unless a meter charges that": (a_claim("c", a_request("gpu", 2)), given("gpu", admin=True), PAID, {CLASS: 1}),
    "for this very class": (a_claim("c", a_request("gpu", 2)), given("gpu", admin=True), OTHERS, {}),
    "a request that the claim does not have counts for nothing": (a_claim("c", a_request()), given("x"), FREE, {}),
    "also where no meter knows the class": (a_claim("c", a_request()), given("gpu"), OTHERS, {CLASS: 1}),
}


@pytest.mark.parametrize(("claim", "entries", "meter", "classes"), CLASSES.values(), ids=CLASSES)
def test_a_holding_counts_devices_by_device_class(
    claim: Claim, entries: list[tuple[RequestDevice, bool]], meter: Meter, classes: Mapping[str, int]
) -> None:
    assert holdings.classes(device_meters.compile_meters([meter]), claim.spec, entries) == classes


LISTS = [
    a_meter("gpus", a_source("count"), extendedResources=[GPU]),
    a_meter("parts", extendedResources=[GPU, NIC, GPU]),
    a_meter("devices", a_source("count")),
    a_meter("hidden", extendedResources=[HIDDEN]),
]


def test_a_resource_is_charged_once_on_every_meter_that_lists_it() -> None:
    compiled = device_meters.compile_meters(LISTS)
    asked = {"cpu": 4000, "hugepages-2Mi": 2, GPU: 4, NIC: 1, "example.com/other": 9}

    held = holdings.of_pod(compiled, Uid("pod"), "team/p", holdings.of_node(asked))

    assert held is not None
    assert (held.claim_uid, held.claim, held.devices) == ("pod/device-plugin", "team/p", ())
    assert held.charge == {"gpus": 4, "parts": 5}
    assert held.classes == {GPU: 4, NIC: 1}


def test_a_pod_whose_resources_no_meter_lists_holds_nothing() -> None:
    compiled = device_meters.compile_meters(LISTS)

    for asked in ({}, {"cpu": 1, "memory": 2}, {"example.com/other": 9}, {GPU: 0}):
        assert holdings.of_pod(compiled, Uid("pod"), "team/p", holdings.of_node(asked)) is None


GPUS_CLAIMED = a_claim("c", a_request("gpu", 4)).spec
NICS_CLAIMED = a_claim("c", a_request("nic", 1, deviceClassName="nic")).spec
LEAST: dict[str, tuple[dict[str, int], Mapping[str, ClaimSpec], Mapping[str, int]]] = {
    "what plugins alone serve is certain": ({GPU: 4, NIC: 1}, {}, {"gpus": 4, "parts": 5}),
    "what devices may serve instead costs what both ways cost": ({GPU: 4}, {GPU: GPUS_CLAIMED}, {"gpus": 4}),
    "what plugins alone serve is certain beside what devices serve for nothing": (
        {GPU: 4, NIC: 1, HIDDEN: 1},
        {GPU: GPUS_CLAIMED},
        {"gpus": 4, "parts": 1, "hidden": 1},
    ),
    "beside what plugins alone serve": ({GPU: 4, NIC: 1}, {GPU: GPUS_CLAIMED}, {"gpus": 4, "parts": 1}),
    "of many that devices may serve nothing is certain": (
        {GPU: 4, NIC: 1},
        {GPU: GPUS_CLAIMED, **{f"example.com/{at}": NICS_CLAIMED for at in range(4)}},
        {"parts": 1},
    ),
}


@pytest.mark.parametrize(("asked", "offered", "least"), LEAST.values(), ids=LEAST)
def test_the_least_that_extended_resources_cost(
    asked: dict[str, int], offered: Mapping[str, ClaimSpec], least: Mapping[str, int]
) -> None:
    assert holdings.least(device_meters.compile_meters(LISTS), asked, offered) == least


def test_the_least_of_two_extended_resources_may_be_one_from_a_plugin_and_one_from_devices() -> None:
    meter = a_meter("m", a_source("count", None, "nic"), extendedResources=[GPU])
    offered = {GPU: GPUS_CLAIMED, NIC: NICS_CLAIMED}

    assert holdings.least(device_meters.compile_meters([meter]), {GPU: 4, NIC: 1}, offered) == {}


PLANS: dict[str, tuple[dict[str, Any], Mapping[str, int], Mapping[str, int]]] = {
    "alternatives": (EITHER, {"m": 2}, {"small": 2}),
    "All": ({"name": "gpu", "exactly": {"deviceClassName": "small", "allocationMode": "All"}}, {"m": 2}, {"small": 2}),
    "free admin access": (
        {"name": "gpu", "exactly": {"deviceClassName": "small", "allocationMode": "All", "adminAccess": True}},
        {},
        {},
    ),
}


@pytest.mark.parametrize(("request_", "charge", "classes"), PLANS.values(), ids=PLANS)
def test_a_plan_says_what_every_claim_will_hold(
    request_: dict[str, Any], charge: Mapping[str, int], classes: Mapping[str, int]
) -> None:
    cluster = a_cluster().device_class("large", "false").device_class("small").node("a", gpus=2)
    compiled = device_meters.compile_meters([a_meter("m", a_source("count", None, "large", "small"))])

    plan = cluster.plan(a_pod("p", a_claim("c", request_)), meters=compiled)

    assert isinstance(plan, Plan)
    (held,) = plan.holdings
    assert (held.claim, held.charge, held.classes) == ("team/c", charge, classes)
    assert len(held.devices) == 2


def test_a_plan_says_how_many_shares_of_devices_a_claim_will_hold() -> None:
    shares = [{**a_request(name, capacity={"requests": {"memory": "10Gi"}})} for name in ("one", "two")]
    cluster = a_cluster().node("a", gpus=[SHARED])
    compiled = device_meters.compile_meters([a_meter("m", a_source("capacity", {"name": "memory"}))])

    plan = cluster.plan(a_pod("p", *shares), meters=compiled)

    assert isinstance(plan, Plan)
    assert [(held.classes, held.charge) for held in plan.holdings] == [({CLASS: 1}, {"m": 10 << 30})] * 2
