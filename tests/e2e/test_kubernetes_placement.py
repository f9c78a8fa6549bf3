"""What Kubernetes itself does with gated pods, and with allocations that kube-scheduler did not make.

Muster's placements rest on these answers. No Muster runs here: the writes are those that it would make, by the user
`muster` with the rights that it would have. When a newer Kubernetes answers differently, one of these names is false.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controlplane import ApiError, ControlPlane, fleet, placements, workloads
from tests.controlplane.fleet import Manifest
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.controlplane.workloads import GATE
from tests.e2e import barriers
from tests.e2e.barriers import Barrier

SECONDS_OF_NOTHING = 10.0

numbers = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Two nodes of two GPUs each and a fresh namespace, through the admin's eyes and through `muster`'s."""

    first: str
    second: str
    admin: Namespace
    muster: Namespace


@pytest.fixture
def nodes(control_plane: ControlPlane) -> Iterator[tuple[str, str]]:
    """Names never return: the scheduler would for a moment take an old test's devices for taken."""
    number = next(numbers)
    first, second = f"place-{number}-a", f"place-{number}-b"
    hardware = [fleet.device_class(), *fleet.gpu_node(first, gpus=2), *fleet.gpu_node(second, gpus=2)]
    with fleet.installed(control_plane.client(), hardware):
        yield first, second


@pytest.fixture
def cluster(control_plane: ControlPlane, nodes: tuple[str, str], namespace: Namespace) -> Iterator[World]:
    """Asks for the nodes first: what is asked for first goes last, and pods must be gone before their nodes are."""
    first, second = nodes
    namespace.create(workloads.claim_template("one-gpu"))
    for node in nodes:
        # Only a bound pod shows that the scheduler, too, has seen that the node is ready.
        namespace.create(workloads.pod(f"canary-{node}", nodeSelector={"kubernetes.io/hostname": node}))
        namespace.bound(f"canary-{node}")
    muster = control_plane.client("muster")
    with placements.granted(namespace.client, muster, placements.RULES):
        yield World(first=first, second=second, admin=namespace, muster=namespace.seen_by(muster))


def gated_pod(cluster: World, name: str = "worker", **more: Any) -> str:
    """Create a gated pod with a claim of its own, wait for that claim, and return the claim's name."""
    cluster.admin.create(workloads.pod(name, template="one-gpu", gates=[GATE], **more))
    claim_name: str = cluster.muster.claim_of(name)["metadata"]["name"]
    return claim_name


def devices_of(claim: Any) -> list[tuple[str, str]]:
    """List what a claim was given, as (pool, device)."""
    results = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [(result["pool"], result["device"]) for result in results]


def reserved_for(claim: Any) -> set[str]:
    return {consumer["name"] for consumer in claim.get("status", {}).get("reservedFor", [])}


def test_claims_are_made_from_their_template_while_the_pod_is_gated(cluster: World) -> None:
    claim = gated_pod(cluster)

    holds_for(3.0, lambda: "allocation" not in cluster.muster.claim(claim).get("status", {}), what="it is unallocated")
    assert cluster.muster.node_of("worker") is None


def test_one_patch_removes_the_gate_and_pins_the_pod(cluster: World) -> None:
    pinned = {"left": cluster.first, "right": cluster.second}
    for name in pinned:
        gated_pod(cluster, name)

    for name, node in pinned.items():
        placements.open_gate(cluster.muster, name, pin_to=node)

    assert {name: cluster.muster.bound(name)["spec"]["nodeName"] for name in pinned} == pinned
    assert [devices_of(cluster.muster.claim_of(name)) for name in pinned] == [
        [(cluster.first, "gpu-0")],
        [(cluster.second, "gpu-0")],
    ]


@pytest.mark.parametrize("choice", ["first", "second"])
def test_kube_scheduler_binds_a_pod_to_the_device_that_somebody_else_allocated(cluster: World, choice: str) -> None:
    """Everything is written by `muster`, who has no right but those named in placements.RULES: no more are needed."""
    node: str = getattr(cluster, choice)
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=node, device="gpu-1")
    written = cluster.muster.claim(claim)["status"]["allocation"]

    placements.open_gate(cluster.muster, "worker")

    assert cluster.muster.bound("worker")["spec"]["nodeName"] == node
    bound = cluster.muster.claim(claim)
    assert bound["status"]["allocation"] == written, "first fit would have taken gpu-0"
    assert reserved_for(bound) == {"worker"}


