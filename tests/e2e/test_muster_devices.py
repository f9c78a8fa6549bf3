"""Muster on a real control plane with devices that are more than whole cards, from the gate to the last release.

Partitions, alternatives, all devices, shares, admin access, extended resources and taints by rule. One Muster serves
all tests; each has a driver, a class, meters and a team of its own, so that none sees what another left.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, workloads
from tests.controlplane.fleet import COLLECTIONS, Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import barriers
from tests.e2e.labs import Lab, of_profile, partitioned, plain, share, shared
from tests.e2e.musters import OWN_TRACEBACK, Muster
from tests.e2e.teams import GROUP

GI = 2**30
ADMIN_LABEL = "resource.kubernetes.io/admin-access"

numbers = itertools.count(1)


@pytest.fixture(scope="module")
def running(control_plane: ControlPlane) -> Iterator[Muster]:
    muster = Muster(control_plane).start()
    yield muster
    log = muster.log
    muster.clean()
    assert not OWN_TRACEBACK.search(log)


@pytest.fixture
def lab(control_plane: ControlPlane, running: Muster, namespace: Namespace) -> Iterator[Lab]:
    number = f"lab{next(numbers)}"
    lab = Lab(control_plane=control_plane, muster=running, namespace=namespace, driver=f"{number}.test")
    yield lab
    lab.clear()


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


def test_all_is_charged_for_what_it_finds(lab: Lab) -> None:
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


def extended(lab: Lab) -> str:
    """Offer the driver's devices as an extended resource, and return its name."""
    resource = f"{lab.driver}/gpu"
    lab.device_class(extendedResourceName=resource)
    lab.meter("gpus", count={})
    lab.meter("claims", claims={})
    return resource


def test_extended_resources_are_planned_settled_and_released_with_their_pods(lab: Lab) -> None:
    resource = extended(lab)
    lab.node("extended", plain(4))
    team = lab.found()

    lab.submit("train", pods=3, resources={resource: "1"})
    lab.wait_running_as_planned("train", 3)
    lab.wait_used(gpus=(0, 3), claims=(0, 3))
    lab.submit("next", pods=1, resources={resource: "2"})
    assert "train" in team.wait_held("next", "DevicesBusy")["message"]
    team.finish("train")

    lab.wait_running("next", 1)
    lab.wait_used(gpus=(0, 2), claims=(0, 1))
    lab.end("next")


def test_extended_resources_beside_a_claim_over_quota_are_held(lab: Lab) -> None:
    resource = extended(lab)
    lab.node("extended", plain(4))
    team = lab.found({lab.meters[0]: "3"})
    own = workloads.device_request(device_class=lab.driver)

    lab.submit("two", pods=1, request=own, resources={resource: "2"})
    lab.wait_running_as_planned("two", 1)
    lab.wait_used(gpus=(0, 3), claims=(0, 2))
    lab.submit("more", pods=1, resources={resource: "1"})
    assert team.wait_held("more", "QuotaExceeded")["details"]["left"] == "0"
    team.finish("two")

    lab.wait_running("more", 1)
    lab.end("more")


def test_a_claim_that_only_says_that_it_is_for_extended_resources_stays_what_it_is(lab: Lab) -> None:
    """Whoever may write a claim may annotate it as kube-scheduler does its own; the team must not get it for free."""
    resource = extended(lab)
    lab.node("extended", plain(4))
    lab.found()
    own = workloads.device_request(device_class=lab.driver)
    lab.submit("train", pods=1, request=own, resources={resource: "2"})
    lab.wait_running_as_planned("train", 1)
    lab.wait_used(gpus=(0, 3), claims=(0, 2))

    (pod,) = lab.team.pods("train")
    name = pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    annotated = {"metadata": {"annotations": {"resource.kubernetes.io/extended-resource-claim": "true"}}}
    lab.client.merge_patch(f"{lab.namespace.claims}/{name}", annotated)

    holds_for(4, lambda: lab.used(lab.meters[0]) == (0, 3), what="it is charged")
    assert lab.entries("train", "adjust") == lab.entries("train", "release") == []
    lab.end("train")


