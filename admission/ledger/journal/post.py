"""Writing entries: chain, postings and projections, in one SQL transaction that the caller commits.

Every writer of a cluster moves the head of its chain by a conditional UPDATE before it writes anything else. The winner
holds the head's row until the commit, so nothing else needs a lock; a loser sees that no row changed, and starts again.
Reads before the UPDATE are of the same books, or the UPDATE would have failed. The number of statements does not grow
with the number of entries, since most of the time of a short statement is its round trip.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import and_, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import accruals
from admission.accounting.books import Book, EntryDraft
from admission.api.muster.ledger_entries import Entry, Kind, Posted
from admission.errors import ClockError, DeposedError, LedgerCorruptError, PageError
from admission.ledger.db import bulk_insert
from admission.ledger.db.prefetch import meanwhile
from admission.ledger.db.tables import GENESIS, clusters, postings, transactions
from admission.ledger.journal import hash_chain, projection, read as journal_read
from admission.ledger.journal.hash_chain import HashedFields, Line
from admission.ledger.journal.read import Head, Record


class OvertakenError(Exception):
    """Another writer moved the head of the chain first; the SQL transaction has to start again."""


class _Link(NamedTuple):
    """An entry with its place in the chain."""

    sequence: int
    previous: str
    digest: str
    hashed: HashedFields
    lines: list[Line]


async def post(connection: AsyncConnection, cluster: str, entry: Entry, *, epoch: int) -> Posted:
    """Write an entry, as `post_all` does."""
    (posted,) = await post_all(connection, cluster, (entry,), epoch=epoch)
    return posted


async def post_all(connection: AsyncConnection, cluster: str, entries: Sequence[Entry], *, epoch: int) -> list[Posted]:
    """Write entries in their order, except those whose key is stored already.

    Raises DeposedError, ConflictError (made for another book), ClockError (older than the latest), OvertakenError, and
    as `entry_rules.check`.
    """
    head, latest = await _check_epoch(connection, cluster, epoch)
    known = await journal_read.by_keys(connection, cluster, {entry.key for entry in entries})

    new = _dated(_new(entries, known), latest)
    if not new:
        return _posted(entries, known, ())
    try:
        async with meanwhile(projection.read(connection, cluster, new)) as read:
            links = _linked(head, new, epoch=epoch)
    except LedgerCorruptError as error:
        if await journal_read.head(connection, cluster) != head:  # another writer committed between two reads
            raise OvertakenError from error
        raise

    await _move_head(connection, head, {"sequence": links[-1].sequence, "digest": links[-1].digest, "epoch": epoch})
    await _add_transactions(connection, cluster, links, epoch=epoch)
    async with meanwhile(_add_lines(connection, cluster, links)):
        before = read.result()
        after = _applied(before, new)
        _check_times(latest, new)
        rows = projection.rows(cluster, new, before=before, after=after)
    await projection.write(connection, cluster, rows)
    return _posted(entries, known, links)


async def fence(connection: AsyncConnection, cluster: str, epoch: int) -> None:
    """Increase the stored epoch to `epoch`. Raises DeposedError when it is higher already."""
    head, _ = await _check_epoch(connection, cluster, epoch)
    if head.epoch < epoch:
        await _move_head(connection, head, {"epoch": epoch})


async def hold(connection: AsyncConnection, cluster: str, epoch: int) -> None:
    """Do the same as `fence`, and lock the head against other writers of the cluster until the commit."""
    head, _ = await _check_epoch(connection, cluster, epoch)
    await _move_head(connection, head, {"epoch": epoch})


async def _check_epoch(connection: AsyncConnection, cluster: str, epoch: int) -> tuple[Head, datetime | None]:
    """Return the head of the chain, and the time of its latest entry."""
    row = (await connection.execute(_HEAD, {"cluster": cluster})).one_or_none()
    if row is None:
        head, latest = Head(cluster=cluster, epoch=epoch, sequence=0, digest=GENESIS), None
        await _begin_chain(connection, head)
    else:
        head, latest = Head(*row[:-1]), row.latest
    if epoch < head.epoch:
        raise DeposedError(f"epoch {epoch} is over in cluster {cluster}: a leader of epoch {head.epoch} has written")
    return head, latest


_LATEST = select(func.max(transactions.c.at)).where(transactions.c.cluster == clusters.c.cluster).scalar_subquery()
_HEAD = select(clusters, _LATEST.label("latest")).where(clusters.c.cluster == bindparam("cluster"))


async def _begin_chain(connection: AsyncConnection, head: Head) -> None:
    try:
        await connection.execute(insert(clusters).values(head._asdict()))
    except IntegrityError as error:
        raise OvertakenError from error


def _new(entries: Sequence[Entry], known: Mapping[str, Record]) -> list[Entry]:
    """Return the entries whose key is not stored yet. Raises PageError where a key is stored with another content."""
    hashed = {key: record.entry for key, record in known.items()}
    new = []
    for entry in entries:
        if entry.key not in hashed:
            hashed[entry.key] = entry
            new.append(entry)
        elif _movement(hashed[entry.key]) != _movement(entry):
            position = f"at {known[entry.key].sequence}" if entry.key in known else "as of now"
            raise PageError(f"entry {entry.key} stands in the ledger {position} and says something else there")
    return new


def _dated(entries: Sequence[Entry], latest: datetime | None) -> list[Entry]:
    """Give measure entries the time of the entry before them, if that is later than their own.

    They record a time that has passed, while entries of the present are written; and time in the books does not go
    back. They must not be dated later than necessary either: entries that others have made already would be too old.
    """
    dated = []
    for entry in entries:
        is_late = entry.kind is Kind.MEASURE and latest is not None and entry.at < latest
        dated.append(replace(entry, at=latest) if is_late and latest is not None else entry)
        latest = dated[-1].at if latest is None else max(latest, dated[-1].at)
    return dated


def _movement(entry: Entry) -> tuple[object, ...]:
    return entry.kind, entry.queue, entry.gang_uid, entry.postings, entry.seats, entry.holdings, entry.closes


def _linked(head: Head, entries: Sequence[Entry], *, epoch: int) -> list[_Link]:
    links = []
    previous = head.digest
    for sequence, entry in enumerate(entries, head.sequence + 1):
        hashed, lines = hash_chain.hashed(entry), hash_chain.lines(entry)
        digest = hash_chain.chained(head.cluster, epoch, sequence, previous, hashed, lines)
        links.append(_Link(sequence, previous, digest, hashed, lines))
        previous = digest
    return links


def _posted(entries: Sequence[Entry], known: Mapping[str, Record], links: Sequence[_Link]) -> list[Posted]:
    by_key = {link.hashed.key: Posted(sequence=link.sequence, digest=link.digest) for link in links}
    for key, record in known.items():
        by_key[key] = Posted(sequence=record.sequence, digest=record.digest, repeated=True)
    posted = []
    for entry in entries:
        posted.append(by_key[entry.key])
        by_key[entry.key] = replace(by_key[entry.key], repeated=True)
    return posted


async def _move_head(connection: AsyncConnection, head: Head, values: dict[str, Any]) -> None:
    unchanged_head = and_(
        clusters.c.cluster == head.cluster,
        clusters.c.sequence == head.sequence,
        clusters.c.digest == head.digest,
        clusters.c.epoch == head.epoch,
    )
    result = await connection.execute(update(clusters).where(unchanged_head).values(values))
    if result.rowcount != 1:
        raise OvertakenError


def _check_times(latest: datetime | None, entries: Sequence[Entry]) -> None:
    """Refuse entries older than the latest one. The time of a usage entry is cut to its whole second."""
    for entry in entries:
        if latest is not None and entry.at < (accruals.floor_to_second(latest) if entry.kind is Kind.USAGE else latest):
            raise ClockError(
                f"entry {entry.key} is of {hash_chain.instant(entry.at)}, and the ledger has one of"
                f" {hash_chain.instant(latest)}: the time of the books does not go back"
            )
        latest = entry.at if latest is None else max(latest, entry.at)


def _applied(book: Book, entries: Sequence[Entry]) -> Book:
    """Return the book with the entries. Raises as `EntryDraft.apply`."""
    draft = EntryDraft(book)
    for entry in entries:
        draft.apply(entry)
    return draft.book()


async def _add_transactions(connection: AsyncConnection, cluster: str, links: Sequence[_Link], *, epoch: int) -> None:
    """Add a row for each link, with the columns in the order of the table."""
    rows = [
        (cluster, link.sequence, hash_chain.FORMAT, epoch, key, kind, *rest, link.previous, link.digest)
        for link in links
        for kind, key, *rest in [link.hashed]
    ]
    await bulk_insert.insert(connection, transactions, rows)


async def _add_lines(connection: AsyncConnection, cluster: str, links: Sequence[_Link]) -> None:
    rows = [(cluster, link.sequence, number, *line) for link in links for number, line in enumerate(link.lines, 1)]
    await bulk_insert.insert_at_once(connection, postings, rows)
