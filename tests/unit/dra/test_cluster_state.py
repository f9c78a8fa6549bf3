from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra import gang_planner
from admission.dra.allocator import node_allocator
from admission.dra.inventory import pools
from admission.dra.inventory.pools import NodeInventory, PoolHealth, Slices
from admission.dra.inventory.selectors import Selectors
from admission.dra.planner.no_plan import NoPlan
from admission.dra.requests import requests
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state import cluster_state, what_if
from admission.dra.state.what_if import Belongings
from tests.unit.dra.clusters import DRIVER, ClusterBuilder, a_claim, a_cluster, a_pod, a_request, given, places
from tests.unit.quota.test_tree import NOON

A = NodeName("a")
ALLOCATABLE = {"cpu": "4", "memory": "8Gi", "pods": "10"}


def node_inventory(cluster: ClusterBuilder, node: str = "a") -> NodeInventory:
    return cluster.cluster().node_inventories[NodeName(node)]


def seen(cluster: ClusterBuilder, node: str = "a") -> list[str]:
    return [
        f"{listed.id.pool}/{listed.id.device}"
        for pool in node_inventory(cluster, node).pools
        if pool.sound
        for listed in pool.listed_devices
    ]


def partition(*counters: str) -> dict[str, Any]:
    return {"consumesCounters": [{"counterSet": "card", "counters": {name: {"value": "1"} for name in counters}}]}


TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
ZONE = {"nodeSelectorTerms": [TERM]}
SETS = [{"name": "card", "counters": {"slices": {"value": "7"}}}]


def here() -> ClusterBuilder:
    return a_cluster().node("a", labels={"zone": "a"}).node("b", labels={"zone": "b"})


SEEN = {
    "a node sees its own slices": (here().slice("p", 1, nodeName="a"), ["p/gpu-0"]),
    "not those of others": (here().slice("p", 1, nodeName="b"), []),
    "those for all nodes": (here().slice("p", 1, allNodes=True), ["p/gpu-0"]),
    "those whose selector matches": (here().slice("p", 1, nodeSelector=ZONE), ["p/gpu-0"]),
    "a slice for nobody is nobody's": (here().slice("p", 1), []),
    "slices go by name, whatever their order in the list": (
        here()
        .slice("p-2", 1, pool="p", count=2, nodeName="a")
        .slice("p-1", [{"name": "z"}], pool="p", count=2, nodeName="a"),
        ["p/z", "p/gpu-0"],
    ),
    "pools go by driver, then by name": (
        here().slice("b", 1, nodeName="a").slice("a", 1, nodeName="a").slice("c", 1, driver="a.io", nodeName="a"),
        ["c/gpu-0", "a/gpu-0", "b/gpu-0"],
    ),
    "pools with binding conditions come last": (
        here().slice("a", [{"bindingConditions": ["Ready"]}], nodeName="a").slice("b", 1, nodeName="a"),
        ["b/gpu-0", "a/gpu-0"],
    ),
    "an older generation is dropped": (
        here()
        .slice("p-1", [{"name": "old"}], pool="p", nodeName="a")
        .slice("p-2", 1, pool="p", generation=2, nodeName="a"),
        ["p/gpu-0"],
    ),
    "a whole pool is used though another node has a newer generation": (
        here().slice("p-1", 1, pool="p", nodeName="a").slice("p-2", 1, pool="p", generation=2, nodeName="b"),
        ["p/gpu-0"],
    ),
    "a part of a pool is not, when a newer generation exists anywhere": (
        here().slice("p-1", 1, pool="p", count=2, nodeName="a").slice("p-2", 1, pool="p", generation=2, nodeName="b"),
        [],
    ),
    "slices on other nodes make a pool whole": (
        here()
        .slice("p-1", 1, pool="p", count=2, nodeName="a")
        .slice("p-2", [{"name": "other"}], pool="p", count=2, nodeName="b"),
        ["p/gpu-0"],
    ),
}


@pytest.mark.parametrize(("cluster", "devices"), SEEN.values(), ids=SEEN)
def test_a_node_sees_the_pools_that_its_slices_select(cluster: ClusterBuilder, devices: list[str]) -> None:
    assert seen(cluster) == devices


