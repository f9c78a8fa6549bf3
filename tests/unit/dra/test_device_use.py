"""What allocations and plans take: devices for a claim alone, and shares of devices."""

from fractions import Fraction
from typing import Any

from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.dra.compatibility import Features
from admission.dra.requests import device_use
from admission.dra.requests.device_use import DeviceUse
from tests.unit.dra.clusters import DRIVER, a_claim, a_cluster, a_request

DEVICES = [DeviceId(DRIVER, "a", f"gpu-{at}") for at in range(3)]
NO_SHARES = Features(consumable_capacity=False)


def a_result(at: int, **fields: Any) -> AllocatedDevice:
    return AllocatedDevice(given=RequestDevice(request="gpu", device=DEVICES[at]), **fields)


def test_of_an_allocation_all_is_taken_but_what_administrators_look_at() -> None:
    allocation = Allocation(
        devices=(
            a_result(0, admin_access=True),
            a_result(1, share_id="s", consumed={"memory": Fraction(1)}),
            a_result(2),
        )
    )

    first, second = device_use.from_allocation(allocation, Features())

    assert (first.device, first.shared, dict(first.share or {})) == (DEVICES[1], True, {"memory": 1})
    assert second == DeviceUse(DEVICES[2])
    assert list(device_use.from_allocation(allocation, NO_SHARES)) == [DeviceUse(DEVICES[1]), DeviceUse(DEVICES[2])]


def test_of_a_plan_all_is_taken_but_what_administrators_look_at() -> None:
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8"}}}
    slices = a_cluster().slice("a", [{}, shared, {}]).snapshot().slices
    devices = dict(zip(DEVICES, slices["a"].devices, strict=True))
    claim = a_claim("c", a_request("look", 1, adminAccess=True), a_request(capacity={"requests": {"memory": "3"}}))
    given = [RequestDevice(request="look", device=DEVICES[0])]
    given += [RequestDevice(request="gpu", device=device) for device in DEVICES[1:]]

    first, second = device_use.from_plan(given, claim.spec, devices, Features())

    assert (first.device, first.shared, dict(first.share or {})) == (DEVICES[1], True, {"memory": 3})
    assert second == DeviceUse(DEVICES[2])
    whole = [DeviceUse(DEVICES[1]), DeviceUse(DEVICES[2])]
    assert list(device_use.from_plan(given, claim.spec, devices, NO_SHARES)) == whole
    assert list(device_use.from_plan(given[1:], claim.spec, {}, Features())) == whole
