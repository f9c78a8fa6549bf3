"""Claims whose planned devices others were given: where they will land counts as taken until it is seen."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.dra.allocator import nominated
from admission.dra.inventory.selectors import Selectors
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from tests.builders import NOON
from tests.unit.dra.clusters import DRIVER, STEPS, ClusterBuilder, Json, a_claim, a_cluster, a_pod, a_request

A, Q = NodeName("a"), QueueName("q")
RESOURCE = "example.com/gpu"

SHARED: Json = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "40Gi"}}}


def share(memory: str) -> Json:
    return a_request("gpu", 1, capacity={"requests": {"memory": memory}})


def part(size: int) -> Json:
    return a_request("gpu", 1, f"device.attributes['{DRIVER}'].size == {size}")


def two_gpus_with_halves() -> ClusterBuilder:
    """Devices 0 and 3 are whole GPUs of 8 units, 1 and 2, 4 and 5 their halves."""
    sizes = [(0, 8), (0, 4), (0, 4), (1, 8), (1, 4), (1, 4)]
    parts = [
        {
            "attributes": {"size": {"int": size}},
            "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"units": {"value": str(size)}}}],
        }
        for gpu, size in sizes
    ]
    builder = a_cluster().node("a").slice("parts", parts, pool="a", count=2, nodeName="a")
    counters = [{"name": f"gpu-{gpu}", "counters": {"units": {"value": "8"}}} for gpu in range(2)]
    return builder.slice("counters", [], pool="a", count=2, nodeName="a", sharedCounters=counters)


@dataclass(frozen=True)
class Case:
    """Claims on node a: allocated with these devices, or planned on them; and where the last planned one lands."""

    cluster: ClusterBuilder
    allocated: Sequence[tuple[Json, int]]
    planned: Sequence[tuple[Json, int]]
    lands: int
    shares: dict[int, int] = field(default_factory=dict)
    """Gi of memory used of shared devices after that."""


CASES = {
    "its device is another's": Case(a_cluster().node("a", gpus=2), [(a_request(), 0)], [(a_request(), 0)], 1),
    "too little is left of its shared device": Case(
        a_cluster().node("a", gpus=[SHARED, SHARED]), [(share("36Gi"), 0)], [(share("16Gi"), 0)], 1, {0: 36, 1: 16}
    ),
    "too little is left for two, and the first stays": Case(
        a_cluster().node("a", gpus=[SHARED, SHARED]),
        [(share("12Gi"), 0)],
        [(share("16Gi"), 0), (share("16Gi"), 0)],
        1,
        {0: 28, 1: 16},
    ),
    "a part of its GPU is another's": Case(two_gpus_with_halves(), [(part(4), 1)], [(part(8), 0)], 3),
    "the whole of its part is another's": Case(two_gpus_with_halves(), [(part(8), 0)], [(part(4), 2)], 4),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_claim_whose_planned_device_is_gone_takes_another(case: Case) -> None:
    for number, (request, at) in enumerate(case.allocated):
        given = {"request": "gpu", "driver": DRIVER, "pool": "a", "device": f"gpu-{at}"}
        if "capacity" in request["exactly"]:
            given |= {"shareID": f"{number}", "consumedCapacity": request["exactly"]["capacity"]["requests"]}
        allocation = {"devices": {"results": [given]}}
        case.cluster.claims.append(a_claim(f"other-{number}", request, allocation=allocation))
    waiting = [a_claim(f"c-{number}", request) for number, (request, _) in enumerate(case.planned)]
    case.cluster.claims.extend(waiting)
    cluster = case.cluster.cluster(planned(waiting, [at for _, at in case.planned]))

    assert [conflicted.claim for conflicted in cluster.conflicted] == waiting[-1:]
    landed = nominated.predict(cluster, selectors=Selectors(), steps=STEPS)

    used = {*landed.taken, *landed.shares}
    assert used == {device(at) for _, at in (*case.allocated, *case.planned[:-1])} | {device(case.lands)}
    for at, gibibytes in case.shares.items():
        used_of = [one.share["memory"] for one in landed.shares[device(at)] if one.share is not None]
        assert sum(used_of) == gibibytes << 30


def test_a_claim_that_is_still_to_be_made_of_extended_resources_takes_another() -> None:
    builder = a_cluster().node("a", gpus=2)
    builder.classes[0]["spec"]["extendedResourceName"] = RESOURCE
    pod = a_pod("p", requests={RESOURCE: "1"}).pod
    builder.pods.append(pod)
    allocation = {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}]}}
    builder.claims.append(a_claim("other", a_request(), allocation=allocation))
    uid = names.extended_claim(pod.meta.uid)
    given = (RequestDevice(request="container-0-request-0", device=device(0)),)
    holding = Holding(claim_uid=uid, claim="team/p-extended-resources", devices=given, charge={})
    seat = Seat(pod_uid=pod.meta.uid, pod="team/p", node=A, claims=(uid,))

    cluster = builder.cluster(placement([seat], [holding]))
    landed = nominated.predict(cluster, selectors=Selectors(), steps=STEPS)

    assert set(cluster.taken) == {device(0)}
    assert {taken: holder.referent().name for taken, holder in landed.taken.items()} == {
        device(0): "claim team/other",
        device(1): "claim team/p-extended-resources of gang team/g",
    }


def test_planned_devices_that_are_all_free_stay_where_they_are() -> None:
    builder = two_gpus_with_halves()
    waiting = [a_claim(name, part(4)) for name in ("one", "two")]
    builder.claims.extend(waiting)

    cluster = builder.cluster(planned(waiting, [1, 2]))

    assert cluster.conflicted == ()
    assert set(cluster.taken) == {device(1), device(2)}
    assert cluster_state.same(cluster, nominated.predict(cluster, selectors=Selectors(), steps=STEPS))


def test_a_planned_device_that_draws_nothing_stays_where_more_is_drawn_than_there_is() -> None:
    """A card of 8 units of which 12 are drawn gives no part any more, but what draws nothing is given all the same."""
    parts = [{"consumesCounters": [{"counterSet": "card", "counters": {"units": {"value": "12"}}}]}, {}]
    builder = a_cluster().node("a").slice("parts", parts, pool="a", count=2, nodeName="a")
    counters = [{"name": "card", "counters": {"units": {"value": "8"}}}]
    builder.slice("counters", [], pool="a", count=2, nodeName="a", sharedCounters=counters)
    allocation = {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}]}}
    waiting = [a_claim("c", a_request())]
    builder.claims += [a_claim("other", a_request(), allocation=allocation), *waiting]

    cluster = builder.cluster(planned(waiting, [1]))

    assert cluster.conflicted == ()
    assert set(cluster.taken) == {device(0), device(1)}


def big_and_small() -> ClusterBuilder:
    return a_cluster().node("a", gpus=[{"attributes": {"size": {"int": size}}} for size in (8, 4)])


LISTED: Json = {
    "name": "gpu",
    "firstAvailable": [{"name": name, **part(size)["exactly"]} for name, size in (("big", 8), ("small", 4))],
}


def booked_on_small(builder: ClusterBuilder) -> ClusterState:
    """Return a world in which a claim waits on the small one, as planned while the big one was in use."""
    claim = a_claim("c", LISTED)
    builder.claims.append(claim)
    seat = Seat(pod_uid=Uid("pod-c"), pod="team/c", node=A, claims=(claim.meta.uid,))
    given = (RequestDevice(request="gpu/small", device=device(1)),)
    holding = Holding(claim_uid=claim.meta.uid, claim=claim.meta.key, devices=given, charge={})
    return builder.cluster(placement([seat], [holding]))


@pytest.mark.parametrize("freed", [True, False])
def test_a_planned_claim_that_first_fit_would_shift_to_a_freed_device_holds_both(freed: bool) -> None:
    cluster = booked_on_small(big_and_small() if freed else big_and_small().taken("a", 0))

    holds = nominated.first_fit_holds(A, cluster.pending[A], cluster, selectors=Selectors(), steps=STEPS)
    landed = nominated.predict(cluster, selectors=Selectors(), steps=STEPS)

    assert holds is not freed
    assert {at: holder.claim for at, holder in landed.taken.items()} == {
        device(0): "team/c" if freed else "others/claim",
        device(1): "team/c",
    }


def test_a_pod_that_would_be_left_with_nothing_does_not_hide_what_the_next_one_takes() -> None:
    """The first takes what the second needs; the third takes a device that is free before its own."""
    sizes, in_use = (8, 1, 4, 2, 2), (0, 2, 4)
    builder = a_cluster().node("a", gpus=[{"attributes": {"size": {"int": size}}} for size in sizes])
    any_of_two = a_request("gpu", 1, f"device.attributes['{DRIVER}'].size >= 4")
    waiting = [a_claim(f"c-{at}", request) for at, request in enumerate((any_of_two, part(8), part(2)))]
    builder.claims += waiting

    landed = nominated.predict(builder.cluster(planned(waiting, [2, 0, 4])), selectors=Selectors(), steps=STEPS)

    assert set(landed.taken) == {device(at) for at in (*in_use, 3)}


def test_what_is_not_found_in_time_takes_nothing_more() -> None:
    freed = booked_on_small(big_and_small())
    gone = a_cluster().node("a", gpus=2)
    waiting = [a_claim("c", a_request())]
    allocation = {"devices": {"results": [{"request": "gpu", "driver": DRIVER, "pool": "a", "device": "gpu-0"}]}}
    gone.claims += [a_claim("other", a_request(), allocation=allocation), *waiting]
    conflicted = gone.cluster(planned(waiting, [0]))
    assert conflicted.conflicted

    for cluster in (freed, conflicted):
        assert cluster_state.same(cluster, nominated.predict(cluster, selectors=Selectors(), steps=0))


def test_a_pod_whose_gate_is_shut_is_given_nothing_by_kube_scheduler() -> None:
    builder = big_and_small()
    builder.pods.append(a_pod("c", schedulingGates=[{"name": names.GATE}]).pod)
    cluster = booked_on_small(builder)

    assert cluster.pending == {}
    assert set(nominated.predict(cluster, selectors=Selectors(), steps=STEPS).taken) == {device(1)}


def test_pods_of_one_node_are_given_their_devices_in_the_order_of_their_gates() -> None:
    builder = a_cluster().node("a", gpus=4)
    waiting = [a_claim(name, a_request()) for name in ("one", "two")]
    builder.claims.extend(waiting)

    in_order, swapped = builder.cluster(planned(waiting, [0, 1])), builder.cluster(planned(waiting, [1, 0]))

    for cluster, holds in ((in_order, True), (swapped, False)):
        assert nominated.first_fit_holds(A, cluster.pending[A], cluster, selectors=Selectors(), steps=STEPS) is holds
        # Who changes places with another takes nothing from anybody else.
        assert set(nominated.predict(cluster, selectors=Selectors(), steps=STEPS).taken) == {device(0), device(1)}


def device(at: int) -> DeviceId:
    return DeviceId(DRIVER, "a", f"gpu-{at}")


def planned(waiting: Sequence[Claim], at: Sequence[int]) -> Placement:
    pairs = list(zip(waiting, at, strict=True))
    seats = [Seat(pod_uid=Uid(f"pod-{c.meta.name}"), pod="team/p", node=A, claims=(c.meta.uid,)) for c, _ in pairs]
    return placement(
        seats,
        [
            Holding(
                claim_uid=claim.meta.uid,
                claim=claim.meta.key,
                devices=(RequestDevice(request="gpu", device=device(number)),),
                charge={},
            )
            for claim, number in pairs
        ],
    )


def placement(seats: Sequence[Seat], holdings: Sequence[Holding]) -> Placement:
    return Placement(
        gang_uid=GangUid("g"),
        gang="team/g",
        queue=Q,
        reserved_at=NOON,
        seats={seat.pod_uid: seat for seat in seats},
        holdings={holding.claim_uid: holding for holding in holdings},
    )
