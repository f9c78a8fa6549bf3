"""Reads of the books, from rows to values: the head of a chain, its records, and the projections."""

import itertools
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, Select, Table, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.accruals import Change
from admission.accounting.books import Account, Book
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind, Placement, Posting, Seat
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.errors import LedgerCorruptError
from admission.ledger.db import bulk_insert
from admission.ledger.db.column_types import moment
from admission.ledger.db.tables import (
    balances,
    closings,
    clusters,
    open_gangs,
    open_holdings,
    open_seats,
    postings,
    transactions,
)
from admission.ledger.journal import encoding

_FETCHED = 500

_MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""The exceptions that decoding raises for a row of another form than Muster writes."""


class Head(NamedTuple):
    """The end of a cluster's chain."""

    cluster: str
    epoch: int
    sequence: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An entry at its place in the chain."""

    sequence: int
    form: int
    """The format in which it was hashed."""
    epoch: int
    previous: str
    digest: str
    entry: Entry


async def head(connection: AsyncConnection, cluster: str) -> Head | None:
    """Return the end of a cluster's chain; None when it has no chain."""
    row = (await connection.execute(select(clusters).where(clusters.c.cluster == cluster))).one_or_none()
    return None if row is None else Head(*row)


async def latest(connection: AsyncConnection, cluster: str) -> datetime | None:
    """Return the time of the latest entry; None when there is none."""
    times = select(func.max(transactions.c.at)).where(transactions.c.cluster == cluster)
    found: datetime | None = (await connection.execute(times)).scalar_one()
    return found


async def by_keys(connection: AsyncConnection, cluster: str, keys: Collection[str]) -> dict[str, Record]:
    """Return the records with these idempotency keys, by key."""
    statement = "SELECT sequence FROM transactions WHERE cluster = {cluster} AND key {0}"
    found = [number for (number,) in await bulk_insert.fetch(connection, statement, cluster, keys)]
    written = [record for number in found for record in await records(connection, cluster, after=number - 1, limit=1)]
    return {record.entry.key: record for record in written}


async def records(connection: AsyncConnection, cluster: str, *, after: int, limit: int) -> list[Record]:
    """Return the records that follow a sequence, in their order. Raises ValueError when one cannot be read."""
    follow = select(transactions).where(transactions.c.cluster == cluster, transactions.c.sequence > after)
    rows = (await connection.execute(follow.order_by(transactions.c.sequence).limit(limit))).mappings().all()
    if not rows:
        return []
    lines = (
        select(postings)
        .where(postings.c.cluster == cluster, postings.c.sequence > after)
        .where(postings.c.sequence <= rows[-1]["sequence"])
        .order_by(postings.c.sequence, postings.c.line)
    )
    found = (await connection.execute(lines)).mappings().all()
    by_sequence = {key: list(group) for key, group in itertools.groupby(found, lambda line: line["sequence"])}
    return [record(row, by_sequence.get(row["sequence"], [])) for row in rows]


async def since(
    connection: AsyncConnection, cluster: str, known: Head, end: Head | None, *, most: int
) -> list[Entry] | None:
    """Return the entries from a known end to the present end; None where they do not lead from one to the other."""
    behind = (end.sequence if end else 0) - known.sequence
    if end is None or not 0 <= behind <= most:
        return None
    if not behind:
        return [] if end.digest == known.digest else None
    try:
        found = await records(connection, cluster, after=known.sequence, limit=behind)
    except ValueError:
        return None
    entries = [record_.entry for record_ in found]
    continues = len(entries) == behind and found[0].previous == known.digest
    return entries if continues and all(map(_is_complete, entries)) else None


def _is_complete(entry: Entry) -> bool:
    """Return whether an entry describes its whole effect on the book.

    Entries that close a period, or note a rebuild of the projections, have no gang and no lines, so they do not.
    """
    return bool(entry.gang_uid or entry.postings) or entry.kind in {Kind.USAGE, Kind.MEASURE}


def record(row: Mapping[Any, Any], lines: Iterable[Mapping[Any, Any]]) -> Record:
    """Return the record of a row and its lines, given by column name. Raises ValueError."""
    try:
        entry = _entry(row, lines)
    except _MALFORMED as error:
        raise ValueError(f"transaction {row['sequence']} does not have the form of an entry: {error!r}") from error
    return Record(
        sequence=row["sequence"],
        form=row["format"],
        epoch=row["epoch"],
        previous=row["previous"],
        digest=row["digest"],
        entry=entry,
    )


def _entry(row: Mapping[Any, Any], lines: Iterable[Mapping[Any, Any]]) -> Entry:
    return Entry(
        kind=Kind(row["kind"]),
        key=row["key"],
        at=row["at"],
        actor=row["actor"],
        reason=row["reason"],
        queue=QueueName(row["queue"]),
        on_behalf_of=row["on_behalf_of"],
        user=row["user"],
        gang_uid=GangUid(row["gang_uid"]),
        gang=row["gang"],
        postings=tuple(_posting(line) for line in lines),
        seats=encoding.seats(row["seats"]),
        holdings=encoding.holdings(row["holdings"]),
        closes=encoding.uids(row["closes"]),
    )


def _posting(line: Mapping[Any, Any]) -> Posting:
    return Posting(
        queue=QueueName(line["queue"]),
        meter=MeterName(line["meter"]),
        bucket=Bucket(line["bucket"]),
        amount=line["amount"],
        claim=Uid(line["claim"]),
    )


