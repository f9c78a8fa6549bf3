"""Writing one entry: chain, postings and projections, in one SQL transaction that the caller commits.

Every writer of a cluster first moves the head of its chain by a conditional UPDATE. Who wins holds the head's row until
the commit, so what follows needs no lock of its own; who loses sees no row changed, and starts again.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, FromClause, and_, bindparam, delete, exists, insert, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api import quantities
from admission.api.entries import Entry, Kind, Posted, Posting
from admission.api.names import Uid
from admission.errors import ConflictError, DeposedError, PageError
from admission.ledger import encoding, hashing, reading
from admission.ledger.reading import Head, Record
from admission.ledger.tables import (
    GENESIS,
    balances,
    clusters,
    open_gangs,
    open_holdings,
    open_seats,
    postings,
    transactions,
)
from admission.quota import forms
from admission.quota.books import Account

_SLICE = 500
"""UIDs in one IN list; databases bound the number of parameters."""


class OvertakenError(Exception):
    """Another writer moved the head of the chain first; the SQL transaction has to start again."""


async def post(connection: AsyncConnection, cluster: str, entry: Entry, *, epoch: int) -> Posted:
    """Write an entry. Raises DeposedError, ConflictError (made for another book), OvertakenError and as forms.check."""
    forms.check(entry)
    head = await _fenced(connection, cluster, epoch)
    if repeated := await _repeated(connection, cluster, entry):
        return repeated

    record = _record(head, entry, epoch=epoch)

    await _move(connection, head, {"sequence": record.sequence, "digest": record.digest, "epoch": epoch})
    await _write(connection, cluster, record)
    await _balance(connection, cluster, entry)
    await _close(connection, cluster, entry)
    if entry.kind is Kind.SETTLE:
        await _settle(connection, cluster, entry)
    elif entry.seats or entry.holdings:
        await _open(connection, cluster, entry)
    return Posted(sequence=record.sequence, digest=record.digest)


async def fence(connection: AsyncConnection, cluster: str, epoch: int) -> None:
    """Raise the stored epoch. Raises DeposedError when it is higher already."""
    head = await _fenced(connection, cluster, epoch)
    if head.epoch < epoch:
        await _move(connection, head, {"epoch": epoch})


async def _fenced(connection: AsyncConnection, cluster: str, epoch: int) -> Head:
    head = await reading.head(connection, cluster)
    if head is None:
        head = Head(cluster=cluster, epoch=epoch, sequence=0, digest=GENESIS)
        await _begin_chain(connection, head)
    if epoch < head.epoch:
        raise DeposedError(f"epoch {epoch} is over in cluster {cluster}: a leader of epoch {head.epoch} has written")
    return head


async def _begin_chain(connection: AsyncConnection, head: Head) -> None:
    try:
        await connection.execute(insert(clusters).values(head._asdict()))
    except IntegrityError as error:
        raise OvertakenError from error


async def _repeated(connection: AsyncConnection, cluster: str, entry: Entry) -> Posted | None:
    record = await reading.by_key(connection, cluster, entry.key)
    if record is None:
        return None
    if _movement(record.entry) != _movement(entry):
        raise PageError(f"entry {entry.key} stands in the ledger at {record.sequence} and says something else there")
    return Posted(sequence=record.sequence, digest=record.digest, repeated=True)


def _movement(entry: Entry) -> tuple[object, ...]:
    return entry.kind, entry.queue, entry.gang_uid, entry.postings, entry.seats, entry.holdings, entry.closes


def _record(head: Head, entry: Entry, *, epoch: int) -> Record:
    sequence = head.sequence + 1
    digest = hashing.digest(entry, cluster=head.cluster, epoch=epoch, sequence=sequence, previous=head.digest)
    return Record(sequence=sequence, form=hashing.FORMAT, epoch=epoch, previous=head.digest, digest=digest, entry=entry)


async def _move(connection: AsyncConnection, head: Head, values: dict[str, Any]) -> None:
    unmoved = and_(
        clusters.c.cluster == head.cluster,
        clusters.c.sequence == head.sequence,
        clusters.c.digest == head.digest,
        clusters.c.epoch == head.epoch,
    )
    moved = await connection.execute(update(clusters).where(unmoved).values(values))
    if moved.rowcount != 1:
        raise OvertakenError


async def _write(connection: AsyncConnection, cluster: str, record: Record) -> None:
    entry = record.entry
    row = {
        "cluster": cluster,
        "sequence": record.sequence,
        "format": hashing.FORMAT,
        "epoch": record.epoch,
        "key": entry.key,
        "kind": entry.kind.value,
        "at": entry.at,
        "actor": entry.actor,
        "reason": entry.reason,
        "queue": entry.queue,
        "on_behalf_of": entry.on_behalf_of,
        "user": entry.user,
        "gang_uid": entry.gang_uid,
        "gang": entry.gang,
        "seats": encoding.compact(encoding.of_seats(entry.seats)),
        "holdings": encoding.compact(encoding.of_holdings(entry.holdings)),
        "closes": encoding.compact(list(entry.closes)),
        "previous": record.previous,
        "digest": record.digest,
    }
    await connection.execute(insert(transactions), row)
    lines = [_line(cluster, record.sequence, number, posting) for number, posting in enumerate(entry.postings, 1)]
    if lines:
        await connection.execute(insert(postings), lines)


def _line(cluster: str, sequence: int, number: int, posting: Posting) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "sequence": sequence,
        "line": number,
        "queue": posting.queue,
        "meter": posting.meter,
        "bucket": posting.bucket.value,
        "amount": posting.amount,
        "claim": posting.claim,
    }


async def _balance(connection: AsyncConnection, cluster: str, entry: Entry) -> None:
    changes: dict[Account, int] = {}
    for posting in entry.postings:
        account = Account(posting.queue, posting.meter, posting.bucket)
        changes[account] = changes.get(account, 0) + posting.amount
    if not changes:
        return
    before = await reading.balances_of(connection, cluster, changes)
    rows: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for account, change in sorted(changes.items()):
        amount = quantities.checked(before.get(account, 0) + change)
        of = {"of_cluster": cluster, **{f"of_{name}": str(value) for name, value in account._asdict().items()}}
        rows[account in before].append({**of, "is_now": amount})
    for statement, some in ((_REBALANCE, rows[True]), (_FIRST_BALANCE, rows[False])):
        if some:
            await connection.execute(statement, some)


_ACCOUNT = ("cluster", "queue", "meter", "bucket")
_REBALANCE = (
    update(balances)
    .where(*(balances.c[name] == bindparam(f"of_{name}") for name in _ACCOUNT))
    .values(amount=bindparam("is_now"))
)
_FIRST_BALANCE = insert(balances).values(
    {**{name: bindparam(f"of_{name}") for name in _ACCOUNT}, "amount": bindparam("is_now")}
)


async def _close(connection: AsyncConnection, cluster: str, entry: Entry) -> None:
    if not entry.closes:
        return
    closed = 0
    for column in (open_seats.c.pod_uid, open_holdings.c.claim_uid):
        closed += await _remove(connection, column, _of_gang(column.table, cluster, entry), entry.closes)
    if closed != len(entry.closes):
        raise ConflictError(f"entry {entry.key} closes {len(entry.closes)} seats and holdings, {closed} of them open")
    await connection.execute(
        delete(open_gangs).where(
            _of_gang(open_gangs, cluster, entry),
            ~exists().where(_of_gang(open_seats, cluster, entry)),
            ~exists().where(_of_gang(open_holdings, cluster, entry)),
        )
    )


async def _settle(connection: AsyncConnection, cluster: str, entry: Entry) -> None:
    claims = [holding.claim_uid for holding in entry.holdings]
    waiting = and_(_of_gang(open_holdings, cluster, entry), ~open_holdings.c.settled)
    removed = await _remove(connection, open_holdings.c.claim_uid, waiting, claims)
    if removed != len(claims):
        raise ConflictError(f"entry {entry.key} settles {len(claims)} claims, {removed} of them wait for it")
    await _add_holdings(connection, cluster, entry)


def _of_gang(table: FromClause, cluster: str, entry: Entry) -> ColumnElement[bool]:
    return and_(table.c.cluster == cluster, table.c.gang_uid == entry.gang_uid)


async def _remove(
    connection: AsyncConnection, column: Column[Any], where: ColumnElement[bool], uids: Sequence[Uid]
) -> int:
    removed = 0
    for some in _sliced(uids):
        removed += (await connection.execute(delete(column.table).where(where, column.in_(some)))).rowcount
    return removed


def _sliced(uids: Sequence[Uid]) -> Iterator[Sequence[Uid]]:
    for start in range(0, len(uids), _SLICE):
        yield uids[start : start + _SLICE]


async def _open(connection: AsyncConnection, cluster: str, entry: Entry) -> None:
    """Add seats and holdings. That each is open once, and for a gang of one queue, is for the keys to refuse."""
    gang = {"cluster": cluster, "gang_uid": entry.gang_uid, "gang": entry.gang, "queue": entry.queue}
    here = and_(_of_gang(open_gangs, cluster, entry), open_gangs.c.queue == entry.queue)
    try:
        known = await connection.execute(update(open_gangs).where(here).values(reserved_at=entry.at))
        if known.rowcount == 0:
            await connection.execute(insert(open_gangs).values(**gang, user=entry.user, reserved_at=entry.at))
        await _add_seats(connection, cluster, entry)
        await _add_holdings(connection, cluster, entry)
    except IntegrityError as error:
        raise ConflictError(
            f"entry {entry.key} opens for gang {entry.gang} what is open already, or in another queue"
        ) from error


async def _add_seats(connection: AsyncConnection, cluster: str, entry: Entry) -> None:
    rows = [
        {
            "cluster": cluster,
            "pod_uid": seat.pod_uid,
            "gang_uid": entry.gang_uid,
            "pod": seat.pod,
            "node": seat.node,
            "claims": encoding.compact(list(seat.claims)),
        }
        for seat in entry.seats
    ]
    if rows:
        await connection.execute(insert(open_seats), rows)


async def _add_holdings(connection: AsyncConnection, cluster: str, entry: Entry) -> None:
    rows = [
        {
            "cluster": cluster,
            "claim_uid": holding.claim_uid,
            "gang_uid": entry.gang_uid,
            "claim": holding.claim,
            "devices": encoding.compact(encoding.of_devices(holding.devices)),
            "charge": encoding.compact(encoding.of_charge(holding.charge)),
            "classes": encoding.compact(dict(holding.classes)),
            "settled": holding.settled,
        }
        for holding in entry.holdings
    ]
    if rows:
        await connection.execute(insert(open_holdings), rows)