UNSOUND = {
    "a slice is missing": (here().slice("p", 1, count=2, nodeName="a"), PoolHealth.INCOMPLETE, "1 of 2 slices"),
    "there are too many": (
        here().slice("p-1", 1, pool="p", nodeName="a").slice("p-2", [{"name": "x"}], pool="p", nodeName="a"),
        PoolHealth.INCOMPLETE,
        "2 of 1 slices",
    ),
    "two devices have one name": (
        here().slice("p", [{"name": "x"}, {"name": "x"}], nodeName="a"),
        PoolHealth.INVALID,
        "device x is there twice",
    ),
    "a counter set is missing": (here().slice("p", [partition("slices")], nodeName="a"), PoolHealth.INVALID, "card"),
    "a counter is missing": (
        here()
        .slice("p-1", [partition("memory")], pool="p", count=2, nodeName="a")
        .slice("p-2", [], pool="p", count=2, nodeName="a", sharedCounters=SETS),
        PoolHealth.INVALID,
        "counter card/memory",
    ),
    "two counter sets have one name": (
        here()
        .slice("p", [], nodeName="a", sharedCounters=SETS)
        .slice("q", [], pool="p", nodeName="a", sharedCounters=SETS),
        PoolHealth.INCOMPLETE,
        "2 of 1",
    ),
}


@pytest.mark.parametrize(("cluster", "soundness", "why"), UNSOUND.values(), ids=UNSOUND)
def test_a_pool_that_is_not_sound_is_not_used_and_says_why(
    cluster: ClusterBuilder, soundness: PoolHealth, why: str
) -> None:
    (pool,) = node_inventory(cluster).pools

    assert pool.soundness is soundness
    assert why in pool.why
    assert seen(cluster) == []


def test_a_pool_is_disputed_that_1_36_sees_differently_for_counters_of_another_node() -> None:
    builder = a_cluster().node("a").node("b")
    for pool, node, generation in (("p", "a", 1), ("q", "a", 1), ("q", "b", 2)):
        where: dict[str, Any] = {"pool": pool, "nodeName": node, "generation": generation, "count": 2}
        builder.slice(f"{pool}-{node}", [partition("slices")], **where)
        builder.slice(f"{pool}-{node}-sets", [], sharedCounters=SETS, **where)

    inventories = builder.cluster().node_inventories

    assert {node: {name for _, name in one.disputed} for node, one in inventories.items()} == {"a": {"q"}, "b": set()}


def test_per_device_selection_keeps_other_nodes_devices_out_of_reach() -> None:
    cluster = here().slice("p", [{"nodeName": "b"}, {"nodeSelector": ZONE}], perDeviceNodeSelection=True)

    assert [listed.reachable for pool in node_inventory(cluster).pools for listed in pool.listed_devices] == [
        False,
        True,
    ]
    assert given(cluster.plan(a_pod("p", 1, nodeSelector={"zone": "a"}))) == {"p": ["p/gpu-1"]}


def test_without_a_gang_its_devices_and_shares_are_free_and_those_of_others_are_not() -> None:
    builder = a_cluster().node("a", gpus=4)
    for at, name in enumerate(("mine", "other")):
        share = result("a", 2, shareID=name, consumedCapacity={"memory": "10Gi"})
        results = [result("a", at), share]
        builder.claims.append(a_claim(name, a_request(), allocation={"devices": {"results": results}}))
    cluster = builder.cluster()

    removed = what_if.without_gangs(cluster, [Belongings(claims=frozenset({"team/mine"}))])

    assert set(removed.taken) == {device("a", 1)}
    assert {at: [one.holder.claim for one in shares] for at, shares in removed.shares.items()} == {
        device("a", 2): ["team/other"]
    }


def test_unchanged_node_inventories_are_taken_from_the_previous_cluster_state() -> None:
    builder = a_cluster().node("a", gpus=1).node("b", gpus=1)
    snapshot = builder.snapshot()
    before = cluster_state.build(snapshot, ())
    changed = replace(
        snapshot, slices={**snapshot.slices, "b": replace(snapshot.slices["b"], meta=snapshot.slices["b"].meta)}
    )
    after = cluster_state.build(changed, (), before=before)

    assert after.node_inventories[A] is before.node_inventories[A]
    assert after.node_inventories[NodeName("b")] is not before.node_inventories[NodeName("b")]


