"""Search for transactions in a time by queue, gang, user and kind, the newest first, in pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, RowMapping, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import Kind
from admission.errors import LedgerCorruptError
from admission.ledger.db.tables import postings, transactions
from admission.ledger.journal import base, read
from admission.ledger.journal.base import Span, Window
from admission.ledger.journal.read import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The conditions of a search; an empty one matches all.

    queue: of the transaction. namespace: of the gang. gang: a part of `namespace/name`. before: only transactions with
    a lower sequence, for the next page. limit: rows of a page.
    """

    window: Window
    queue: str = ""
    namespace: str = ""
    gang: str = ""
    gang_uid: str = ""
    user: str = ""
    kind: Kind | None = None
    before: int | None = None
    limit: int = 100


async def search(connection: AsyncConnection, cluster: str, wanted: Search) -> list[Record]:
    """Return at most `wanted.limit` transactions, the newest first.

    Raises FixError when the start lies in a closed period, LedgerCorruptError when a row cannot be read.
    """
    span = await base.span(connection, cluster, wanted.window)
    return await _found(connection, cluster, _conditions(wanted, span), limit=wanted.limit)


async def of_gang(
    connection: AsyncConnection, cluster: str, *, uid: str, gang: str, since: datetime, limit: int
) -> list[Record]:
    """Return the latest transactions of a gang, the newest first: by its UID, or by its name if there are none.

    Names have no index, so by name only the transactions since a time are read. Raises LedgerCorruptError when a row
    cannot be read.
    """
    found = await _found(connection, cluster, [transactions.c.gang_uid == uid], limit=limit)
    if found:
        return found
    first = await base.last_before(connection, cluster, since)
    named = [transactions.c.sequence > first, transactions.c.gang == gang]
    return await _found(connection, cluster, named, limit=limit)


async def _found(
    connection: AsyncConnection, cluster: str, conditions: Sequence[ColumnElement[bool]], *, limit: int
) -> list[Record]:
    matching = (
        select(transactions)
        .where(transactions.c.cluster == cluster, *conditions)
        .order_by(transactions.c.sequence.desc())
        .limit(limit)
    )
    rows = (await connection.execute(matching)).mappings().all()
    lines = await _lines(connection, cluster, [row["sequence"] for row in rows]) if rows else {}
    try:
        return [read.record(row, lines.get(row["sequence"], ())) for row in rows]
    except ValueError as error:
        raise LedgerCorruptError(f"cluster {cluster}: {error}: run `muster ledger verify`") from error


def _conditions(wanted: Search, span: Span) -> list[ColumnElement[bool]]:
    columns = transactions.c
    last = span.last if wanted.before is None else min(span.last, wanted.before - 1)
    conditions = [columns.sequence > span.first, columns.sequence <= last]
    exact = {columns.queue: wanted.queue, columns.gang_uid: wanted.gang_uid, columns.user: wanted.user}
    conditions += [column == value for column, value in exact.items() if value]
    if wanted.kind is not None:
        conditions.append(columns.kind == wanted.kind.value)
    if wanted.namespace:
        conditions.append(columns.gang.startswith(f"{wanted.namespace}/", autoescape=True))
    if wanted.gang:
        conditions.append(columns.gang.contains(wanted.gang, autoescape=True))
    return conditions


async def _lines(connection: AsyncConnection, cluster: str, sequences: Sequence[int]) -> dict[int, list[RowMapping]]:
    wanted = (
        select(postings)
        .where(postings.c.cluster == cluster, postings.c.sequence.in_(sequences))
        .order_by(postings.c.sequence, postings.c.line)
    )
    found: dict[int, list[RowMapping]] = {}
    for row in (await connection.execute(wanted)).mappings():
        found.setdefault(row["sequence"], []).append(row)
    return found
