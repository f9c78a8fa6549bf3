"""Extended resources that devices stand behind: the claim that kube-scheduler makes for them, and what it never does.

A container asks for `test.muster.dev/gpu: 2` as of a device plugin; a DeviceClass says that this means its devices.
The gate DRAExtendedResource is on by default in 1.36 and 1.37, and both do the same.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from admission.api.kubernetes import devices, pods
from admission.dra.requests import extended_resources
from tests.controlplane import ApiError, ControlPlane, fleet, placements, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.controlplane.workloads import GATE
from tests.e2e.barriers import Barrier

GPU, NIC = "test.muster.dev/gpu", "test.muster.dev/nic"
GPU_CLASS, NIC_CLASS = "extended-gpu", "extended-nic"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{GPU_CLASS}"
ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
CLASSES = fleet.COLLECTIONS["DeviceClass"]
pytestmark = pytest.mark.since("1.36", "extended resources that devices stand behind are off")

GPUS = 40
SECONDS_OF_NOTHING = 5.0

Containers = Sequence[tuple[str, Mapping[str, str]]]
"""Kind (init, sidecar, main) and requests of each, in the pod's order."""

Requests = Sequence[tuple[str, str, int]]
"""Name, class and count of each request, in the claim's order."""

numbers = itertools.count(1)


def extended_class(name: str, resource: str) -> Manifest:
    made = fleet.device_class(name)
    made["spec"]["extendedResourceName"] = resource
    return made


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Iterator[str]:
    """A node with GPUs and two classes that both mean them, each with an extended resource of its own."""
    client = control_plane.client()
    hardware = [extended_class(GPU_CLASS, GPU), extended_class(NIC_CLASS, NIC), fleet.device_class()]
    hardware += fleet.gpu_node("extended", gpus=GPUS)
    with fleet.installed(client, hardware):
        yield "extended"
    for name in (GPU_CLASS, NIC_CLASS):
        client.delete(f"{CLASSES}/{name}")


@pytest.fixture
def cluster(namespace: Namespace, barrier: Barrier, node: str) -> Namespace:
    """A namespace, once kube-scheduler knows the classes and has got the devices of earlier tests back."""
    barrier.wait(namespace)
    return namespace


def pod(name: str, containers: Containers, **more: Any) -> Manifest:
    """A pod on the node whose containers ask for this."""
    made = workloads.pod(name, nodeSelector={"kubernetes.io/hostname": "extended"}, **more)
    uses = made["spec"]["containers"][0].get("resources", {})
    spec: Manifest = {"containers": [], "initContainers": []}
    for number, (kind, requests) in enumerate(containers):
        resources = {"requests": dict(requests), "limits": dict(requests), **uses}
        container: Manifest = {
            "name": f"{kind}-{number}",
            "image": "registry.k8s.io/pause:3.10",
            "resources": resources,
        }
        if kind == "sidecar":
            container["restartPolicy"] = "Always"
        spec["containers" if kind == "main" else "initContainers"].append(container)
    return {**made, "spec": {**made["spec"], **spec}}


def claim_made_for(cluster: Namespace, name: str) -> Any:
    """Return the claim that the status of a bound pod names."""
    status = cluster.bound(name)["status"]["extendedResourceClaimStatus"]
    return cluster.claim(status["resourceClaimName"])


def requests_of(claim: Any) -> list[tuple[str, str, int]]:
    requests = claim["spec"]["devices"]["requests"]
    return [(one["name"], one["exactly"]["deviceClassName"], one["exactly"]["count"]) for one in requests]


def devices_of(claim: Any) -> list[tuple[str, str]]:
    results = claim["status"]["allocation"]["devices"]["results"]
    return [(one["request"], one["device"]) for one in results]


def predicted_requests(cluster: Namespace, name: str) -> Requests:
    """Return what Muster says that kube-scheduler asks for on behalf of a pod."""
    classes = [devices.decode_class(one) for one in cluster.client.items(CLASSES)]
    claim = extended_resources.claim_of(pods.decode(cluster.pod(name)), {one.meta.name: one for one in classes})
    assert claim is not None
    asked = [(request.name, request.alternatives[0]) for request in claim.spec.requests]
    return [(name, only.device_class, only.count) for name, only in asked]