def test_a_node_that_changed_is_asked_again_which_slices_select_it() -> None:
    snapshot = a_cluster().node("a").node("b").slice("pool", 1, nodeSelector=ZONE).snapshot()
    before = cluster_state.build(snapshot, ())
    node = snapshot.nodes[A]
    moved = replace(node, meta=replace(node.meta, labels={"zone": "a"}))
    after = cluster_state.build(replace(snapshot, nodes={**snapshot.nodes, A: moved}), (), before=before)

    assert [len(cluster.node_inventories[A].pools) for cluster in (before, after)] == [0, 1]
    assert after.node_inventories[NodeName("b")] is before.node_inventories[NodeName("b")]


def device(pool: str, at: int) -> DeviceId:
    return DeviceId(DRIVER, pool, f"gpu-{at}")


def result(pool: str, at: int, **more: Any) -> dict[str, Any]:
    return {"request": "gpu", "driver": DRIVER, "pool": pool, "device": f"gpu-{at}", **more}


def planned(pod: str, claim: str, node: str, at: int, *, settled: bool = False) -> Placement:
    held = Holding(
        claim_uid=Uid(f"claim-{claim}"),
        claim=f"team/{claim}",
        devices=(RequestDevice(request="gpu", device=device(node, at)),),
        charge={},
        settled=settled,
    )
    seat = Seat(pod_uid=Uid(f"pod-{pod}"), pod=f"team/{pod}", node=NodeName(node), claims=(held.claim_uid,))
    return Placement(
        gang_uid=GangUid("g"),
        gang="team/g",
        queue=QueueName("q"),
        reserved_at=NOON,
        seats={seat.pod_uid: seat},
        holdings={held.claim_uid: held},
    )


def test_allocated_devices_are_taken_but_those_for_administration_are_not() -> None:
    builder = a_cluster().node("a", gpus=4)
    share = result("a", 2, shareID="x", consumedCapacity={"memory": "10Gi"})
    results = [result("a", 0), result("a", 1, adminAccess=True), share]
    builder.claims.append(a_claim("c", a_request(), allocation={"devices": {"results": results}}))
    cluster = builder.cluster()

    assert set(cluster.taken) == {device("a", 0)}
    assert {at: [one.share for one in shares] for at, shares in cluster.shares.items()} == {
        device("a", 2): [{"memory": 10 << 30}]
    }


def test_planned_devices_are_taken_until_the_allocation_is_seen() -> None:
    builder = a_cluster().node("a", gpus=4)
    builder.claims.append(a_claim("c", a_request()))
    cluster = builder.cluster(planned("p", "c", "a", 0))
    assert set(cluster.taken) == {device("a", 0)}
    assert cluster.taken[device("a", 0)].referent().name == "claim team/c of gang team/g"
    assert cluster.pinned == {Uid("claim-c"): frozenset({A})}

    builder.claims[:] = [a_claim("c", a_request(), allocation={"devices": {"results": [result("a", 3)]}})]
    seen_now = builder.cluster(planned("p", "c", "a", 0))
    assert set(seen_now.taken) == {device("a", 3)}
    assert seen_now.pinned == {}


def test_a_pod_that_comes_late_follows_its_planned_shared_claim() -> None:
    builder = a_cluster().node("a", gpus=1).node("b")
    late = a_pod("late", a_claim("c", a_request()))
    cluster = builder.cluster(planned("p", "c", "b", 0))
    plan = planning_of(cluster, late)

    assert places(plan) == {"late": "b"}
    assert given(plan) == {"late": []}


def planning_of(cluster: cluster_state.ClusterState, *demands: PodDemand) -> Plan | NoPlan:
    return gang_planner.plan(demands, cluster, selectors=Selectors(), steps=1000)


