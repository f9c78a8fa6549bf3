"""What keeps a pod from a device, or from a claim that has its devices already: taints by rule, and claims in use.

As in test_kubernetes_placement no Muster runs; but what kube-scheduler does is compared with what Muster predicts from
the same objects.
"""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.controlplane import ControlPlane, fleet, placements, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.controlplane.workloads import GATE
from tests.e2e import barriers
from tests.e2e.barriers import RULE_KEY, Barrier
from tests.e2e.corpus_worlds import POD, Answer, asked, pinned_pod

MOST_CONSUMERS = 256
ZONE = "topology.kubernetes.io/zone"

Selector = Callable[[str], Manifest]
Ruled = Callable[[Manifest | None], None]

numbers = itertools.count(1)


@pytest.fixture
def node(control_plane: ControlPlane) -> Iterator[str]:
    """A node of two GPUs; its name never returns, since it names the devices."""
    name = f"devices-{next(numbers)}"
    hardware = [fleet.device_class(), *fleet.gpu_node(name, gpus=2)]
    with fleet.installed(control_plane.client(), hardware):
        yield name


@pytest.fixture
def ruled(namespace: Namespace, rules: str, barrier: Barrier) -> Iterator[Ruled]:
    """Taints what a selector picks, for the length of a test; returns when kube-scheduler knows."""

    def taint(selector: Manifest | None) -> None:
        selected = {} if selector is None else {"deviceSelector": selector}
        namespace.client.create(rules, barriers.rule("tested", {**selected, "taint": barriers.taint()}))
        barrier.wait(namespace)

    yield taint
    namespace.client.delete(f"{rules}/tested")


def devices_of(answer: Answer) -> list[str]:
    return [result["device"] for allocation in answer.allocations for result in allocation["results"]]


SELECTORS: dict[str, tuple[Selector, list[str]]] = {
    "a rule for one device leaves the others": (
        lambda node: {"driver": fleet.DRIVER, "pool": node, "device": "gpu-0"},
        ["gpu-1"],
    ),
    "a rule for a device of another pool leaves ours": (lambda _: {"pool": "elsewhere", "device": "gpu-0"}, ["gpu-0"]),
    "a rule for a pool leaves nothing of it": (lambda node: {"pool": node}, []),
    "a rule for a driver leaves none of its devices": (lambda _: {"driver": fleet.DRIVER}, []),
    "an empty selector picks every device": (lambda _: {}, []),
}


@pytest.mark.parametrize(("selector", "given"), SELECTORS.values(), ids=SELECTORS)
def test_devices_that_a_rule_taints_are_left_out(
    namespace: Namespace, node: str, ruled: Ruled, selector: Selector, given: list[str]
) -> None:
    namespace.create(workloads.claim("plain"))
    ruled(selector(node))

    predicted, happened = asked(namespace, ["plain"], node=node)

    assert (happened.outcome, devices_of(happened)) == ("allocated" if given else "none", given)
    assert predicted == happened


def test_a_rule_without_a_selector_picks_every_device_up_to_1_36_and_none_since(
    namespace: Namespace, node: str, ruled: Ruled, kubernetes: str
) -> None:
    namespace.create(workloads.claim("plain"))
    ruled(None)

    predicted, happened = asked(namespace, ["plain"], node=node)

    assert devices_of(happened) == ([] if kubernetes == "1.36" else ["gpu-0"])
    assert predicted == happened


def test_a_claim_that_tolerates_a_rules_taint_is_given_the_device(
    namespace: Namespace, node: str, ruled: Ruled
) -> None:
    tolerations = [{"key": RULE_KEY, "operator": "Exists", "effect": "NoSchedule"}]
    namespace.create(workloads.claim("tolerant", tolerating(*tolerations)))
    ruled({"driver": fleet.DRIVER})

    predicted, happened = asked(namespace, ["tolerant"], node=node)

    assert devices_of(happened) == ["gpu-0"]
    assert happened.allocations[0]["results"][0]["tolerations"] == tolerations
    assert predicted == happened


def tolerating(*tolerations: Manifest) -> Manifest:
    request = workloads.device_request()
    request["exactly"]["tolerations"] = list(tolerations)
    return request


@pytest.mark.since("1.36", "taints of devices are off")
def test_a_toleration_that_names_no_effect_gets_a_pod_onto_a_device_that_evicts_it(
    namespace: Namespace, barrier: Barrier, node: str
) -> None:
    """kube-scheduler takes such a toleration for any effect. The controller that evicts wants NoExecute named."""
    path = f"{fleet.COLLECTIONS['ResourceSlice']}/{node}-{fleet.DRIVER}"
    taints = [{"key": RULE_KEY, "effect": "NoExecute"}]
    operations = [{"op": "add", "path": f"/spec/devices/{at}/taints", "value": taints} for at in range(2)]
    namespace.client.json_patch(path, operations)
    toleration = {"key": RULE_KEY, "operator": "Exists"}
    namespace.create(
        workloads.claim("exact", tolerating({**toleration, "effect": "NoExecute"})),
        workloads.claim("vague", tolerating(toleration)),
    )
    barrier.wait(namespace)

    namespace.create(pinned_pod("stays", ["exact"], node=node))
    namespace.bound("stays")
    namespace.create(pinned_pod("leaves", ["vague"], node=node))

    eventually(lambda: evicted(namespace, "leaves"), what="the pod is evicted")
    assert not evicted(namespace, "stays")
    assert namespace.node_of("stays") == node