def test_the_finalizer_keeps_a_claim_from_being_deleted_under_its_pod(cluster: World) -> None:
    protected, bare = gated_pod(cluster, "protected"), gated_pod(cluster, "bare")
    placements.allocate(cluster.muster, protected, node=cluster.first, device="gpu-0")
    placements.write_allocation(cluster.muster, bare, placements.allocation(node=cluster.first, device="gpu-1"))
    for name in ("protected", "bare"):
        placements.open_gate(cluster.muster, name)
        cluster.muster.bound(name)

    for claim in (protected, bare):
        cluster.admin.client.delete(f"{cluster.admin.claims}/{claim}")

    assert "deletionTimestamp" in cluster.admin.claim(protected)["metadata"]
    assert cluster.admin.client.find(f"{cluster.admin.claims}/{bare}") is None, (
        "a running pod's device counts as free now"
    )
    assert cluster.admin.node_of("bare") == cluster.first


@pytest.mark.since("1.36", "the time of an allocation is dropped")
def test_a_pod_whose_allocation_has_no_timestamp_is_never_bound(cluster: World) -> None:
    """kube-scheduler fills in the timestamp with its reservation, and the API server refuses the change."""
    claim = gated_pod(cluster)
    placements.protect(cluster.muster, claim)
    timeless = placements.allocation(node=cluster.first, device="gpu-0")
    del timeless["allocationTimestamp"]
    placements.write_allocation(cluster.muster, claim, timeless)

    placements.open_gate(cluster.muster, "worker")

    refusal = cluster.muster.wait_refused("worker", "add reservation to claim")
    assert "status.allocation" in refusal
    holds_for(SECONDS_OF_NOTHING, lambda: cluster.muster.node_of("worker") is None, what="the pod is not bound")


def test_without_a_node_selector_a_pod_lands_on_a_node_that_lacks_its_device(cluster: World) -> None:
    claim = gated_pod(cluster)
    placements.protect(cluster.muster, claim)
    placeless = placements.allocation(node=cluster.first, device="gpu-0")
    del placeless["nodeSelector"]
    placements.write_allocation(cluster.muster, claim, placeless)

    placements.open_gate(cluster.muster, "worker", pin_to=cluster.second)

    assert cluster.muster.bound("worker")["spec"]["nodeName"] == cluster.second
    assert devices_of(cluster.muster.claim(claim)) == [(cluster.first, "gpu-0")]


def configured(by: str) -> Manifest:
    return {
        "opaque": {"driver": fleet.DRIVER, "parameters": {"apiVersion": "muster.test/v1", "kind": "Tuning", "by": by}}
    }


@pytest.fixture
def tuned_class(control_plane: ControlPlane) -> Iterator[str]:
    """A class with configuration of its own."""
    tuned = fleet.device_class("tuned.gpu.test")
    tuned["spec"]["config"] = [configured("class")]
    fleet.install(control_plane.client(), [tuned])
    yield "tuned.gpu.test"
    control_plane.client().delete(f"{fleet.COLLECTIONS['DeviceClass']}/tuned.gpu.test")


def allocated_by_kube_scheduler(cluster: World, *requests: Manifest) -> Any:
    """Let kube-scheduler allocate these requests, the first of which the claim configures, and return the claim."""
    name = requests[0]["name"]
    cluster.admin.create(
        workloads.claim("observed", *requests, config=[{"requests": [name], **configured("claim")}]),
        workloads.pod("worker", claim="observed", nodeSelector={"kubernetes.io/hostname": cluster.first}),
    )
    cluster.admin.bound("worker")
    return cluster.admin.claim("observed")


@pytest.mark.since("1.36", "the time of an allocation is dropped")
def test_kube_scheduler_allocates_as_others_have_to(cluster: World, tuned_class: str) -> None:
    """Devices in the order of the requests, then the configuration of the class before the claim's."""
    tuned = workloads.device_request("tuned", device_class=tuned_class)

    claim = allocated_by_kube_scheduler(cluster, tuned, workloads.device_request("plain"))

    written = claim["status"]["allocation"]
    expected = placements.allocation(node=cluster.first, device="gpu-0", request="tuned")
    expected["allocationTimestamp"] = written["allocationTimestamp"]
    second = {"request": "plain", "driver": fleet.DRIVER, "pool": cluster.first, "device": "gpu-1"}
    expected["devices"]["results"].append(second)
    expected["devices"]["config"] = [
        {"source": "FromClass", "requests": ["tuned"], **configured("class")},
        {"source": "FromClaim", "requests": ["tuned"], **configured("claim")},
    ]
    assert written == expected
    assert claim["metadata"]["finalizers"] == [placements.FINALIZER]


