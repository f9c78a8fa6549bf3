"""Verification of the books: the chain from its first row, every balance, and the open gangs, seats and holdings.

The chain is replayed in batches, so memory holds the open gangs and not the history. A chain proves that its rows
belong together and end at the stored head. A rewrite of the whole chain is found by heads that are kept elsewhere: see
`kept_heads`.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Book, EntryDraft
from admission.api.values.names import GangUid
from admission.errors import AmountError, ConflictError, LedgerCorruptError, PageError
from admission.ledger.audit import archive, measured_rows
from admission.ledger.audit.fast_replay import FallBackToExactError, FastReplay
from admission.ledger.db import errors
from admission.ledger.db.prefetch import meanwhile
from admission.ledger.db.tables import GENESIS, postings, transactions
from admission.ledger.journal import carry_forward, documents, hash_chain, read, shared_budgets
from admission.ledger.journal.carry_forward import Carried
from admission.ledger.journal.read import Head, Record

BATCH = 2000


class What(StrEnum):
    """The kind of a finding."""

    CHANGED = "changed"
    REMOVED = "removed"
    INSERTED = "inserted"
    REORDERED = "reordered"
    BALANCE = "balance differs"
    PROJECTION = "projection differs"
    MEASURED = "measured use differs"
    CARRIED = "closing differs"
    ARCHIVE = "archive differs"
    SIGNATURE = "signature differs"
    HEAD = "head is not passed through"
    EPOCH = "epoch differs"
    FOREIGN = "not written by a leader"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The first problem. sequence: its transaction, or the last transaction where a balance or projection differs."""

    sequence: int
    what: What
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The result of a verification. transactions: how many are right, from the first on; digest: of the last of them.

    closed: how many of them are archived and were not replayed, since the chain proves the state carried forward.
    """

    cluster: str
    transactions: int
    digest: str
    closed: int = 0
    finding: Finding | None = None

    @property
    def ok(self) -> bool:
        return self.finding is None


async def verify(connection: AsyncConnection, cluster: str, *, archive: Path | None = None) -> Verification:
    """Replay the books of a cluster and compare them with what is stored. The connection sees one state throughout.

    archive: the folder of archives, to replay from the very first row; None trusts the latest closing.
    """
    closing_problem = await _closing_problem(connection, cluster)
    if closing_problem is not None:
        return Verification(cluster=cluster, transactions=0, digest=GENESIS, finding=closing_problem)
    if archive is not None:
        archived, finding_ = await _archives(connection, cluster, archive)
        if finding_ is not None:
            return Verification(
                cluster=cluster, transactions=archived.sequence, digest=archived.digest, finding=finding_
            )
    carried = await carry_forward.latest(connection, cluster)
    replay = Replay(cluster, carried)
    finding = await _chain(connection, replay) or await _compare_stored(connection, replay, carried)
    return Verification(
        cluster=cluster,
        transactions=replay.sequence,
        digest=replay.digest,
        closed=carried.sequence if carried and archive is None else 0,
        finding=finding,
    )


async def _closing_problem(connection: AsyncConnection, cluster: str) -> Finding | None:
    problem = await carry_forward.problem(connection, cluster)
    return problem and Finding(sequence=problem.sequence, what=What.CARRIED, detail=problem.detail)


class Replay:
    """The chain up to the last transaction that was right, from its first transaction or from a closing."""

    def __init__(self, cluster: str, carried: Carried | None = None) -> None:
        self.cluster = cluster
        self.sequence = carried.sequence if carried else 0
        self.epoch = carried.epoch if carried else 0
        self.digest = carried.digest if carried else GENESIS
        self.before = ""
        """The digest before the last one."""
        self.draft = EntryDraft(carried.book if carried else Book())

    def follow(self, records: Sequence[Record]) -> Record | None:
        """Follow the chain; return the first record that does not continue it, None if all do.

        Raises PageError, ConflictError and AmountError as `EntryDraft.apply`, for an entry that breaks a rule of the
        books though its hash is right.
        """
        for record in records:
            if not self._follows(record):
                return record
            self.draft.apply(record.entry)
            self.before, self.digest = self.digest, record.digest
            self.sequence, self.epoch = record.sequence, record.epoch
        return None

    def _follows(self, record: Record) -> bool:
        return (
            record.sequence == self.sequence + 1
            and record.epoch >= self.epoch
            and record.previous == self.digest
            and record.digest == self.expected(record)
        )

    def expected(self, record: Record) -> str:
        """Return the digest that the record must have as the next one of the chain."""
        return hash_chain.digest(
            record.entry,
            cluster=self.cluster,
            epoch=record.epoch,
            sequence=self.sequence + 1,
            previous=self.digest,
            form=record.form,
        )


async def _chain(connection: AsyncConnection, replay: Replay) -> Finding | None:
    """Follow the chain by the fast replay, and by the exact one if that finds a problem."""
    start = replay.draft.book()
    replay.draft = EntryDraft(start)
    fast = FastReplay(replay.cluster, sequence=replay.sequence, epoch=replay.epoch, digest=replay.digest, book=start)
    try:
        follows = await _follow_readable(connection, fast)
    except FallBackToExactError:
        return await _exact_finding(connection, replay)
    replay.sequence, replay.epoch = fast.sequence, fast.epoch
    replay.before, replay.digest = fast.before, fast.digest
    replay.draft = EntryDraft(fast.book())
    if follows:
        return None
    expected = replay.sequence + 1
    detail = "what its columns hold reads as it was hashed, and is written in another way"
    return await _exact_finding(connection, replay) or Finding(sequence=expected, what=What.CHANGED, detail=detail)


async def _follow_readable(connection: AsyncConnection, fast: FastReplay) -> bool:
    """Return whether all rows can be read and follow each other; stop before the first one that does not.

    If a batch cannot be read, replay its rows one by one, so that `fast` ends just before the unreadable row.
    """
    try:
        return await _follow_batches(connection, fast, size=BATCH)
    except DBAPIError as error:
        errors.unreadable(error)
    try:
        return await _follow_batches(connection, fast, size=1)
    except DBAPIError as error:
        errors.unreadable(error)
        return False


async def _follow_batches(connection: AsyncConnection, fast: FastReplay, *, size: int) -> bool:
    """Return whether all rows follow each other. The database serializes one batch while Python replays another."""
    batch = await documents.batch(connection, fast.cluster, after=fast.sequence, limit=size)
    while batch:
        following = documents.batch(connection, fast.cluster, after=fast.sequence + len(batch), limit=size)
        async with meanwhile(following) as written:
            # Not in a thread: threads that contend for the interpreter wait 5 ms (its switch interval) for each other.
            follows = fast.follow(batch)
        if not follows:
            return False
        batch = written.result()
    return True


async def _exact_finding(connection: AsyncConnection, replay: Replay) -> Finding | None:
    size = BATCH
    while True:
        try:
            records = await read.records(connection, replay.cluster, after=replay.sequence, limit=size)
        except (OverflowError, TypeError, ValueError, DBAPIError) as error:
            detail = errors.unreadable(error)
            if size == 1:
                return Finding(sequence=replay.sequence + 1, what=What.CHANGED, detail=detail)
            size = 1  # to find which one
            continue
        if not records:
            return None
        try:
            broken = await asyncio.to_thread(replay.follow, records)
        except (PageError, ConflictError, AmountError) as error:
            return Finding(sequence=replay.sequence + 1, what=What.CHANGED, detail=str(error))
        except (KeyError, TypeError) as error:  # a column of SQLite holds what its type does not
            return Finding(sequence=replay.sequence + 1, what=What.CHANGED, detail=errors.unreadable(error))
        if broken is not None:
            return await _broken_link(connection, replay, broken)


async def _broken_link(connection: AsyncConnection, replay: Replay, record: Record) -> Finding:
    """Return what happened at the first record that does not follow, by the predecessor's digest in each row."""
    expected = replay.sequence + 1
    if record.sequence != expected:
        return Finding(sequence=expected, what=What.REMOVED, detail=f"the next transaction is {record.sequence}")
    if replay.expected(record) == record.digest:
        return Finding(
            sequence=expected, what=What.CHANGED, detail="its epoch or its predecessor's digest is not the one due"
        )
    if record.previous == replay.before:
        return Finding(
            sequence=expected - 1, what=What.INSERTED, detail=f"transaction {expected} was written without it"
        )
    return Finding(
        sequence=expected,
        what=await _broken_link_kind(connection, replay, record),
        detail="its digest is not the one due",
    )


