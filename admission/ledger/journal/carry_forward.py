"""The state that a closing carries forward: every balance and open gang after the last archived transaction.

It is stored as one text of canonical JSON (see `encoding.compact`), together with its proofs: the digest of that last
transaction, the archive's digest, the digest of the carried usage, and the digest of the previous closing's text. The
SHA-256 of the text is part of the key of the CLOSE entry, which is chained like every other entry. So changing the
carried state requires rewriting the chain from there to its head. A client with write access to the database can append
a forged closing; the archives, or a digest kept elsewhere, reveal it.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Account, Book
from admission.api.muster.ledger_entries import Bucket, Kind, Placement, UsageInterval
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.errors import LedgerCorruptError
from admission.ledger.db import errors
from admission.ledger.db.tables import carried_usage, closings, transactions
from admission.ledger.journal import encoding, hash_chain, read

FORM = 1
"""The version of the text's form."""

_MALFORMED = (AttributeError, KeyError, OverflowError, TypeError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """One closing.

    sequence, epoch, digest: of the last archived transaction, a usage entry; marked: its time. previous: the sequence
    through which the previous closing closed; 0 for the first. at: the time of the closing. transactions: how many were
    archived. archive, archive_digest: the file's name and SHA-256. book: the state after the last archived transaction.
    """

    cluster: str
    sequence: int
    epoch: int
    digest: str
    previous: int
    at: datetime
    marked: datetime
    transactions: int
    archive: str
    archive_digest: str
    before: str
    """SHA-256 of the previous closing's text; empty for the first."""
    usage: str
    """SHA-256 of the carried usage."""
    book: Book
    text: str
    """The canonical text of the fields above."""

    @property
    def key(self) -> str:
        """Return the key of the CLOSE entry that proves it."""
        return key(self.sequence, self.text)


class Problem(NamedTuple):
    """A closing that the chain does not prove; sequence: through which it closed."""

    sequence: int
    detail: str


def key(sequence: int, text: str) -> str:
    """Return the key of the CLOSE entry of a closing with this text."""
    return f"{Kind.CLOSE}:{sequence}:{sha256(text)}"


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


async def latest(connection: AsyncConnection, cluster: str) -> Carried | None:
    """Return the latest closing of a cluster; None when nothing was closed. Raises LedgerCorruptError."""
    query = select(closings).where(closings.c.cluster == cluster).order_by(closings.c.sequence.desc()).limit(1)
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _decoded(row)


async def every(connection: AsyncConnection, cluster: str) -> list[Carried]:
    """Return all closings of a cluster, in their order. Raises LedgerCorruptError."""
    query = select(closings).where(closings.c.cluster == cluster).order_by(closings.c.sequence)
    return [_decoded(row) for row in await connection.execute(query)]


async def problem(connection: AsyncConnection, cluster: str) -> Problem | None:
    """Return the first problem of the closings: in a text, its carried usage, a link, or the last one's CLOSE entry.

    The caller verifies the chain of transactions after the last closing, which holds that entry.
    """
    query = select(closings.c.sequence).where(closings.c.cluster == cluster).order_by(closings.c.sequence)
    before: Carried | None = None
    for sequence in (await connection.execute(query)).scalars():
        try:
            carried = await _carried(connection, cluster, sequence)
            usage = await _usage_digest(connection, carried)
        except (LedgerCorruptError, *_MALFORMED, DBAPIError) as error:  # a column of SQLite may hold anything
            return Problem(sequence, errors.unreadable(error))
        if (carried.previous, carried.before) != _link(before):
            return Problem(
                carried.sequence, "it does not follow the closing before it: one was changed, removed or added"
            )
        if usage != carried.usage:
            return Problem(carried.sequence, "the use that it carried forward was changed")
        before = carried
    if before is None:
        return None
    close_entry = select(transactions.c.kind).where(transactions.c.cluster == cluster, transactions.c.key == before.key)
    if (await connection.execute(close_entry)).scalar_one_or_none() != Kind.CLOSE.value:
        return Problem(before.sequence, "no transaction vouches for it: it was changed, or it is none of Muster's")
    return None


async def _carried(connection: AsyncConnection, cluster: str, sequence: int) -> Carried:
    query = select(closings).where(closings.c.cluster == cluster, closings.c.sequence == sequence)
    return _decoded((await connection.execute(query)).one())


def _link(before: Carried | None) -> tuple[int, str]:
    return (0, "") if before is None else (before.sequence, sha256(before.text))


async def _usage_digest(connection: AsyncConnection, carried: Carried) -> str:
    query = (
        select(carried_usage)
        .where(carried_usage.c.cluster == carried.cluster, carried_usage.c.sequence == carried.sequence)
        .order_by(carried_usage.c.queue, carried_usage.c.meter, carried_usage.c.start)
    )
    intervals = [
        UsageInterval(
            queue=QueueName(row.queue),
            meter=MeterName(row.meter),
            start=row.start,
            end=row.until,
            seconds=row.seconds,
        )
        async for row in read.streamed(connection, query)
    ]
    return usage_digest(intervals)


def usage_digest(intervals: Iterable[UsageInterval]) -> str:
    """Return the SHA-256 of carried usage in any order: it sorts here, since databases sort text by different rules."""
    digest = hashlib.sha256()
    for interval in sorted(intervals, key=lambda interval: (interval.queue, interval.meter, interval.start)):
        line = [
            interval.queue,
            interval.meter,
            hash_chain.instant(interval.start),
            hash_chain.instant(interval.end),
            str(interval.seconds),
        ]
        digest.update(encoding.compact(line).encode() + b"\n")
    return digest.hexdigest()


# The text of a closing.


def closing(  # noqa: PLR0913 - a closing is all of this, by name
    *,
    cluster: str,
    sequence: int,
    epoch: int,
    digest: str,
    at: datetime,
    book: Book,
    transactions: int,
    archive: str,
    archive_digest: str,
    usage: str,
    after: Carried | None,
) -> Carried:
    """Return a closing through the latest mark of the book. after: the previous closing, if any."""
    previous, before = _link(after)
    assert book.marked is not None and book.at is not None  # noqa: S101, PT018 - the caller closes at a mark
    fields = {
        "form": FORM,
        "cluster": cluster,
        "sequence": sequence,
        "epoch": epoch,
        "digest": digest,
        "previous": previous,
        "before": before,
        "at": hash_chain.instant(at),
        "marked": hash_chain.instant(book.marked),
        "latest": hash_chain.instant(book.at),
        "transactions": transactions,
        "archive": archive,
        "archive_digest": archive_digest,
        "usage": usage,
        "balances": [[*account, str(amount)] for account, amount in sorted(book.balances.items())],
        "gangs": [_encode_gang(placement) for _, placement in sorted(book.placements.items())],
    }
    return decoded(encoding.compact(fields))


def row(carried: Carried) -> dict[str, Any]:
    """Return the row of table `closings`."""
    return {
        "cluster": carried.cluster,
        "sequence": carried.sequence,
        "epoch": carried.epoch,
        "digest": carried.digest,
        "previous_sequence": carried.previous,
        "at": carried.at,
        "marked": carried.marked,
        "transactions": carried.transactions,
        "state": carried.text,
        "archive": carried.archive,
        "archive_digest": carried.archive_digest,
    }


def decoded(text: str) -> Carried:
    """Return the closing that a text describes. Raises LedgerCorruptError when the text has another form."""
    try:
        fields = json.loads(text)
        book = Book.with_placements(
            map(_gang, fields["gangs"]),
            {
                Account(QueueName(queue), MeterName(meter), Bucket(bucket)): int(amount)
                for queue, meter, bucket, amount in fields["balances"]
            },
            sequence=fields["sequence"],
            at=datetime.fromisoformat(fields["latest"]),
            marked=datetime.fromisoformat(fields["marked"]),
        )
        return Carried(
            **{name: fields[name] for name in _PLAIN},
            at=datetime.fromisoformat(fields["at"]),
            marked=datetime.fromisoformat(fields["marked"]),
            book=book,
            text=text,
        )
    except _MALFORMED as error:
        raise LedgerCorruptError(f"what a closing carried forward cannot be read: {error!r}") from error


_PLAIN = (
    *("cluster", "sequence", "epoch", "digest", "previous", "before"),
    *("transactions", "archive", "archive_digest", "usage"),
)


def _decoded(stored: Row[Any]) -> Carried:
    carried = decoded(stored.state)
    if row(carried) != dict(stored._mapping):  # noqa: SLF001 - SQLAlchemy's public name for it
        raise LedgerCorruptError(
            f"the closing through transaction {stored.sequence} contradicts what it carried forward"
        )
    return carried


def _encode_gang(placement: Placement) -> dict[str, Any]:
    return {
        "gang_uid": placement.gang_uid,
        "gang": placement.gang,
        "queue": placement.queue,
        "user": placement.user,
        "reserved_at": hash_chain.instant(placement.reserved_at),
        "seats": encoding.of_seats(seat for _, seat in sorted(placement.seats.items())),
        "holdings": encoding.of_holdings(holding for _, holding in sorted(placement.holdings.items())),
    }


def _gang(fields: Mapping[str, Any]) -> Placement:
    seats = encoding.seats(encoding.compact(fields["seats"]))
    holdings = encoding.holdings(encoding.compact(fields["holdings"]))
    return Placement(
        gang_uid=GangUid(fields["gang_uid"]),
        gang=fields["gang"],
        queue=QueueName(fields["queue"]),
        user=fields["user"],
        reserved_at=datetime.fromisoformat(fields["reserved_at"]),
        seats={Uid(seat.pod_uid): seat for seat in seats},
        holdings={Uid(holding.claim_uid): holding for holding in holdings},
    )
