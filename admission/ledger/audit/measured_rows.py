"""Whether the rows of measured use are those for which the transactions vouch."""

from typing import NamedTuple

from sqlalchemy import exists, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import measurements
from admission.api.muster.ledger_entries import Kind
from admission.errors import AmountError
from admission.ledger.db import errors
from admission.ledger.db.tables import measured_usage, transactions
from admission.ledger.journal import measured_usage as journal_rows, read


class Problem(NamedTuple):
    """A transaction whose rows are not those that it vouches for, or rows without one; sequence: its place."""

    sequence: int
    detail: str


async def problem(connection: AsyncConnection, cluster: str, *, after: int) -> Problem | None:
    """Return the first problem behind a place up to which rows were archived. The caller verifies the transactions."""
    return await _changed(connection, cluster, after) or await _unvouched(connection, cluster, after)


async def _changed(connection: AsyncConnection, cluster: str, after: int) -> Problem | None:
    entries = (
        select(transactions.c.sequence, transactions.c.reason)
        .where(transactions.c.cluster == cluster, transactions.c.kind == Kind.MEASURE.value)
        .where(transactions.c.sequence > after)
        .order_by(transactions.c.sequence)
    )
    vouched = [(row.sequence, row.reason) async for row in read.streamed(connection, entries)]
    for sequence, reason in vouched:
        try:
            rows = await journal_rows.of_transaction(connection, cluster, sequence)
            if measurements.reason(rows) != reason:
                return Problem(sequence, "the rows of measured use are not those that it vouches for")
        except (AmountError, OverflowError, TypeError, ValueError, DBAPIError) as error:
            return Problem(sequence, errors.unreadable(error))
    return None


async def _unvouched(connection: AsyncConnection, cluster: str, after: int) -> Problem | None:
    """Find rows without a transaction."""
    entry = exists().where(
        transactions.c.cluster == cluster,
        transactions.c.sequence == measured_usage.c.sequence,
        transactions.c.kind == Kind.MEASURE.value,
    )
    query = (
        select(measured_usage.c.sequence)
        .where(measured_usage.c.cluster == cluster, measured_usage.c.sequence > after, ~entry)
        .order_by(measured_usage.c.sequence)
        .limit(1)
    )
    found = (await connection.execute(query)).scalar_one_or_none()
    return None if found is None else Problem(found, "rows of measured use for which no transaction vouches")
