"""Statements of account: every movement of a queue, with the balance after it.

No statement reads the books from their first row. Its opening balance is the present balance less all later lines, or
the balance at the base of the books plus the lines up to the start, whichever needs fewer lines.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Account
from admission.api.muster.ledger_entries import Bucket, Kind
from admission.api.values.names import MeterName, QueueName
from admission.ledger.db.tables import balances, postings, transactions
from admission.ledger.journal import base as journal_base, read
from admission.ledger.journal.base import Span, Window


class Amounts(NamedTuple):
    """Amounts of one meter: quota granted, reserved by plans, used by allocations; spent, in meter-seconds."""

    nominal: int
    reserved: int
    used: int
    spent: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        return Amounts(
            self.nominal + other.nominal,
            self.reserved + other.reserved,
            self.used + other.used,
            self.spent + other.spent,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """The change of one meter of a queue by one transaction, and the balance after it."""

    at: datetime
    sequence: int
    kind: Kind
    queue: QueueName
    gang: str
    on_behalf_of: str
    user: str
    actor: str
    reason: str
    meter: MeterName
    change: Amounts
    balance: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A period of the accounts of one queue or all. opening and closing: the balances at its start and end."""

    start: datetime
    end: datetime
    opening: Mapping[QueueMeter, Amounts]
    lines: list[StatementLine]
    closing: Mapping[QueueMeter, Amounts]


async def statement(
    connection: AsyncConnection, cluster: str, queue: QueueName | None, start: datetime, end: datetime
) -> Statement:
    """Return the lines in [start, end) in the order of the chain; those of all queues if none is named.

    Rows are streamed: memory holds the lines that are returned. Raises FixError when the start lies in a closed period.
    """
    span = await journal_base.span(connection, cluster, Window(start, end))
    opening = await _opening(connection, cluster, queue, span.first)
    running, lines = dict(opening), list[StatementLine]()
    async for rows in _transactions(connection, cluster, queue, span):
        for key, change in _changes(rows).items():
            running[key] = running.get(key, _ZERO).plus(change)
            lines.append(_line(rows[0], key, change, running[key]))
    return Statement(start=start, end=end, opening=opening, lines=lines, closing=running)


_ZERO = Amounts(0, 0, 0)


async def _opening(
    connection: AsyncConnection, cluster: str, queue: QueueName | None, sequence: int
) -> dict[QueueMeter, Amounts]:
    """Return the balances after a transaction, by queue and meter, without those that are all zero."""
    base, head = await journal_base.base(connection, cluster), await journal_base.head(connection, cluster)
    if head - sequence <= sequence - base.sequence:
        amounts = await _current_balances(connection, cluster, queue)
        since, sign = Span(sequence, head), -1
    else:
        carried = (await journal_base.carried(connection, cluster)).balances
        amounts = {account: amount for account, amount in carried.items() if queue in {None, account.queue}}
        since, sign = Span(base.sequence, sequence), 1
    for account, moved in (await _moved(connection, cluster, queue, since)).items():
        amounts[account] = amounts.get(account, 0) + sign * moved
    return _state_at(amounts.items())


async def _current_balances(connection: AsyncConnection, cluster: str, queue: QueueName | None) -> dict[Account, int]:
    query = select(balances).where(balances.c.cluster == cluster)
    rows = await connection.execute(query if queue is None else query.where(balances.c.queue == queue))
    return {_account(row): row.amount for row in rows}


async def _moved(connection: AsyncConnection, cluster: str, queue: QueueName | None, span: Span) -> dict[Account, int]:
    """Return the sums of the lines of a part of the chain.

    The database counts equal amounts, since most are alike; Python adds them, which is exact.
    """
    columns = (postings.c.queue, postings.c.meter, postings.c.bucket, postings.c.amount)
    wanted = _restrict(connection, select(*columns, func.count().label("times")), cluster, queue, span).group_by(
        *columns
    )
    moved: dict[Account, int] = {}
    async for row in read.streamed(connection, wanted):
        account = _account(row)
        moved[account] = moved.get(account, 0) + row.amount * row.times
    return moved


def _account(row: Row[Any]) -> Account:
    return Account(QueueName(row.queue), MeterName(row.meter), Bucket(row.bucket))


def _state_at(amounts: Iterable[tuple[Account, int]]) -> dict[QueueMeter, Amounts]:
    found: dict[QueueMeter, Amounts] = {}
    for (queue, meter, bucket), amount in sorted(amounts):
        found[queue, meter] = _plus(found.get((queue, meter), _ZERO), bucket, amount)
    return {key: state for key, state in found.items() if any(state)}


async def _transactions(
    connection: AsyncConnection, cluster: str, queue: QueueName | None, span: Span
) -> AsyncIterator[list[Row[Any]]]:
    """Yield the lines of one transaction at a time."""
    names = ("sequence", "at", "kind", "gang", "on_behalf_of", "user", "actor", "reason")
    columns = (
        *(transactions.c[name] for name in names),
        *(postings.c[name].label(f"line_{name}") for name in ("queue", "meter", "bucket", "amount")),
    )
    lines = _restrict(connection, select(*columns).join_from(postings, transactions), cluster, queue, span)
    wanted = lines.order_by(postings.c.sequence, postings.c.line)
    group: list[Row[Any]] = []
    async for row in read.streamed(connection, wanted):
        if group and group[0].sequence != row.sequence:
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _restrict(
    connection: AsyncConnection, wanted: Select[Any], cluster: str, queue: QueueName | None, span: Span
) -> Select[Any]:
    """Restrict a query to the lines of a queue, or of all, in a part of the chain, on the accounts that are shown."""
    within = wanted.where(
        postings.c.cluster == cluster,
        postings.c.sequence > span.first,
        postings.c.sequence <= span.last,
        postings.c.bucket.in_(_LOGGED),
    )
    if queue is None:
        return within
    of_queue = postings.c.queue == queue
    # `unlikely`: without statistics, SQLite would scan the lines of all queues in the order of the primary key.
    return within.where(func.unlikely(of_queue) if connection.dialect.name == "sqlite" else of_queue)


def _changes(rows: list[Row[Any]]) -> dict[QueueMeter, Amounts]:
    changes: dict[QueueMeter, Amounts] = {}
    for row in rows:
        key = (QueueName(row.line_queue), MeterName(row.line_meter))
        changes[key] = _plus(changes.get(key, _ZERO), row.line_bucket, row.line_amount)
    return changes


def _plus(amounts: Amounts, bucket: str, amount: int) -> Amounts:
    nominal, reserved, used, spent = amounts
    match bucket:
        case Bucket.ENTITLEMENT:
            return Amounts(nominal - amount, reserved, used, spent)
        case Bucket.RESERVED:
            return Amounts(nominal, reserved + amount, used, spent)
        case Bucket.USED:
            return Amounts(nominal, reserved, used + amount, spent)
        case Bucket.SPENT:
            return Amounts(nominal, reserved, used, spent + amount)
        case _:
            return amounts


_LOGGED = [Bucket.ENTITLEMENT.value, Bucket.RESERVED.value, Bucket.USED.value, Bucket.SPENT.value]


def _line(row: Row[Any], key: QueueMeter, change: Amounts, balance: Amounts) -> StatementLine:
    queue, meter = key
    return StatementLine(
        at=row.at,
        sequence=row.sequence,
        kind=Kind(row.kind),
        queue=queue,
        gang=row.gang,
        on_behalf_of=row.on_behalf_of,
        user=row.user,
        actor=row.actor,
        reason=row.reason,
        meter=meter,
        change=change,
        balance=balance,
    )