async def _broken_link_kind(connection: AsyncConnection, replay: Replay, record: Record) -> What:
    follows_another = transactions.c.digest == record.previous
    if record.previous != replay.digest and await _exists(connection, replay, follows_another):
        return What.REORDERED
    follows_verified = (transactions.c.previous == replay.digest) & (transactions.c.sequence != record.sequence)
    if await _exists(connection, replay, follows_verified):
        return What.INSERTED
    return What.CHANGED if record.previous == replay.digest else What.REMOVED


async def _exists(connection: AsyncConnection, replay: Replay, where: ColumnElement[bool]) -> bool:
    query = select(exists().where(transactions.c.cluster == replay.cluster, where))
    return bool((await connection.execute(query)).scalar_one())


async def _compare_stored(connection: AsyncConnection, replay: Replay, carried: Carried | None) -> Finding | None:
    """Compare the head, the projections and the shared budgets with the replayed chain."""
    try:
        return (
            _compare_head(await read.head(connection, replay.cluster), replay)
            or await _lines_without_transaction(connection, replay, carried)
            or await _compare_measured(connection, replay, carried)
            or await _compare_projections(connection, replay)
            or await _compare_shared_budgets(connection, replay)
        )
    except DBAPIError as error:
        return Finding(sequence=replay.sequence, what=What.PROJECTION, detail=errors.unreadable(error))