def plugin_node(lab: Lab, name: str, **resources: str) -> str:
    """Add a node whose device plugins have these resources."""
    node = lab.node(name, [])
    has_plugins(lab, node, resources)
    return node


def has_plugins(lab: Lab, node: str, resources: Mapping[str, str]) -> None:
    status = {"allocatable": resources, "capacity": resources}
    lab.client.merge_patch(f"{COLLECTIONS['Node']}/{node}/status", {"status": status})


def plugged(lab: Lab, name: str, kind: str) -> list[tuple[dict[str, int], dict[str, int]]]:
    """Return what the books say that pods of a Job have of device plugins: charge and classes of each."""
    holdings = [one for row in lab.entries(name, kind) for one in json.loads(row["holdings"])]
    found = [one for one in holdings if one["claim_uid"].endswith("/device-plugin")]
    assert all(one["devices"] == [] for one in found)
    return [({meter: int(amount) for meter, amount in one["charge"].items()}, one["classes"]) for one in found]


def test_pods_of_a_device_plugin_and_of_devices_draw_on_one_quota(lab: Lab) -> None:
    resource = f"{lab.driver}/gpu"
    lab.device_class(extendedResourceName=resource)
    meter = lab.meter("gpus", count={})
    lab.client.merge_patch(f"{GROUP}/meters/{meter}", {"spec": {"extendedResources": [resource]}})
    lab.node("devices", plain(1))
    old = plugin_node(lab, "plugin", **{resource: "4"})
    team = lab.found({meter: "5"})

    with pytest.raises(ApiError, match="NeverFits"):
        lab.client.create(lab.namespace.pods, asking_for({resource: "6"}))
    lab.submit("pair", pods=2, resources={resource: "2"})
    team.wait_running("pair", 2)
    lab.wait_used(gpus=(0, 4))
    lab.submit("one", pods=1, resources={resource: "1"})
    lab.wait_running_as_planned("one", 1)
    lab.wait_used(gpus=(0, 5))
    assert lab.pinned_to("pair") == [old, old]
    assert lab.allocated("pair") == {}
    assert plugged(lab, "pair", "reserve") == plugged(lab, "pair", "settle") == [({meter: 2}, {resource: 2})] * 2
    assert plugged(lab, "one", "settle") == []

    has_plugins(lab, old, {resource: "8"})
    lab.submit("next", pods=1, resources={resource: "3"})
    assert team.wait_held("next", "QuotaExceeded")["details"]["left"] == "0"
    team.finish("pair")

    team.wait_running("next", 1)
    lab.wait_used(gpus=(0, 4))
    lab.end("one", "next")


def test_a_device_plugin_alone_is_metered_as_kube_scheduler_counts_its_resource(lab: Lab) -> None:
    """No class offers it, and the pod has an init container that needs more than what runs later."""
    resource = f"{lab.driver}/card"
    meter = lab.meter("cards", count={})
    lab.client.merge_patch(f"{GROUP}/meters/{meter}", {"spec": {"extendedResources": [resource]}})
    plugin_node(lab, "plugin", **{resource: "4", f"{lab.driver}/nic": "1"})
    team = lab.found({meter: "4"})
    wanted = {resource: "1", f"{lab.driver}/nic": "1"}
    pod = asking_for(wanted, init={resource: "3"})

    lab.client.create(lab.namespace.pods, pod)
    lab.wait_used(cards=(0, 3))
    assert "are right" in lab.muster.ledger("verify")
    lab.submit("more", pods=1, resources={resource: "2"})
    team.wait_held("more", "QuotaExceeded")
    lab.client.merge_patch(f"{lab.namespace.pods}/pod", {"metadata": {"annotations": {workloads.FINISH: "true"}}})

    team.wait_running("more", 1)
    lab.wait_used(cards=(0, 2))
    lab.end("more")


