"""The books' rules, one movement at a time."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from admission.accounting import books, entry_rules
from admission.accounting.books import Allocated, Book, Use
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind, Placement, Posting, Seat
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.errors import AmountError, ConflictError, PageError

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = AT + timedelta(minutes=1)
HOUR = timedelta(hours=1)
QUEUE = QueueName("team-a")
GPU = MeterName("gpu")
MEMORY = MeterName("memory")
GANG = GangUid("gang")

Lines = list[tuple[Bucket, int]]


def a_device(name: str = "gpu-0") -> RequestDevice:
    return RequestDevice(request="r", device=DeviceId("gpu.example", "pool", name))


def a_holding(claim: str, *, gpu: int = 1, **more: int) -> Holding:
    charge = {GPU: gpu, **{MeterName(meter): amount for meter, amount in more.items()}}
    return Holding(claim_uid=Uid(claim), claim=f"ns/{claim}", devices=(a_device(),), charge=charge)


def a_seat(pod: str, *claims: str) -> Seat:
    return Seat(pod_uid=Uid(pod), pod=f"ns/{pod}", node=NodeName("node"), claims=tuple(map(Uid, claims)))


def a_reservation(
    *holdings: Holding, seats: tuple[Seat, ...] = (), at: datetime = AT, gang: GangUid = GANG, queue: QueueName = QUEUE
) -> Entry:
    return books.reserve(
        gang_uid=gang,
        gang=f"ns/{gang}",
        queue=queue,
        seats=seats,
        holdings=holdings,
        at=at,
        actor="muster",
        reason="it fits",
        on_behalf_of="Job ns/train",
    )


def opened(*holdings: Holding, seats: tuple[Seat, ...] = (a_seat("pod"),)) -> Book:
    return Book().apply(a_reservation(*holdings, seats=seats))


def settled(book: Book, given: Mapping[str, int], *, device: str = "gpu-7") -> Book:
    real = {Uid(claim): Allocated((a_device(device),), {GPU: amount}) for claim, amount in given.items()}
    entry = books.settle(book.placements[GANG], real, at=LATER, actor="muster")
    assert entry is not None
    return book.apply(entry)


def released(placement: Placement, *, pods: tuple[str, ...] = (), claims: tuple[str, ...] = ()) -> Entry | None:
    return books.release(
        placement, pods=[*map(Uid, pods)], claims=[*map(Uid, claims)], at=LATER, actor="muster", reason="gone"
    )


def lines(entry: Entry) -> Lines:
    return [(posting.bucket, posting.amount) for posting in entry.postings]


def test_a_grant_makes_quota_free() -> None:
    book = Book().apply(books.grant(QUEUE, GPU, 8, at=AT, actor="muster"))

    assert book.balance(QUEUE, GPU, Bucket.FREE) == 8
    assert book.nominal(QUEUE, GPU) == 8


def test_quota_taken_away_below_what_is_used_leaves_the_queue_borrowing() -> None:
    book = opened(a_holding("c", gpu=4)).apply(books.grant(QUEUE, GPU, 4, at=AT, actor="muster"))

    book = book.apply(books.grant(QUEUE, GPU, -3, at=LATER, actor="muster"))

    assert book.nominal(QUEUE, GPU) == 1
    assert book.balance(QUEUE, GPU, Bucket.FREE) == -3


def test_grants_that_differ_in_queue_meter_amount_or_time_have_keys_of_their_own() -> None:
    grants = [
        books.grant(QUEUE, GPU, 8, at=AT, actor="muster"),
        books.grant(QUEUE, GPU, 8, at=LATER, actor="muster"),
        books.grant(QUEUE, GPU, 9, at=AT, actor="muster"),
        books.grant(QUEUE, MEMORY, 8, at=AT, actor="muster"),
        books.grant(QueueName("team-b"), GPU, 8, at=AT, actor="muster"),
    ]
    assert len({entry.key for entry in grants}) == len(grants)


def test_a_reservation_moves_each_meter_of_each_claim() -> None:
    entry = a_reservation(a_holding("b", gpu=2), a_holding("a", gpu=1, memory=80))

    assert [(p.claim, p.meter, p.bucket, p.amount) for p in entry.postings] == [
        ("a", GPU, Bucket.FREE, -1),
        ("a", GPU, Bucket.RESERVED, 1),
        ("a", MEMORY, Bucket.FREE, -80),
        ("a", MEMORY, Bucket.RESERVED, 80),
        ("b", GPU, Bucket.FREE, -2),
        ("b", GPU, Bucket.RESERVED, 2),
    ]


def test_the_order_of_pods_and_claims_does_not_matter() -> None:
    one = a_reservation(a_holding("a"), a_holding("b"), seats=(a_seat("p"), a_seat("q")))
    other = a_reservation(a_holding("b"), a_holding("a"), seats=(a_seat("q"), a_seat("p")))

    assert one == other


def test_a_plan_granted_again_after_an_eviction_is_another_reservation() -> None:
    """Gated pods and named claims keep their UIDs, so the second attempt must not pass for a repeat of the first."""
    first = a_reservation(a_holding("c"), seats=(a_seat("pod"),), at=AT)
    second = a_reservation(a_holding("c"), seats=(a_seat("pod"),), at=LATER)

    assert first.key != second.key
    books_ = [Book().apply(first), Book().apply(second)]
    evictions = {books.evict(book.placements[GANG], at=LATER, actor="muster", reason="late").key for book in books_}
    assert len(evictions) == 2


def test_a_charge_of_nothing_makes_no_lines_and_still_holds_its_devices() -> None:
    entry = a_reservation(a_holding("c", gpu=0), seats=(a_seat("pod", "c"),))

    assert entry.postings == ()
    assert Book().apply(entry).placements[GANG].holdings[Uid("c")].devices == (a_device(),)


def test_an_amount_too_large_to_keep_is_refused() -> None:
    with pytest.raises(AmountError):
        a_reservation(a_holding("c", gpu=10**38))


def test_a_balance_too_large_to_keep_is_refused() -> None:
    book = opened(a_holding("c", gpu=10**38 - 1))
    with pytest.raises(AmountError):
        book.apply(a_reservation(a_holding("d"), gang=GangUid("other")))


def test_a_settlement_charges_what_was_given_and_frees_the_rest() -> None:
    book = settled(opened(a_holding("c", gpu=4)), {"c": 3})

    holding = book.placements[GANG].holdings[Uid("c")]
    assert (holding.charge, holding.devices, holding.settled) == ({GPU: 3}, (a_device("gpu-7"),), True)
    assert book.usage() == {QUEUE: {GPU: Use(reserved=0, used=3)}}
    assert book.balance(QUEUE, GPU, Bucket.FREE) == -3


def test_a_settlement_charges_a_meter_that_was_not_planned() -> None:
    book = opened(a_holding("c", gpu=1))
    real = {Uid("c"): Allocated((a_device(),), {MEMORY: 80})}

    entry = books.settle(book.placements[GANG], real, at=LATER, actor="muster")

    assert entry is not None
    assert lines(entry) == [
        (Bucket.RESERVED, -1),
        (Bucket.FREE, 1),
        (Bucket.USED, 80),
        (Bucket.FREE, -80),
    ]


def test_a_settled_or_unknown_claim_is_not_settled_again() -> None:
    book = settled(opened(a_holding("c")), {"c": 1})
    real = {Uid(claim): Allocated((), {GPU: 1}) for claim in ("c", "unknown")}

    assert books.settle(book.placements[GANG], real, at=LATER, actor="muster") is None


def test_a_release_gives_back_planned_and_used_amounts() -> None:
    book = settled(opened(a_holding("planned", gpu=2), a_holding("used", gpu=3)), {"used": 3})

    entry = released(book.placements[GANG], pods=("pod",), claims=("planned", "used"))

    assert entry is not None
    assert lines(entry) == [
        (Bucket.RESERVED, -2),
        (Bucket.FREE, 2),
        (Bucket.USED, -3),
        (Bucket.FREE, 3),
    ]
    after = book.apply(entry)
    assert (after.placements, after.balances, after.owners) == ({}, {}, {})


def test_the_charge_of_a_claim_outlives_the_pods_of_the_claim() -> None:
    """A charge ends when the claim's allocation is gone, not when its first pod ends."""
    book = settled(opened(a_holding("c")), {"c": 1})

    entry = released(book.placements[GANG], pods=("pod",))

    assert entry is not None
    book = book.apply(entry)
    assert book.placements[GANG].seats == {}
    assert book.usage() == {QUEUE: {GPU: Use(reserved=0, used=1)}}


