"""What follows from a grant: settlements, releases, and gangs that are taken back."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from admission.accounting import books
from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.devices import Capacity, DeviceId, RequestDevice, Slice
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Entry, Holding, Kind, Placement, Seat
from admission.api.muster.meters import Measure, Meter, ResourceRate, Source
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.errors import MalformedObjectError, Problem
from admission.lifecycle import start_timeout, transitions
from admission.lifecycle.eviction import Eviction
from admission.workloads import gangs
from tests.builders import CLASS, NOON, a_cluster, let_in, pod_of, running, with_pods
from tests.unit.lifecycle.allocations import device, observed_in, with_allocation

GPUS, CLAIMS = MeterName("gpus"), MeterName("claims")
TIMEOUT = timedelta(minutes=5)
ACTOR = "test"


def a_snapshot() -> Snapshot:
    return a_cluster().node("a", gpus=4).job("train", queue="q", pods=2).snapshot()


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


def a_reservation() -> Entry:
    """Return the entry that makes the placement."""
    made = a_placement()
    return books.reserve(
        gang_uid=made.gang_uid,
        gang=made.gang,
        queue=made.queue,
        seats=made.seats.values(),
        holdings=made.holdings.values(),
        at=NOON,
        actor=ACTOR,
        reason="it fits",
        on_behalf_of="Job team/train",
    )


UNREADABLE = Source(classes=(CLASS,), measure=Measure.EXPRESSION, expression="1 +")


def a_meter(name: str) -> Meter:
    """Return a meter that counts devices."""
    return Meter(meta=Meta(name=name), sources=(Source(classes=(CLASS,), measure=Measure.COUNT),))


def settle(placement: Placement, snapshot: Snapshot) -> Entry | None:
    return transitions.settlement(placement, observed_in(snapshot), at=NOON, actor=ACTOR)


def release(placement: Placement, snapshot: Snapshot) -> Entry | None:
    observed = observed_in(snapshot)
    return transitions.release(
        placement, observed, transitions.claims_in_use([placement], observed), at=NOON, actor=ACTOR
    )


def evict(snapshot: Snapshot, placement: Placement, *, after: timedelta) -> Eviction | None:
    (group,) = gangs.groups(snapshot, {placement.gang_uid: placement})
    return start_timeout.eviction(group, observed_in(snapshot), start_timeout=TIMEOUT, now=NOON + after)


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


def test_a_settlement_counts_the_allocated_devices_of_each_class() -> None:
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", device(2), device(3))

    entry = settle(a_placement(), snapshot)

    assert entry is not None
    assert dict(entry.holdings[0].classes) == {CLASS: 2}


BROKEN = {
    "a meter that is gone": lambda known: {CLAIMS: known[CLAIMS]},
    "a meter that cannot count any more": lambda known: {**known, GPUS: replace(known[GPUS], sources=(UNREADABLE,))},
    "no meter left at all": lambda _known: {},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_settlement_charges_the_planned_amount_where_the_meter_no_longer_counts(change: Callable[[Any], Any]) -> None:
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", device(3))
    snapshot = replace(snapshot, meters=change(dict(snapshot.meters)))

    entry = settle(a_placement(), snapshot)

    assert entry is not None
    assert dict(entry.holdings[0].charge) == {GPUS: 1, CLAIMS: 1}
    book = books.Book().apply(a_reservation())
    book = book.apply(entry)
    assert book.usage()[QueueName("q")] == {GPUS: (1, 1), CLAIMS: (1, 1)}


def settled_as(snapshot: Snapshot) -> Placement:
    """Return the placement once everything that is allocated is settled."""
    book = books.Book().apply(a_reservation())
    entry = settle(book.placements[GangUid("job-train")], snapshot)
    assert entry is not None
    return book.apply(entry).placements[GangUid("job-train")]


def adjust(placement: Placement, snapshot: Snapshot) -> Entry | None:
    return transitions.adjustment(placement, observed_in(snapshot), at=NOON, actor=ACTOR)


def test_a_price_that_changes_while_the_device_is_held_changes_no_charge() -> None:
    snapshot = with_allocation(a_snapshot(), "team/train-0-gpus", device(0))
    placement = settled_as(snapshot)
    dear = Source(classes=(CLASS,), measure=Measure.EXPRESSION, expression="7")
    changes = {
        "dearer": {**snapshot.meters, GPUS: replace(snapshot.meters[GPUS], sources=(dear,))},
        "one more meter": {**snapshot.meters, MeterName("new"): a_meter("new")},
        "one meter less": {CLAIMS: snapshot.meters[CLAIMS]},
    }

    for meters in changes.values():
        assert adjust(placement, replace(snapshot, meters=meters)) is None
    moved = with_allocation(replace(snapshot, meters=changes["dearer"]), "team/train-0-gpus", device(1))
    entry = adjust(placement, moved)
    assert entry is not None
    assert dict(entry.holdings[0].charge) == {GPUS: 7, CLAIMS: 1}


def test_a_device_share_that_consumes_another_capacity_is_charged_again() -> None:
    memory = MeterName("memory")
    source = Source(classes=(CLASS,), measure=Measure.CAPACITY, name="memory")
    plain = a_snapshot()
    snapshot = replace(plain, meters={memory: replace(a_meter("memory"), sources=(source,))}, slices=of_memory(plain))
    placement = settled_as(with_share(snapshot, 10))

    assert placement.holdings[Uid("claim-train-0-gpus")].charge == {memory: 10, GPUS: 1, CLAIMS: 1}
    assert adjust(placement, with_share(snapshot, 10)) is None
    entry = adjust(placement, with_share(snapshot, 14))

    assert entry is not None
    assert entry.kind is Kind.ADJUST
    assert entry.holdings[0].charge[memory] == 14
    assert dict(entry.holdings[0].classes) == {CLASS: 1}


def test_a_whole_device_whose_capacity_changes_while_it_is_held_keeps_its_charge() -> None:
    memory = MeterName("memory")
    source = Source(classes=(CLASS,), measure=Measure.CAPACITY, name="memory")
    plain = with_allocation(a_snapshot(), "team/train-0-gpus", device(0))
    plain = replace(plain, meters={memory: replace(a_meter("memory"), sources=(source,))})
    placement = settled_as(replace(plain, slices=of_memory(plain)))

    assert placement.holdings[Uid("claim-train-0-gpus")].charge[memory] == 40
    assert adjust(placement, replace(plain, slices=of_memory(plain, 80))) is None


def of_memory(snapshot: Snapshot, amount: int = 40) -> dict[str, Slice]:
    """Return the slices with a capacity on every device."""
    capacity = {"memory": Capacity(value=Fraction(amount), text=str(amount))}
    return {
        key: replace(one, devices=tuple(replace(device, capacity=capacity) for device in one.devices))
        for key, one in snapshot.slices.items()
    }


def with_share(snapshot: Snapshot, amount: int) -> Snapshot:
    share = AllocatedDevice(given=device(0), share_id="s", consumed={"memory": Fraction(amount)})
    claim = snapshot.claims["team/train-0-gpus"]
    shared = replace(claim, allocation=Allocation(devices=(share,)))
    return replace(snapshot, claims={**snapshot.claims, claim.meta.key: shared})


def a_plugged_placement(*, settled: bool = True) -> Placement:
    """Return a gang of one pod that a device plugin serves, beside a claim."""
    uid = names.resources_claim(Uid("pod-train-0"))
    held = Holding(
        claim_uid=uid, claim="team/train-0", devices=(), charge={GPUS: 2}, settled=settled, classes={"x.io/gpu": 2}
    )
    return replace(a_placement(), holdings={uid: held})


PLUGGED = {
    "a pod that runs": (lambda pod: pod, False),
    "one that is being deleted": (lambda pod: replace(pod, meta=replace(pod.meta, deleted=NOON)), False),
    "one that has ended": (lambda pod: replace(pod, phase="Failed"), True),
}


@pytest.mark.parametrize(("change", "over"), PLUGGED.values(), ids=PLUGGED)
def test_device_plugin_holdings_last_until_their_pod_ends(change: Callable[[Pod], Pod], *, over: bool) -> None:
    snapshot = a_snapshot()
    snapshot = with_pods(snapshot, change(running(pod_of(snapshot, "train-0"), "a")))

    entry = release(replace(a_plugged_placement(), seats={}), snapshot)

    assert (entry is not None) == over


def test_device_plugin_holdings_of_a_deleted_pod_are_released_but_not_those_of_an_unreadable_pod() -> None:
    snapshot = with_pods(a_snapshot(), without=("train-0",))
    broken = MalformedObjectError("Pod", "team/train-0", (Problem("spec", "is not an object"),))
    placement = replace(a_plugged_placement(), seats={})

    assert release(placement, replace(snapshot, malformed={("Pod", "team/train-0"): broken})) is None
    entry = release(placement, snapshot)
    assert entry is not None
    assert entry.closes == ("pod-train-0/device-plugin",)


def test_device_plugin_resources_are_settled_at_the_binding() -> None:
    placement, snapshot = a_plugged_placement(settled=False), a_snapshot()
    snapshot = replace(snapshot, meters={GPUS: replace(a_meter("gpus"), resources=(ResourceRate(name="x.io/gpu"),))})

    assert settle(placement, with_pods(snapshot, let_in(pod_of(snapshot, "train-0")))) is None
    pod = replace(running(pod_of(snapshot, "train-0"), "a"), requests={"x.io/gpu": 2, "pods": 1})
    entry = settle(placement, with_pods(snapshot, pod))

    assert entry is not None
    assert entry.holdings == (replace(placement.holdings[Uid("pod-train-0/device-plugin")], settled=True),)


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
    (group,) = gangs.groups(snapshot, {placement.gang_uid: placement})

    assert [(pod.meta.name, node) for pod, node in transitions.pods_to_open(group)] == [("train-1", "a")]


def test_a_gang_that_lost_a_pod_before_all_gates_opened_is_requeued() -> None:
    snapshot = with_pods(a_snapshot(), without=("train-1",))

    eviction = evict(snapshot, a_placement(), after=timedelta(seconds=1))

    assert eviction is not None
    assert not eviction.timed_out
    assert "team/train-1 went away" in eviction.reason
    assert eviction.pods == ()


def test_only_pods_with_open_gates_are_evicted() -> None:
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
def test_a_gang_that_does_not_run_in_full_within_the_start_timeout_is_evicted(
    after: timedelta, *, taken_back: bool
) -> None:
    snapshot = a_snapshot()
    snapshot = with_pods(snapshot, running(pod_of(snapshot, "train-0"), "a"), let_in(pod_of(snapshot, "train-1")))

    eviction = evict(snapshot, a_placement(), after=after)

    assert (eviction is not None) == taken_back
    if eviction is not None:
        assert eviction.timed_out
        assert {pod.meta.name for pod in eviction.pods} == {"train-0", "train-1"}
        assert "1 of 2 pods did not run within 5m: train-1" in eviction.reason


def test_a_gate_of_others_that_kept_a_pod_from_running_is_named() -> None:
    snapshot = a_snapshot()
    other = replace(let_in(pod_of(snapshot, "train-1")), gates=("example.com/other",))
    snapshot = with_pods(snapshot, running(pod_of(snapshot, "train-0"), "a"), other)

    eviction = evict(snapshot, a_placement(), after=timedelta(minutes=5))

    assert eviction is not None
    assert eviction.reason.endswith("; pod train-1 has the scheduling gate example.com/other of others")


def test_a_gang_that_runs_is_left_alone_for_ever() -> None:
    snapshot = a_snapshot()
    pods = (running(pod_of(snapshot, f"train-{index}"), "a") for index in range(2))

    assert evict(with_pods(snapshot, *pods), a_placement(), after=timedelta(days=30)) is None


def test_equal_pods_are_opened_in_the_planners_order_and_not_in_that_of_their_creation() -> None:
    """The second before the first was created: pods that a controller makes at once are not made in order."""
    snapshot = a_snapshot()
    first = pod_of(snapshot, "train-0")
    late = replace(first, meta=replace(first.meta, created=first.meta.created + timedelta(seconds=1)))
    snapshot = with_pods(snapshot, late)
    placement = a_placement()
    (group,) = gangs.groups(snapshot, {placement.gang_uid: placement})

    assert [pod.meta.name for pod in group.granted_pods] == ["train-1", "train-0"]
    assert [pod.meta.name for pod, _ in transitions.pods_to_open(group)] == ["train-0", "train-1"]
