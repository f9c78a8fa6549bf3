"""Which object a refusal names first: driver, class, selectors, capacity, or a claim that ties a gang to nodes."""

from typing import Any

import pytest

from admission.api.kubernetes import pods
from admission.dra.requests.gang_request import PodDemand
from tests import readers
from tests.unit.dra.clusters import CLASS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, refused

H100 = "device.attributes['gpu.example.com'].model == 'h100'"
IS_A100 = "device.attributes['gpu.example.com'].?model.orValue('') == 'a100'"
A100 = {"attributes": {"model": {"string": "a100"}}}
SHARABLE = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}
POLICY = {"requestPolicy": {"default": "10Gi", "validValues": ["10Gi", "20Gi"]}}
STEPS_TO_8GI = {"requestPolicy": {"default": "2Gi", "validRange": {"min": "2Gi", "step": "3Gi", "max": "8Gi"}}}
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
            "the only device that the selectors choose has not the capacity: 30Gi of capacity memory is more than the"
            " 20Gi that its request policy allows, gpu.example.com/a/gpu-0 for one"
        ),
    ),
    "the capacity whose policy rounds the amount up to one that it refuses": (
        a_cluster().node("a", gpus=[{**SHARABLE, "capacity": {"memory": {"value": "80Gi", **STEPS_TO_8GI}}}]),
        asking(memory="9Gi"),
        (
            "the only device that the selectors choose has not the capacity: 9Gi of capacity memory, rounded up to 11Gi"
            " by the steps of its request policy, is more than the 8Gi that its request policy allows,"
            " gpu.example.com/a/gpu-0 for one"
        ),
    ),
    "the capacity whose policy rounds the amount up to more than there is": (
        a_cluster().node("a", gpus=[{**SHARABLE, "capacity": {"memory": {"value": "7Gi", **STEPS_TO_8GI}}}]),
        asking(memory="6Gi"),
        (
            "the only device that the selectors choose has not the capacity: capacity memory is 7Gi, less than asked"
            " for: 6Gi, rounded up to 8Gi by the steps of its request policy, gpu.example.com/a/gpu-0 for one"
        ),
    ),
    "a request that wants devices as admin, of which its claim has each once": (
        a_cluster().node("a", gpus=1),
        a_pod("p", a_request(count=2, adminAccess=True)),
        "the most that any node has is 1 (a), and a claim gets a device once, also with admin access",
    ),
    "a request that wants shares of several devices, each once": (
        a_cluster().node("a", gpus=[SHARABLE]),
        a_pod("p", a_request(count=2, capacity={"requests": {"memory": "1Gi"}})),
        "the most that any node has is 1 (a), and a request gets a device once, also where it is shared",
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


ONE_PORT: Any = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}


def test_a_shared_claim_is_named_before_a_rule_that_bars_the_node_to_which_it_ties_the_gang() -> None:
    """The port is free on the other nodes, where the claim cannot be used."""
    channel = a_claim("channel", a_request("channel", 1, IS_A100))
    cluster = a_cluster().node("a", gpus=[A100]).node("b", gpus=2).node("c", gpus=[A100])

    answer = refused(cluster.plan(*(a_pod(f"p-{number}", channel, **ONE_PORT) for number in range(2))))

    assert answer.message.startswith(
        "no node takes pod p-1, which its shared claim channel ties to a (1 of the 3 where it might go): hostPort keeps"
        " it off a"
    )