def test_nothing_is_released_where_nothing_is_open() -> None:
    assert released(opened(a_holding("c")).placements[GANG], pods=("other",), claims=("other",)) is None


def test_an_eviction_keeps_what_is_allocated_on_the_books() -> None:
    book = settled(opened(a_holding("planned", gpu=2), a_holding("used", gpu=3)), {"used": 3})

    book = book.apply(books.evict(book.placements[GANG], at=LATER, actor="muster", reason="StartTimedOut"))

    assert book.placements[GANG].seats == {}
    assert list(book.placements[GANG].holdings) == ["used"]
    assert book.usage() == {QUEUE: {GPU: Use(reserved=0, used=3)}}


def test_late_pods_join_with_a_reservation_of_their_own() -> None:
    book = opened(a_holding("c"))

    book = book.apply(a_reservation(a_holding("d"), seats=(a_seat("late"),), at=LATER))

    assert sorted(book.placements[GANG].seats) == ["late", "pod"]
    assert sorted(book.placements[GANG].holdings) == ["c", "d"]
    assert book.placements[GANG].reserved_at == LATER
    assert book.owners == dict.fromkeys(map(Uid, ["c", "d", "late", "pod"]), GANG)


def test_a_gang_has_begun_with_the_first_reservation_since_which_it_has_had_a_seat() -> None:
    book = opened(a_holding("c")).apply(a_reservation(a_holding("d"), seats=(a_seat("late"),), at=LATER))
    assert book.placements[GANG].held_since == AT

    def without(book: Book, *pods: str, at: datetime = LATER) -> Book:
        entry = books.release(
            book.placements[GANG], pods=[*map(Uid, pods)], at=at, actor="muster", reason="the pods have ended"
        )
        assert entry is not None
        return book.apply(entry)

    book = without(book, "pod").apply(a_reservation(seats=(a_seat("third"),), at=LATER + HOUR))
    assert (book.placements[GANG].held_since, book.placements[GANG].reserved_at) == (AT, LATER + HOUR)

    book = without(book, "late", "third").apply(a_reservation(seats=(a_seat("new"),), at=LATER + 2 * HOUR))
    assert sorted(book.placements[GANG].holdings) == ["c", "d"]
    assert book.placements[GANG].held_since == LATER + 2 * HOUR