CASES: dict[str, tuple[Containers, Requests]] = {
    "one container": ([("main", {GPU: "2"})], [("container-0-request-0", GPU_CLASS, 2)]),
    "a request's number is the resource's place among all that the container asks for": (
        [("main", {"cpu": "1", GPU: "1", "memory": "1Gi"})],
        [("container-0-request-2", GPU_CLASS, 1)],
    ),
    "a class may be asked for by its own name as well": (
        [("main", {GPU: "1", IMPLICIT: "2"})],
        [("container-0-request-0", GPU_CLASS, 2), ("container-0-request-1", GPU_CLASS, 1)],
    ),
    "two containers and two resources": (
        [("main", {GPU: "1", NIC: "1"}), ("main", {GPU: "2"})],
        [
            ("container-0-request-0", GPU_CLASS, 1),
            ("container-0-request-1", NIC_CLASS, 1),
            ("container-1-request-0", GPU_CLASS, 2),
        ],
    ),
    "requests are sorted as text": (
        [("main", {GPU: "1"} if number in {2, 10} else {}) for number in range(11)],
        [("container-10-request-0", GPU_CLASS, 1), ("container-2-request-0", GPU_CLASS, 1)],
    ),
    "an init container takes over what later containers have and asks for the rest": (
        [("init", {GPU: "3"}), ("main", {GPU: "1"}), ("main", {GPU: "1"})],
        [
            ("container-0-request-0", GPU_CLASS, 1),
            ("container-1-request-0", GPU_CLASS, 1),
            ("container-2-request-0", GPU_CLASS, 1),
        ],
    ),
    "an init container that needs no more than later containers asks for nothing": (
        [("init", {GPU: "2"}), ("main", {GPU: "2"})],
        [("container-1-request-0", GPU_CLASS, 2)],
    ),
    "of all init containers the greediest asks, the first of equals": (
        [("init", {GPU: "2"}), ("init", {GPU: "4"}), ("init", {GPU: "4"}), ("main", {GPU: "1"})],
        [("container-1-request-0", GPU_CLASS, 3), ("container-3-request-0", GPU_CLASS, 1)],
    ),
    "a sidecar has its own, which init containers after it cannot take over": (
        [("sidecar", {GPU: "2"}), ("init", {GPU: "2"}), ("main", {GPU: "1"})],
        [
            ("container-0-request-0", GPU_CLASS, 2),
            ("container-1-request-0", GPU_CLASS, 1),
            ("container-2-request-0", GPU_CLASS, 1),
        ],
    ),
}


@pytest.mark.parametrize(("containers", "requests"), CASES.values(), ids=CASES)
def test_kube_scheduler_makes_a_claim_of_a_pods_extended_resources(
    cluster: Namespace, containers: Containers, requests: Requests
) -> None:
    cluster.create(pod("worker", containers))

    claim = claim_made_for(cluster, "worker")

    assert requests_of(claim) == requests
    assert predicted_requests(cluster, "worker") == requests
    asked = [name for name, _, count in requests for _ in range(count)]
    assert devices_of(claim) == [(name, f"gpu-{number}") for number, name in enumerate(asked)]


def test_the_claim_is_the_pods_own_and_goes_with_it(cluster: Namespace) -> None:
    cluster.create(pod("worker", [("init", {GPU: "2"}), ("main", {GPU: "1"})]))

    claim = claim_made_for(cluster, "worker")

    seen = cluster.pod("worker")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "worker", "uid": seen["metadata"]["uid"], "controller": True}
    assert claim["metadata"]["generateName"] == "worker-extended-resources-"
    assert claim["metadata"]["annotations"] == {ANNOTATION: "true"}
    assert claim["metadata"]["ownerReferences"] == [owner]
    assert claim["metadata"]["finalizers"] == [placements.FINALIZER]
    assert [one["name"] for one in claim["status"]["reservedFor"]] == ["worker"]
    mappings = seen["status"]["extendedResourceClaimStatus"]["requestMappings"]
    assert [(one["containerName"], one["resourceName"], one["requestName"]) for one in mappings] == [
        ("main-1", GPU, "container-1-request-0"),
        ("init-0", GPU, "container-1-request-0"),
        ("init-0", GPU, "container-0-request-0"),
    ]
    cluster.client.delete(f"{cluster.pods}/worker?gracePeriodSeconds=0")
    eventually(lambda: not made_claims(cluster), what="the claim is collected")


def made_claims(cluster: Namespace) -> list[Any]:
    return [
        claim
        for claim in cluster.client.items(cluster.claims)
        if ANNOTATION in claim["metadata"].get("annotations", {})
    ]


