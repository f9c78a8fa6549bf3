"""kube-scheduler gives what it likes, in its own order and seen one by one; nobody is promised what is left of nothing.

Under `Pin` two gangs that were granted may change places, and a claim may take what was freed after it was granted.
"""

import itertools
from dataclasses import replace

import pytest

from admission.api.kubernetes import claims
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.api.values.reasons import HoldReason
from admission.dra import gang_planner
from admission.dra.allocator import nominated
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests.gang_request import Plan
from tests.builders import CLASS, NOON
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, run
from tests.unit.cycle.test_devices import SHARED, Shaped, held, share
from tests.unit.dra import clusters
from tests.unit.dra.clusters import DRIVER, STEPS, a_claim, a_cluster, a_pod, a_request

GIVEN = {"low-0": ("gpu-1", "16Gi"), "low-1": ("gpu-1", "16Gi"), "high-0": ("gpu-0", "36Gi")}
"""Planned were both of low on gpu-0, and high on gpu-1: kube-scheduler served high first."""

SEEN = [seen for count in range(len(GIVEN) + 1) for seen in itertools.combinations(GIVEN, count)]


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: " and ".join(seen) or "nothing")
async def test_device_shares_that_are_used_up_are_granted_to_no_gang_in_whatever_order_claims_appear(
    seen: tuple[str, ...],
) -> None:
    """Claims are written when their pods are bound, at the same time: none of their orders is impossible."""
    builder = Shaped(SHARED, SHARED).asking("low", pods=2, **share("16Gi")).asking("high", **share("36Gi"))
    cluster, ledger = Cluster(builder.asking("next", **share("12Gi"))), Ledger()
    leader = a_leader(cluster, ledger)
    before = await run(leader)
    assert [name for name, _ in cluster.opened] == ["low-0", "low-1", "high-0"]
    assert held(before, "next") == HoldReason.DEVICES_BUSY

    for name in seen:
        give(cluster, name, *GIVEN[name])
    result = await run(leader)

    assert held(result, "next") == HoldReason.DEVICES_BUSY


def give(cluster: Cluster, pod: str, device: str, memory: str) -> None:
    """Allocate a share of a device to the claim of a pod."""
    result = {"request": "gpu", "driver": CLASS, "pool": "a", "device": device, "shareID": pod}
    allocation = {"devices": {"results": [{**result, "consumedCapacity": {"memory": memory}}]}}
    key = f"team/{pod}-gpus"
    cluster._claims[key] = replace(cluster._claims[key], allocation=claims.decode_allocation(allocation))


def sized(size: str) -> clusters.Json:
    asked: clusters.Json = a_request(size, 1, f"device.attributes['{DRIVER}'].size == '{size}'")
    return {"name": size, **asked["exactly"]}


def test_a_freed_device_that_a_granted_claim_may_take_is_granted_to_no_other_claim() -> None:
    """It was granted on the small one while the big one was in use; now that is free, and its own first choice."""
    builder = a_cluster().node("a", gpus=[{"attributes": {"size": {"string": size}}} for size in ("big", "small")])
    first = a_claim("first", {"name": "gpu", "firstAvailable": [sized("big"), sized("small")]})
    builder.claims.append(first)
    given = RequestDevice(request="gpu/small", device=DeviceId(DRIVER, "a", "gpu-1"))
    seat = Seat(pod_uid=Uid("pod-first"), pod="team/first", node=NodeName("a"), claims=(first.meta.uid,))
    holding = Holding(claim_uid=first.meta.uid, claim="team/first", devices=(given,), charge={})
    placement = Placement(
        gang_uid=GangUid("g"),
        gang="team/g",
        queue=QueueName("q"),
        reserved_at=NOON,
        seats={seat.pod_uid: seat},
        holdings={first.meta.uid: holding},
    )
    cluster_state = nominated.predict(builder.cluster(placement), selectors=Selectors(), steps=STEPS)

    big = a_request("gpu", 1, f"device.attributes['{DRIVER}'].size == 'big'")
    answer = gang_planner.plan([a_pod("second", big)], cluster_state, selectors=Selectors(), steps=STEPS)

    assert not isinstance(answer, Plan)
