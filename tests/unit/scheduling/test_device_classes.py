"""Classes that do not exist, or that no Meter counts, and which of the two is told."""

from admission.api.kubernetes import devices
from admission.api.muster import queues
from admission.api.snapshot import Snapshot
from admission.dra.metering import device_meters
from admission.scheduling.checks import device_classes
from tests.unit.dra.clusters import CLASS, a_claim, a_meter, a_pod, a_request, a_source

KNOWN = Snapshot(classes={name: devices.decode_class({"metadata": {"name": name}}) for name in (CLASS, "gpu.large")})
METERS = device_meters.compile_meters([a_meter("gpus", a_source("count", {}, CLASS, "gpv"))])
QUEUE = queues.decode({"metadata": {"name": "q"}, "spec": {}})


def test_a_class_that_does_not_exist_holds_the_gang_with_the_nearest_names() -> None:
    pods = (a_pod("a", 1), a_pod("b", a_request("card", deviceClassName="gpv")))

    hold = device_classes.missing(pods, KNOWN)

    assert hold is not None
    assert hold.message == (
        "pod b: request card of claim b-0 asks for device class gpv, which does not exist; did you mean gpu?"
    )
    assert hold.details == {"pod": "b", "claim": "b-0", "request": "card", "deviceClass": "gpv"}


def test_a_class_with_nothing_near_is_to_be_created() -> None:
    hold = device_classes.missing((a_pod("a", a_request(deviceClassName="fpga.example.com")),), KNOWN)

    assert hold is not None
    assert hold.message.endswith(
        "fpga.example.com, which does not exist; create it, or name another one (there are: gpu, gpu.large)"
    )


def test_a_class_of_a_claim_that_has_its_devices_may_be_gone() -> None:
    results = [{"request": "gpu", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}]
    claim = a_claim("old", a_request(deviceClassName="gone"), allocation={"devices": {"results": results}})

    assert device_classes.missing((a_pod("a", claim),), KNOWN) is None


def test_of_classes_that_no_meter_counts_one_that_does_not_exist_is_told() -> None:
    pod = a_pod(
        "a", a_claim("c", a_request("x", deviceClassName="gpu.large"), a_request("y", deviceClassName="gpu.lrge"))
    )

    denial = device_classes.unmetered((pod,), QUEUE, METERS, KNOWN.classes)

    assert denial is not None
    assert denial.message == (
        "claim team/c asks for class gpu.lrge, which does not exist and which no Meter counts; did you mean gpu.large?"
    )


def test_a_class_that_exists_and_that_no_meter_counts_is_to_be_added_to_one() -> None:
    denial = device_classes.unmetered(
        (a_pod("a", a_request(deviceClassName="gpu.large")),), QUEUE, METERS, KNOWN.classes
    )

    assert denial is not None
    assert "gpu.large, which no Meter counts; add it to the sources of a Meter" in denial.message
    assert device_classes.unmetered((a_pod("a", 1),), QUEUE, METERS, KNOWN.classes) is None