CONFLICTS = {
    "a claim is open already": a_reservation(a_holding("c"), at=LATER),
    "a claim is open for another gang": a_reservation(a_holding("c"), gang=GangUid("other")),
    "a seat is open already": a_reservation(seats=(a_seat("pod"),), at=LATER),
    "the gang is placed in another queue": a_reservation(a_holding("d"), queue=QueueName("team-b")),
    "a seat is not open": books.evict(
        opened(a_holding("c"), seats=(a_seat("gone"),)).placements[GANG], at=LATER, actor="muster", reason=""
    ),
    "a claim is not waiting": books.settle(
        opened(a_holding("d")).placements[GANG], {Uid("d"): Allocated((), {})}, at=LATER, actor="muster"
    ),
}


@pytest.mark.parametrize("entry", CONFLICTS.values(), ids=CONFLICTS)
def test_an_entry_made_for_another_book_is_refused(entry: Entry) -> None:
    with pytest.raises(ConflictError):
        opened(a_holding("c")).apply(entry)


def test_a_claim_settled_meanwhile_is_refused() -> None:
    book = opened(a_holding("c"))
    entry = books.settle(book.placements[GANG], {Uid("c"): Allocated((), {GPU: 2})}, at=LATER, actor="muster")
    assert entry is not None

    with pytest.raises(ConflictError):
        settled(book, {"c": 1}).apply(entry)


def test_an_adjustment_may_replace_a_holding_and_move_a_gang_to_its_queue() -> None:
    book = opened(a_holding("c", gpu=1), seats=())
    found = replace(a_holding("c", gpu=0), settled=True)
    entry = replace(
        a_reservation(found, queue=QueueName("team-b"), at=LATER),
        kind=Kind.ADJUST,
        postings=(line(Bucket.RESERVED, -1), line(Bucket.FREE, 1)),
        closes=(Uid("c"),),
    )

    placement = book.apply(entry).placements[GANG]

    assert placement.queue == "team-b"
    assert placement.holdings == {"c": found}