async def book(connection: AsyncConnection, cluster: str) -> Book:
    """Return the book from the projections. Raises LedgerCorruptError when their rows contradict each other."""
    try:
        amounts = dict([_balance(row) async for row in streamed(connection, _select(balances, cluster))])
        marked = await mark(connection, cluster)
        end = await head(connection, cluster)
        changes = [change async for change in uses(connection, cluster, marked)]
        seats = [row async for row in streamed(connection, _select(open_seats, cluster))]
        holdings = [row async for row in streamed(connection, _select(open_holdings, cluster))]
        gangs = [row async for row in streamed(connection, _select(open_gangs, cluster))]
        return Book.with_placements(
            placed(gangs, seats, holdings).values(),
            amounts,
            sequence=end.sequence if end else 0,
            at=await latest(connection, cluster),
            marked=marked and marked.at,
            changes=changes,
        )
    except _MALFORMED as error:
        raise LedgerCorruptError(
            f"what the ledger keeps open for cluster {cluster} cannot be read ({error!r}): run `muster ledger verify`"
        ) from error


class Mark(NamedTuple):
    """The place of a usage entry, up to which all use is recorded."""

    sequence: int
    at: datetime


async def mark(connection: AsyncConnection, cluster: str, *, until: datetime | None = None) -> Mark | None:
    """Return the latest usage entry, or the latest up to a time; None when there is none.

    If it is not among the rows, return the mark of the latest closing, which is the last archived usage entry.
    """
    logged = select(transactions.c.sequence, transactions.c.at).where(
        transactions.c.cluster == cluster,
        transactions.c.kind == Kind.USAGE.value,
        *([] if until is None else [transactions.c.at <= until]),
    )
    closed = select(closings.c.sequence, closings.c.marked.label("at")).where(closings.c.cluster == cluster)
    for marks, order in ((logged, transactions.c.sequence), (closed, closings.c.sequence)):
        found = (await connection.execute(marks.order_by(order.desc()).limit(1))).one_or_none()
        if found is not None:
            return Mark(*found)
    return None


async def uses(
    connection: AsyncConnection, cluster: str, after: Mark | None, *, before: int | None = None
) -> AsyncIterator[Change]:
    """Yield the changes of amounts in use after a mark, in order. before: end ahead of this transaction."""
    query = (
        select(transactions.c.at, postings.c.queue, postings.c.meter, postings.c.amount)
        .join_from(transactions, postings)
        .where(transactions.c.cluster == cluster, postings.c.bucket == Bucket.USED.value)
        .where(transactions.c.sequence > (0 if after is None else after.sequence))
        .where(*([] if before is None else [transactions.c.sequence < before]))
        .order_by(postings.c.sequence, postings.c.line)
    )
    async for row in streamed(connection, query):
        yield Change(row.at, (QueueName(row.queue), MeterName(row.meter)), row.amount)


def placed(
    gangs: Iterable[Row[Any]], seats: Iterable[Row[Any]], holdings: Iterable[Row[Any]]
) -> dict[GangUid, Placement]:
    """Return placements from their rows. Raises ValueError for a seat or holding whose gang has no row."""
    seats_by_gang: dict[GangUid, dict[Uid, Seat]] = {}
    holdings_by_gang: dict[GangUid, dict[Uid, Holding]] = {}
    for row in seats:
        seats_by_gang.setdefault(GangUid(row.gang_uid), {})[Uid(row.pod_uid)] = _seat(row)
    for row in holdings:
        holdings_by_gang.setdefault(GangUid(row.gang_uid), {})[Uid(row.claim_uid)] = _holding(row)
    placements = {
        GangUid(row.gang_uid): Placement(
            gang_uid=GangUid(row.gang_uid),
            gang=row.gang,
            queue=QueueName(row.queue),
            user=row.user,
            reserved_at=moment(row.reserved_at),
            seats=seats_by_gang.pop(row.gang_uid, {}),
            holdings=holdings_by_gang.pop(row.gang_uid, {}),
        )
        for row in gangs
    }
    if orphaned := sorted(seats_by_gang.keys() | holdings_by_gang.keys()):
        raise ValueError(f"seats or holdings of gang {orphaned[0]}, which is not open")
    return placements


def _select(table: Table, cluster: str) -> Select[Any]:
    return select(table).where(table.c.cluster == cluster)


async def streamed(connection: AsyncConnection, query: Select[Any]) -> AsyncIterator[Row[Any]]:
    """Yield rows, fetched in batches: a thread switch for each row would cost more than the row."""
    async for rows in (await connection.stream(query)).partitions(_FETCHED):
        for row in rows:
            yield row


def _balance(row: Row[Any]) -> tuple[Account, int]:
    return Account(QueueName(row.queue), MeterName(row.meter), Bucket(row.bucket)), row.amount


def _seat(row: Row[Any]) -> Seat:
    return Seat(
        pod_uid=Uid(row.pod_uid),
        pod=row.pod,
        node=NodeName(row.node),
        claims=encoding.uids(row.claims),
        asked_as=NodeName(row.asked_as),
    )


def _holding(row: Row[Any]) -> Holding:
    return Holding(
        claim_uid=Uid(row.claim_uid),
        claim=row.claim,
        devices=encoding.devices(row.devices),
        charge=encoding.charge(row.charge),
        classes=encoding.classes(row.classes),
        settled=bool(row.settled),
    )
