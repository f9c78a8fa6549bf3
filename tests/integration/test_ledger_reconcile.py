"""Writing beside a leader, and making projections anew, on both databases."""

import asyncio
import itertools

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry, Kind
from admission.api.values.names import QueueName
from admission.errors import ConflictError, LedgerCorruptError
from admission.ledger.journal import read
from admission.ledger.journal.read import Head
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, a_gang, a_grant, a_history, minutes, run, tamper

NOTE = Entry(
    kind=Kind.ADJUST,
    key="adjust:anew:1",
    at=minutes(600),
    actor="root@host",
    reason="ticket 4711",
    queue=QueueName(""),
)


async def test_an_amendment_does_not_depose_the_leader(ledger: SqlLedger) -> None:
    await ledger.fence(7)
    await ledger.post_all([a_grant()], epoch=7)

    (amended,) = await ledger.amend([a_gang(at=minutes(1))], known=await ledger.load())
    (posted,) = await ledger.post_all([a_grant(1, at=minutes(2))], epoch=7)

    assert (amended.sequence, posted.sequence) == (2, 3)
    assert await ledger.sequence() == 3
    assert (await ledger.verify()).ok


async def test_entries_since_an_earlier_state_lead_to_the_present_book(ledger: SqlLedger) -> None:
    history = a_history()
    await ledger.post_all(history[:2], epoch=1)
    known = await ledger.load()
    await ledger.post_all(history[2:], epoch=1)

    entries = await ledger.since(known.sequence, most=4)

    assert entries == list(history[2:])
    assert known.apply_all(entries) == await ledger.load()
    assert await ledger.since(6, most=0) == []
    assert await ledger.since(known.sequence, most=9) is None, "it has been read further since"


async def test_more_entries_than_are_wanted_are_not_read(ledger: SqlLedger) -> None:
    history = a_history()
    await ledger.post_all(history[:2], epoch=1)
    await ledger.load()
    await ledger.post_all(history[2:], epoch=1)

    assert await ledger.since(2, most=3) is None


@pytest.mark.parametrize("more", [0, 4])
async def test_books_of_another_past_are_not_gone_on_from(ledger: SqlLedger, more: int) -> None:
    """They were restored from a backup while somebody stood by, and as much was written again."""
    history = a_history()
    await ledger.post_all(history[:2], epoch=1)
    await ledger.load()
    assert ledger._last_head is not None
    ledger._last_head = ledger._last_head._replace(digest="0" * 64)
    await ledger.post_all(history[2 : 2 + more], epoch=1)

    assert await ledger.since(2, most=9) is None


async def test_after_a_rebuild_the_entries_since_an_earlier_state_are_not_offered(ledger: SqlLedger) -> None:
    await ledger.post_all(a_history(), epoch=1)
    known = await ledger.load()

    await ledger.rebuild(NOTE)

    assert await ledger.since(known.sequence, most=9) is None


async def test_an_amendment_for_a_book_that_has_gone_on_is_refused(ledger: SqlLedger) -> None:
    await ledger.post_all([a_grant()], epoch=1)
    known = await ledger.load()
    await ledger.post_all([a_grant(1, at=minutes(1))], epoch=1)

    with pytest.raises(ConflictError, match="gone on from transaction 1 to 2"):
        await ledger.amend([a_gang(at=minutes(2))], known=known)

    assert (await ledger.load()).placements == {}


async def test_an_amendment_that_a_first_leader_overtakes_is_refused_as_any_other(
    ledger: SqlLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's epoch begins between two reads of the head; the author of an amendment has none to lose."""
    known, reads = await ledger.load(), itertools.count()
    await ledger.post_all([a_grant()], epoch=1)
    read_head = read.head

    async def read_before(connection: AsyncConnection, cluster: str) -> Head | None:
        return await read_head(connection, cluster) if next(reads) else None

    monkeypatch.setattr(read, "head", read_before)
    with pytest.raises(ConflictError, match="gone on from transaction 0 to 1"):
        await ledger.amend([a_grant(1, at=minutes(1))], known=known)


async def test_the_first_entry_of_all_may_be_an_amendment(ledger: SqlLedger) -> None:
    assert await ledger.sequence() == 0

    await ledger.amend([a_grant()], known=await ledger.load())
    await ledger.fence(1)

    assert (await ledger.verify()).ok


async def test_amendments_and_a_leader_that_writes_all_the_time_do_not_disturb_each_other(url: str) -> None:
    """Everything is written once, by either; who was late is told, and tries again."""

    async def lead(ledger: SqlLedger) -> None:
        for _ in range(15):
            await ledger.post_all([a_grant(1, at=(await ledger.load()).at or minutes(0), queue=next(queues))], epoch=1)

    async def operate(ledger: SqlLedger) -> None:
        done = 0
        while done < 5:
            known = await ledger.load()
            try:
                await ledger.amend([a_grant(1, at=known.at or minutes(0), queue=next(queues))], known=known)
                done += 1
            except ConflictError:
                continue

    queues = (QueueName(f"queue-{number}") for number in itertools.count())
    async with SqlLedger.open(url, CLUSTER) as leader, SqlLedger.open(url, CLUSTER) as operator:
        await asyncio.gather(lead(leader), operate(operator))
        assert await leader.sequence() == 20
        assert (await leader.verify()).ok


TAMPERED = {
    "a balance": ["UPDATE balances SET amount = '77' WHERE bucket = 'used'"],
    "a balance that is gone": ["DELETE FROM balances WHERE bucket = 'used'"],
    "a holding that is gone": ["DELETE FROM open_holdings"],
    "a gang that is gone": ["DELETE FROM open_holdings", "DELETE FROM open_seats", "DELETE FROM open_gangs"],
    "a node": ["UPDATE open_seats SET node = 'other'"],
}


@pytest.mark.parametrize("statements", TAMPERED.values(), ids=TAMPERED)
async def test_changed_projections_are_rebuilt(ledger: SqlLedger, url: str, statements: list[str]) -> None:
    await ledger.post_all(a_history(), epoch=1)
    run(url, *statements)
    assert not (await ledger.verify()).ok

    await ledger.rebuild(NOTE)

    assert (await ledger.verify()).ok
    assert await ledger.load() == Book.replay([*a_history(), NOTE])


async def test_nothing_is_rebuilt_from_a_broken_chain(ledger: SqlLedger, url: str) -> None:
    await ledger.post_all(a_history(), epoch=1)
    tamper(url, "UPDATE transactions SET reason = 'another' WHERE sequence = 3", "DELETE FROM open_holdings")

    with pytest.raises(LedgerCorruptError, match="wrong at transaction 3"):
        await ledger.rebuild(NOTE)
