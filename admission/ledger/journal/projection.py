"""The part of the projections that some entries affect: read before the entries are written, updated after.

`accounting.books.EntryDraft` applies the entries by its rules; this module only reads and writes rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.accounting.books import Account, Book
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind, Placement, Seat
from admission.api.values.names import GangUid, NodeName, QueueName, Uid
from admission.ledger.db import bulk_insert
from admission.ledger.db.column_types import moment
from admission.ledger.db.tables import balances, open_gangs, open_holdings, open_seats
from admission.ledger.journal import encoding, hash_chain, read as journal_read

_OPEN = """
SELECT 'gang' AS what, gang_uid AS uid, gang_uid, gang, queue, "user" AS who, reserved_at, false AS settled
    FROM open_gangs WHERE cluster = {cluster} AND gang_uid {0}
UNION ALL SELECT 'seat', pod_uid, gang_uid, '', '', '', NULL, false
    FROM open_seats WHERE cluster = {cluster} AND (gang_uid {0} OR pod_uid {1})
UNION ALL SELECT 'holding', claim_uid, gang_uid, '', '', '', NULL, settled
    FROM open_holdings WHERE cluster = {cluster} AND (gang_uid {0} OR claim_uid {2})
"""

_Row = tuple[Any, ...]

_BALANCES = "SELECT queue, meter, bucket, amount FROM balances WHERE cluster = {cluster} AND queue {0} AND meter {1}"


async def read(connection: AsyncConnection, cluster: str, entries: Sequence[Entry]) -> Book:
    """Return the part of the book for the gangs and accounts of entries, with the owners of the UIDs that they open.

    If one of them is a usage entry, return the whole book, since such an entry covers the usage of every account.
    """
    if any(entry.kind is Kind.USAGE for entry in entries):
        return await journal_read.book(connection, cluster)
    placements, owners = await _placements(connection, cluster, entries)
    return Book(placements=placements, balances=await _balances(connection, cluster, entries), owners=owners)


async def _placements(
    connection: AsyncConnection, cluster: str, entries: Sequence[Entry]
) -> tuple[dict[GangUid, Placement], dict[Uid, GangUid]]:
    """Return the gangs' placements, and the owning gang of each open UID.

    Seats and holdings are returned without their content: no rule depends on it, and it does not change while open.
    """
    gangs = sorted({entry.gang_uid for entry in entries if entry.gang_uid})
    if not gangs:
        return {}, {}
    pods = sorted({seat.pod_uid for entry in entries for seat in entry.seats})
    claims = sorted({holding.claim_uid for entry in entries for holding in entry.holdings})
    rows = await bulk_insert.fetch(connection, _OPEN, cluster, gangs, pods, claims)
    owners: dict[Uid, GangUid] = {}
    seats: dict[str, dict[Uid, Seat]] = {gang: {} for gang in gangs}
    holdings: dict[str, dict[Uid, Holding]] = {gang: {} for gang in gangs}
    placements = {}
    for what, name, owner, gang, queue, user, reserved_at, settled in rows:
        uid, gang_uid = Uid(name), GangUid(owner)
        if what == "gang":
            placements[gang_uid] = Placement(
                gang_uid=gang_uid,
                gang=gang,
                queue=QueueName(queue),
                user=user,
                reserved_at=moment(reserved_at),
                seats=seats[gang_uid],
                holdings=holdings[gang_uid],
            )
            continue
        owners[uid] = gang_uid
        if gang_uid in seats and what == "seat":  # a UID that an entry opens may be open for another gang
            seats[gang_uid][uid] = Seat(pod_uid=uid, pod="", node=NodeName(""))
        elif gang_uid in seats:
            holdings[gang_uid][uid] = Holding(claim_uid=uid, claim="", devices=(), charge={}, settled=bool(settled))
    return placements, owners


async def _balances(connection: AsyncConnection, cluster: str, entries: Sequence[Entry]) -> dict[Account, int]:
    lines = [line for entry in entries for line in entry.postings]
    if not lines:
        return {}
    queues, meters = {line.queue for line in lines}, {line.meter for line in lines}
    rows = await bulk_insert.fetch(connection, _BALANCES, cluster, sorted(queues), sorted(meters))
    return {Account(queue, meter, Bucket(bucket)): int(amount) for queue, meter, bucket, amount in rows}


class Rows(NamedTuple):
    """The rows to write: balances, the UIDs of rows to remove, and the rows to add."""

    balances: list[_Row]
    removed_seats: list[Uid]
    removed_holdings: list[Uid]
    removed_gangs: list[GangUid]
    gangs: list[_Row]
    seats: list[_Row]
    holdings: list[_Row]


def rows(cluster: str, entries: Sequence[Entry], *, before: Book, after: Book) -> Rows:
    """Return the rows that entries have changed."""
    touched = {(line.queue, line.meter, line.bucket) for entry in entries for line in entry.postings}
    gangs = sorted({entry.gang_uid for entry in entries if entry.closes or entry.seats or entry.holdings})
    changes = [_Change(uid, before.placements.get(uid), after.placements.get(uid)) for uid in gangs]
    opened = [change.after for change in changes if change.after and _gang(change.after) != _gang(change.before)]
    return Rows(
        balances=[(cluster, *account, str(after.balance(*account))) for account in sorted(touched)],
        removed_seats=[uid for change in changes for uid in change.removed("seats")],
        removed_holdings=[uid for change in changes for uid in change.removed("holdings")],
        removed_gangs=[change.gang for change in changes if change.before and not change.after],
        gangs=[(cluster, *_gang(placement)) for placement in opened],
        seats=[_seat(cluster, change.gang, seat) for change in changes for seat in change.added("seats")],
        holdings=[_holding(cluster, change.gang, held) for change in changes for held in change.added("holdings")],
    )


async def write(connection: AsyncConnection, cluster: str, rows: Rows) -> None:
    """Write the rows: removals first, since a changed row is removed and added again."""
    await bulk_insert.put(connection, balances, rows.balances)
    for table, uid, removed in (
        ("open_seats", "pod_uid", rows.removed_seats),
        ("open_holdings", "claim_uid", rows.removed_holdings),
        ("open_gangs", "gang_uid", rows.removed_gangs),
    ):
        if removed:
            statement = f"DELETE FROM {table} WHERE cluster = {{cluster}} AND {uid} {{0}}"  # noqa: S608 - our own names
            await bulk_insert.execute(connection, statement, cluster, removed)
    await bulk_insert.put(connection, open_gangs, rows.gangs)
    await bulk_insert.insert(connection, open_seats, rows.seats)
    await bulk_insert.insert(connection, open_holdings, rows.holdings)


class _Change(NamedTuple):
    """The placement of a gang before and after the entries."""

    gang: GangUid
    before: Placement | None
    after: Placement | None

    def removed(self, part: str) -> list[Uid]:
        """Return the seats or holdings to remove: those closed or changed."""
        now = getattr(self.after, part, {})
        return [uid for uid, item in getattr(self.before, part, {}).items() if now.get(uid) is not item]

    def added(self, part: str) -> list[Any]:
        """Return the seats or holdings to add: those opened or changed."""
        previous = getattr(self.before, part, {})
        return [item for uid, item in getattr(self.after, part, {}).items() if previous.get(uid) is not item]


def _gang(placement: Placement | None) -> tuple[str, ...]:
    if placement is None:
        return ()
    reserved_at = hash_chain.instant(placement.reserved_at)
    return placement.gang_uid, placement.gang, placement.queue, placement.user, reserved_at


def _seat(cluster: str, gang: GangUid, seat: Seat) -> tuple[Any, ...]:
    return cluster, seat.pod_uid, gang, seat.pod, seat.node, encoding.compact(seat.claims), seat.asked_as


def _holding(cluster: str, gang: GangUid, holding: Holding) -> tuple[Any, ...]:
    return (
        cluster,
        holding.claim_uid,
        gang,
        holding.claim,
        encoding.compact(encoding.of_devices(holding.devices)),
        encoding.compact(encoding.of_charge(holding.charge)),
        encoding.compact(dict(holding.classes)),
        holding.settled,
    )
