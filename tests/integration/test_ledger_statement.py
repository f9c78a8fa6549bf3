"""Statements of account."""

from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind
from admission.api.values.names import MeterName, QueueName
from admission.ledger.reports.statement import Amounts
from admission.ledger.sql_ledger import SqlLedger
from tests.builders import NOON
from tests.integration.ledgers import AT, CLUSTER, GPU, ON_SQLITE, QUEUE, a_gang, a_grant, a_history, minutes
from tests.integration.lives import HISTORIES, moments, posted, without_claims
from tests.property.histories import histories

EVER = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
OTHER = QueueName("team-b")


@pytest.fixture
async def ledger(url: str) -> AsyncIterator[SqlLedger]:
    async with SqlLedger.open(url, CLUSTER) as opened:
        for entry in a_history():
            await opened.post(entry, epoch=1)
        yield opened


async def test_a_statement_lists_every_movement_with_the_balance_after(ledger: SqlLedger) -> None:
    lines = (await ledger.statement(QUEUE, *EVER)).lines

    assert [(line.sequence, line.kind, line.change, line.balance) for line in lines] == [
        (1, Kind.GRANT, Amounts(8, 0, 0), Amounts(8, 0, 0)),
        (2, Kind.RESERVE, Amounts(0, 2, 0), Amounts(8, 2, 0)),
        (3, Kind.RESERVE, Amounts(0, 4, 0), Amounts(8, 6, 0)),
        (4, Kind.SETTLE, Amounts(0, -2, 6), Amounts(8, 4, 6)),
        (5, Kind.RELEASE, Amounts(0, 0, -3), Amounts(8, 4, 3)),
        (6, Kind.EVICT, Amounts(0, -4, 0), Amounts(8, 0, 3)),
    ]
    assert (lines[1].at, lines[1].gang, lines[1].reason, lines[1].on_behalf_of, lines[1].meter) == (
        minutes(1),
        "ns/one",
        "it fits",
        "Job ns/train",
        GPU,
    )


async def test_the_last_balance_is_the_books_balance(ledger: SqlLedger) -> None:
    book = Book.replay(a_history())

    *_, last = (await ledger.statement(QUEUE, *EVER)).lines

    assert last.balance == Amounts(
        book.nominal(QUEUE, GPU), book.balance(QUEUE, GPU, Bucket.RESERVED), book.balance(QUEUE, GPU, Bucket.USED)
    )


async def test_a_period_includes_its_start_and_not_its_end_and_carries_the_balance_over(ledger: SqlLedger) -> None:
    statement = await ledger.statement(QUEUE, minutes(3), minutes(5))

    assert [line.sequence for line in statement.lines] == [4, 5]
    assert statement.lines[0].balance == Amounts(8, 4, 6)
    assert statement.opening == {(QUEUE, GPU): Amounts(8, 6, 0)}
    assert statement.closing == {(QUEUE, GPU): Amounts(8, 4, 3)}


@HISTORIES
@given(history=histories(), times=st.tuples(moments, moments).map(sorted))
async def test_a_statement_leads_from_what_stood_at_its_start_to_what_stood_at_its_end(
    url: str, history: list[Entry], times: list[datetime]
) -> None:
    start, end = times
    cluster = await posted(url, history)
    async with SqlLedger.open(url, cluster) as ledger:
        found = await ledger.statement(None, start, end)

    assert found.opening == state(entry for entry in history if entry.at < start)
    assert {key: amounts for key, amounts in found.closing.items() if any(amounts)} == state(
        entry for entry in history if entry.at < end
    )
    running = dict(found.opening)
    for line in found.lines:
        key = (line.queue, line.meter)
        running[key] = running.get(key, Amounts(0, 0, 0)).plus(line.change)
        assert running[key] == line.balance
    assert running == found.closing


def state(history: Iterable[Entry]) -> dict[QueueMeter, Amounts]:
    """Return what the pure books hold after some entries."""
    book = Book.replay(history)
    found = {
        (queue, meter): Amounts(
            book.nominal(queue, meter),
            *(book.balance(queue, meter, bucket) for bucket in (Bucket.RESERVED, Bucket.USED, Bucket.SPENT)),
        )
        for queue, meter, _ in book.balances
    }
    return {key: amounts for key, amounts in found.items() if any(amounts)}


async def test_queues_have_statements_of_their_own(ledger: SqlLedger) -> None:
    await ledger.post(a_grant(5, queue=OTHER, at=minutes(6)), epoch=1)
    await ledger.post(a_gang("other", queue=OTHER, gpu=2**70, at=minutes(7)), epoch=1)

    lines = (await ledger.statement(OTHER, *EVER)).lines

    assert [line.balance for line in lines] == [Amounts(5, 0, 0), Amounts(5, 2**70, 0)]
    assert len((await ledger.statement(None, *EVER)).lines) == 8
    assert (await ledger.statement(QueueName("nobody"), *EVER)).lines == []


async def test_an_empty_period_has_no_lines(ledger: SqlLedger) -> None:
    assert (await ledger.statement(None, AT, AT)).lines == []


@ON_SQLITE
async def test_pods_without_claims_are_in_a_statement_in_whole_units_of_their_meter(url: str) -> None:
    cluster, account = await posted(url, await without_claims()), (QueueName("q"), MeterName("credits"))
    async with SqlLedger.open(url, cluster) as ledger:
        found = await ledger.statement(QueueName("q"), NOON + timedelta(minutes=1), NOON + timedelta(minutes=100))

    assert found.opening[account] == Amounts(40, 8, 0)
    assert [(line.kind, line.meter, line.change, line.balance) for line in found.lines] == [
        (Kind.SETTLE, "credits", Amounts(0, -8, 8), Amounts(40, 0, 8)),
        (Kind.USAGE, "credits", Amounts(0, 0, 0, 8 * 50 * 60), Amounts(40, 0, 8, 24_000)),
        (Kind.RELEASE, "credits", Amounts(0, 0, -4), Amounts(40, 0, 4, 24_000)),
    ]
    assert found.closing[account] == Amounts(40, 0, 4, 24_000)