def test_bound_pods_and_granted_pods_take_resources() -> None:
    builder = a_cluster().node("a", allocatable=ALLOCATABLE)
    for name, spec in (("bound", {"nodeName": "a"}), ("granted", {}), ("gated", {})):
        builder.pods.append(a_pod(name, requests={"cpu": "1"}, **spec).pod)
    done = replace(builder.pods[0], meta=replace(builder.pods[0].meta, uid=Uid("done")), phase="Succeeded")
    builder.pods.append(done)
    cluster = builder.cluster(planned("granted", "c", "a", 0))

    assert cluster.left[A] == {"cpu": 2000, "memory": 8 << 30, "pods": 8}
    assert what_if.empty(cluster).left[A] == {"cpu": 4000, "memory": 8 << 30, "pods": 10}


def test_a_granted_plan_counts_for_the_next_plan_of_the_cycle() -> None:
    builder = a_cluster().node("a", gpus=1, allocatable=ALLOCATABLE)
    first, second = a_pod("p", 1, requests={"cpu": "1"}), a_pod("q", 1)
    plan = builder.plan(first)
    assert isinstance(plan, Plan)
    cluster = cluster_state.granted(builder.cluster(), plan, {first.pod.meta.uid: first.pod}, "team/g")

    assert cluster.left[A] == {"cpu": 3000, "memory": 8 << 30, "pods": 9}
    assert not isinstance(planning_of(cluster, second), Plan)


def test_claims_without_uid_are_distinguished_by_name() -> None:
    """Offline, nothing has a UID."""
    builder = a_cluster().node("a", gpus=1).node("b", gpus=1)
    first, second = (a_pod(name, replace(c, meta=replace(c.meta, uid=Uid("")))) for name, c in NAMED.items())
    plan = builder.plan(first, second)
    assert places(plan) == {"p": "a", "q": "b"}
    assert isinstance(plan, Plan)
    assert {one.claim_uid for one in plan.holdings} == {"team/p-c", "team/q-c"}

    cluster = cluster_state.granted(
        builder.cluster(), replace(plan, pods=plan.pods[:1]), {first.pod.meta.uid: first.pod}, "team/g"
    )
    assert places(planning_of(cluster, second)) == {"q": "b"}
    assert given(planning_of(cluster, second)) == {"q": ["b/gpu-0"]}


NAMED = {name: a_claim(f"{name}-c", a_request()) for name in ("p", "q")}


def test_a_device_is_found_as_its_newest_slice_describes_it() -> None:
    builder = a_cluster().slice("p-1", [{"attributes": {"n": {"int": 1}}}], pool="p", nodeName="a")
    builder.slice("p-2", [{"attributes": {"n": {"int": 2}}}], pool="p", generation=2, nodeName="a")
    slices = Slices(builder.snapshot().slices)
    found = slices.device(device("p", 0))

    assert found is not None
    assert found.attributes == {"n": 2}
    assert slices.device(device("p", 7)) is None


def test_selectors_forget_slices_that_are_gone() -> None:
    builder = a_cluster().node("a", gpus=1)
    selectors = Selectors()
    claim = a_claim("c", a_request())
    found = node_allocator.allocate([claim], A, builder.cluster(), selectors=selectors, steps=10)
    assert isinstance(found, node_allocator.Allocated)

    selectors.keep(builder.cluster().node_inventories)
    assert len(selectors._seen) == 1
    selectors.keep({})
    assert len(selectors._seen) == 0


def test_a_slice_of_one_version_that_says_something_else_is_read_again() -> None:
    """Manifests written by hand may repeat a UID."""
    selectors, claim = Selectors(), a_claim("c", a_request("gpu", 2))
    found = [
        node_allocator.allocate([claim], A, a_cluster().node("a", gpus=gpus).cluster(), selectors=selectors, steps=10)
        for gpus in (1, 2)
    ]

    assert [type(outcome) for outcome in found] == [node_allocator.NotHere, node_allocator.Allocated]