def test_configuration_for_all_requests_names_them_up_to_1_36_only(
    cluster: World, tuned_class: str, kubernetes: str
) -> None:
    """From 1.37 on kube-scheduler leaves the names out where they would be all; both mean the same."""
    claim = allocated_by_kube_scheduler(cluster, workloads.device_request("tuned", device_class=tuned_class))

    named = {} if kubernetes == "1.37" else {"requests": ["tuned"]}
    assert claim["status"]["allocation"]["devices"]["config"] == [
        {"source": "FromClass", **named, **configured("class")},
        {"source": "FromClaim", **named, **configured("claim")},
    ]


@pytest.mark.since("1.36", "whoever writes the status of claims may allocate them")
def test_writing_an_allocation_needs_the_right_to_bind_claims(cluster: World, control_plane: ControlPlane) -> None:
    alice = control_plane.client("alice")
    seen_by_alice = cluster.admin.seen_by(alice)
    claim = gated_pod(cluster)
    wanted = placements.allocation(node=cluster.first, device="gpu-0")

    with placements.granted(cluster.admin.client, alice, placements.RULES_WITHOUT_BINDING):
        placements.protect(seen_by_alice, claim)
        with pytest.raises(ApiError, match=r'requires resource="resourceclaims/binding", verb="patch"'):
            placements.write_allocation(seen_by_alice, claim, wanted)
    assert "allocation" not in cluster.admin.claim(claim).get("status", {})

    with placements.granted(cluster.admin.client, alice, placements.RULES):
        placements.write_allocation(seen_by_alice, claim, wanted)
    assert devices_of(cluster.admin.claim(claim)) == [(cluster.first, "gpu-0")]


@pytest.mark.since("1.36", "whoever writes the status of claims may allocate them")
def test_the_right_to_bind_claims_counts_only_cluster_wide(cluster: World, control_plane: ControlPlane) -> None:
    """A Role that names resourceclaims/binding is taken and useless: only a ClusterRoleBinding helps."""
    alice = control_plane.client("alice")
    claim = gated_pod(cluster)

    with (
        placements.granted(cluster.admin.client, alice, placements.RULES, namespace=cluster.admin.name),
        pytest.raises(ApiError, match=r'"resourceclaims/binding" in API group "resource.k8s.io" at the cluster scope'),
    ):
        placements.write_allocation(
            cluster.admin.seen_by(alice), claim, placements.allocation(node=cluster.first, device="gpu-0")
        )


def test_an_allocation_that_nobody_reserved_stays_while_its_gated_pod_exists(cluster: World) -> None:
    """Watched for ten seconds here, and for thirty by hand."""
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=cluster.second, device="gpu-1")

    holds_for(
        SECONDS_OF_NOTHING,
        lambda: devices_of(cluster.muster.claim(claim)) == [(cluster.second, "gpu-1")],
        what="the allocation stays",
    )
    assert reserved_for(cluster.muster.claim(claim)) == set()


def test_an_allocation_that_nobody_reserved_goes_with_its_pod(cluster: World) -> None:
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=cluster.second, device="gpu-1")

    cluster.admin.client.delete(f"{cluster.admin.pods}/worker")

    eventually(
        lambda: cluster.admin.client.find(f"{cluster.admin.claims}/{claim}") is None,
        what="the claim is collected, in spite of its finalizer",
    )


def test_an_allocation_is_taken_back_by_kube_scheduler_when_its_pod_does_not_fit_its_node(cluster: World) -> None:
    """And then kube-scheduler chooses itself: whoever opened the gate must watch until the claim is reserved.

    Here the pod is pinned elsewhere; a node that has just been tainted or has no CPU left does the same.
    """
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=cluster.first, device="gpu-1")

    placements.open_gate(cluster.muster, "worker", pin_to=cluster.second)

    assert cluster.muster.bound("worker")["spec"]["nodeName"] == cluster.second
    assert devices_of(cluster.muster.claim(claim)) == [(cluster.second, "gpu-0")]


def test_an_allocation_can_be_taken_back_until_it_is_reserved(cluster: World) -> None:
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=cluster.first, device="gpu-1")

    placements.write_allocation(cluster.muster, claim, None)
    assert "allocation" not in cluster.muster.claim(claim).get("status", {})

    placements.write_allocation(cluster.muster, claim, placements.allocation(node=cluster.second, device="gpu-0"))
    placements.open_gate(cluster.muster, "worker")
    assert cluster.muster.bound("worker")["spec"]["nodeName"] == cluster.second
    with pytest.raises(ApiError, match="reservedFor") as refused:
        placements.write_allocation(cluster.muster, claim, None)
    assert refused.value.code == 422