def test_a_gated_pod_has_no_such_claim_yet(cluster: Namespace) -> None:
    cluster.create(workloads.claim_template("one-gpu"))
    cluster.create(pod("worker", [("main", {GPU: "1"})], template="one-gpu", gates=[GATE]))
    cluster.claim_of("worker")

    holds_for(SECONDS_OF_NOTHING, lambda: not made_claims(cluster), what="only the template's claim is there")


def test_a_pods_own_claims_choose_first(cluster: Namespace) -> None:
    cluster.create(workloads.claim("own"), pod("worker", [("main", {GPU: "1"})], claim="own"))

    assert devices_of(claim_made_for(cluster, "worker")) == [("container-0-request-0", "gpu-1")]
    assert devices_of(cluster.claim("own")) == [("gpu", "gpu-0")]


def test_a_pod_waits_when_its_own_claims_leave_too_little(cluster: Namespace) -> None:
    cluster.create(pod("first", [("main", {GPU: str(GPUS - 8)})]))
    cluster.bound("first")
    cluster.create(
        workloads.claim("own", workloads.device_request(count=7)), pod("worker", [("main", {GPU: "2"})], claim="own")
    )

    cluster.wait_refused("worker", "cannot allocate all claims")

    assert reason_of(cluster, "worker") == "Unschedulable"


REFUSED: dict[str, tuple[Containers, str, str]] = {
    "more than a claim may have": ([("main", {GPU: "33"})], "SchedulerError", "exceeds the claim limit of 32"),
    "a resource that no class has": ([("main", {"test.muster.dev/nothing": "1"})], "Unschedulable", "Insufficient"),
    "a class that does not exist": (
        [("main", {f"{IMPLICIT}-not": "1"})],
        "Unschedulable",
        f"Insufficient {IMPLICIT}-not",
    ),
}


@pytest.mark.parametrize(("containers", "reason", "said"), REFUSED.values(), ids=REFUSED)
def test_kube_scheduler_refuses(cluster: Namespace, containers: Containers, reason: str, said: str) -> None:
    cluster.create(pod("worker", containers))

    cluster.wait_refused("worker", said)

    assert reason_of(cluster, "worker") == reason


def reason_of(cluster: Namespace, name: str) -> str:
    conditions = cluster.pod(name)["status"]["conditions"]
    found: str = next(one["reason"] for one in conditions if one["type"] == "PodScheduled")
    return found


@pytest.fixture
def plugin(cluster: Namespace, barrier: Barrier) -> Iterator[None]:
    """One GPU of the same name from a device plugin on the node."""
    path = f"{fleet.COLLECTIONS['Node']}/extended/status"

    def publish(amount: str | None) -> None:
        cluster.client.merge_patch(path, {"status": {"allocatable": {GPU: amount}, "capacity": {GPU: amount}}})
        barrier.wait(cluster)

    publish("1")
    yield
    cluster.empty()
    publish(None)


@pytest.mark.usefixtures("plugin")
def test_what_a_device_plugin_has_on_a_node_is_not_claimed(cluster: Namespace) -> None:
    cluster.create(pod("worker", [("main", {GPU: "1", NIC: "1"})]))

    assert requests_of(claim_made_for(cluster, "worker")) == [("container-0-request-1", NIC_CLASS, 1)]


@pytest.mark.usefixtures("plugin")
def test_a_pod_with_a_claim_of_its_own_is_bound_where_devices_have_a_part_of_all_else(cluster: Namespace) -> None:
    cluster.create(workloads.claim("own"), pod("worker", [("main", {GPU: "1", NIC: "1"})], claim="own"))

    assert requests_of(claim_made_for(cluster, "worker")) == [("container-0-request-1", NIC_CLASS, 1)]
    cluster.bound("worker")


@pytest.mark.usefixtures("plugin")
def test_a_device_plugin_and_devices_never_make_up_one_resource_together(cluster: Namespace) -> None:
    cluster.create(pod("one", [("main", {GPU: "1"})]), pod("two", [("main", {GPU: "2"})]))

    cluster.bound("one")
    cluster.wait_refused("two", f"Insufficient {GPU}")
    assert made_claims(cluster) == []


@pytest.mark.usefixtures("plugin")
def test_a_pod_with_a_claim_of_its_own_is_never_bound_where_a_device_plugin_has_all_else(cluster: Namespace) -> None:
    """A defect: kube-scheduler makes an empty claim for nothing, and then fails for want of anything to write of it."""
    cluster.create(workloads.claim("own"), pod("worker", [("main", {GPU: "1"})], claim="own"))

    cluster.wait_refused("worker", "nil or empty request mappings")

    assert reason_of(cluster, "worker") == "SchedulerError"
    holds_for(SECONDS_OF_NOTHING, lambda: cluster.node_of("worker") is None, what="the pod is not bound")


