"""Devices that take resources of their nodes beside what pods request: in plans, in the ledger's and in bound pods."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from admission.api.kubernetes import pods
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.values.names import GangUid, NodeName, QueueName
from admission.dra import compatibility, gang_planner
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.requests.gang_request import Choice, Plan, PodDemand
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import DRIVER, STEPS, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, refused

Json = dict[str, Any]

GI = 1024**3
ALLOCATABLE = {"cpu": "8", "memory": "32Gi", "pods": "10"}


def mapping(amount: str) -> Json:
    """Return what a device that is memory itself says."""
    return {"nodeAllocatableResources": {"memory": {"mapping": {"deviceMultiplier": amount}}}}


def overhead(per_pod: str, per_container: str = "0") -> Json:
    """Return what a device says that needs memory beside itself."""
    needs = {"perPod": per_pod, "perContainer": per_container}
    return {"nodeAllocatableResources": {"memory": {"overhead": needs}}}


def of_1_36(amount: str) -> Json:
    return {"nodeAllocatableResourceMappings": {"memory": {"allocationMultiplier": amount}}}


def two_nodes(*devices: Json) -> ClusterBuilder:
    return a_cluster().node("a", gpus=devices, allocatable=ALLOCATABLE).node("b", gpus=devices, allocatable=ALLOCATABLE)


def using(demand: PodDemand, containers: int = 1, own: Json | None = None, **more: Any) -> PodDemand:
    """Return a pod whose containers name its first claim, as the manifest of a real one would.

    own: the resources of each container. more: of the spec.
    """
    names = [{"resources": {"claims": [{"name": "gpus"}], **(own or {})}} for _ in range(containers)]
    spec = {
        "containers": names,
        **more,
        "resourceClaims": [{"name": "gpus", "resourceClaimName": demand.claims[0].meta.name}],
    }
    meta = {"name": demand.pod.meta.name, "namespace": "team", "uid": demand.pod.meta.uid}
    return replace(demand, pod=pods.decode({"metadata": meta, "spec": spec}))


@pytest.mark.parametrize("choice", Choice)
@pytest.mark.parametrize(
    ("release", "device", "taken"),
    [
        (Release.V1_37, mapping("20Gi"), 20),
        (Release.V1_37, overhead("12Gi", "4Gi"), 20),
        (Release.V1_36, of_1_36("20Gi"), 20),
    ],
)
def test_a_node_takes_as_many_pods_as_their_devices_leave_memory_for(
    choice: Choice, release: Release, device: Json, taken: int
) -> None:
    builder = two_nodes(device, device)
    cluster = cluster_state.build(builder.snapshot(), (), profile=compatibility.profile(release))
    pods_ = [using(a_pod(f"p-{at}", 1), containers=2) for at in range(3)]

    def planned(count: int) -> Plan | NoPlan:
        return gang_planner.plan(pods_[:count], cluster, selectors=Selectors(), steps=STEPS, choice=choice)

    plan = planned(2)
    assert isinstance(plan, Plan)
    assert sorted(place.node for place in plan.pods) == ["a", "b"]
    assert plan.by_devices == {one.pod.meta.uid: {"memory": taken * GI} for one in pods_[:2]}
    after = cluster_state.granted(cluster, plan, {one.pod.meta.uid: one.pod for one in pods_}, "team/gang")
    assert (after.left[NodeName("a")] or {})["memory"] == (32 - taken) * GI
    refused = planned(3)
    assert isinstance(refused, NoPlan)
    assert "needs 20Gi memory of a node with the devices that it gets there" in refused.message


def test_another_device_is_not_tried_but_the_next_pod_gets_it() -> None:
    """kube-scheduler looks at resources when it has chosen devices, so the first device decides."""
    builder = a_cluster().node("a", gpus=[mapping("40Gi"), {}], allocatable=ALLOCATABLE)

    assert isinstance(builder.plan(using(a_pod("p", 1))), NoPlan)
    assert isinstance(builder.taken("a", 0).plan(using(a_pod("p", 1))), Plan)


@pytest.mark.parametrize(
    ("level", "starts"),
    [({"requests": "25Gi", "limits": "35Gi"}, True), ({"requests": "24Gi"}, False), ({"limits": "34Gi"}, False)],
)
def test_what_a_pod_has_as_a_whole_covers_its_containers_and_devices(level: dict[str, str], *, starts: bool) -> None:
    """1.37 wants that of requests and of limits. Each container requests 5Gi, up to 15Gi, beside a device of 20Gi."""
    whole = {name: {"memory": amount} for name, amount in ({"requests": "30Gi", "limits": "40Gi"} | level).items()}
    pod = using(a_pod("p", 1), own={"requests": {"memory": "5Gi"}, "limits": {"memory": "15Gi"}}, resources=whole)

    answer = two_nodes(mapping("20Gi")).plan(pod)

    if starts:
        assert isinstance(answer, Plan)
    else:
        assert "as a pod are too little memory for its containers and devices" in refused(answer).message


@pytest.mark.parametrize(("device", "starts"), [(mapping("1Gi"), False), (overhead("1Gi"), True)])
def test_a_claim_is_shared_unless_its_device_is_the_resource(device: Json, *, starts: bool) -> None:
    claim = a_claim("both", a_request())
    answer = two_nodes(device).plan(using(a_pod("p-0", claim)), using(a_pod("p-1", claim)))

    if starts:
        assert isinstance(answer, Plan)
        assert answer.by_devices == {"pod-p-0": {"memory": GI}, "pod-p-1": {"memory": GI}}
    else:
        assert isinstance(answer, NoPlan)
        assert (answer.kind, "lets no two pods share" in answer.message) == (Kind.FATAL, True)


@pytest.mark.parametrize(("memory", "starts"), [("12Gi", True), ("13Gi", False)])
def test_the_devices_that_a_claim_has_already_count_for_its_next_pod(memory: str, *, starts: bool) -> None:
    given = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    builder = a_cluster().node("a", gpus=[mapping("20Gi")], allocatable=ALLOCATABLE)
    builder.claims = [a_claim("c", a_request(), allocation={"devices": {"results": [given]}})]
    demand = a_pod("p", *builder.claims)

    answer = builder.plan(using(demand, own={"requests": {"memory": memory}}))

    assert isinstance(answer, Plan) is starts


@pytest.mark.parametrize("allocated", [True, False])
def test_a_granted_pod_counts_until_its_status_says_what_its_devices_take(*, allocated: bool) -> None:
    given = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}
    allocation = {"devices": {"results": [given]}} if allocated else None
    claim, demand = a_claim("c", a_request(), allocation=allocation), a_pod("p", 1)
    pod = replace(demand.pod, claims=(PodClaim(name="gpus", claim="c"),))
    builder = two_nodes(mapping("20Gi"))
    builder.claims, builder.pods = [claim], [pod]
    device = RequestDevice(request="gpu", device=DeviceId(DRIVER, "a", "gpu-0"))
    placement = Placement(
        gang_uid=GangUid("g"),
        gang="team/g",
        queue=QueueName("q"),
        reserved_at=datetime(2026, 1, 1, tzinfo=UTC),
        seats={pod.meta.uid: Seat(pod_uid=pod.meta.uid, pod="team/p", node=NodeName("a"), claims=(claim.meta.uid,))},
        holdings={
            claim.meta.uid: Holding(claim_uid=claim.meta.uid, claim="team/c", devices=(device,), charge={}),
        },
    )

    cluster = builder.cluster(placement)
    assert memory_left(cluster, "a") == 12 * GI

    told = replace(pod, claimed=replace(pod.claimed, taken={"memory": 8 * GI}))
    for later, left in (
        (replace(told, node=NodeName("a")), 24 * GI),
        (replace(pod, node=NodeName("a")), 32 * GI),
        (replace(pod, phase="Failed"), 32 * GI),
        (told, 24 * GI),
        (None, 32 * GI),
    ):
        snapshot = replace(builder.snapshot(), pods={} if later is None else {pod.meta.uid: later})
        cluster = cluster_state.build(snapshot, [placement], before=cluster)
        assert memory_left(cluster, "a") == left


def memory_left(cluster: cluster_state.ClusterState, node: str) -> int:
    return (cluster.left[NodeName(node)] or {})["memory"]


def test_the_status_of_a_pod_is_read_as_each_release_writes_it() -> None:
    new = {
        "resourceClaimName": "c",
        "containers": ["one", "two"],
        "mapping": [{"name": "cpu", "quantity": "1500u"}],
        "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "2Gi"}],
    }
    old = {"resourceClaimName": "c", "containers": ["one"], "resources": {"cpu": "2"}}

    def taken(status: Json, level: Json) -> Any:
        spec = {"containers": [{}], "resources": {"requests": level}}
        statuses = {"nodeAllocatableResourceClaimStatuses": [status]}
        return pods.decode({"metadata": {"name": "p"}, "spec": spec, "status": statuses}).claimed.taken

    assert taken(new, {}) == {"cpu": 2, "memory": 5 * GI}
    assert taken(old, {}) == {"cpu": 2000}
    assert taken(new, {"memory": "9Gi"}) == {"cpu": 2}, "within what the pod has as a whole"