def test_a_claim_shared_by_several_pods_is_allocated_once_and_freed_after_the_last(cluster: World) -> None:
    names = {"one", "two", "three"}
    cluster.admin.create(workloads.claim("shared"))
    cluster.admin.create(*(workloads.pod(name, claim="shared", gates=[GATE]) for name in names))
    placements.allocate(cluster.muster, "shared", node=cluster.second, device="gpu-1")

    for name in names:
        placements.open_gate(cluster.muster, name)

    assert {cluster.muster.bound(name)["spec"]["nodeName"] for name in names} == {cluster.second}
    assert reserved_for(cluster.muster.claim("shared")) == names
    assert devices_of(cluster.muster.claim("shared")) == [(cluster.second, "gpu-1")]

    cluster.admin.client.delete(f"{cluster.admin.pods}/one")
    eventually(lambda: reserved_for(cluster.muster.claim("shared")) == {"two", "three"}, what="the first lets go")
    assert devices_of(cluster.muster.claim("shared")) == [(cluster.second, "gpu-1")]
    for name in ("two", "three"):
        cluster.admin.client.delete(f"{cluster.admin.pods}/{name}")
    eventually(
        lambda: not cluster.muster.claim("shared").get("status"), what="the claim is pending again after the last pod"
    )


@pytest.fixture
def fence(control_plane: ControlPlane, rules: str, barrier: Barrier, namespace: Namespace) -> Iterator[None]:
    """Keep kube-scheduler off all devices of the driver, from when it has seen that."""
    taint = {"key": "muster.dev/fence", "value": "held", "effect": "NoSchedule"}
    spec = {"deviceSelector": {"driver": fleet.DRIVER}, "taint": taint}
    control_plane.client().create(rules, barriers.rule("fence", spec))
    barrier.wait(namespace)
    yield
    control_plane.client().delete(f"{rules}/fence")


@pytest.mark.usefixtures("fence")
def test_a_fence_keeps_kube_scheduler_off_the_devices_but_not_from_binding(cluster: World) -> None:
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=cluster.second, device="gpu-1")
    cluster.admin.create(workloads.pod("outsider", template="one-gpu"))

    cluster.muster.wait_refused("outsider", "cannot allocate all claims")
    placements.open_gate(cluster.muster, "worker")

    assert cluster.muster.bound("worker")["spec"]["nodeName"] == cluster.second
    assert devices_of(cluster.muster.claim(claim)) == [(cluster.second, "gpu-1")]
    assert cluster.muster.node_of("outsider") is None


@pytest.mark.usefixtures("fence")
def test_behind_a_fence_a_pod_that_does_not_fit_its_node_loses_its_devices_and_waits(cluster: World) -> None:
    claim = gated_pod(cluster)
    placements.allocate(cluster.muster, claim, node=cluster.first, device="gpu-1")

    placements.open_gate(cluster.muster, "worker", pin_to=cluster.second)

    eventually(lambda: not devices_of(cluster.muster.claim(claim)), what="kube-scheduler takes the allocation back")
    cluster.muster.wait_refused("worker", "cannot allocate all claims")


@pytest.mark.usefixtures("fence")
def test_a_fence_that_is_lifted_lets_waiting_pods_go(cluster: World, control_plane: ControlPlane, rules: str) -> None:
    cluster.admin.create(workloads.pod("outsider", template="one-gpu"))
    cluster.muster.wait_refused("outsider")

    control_plane.client().delete(f"{rules}/fence")

    cluster.muster.bound("outsider")


@pytest.mark.usefixtures("fence")
def test_a_claim_that_tolerates_every_taint_passes_the_fence(cluster: World) -> None:
    """Why the webhook has to refuse such claims where Muster relies on a fence."""
    request = workloads.device_request()
    request["exactly"]["tolerations"] = [{"operator": "Exists"}]
    cluster.admin.create(workloads.claim("wildcard", request), workloads.pod("outsider", claim="wildcard"))

    cluster.muster.bound("outsider")


def test_fences_can_be_had_without_options_from_1_37_on(kubernetes: str) -> None:
    """A second control plane with no options: the shared one has what 1.36 needs."""
    with ControlPlane(kubernetes) as plain:
        offered = plain.kubectl("api-resources", "--api-group=resource.k8s.io", "--output=name").split()

    assert ("devicetaintrules.resource.k8s.io" in offered) is (kubernetes == "1.37")