def test_nobody_else_can_allocate_it(cluster: Namespace, barrier: Barrier, kubernetes: str) -> None:
    """kube-scheduler takes such a claim for a remnant of its own and deletes it; 1.36 forgets the pod after that."""
    cluster.create(pod("worker", [("main", {GPU: "1"})], gates=[GATE]))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "worker", "controller": True}
    owner["uid"] = cluster.pod("worker")["metadata"]["uid"]
    prepared = workloads.claim("prepared", workloads.device_request("container-0-request-0", device_class=GPU_CLASS))
    prepared["metadata"].update({"annotations": {ANNOTATION: "true"}, "ownerReferences": [owner]})
    cluster.create(prepared)
    placements.protect(cluster, "prepared")
    wanted = placements.allocation(node="extended", device="gpu-7", request="container-0-request-0")
    placements.write_allocation(cluster, "prepared", wanted)
    barrier.wait(cluster)

    placements.open_gate(cluster, "worker", pin_to="extended")

    eventually(lambda: cluster.client.find(f"{cluster.claims}/prepared") is None, what="the prepared claim is deleted")
    if kubernetes == "1.36":
        cluster.wait_refused("worker", "cannot schedule extended resource claim")
    else:
        assert devices_of(claim_made_for(cluster, "worker")) == [("container-0-request-0", "gpu-0")]


@pytest.fixture
def rivals(cluster: Namespace, barrier: Barrier) -> Iterator[tuple[str, str, str]]:
    """Two classes that claim one extended resource, the older and the newer, and its name."""
    number = next(numbers)
    resource, older, newer = f"test.muster.dev/disputed-{number}", f"disputed-a-{number}", f"disputed-b-{number}"
    made = cluster.client.create(CLASSES, extended_class(older, resource))["metadata"]["creationTimestamp"]
    eventually(lambda: datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") > made, what="the next second begins")
    cluster.client.create(CLASSES, extended_class(newer, resource))
    barrier.wait(cluster)
    yield older, newer, resource
    for name in (older, newer):
        cluster.client.delete(f"{CLASSES}/{name}")


def test_of_two_classes_the_newer_one_is_meant(cluster: Namespace, rivals: tuple[str, str, str]) -> None:
    _, newer, resource = rivals
    cluster.create(pod("worker", [("main", {resource: "1"})]))

    assert requests_of(claim_made_for(cluster, "worker")) == [("container-0-request-0", newer, 1)]
    assert predicted_requests(cluster, "worker") == [("container-0-request-0", newer, 1)]


@pytest.mark.parametrize("deleted", [0, 1], ids=["the older", "the newer"])
def test_once_one_of_two_classes_is_deleted_the_resource_is_unknown_until_the_other_changes(
    cluster: Namespace, barrier: Barrier, rivals: tuple[str, str, str], deleted: int
) -> None:
    """A defect: kube-scheduler forgets the resource with either class. A restart helps as well."""
    resource, left = rivals[2], rivals[1 - deleted]
    cluster.client.delete(f"{CLASSES}/{rivals[deleted]}")
    barrier.wait(cluster)
    cluster.create(pod("worker", [("main", {resource: "1"})]))

    cluster.wait_refused("worker", f"Insufficient {resource}")
    cluster.client.merge_patch(f"{CLASSES}/{left}", {"metadata": {"labels": {"changed": "true"}}})
    barrier.wait(cluster)
    cluster.create(pod("later", [("main", {resource: "1"})]))
    assert requests_of(claim_made_for(cluster, "later")) == [("container-0-request-0", left, 1)]


def test_only_a_class_asked_for_by_its_own_name_may_be_asked_for_without_a_limit(cluster: Namespace) -> None:
    def unlimited(name: str, resource: str) -> Manifest:
        made = pod(name, [("main", {})])
        made["spec"]["containers"][0]["resources"] = {"requests": {resource: "1"}}
        return made

    cluster.create(unlimited("implicit", IMPLICIT))

    assert requests_of(claim_made_for(cluster, "implicit")) == [("container-0-request-0", GPU_CLASS, 1)]
    with pytest.raises(ApiError, match="Limit must be set for non overcommitable resources"):
        cluster.create(unlimited("explicit", GPU))