def asking_for(resources: Mapping[str, str], *, init: Mapping[str, str] | None = None) -> Manifest:
    """A pod whose container asks for these resources, and so does an init container that comes first."""
    made = workloads.pod("pod")
    (container,) = made["spec"]["containers"]
    container["resources"] = {"requests": resources, "limits": resources}
    if init is not None:
        first = {**container, "name": "init", "resources": {"requests": init, "limits": init}}
        made["spec"]["initContainers"] = [first]
    return made


def test_extended_resources_of_a_device_plugin_that_no_meter_lists_are_free(lab: Lab) -> None:
    """On a node whose device plugin has the resource kube-scheduler makes no claim."""
    resource = extended(lab)
    lab.node("devices", plain(1))
    old = plugin_node(lab, "plugin", **{resource: "2"})
    team = lab.found()

    lab.submit("pair", pods=2, resources={resource: "1"})
    team.wait_running("pair", 2)
    lab.submit("one", pods=1, resources={resource: "1"})
    lab.wait_running_as_planned("one", 1)
    lab.submit("next", pods=2, resources={resource: "1"})

    team.wait_held("next", "DevicesBusy")
    assert lab.pinned_to("pair") == [old, old]
    assert lab.allocated("pair") == lab.booked("pair", "reserve") == {}
    lab.wait_used(gpus=(0, 1), claims=(0, 1))
    team.finish("pair")
    lab.wait_running("next", 2)
    lab.end("one", "next")


