"""The ledger on real databases: posting, loading, repeating."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta, timezone

import pytest
from blockbuster import blockbuster_ctx

from admission.accounting import books, seat_transfer
from admission.accounting.books import Allocated, Book
from admission.api.muster.ledger_entries import Bucket
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.errors import ConflictError, PageError
from admission.ledger.db import engines, migrations
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.conftest import Fresh
from tests.integration.ledgers import AT, CLUSTER, GPU, ON_SQLITE, QUEUE, a_gang, a_grant, a_history, file_of, minutes


async def test_a_new_ledger_is_empty(ledger: SqlLedger) -> None:
    assert await ledger.load() == Book()


async def test_posted_entries_are_there_after_a_restart(url: str) -> None:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        posted = [await ledger.post(entry, epoch=1) for entry in a_history()]

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await ledger.load() == Book.replay(a_history())
    assert [p.sequence for p in posted] == [1, 2, 3, 4, 5, 6]
    assert len({p.digest for p in posted}) == 6


async def test_a_seat_on_a_node_that_came_keeps_what_the_node_was_asked_as(url: str) -> None:
    reserved, asked_as = a_gang(claims=2), names.node_to_come("x8", 1)
    moved = seat_transfer.inherit(
        Book.replay([reserved]).placements[GangUid("gang")],
        gone=[*(seat.pod_uid for seat in reserved.seats), *(held.claim_uid for held in reserved.holdings)],
        seats=[replace(seat, node=NodeName("come"), asked_as=asked_as) for seat in reserved.seats],
        holdings=[replace(held, charge={GPU: 2}) for held in reserved.holdings],
        at=minutes(1),
        actor="muster",
    )
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post_all([a_grant(), reserved, moved], epoch=1)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        book = await ledger.load()
        assert book == Book.replay([a_grant(), reserved, moved])
        assert (await ledger.verify()).ok
    seats = book.placements[GangUid("gang")].seats.values()
    assert {(seat.node, seat.asked_as) for seat in seats} == {("come", asked_as)}
    assert book.balance(QUEUE, GPU, Bucket.RESERVED) == 4


async def test_times_keep_their_microseconds_and_come_back_in_utc(ledger: SqlLedger) -> None:
    at = (AT + timedelta(microseconds=1)).astimezone(timezone(timedelta(hours=5, minutes=45)))

    await ledger.post(a_gang(at=at), epoch=1)

    reserved_at = (await ledger.load()).placements[GangUid("gang")].reserved_at
    assert reserved_at == at
    assert reserved_at.utcoffset() == timedelta(0)


async def test_amounts_beyond_64_bits_are_exact(ledger: SqlLedger) -> None:
    largest = 10**38 - 1
    await ledger.post(a_grant(largest), epoch=1)
    await ledger.post(a_gang(gpu=2**63 + 1), epoch=1)

    book = await ledger.load()

    assert book.balance(QUEUE, GPU, Bucket.FREE) == largest - 2**63 - 1
    assert book.placements[GangUid("gang")].holdings[Uid("gang-claim-0")].charge == {GPU: 2**63 + 1}
    assert (await ledger.verify()).ok


@ON_SQLITE
@pytest.mark.parametrize("amount", ["1.0", "1e3", "+1", "-0", "01", "", " 1", "1-", "--1", "9" * 39, b"1"])
async def test_sqlite_refuses_text_that_is_not_a_whole_number(url: str, amount: str | bytes) -> None:
    with closing(sqlite3.connect(file_of(url))) as connection:
        connection.execute("INSERT INTO clusters VALUES ('east', 1, 0, '')")
        with pytest.raises(sqlite3.IntegrityError, match="amount_is_whole"):
            connection.execute("INSERT INTO balances VALUES ('east', 'q', 'm', 'free', ?)", (amount,))


async def test_clusters_share_a_database_and_nothing_in_it(url: str) -> None:
    async with SqlLedger.open(url, "east") as east, SqlLedger.open(url, "west") as west:
        assert (await east.post(a_gang(), epoch=5)).sequence == 1
        assert (await west.post(a_gang(), epoch=1)).sequence == 1

        assert (await east.load()) == (await west.load()) == Book.replay([a_gang()])
        assert (await east.verify()).digest != (await west.verify()).digest


async def test_an_entry_posted_again_changes_nothing_and_says_so(ledger: SqlLedger) -> None:
    first = await ledger.post(a_gang(), epoch=1)
    await ledger.post(a_grant(), epoch=1)

    again = await ledger.post(a_gang(), epoch=2)

    assert again == replace(first, repeated=True)
    assert (await ledger.verify()).transactions == 2


async def test_a_movement_decided_again_with_another_time_is_still_the_same(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]
    await ledger.post(books.evict(placement, at=minutes(1), actor="muster", reason="StartTimedOut"), epoch=1)

    again = await ledger.post(books.evict(placement, at=minutes(2), actor="muster", reason="again"), epoch=1)

    assert again.repeated


async def test_a_key_that_says_something_else_is_no_repetition(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(PageError, match="says something else"):
        await ledger.post(replace(a_gang(gpu=2), key=a_gang().key), epoch=1)


async def test_an_evicted_gang_can_be_reserved_again_with_the_same_pods_and_claims(ledger: SqlLedger) -> None:
    for attempt in range(3):
        assert not (await ledger.post(a_gang(at=minutes(attempt)), epoch=1)).repeated
        placement = (await ledger.load()).placements[GangUid("gang")]
        evicted = books.evict(placement, at=minutes(attempt), actor="muster", reason="StartTimedOut")
        assert not (await ledger.post(evicted, epoch=1)).repeated

    left = await ledger.load()
    assert (left.placements, left.balances) == ({}, {})
    assert (await ledger.verify()).transactions == 6


async def test_entries_made_for_another_book_are_refused_and_leave_nothing_behind(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]
    other = replace(placement, reserved_at=minutes(9), seats={}, holdings={})
    ghost = Book().apply(a_gang("ghost")).placements[GangUid("ghost")]
    stale = [
        a_gang(at=minutes(1)),
        replace(a_gang("late", at=minutes(1)), gang_uid=GangUid("gang"), queue=QueueName("team-b")),
        books.evict(ghost, at=minutes(1), actor="muster", reason=""),
        books.evict(replace(other, seats=ghost.seats), at=minutes(1), actor="muster", reason=""),
        books.settle(ghost, {Uid("ghost-claim-0"): Allocated((), {})}, at=minutes(1), actor="muster"),
    ]

    for entry in stale:
        assert entry is not None
        with pytest.raises(ConflictError):
            await ledger.post(entry, epoch=1)

    assert await ledger.load() == Book.replay([a_gang()])
    assert (await ledger.verify()).transactions == 1


async def test_a_claim_settled_by_another_process_is_not_settled_twice(ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]
    both = [
        books.settle(placement, {Uid("gang-claim-0"): Allocated((), {GPU: gpu})}, at=minutes(1), actor="muster")
        for gpu in (1, 2)
    ]
    assert both[0] is not None
    assert both[1] is not None
    await ledger.post(both[0], epoch=1)

    with pytest.raises(ConflictError):
        await ledger.post(both[1], epoch=1)


async def test_an_unbalanced_entry_is_refused(ledger: SqlLedger) -> None:
    with pytest.raises(PageError, match="sum to"):
        await ledger.post(replace(a_gang(), postings=a_gang().postings[:1]), epoch=1)


async def test_a_gang_of_thousands_fits_into_one_entry(ledger: SqlLedger) -> None:
    entry = a_gang(claims=1200)
    await ledger.post(entry, epoch=1)
    placement = (await ledger.load()).placements[GangUid("gang")]

    await ledger.post(books.evict(placement, at=minutes(1), actor="muster", reason="late"), epoch=1)

    left = await ledger.load()
    assert (left.placements, left.balances) == ({}, {})


@ON_SQLITE
async def test_a_commit_survives_a_loss_of_power(ledger: SqlLedger) -> None:
    async with engines.reading(ledger._engine) as connection:
        pragmas = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5_000}


async def test_no_call_of_the_ledger_blocks_the_event_loop(new_database: Fresh) -> None:
    url = new_database()
    with blockbuster_ctx("admission") as blockbuster:
        # For each new connection asyncpg looks for ~/.pgpass and ~/.postgresql, as libpq does.
        for function in blockbuster.functions.values():
            function.can_block_in("asyncpg/connect_utils.py", "_parse_connect_dsn_and_args")
            # Migrations run in a thread, in a loop of its own; the frames of a greenlet begin with its work.
            function.can_block_in("admission/ledger/db/migrations.py", ("_connected", "on"))
        await migrations.migrate(url)
        async with SqlLedger.open(url, CLUSTER) as ledger:
            for entry in a_history():
                await ledger.post(entry, epoch=1)
            await ledger.load()
            await ledger.verify()
            await ledger.statement(None, AT, minutes(9))
