"""Which object a refusal names first: driver, class, selectors, capacity, or a claim that ties a gang to nodes."""

from typing import Any

import pytest

from admission.dra.requests.gang_request import PodDemand
from tests.unit.dra.clusters import CLASS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, refused

H100 = "device.attributes['gpu.example.com'].model == 'h100'"
IS_A100 = "device.attributes['gpu.example.com'].?model.orValue('') == 'a100'"
A100 = {"attributes": {"model": {"string": "a100"}}}
SHARABLE = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
POLICY = {"requestPolicy": {"default": "10Gi", "validValues": ["10Gi", "20Gi"]}}
ASKED = [
    f"pod p needs {devices} of class gpu on one node (request gpu of claim p-0)"
    for devices in ("1 device", "2 devices")
]


def asking(**capacity: str) -> Any:
    return a_pod("p", a_request(capacity={"requests": capacity}))


NAMED: dict[str, tuple[ClusterBuilder, PodDemand, str]] = {
    "the driver, where there is no slice": (
        a_cluster().node("a", gpus=0),
        a_pod("p", 1),
        (
            "no ResourceSlice gives any node a device (is the driver of the class installed? are there nodes with its"
            " devices?)"
        ),
    ),
    "the driver, where there are devices of others alone": (
        a_cluster().device_class(CLASS, "device.driver == 'tpu.example.com'").node("a", gpus=2),
        a_pod("p", 1),
        (
            "no node has a device of the class; there are 2 of gpu.example.com, which the selectors of the class do not"
            " select (is its driver installed? are there nodes with its devices?)"
        ),
    ),
    "the nodes, where others have devices of the class": (
        a_cluster().node("a", gpus=0).node("b", gpus=1, unschedulable=True),
        a_pod("p", 1),
        "no device of the class is on the only node where the pod may go; b has enough in all, but is unschedulable",
    ),
    "the nodes, where others have fewer of the class": (
        a_cluster().node("a", gpus=0).node("b", gpus=1, unschedulable=True),
        a_pod("p", 2),
        "no device of the class is on the only node where the pod may go; b has some",
    ),
    "the selectors": (
        a_cluster().node("a", gpus=[A100]).node("b", gpus=[A100] * 2),
        a_pod("p", a_request("gpu", 1, H100)),
        "none of the 3 devices of the class on the 2 nodes where the pod may go satisfies the selectors of the request",
    ),
    "the capacity that is too small": (
        a_cluster().node("a", gpus=[SHARABLE]),
        asking(memory="100Gi"),
        (
            "the only device that the selectors choose has not 100Gi of capacity memory; the most is 80Gi"
            " (gpu.example.com/a/gpu-0)"
        ),
    ),
    "the one of two capacities that is too small": (
        a_cluster().node("a", gpus=[{**SHARABLE, "capacity": {"memory": {"value": "80Gi"}, "cores": {"value": "4"}}}]),
        asking(cores="4", memory="100Gi"),
        (
            "the only device that the selectors choose has not 100Gi of capacity memory; the most is 80Gi"
            " (gpu.example.com/a/gpu-0)"
        ),
    ),
    "the capacity that is not there": (
        a_cluster().node("a", gpus=2),
        asking(memory="1"),
        "none of the 2 devices that the selectors choose has the capacity memory, of which 1 is asked for",
    ),
    "the capacity whose policy refuses the amount": (
        a_cluster().node("a", gpus=[{**SHARABLE, "capacity": {"memory": {"value": "80Gi", **POLICY}}}]),
        asking(memory="30Gi"),
        (
            "the only device that the selectors choose has not the capacity: 32212254720 of capacity memory is not what"
            " its request policy allows, gpu.example.com/a/gpu-0 for one"
        ),
    ),
}


@pytest.mark.parametrize(("cluster", "pod", "sentence"), NAMED.values(), ids=NAMED)
def test_a_refusal_names_what_keeps_every_device_from_the_request(
    cluster: ClusterBuilder, pod: PodDemand, sentence: str
) -> None:
    assert refused(cluster.plan(pod)).message in [f"{asked}; {sentence}" for asked in ASKED]


