"""The books against the cluster: every way in which they can differ, and that its correction ends it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest

from admission.accounting import books
from admission.accounting.books import Account, Allocated, Book
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.errors import MalformedObjectError
from admission.lifecycle import reconciliation, transitions
from admission.lifecycle.reconciliation import Author, Difference, DifferenceKind
from tests.builders import CLASS, NOON, a_cluster, pod_of, running, with_pods
from tests.unit.lifecycle.allocations import device, observed_in, with_allocation

GPUS, CLAIMS, Q = MeterName("gpus"), MeterName("claims"), QueueName("q")
AUTHOR = Author(at=NOON + timedelta(hours=1), actor="root@host", reason="ticket 4711")
CLAIM = "team/train-0-gpus"
CLAIM_UID = Uid("claim-train-0-gpus")


class World(NamedTuple):
    """What the books say, and what the cluster shows."""

    book: Book
    snapshot: Snapshot


def without_claim(snapshot: Snapshot, claim: str) -> Snapshot:
    return replace(snapshot, claims={key: one for key, one in snapshot.claims.items() if key != claim})


def booked_cluster() -> World:
    """One gang of two pods, running and settled."""
    snapshot = a_cluster().node("a", gpus=4).queue("q", gpus=8).job("train", queue="q", pods=2).snapshot()
    for index in range(2):
        snapshot = with_pods(snapshot, running(pod_of(snapshot, f"train-{index}"), "a"))
        snapshot = with_allocation(snapshot, f"team/train-{index}-gpus", device(index))
    return World(Book.replay([*granted(), reserved(2)]), snapshot)


def a_settled_world() -> World:
    cluster_state = booked_cluster()
    (placement,) = cluster_state.book.placements.values()
    allocated = transitions.allocated(placement, observed_in(cluster_state.snapshot), settled=False)
    settled = books.settle(placement, allocated, at=NOON, actor="muster")
    assert settled is not None
    return cluster_state._replace(book=cluster_state.book.apply(settled))


def granted() -> list[Entry]:
    return [books.grant(Q, meter, amount, at=NOON, actor="muster") for meter, amount in ((GPUS, 8), (CLAIMS, 100))]


def reserved(pods: int) -> Entry:
    claims = [Uid(f"claim-train-{index}-gpus") for index in range(pods)]
    return books.reserve(
        gang_uid=GangUid("job-train"),
        gang="team/train",
        queue=Q,
        seats=[
            Seat(pod_uid=Uid(f"pod-train-{at}"), pod=f"team/train-{at}", node=NodeName("a"), claims=(claim,))
            for at, claim in enumerate(claims)
        ],
        holdings=[
            Holding(
                claim_uid=claim,
                claim=f"team/train-{at}-gpus",
                devices=(device(at),),
                charge={GPUS: 1, CLAIMS: 1},
                classes={CLASS: 1},
            )
            for at, claim in enumerate(claims)
        ],
        at=NOON,
        actor="muster",
        reason="it fits",
        on_behalf_of="Job team/train",
    )


def refresh(cluster_state: World) -> list[Difference]:
    return reconciliation.differences(cluster_state.book, observed_in(cluster_state.snapshot))


def mended(cluster_state: World) -> World:
    observed = observed_in(cluster_state.snapshot)
    found = reconciliation.differences(cluster_state.book, observed)
    return cluster_state._replace(
        book=cluster_state.book.apply_all(reconciliation.corrections(cluster_state.book, observed, found, AUTHOR))
    )


def claim_deleted(cluster_state: World) -> World:
    return cluster_state._replace(snapshot=without_claim(cluster_state.snapshot, CLAIM))


def pods_gone(cluster_state: World) -> World:
    snapshot = with_pods(cluster_state.snapshot, without=("train-0", "train-1"))
    return cluster_state._replace(snapshot=without_claim(with_allocation(snapshot, CLAIM), "team/train-1-gpus"))


def other_device(cluster_state: World) -> World:
    return cluster_state._replace(snapshot=with_allocation(cluster_state.snapshot, CLAIM, device(3)))


def never_booked(cluster_state: World) -> World:
    return cluster_state._replace(book=Book.replay(granted()))


def half_booked(cluster_state: World) -> World:
    return cluster_state._replace(book=Book.replay([*granted(), reserved(1)]))


def other_price(cluster_state: World) -> World:
    (placement,) = cluster_state.book.placements.values()
    dear = {CLAIM_UID: Allocated((device(0),), {GPUS: 5, CLAIMS: 1}, {CLASS: 1})}
    entry = books.readjust(placement, dear, at=NOON, actor="muster")
    assert entry is not None
    return cluster_state._replace(book=cluster_state.book.apply(entry))


def other_quota(cluster_state: World) -> World:
    queue = cluster_state.snapshot.queues[Q]
    (quota,) = [quota for quota in queue.quotas if quota.meter == GPUS]
    others = tuple(one for one in queue.quotas if one.meter != GPUS)
    changed = replace(queue, quotas=(*others, replace(quota, nominal=6)))
    return cluster_state._replace(snapshot=replace(cluster_state.snapshot, queues={Q: changed}))


def no_queue(cluster_state: World) -> World:
    return World(Book.replay(granted()), replace(cluster_state.snapshot, queues={}, pods={}, claims={}))


def as_it_is(cluster_state: World) -> World:
    return cluster_state


CASES: dict[str, tuple[Callable[[World], World], World, list[tuple[DifferenceKind, str]], list[Kind]]] = {
    "books that say what the cluster shows": (as_it_is, a_settled_world(), [], []),
    "a claim deleted behind Muster's back": (
        claim_deleted,
        a_settled_world(),
        [(DifferenceKind.CLAIM_GONE, f"ResourceClaim {CLAIM}")],
        [Kind.RELEASE],
    ),
    "pods that are gone, one claim with them and one free": (
        pods_gone,
        a_settled_world(),
        [
            (DifferenceKind.CLAIM_FREE, f"ResourceClaim {CLAIM}"),
            (DifferenceKind.CLAIM_GONE, "ResourceClaim team/train-1-gpus"),
            (DifferenceKind.POD_GONE, "Pod team/train-0"),
            (DifferenceKind.POD_GONE, "Pod team/train-1"),
        ],
        [Kind.RELEASE],
    ),
    "allocations of which the books have the plan": (
        as_it_is,
        booked_cluster(),
        [(DifferenceKind.NOT_SETTLED, f"ResourceClaim team/train-{at}-gpus") for at in range(2)],
        [Kind.SETTLE],
    ),
    "a claim that was given another device": (
        other_device,
        a_settled_world(),
        [(DifferenceKind.DEVICES, f"ResourceClaim {CLAIM}")],
        [Kind.ADJUST],
    ),
    "a charge of yesterday's price": (
        other_price,
        a_settled_world(),
        [(DifferenceKind.CHARGE, f"ResourceClaim {CLAIM}")],
        [Kind.ADJUST],
    ),
    "a gang that runs and was never booked": (
        never_booked,
        a_settled_world(),
        [(DifferenceKind.NOT_BOOKED, f"ResourceClaim team/train-{at}-gpus") for at in range(2)],
        [Kind.ADJUST],
    ),
    "a gang of which one pod was never booked": (
        half_booked,
        a_settled_world(),
        [
            (DifferenceKind.NOT_BOOKED, "ResourceClaim team/train-1-gpus"),
            (DifferenceKind.NOT_SETTLED, f"ResourceClaim {CLAIM}"),
        ],
        [Kind.SETTLE, Kind.ADJUST],
    ),
    "a nominal quota that the books do not have": (
        other_quota,
        a_settled_world(),
        [(DifferenceKind.QUOTA, "Queue q")],
        [Kind.GRANT],
    ),
    "a queue that is gone": (
        no_queue,
        a_settled_world(),
        [(DifferenceKind.QUOTA, "Queue q"), (DifferenceKind.QUOTA, "Queue q")],
        [Kind.GRANT, Kind.GRANT],
    ),
}


@pytest.mark.parametrize(("change", "cluster_state", "found", "posted"), CASES.values(), ids=CASES)
def test_a_ledger_difference_is_found_and_ended_by_its_correction(
    change: Callable[[World], World], cluster_state: World, found: list[tuple[DifferenceKind, str]], posted: list[Kind]
) -> None:
    cluster_state = change(cluster_state)
    differences = refresh(cluster_state)
    entries = reconciliation.corrections(cluster_state.book, observed_in(cluster_state.snapshot), differences, AUTHOR)

    assert [(one.kind, one.subject) for one in differences] == found
    assert [entry.kind for entry in entries] == posted
    assert {(entry.reason, entry.actor) for entry in entries} <= {(AUTHOR.reason, AUTHOR.actor)}
    assert refresh(mended(cluster_state)) == []


def test_a_correction_charges_the_devices_that_the_cluster_has_allocated() -> None:
    cluster_state = mended(never_booked(a_settled_world()))

    assert cluster_state.book.balance(Q, GPUS, Bucket.USED) == 2
    assert cluster_state.book.balance(Q, GPUS, Bucket.FREE) == 6
    assert cluster_state.book.placements == replaced_times(a_settled_world().book, cluster_state.book)


def replaced_times(book: Book, by: Book) -> dict[GangUid, object]:
    """Return the placements with the times and name that the other book has for them."""
    return {
        uid: replace(one, reserved_at=by.placements[uid].reserved_at, gang=by.placements[uid].gang)
        for uid, one in book.placements.items()
    }


def test_a_ledger_difference_names_both_sides() -> None:
    (difference,) = refresh(other_device(a_settled_world()))

    assert difference.books == "gpu.example.com/a/gpu-0 for claims 1, gpus 1"
    assert difference.cluster == "gpu.example.com/a/gpu-3 for claims 1, gpus 1"
    assert (difference.gang, difference.queue, difference.uid) == ("team/train", Q, CLAIM_UID)
    assert difference.fix == "adjust the books to the devices it has"


def test_only_what_was_chosen_is_corrected() -> None:
    cluster_state = half_booked(a_settled_world())
    chosen = [one for one in refresh(cluster_state) if one.kind is DifferenceKind.NOT_SETTLED]

    entries = reconciliation.corrections(cluster_state.book, observed_in(cluster_state.snapshot), chosen, AUTHOR)

    assert [entry.kind for entry in entries] == [Kind.SETTLE]


def test_a_claim_whose_device_has_no_price_is_a_difference_without_correction() -> None:
    cluster_state = never_booked(a_settled_world())
    cluster_state = cluster_state._replace(snapshot=replace(cluster_state.snapshot, slices={}))

    differences = refresh(cluster_state)

    assert {one.kind for one in differences} == {DifferenceKind.NO_PRICE}
    assert not any(one.fixable for one in differences)
    assert (
        reconciliation.corrections(cluster_state.book, observed_in(cluster_state.snapshot), differences, AUTHOR) == []
    )


def test_a_charge_stays_where_the_device_has_left_its_slice() -> None:
    cluster_state = other_price(a_settled_world())

    assert refresh(cluster_state._replace(snapshot=replace(cluster_state.snapshot, slices={}))) == []


def test_nothing_follows_from_a_claim_or_queue_that_cannot_be_read() -> None:
    cluster_state = claim_deleted(a_settled_world())
    unread = MalformedObjectError("ResourceClaim", CLAIM, ())
    snapshot = replace(
        cluster_state.snapshot, queues={}, malformed={("ResourceClaim", CLAIM): unread, ("Queue", "q"): unread}
    )

    assert refresh(cluster_state._replace(snapshot=snapshot)) == []


def test_a_balance_changed_by_hand_is_a_difference_that_no_entry_corrects() -> None:
    cluster_state = a_settled_world()
    changed = {**cluster_state.book.balances, Account(Q, GPUS, Bucket.USED): 7}
    cluster_state = cluster_state._replace(book=replace(cluster_state.book, balances=changed))

    differences = refresh(cluster_state)

    assert [(one.kind, one.books) for one in differences] == [
        (DifferenceKind.BALANCE, "used gpus 7"),
        (DifferenceKind.BALANCE, "accounts of gpus that sum to 5"),
    ]
    assert (
        reconciliation.corrections(cluster_state.book, observed_in(cluster_state.snapshot), differences, AUTHOR) == []
    )


def test_a_shared_claim_is_charged_once() -> None:
    cluster_state = never_booked(a_settled_world())
    first, second = pod_of(cluster_state.snapshot, "train-0"), pod_of(cluster_state.snapshot, "train-1")
    shared = replace(second, claims=first.claims, generated_claims=first.generated_claims)
    cluster_state = mended(cluster_state._replace(snapshot=with_pods(cluster_state.snapshot, shared)))

    assert cluster_state.book.balance(Q, GPUS, Bucket.USED) == 1
    assert refresh(cluster_state) == []


def test_a_claim_that_has_no_devices_does_not_hide_the_next_one_of_its_pod() -> None:
    cluster_state = never_booked(a_settled_world())
    snapshot = cluster_state.snapshot
    pod, given = pod_of(snapshot, "train-0"), snapshot.claims[CLAIM]
    empty = replace(given, meta=replace(given.meta, name="empty", uid=Uid("empty")), allocation=None)
    snapshot = replace(snapshot, claims={**snapshot.claims, "team/empty": empty})
    changed = replace(pod, claims=(PodClaim(name="empty", claim="empty"), *pod.claims))

    found = refresh(cluster_state._replace(snapshot=with_pods(snapshot, changed)))

    assert [one.subject for one in found] == [f"ResourceClaim team/train-{at}-gpus" for at in range(2)]


def test_balances_without_holdings_and_holdings_without_balances_are_told() -> None:
    cluster_state = a_settled_world()
    known, other = cluster_state.book.balances, QueueName("other")

    def told(balances: dict[Account, int]) -> list[str]:
        found = reconciliation.differences(
            replace(cluster_state.book, balances=balances), observed_in(cluster_state.snapshot)
        )
        return [one.books for one in found if one.kind is DifferenceKind.BALANCE]

    kept = {account: amount for account, amount in known.items() if account.meter != GPUS}
    more = {Account(other, GPUS, Bucket.USED): 3, Account(other, GPUS, Bucket.FREE): -3}
    assert told(dict(known)) == []
    assert told(kept) == ["used gpus 0"]
    assert told({**known, **more}) == ["used gpus 3"]