@pytest.fixture
def paused(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane whose kube-scheduler is away until it is started, at the latest when the test ends."""
    control_plane.stop_program("kube-scheduler", hard=True)
    yield control_plane
    resume(control_plane)


def resume(control_plane: ControlPlane) -> None:
    if "kube-scheduler" not in control_plane._programs:
        control_plane.start_program("kube-scheduler")


def submit_and_let_in(lab: Lab, name: str, **more: Any) -> None:
    """Submit a gang and wait until it is granted and its gates are open; nobody binds its pods."""
    lab.submit(name, **more)
    eventually(lambda: lab.team.pods(name) and not lab.team.gated(name), what=f"the gates of {name} are open")


def test_what_is_planned_counts_until_it_is_allocated_also_after_a_restart(lab: Lab, paused: ControlPlane) -> None:
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
        submit_and_let_in(lab, name, pods=2, **asked)
    for name, asked in kinds.items():
        lab.submit(f"next-{name}", pods=1, **asked)
        team.wait_held(f"next-{name}", "DevicesBusy")
    lab.wait_used(devices=(4, 0), gpus=(2, 0))

    lab.muster.end(hard=True)
    lab.muster.start()

    waiting = [f"next-{name}" for name in kinds]
    holds_for(5, lambda: all(team.gated(name) for name in waiting), what="nobody else is let in")
    lab.wait_used(devices=(4, 0), gpus=(2, 0))
    resume(paused)
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


def test_extended_resources_of_pods_that_go_before_they_are_bound_are_given_back(
    lab: Lab, paused: ControlPlane
) -> None:
    """The claim was never made, so nothing but the pod can tell that it is over."""
    resource = extended(lab)
    lab.node("extended", plain(2))
    team = lab.found()
    submit_and_let_in(lab, "gone", pods=2, resources={resource: "1"})
    lab.wait_used(gpus=(2, 0), claims=(2, 0))
    lab.submit("next", pods=1, resources={resource: "1"})
    team.wait_held("next", "DevicesBusy")

    lab.client.delete(f"{team.jobs}/gone?propagationPolicy=Background")

    lab.wait_used(gpus=(1, 0), claims=(1, 0))
    resume(paused)
    lab.wait_running("next", 1)
    lab.end("next")


@pytest.fixture
def high(control_plane: ControlPlane) -> Iterator[str]:
    """A priority before which everything else waits at kube-scheduler."""
    client, path = control_plane.client(), "/apis/scheduling.k8s.io/v1/priorityclasses"
    client.create(path, {"metadata": {"name": "devices-high"}, "value": 1000, "preemptionPolicy": "Never"})
    yield "devices-high"
    client.delete(f"{path}/devices-high")


def test_pods_that_kube_scheduler_takes_in_another_order_are_booked_with_what_they_got(
    lab: Lab, paused: ControlPlane, high: str
) -> None:
    """The gang that was granted first is served last, and finds its devices taken and others free."""
    lab.node("shared", shared(2))
    lab.device_class()
    lab.meter("memory", capacity={"name": "memory"})
    team = lab.found()
    submit_and_let_in(lab, "low", pods=2, request=share("16Gi", lab.driver))
    submit_and_let_in(lab, "high", pods=1, request=share("36Gi", lab.driver), priorityClassName=high)
    lab.submit("next", pods=1, request=share("12Gi", lab.driver))
    team.wait_held("next", "DevicesBusy")

    resume(paused)

    for name, pods, device in (("low", 2, "gpu-1"), ("high", 1, "gpu-0")):
        lab.wait_running(name, pods)
        assert [given[0][3] for given in lab.allocated(name).values()] == [device] * pods
        assert lab.booked(name, "settle") != lab.booked(name, "reserve")
    lab.wait_used(memory=(0, 68 * GI))
    holds_for(3, lambda: team.gated("next"), what="12Gi are left of no device")
    team.finish("low")
    lab.wait_running("next", 1)
    lab.end("high", "next")


@pytest.fixture
def taint(lab: Lab, kubernetes: str) -> Iterator[Callable[[str], None]]:
    """Taints the devices of a node by a DeviceTaintRule, for the length of a test."""
    path = barriers.rules_path(kubernetes)

    def put(node: str) -> None:
        selector = {"driver": lab.driver, "pool": node}
        lab.client.create(path, barriers.rule(node, {"deviceSelector": selector, "taint": barriers.taint()}))

    yield put
    for piece in lab.hardware:
        if piece["kind"] == "Node":
            lab.client.delete(f"{path}/{piece['metadata']['name']}")


def test_a_rule_that_taints_a_device_sends_a_gang_that_waits_elsewhere(lab: Lab, taint: Callable[[str], None]) -> None:
    """Node a is free all the time; the gang of two waits for a second device, and then a is not for it."""
    tainted, *others = (lab.node(letter, plain(1)) for letter in "abc")
    lab.device_class()
    lab.meter("gpus", count={})
    team = lab.found()
    gpu = workloads.device_request(device_class=lab.driver)
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "In", "values": others}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    lab.submit("first", pods=2, request=gpu, affinity=affinity)
    lab.wait_running_as_planned("first", 2)
    lab.submit("pair", pods=2, request=gpu)
    team.wait_held("pair", "DevicesBusy")

    taint(tainted)

    eventually(lambda: "tainted" in team.hold("pair")["message"], what=f"Muster sees the rule; {team.hold('pair')}")
    team.finish("first")
    lab.wait_running("pair", 2)
    assert lab.pinned_to("pair") == others
    lab.end("pair")


def test_a_rule_that_taints_a_granted_device_has_the_gang_taken_back_and_planned_elsewhere(
    lab: Lab, paused: ControlPlane, taint: Callable[[str], None]
) -> None:
    resource = extended(lab)
    first, second = lab.node("a", plain(1)), lab.node("b", plain(1))
    team = lab.found(startTimeout="6s", requeue={"base": "1s", "max": "2s"})
    submit_and_let_in(lab, "moves", pods=1, resources={resource: "1"})
    (granted,) = lab.booked("moves", "reserve").values()
    taint(granted[0][2])
    resume(paused)

    team.wait_running("moves", 1)

    assert {granted[0][2], *lab.pinned_to("moves")} == {first, second}
    assert len(lab.entries("moves", "evict")) == 1
    lab.wait_used(gpus=(0, 1), claims=(0, 1))
    lab.end("moves")
