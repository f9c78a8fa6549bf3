"""Nothing is promised of amounts such as 1.5Gi to a 1.36, which adds them up in the stored slice.

There copies of a Quantity share the decimal behind them, so that Sub and Add change the slice itself
(allocator_incubating.go v0.36.3, lines 1596 and 1635).
"""

from typing import Any

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