def line(bucket: Bucket, amount: int, *, meter: MeterName = GPU, queue: QueueName = QUEUE) -> Posting:
    return Posting(queue=queue, meter=meter, bucket=bucket, amount=amount)


FINE = a_reservation(a_holding("c"), seats=(a_seat("pod", "c"),))

FLAWS = {
    "no key": (replace(FINE, key=""), "needs a key"),
    "no time zone": (replace(FINE, at=AT.replace(tzinfo=None)), "time zone"),
    "a line too few": (replace(FINE, postings=FINE.postings[:1]), "sum to -1"),
    "lines of two meters": (
        replace(FINE, postings=(line(Bucket.FREE, -1), line(Bucket.RESERVED, 1, meter=MEMORY))),
        "sum to -1",
    ),
    "lines of two queues": (
        replace(FINE, postings=(line(Bucket.FREE, -1), line(Bucket.FREE, 1, queue=QueueName("b")))),
        "sum to -1",
    ),
    "an empty line": (replace(FINE, postings=(line(Bucket.FREE, 0),)), "no amount"),
    "no gang": (replace(FINE, gang_uid=GangUid("")), "belong to a gang"),
    "a pod twice": (replace(FINE, seats=FINE.seats * 2), "twice"),
    "a claim closed twice": (replace(FINE, kind=Kind.ADJUST, closes=(Uid("x"), Uid("x"))), "twice"),
    "a grant with seats": (replace(FINE, kind=Kind.GRANT, holdings=()), "does not open or close"),
    "a reservation that closes": (replace(FINE, closes=(Uid("x"),)), "does not open or close"),
    "a release that opens": (replace(FINE, kind=Kind.RELEASE, seats=()), "does not open or close"),
    "a settlement of a plan": (replace(FINE, kind=Kind.SETTLE, seats=()), "wrong form"),
    "a negative charge": (a_reservation(a_holding("c", gpu=-1)), "negative charge"),
}


@pytest.mark.parametrize(("entry", "said"), FLAWS.values(), ids=FLAWS)
def test_an_entry_that_no_book_may_hold_is_refused(entry: Entry, said: str) -> None:
    with pytest.raises(PageError, match=said):
        entry_rules.check(entry)


def test_every_entry_of_a_gang_names_its_first_user_also_after_late_pods_of_other_users() -> None:
    book = Book().apply(replace(a_reservation(a_holding("c"), seats=(a_seat("pod"),)), user="alice"))
    book = book.apply(replace(a_reservation(a_holding("d"), at=LATER), user="bob"))
    placement = book.placements[GANG]
    device = {Uid("c"): Allocated((a_device(),), {GPU: 2})}

    assert placement.user == "alice"
    settlement = books.settle(placement, device, at=LATER, actor="muster")
    assert settlement is not None
    placement = book.apply(settlement).placements[GANG]
    entries = [
        settlement,
        books.readjust(placement, device, at=LATER, actor="muster"),
        released(placement, pods=("pod",)),
        books.evict(placement, at=LATER, actor="muster", reason="late"),
    ]
    assert [entry.user for entry in entries if entry is not None] == ["alice"] * 4


def test_a_settlement_replaces_the_planned_devices_of_each_class_by_those_given() -> None:
    planned = replace(a_holding("c"), classes={"large": 1})
    book = opened(planned)
    given = {Uid("c"): Allocated((a_device("a"), a_device("b")), {GPU: 2}, {"small": 2})}
    entry = books.settle(book.placements[GANG], given, at=LATER, actor="muster")
    assert entry is not None

    assert book.placements[GANG].holdings[Uid("c")].classes == {"large": 1}
    assert book.apply(entry).placements[GANG].holdings[Uid("c")].classes == {"small": 2}


def test_an_adjustment_of_the_charge_alone_is_a_movement_of_its_own() -> None:
    book = settled(opened(a_holding("c")), {"c": 4})
    placement = book.placements[GANG]
    device = placement.holdings[Uid("c")].devices

    entries = [
        books.readjust(placement, {Uid("c"): Allocated(device, {GPU: amount})}, at=LATER, actor="muster")
        for amount in (5, 6)
    ]

    assert len({entry.key for entry in entries if entry is not None}) == 2