def _compare_head(head: Head | None, replay: Replay) -> Finding | None:
    if head is None:
        head = Head(cluster=replay.cluster, epoch=0, sequence=0, digest=GENESIS)
    if {type(head.sequence), type(head.epoch)} != {int}:
        return Finding(sequence=replay.sequence, what=What.CHANGED, detail="the head of the chain cannot be read")
    if head.sequence > replay.sequence:
        return Finding(
            sequence=replay.sequence + 1, what=What.REMOVED, detail=f"the head says that {head.sequence} were written"
        )
    if head.sequence < replay.sequence:
        return Finding(
            sequence=head.sequence + 1, what=What.INSERTED, detail=f"the head says that {head.sequence} were written"
        )
    if head.digest != replay.digest or head.epoch < replay.epoch:
        return Finding(sequence=head.sequence, what=What.CHANGED, detail="the head of the chain is not of this one")
    return None


async def _lines_without_transaction(
    connection: AsyncConnection, replay: Replay, carried: Carried | None
) -> Finding | None:
    """Return a finding if lines exist without a transaction; the lines of a transaction are part of its digest."""
    first = (carried.sequence if carried else 0) + 1
    outside = (postings.c.cluster == replay.cluster) & ~postings.c.sequence.between(first, replay.sequence)
    sequence = (await connection.execute(select(func.min(postings.c.sequence)).where(outside))).scalar_one()
    if sequence is None:
        return None
    return Finding(sequence=sequence, what=What.INSERTED, detail="lines without a transaction")


async def _compare_measured(connection: AsyncConnection, replay: Replay, carried: Carried | None) -> Finding | None:
    closed = carried.sequence if carried else 0
    problem = await measured_rows.problem(connection, replay.cluster, after=closed)
    return problem and Finding(sequence=problem.sequence, what=What.MEASURED, detail=problem.detail)


async def _compare_projections(connection: AsyncConnection, replay: Replay) -> Finding | None:
    expected = replay.draft.book()
    try:
        stored = await read.book(connection, replay.cluster)
    except LedgerCorruptError as error:
        return Finding(sequence=replay.sequence, what=What.PROJECTION, detail=str(error))
    for account, amount, expected_amount in _differences(stored.balances, expected.balances):
        name = f"{account.bucket} {account.meter} of queue {account.queue}"
        detail = f"{name} is {amount or 0}, its lines sum to {expected_amount or 0}"
        return Finding(sequence=replay.sequence, what=What.BALANCE, detail=detail)
    for gang, _, _ in _differences(stored.placements, expected.placements):
        return Finding(sequence=replay.sequence, what=What.PROJECTION, detail=_gang_difference(gang, stored, expected))
    return None


async def _compare_shared_budgets(connection: AsyncConnection, replay: Replay) -> Finding | None:
    detail = await shared_budgets.problem(connection)
    return None if detail is None else Finding(sequence=replay.sequence, what=What.BALANCE, detail=detail)


def _differences(stored: Mapping[Any, Any], expected: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for key in sorted(stored.keys() | expected.keys(), key=str):  # SQLite may hold a key that is no text
        if stored.get(key) != expected.get(key):
            yield key, stored.get(key), expected.get(key)


def _gang_difference(uid: GangUid, stored: Book, expected: Book) -> str:
    left, right = stored.placements.get(uid), expected.placements.get(uid)
    if left is None or right is None:
        return (
            f"gang {uid} is {'open' if left else 'not open'}; by its transactions it is {'' if right else 'not '}open"
        )
    for name, stored_part, expected_part in (
        ("seat", left.seats, right.seats),
        ("holding", left.holdings, right.holdings),
    ):
        for key, _, _ in _differences(stored_part, expected_part):
            return f"the {name} {key} of gang {left.gang} is not what its transactions say"
    return f"the queue, name, user or time of gang {left.gang} is not what its transactions say"


async def _archives(connection: AsyncConnection, cluster: str, folder: Path) -> tuple[Replay, Finding | None]:
    """Replay the archives of all closings, and compare the book after each with the one carried forward."""
    replay = Replay(cluster)
    for carried in await carry_forward.every(connection, cluster):
        detail = await asyncio.to_thread(_archive_problem, replay, carried, folder / carried.archive)
        if detail is not None:
            detail = f"archive {carried.archive}: {detail}"
            return replay, Finding(sequence=carried.previous + 1, what=What.ARCHIVE, detail=detail)
    return replay, None


def _archive_problem(replay: Replay, carried: Carried, path: Path) -> str | None:
    """Follow one archive; return its problem, None if there is none."""
    try:
        if archive.digest_of(path) != carried.archive_digest:
            return f"its SHA-256 is not {carried.archive_digest}, the one in the books"
        for record in archive.records(path):
            if replay.follow((record,)) is not None:
                return f"transaction {replay.sequence + 1} does not follow the one before it"
    except FileNotFoundError:
        return f"it is not in {path.parent}"
    except (OSError, LedgerCorruptError, PageError, ConflictError, AmountError) as error:
        return str(error)
    book = replay.draft.book()
    replay.draft = EntryDraft(book)
    if (replay.sequence, replay.digest, book) != (carried.sequence, carried.digest, carried.book):
        return "what stood at its end is not what was carried forward"
    return None
