"""Rebuilding the projections from the chain: balances, and the open gangs, seats and holdings.

For books whose projections were changed by hand, which no entry can correct: the transactions are right, but the
projections do not follow from them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import Table, delete, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry, Placement, Posted
from admission.errors import AmountError, ConflictError, LedgerCorruptError, PageError
from admission.ledger.audit.verify import Replay
from admission.ledger.db.tables import balances, open_gangs, open_holdings, open_seats
from admission.ledger.journal import amend, carry_forward, encoding, read

BATCH = 500


async def replayed(connection: AsyncConnection, cluster: str) -> Book:
    """Return the book after replaying the chain from the latest closing. Raises LedgerCorruptError when it is wrong."""
    replay = Replay(cluster, await carry_forward.latest(connection, cluster))
    head = await read.head(connection, cluster)
    try:
        while records := await read.records(connection, cluster, after=replay.sequence, limit=BATCH):
            if await asyncio.to_thread(replay.follow, records) is not None:
                raise _corrupt(cluster, replay, "it does not follow the one before it")
    except (PageError, ConflictError, AmountError, ValueError) as error:
        raise _corrupt(cluster, replay, str(error)) from error
    if (replay.sequence, replay.digest) != ((head.sequence, head.digest) if head else (0, replay.digest)):
        raise _corrupt(cluster, replay, "the head of the chain is another one")
    return replay.draft.book()


async def rebuild(connection: AsyncConnection, cluster: str, book: Book, note: Entry) -> Posted:
    """Replace the projections by those of a replayed book, and add the entry `note`, which makes a leader reload them.

    Raises ConflictError when the chain has grown since the replay.
    """
    if await amend.hold(connection, cluster) != book.sequence:
        raise ConflictError(f"the books of cluster {cluster} have gone on from transaction {book.sequence}")
    for table in (open_holdings, open_seats, open_gangs, balances):
        await connection.execute(delete(table).where(table.c.cluster == cluster))
    for table, rows in _projections(cluster, book):
        for start in range(0, len(rows), BATCH):
            await connection.execute(insert(table), rows[start : start + BATCH])
    (posted,) = await amend.amend(connection, cluster, [note], known=book.sequence)
    return posted


def _corrupt(cluster: str, replay: Replay, detail: str) -> LedgerCorruptError:
    return LedgerCorruptError(
        f"the chain of cluster {cluster} is wrong at transaction {replay.sequence + 1}, so nothing can be made anew"
        f" from it: {detail}; run `muster ledger verify` and restore a backup"
    )


def _projections(cluster: str, book: Book) -> Iterator[tuple[Table, Sequence[dict[str, Any]]]]:
    placements = book.placements.values()
    yield (
        balances,
        [{"cluster": cluster, **account._asdict(), "amount": amount} for account, amount in book.balances.items()],
    )
    yield open_gangs, [_gang(cluster, placement) for placement in placements]
    yield open_seats, [row for placement in placements for row in _seats(cluster, placement)]
    yield open_holdings, [row for placement in placements for row in _holdings(cluster, placement)]


def _gang(cluster: str, placement: Placement) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "gang_uid": placement.gang_uid,
        "gang": placement.gang,
        "queue": placement.queue,
        "user": placement.user,
        "reserved_at": placement.reserved_at,
    }


def _seats(cluster: str, placement: Placement) -> Iterator[dict[str, Any]]:
    for seat in placement.seats.values():
        yield {
            "cluster": cluster,
            "pod_uid": seat.pod_uid,
            "gang_uid": placement.gang_uid,
            "pod": seat.pod,
            "node": seat.node,
            "claims": encoding.compact(seat.claims),
            "asked_as": seat.asked_as,
        }


def _holdings(cluster: str, placement: Placement) -> Iterator[dict[str, Any]]:
    for holding in placement.holdings.values():
        yield {
            "cluster": cluster,
            "claim_uid": holding.claim_uid,
            "gang_uid": placement.gang_uid,
            "claim": holding.claim,
            "devices": encoding.compact(encoding.of_devices(holding.devices)),
            "charge": encoding.compact(encoding.of_charge(holding.charge)),
            "classes": encoding.compact(dict(holding.classes)),
            "settled": holding.settled,
        }