APART = "and no node where it may go has all of it left"
LACKING = {
    "one that no node has enough of": (
        a_cluster()
        .node("a", allocatable={"cpu": "8", "memory": "1Gi"})
        .node("b", allocatable={"cpu": "1", "memory": "2Gi"}),
        "needs 4Gi memory; the most that is left on a node where it may go is 2Gi (b)",
    ),
    "one on each, where each has enough of the others": (
        a_cluster()
        .node("a", allocatable={"cpu": "8", "memory": "1Gi"})
        .node("b", allocatable={"cpu": "1", "memory": "8Gi"}),
        f"needs 2000m cpu, 4Gi memory on one node, {APART}: b has too little cpu; a has too little memory",
    ),
}


@pytest.mark.parametrize(("cluster", "sentence"), LACKING.values(), ids=LACKING)
def test_the_resource_that_nodes_lack_is_named(cluster: ClusterBuilder, sentence: str) -> None:
    answer = refused(cluster.plan(a_pod("p", requests={"cpu": "2", "memory": "4Gi"})))

    assert answer.message == f"pod p {sentence}"


def test_an_extended_resource_that_nothing_offers_is_told_so() -> None:
    asked = a_pod("p", requests={"x.io/y": "2"})

    nowhere = refused(a_cluster().node("a", allocatable={"cpu": "1"}).plan(asked))
    too_few = refused(a_cluster().node("a", allocatable={"x.io/y": "1"}).plan(asked))

    assert nowhere.message.endswith(
        "is 0 (a): no node has it in status.allocatable, and no DeviceClass has it as extendedResourceName"
    )
    assert too_few.message.endswith("the most that is left on a node where it may go is 1 (a)")


def test_a_shared_claim_is_named_before_what_the_nodes_lack_to_which_it_ties_the_gang() -> None:
    """Other nodes have free GPUs, which are of no use to the gang."""
    channel = a_claim("channel", a_request("channel", 1, IS_A100))
    cluster = a_cluster().node("a", gpus=[A100, {}]).node("b", gpus=2).node("c", gpus=2)

    answer = refused(cluster.plan(*(a_pod(f"p-{number}", channel, 1) for number in range(2))))

    assert answer.message == (
        "pod p-1, which its shared claim channel ties to a (1 of the 3 where it might go), needs 1 device of class gpu"
        " on one node (request gpu of claim p-1-1); the most that any of these has free is 0 (a, of 2 that match),"
        " after p-0 took 2 on a"
    )


def test_devices_of_several_classes_are_not_added() -> None:
    cluster = a_cluster().device_class("nic", IS_A100)
    cluster.node("a", gpus=[A100, A100, {}])
    claim = a_request("nic", 1, deviceClassName="nic")

    answer = refused(cluster.plan(a_pod("p-0", claim, 1), a_pod("p-1", claim, 2)))

    assert answer.message.endswith(", after p-1 took 2 of class gpu and 1 of class nic on a")


def test_alternatives_count_with_the_devices_that_each_asks_for() -> None:
    ways = [{"name": f"of-{count}", **a_request("x", count)["exactly"]} for count in (3, 2)]
    cluster = a_cluster().node("a", gpus=1)

    answer = refused(cluster.plan(a_pod("p", {"name": "gpu", "firstAvailable": ways})))

    assert answer.message.startswith("pod p needs 3 devices of class gpu on one node (request gpu/of-3 of claim p-0")
    assert answer.message.endswith("; the most that any node has free is 1 (a, of 1 that match)")


def test_what_is_in_use_is_not_spoken_of_where_no_device_matches() -> None:
    cluster, pod = a_cluster().node("a", gpus=0), a_pod("p", 1)

    assert cluster.diagnose(pod).message == refused(cluster.plan(pod)).message


def test_a_single_device_is_not_told_to_be_several_that_are_served_together() -> None:
    pods = [a_pod(name, a_request(capacity={"requests": {"memory": "50Gi"}})) for name in ("p", "q")]

    answer = a_cluster().node("a", gpus=[SHARABLE]).diagnose(*pods)

    assert "needs 1 of class gpu (request gpu of claim q-0) on one node; node a does not serve it: request" in (
        answer.message
    )


def test_nodes_with_enough_are_named_with_what_keeps_the_pod_off_them() -> None:
    cluster = a_cluster().node("a", gpus=1, allocatable={"cpu": "1"})
    for name in ("b", "c"):
        cluster = cluster.node(name, gpus=2, allocatable={"cpu": "4"}, labels={"pool": "x"}, unschedulable=True)

    devices = refused(cluster.plan(a_pod("p", 2)))
    resources = refused(cluster.plan(a_pod("p", requests={"cpu": "3"})))

    for answer in (devices, resources):
        assert answer.message.endswith("; b and c have enough in all, but each is unschedulable")