def evicted(namespace: Namespace, pod: str) -> bool:
    """See the eviction by its event: the pod itself is gone at once."""
    events = namespace.client.items(f"/api/v1/namespaces/{namespace.name}/events")
    told = [one for one in events if one["reason"] == "DeviceTaintManagerEviction"]
    return any(one["involvedObject"]["name"] == pod for one in told)


def test_a_class_that_does_not_exist_holds_the_pod_back_until_it_does(
    namespace: Namespace, barrier: Barrier, node: str
) -> None:
    """Asked without a cluster around it, the allocator calls this an error that ends the attempt."""
    missing = fleet.device_class(f"missing-{next(numbers)}")
    name = missing["metadata"]["name"]
    namespace.create(workloads.claim("early", workloads.device_request(device_class=name)))
    barrier.wait(namespace)

    _, happened = asked(namespace, ["early"], node=node)

    assert happened.outcome == "none"
    assert f"request gpu: device class {name} does not exist" in happened.said
    namespace.client.create(fleet.COLLECTIONS["DeviceClass"], missing)
    try:
        namespace.bound(POD)
    finally:
        namespace.client.delete(f"{fleet.COLLECTIONS['DeviceClass']}/{name}")


@pytest.fixture
def zoned(control_plane: ControlPlane, barrier: Barrier, namespace: Namespace) -> Iterator[tuple[str, str, str]]:
    """Three nodes of two GPUs each, the first two of which are in one zone, once kube-scheduler knows them."""
    number = next(numbers)
    names = tuple(f"zoned-{number}-{letter}" for letter in "abc")
    zones = {name: f"zone-{number}" if name != names[2] else "elsewhere" for name in names}
    hardware = [fleet.device_class()]
    for name in names:
        hardware += fleet.gpu_node(name, gpus=2, labels={ZONE: zones[name]})
    with fleet.installed(control_plane.client(), hardware):
        barrier.wait(namespace)
        yield names[0], names[1], names[2]


def shared_in_zone(namespace: Namespace, node: str) -> None:
    """Give a claim a device that is reached from the whole zone of the node."""
    zone = namespace.client.get(f"{fleet.COLLECTIONS['Node']}/{node}")["metadata"]["labels"][ZONE]
    allocation = placements.allocation(node=node, device="gpu-1")
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    allocation["nodeSelector"] = {"nodeSelectorTerms": [term]}
    namespace.create(workloads.claim("shared"))
    placements.protect(namespace, "shared")
    placements.write_allocation(namespace, "shared", allocation)


def test_a_claim_that_has_its_devices_binds_pods_by_its_node_selector(
    namespace: Namespace, zoned: tuple[str, str, str]
) -> None:
    """Its other claims are allocated where the pod then is."""
    first, second, _ = zoned
    shared_in_zone(namespace, first)
    # With the first node left out by the pod itself, one node is left where the claim is.
    other = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [first]}
    required = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [other]}]}
    }
    namespace.create(workloads.claim("own"))

    namespace.create(using("worker", "shared", "own", affinity={"nodeAffinity": required}))

    assert namespace.bound("worker")["spec"]["nodeName"] == second
    own = namespace.claim("own")["status"]["allocation"]["devices"]["results"]
    assert [(one["pool"], one["device"]) for one in own] == [(second, "gpu-0")]


def test_a_pod_elsewhere_is_refused_while_others_use_the_claim(
    namespace: Namespace, zoned: tuple[str, str, str]
) -> None:
    first, _, elsewhere = zoned
    shared_in_zone(namespace, first)
    namespace.create(using("user", "shared", nodeSelector={"kubernetes.io/hostname": first}))
    namespace.bound("user")

    namespace.create(using("worker", "shared", nodeSelector={"kubernetes.io/hostname": elsewhere}))

    namespace.wait_refused("worker", "resourceclaim not available on the node")
    assert namespace.claim("shared")["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-1"


def using(name: str, *claims: str, **more: Any) -> Manifest:
    uses = [{"name": claim, "resourceClaimName": claim} for claim in claims]
    return workloads.pod(name, **{"resourceClaims": uses, **more})


def test_a_claim_serves_256_pods_and_the_next_is_tried_again_until_one_is_gone(
    namespace: Namespace, barrier: Barrier, node: str
) -> None:
    """kube-scheduler does not count: it takes the node for good, and the API server refuses the reservation."""
    namespace.create(workloads.claim("shared"))
    placements.allocate(namespace, "shared", node=node, device="gpu-0")
    names = [f"user-{number}" for number in range(MOST_CONSUMERS)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda name: namespace.create(using(name, "shared", gates=[GATE])), names))
    users = [pod["metadata"] for pod in namespace.client.items(namespace.pods)]
    reserved = [{"resource": "pods", "name": user["name"], "uid": user["uid"]} for user in users]
    namespace.client.merge_patch(f"{namespace.claims}/shared/status", {"status": {"reservedFor": reserved}})
    barrier.wait(namespace)

    namespace.create(using("last", "shared"))

    refusal = namespace.wait_refused("last", "add reservation to claim")
    assert "status.reservedFor: Too many: 257: must have at most 256 items" in refusal
    namespace.client.delete(f"{namespace.pods}/user-0?gracePeriodSeconds=0")
    assert namespace.bound("last")["spec"]["nodeName"] == node
