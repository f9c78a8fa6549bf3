from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.kubernetes import devices
from admission.api.kubernetes.devices import Device, DeviceId, RequestDevice
from admission.api.muster import meters
from admission.api.muster.meters import Meter
from admission.api.values.names import MeterName
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import ChargeError, PricedDevice
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


def given(*made: Device, request: str = "gpu", admin: bool = False) -> list[PricedDevice]:
    return [
        PricedDevice(RequestDevice(request=request, device=DeviceId(DRIVER, "p", f"gpu-{at}")), device, admin)
        for at, device in enumerate(made)
    ]


def cost(meter: Meter, *made: Device, admin: bool = False) -> Any:
    claim = a_claim("c", a_request("gpu", len(made)))
    found = device_meters.charge(device_meters.compile_meters([meter]), claim.spec, given(*made, admin=admin))
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
def test_a_meter_charges_the_expected_amount_for_the_given_devices(
    meter: Meter, made: tuple[Device, ...], amount: int
) -> None:
    assert cost(meter, *made) == amount


ERRORS = {
    "a device lacks the capacity": (a_source("capacity", {"name": "links"}), "has no capacity links"),
    "a device draws from no counters": (a_source("counter", {"name": "slices"}), "draws from no counters"),
    "a price is negative": (
        a_source("expression", {"cel": "-1"}),
        "spec.sources[0].expression.cel gives -1 for device gpu.example.com/p/gpu-0; let it give 0 or more",
    ),
    "a price cannot be found": (
        a_source("expression", {"cel": "device.attributes['gpu.example.com'].size"}),
        "meter m: spec.sources[0].expression.cel fails on device gpu.example.com/p/gpu-0: no such key: size; guard it",
    ),
    "a selector fails": (
        a_source("count", selector="device.attributes['gpu.example.com'].size == 1"),
        "meter m: spec.sources[0].selector fails on device gpu.example.com/p/gpu-0: no such key: size; guard it",
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
    compiled = device_meters.compile_meters([a_meter("gpus", a_source("count")), a_meter("claims", a_source("claims"))])
    claim = a_claim("c", a_request("gpu", 2))

    assert device_meters.charge(compiled, claim.spec, given(*TWO)) == {"gpus": 2, "claims": 1}


def test_problems_of_a_meter_name_their_field() -> None:
    problems = device_meters.compile_meters(
        [a_meter("m", a_source("count"), a_source("count", selector="device.x +"))]
    ).problems

    assert [problem.field for problem in problems[M]] == ["spec.sources[1].selector"]


MENDS = {
    "a price that is not finished": ("1 +", "is no price: column 4: Syntax error: ", "finish the expression"),
    "a price that is text": ("'x'", "must evaluate to int or the unknown type, not string", "without quotes"),
    "a price that is yes or no": ("device.driver == 'x'", "not bool", "`… ? 1 : 0`"),
    "a price that is an amount of a capacity": (
        "device.capacity['gpu.example.com'].memory",
        "not kubernetes.Quantity",
        "`.asInteger()`",
    ),
    "a price with a field that devices lack": (
        "device.cost",
        "column 7: undefined field 'cost'",
        "a device has driver",
    ),
    "a price on two lines": ("1 +\n'a'", "line 1, column 3: ", "see docs/concepts.md#meters"),
    "a price of which only the error is known": ("cost(device)", "undeclared reference", "see docs/concepts.md#meters"),
}


@pytest.mark.parametrize(("cel", "wrong", "fix"), MENDS.values(), ids=MENDS)
def test_a_meter_expression_that_is_no_price_is_refused_with_the_remedy(cel: str, wrong: str, fix: str) -> None:
    (problem,) = device_meters.compile_meters([a_meter("m", a_source("expression", {"cel": cel}))]).problems[M]

    assert problem.field == "spec.sources[0].expression.cel"
    assert wrong in problem.message
    assert fix in problem.message
    assert problem.message.endswith("see docs/concepts.md#meters")


def test_a_meter_selector_that_is_no_condition_is_refused_with_the_remedy() -> None:
    texts = ("device.capacity['gpu.example.com'].memory", "device.driver = 'x'")
    sources = [a_source("count", selector=text) for text in texts]

    quantity, token = device_meters.compile_meters([a_meter("m", *sources)]).problems[M]

    assert "is no selector: must evaluate to bool" in quantity.message
    assert "compareTo" in quantity.message
    assert "write `==` to compare" in token.message


PAGE = Path(__file__).parents[3] / "docs" / "concepts.md"

DOCUMENTED = {
    "a device with nothing to read": ({}, 1),
    "a small one of another model": (
        {"attributes": {"model": {"string": "a100"}}, "capacity": {"memory": {"value": "40Gi"}}},
        1 + 4,
    ),
    "a large one": (
        {"attributes": {"model": {"string": "h100"}}, "capacity": {"memory": {"value": "80Gi"}}},
        1 + 4 + 8,
    ),
}


@pytest.mark.parametrize(("device", "amount"), DOCUMENTED.values(), ids=DOCUMENTED)
def test_the_examples_of_the_manual_count(device: dict[str, Any], amount: int) -> None:
    section = PAGE.read_text().split("\n## Meters\n")[1].split("\n## ")[0]
    manifest = yaml.safe_load(section.split("```yaml\n")[1].split("```")[0])
    compiled = device_meters.compile_meters([meters.decode(manifest)])
    bare = replace(a_device(), attributes={}, capacity={})
    made = replace(bare, **{key: getattr(a_device(**device), key) for key in device})

    charge = device_meters.price(compiled, "gpu.example.com", DeviceId(DRIVER, "p", "gpu-0"), made)

    assert compiled.problems == {}
    assert charge == {"gpu-credits": amount}


def test_classes_that_no_meter_knows_are_named() -> None:
    compiled = device_meters.compile_meters([a_meter("m", a_source("count"))])
    claim = a_claim("c", a_request(), a_request("b", deviceClassName="tpu"), a_request("c", deviceClassName="fpga"))

    assert compiled.unmetered(claim.spec) == ("fpga", "tpu")
    assert compiled.known == {CLASS}


def test_the_least_a_claim_costs_is_known_before_any_device() -> None:
    some = [
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

    assert device_meters.lower_bound(device_meters.compile_meters(some), claim.spec) == {"gpus": 5, "claims": 1}


def test_a_share_costs_at_least_what_it_asks_for() -> None:
    some = [
        a_meter("memory", a_source("capacity", {"name": "memory"})),
        a_meter("h100", a_source("capacity", {"name": "memory"}, selector=H100)),
        a_meter("cores", a_source("capacity", {"name": "cores"})),
    ]

    def least(memory: str, count: int = 1) -> Any:
        claim = a_claim("c", a_request("gpu", count, capacity={"requests": {"memory": memory}}))
        return device_meters.lower_bound(device_meters.compile_meters(some), claim.spec)

    assert least("10Gi", 2) == {"memory": 20 * 2**30}
    assert least("500m") == {"memory": 1}, "rounded up, device by device"
    assert least("1.5Gi") == {}, "Kubernetes 1.36 adds such amounts up wrongly"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1" + " + 1" * 3_000, "is too long: it has 12,001 bytes, the limit is 10,240"),
        (f"{'[1,2,3,4,5,6,7,8,9,10].all(x, ' * 6}true{')' * 6} ? 1 : 0", "is too costly"),
    ],
)
def test_a_meter_expression_that_no_api_server_accepts_is_a_problem(text: str, says: str) -> None:
    """No API server checks the CEL of Meters, so Muster does, by the same limits."""
    problems = device_meters.compile_meters([a_meter("m", a_source("expression", {"cel": text}))]).problems[
        MeterName("m")
    ]

    assert [problem.field for problem in problems] == ["spec.sources[0].expression.cel"]
    assert says in problems[0].message
