"""Closing a period: its rows move into an archive, and the balances and open gangs at its end are carried forward.

The books close at a mark (a usage entry), where all accrued use has been recorded. First the rows are verified and
archived from a snapshot, while other clients write; then one SQL transaction records the closing, removes the rows and
adds the CLOSE entry that proves it. A crash leaves the books either as they were or closed. The next attempt overwrites
an archive without a closing, since the same rows make the same file under the same name.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import delete, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting import measurements
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind, UsageInterval
from admission.api.values.names import MeterName, QueueName
from admission.errors import ConflictError, LedgerCorruptError
from admission.ledger.audit.archive import Header, Writer
from admission.ledger.audit.fast_replay import FallBackToExactError, FastReplay
from admission.ledger.audit.period_usage import Tally
from admission.ledger.db.tables import GENESIS, carried_usage, closings, postings, transactions
from admission.ledger.journal import amend, carry_forward, documents, hash_chain, measured_usage, read
from admission.ledger.journal.base import Span
from admission.ledger.journal.carry_forward import Carried
from admission.ledger.journal.documents import Document

BATCH = 500

MEASURED_BATCH = 8
"""Measure entries in a batch, each with up to 5,000 rows."""

_ROWS = 500
"""Rows in one statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """An order to close the period before a time into an archive folder. at: the time of the order."""

    before: datetime
    folder: Path
    actor: str
    reason: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A period that was verified and archived, and can be closed. usage: the use within it."""

    carried: Carried
    usage: Sequence[UsageInterval]


async def prepare(connection: AsyncConnection, cluster: str, order: Order) -> Prepared | None:
    """Verify and archive the open rows through the last mark at or before a time; None if there are none.

    The connection sees one state throughout. Raises LedgerCorruptError when the books are wrong, and FixError when the
    folder cannot be written.
    """
    if problem := await carry_forward.problem(connection, cluster):
        raise LedgerCorruptError(f"the closing through transaction {problem.sequence} is wrong: {problem.detail}")
    after = await carry_forward.latest(connection, cluster)
    last = await _last(connection, cluster, after.sequence if after else 0, order.before)
    if last is None:
        return None
    archive = await asyncio.to_thread(Writer, order.folder)
    try:
        return await _archive(connection, _Period(cluster, after, last, order.at), archive)
    finally:
        await asyncio.to_thread(archive.close)


@dataclass(frozen=True, slots=True)
class _Period:
    """The rows to close: after the previous closing, through the usage entry `last`. at: the time of closing."""

    cluster: str
    after: Carried | None
    last: Any
    at: datetime

    @property
    def header(self) -> Header:
        return Header(
            cluster=self.cluster,
            first=(self.after.sequence if self.after else 0) + 1,
            last=self.last.sequence,
            previous=self.after.digest if self.after else GENESIS,
            digest=self.last.digest,
            ends=hash_chain.instant(self.last.at),
        )


async def commit(connection: AsyncConnection, prepared: Prepared, order: Order) -> None:
    """Record a closing, remove its rows, and add its CLOSE entry; the caller commits. A no-op if it is recorded.

    Raises ConflictError when another client has closed the books meanwhile, and OvertakenError.
    """
    carried = prepared.carried
    await _lock_closing(connection, carried.cluster)
    known = await carry_forward.latest(connection, carried.cluster)
    if known is not None and known.text == carried.text:
        return
    if (known.sequence if known else 0) != carried.previous:
        raise ConflictError(f"the books of cluster {carried.cluster} were closed by somebody else meanwhile")
    await connection.execute(insert(closings), carry_forward.row(carried))
    for rows in _sliced([_usage_row(carried, interval) for interval in prepared.usage]):
        await connection.execute(insert(carried_usage), rows)
    await _remove(connection, carried)
    sequence = await amend.hold(connection, carried.cluster)
    latest = await read.latest(connection, carried.cluster) or carried.book.at or carried.at
    entry = _entry(carried, order, at=max(carried.at, latest))
    await amend.amend(connection, carried.cluster, [entry], known=sequence)


async def _lock_closing(connection: AsyncConnection, cluster: str) -> None:
    """Wait until no other client closes the books; leaders may write meanwhile. In SQLite there is only one writer."""
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(hashtext('muster ledger close'), hashtext(:cluster))")
        await connection.execute(lock, {"cluster": cluster})


async def _last(connection: AsyncConnection, cluster: str, after: int, before: datetime) -> Any:
    """Return the last usage entry at or before a time that is not closed yet."""
    wanted = (
        select(transactions.c.sequence, transactions.c.digest, transactions.c.at)
        .where(transactions.c.cluster == cluster, transactions.c.kind == Kind.USAGE.value)
        .where(transactions.c.sequence > after, transactions.c.at <= before)
        .order_by(transactions.c.sequence.desc())
        .limit(1)
    )
    return (await connection.execute(wanted)).one_or_none()


async def _archive(connection: AsyncConnection, period: _Period, archive: Writer) -> Prepared:
    """Replay the rows of a period, and add each one that is right to the archive."""
    header = period.header
    book = period.after.book if period.after else Book()
    fast = FastReplay(
        period.cluster,
        sequence=header.first - 1,
        epoch=period.after.epoch if period.after else 0,
        digest=header.previous,
        book=book,
    )
    tally = Tally(book)
    await asyncio.to_thread(archive.begin, header)
    while fast.sequence < header.last:
        span = Span(fast.sequence, min(fast.sequence + BATCH, header.last))
        measured = await _measured(connection, fast.cluster, span)
        limit = (max(measured) if len(measured) == MEASURED_BATCH else span.last) - span.first
        written = await documents.batch(connection, fast.cluster, after=fast.sequence, limit=limit)
        await asyncio.to_thread(_replay_batch, fast, tally, archive, written, measured)
    closed = fast.book()
    if fast.digest != header.digest or closed.marked is None:
        raise _corrupt(period.cluster, header.last, "it is not the mark that it was")
    usage = tally.intervals(end=closed.marked)
    _check(period.cluster, header.last, usage, before=book, after=closed)
    carried = carry_forward.closing(
        cluster=period.cluster,
        sequence=header.last,
        epoch=fast.epoch,
        digest=header.digest,
        at=period.at,
        book=closed,
        transactions=header.last - header.first + 1,
        archive=header.name,
        archive_digest=await asyncio.to_thread(archive.finish, header),
        usage=carry_forward.usage_digest(usage),
        after=period.after,
    )
    return Prepared(carried=carried, usage=usage)


MeasuredRows = Mapping[int, Sequence[Sequence[str | None]]]
"""The rows of measure entries, by sequence, as they are hashed."""


async def _measured(connection: AsyncConnection, cluster: str, span: Span) -> MeasuredRows:
    """Return the rows of the first measure entries of a part of the chain, as many as may be in memory."""
    return {
        sequence: [
            measurements.texts(row) for row in await measured_usage.of_transaction(connection, cluster, sequence)
        ]
        for sequence in await measured_usage.entries(connection, cluster, span, most=MEASURED_BATCH)
    }


def _replay_batch(
    fast: FastReplay, tally: Tally, archive: Writer, written: Sequence[bytes], measured: MeasuredRows
) -> None:
    def on_transaction(form: int, digest: str, document: Document) -> None:
        rows = measured.get(document.sequence)
        if rows is not None and measurements.reason_of(rows) != document.reason:
            raise _corrupt(
                fast.cluster, document.sequence, "its rows of measured use are not those that it vouches for"
            )
        archive.add(form, digest, document, rows)
        marks = document.kind == Kind.USAGE
        used = [
            ((QueueName(queue), MeterName(meter)), int(amount))
            for queue, meter, bucket, amount, _ in document.lines
            if bucket == Bucket.USED
        ]
        if used or marks:
            tally.move(datetime.fromisoformat(document.at), used, marks=marks)

    if not written:
        raise _corrupt(fast.cluster, fast.sequence + 1, "it is not there")
    try:
        follows = fast.follow(written, on_transaction)
    except FallBackToExactError as error:
        raise _corrupt(fast.cluster, fast.sequence, "what it says cannot be") from error
    if not follows:
        raise _corrupt(fast.cluster, fast.sequence + 1, "it does not follow the one before it")


def _check(cluster: str, last: int, usage: Sequence[UsageInterval], *, before: Book, after: Book) -> None:
    """Raise LedgerCorruptError unless the carried usage equals the gain of the SPENT balances."""
    sums: dict[QueueMeter, int] = {}
    for interval in usage:
        sums[interval.queue, interval.meter] = sums.get((interval.queue, interval.meter), 0) + interval.seconds
    spent = {(a.queue, a.meter) for book in (before, after) for a in book.balances if a.bucket is Bucket.SPENT}
    for queue, meter in {*sums, *spent}:
        gained = after.balance(queue, meter, Bucket.SPENT) - before.balance(queue, meter, Bucket.SPENT)
        if sums.get((queue, meter), 0) != gained:
            raise _corrupt(cluster, last, f"what queue {queue} used of {meter} is not what its lines say")


def _corrupt(cluster: str, sequence: int, detail: str) -> LedgerCorruptError:
    return LedgerCorruptError(
        f"the books of cluster {cluster} are wrong at transaction {sequence} and cannot be closed: {detail};"
        " run `muster ledger verify`"
    )


def _usage_row(carried: Carried, interval: UsageInterval) -> dict[str, Any]:
    return {
        "cluster": carried.cluster,
        "queue": interval.queue,
        "meter": interval.meter,
        "start": interval.start,
        "until": interval.end,
        "seconds": interval.seconds,
        "sequence": carried.sequence,
    }


def _sliced(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(rows), _ROWS):
        yield rows[start : start + _ROWS]


async def _remove(connection: AsyncConnection, carried: Carried) -> None:
    """Remove the archived rows. The tables are append-only, so these are the rows that were verified."""
    in_period = postings.c.cluster == carried.cluster, postings.c.sequence <= carried.sequence
    await connection.execute(delete(postings).where(*in_period))
    await measured_usage.remove(connection, carried.cluster, carried.sequence)
    closed = transactions.c.cluster == carried.cluster, transactions.c.sequence <= carried.sequence
    removed = (await connection.execute(delete(transactions).where(*closed))).rowcount
    if removed != carried.transactions:
        raise LedgerCorruptError(
            f"{removed} transactions of cluster {carried.cluster} were to be removed through {carried.sequence},"
            f" {carried.transactions} were archived: run `muster ledger verify`"
        )


def _entry(carried: Carried, order: Order, *, at: datetime) -> Entry:
    return Entry(
        kind=Kind.CLOSE,
        key=carried.key,
        at=at,
        actor=order.actor,
        reason=f"{order.reason}: closed through transaction {carried.sequence} of {carried.marked.isoformat()},"
        f" archived in {carried.archive} (SHA-256 {carried.archive_digest})",
        queue=QueueName(""),
    )
