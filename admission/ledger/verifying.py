"""Whether the books are what was written: the chain from its first row, every balance, and everything open.

The chain is replayed in batches, so memory holds what is open and not the history. A chain proves that its rows belong
together and end at the stored head. Against someone who writes the whole chain anew, keep the digest of a verification
elsewhere and compare it later.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.names import GangUid
from admission.errors import AmountError, ConflictError, LedgerCorruptError, PageError
from admission.ledger import hashing, reading
from admission.ledger.carrying import Carried
from admission.ledger.reading import Head, Record
from admission.ledger.tables import GENESIS, postings, transactions
from admission.quota.books import Book, Draft

BATCH = 500


class What(StrEnum):
    """What is wrong with a row."""

    CHANGED = "changed"
    REMOVED = "removed"
    INSERTED = "inserted"
    REORDERED = "reordered"
    BALANCE = "balance differs"
    PROJECTION = "projection differs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The first thing wrong. sequence: the transaction, or the last one where a balance or projection differs."""

    sequence: int
    what: What
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """transactions: how many are right, from the first on; digest: of the last of them."""

    cluster: str
    transactions: int
    digest: str
    finding: Finding | None = None

    @property
    def ok(self) -> bool:
        return self.finding is None


async def verify(connection: AsyncConnection, cluster: str) -> Verification:
    """Replay the books of a cluster and compare them with what is stored. The connection sees one state throughout."""
    replay = Replay(cluster)
    finding = await _chain(connection, replay)
    if finding is None:
        finding = _end(await reading.head(connection, cluster), replay) or await _astray(connection, replay)
    if finding is None:
        finding = await _projection(connection, replay)
    return Verification(cluster=cluster, transactions=replay.sequence, digest=replay.digest, finding=finding)


class Replay:
    """The chain as far as it is right, from its first transaction on, or from a closing."""

    def __init__(self, cluster: str, carried: Carried | None = None) -> None:
        self.cluster = cluster
        self.sequence = carried.sequence if carried else 0
        self.epoch = carried.epoch if carried else 0
        self.digest = carried.digest if carried else GENESIS
        self.before = ""
        """The digest before the last one."""
        self.draft = Draft(carried.book if carried else Book())

    def take(self, records: Sequence[Record]) -> Record | None:
        """Follow the chain; return the first record that does not belong where it stands.

        Raises PageError, ConflictError and AmountError as `Draft.apply`: the hash is right, but the entry cannot be.
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
        """Return the digest of what the record says, as the next one."""
        return hashing.digest(
            record.entry,
            cluster=self.cluster,
            epoch=record.epoch,
            sequence=self.sequence + 1,
            previous=self.digest,
            form=record.form,
        )


async def _chain(connection: AsyncConnection, replay: Replay) -> Finding | None:
    size = BATCH
    while True:
        try:
            records = await reading.records(connection, replay.cluster, after=replay.sequence, limit=size)
        except ValueError as error:
            if size == 1:
                return Finding(sequence=replay.sequence + 1, what=What.CHANGED, detail=f"it cannot be read: {error}")
            size = 1  # to find which one
            continue
        if not records:
            return None
        try:
            stray = await asyncio.to_thread(replay.take, records)
        except (PageError, ConflictError, AmountError) as error:
            return Finding(sequence=replay.sequence + 1, what=What.CHANGED, detail=str(error))
        if stray is not None:
            return await _stray(connection, replay, stray)


async def _stray(connection: AsyncConnection, replay: Replay, record: Record) -> Finding:
    """Say what happened at the first record that does not follow. Each row tells which one it was written after."""
    due = replay.sequence + 1
    if record.sequence != due:
        return Finding(sequence=due, what=What.REMOVED, detail=f"the next transaction is {record.sequence}")
    if replay.expected(record) == record.digest:
        return Finding(
            sequence=due, what=What.CHANGED, detail="its epoch or its predecessor's digest is not the one due"
        )
    if record.previous == replay.before:
        return Finding(sequence=due - 1, what=What.INSERTED, detail=f"transaction {due} was written without it")
    return Finding(sequence=due, what=await _what(connection, replay, record), detail="its digest is not the one due")


async def _what(connection: AsyncConnection, replay: Replay, record: Record) -> What:
    after_another = transactions.c.digest == record.previous
    if record.previous != replay.digest and await _some(connection, replay, after_another):
        return What.REORDERED
    rightful = (transactions.c.previous == replay.digest) & (transactions.c.sequence != record.sequence)
    if await _some(connection, replay, rightful):
        return What.INSERTED
    return What.CHANGED if record.previous == replay.digest else What.REMOVED


async def _some(connection: AsyncConnection, replay: Replay, where: ColumnElement[bool]) -> bool:
    found = select(exists().where(transactions.c.cluster == replay.cluster, where))
    return bool((await connection.execute(found)).scalar_one())


def _end(head: Head | None, replay: Replay) -> Finding | None:
    if head is None:
        head = Head(cluster=replay.cluster, epoch=0, sequence=0, digest=GENESIS)
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


async def _astray(connection: AsyncConnection, replay: Replay) -> Finding | None:
    """Look for lines beyond the last transaction; those of a transaction are part of its digest."""
    beyond = (postings.c.cluster == replay.cluster) & ~postings.c.sequence.between(1, replay.sequence)
    sequence = (await connection.execute(select(func.min(postings.c.sequence)).where(beyond))).scalar_one()
    if sequence is None:
        return None
    return Finding(sequence=sequence, what=What.INSERTED, detail="lines without a transaction")


async def _projection(connection: AsyncConnection, replay: Replay) -> Finding | None:
    due = replay.draft.book()
    try:
        stored = await reading.book(connection, replay.cluster)
    except LedgerCorruptError as error:
        return Finding(sequence=replay.sequence, what=What.PROJECTION, detail=str(error))
    for account, amount, right in _differences(stored.balances, due.balances):
        name = f"{account.bucket} {account.meter} of queue {account.queue}"
        detail = f"{name} is {amount or 0}, its lines sum to {right or 0}"
        return Finding(sequence=replay.sequence, what=What.BALANCE, detail=detail)
    for gang, _, _ in _differences(stored.placements, due.placements):
        return Finding(sequence=replay.sequence, what=What.PROJECTION, detail=_of_gang(gang, stored, due))
    return None


def _differences(stored: Mapping[Any, Any], due: Mapping[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    for key in sorted(stored.keys() | due.keys()):
        if stored.get(key) != due.get(key):
            yield key, stored.get(key), due.get(key)


def _of_gang(uid: GangUid, stored: Book, due: Book) -> str:
    left, right = stored.placements.get(uid), due.placements.get(uid)
    if left is None or right is None:
        return (
            f"gang {uid} is {'open' if left else 'not open'}; by its transactions it is {'' if right else 'not '}open"
        )
    for name, mine, theirs in (("seat", left.seats, right.seats), ("holding", left.holdings, right.holdings)):
        for key, _, _ in _differences(mine, theirs):
            return f"the {name} {key} of gang {left.gang} is not what its transactions say"
    return f"the queue, name or time of gang {left.gang} is not what its transactions say"
