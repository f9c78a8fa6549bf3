"""Digests and entries at given places of a chain, for those who know what has to stand there."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.ledger.db.tables import GENESIS, closings, transactions

_AT_ONCE = 500


class Position(NamedTuple):
    """What stands at a place of the chain."""

    epoch: int
    digest: str


async def positions(connection: AsyncConnection, cluster: str, sequences: Collection[int]) -> Mapping[int, Position]:
    """Return what stands at these places, by sequence; those without a row or a closing are left out."""
    wanted = sorted(set(sequences))
    found = {0: Position(0, GENESIS)} if wanted[:1] == [0] else {}
    for start in range(0, len(wanted), _AT_ONCE):
        part = wanted[start : start + _AT_ONCE]
        for table in (closings, transactions):
            query = select(table.c.sequence, table.c.epoch, table.c.digest).where(
                table.c.cluster == cluster, table.c.sequence.in_(part)
            )
            found |= {row.sequence: Position(row.epoch, row.digest) for row in await connection.execute(query)}
    return found


class EpochRow(NamedTuple):
    """A transaction, and the epoch under which it was written."""

    sequence: int
    epoch: int


async def latest_epoch(connection: AsyncConnection, cluster: str) -> EpochRow:
    """Return the transaction of the largest epoch, the first of several; zeros where there is none."""
    largest = select(func.max(transactions.c.epoch)).where(transactions.c.cluster == cluster).scalar_subquery()
    query = select(func.min(transactions.c.sequence), largest).where(
        transactions.c.cluster == cluster, transactions.c.epoch == largest
    )
    sequence, epoch = (await connection.execute(query)).one()
    return EpochRow(sequence or 0, epoch or 0)


async def first_below(connection: AsyncConnection, cluster: str, *, after: int, epoch: int) -> EpochRow | None:
    """Return the first transaction after a place that was written under an epoch below this one; None if none was."""
    query = (
        select(transactions.c.sequence, transactions.c.epoch)
        .where(transactions.c.cluster == cluster, transactions.c.sequence > after, transactions.c.epoch < epoch)
        .order_by(transactions.c.sequence)
        .limit(1)
    )
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else EpochRow(*row)


async def first_of(connection: AsyncConnection, cluster: str, epoch: int, *, after: int) -> int | None:
    """Return the first place after one that was written under this epoch or a later one; None if none was."""
    query = select(func.min(transactions.c.sequence)).where(
        transactions.c.cluster == cluster, transactions.c.sequence > after, transactions.c.epoch >= epoch
    )
    found: int | None = (await connection.execute(query)).scalar_one()
    return found
