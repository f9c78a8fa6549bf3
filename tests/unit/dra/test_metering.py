from typing import Any

import pytest

from admission.api import devices
from admission.api.devices import Device, DeviceId
from admission.api.entries import RequestDevice
from admission.api.meters import Meter
from admission.api.names import MeterName
from admission.dra import metering
from admission.dra.metering import ChargeError, Given
from tests.unit.dra.clusters import CLASS, DRIVER, a_claim, a_meter, a_request, a_source

M = MeterName("m")
PRICE = "device.attributes['gpu.example.com'].model == 'h100' ? 4 : 1"


def a_device(model: str = "a100", **more: Any) -> Device:
    spec = {
        "driver": DRIVER,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {"model": {"string": model}},
                "capacity": {"memory": {"value": "80Gi"}, "other.example.com/links": {"value": "2500m"}},
                **more,
            }
        ],
    }
    return devices.decode_slice({"metadata": {"name": "s"}, "spec": spec}).devices[0]


def given(*made: Device, request: str = "gpu", admin: bool = False) -> list[Given]:
    return [
        Given(RequestDevice(request=request, device=DeviceId(DRIVER, "p", f"gpu-{at}")), device, admin)
        for at, device in enumerate(made)
    ]


def cost(meter: Meter, *made: Device, admin: bool = False) -> Any:
    claim = a_claim("c", a_request("gpu", len(made)))
    found = metering.charge(metering.compile_meters([meter]), claim.spec, given(*made, admin=admin))
    return found.message if isinstance(found, ChargeError) else found.get(M, 0)


TWO = (a_device(), a_device("h100"))
DRAWS = a_device(consumesCounters=[{"counterSet": "card", "counters": {"slices": {"value": "3"}}}])
H100 = "device.attributes['gpu.example.com'].model == 'h100'"

AMOUNTS = {
    "a claim counts once, however many devices it has": (a_meter("m", a_source("claims")), TWO, 1),
    "every device counts": (a_meter("m", a_source("count")), TWO, 2),
    "a selector chooses what counts": (a_meter("m", a_source("count", selector=H100)), TWO, 1),
    "a claim counts where one of its devices is selected": (a_meter("m", a_source("claims", selector=H100)), TWO, 1),
    "and not where none is": (a_meter("m", a_source("claims", selector=H100)), TWO[:1], 0),
    "a class of another meter is not charged": (a_meter("m", a_source("count", None, "tpu")), TWO, 0),
    "capacity is whole and in base units": (a_meter("m", a_source("capacity", {"name": "memory"})), TWO, 160 << 30),
    "a name may carry the driver's domain": (
        a_meter("m", a_source("capacity", {"name": f"{DRIVER}/memory"})),
        TWO,
        160 << 30,
    ),
    "a fraction is rounded up, device by device": (
        a_meter("m", a_source("capacity", {"name": "other.example.com/links"})),
        TWO,
        6,
    ),
    "counters are what the device draws": (a_meter("m", a_source("counter", {"name": "slices"})), (DRAWS,), 3),
    "a counter of another set is not drawn from": (
        a_meter("m", a_source("counter", {"name": "slices", "counterSet": "other"})),
        (DRAWS,),
        0,
    ),
    "a price is what the expression says": (a_meter("m", a_source("expression", {"cel": PRICE})), TWO, 5),
    "sources add up": (a_meter("m", a_source("count"), a_source("expression", {"cel": PRICE})), TWO, 7),
}


@pytest.mark.parametrize(("meter", "made", "amount"), AMOUNTS.values(), ids=AMOUNTS)
def test_charge(meter: Meter, made: tuple[Device, ...], amount: int) -> None:
    assert cost(meter, *made) == amount


ERRORS = {
    "a device lacks the capacity": (a_source("capacity", {"name": "links"}), "has no capacity links"),
    "a device draws from no counters": (a_source("counter", {"name": "slices"}), "draws from no counters"),
    "a price is negative": (a_source("expression", {"cel": "-1"}), "gives -1"),
    "a price cannot be found": (
        a_source("expression", {"cel": "device.attributes['gpu.example.com'].size"}),
        "no such key: size",
    ),
    "a selector fails": (
        a_source("count", selector="device.attributes['gpu.example.com'].size == 1"),
        "the selector of meter m fails",
    ),
    "an expression does not compile": (
        a_source("expression", {"cel": "1 +"}),
        "meter m cannot be used: spec.sources[0].expression",
    ),
}


@pytest.mark.parametrize(("source", "says"), ERRORS.values(), ids=ERRORS)
def test_a_device_is_never_free_by_accident(source: dict[str, Any], says: str) -> None:
    assert says in cost(a_meter("m", source), a_device())


def test_administration_is_free_unless_the_meter_charges_it() -> None:
    assert cost(a_meter("m", a_source("count")), a_device(), admin=True) == 0
    assert cost(a_meter("m", a_source("count"), adminAccess="Charge"), a_device(), admin=True) == 1


def test_several_meters_may_charge_one_device() -> None:
    compiled = metering.compile_meters([a_meter("gpus", a_source("count")), a_meter("claims", a_source("claims"))])
    claim = a_claim("c", a_request("gpu", 2))

    assert metering.charge(compiled, claim.spec, given(*TWO)) == {"gpus": 2, "claims": 1}


def test_flaws_of_a_meter_name_their_field() -> None:
    flaws = metering.compile_meters([a_meter("m", a_source("count"), a_source("count", selector="device.x +"))]).flaws

    assert [flaw.field for flaw in flaws[M]] == ["spec.sources[1].selector"]


def test_classes_that_no_meter_knows_are_named() -> None:
    compiled = metering.compile_meters([a_meter("m", a_source("count"))])
    claim = a_claim("c", a_request(), a_request("b", deviceClassName="tpu"), a_request("c", deviceClassName="fpga"))

    assert compiled.unmetered(claim.spec) == ("fpga", "tpu")
    assert compiled.known == {CLASS}


def test_the_least_a_claim_costs_is_known_before_any_device() -> None:
    meters = [
        a_meter("gpus", a_source("count")),
        a_meter("claims", a_source("claims")),
        a_meter("h100", a_source("count", selector=H100)),
        a_meter("memory", a_source("capacity", {"name": "memory"})),
    ]
    alternatives = [
        {"name": "many", "deviceClassName": CLASS, "count": 4},
        {"name": "few", "deviceClassName": CLASS, "count": 2},
    ]
    claim = a_claim("c", a_request("gpu", 3), {"name": "or", "firstAvailable": alternatives})

    assert metering.lower_bound(metering.compile_meters(meters), claim.spec) == {"gpus": 5, "claims": 1}
