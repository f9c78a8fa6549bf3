"""Devices that are more than whole cards: partitions, alternatives, all devices, shares and admin access."""

import pytest

from tests.controlplane import workloads
from tests.controlplane.fleet import Manifest
from tests.e2e.labs import Lab, of_profile, partitioned, plain, share, shared

GI = 2**30
ADMIN_LABEL = "resource.kubernetes.io/admin-access"


@pytest.mark.since("1.36", "partitionable devices are off")
def test_partitions_are_planned_by_their_counters_and_one_too_many_waits(lab: Lab) -> None:
    """Devices of their own names are free all the time; what runs out is the memory below them."""
    partitioned(lab, "mig", gpus=2)
    lab.device_class()
    lab.meter("memory", counter={"name": "memory"})
    team = lab.found()

    lab.submit("halves", pods=3, request=of_profile(lab, "half"))
    lab.wait_running_as_planned("halves", 3)
    lab.submit("more", pods=2, request=of_profile(lab, "half"))
    lab.submit("whole", pods=1, request=of_profile(lab, "whole"))
    lab.submit("quarters", pods=2, request=of_profile(lab, "quarter"))

    lab.wait_running_as_planned("quarters", 2)
    team.wait_held("more", "DevicesBusy")
    team.wait_held("whole", "DevicesBusy")
    lab.wait_used(memory=(0, (3 * 20 + 2 * 10) * GI))
    team.finish("halves")
    lab.wait_running("more", 2)
    team.finish("quarters")
    team.finish("more")
    lab.wait_running("whole", 1)
    lab.end("whole")


def big_or_small(lab: Lab) -> Manifest:
    options = [{"name": size, "deviceClassName": f"{size}.{lab.driver}"} for size in ("big", "small")]
    return {"name": "gpu", "firstAvailable": options}


def sizes(lab: Lab) -> None:
    """Classes and meters of big and of small devices."""
    for size in ("big", "small"):
        name = lab.device_class(f"device.attributes['{lab.driver}'].size == '{size}'", suffix=f"{size}.")
        lab.meter(size, name, count={})


def sized(size: str, count: int) -> list[Manifest]:
    return plain(count, size, attributes={"size": {"string": size}})


def test_the_alternative_that_is_chosen_is_charged(lab: Lab) -> None:
    sizes(lab)
    lab.node("mixed", [*sized("big", 1), *sized("small", 1)])
    team = lab.found()

    lab.submit("pair", pods=2, request=big_or_small(lab))

    lab.wait_running_as_planned("pair", 2)
    assert sorted(devices[0][0] for devices in lab.booked("pair", "reserve").values()) == ["gpu/big", "gpu/small"]
    lab.wait_used(big=(0, 1), small=(0, 1))
    lab.submit("third", pods=1, request=big_or_small(lab))
    team.wait_held("third", "DevicesBusy")
    lab.end("pair", "third")


def test_a_first_alternative_over_quota_is_passed_over(lab: Lab) -> None:
    """On a node where both are free kube-scheduler takes the first; so the gang goes where it is not."""
    sizes(lab)
    lab.node("a-mixed", [*sized("big", 2), *sized("small", 2)])
    small = lab.node("b-small", sized("small", 2))
    team = lab.found({lab.meters[0]: "0"})

    lab.submit("pair", pods=2, request=big_or_small(lab))
    lab.submit("trio", pods=3, request=big_or_small(lab))

    lab.wait_running_as_planned("pair", 2)
    assert lab.pinned_to("pair") == [small, small]
    lab.wait_used(big=(0, 0), small=(0, 2))
    team.wait_held("trio", "QuotaExceeded")
    lab.end("pair")


def test_a_request_for_all_devices_is_charged_for_every_device_of_the_node(lab: Lab) -> None:
    two, three = lab.node("two", plain(2)), lab.node("three", plain(3))
    lab.device_class()
    lab.meter("gpus", count={})
    team = lab.found()
    everything = {"name": "all", "exactly": {"deviceClassName": lab.driver, "allocationMode": "All"}}

    lab.submit("all", pods=2, request=everything)

    lab.wait_running_as_planned("all", 2)
    assert lab.pinned_to("all") == sorted([two, three])
    lab.wait_used(gpus=(0, 5))
    lab.submit("next", pods=1, request=everything)
    team.wait_held("next", "DevicesBusy")
    team.finish("all")
    lab.wait_running("next", 1)
    lab.end("next")


@pytest.mark.since("1.36", "shared devices are off")
def test_a_share_is_charged_for_what_it_consumes_and_a_full_device_holds_the_next_gang(lab: Lab) -> None:
    """10Gi in steps of 4Gi are 12Gi."""
    lab.node("shared", shared(1))
    lab.device_class()
    lab.meter("memory", capacity={"name": "memory"})
    team = lab.found()

    lab.submit("three", pods=3, request=share("10Gi", lab.driver))
    lab.wait_running_as_planned("three", 3)
    lab.wait_used(memory=(0, 36 * GI))
    lab.submit("five", pods=1, request=share("5Gi", lab.driver))
    lab.submit("four", pods=1, request=share("4Gi", lab.driver))

    lab.wait_running_as_planned("four", 1)
    assert "capacity" in team.wait_held("five", "DevicesBusy")["message"]
    lab.wait_used(memory=(0, 40 * GI))
    team.finish("three")
    lab.wait_running("five", 1)
    lab.wait_used(memory=(0, 12 * GI))
    lab.end("four", "five")


@pytest.mark.since("1.36", "shared devices are off")
def test_gangs_granted_in_one_cycle_see_each_others_shares(lab: Lab) -> None:
    lab.node("shared", shared(2))
    lab.device_class()
    lab.meter("memory", capacity={"name": "memory"})
    team = lab.found()
    lab.stop_queue("Hold")
    for name in ("a", "b", "c"):
        lab.submit(name, pods=2, request=share("16Gi", lab.driver))
        team.wait_held(name, "QueueStopped")

    lab.stop_queue("None")

    for name in ("a", "b"):
        lab.wait_running_as_planned(name, 2)
    team.wait_held("c", "DevicesBusy")
    assert lab.entries("a", "reserve")[0]["at"] == lab.entries("b", "reserve")[0]["at"]
    lab.wait_used(memory=(0, 64 * GI))
    team.finish("a")
    lab.wait_running("c", 2)
    lab.end("b", "c")


def test_admin_access_is_free_and_keeps_nobody_out(lab: Lab) -> None:
    label = {"metadata": {"labels": {ADMIN_LABEL: "true"}}}
    lab.client.merge_patch(f"/api/v1/namespaces/{lab.namespace.name}", label)
    lab.node("watched", plain(2))
    lab.device_class()
    lab.meter("gpus", count={})
    lab.meter("claims", claims={})
    lab.found()
    everything = {"deviceClassName": lab.driver, "allocationMode": "All", "adminAccess": True}

    lab.submit("before", pods=1, request={"name": "all", "exactly": everything})
    lab.wait_running_as_planned("before", 1)
    lab.submit("train", pods=2, request=workloads.device_request(device_class=lab.driver))
    lab.wait_running_as_planned("train", 2)
    lab.submit("after", pods=2, request={"name": "all", "exactly": everything})
    lab.wait_running_as_planned("after", 2)

    assert [len(devices) for devices in lab.allocated("after").values()] == [2, 2]
    lab.wait_used(gpus=(0, 2), claims=(0, 2))
    lab.end("before", "train", "after")
