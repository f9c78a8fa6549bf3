"""Statements of account: every movement of a queue, with the balance after it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.entries import Bucket, Kind
from admission.api.names import MeterName, QueueName
from admission.ledger import reading
from admission.ledger.tables import postings, transactions


class Amounts(NamedTuple):
    """Of one meter, in its base unit: quota granted, reserved by plans, used by allocations."""

    nominal: int
    reserved: int
    used: int

    def plus(self, other: "Amounts") -> "Amounts":
        return Amounts(self.nominal + other.nominal, self.reserved + other.reserved, self.used + other.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """What one transaction did to one meter of a queue, and what stood there afterwards."""

    at: datetime
    sequence: int
    kind: Kind
    queue: QueueName
    gang: str
    on_behalf_of: str
    actor: str
    reason: str
    meter: MeterName
    change: Amounts
    balance: Amounts


async def statement(
    connection: AsyncConnection, cluster: str, queue: QueueName | None, start: datetime, end: datetime
) -> list[StatementLine]:
    """Return the lines from start on, before end, in the order of the chain; of all queues where none is named.

    The balances run from the first transaction. Rows are streamed: memory holds the lines that are returned.
    """
    running: dict[tuple[QueueName, MeterName], Amounts] = {}
    lines: list[StatementLine] = []
    async for rows in _transactions(connection, cluster, queue):
        for key, change in _changes(rows).items():
            running[key] = running.get(key, _NOTHING).plus(change)
            if start <= rows[0].at < end:
                lines.append(_line(rows[0], key, change, running[key]))
    return lines


_NOTHING = Amounts(0, 0, 0)


async def _transactions(
    connection: AsyncConnection, cluster: str, queue: QueueName | None
) -> AsyncIterator[list[Row[Any]]]:
    """Yield the lines of one transaction at a time."""
    wanted = (
        select(
            transactions, *(postings.c[name].label(f"line_{name}") for name in ("queue", "meter", "bucket", "amount"))
        )
        .join_from(transactions, postings)
        .where(transactions.c.cluster == cluster, *([] if queue is None else [postings.c.queue == queue]))
        .order_by(transactions.c.sequence, postings.c.line)
    )
    group: list[Row[Any]] = []
    async for row in reading.streamed(connection, wanted):
        if group and group[0].sequence != row.sequence:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _changes(rows: list[Row[Any]]) -> dict[tuple[QueueName, MeterName], Amounts]:
    changes: dict[tuple[QueueName, MeterName], Amounts] = {}
    for row in rows:
        key = (QueueName(row.line_queue), MeterName(row.line_meter))
        changes[key] = changes.get(key, _NOTHING).plus(_change(Bucket(row.line_bucket), row.line_amount))
    return changes


def _change(bucket: Bucket, amount: int) -> Amounts:
    match bucket:
        case Bucket.ENTITLEMENT:
            return _NOTHING._replace(nominal=-amount)
        case Bucket.RESERVED:
            return _NOTHING._replace(reserved=amount)
        case Bucket.USED:
            return _NOTHING._replace(used=amount)
        case Bucket.FREE | Bucket.SUPPLY | Bucket.SPENT:
            return _NOTHING


def _line(row: Row[Any], key: tuple[QueueName, MeterName], change: Amounts, balance: Amounts) -> StatementLine:
    queue, meter = key
    return StatementLine(
        at=row.at,
        sequence=row.sequence,
        kind=Kind(row.kind),
        queue=queue,
        gang=row.gang,
        on_behalf_of=row.on_behalf_of,
        actor=row.actor,
        reason=row.reason,
        meter=meter,
        change=change,
        balance=balance,
    )
