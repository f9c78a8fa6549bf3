"""Nothing is promised of amounts such as 1.5Gi to a 1.36, which adds them up in the stored slice.

Nor of a 1.35 where its order of pools and slices decides, which is that of a map (`GatherPools`, pools_incubating.go
v0.35.4). In 1.36 copies of a Quantity share the decimal behind them, so that Sub and Add change the slice itself
(allocator_incubating.go v0.36.3, lines 1596 and 1635).
"""

from typing import Any

import pytest

from admission.api.kubernetes.claims import Claim
from admission.api.values.names import NodeName
from admission.dra import compatibility
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.compatibility import Release
from admission.dra.inventory.selectors import Selectors
from admission.dra.state import cluster_state
from tests.unit.dra.clusters import ClusterBuilder, a_claim, a_cluster, a_request


def part(amount: str) -> dict[str, Any]:
    return {"consumesCounters": [{"counterSet": "card", "counters": {"memory": {"value": amount}}}]}


def is_promised(builder: ClusterBuilder, *claims: Claim, release: Release = Release.V1_36) -> bool:
    cluster = cluster_state.build(builder.snapshot(), (), profile=compatibility.profile(release))
    selectors = Selectors(cluster.profile.cel)
    found = node_allocator.allocate(claims, NodeName("a"), cluster, selectors=selectors, steps=100, certain=True)
    return isinstance(found, Allocated)


def test_devices_whose_counters_1_36_adds_up_in_the_slice_are_not_certain() -> None:
    sets = [{"name": "card", "counters": {"memory": {"value": "4.5Gi"}}}]
    builder = a_cluster().node("a").slice("p", [part("1.5Gi")] * 3, pool="p", count=2, nodeName="a")
    builder.slice("sets", [], pool="p", count=2, nodeName="a", sharedCounters=sets)
    claim = a_claim("c", a_request("r", 2))

    assert not is_promised(builder, claim)
    assert is_promised(builder, claim, release=Release.V1_37)


def test_devices_whose_default_capacity_1_36_adds_up_in_the_slice_are_not_certain() -> None:
    """Two shares of one device in one pod: the second check adds what the first takes to the policy's own default."""
    capacity = {"memory": {"value": "8Gi", "requestPolicy": {"default": "1.5Gi"}}}
    builder = a_cluster().node("a", gpus=[{"allowMultipleAllocations": True, "capacity": capacity}])
    claims = [a_claim(name, a_request("r")) for name in "ab"]

    assert not is_promised(builder, *claims)
    assert is_promised(builder, *claims, release=Release.V1_37)


