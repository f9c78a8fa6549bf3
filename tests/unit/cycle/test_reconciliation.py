"""Reconciliation as a whole: two looks, corrections for the book that they were made from, and others who write."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from admission.accounting import books
from admission.accounting.books import Account, Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind, Posted
from admission.api.snapshot import Snapshot
from admission.api.values.names import QueueName
from admission.cycle import reconcile
from admission.errors import ConflictError
from admission.lifecycle.reconciliation import Author, DifferenceKind
from admission.simulation import in_memory
from tests.builders import NOON
from tests.unit.lifecycle.test_reconciliation import (
    GPUS,
    Q,
    World,
    a_settled_world,
    booked_cluster,
    claim_deleted,
    never_booked,
)

OTHER = QueueName("other")


class Books:
    """A ledger in memory as an operator sees it. others: what somebody else writes before the n-th correction."""

    def __init__(self, book: Book, *others: Entry) -> None:
        self.ledger = in_memory.Ledger(book)
        self.others = list(others)
        self.notes: list[Entry] = []
        self.rebuilt: Book | None = None

    async def load(self) -> Book:
        return self.ledger.book

    async def amend(self, entries: Sequence[Entry], *, known: Book) -> Sequence[Posted]:
        if self.others:
            await self.ledger.post_all([self.others.pop(0)], epoch=0)
        if known.sequence != self.ledger.book.sequence:
            raise ConflictError("it has gone on")
        return await self.ledger.post_all(entries, epoch=0)

    async def rebuild(self, note: Entry) -> Posted:
        assert self.rebuilt is not None
        self.ledger.book = self.rebuilt
        (posted,) = await self.ledger.post_all([note], epoch=0)
        return posted


class Cluster:
    """Shows one snapshot after the other, the last of them for good."""

    def __init__(self, *snapshots: Snapshot) -> None:
        self.snapshots = list(snapshots)

    async def now(self) -> Snapshot:
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]


async def no_pause() -> None:
    """Time does not pass in here."""


def author(book: Book) -> Author:
    return Author(at=max(NOON, book.at or NOON), actor="root@host", reason="ticket 4711")


def a_grant(amount: int) -> Entry:
    return books.grant(OTHER, GPUS, amount, at=NOON + timedelta(minutes=amount), actor="muster")


async def mended(cluster_state: World, ledger: Books) -> reconcile.Outcome:
    cluster = Cluster(cluster_state.snapshot)
    found = await reconcile.compare(ledger, cluster, no_pause)
    return await reconcile.repair(ledger, cluster, found, author)


async def test_a_ledger_difference_seen_at_one_look_only_is_not_reported() -> None:
    """A claim was allocated a second ago: the leader settles it between the two looks."""
    plan, settled = booked_cluster(), a_settled_world()
    ledger = Books(plan.book)

    async def leader_settles() -> None:
        ledger.ledger.book = settled.book

    assert await reconcile.compare(ledger, Cluster(plan.snapshot), leader_settles) == ()


async def test_a_ledger_difference_that_appears_between_the_looks_is_not_reported() -> None:
    cluster_state = a_settled_world()

    found = await reconcile.compare(
        Books(cluster_state.book), Cluster(cluster_state.snapshot, claim_deleted(cluster_state).snapshot), no_pause
    )

    assert found == ()


async def test_without_differences_there_is_no_second_look() -> None:
    cluster_state = a_settled_world()

    async def never() -> None:
        raise AssertionError

    assert await reconcile.compare(Books(cluster_state.book), Cluster(cluster_state.snapshot), never) == ()


async def test_a_ledger_difference_seen_twice_is_corrected_once() -> None:
    cluster_state = claim_deleted(a_settled_world())
    ledger = Books(cluster_state.book)

    outcome = await mended(cluster_state, ledger)
    again = await mended(cluster_state, ledger)

    assert [one.kind for one in outcome.differences] == [DifferenceKind.CLAIM_GONE]
    assert [(entry.kind, place.sequence) for entry, place in outcome.posted] == [
        (Kind.RELEASE, cluster_state.book.sequence + 1)
    ]
    assert outcome.left == ()
    assert again == reconcile.Outcome()
    assert ledger.ledger.book.balance(Q, GPUS, Bucket.USED) == 1


async def test_ledger_corrections_are_computed_again_when_the_leader_writes_meanwhile() -> None:
    cluster_state = never_booked(a_settled_world())
    ledger = Books(cluster_state.book, a_grant(1), a_grant(2))

    outcome = await mended(cluster_state, ledger)

    assert [entry.kind for entry in ledger.ledger.entries] == [Kind.GRANT, Kind.GRANT, Kind.ADJUST]
    assert outcome.left == ()


async def test_a_ledger_difference_that_the_leader_corrects_meanwhile_is_not_posted_again() -> None:
    cluster_state = claim_deleted(a_settled_world())
    (placement,) = cluster_state.book.placements.values()
    removed = [uid for uid, holding in placement.holdings.items() if holding.claim == "team/train-0-gpus"]
    released = books.release(placement, claims=removed, at=NOON, actor="muster", reason="gone")
    assert released is not None
    ledger = Books(cluster_state.book, released)

    outcome = await mended(cluster_state, ledger)

    assert ledger.ledger.entries == [released]
    assert (outcome.posted, outcome.left) == ((), ())


async def test_reconciliation_gives_up_where_the_ledger_is_written_to_all_the_time() -> None:
    cluster_state = claim_deleted(a_settled_world())

    with pytest.raises(ConflictError, match="written to all the time"):
        await mended(cluster_state, Books(cluster_state.book, *(a_grant(amount) for amount in range(1, 20))))


async def test_balances_changed_by_hand_are_rebuilt_before_any_correction_is_posted() -> None:
    cluster_state = claim_deleted(a_settled_world())
    changed = {**cluster_state.book.balances, Account(Q, GPUS, Bucket.USED): 7}
    ledger = Books(replace(cluster_state.book, balances=changed))
    ledger.rebuilt = cluster_state.book

    outcome = await mended(cluster_state, ledger)

    assert [entry.kind for entry, _ in outcome.posted] == [Kind.ADJUST, Kind.RELEASE]
    assert "made anew from the chain" in outcome.posted[0][0].reason
    assert outcome.left == ()