def test_the_nodes_are_named_that_lack_a_claim_which_was_allocated_before() -> None:
    """Beside the rule that bars the only node where it can be used."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}
    channel = a_claim("channel", a_request(), allocation={"nodeSelector": {"nodeSelectorTerms": [term]}})
    cluster = a_cluster().node("a", gpus=1).node("b", gpus=1)

    answer = refused(cluster.plan(*(a_pod(f"p-{number}", channel, **ONE_PORT) for number in range(2))))

    assert answer.message.startswith("no node takes pod p-1: hostPort keeps it off a")
    assert answer.message.endswith("; b has enough in all, but cannot use claim channel, which is allocated elsewhere")


def test_of_a_sum_every_request_is_named_with_its_share_and_its_claim() -> None:
    """Also of one shared claim, which nobody has yet, and of requests that take a device with admin access."""
    cluster, shared = a_cluster().node("a", gpus=1), a_claim("shared", a_request("one"))
    both = a_claim("both", a_request("any", adminAccess=True), a_request("own"))

    answer = refused(cluster.plan(*(a_pod(f"p-{number}", 1, shared) for number in range(2))))
    of_one = refused(cluster.plan(a_pod("p", both)))

    assert answer.message == (
        "pod p-0 needs 2 devices of class gpu on one node (1 for request gpu of claim p-0-0 and 1 for request one of"
        " shared claim shared); the most that any node has free is 1 (a, of 1 that match)"
    )
    assert (
        " (1 for request any of claim both and 1 for request own of claim both); the most that any node has is 1 "
        in (of_one.message)
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


def sliced(card: str, slices: int) -> Any:
    drawn = [{"counterSet": card, "counters": {"slices": {"value": str(slices)}}}]
    return {"attributes": {"card": {"string": card}}, "consumesCounters": drawn}


def on_root(root: str) -> Any:
    return {"attributes": {"resource.kubernetes.io/pcieRoot": {"string": root}}}


def cards(slices: int, parts: int) -> ClusterBuilder:
    """Two cards of 7 slices, each with so many partitions of so many slices."""
    sets = [{"name": card, "counters": {"slices": {"value": "7"}}} for card in ("x", "y")]
    cluster = a_cluster().node("a").slice("sets", [], pool="a", count=2, nodeName="a", sharedCounters=sets)
    devices = [sliced(card, slices) for card in ("x", "y") for _ in range(parts)]
    return cluster.slice("a", devices, count=2, nodeName="a")


def tied(count: int, kind: str = "match", attribute: str = "gpu.example.com/card") -> PodDemand:
    return a_pod("p", a_claim("c", a_request("gpu", count), constraints=[{f"{kind}Attribute": attribute}]))


TIED: dict[str, tuple[ClusterBuilder, PodDemand, str]] = {
    "the counter of the card that its partitions have in common": (
        cards(4, 2),
        tied(2),
        (
            "matchAttribute gpu.example.com/card: request gpu gets 1 on a, since the counters of their pool are used up"
            ": gpu.example.com/a/gpu-1 draws 4 of counter x/slices, of which 3 of 7 are left beside"
            " gpu.example.com/a/gpu-0, which the pod gets as well"
        ),
    ),
    "how many partitions of one card there are": (
        cards(4, 1),
        tied(2),
        (
            "matchAttribute gpu.example.com/card: request gpu gets 1 on a, since a constraint keeps them apart: no more"
            " than 1 of the 2 that match have the same gpu.example.com/card"
        ),
    ),
    "how many cards there are": (
        cards(1, 2),
        tied(3, "distinct"),
        (
            "distinctAttribute gpu.example.com/card: request gpu gets 2 on a, since a constraint keeps them apart: no"
            " more than 2 of the 4 that match differ in gpu.example.com/card"
        ),
    ),
    "the device beside which another one is refused": (
        a_cluster()
        .device_class("nic", "device.driver == 'nic.example.com'")
        .node("a", gpus=[on_root("x")])
        .slice("nics", [on_root("y")], driver="nic.example.com", nodeName="a"),
        a_pod(
            "p",
            a_claim(
                "c",
                a_request("gpu"),
                a_request("nic", deviceClassName="nic"),
                constraints=[{"matchAttribute": "resource.kubernetes.io/pcieRoot"}],
            ),
        ),
        (
            "matchAttribute resource.kubernetes.io/pcieRoot: request nic gets 0 on a, since a constraint keeps them"
            " apart, nic.example.com/nics/gpu-0 beside gpu.example.com/a/gpu-0 for one"
        ),
    ),
    "the attribute that no device has": (
        cards(1, 2),
        tied(2, attribute="other.example.com/card"),
        (
            "matchAttribute other.example.com/card: request gpu gets 0 on a, since a constraint keeps them apart: none"
            " of the 4 that match has other.example.com/card"
        ),
    ),
}


@pytest.mark.parametrize(("cluster", "pod", "sentence"), TIED.values(), ids=TIED)
def test_of_devices_that_a_constraint_ties_is_named(cluster: ClusterBuilder, pod: PodDemand, sentence: str) -> None:
    answer = refused(cluster.plan(pod))

    assert answer.message.startswith("pod p needs ")
    assert answer.message.endswith(f" on one node; node a does not serve them under {sentence}")
    assert "device" in answer.details


def test_of_a_request_for_all_devices_it_is_said_so_and_who_has_some() -> None:
    every = a_request(allocationMode="All")
    cluster = a_cluster().node("a", gpus=3)
    after = refused(cluster.plan(a_pod("p", every), a_pod("q", every)))
    used = cluster.taken("a", 1, claim="team/old").diagnose(a_pod("p", every))

    assert after.message == (
        "pod q needs all devices of class gpu on one node (request gpu of claim q-0); the most that any node has free"
        " is 0 (a, of 3 that match), after p took 3 on a"
    )
    assert "since it wants all of them, and not all can be given, gpu.example.com/a/gpu-1 for one" in used.message
    assert readers.in_full(used).endswith("; 1 device that would do is in use by claim team/old")


def test_of_a_class_whose_own_selector_fails_the_class_is_named() -> None:
    cluster = a_cluster().device_class("h100", H100).node("a", gpus=1)
    answer = refused(cluster.plan(a_pod("p", a_request("gpu", deviceClassName="h100"))))

    assert answer.message.startswith(f"pod p: request gpu of claim p-0: DeviceClass h100: selector {H100!r} fails on")


def test_of_the_only_node_that_a_rule_leaves_out_it_is_said_why() -> None:
    port: Any = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    cluster = a_cluster().node("a", gpus=2)
    cluster.pods.append(pods.decode({"metadata": {"name": "x", "uid": "x"}, "spec": {**port, "nodeName": "a"}}))

    answer = cluster.diagnose(a_pod("p", 1, **port))

    assert "a may not take it by hostPort, since a host port that it needs is taken there (TCP 80)" in answer.message


def test_of_nodes_that_all_lack_the_label_of_a_rule_it_is_said_so() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "rakc"}
    affinity: Any = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    answer = a_cluster().node("a", gpus=1).node("b", gpus=1).diagnose(a_pod("p", 1, affinity=affinity))

    assert "a and b may not take it by podAffinity on rakc, since none of them has the label rakc" in answer.message