def test_devices_whose_requested_capacity_1_36_adds_up_in_the_claim_are_not_certain() -> None:
    builder = a_cluster().node("a", gpus=[{"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}])
    claim = a_claim("c", a_request("r", capacity={"requests": {"memory": "1.5Gi"}}))

    assert not is_promised(builder, claim)
    assert is_promised(builder, claim, release=Release.V1_37)


def two_slices() -> ClusterBuilder:
    """Two devices each, in one pool."""
    builder, of_pool = a_cluster().node("a"), dict[str, Any](pool="p", count=2, nodeName="a")
    return builder.slice("x", [{}, {}], **of_pool).slice("y", [{"name": "b"}, {"name": "c"}], **of_pool)


def one_slice() -> ClusterBuilder:
    return a_cluster().node("a", gpus=4)


def in_two(name: str, *selectors: str) -> dict[str, Any]:
    option = {"name": name, "deviceClassName": "gpu", "allocationMode": "All"}
    return {**option, "selectors": [{"cel": {"expression": text}} for text in selectors]}


ROOT = "resource.kubernetes.io/pcieRoot"
SAME_ROOT = {"constraints": [{"matchAttribute": ROOT}]}
WITH_ROOT = [{"name": f"r{at}", "attributes": {ROOT: {"string": "root"}}} for at in range(2)]

ORDERS: dict[str, tuple[ClusterBuilder, Claim, bool]] = {
    "one slice has an order": (one_slice(), a_claim("c", a_request("r", 2)), True),
    "slices of one pool have none": (two_slices(), a_claim("c", a_request("r", 2)), False),
    "nor have pools": (
        a_cluster().node("a", gpus=1).slice("y", [{}], nodeName="a"),
        a_claim("c", a_request("r")),
        False,
    ),
    "all that match are taken in any order": (two_slices(), a_claim("c", a_request("r", 4)), True),
    "as by mode All": (two_slices(), a_claim("c", a_request("r", allocationMode="All")), True),
    "under a constraint mode All fails by what comes first": (
        a_cluster().node("a", gpus=WITH_ROOT).slice("y", [{**WITH_ROOT[0], "name": "y"}], nodeName="a"),
        a_claim("c", a_request("r", allocationMode="All"), **SAME_ROOT),
        False,
    ),
    "an alternative of mode All that is not the first is forgotten": (
        one_slice(),
        a_claim("c", {"name": "r", "firstAvailable": [in_two("none", "false"), in_two("all")]}),
        False,
    ),
}


@pytest.mark.parametrize("case", ORDERS)
def test_a_1_35_is_promised_for_only_where_its_random_order_makes_no_difference(case: str) -> None:
    builder, claim, certain = ORDERS[case]

    assert is_promised(builder, claim, release=Release.V1_35) is certain
    assert is_promised(builder, claim, release=Release.V1_36)


def test_a_1_35_forgets_which_alternative_it_takes_all_devices_for() -> None:
    one = {**in_two("one", "false"), "allocationMode": "ExactCount", "count": 1}
    claim = a_claim("c", {"name": "r", "firstAvailable": [one, in_two("all")]})

    assert [given(one_slice(), claim, release) for release in (Release.V1_35, Release.V1_36)] == [1, 4]


def given(builder: ClusterBuilder, claim: Claim, release: Release) -> int:
    """Return how many devices a claim gets."""
    cluster = cluster_state.build(builder.snapshot(), (), profile=compatibility.profile(release))
    selectors = Selectors(cluster.profile.cel)
    found = node_allocator.allocate([claim], NodeName("a"), cluster, selectors=selectors, steps=100)
    return len(found.devices[0]) if isinstance(found, Allocated) else 0


def elsewhere(**changes: Any) -> ClusterBuilder:
    """One slice of a pool of two for node a, and the other for node b."""
    builder = a_cluster().node("a").node("b").slice("x", [{}, {}], pool="p", count=2, nodeName="a")
    return builder.slice("y", [{"name": "z"}], **{"pool": "p", "count": 2, "nodeName": "b", **changes})


@pytest.mark.parametrize(
    ("builder", "given_by"),
    [
        (elsewhere(), {"1.34": 1, "1.35": 1}),
        (elsewhere(generation=2), {"1.34": 1, "1.35": 0}),
        (a_cluster().node("a").slice("x", [{}], pool="p", count=2, nodeName="a"), {"1.34": 1, "1.35": 0}),
    ],
    ids=["slices for other nodes", "a newer generation for other nodes", "a missing slice"],
)
def test_a_1_34_gives_devices_of_a_pool_that_is_incomplete_for_the_node_and_none_is_a_promise(
    builder: ClusterBuilder, given_by: dict[str, int]
) -> None:
    """`GatherPools`, pools_experimental.go v0.34.4: it counts the slices that are for the node."""
    claim = a_claim("c", a_request("r"))

    assert {release: given(builder, claim, Release(release)) for release in given_by} == given_by
    assert not is_promised(builder, claim, release=Release.V1_34)
    assert is_promised(builder, claim, release=Release.V1_35) is bool(given_by["1.35"])
    assert is_promised(one_slice(), claim, release=Release.V1_34)
