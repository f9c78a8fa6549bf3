"""What follows from a grant: settlements, releases, and gangs that are taken back."""

from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.claims import AllocatedDevice, Allocation
from admission.api.devices import DeviceId
from admission.api.entries import Entry, Holding, Kind, Placement, RequestDevice, Seat
from admission.api.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.api.snapshot import Snapshot
from admission.dra import metering
from admission.policy import following, recognition
from admission.quota import books
from tests.builders import CLASS, NOON, a_cluster, let_in, pod_of, running, with_pods

GPUS, CLAIMS = MeterName("gpus"), MeterName("claims")
TIMEOUT = timedelta(minutes=5)
ACTOR = "test"


def a_snapshot() -> Snapshot:
    return a_cluster().node("a", gpus=4).job("train", queue="q", pods=2).snapshot()


def device(index: int) -> RequestDevice:
    return RequestDevice(request="gpus", device=DeviceId(CLASS, "a", f"gpu-{index}"))


def a_placement() -> Placement:
    seats, holdings = {}, {}
    for index in range(2):
        claim = Uid(f"claim-train-{index}-gpus")
        pod = Uid(f"pod-train-{index}")
        seats[pod] = Seat(pod_uid=pod, pod=f"team/train-{index}", node=NodeName("a"), claims=(claim,))
        holdings[claim] = Holding(
            claim_uid=claim,
            claim=f"team/train-{index}-gpus",
            devices=(device(index),),
            charge={GPUS: 1, CLAIMS: 1},
        )
    return Placement(
        gang_uid=GangUid("job-train"),
        gang="team/train",
        queue=QueueName("q"),
        reserved_at=NOON,
        seats=seats,
        holdings=holdings,
    )


def with_allocation(snapshot: Snapshot, claim: str, *devices: RequestDevice) -> Snapshot:
    found = snapshot.claims[claim]
    allocation = Allocation(devices=tuple(AllocatedDevice(given=given) for given in devices)) if devices else None
    return replace(snapshot, claims={**snapshot.claims, claim: replace(found, allocation=allocation)})


def a_sight(snapshot: Snapshot) -> following.Sight:
    return following.Sight.of(snapshot, metering.compile_meters(snapshot.meters.values()))


def settle(placement: Placement, snapshot: Snapshot) -> Entry | None:
    return following.settlement(placement, a_sight(snapshot), at=NOON, actor=ACTOR)


def release(placement: Placement, snapshot: Snapshot) -> Entry | None:
    sight = a_sight(snapshot)
    return following.release(placement, sight, following.wanted_claims([placement], sight), at=NOON, actor=ACTOR)


def evict(snapshot: Snapshot, placement: Placement, *, after: timedelta) -> following.Eviction | None:
    (group,) = recognition.groups(snapshot, {placement.gang_uid: placement})
    return following.eviction(group, a_sight(snapshot), start_timeout=TIMEOUT, now=NOON + after)


def test_nothing_is_settled_before_a_claim_is_allocated() -> None:
    assert settle(a_placement(), a_snapshot()) is None


def test_the_devices_really_given_replace_those_planned() -> None:
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", device(3))

    entry = settle(a_placement(), snapshot)

    assert entry is not None
    assert entry.kind is Kind.SETTLE
    assert [(holding.claim, holding.devices) for holding in entry.holdings] == [("team/train-0-gpus", (device(3),))]


def test_the_charge_is_that_of_what_was_given() -> None:
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", device(2), device(3))

    entry = settle(a_placement(), snapshot)

    assert entry is not None
    assert dict(entry.holdings[0].charge) == {GPUS: 2, CLAIMS: 1}


def test_a_device_that_has_left_its_slice_keeps_the_planned_charge() -> None:
    gone = RequestDevice(request="gpus", device=DeviceId(CLASS, "a", "gpu-77"))
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", gone)

    entry = settle(a_placement(), snapshot)

    assert entry is not None
    assert dict(entry.holdings[0].charge) == {GPUS: 1, CLAIMS: 1}


def test_nothing_is_released_while_the_pods_live() -> None:
    assert release(a_placement(), a_snapshot()) is None


