"""The devices of allocated claims, with whom they serve; and only what changed is another object."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims, devices, pods
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import RequestDevice, Slice
from admission.api.kubernetes.meta import EPOCH
from admission.api.kubernetes.pods import Pod
from admission.api.muster import gangs, queues
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.quota.tree import Tree
from admission.status.device_allocations import DeviceAllocation, DeviceAllocations

GPU = "gpu.example.com"
WHOLE = DeviceAllocation(
    driver=GPU,
    pool="node-a",
    device="gpu-0",
    node="node-a",
    device_class="h100",
    uuid="GPU-node-a-0",
    namespace="ml",
    claim="c",
    pod="p",
    gang="train",
    workload="Job/train",
    queue="vision",
    queue_path="research/vision",
    user="zoe",
)


def a_slice(node: str = "node-a", *, generation: int = 1, attributes: Json | None = None) -> Slice:
    def device(at: int) -> dict[str, Any]:
        known = attributes or {"uuid": {"string": f"GPU-{node}-{at}"}, "serial": {"int": 40 + at}}
        return {"name": f"gpu-{at}", "attributes": known}

    return devices.decode_slice(
        {
            "metadata": {"name": f"{node}-{generation}", "uid": f"{node}-{generation}"},
            "spec": {
                "driver": GPU,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
                "devices": [device(at) for at in range(2)],
            },
        }
    )


def a_claim(*users: str, name: str = "c", given: tuple[str, ...] = ("gpu-0",), **result: Any) -> Claim:
    request = {"name": "gpu", "exactly": {"deviceClassName": "h100"}}
    results = [{"request": "gpu", "driver": GPU, "pool": "node-a", "device": device, **result} for device in given]
    status: dict[str, Any] = {"reservedFor": [{"name": user, "uid": user} for user in users]}
    if given:
        status["allocation"] = {"devices": {"results": results}}
    meta = {"name": name, "namespace": "ml", "uid": f"uid-{name}"}
    return claims.decode({"metadata": meta, "spec": {"devices": {"requests": [request]}}, "status": status})


def a_pod(name: str, node: str = "node-a") -> Pod:
    meta = {"name": name, "namespace": "ml", "uid": name}
    return pods.decode({"metadata": meta, "spec": {"containers": [], "nodeName": node}})


def a_placement(*, holds: str = "uid-c", queue: str = "vision", pod: str = "p") -> Placement:
    holding = Holding(claim_uid=Uid(holds), claim="ml/c", devices=(), charge={})
    seat = Seat(pod_uid=Uid(pod), pod=f"ml/{pod}", node=NodeName("node-a"))
    return Placement(
        gang_uid=GangUid("g"),
        gang="ml/train",
        queue=QueueName(queue),
        reserved_at=EPOCH,
        user="zoe",
        seats={seat.pod_uid: seat},
        holdings={holding.claim_uid: holding},
    )


GANG = gangs.decode(
    {
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"queue": "vision", "workload": {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j"}},
    }
)
TREE = Tree.build(
    [
        queues.decode({"metadata": {"name": name}, "spec": {"parent": parent} if parent else {}})
        for name, parent in (("research", ""), ("vision", "research"), ("speech", ""))
    ]
)
PLACED = {GangUid("g"): a_placement()}


def a_snapshot(*objects: Claim | Pod | Slice) -> Snapshot:
    return Snapshot(
        claims={one.meta.key: one for one in objects if isinstance(one, Claim)},
        pods={one.meta.uid: one for one in objects if isinstance(one, Pod)},
        slices={one.meta.key: one for one in objects if isinstance(one, Slice)},
        gangs={GANG.meta.key: GANG},
    )


OUTSIDE = WHOLE._replace(gang="", workload="", queue="", queue_path="", user="")
CASES: dict[str, tuple[Snapshot, dict[GangUid, Placement], tuple[DeviceAllocation, ...]]] = {
    "all that is known": (a_snapshot(a_slice(), a_claim("p"), a_pod("p")), PLACED, (WHOLE,)),
    "two devices of a claim": (
        a_snapshot(a_slice(), a_claim("p", given=("gpu-0", "gpu-1")), a_pod("p")),
        PLACED,
        (WHOLE, WHOLE._replace(device="gpu-1", uuid="GPU-node-a-1")),
    ),
    "two shares of one device are one": (
        a_snapshot(a_slice(), a_claim("p", given=("gpu-0", "gpu-0"), shareID="s"), a_pod("p")),
        PLACED,
        (WHOLE,),
    ),
    "of pods that share a claim none is named": (
        a_snapshot(a_slice(), a_claim("p", "q"), a_pod("p"), a_pod("q")),
        PLACED,
        (WHOLE._replace(pod=""),),
    ),
    "a claim outside queues": (a_snapshot(a_slice(), a_claim("p"), a_pod("p")), {}, (OUTSIDE,)),
    "a claim for extended resources, which is in the ledger by its pod": (
        a_snapshot(a_slice(), a_claim("p"), a_pod("p")),
        {GangUid("g"): a_placement(holds="extended")},
        (WHOLE,),
    ),
    "a device that no slice has any more is where its pod is": (
        a_snapshot(a_claim("p"), a_pod("p", node="node-b")),
        PLACED,
        (WHOLE._replace(node="node-b", uuid=""),),
    ),
    "of two generations the newer counts": (
        a_snapshot(a_slice(generation=2), a_slice(attributes={"uuid": {"string": "old"}}), a_claim("p"), a_pod("p")),
        PLACED,
        (WHOLE,),
    ),
    "a queue that the tree does not have stands alone": (
        a_snapshot(a_slice(), a_claim("p"), a_pod("p")),
        {GangUid("g"): a_placement(queue="gone")},
        (WHOLE._replace(queue="gone", queue_path="gone"),),
    ),
    "admin access takes nothing": (a_snapshot(a_slice(), a_claim("p", adminAccess=True), a_pod("p")), PLACED, ()),
    "a claim that waits": (a_snapshot(a_slice(), a_claim("p", given=()), a_pod("p")), PLACED, ()),
}


@pytest.mark.parametrize(("snapshot", "placements", "rows"), CASES.values(), ids=CASES)
def test_an_allocated_device_is_told_with_whom_it_serves(
    snapshot: Snapshot, placements: dict[GangUid, Placement], rows: tuple[DeviceAllocation, ...]
) -> None:
    assert DeviceAllocations().update(snapshot, placements, TREE) == ({"ml/c": rows} if rows else {})


ATTRIBUTES = {
    "named as in the slice": ({GPU: "serial"}, a_slice(), "40"),
    "named without its domain": ({}, a_slice(attributes={f"{GPU}/uuid": {"string": "GPU-1"}}), "GPU-1"),
    "that the device does not have": ({GPU: "serial"}, a_slice(attributes={"uuid": {"string": "GPU-1"}}), ""),
    "that is no name": ({}, a_slice(attributes={"uuid": {"bool": True}}), ""),
    "of another driver": ({"nic.example.com": "serial"}, a_slice(), "GPU-node-a-0"),
}


@pytest.mark.parametrize(("named", "piece", "uuid"), ATTRIBUTES.values(), ids=ATTRIBUTES)
def test_the_settings_name_the_attribute_that_identifies_a_device(
    named: dict[str, str], piece: Slice, uuid: str
) -> None:
    found = DeviceAllocations(named).update(a_snapshot(piece, a_claim("p")), {}, TREE)

    assert [row.uuid for row in found["ml/c"]] == [uuid]


def test_what_did_not_change_is_the_same_object() -> None:
    allocations, other = DeviceAllocations(), a_claim("q", name="d", given=("gpu-1",))
    snapshot = a_snapshot(a_slice(), a_claim("p"), other, a_pod("p"), a_pod("q"))
    first = allocations.update(snapshot, PLACED, TREE)

    again = allocations.update(replace(snapshot, pods=dict(snapshot.pods)), dict(PLACED), TREE)
    renamed = allocations.update(replace(snapshot, claims={"ml/c": a_claim(), "ml/d": other}), PLACED, TREE)

    assert again is first
    assert renamed["ml/d"] is first["ml/d"]
    assert [row.pod for row in renamed["ml/c"]] == [""]


def test_a_device_says_to_whom_a_queue_was_moved() -> None:
    allocations, snapshot = DeviceAllocations(), a_snapshot(a_slice(), a_claim("p"), a_pod("p"))
    allocations.update(snapshot, PLACED, TREE)

    moved = Tree.build(
        [queues.decode({"metadata": {"name": "vision"}, "spec": {}}), *(TREE.queues[QueueName("speech")],)]
    )

    assert [row.queue_path for row in allocations.update(snapshot, PLACED, moved)["ml/c"]] == ["vision"]


def test_the_devices_of_a_reservation_that_nobody_allocated_are_not_told() -> None:
    planned = replace(
        a_placement(),
        holdings={
            Uid("uid-c"): Holding(
                claim_uid=Uid("uid-c"),
                claim="ml/c",
                devices=(RequestDevice(request="gpu", device=devices.DeviceId(GPU, "node-a", "gpu-0")),),
                charge={},
            )
        },
    )

    assert DeviceAllocations().update(a_snapshot(a_slice()), {GangUid("g"): planned}, TREE) == {}
