"""Laws of the books."""

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import timedelta

from hypothesis import given, strategies as st

from admission.accounting import accruals, books
from admission.accounting.accruals import Change
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from tests.property.histories import ACTOR, START, charges, devices, histories, reservations

LATER = START + timedelta(days=1)


@given(histories())
def test_replay_is_the_fold_of_apply(history: list[Entry]) -> None:
    book = Book()
    for entry in history:
        book = book.apply(entry)

    assert Book.replay(history) == book
    projected = Book.with_placements(
        book.placements.values(),
        book.balances,
        sequence=len(history),
        at=book.at,
        marked=book.marked,
        changes=_uses(history),
    )
    assert projected == book


def _uses(history: list[Entry]) -> list[Change]:
    """Return the lines on what is used since the latest mark."""
    since = max((at for at, entry in enumerate(history) if entry.kind is Kind.USAGE), default=-1)
    return [
        Change(entry.at, (line.queue, line.meter), line.amount)
        for entry in history[since + 1 :]
        for line in entry.postings
        if line.bucket is Bucket.USED
    ]


@given(histories())
def test_marked_usage_equals_the_use_of_the_holdings_over_time(history: list[Entry]) -> None:
    due: Counter[tuple[QueueName, MeterName]] = Counter()
    used: Counter[tuple[QueueName, MeterName]] = Counter()
    book, since = Book(), START
    for entry in history:
        at = max(since, accruals.floor_to_second(entry.at))
        for key, amount in used.items():
            due[key] += amount * accruals.between(since, at)
        for line in entry.postings:
            if line.bucket is Bucket.USED:
                used[line.queue, line.meter] += line.amount
        book, since = book.apply(entry), at

    spent = {(queue, meter): amount for (queue, meter, bucket), amount in book.balances.items() if bucket == "spent"}
    for key, seconds in book.accrued(since).items():
        spent[key] = spent.get(key, 0) + seconds
    assert spent == {key: seconds for key, seconds in due.items() if seconds}


@given(histories())
def test_every_entry_sums_to_zero_and_has_no_empty_line(history: list[Entry]) -> None:
    for entry in history:
        sums: Counter[tuple[QueueName, MeterName]] = Counter()
        for line in entry.postings:
            sums[line.queue, line.meter] += line.amount
            assert line.amount
        assert not any(sums.values())


@given(histories())
def test_every_movement_has_a_key_of_its_own(history: list[Entry]) -> None:
    keys = Counter(entry.key for entry in history if entry.kind != "evict" or entry.closes)
    assert set(keys.values()) <= {1}


@given(histories())
def test_reserved_and_used_balances_equal_the_charges_of_open_holdings(history: list[Entry]) -> None:
    book = Book.replay(history)
    due: defaultdict[tuple[QueueName, MeterName, bool], int] = defaultdict(int)
    for placement in book.placements.values():
        for holding in placement.holdings.values():
            for meter, amount in holding.charge.items():
                due[placement.queue, meter, holding.settled] += amount

    for queue, meters in book.usage().items():
        for meter, use in meters.items():
            assert use == (due.pop((queue, meter, False), 0), due.pop((queue, meter, True), 0))
    assert not any(due.values())


@given(histories(), st.data())
def test_reserve_then_evict_changes_nothing(history: list[Entry], data: st.DataObject) -> None:
    before = Book.replay(history)
    reserved = before.apply(reserve := data.draw(reservations(999, LATER)))

    after = reserved.apply(books.evict(reserved.placements[reserve.gang_uid], at=LATER, actor=ACTOR, reason="late"))

    assert replace(after, sequence=before.sequence, at=before.at) == before


@given(histories(), st.data())
def test_reserve_settle_and_release_change_nothing(history: list[Entry], data: st.DataObject) -> None:
    before = Book.replay(history)
    book = before.apply(reserve := data.draw(reservations(999, LATER)))
    real = {uid: books.Allocated(devices(1), data.draw(charges)) for uid in book.placements[reserve.gang_uid].holdings}

    settled = books.settle(book.placements[reserve.gang_uid], real, at=LATER, actor=ACTOR)
    book = book.apply(settled) if settled else book
    placement = book.placements[reserve.gang_uid]
    assert placement.settled
    released = books.release(
        placement, pods=list(placement.seats), claims=list(placement.holdings), at=LATER, actor=ACTOR, reason="done"
    )

    assert released is not None
    after = book.apply(released)
    assert (after.placements, after.balances, after.owners) == (before.placements, before.balances, before.owners)


@given(histories(), st.data())
def test_an_entry_changes_only_the_placements_that_it_names(history: list[Entry], data: st.DataObject) -> None:
    before = Book.replay(history)
    frozen = (dict(before.placements), dict(before.balances), dict(before.owners))

    after = before.apply(data.draw(reservations(999, LATER)))

    assert frozen == (before.placements, before.balances, before.owners)
    assert all(after.placements[gang] is placement for gang, placement in before.placements.items())


@given(st.lists(charges, min_size=1, max_size=3), charges)
def test_a_settlement_frees_what_the_plan_took_too_much(
    planned: list[dict[MeterName, int]], real: dict[MeterName, int]
) -> None:
    holdings = [
        Holding(claim_uid=Uid(f"c{number}"), claim=f"ns/c{number}", devices=(), charge=charge)
        for number, charge in enumerate(planned)
    ]
    queue, gang = QueueName("q"), GangUid("g")
    book = Book().apply(
        books.reserve(
            gang_uid=gang,
            gang="ns/g",
            queue=queue,
            seats=(),
            holdings=holdings,
            at=START,
            actor=ACTOR,
            reason="",
            on_behalf_of="",
        )
    )
    allocated = {holding.claim_uid: books.Allocated((), real) for holding in holdings}

    settled = books.settle(book.placements[gang], allocated, at=START, actor=ACTOR)

    assert settled is not None
    book = book.apply(settled)
    for meter in {meter for charge in [*planned, real] for meter in charge}:
        used = real.get(meter, 0) * len(planned)
        assert book.balance(queue, meter, Bucket.RESERVED) == 0
        assert book.balance(queue, meter, Bucket.USED) == used
        assert book.balance(queue, meter, Bucket.FREE) == -used