def test_an_ended_pod_gives_back_its_seat_but_its_allocated_claim_stays_charged() -> None:
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", device(0))
    snapshot = with_pods(snapshot, replace(running(pod_of(snapshot, "train-0"), "a"), phase="Succeeded"))

    entry = release(a_placement(), snapshot)

    assert entry is not None
    assert entry.closes == ("pod-train-0",)


def test_a_claim_that_is_free_again_and_has_no_pod_left_is_released() -> None:
    snapshot = with_pods(a_snapshot(), without=("train-0",))

    entry = release(a_placement(), snapshot)

    assert entry is not None
    assert set(entry.closes) == {"pod-train-0", "claim-train-0-gpus"}


def test_a_claim_that_is_deallocated_while_its_pod_lives_stays_charged() -> None:
    placement = a_placement()
    settled = books.settle(
        placement,
        {Uid("claim-train-0-gpus"): books.Allocated((device(0),), {GPUS: 1, CLAIMS: 1})},
        at=NOON,
        actor=ACTOR,
    )
    assert settled is not None
    holdings = {**placement.holdings, **{holding.claim_uid: holding for holding in settled.holdings}}

    assert release(replace(placement, holdings=holdings), a_snapshot()) is None


def test_a_claim_made_again_under_its_name_does_not_keep_the_charge_of_the_old_one() -> None:
    snapshot = a_snapshot()
    claim = snapshot.claims["team/train-0-gpus"]
    other = replace(claim, meta=replace(claim.meta, uid=Uid("another")))
    snapshot = replace(snapshot, claims={**snapshot.claims, "team/train-0-gpus": other})

    entry = release(a_placement(), snapshot)

    assert entry is not None
    assert entry.closes == ("claim-train-0-gpus",)


def test_half_open_pods_are_opened_on_the_node_of_their_seat() -> None:
    snapshot = a_snapshot()
    snapshot = with_pods(snapshot, let_in(pod_of(snapshot, "train-0")))
    placement = a_placement()
    (group,) = recognition.groups(snapshot, {placement.gang_uid: placement})

    assert [(pod.meta.name, node) for pod, node in following.unfinished(group)] == [("train-1", "a")]


def test_a_gang_that_lost_a_pod_before_all_were_let_in_is_taken_back() -> None:
    snapshot = with_pods(a_snapshot(), without=("train-1",))

    eviction = evict(snapshot, a_placement(), after=timedelta(seconds=1))

    assert eviction is not None
    assert not eviction.timed_out
    assert "team/train-1 went away" in eviction.reason
    assert eviction.pods == ()


def test_only_pods_that_were_let_in_are_deleted() -> None:
    snapshot = a_cluster().node("a", gpus=4).job("train", queue="q", pods=3).snapshot()
    seat = Seat(pod_uid=Uid("pod-train-2"), pod="team/train-2", node=NodeName("a"))
    placement = replace(a_placement(), seats={**a_placement().seats, seat.pod_uid: seat})
    snapshot = with_pods(snapshot, let_in(pod_of(snapshot, "train-0")), without=("train-2",))

    eviction = evict(snapshot, placement, after=timedelta(seconds=1))

    assert eviction is not None
    assert [pod.meta.name for pod in eviction.pods] == ["train-0"]


LATE = {
    "a gang has its time to start": (timedelta(minutes=4, seconds=59), False),
    "a gang that does not run in time is taken back": (timedelta(minutes=5), True),
}


@pytest.mark.parametrize(("after", "taken_back"), LATE.values(), ids=LATE)
def test_start_timeout(after: timedelta, *, taken_back: bool) -> None:
    snapshot = a_snapshot()
    snapshot = with_pods(snapshot, running(pod_of(snapshot, "train-0"), "a"), let_in(pod_of(snapshot, "train-1")))

    eviction = evict(snapshot, a_placement(), after=after)

    assert (eviction is not None) == taken_back
    if eviction is not None:
        assert eviction.timed_out
        assert {pod.meta.name for pod in eviction.pods} == {"train-0", "train-1"}
        assert "1 of 2 pods did not run within 5m: train-1" in eviction.reason


def test_a_gang_that_runs_is_left_alone_for_ever() -> None:
    snapshot = a_snapshot()
    pods = (running(pod_of(snapshot, f"train-{index}"), "a") for index in range(2))

    assert evict(with_pods(snapshot, *pods), a_placement(), after=timedelta(days=30)) is None
