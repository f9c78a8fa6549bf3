"""What devices did while they were allocated: rows beside the books, for which a transaction vouches.

The rows of a page are written in the SQL transaction of their measure entry (`accounting.measurements`), so both are
there or neither. They move no balance.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from sqlalchemy import Row, Select, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import measurements
from admission.api.muster.ledger_entries import Kind, MeasuredPage, MeasuredUsage
from admission.api.values.names import GangUid, QueueName, Uid
from admission.ledger.db import bulk_insert
from admission.ledger.db.tables import measured_usage, transactions
from admission.ledger.journal import hash_chain, read
from admission.ledger.journal.base import Span, Window

MOST_QUEUES = 500
"""Queues in one IN list; the rows of more are read all."""


async def write(connection: AsyncConnection, cluster: str, sequence: int, rows: Sequence[MeasuredUsage]) -> None:
    """Add the rows of a page, for which the transaction with this sequence vouches."""
    lines = [(cluster, sequence, line, *_columns(row)) for line, row in enumerate(rows, 1)]
    await bulk_insert.insert(connection, measured_usage, lines)


async def latest(connection: AsyncConnection, cluster: str) -> MeasuredPage | None:
    """Return the page that was measured last; None if none was. Of an archived one its time is known, as a last page.

    Raises ValueError if it cannot be read.
    """
    keys = (
        select(transactions.c.key)
        .where(transactions.c.cluster == cluster, transactions.c.kind == Kind.MEASURE.value)
        .order_by(transactions.c.sequence.desc())
        .limit(1)
    )
    key = (await connection.execute(keys)).scalar_one_or_none()
    if key is not None:
        found = measurements.page_of(key)
        if found is None:
            raise ValueError(f"{key!r} is not the key of measured use")
        return found
    end = select(func.max(measured_usage.c.until)).where(measured_usage.c.cluster == cluster)
    until = (await connection.execute(end)).scalar_one()
    return None if until is None else MeasuredPage(until, until, 1, 1)


async def within(
    connection: AsyncConnection, cluster: str, window: Window, queues: Collection[QueueName] | None = None
) -> AsyncIterator[MeasuredUsage]:
    """Yield what was measured in times that lie wholly within a time, oldest first. queues: None for all."""
    rows = query(cluster, window)
    if queues is not None and len(queues) <= MOST_QUEUES:
        rows = rows.where(measured_usage.c.queue.in_(sorted(queues)))
    async for row in read.streamed(connection, rows):
        if queues is None or row.queue in queues:
            yield _usage(row)


def query(cluster: str, window: Window) -> Select[Any]:
    """Return the query for these rows, with all columns."""
    columns = measured_usage.c
    return (
        select(measured_usage)
        .where(columns.cluster == cluster, columns.start >= window.start, columns.start < window.end)
        .where(columns.until <= window.end)
        .order_by(columns.start, columns.sequence, columns.line)
    )


async def of_transaction(connection: AsyncConnection, cluster: str, sequence: int) -> list[MeasuredUsage]:
    """Return the rows for which a transaction vouches, in their order."""
    rows = select(measured_usage).where(measured_usage.c.cluster == cluster, measured_usage.c.sequence == sequence)
    return [_usage(row) async for row in read.streamed(connection, rows.order_by(measured_usage.c.line))]


async def entries(connection: AsyncConnection, cluster: str, span: Span, *, most: int) -> list[int]:
    """Return the sequences of the first few measure entries in a part of the chain."""
    sequences = (
        select(transactions.c.sequence)
        .where(transactions.c.cluster == cluster, transactions.c.kind == Kind.MEASURE.value)
        .where(transactions.c.sequence > span.first, transactions.c.sequence <= span.last)
        .order_by(transactions.c.sequence)
        .limit(most)
    )
    return list((await connection.execute(sequences)).scalars())


async def remove(connection: AsyncConnection, cluster: str, through: int) -> None:
    """Remove the rows of transactions up to one that a closing has archived."""
    archived = measured_usage.c.cluster == cluster, measured_usage.c.sequence <= through
    await connection.execute(delete(measured_usage).where(*archived))


def _columns(row: MeasuredUsage) -> tuple[Any, ...]:
    amounts = (row.measured_seconds, row.used_microseconds, row.memory_peak, row.powered_seconds, row.energy)
    return (
        row.queue,
        row.gang_uid,
        row.gang,
        row.user,
        row.claim_uid,
        row.claim,
        hash_chain.instant(row.start),
        hash_chain.instant(row.end),
        row.devices,
        *(None if amount is None else str(amount) for amount in amounts),
    )


def _usage(row: Row[Any]) -> MeasuredUsage:
    return MeasuredUsage(
        queue=QueueName(row.queue),
        gang_uid=GangUid(row.gang_uid),
        gang=row.gang,
        user=row.user,
        claim_uid=Uid(row.claim_uid),
        claim=row.claim,
        start=row.start,
        end=row.until,
        devices=row.devices,
        measured_seconds=row.measured_seconds,
        used_microseconds=row.used_microseconds,
        memory_peak=row.memory_peak,
        powered_seconds=row.powered_seconds,
        energy=row.energy,
    )