NONE = "request gpu of claim c needs 2 of class gpu: no device matches"
HERE = {
    "no device matches": (here(), NONE),
    "too few are free": (
        here().slice("p", 3, nodeName="a").taken("p", 0, 1),
        "request gpu of claim c needs 2 of class gpu: 3 match, 1 free",
    ),
    "a pool is broken": (
        here().slice("p", 2, count=2, nodeName="a"),
        f"{NONE}; pool p of gpu.example.com: 1 of 2 slices of generation 1 are there",
    ),
}


@pytest.mark.parametrize(("cluster", "sentence"), HERE.values(), ids=HERE)
def test_a_node_that_a_pod_does_not_fit_is_refused_with_the_reason(cluster: ClusterBuilder, sentence: str) -> None:
    claim = a_claim("c", a_request("gpu", 2))
    found = node_allocator.allocate([claim], A, cluster.cluster(), selectors=Selectors(), steps=100)

    assert isinstance(found, node_allocator.NotHere)
    assert found.message == sentence


def test_a_constraint_needs_an_attribute() -> None:
    cluster = a_cluster().node("a", gpus=1).cluster()
    claim = a_claim("c", a_request(), constraints=[{"requests": ["gpu"]}])

    assert isinstance(node_allocator.allocate([claim], A, cluster, selectors=Selectors(), steps=10), requests.Fatal)


def test_the_title_of_a_pool_has_its_name_and_driver() -> None:
    assert pools.Pool(driver="d", name="p").title == "pool p of d"


def booked(*seats: tuple[str, str], device: DeviceId) -> Placement:
    """Pods with seats, each with its node, that wait for one shared claim."""
    claim = Uid("claim-c")
    held = Holding(claim_uid=claim, claim="team/c", devices=(RequestDevice(request="gpu", device=device),), charge={})
    return Placement(
        gang_uid=GangUid("g"),
        gang="team/g",
        queue=QueueName("q"),
        reserved_at=NOON,
        seats={
            Uid(f"pod-{pod}"): Seat(pod_uid=Uid(f"pod-{pod}"), pod=f"team/{pod}", node=NodeName(node), claims=(claim,))
            for pod, node in seats
        },
        holdings={claim: held},
    )


def test_a_shared_claim_has_the_consumers_that_have_a_seat() -> None:
    """200 pods wait for it; 100 more of another gang would make 300, and it can be reserved for 256."""
    builder = a_cluster().node("a", gpus=1)
    claim = a_claim("c", a_request())
    builder.claims.append(claim)
    cluster = builder.cluster(booked(*((f"p-{at}", "a") for at in range(200)), device=device("a", 0)))

    assert isinstance(planning_of(cluster, *(a_pod(f"q-{at}", claim) for at in range(56))), Plan)
    assert isinstance(planning_of(cluster, *(a_pod(f"q-{at}", claim) for at in range(57))), NoPlan)


def test_a_gang_of_the_same_cycle_counts_too() -> None:
    builder = a_cluster().node("a", gpus=1)
    claim = a_claim("c", a_request())
    builder.claims.append(claim)
    first = [a_pod(f"p-{at}", claim) for at in range(200)]
    plan = planning_of(builder.cluster(), *first)
    assert isinstance(plan, Plan)
    pods = {demand.pod.meta.uid: demand.pod for demand in first}
    after = cluster_state.granted(builder.cluster(), plan, pods, "team/g", {uid: [claim.meta.uid] for uid in pods})

    assert isinstance(planning_of(after, *(a_pod(f"q-{at}", claim) for at in range(56))), Plan)
    assert isinstance(planning_of(after, *(a_pod(f"q-{at}", claim) for at in range(57))), NoPlan)


@pytest.mark.parametrize("node", ["a", "b"])
def test_a_planned_shared_claim_may_be_used_on_every_node_with_a_pod_of_the_claim(node: str) -> None:
    """Its device is one that both nodes reach."""
    builder = a_cluster().node("a", labels={"name": "a"}).node("b", labels={"name": "b"})
    builder.slice("fabric", 2, allNodes=True)
    claim = a_claim("c", a_request())
    builder.claims.append(claim)
    cluster = builder.cluster(booked(("p", "a"), ("q", "b"), device=device("fabric", 0)))

    assert places(planning_of(cluster, a_pod("late", claim, nodeSelector={"name": node}))) == {"late": node}
