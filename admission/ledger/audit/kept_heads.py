"""The proof by heads that were kept outside of the database: the chain passes through every one of them.

`verify` proves that rows, balances and the stored end of the chain belong together. A client that can write to the
database can make others that belong together as well; only a head from elsewhere distinguishes the two. Since a digest
covers all rows before it, a chain that passes through a head has, up to there, the rows that the leader has seen.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.muster.ledger_entries import Kind
from admission.heads import key_history, signed_head
from admission.heads.head_document import KeptHeads
from admission.heads.signed_head import Head, Range, SignedHead
from admission.ledger.audit import archive as archives, verify
from admission.ledger.audit.verify import Finding, Verification, What
from admission.ledger.db import errors
from admission.ledger.db.tables import transactions
from admission.ledger.journal import base, carry_forward, positions, read
from admission.ledger.journal.positions import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a cluster's chain from elsewhere.

    heads: of any cluster; those of others are passed over. expected: digests by sequence. accepted: foreign
    transactions that are known to be right. epoch: that of the latest leader by its lease, if it was asked.
    """

    heads: KeptHeads = field(default_factory=KeptHeads)
    expected: tuple[tuple[int, str], ...] = ()
    accepted: tuple[Range, ...] = ()
    epoch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The result of a verification with evidence.

    compared: how many heads and expected digests the chain passes through. archived: how many lie in closed periods
    and were not compared, as no archives were given; the digests after them cover what was there. after: how many
    transactions follow the newest head, so that nothing proves them yet. findings: the first problem of each kind.
    """

    verification: Verification
    compared: int = 0
    archived: int = 0
    newest: Head | None = None
    after: int = 0
    findings: tuple[Finding, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A place that the chain has to pass through. source: whose word that is."""

    sequence: int
    digest: str
    source: str


async def prove(connection: AsyncConnection, cluster: str, evidence: Evidence, *, archive: Path | None) -> Proof:
    """Verify the books of a cluster, and compare them with the evidence. The connection sees one state throughout."""
    verification = await verify.verify(connection, cluster, archive=archive)
    proof = Proof(verification=verification, findings=tuple(filter(None, (verification.finding,))))
    own = [signed for signed in evidence.heads.heads if signed.head.cluster == cluster]
    forged = next(_unsigned(own, evidence), None)
    if forged is not None:
        return replace(proof, findings=(*proof.findings, forged))
    heads = sorted((signed.head for signed in own), key=lambda head: head.position)
    try:
        return await _compared(connection, cluster, heads, evidence, archive=archive, proof=proof)
    except (DBAPIError, TypeError) as error:  # a column of SQLite may hold anything
        finding = Finding(sequence=verification.transactions, what=What.HEAD, detail=errors.unreadable(error))
        return replace(proof, findings=(*proof.findings, finding))


def _unsigned(heads: Sequence[SignedHead], evidence: Evidence) -> Iterator[Finding]:
    for signed in heads:
        detail = key_history.problem(signed, evidence.heads.keys)
        if detail is not None:
            name = f"the head of transaction {signed.head.sequence} of {signed_head.instant(signed.head.at)}"
            yield Finding(sequence=signed.head.sequence, what=What.SIGNATURE, detail=f"{name}: {detail}")


async def _compared(
    connection: AsyncConnection,
    cluster: str,
    heads: Sequence[Head],
    evidence: Evidence,
    *,
    archive: Path | None,
    proof: Proof,
) -> Proof:
    points = sorted(_points(heads, evidence), key=lambda point: point.sequence)
    start = await base.base(connection, cluster)
    end = await read.head(connection, cluster)
    last = end.sequence if end is not None else 0
    found = dict(await positions.positions(connection, cluster, {point.sequence for point in points}))
    closed = {point.sequence for point in points if point.sequence < start.sequence} - found.keys()
    if archive is not None and closed and proof.ok:
        found |= await _archived(connection, cluster, archive, closed)
    passed = [point for point in points if point.sequence in found and found[point.sequence].digest == point.digest]
    missing = [point for point in points if point.sequence in closed and point.sequence not in found]
    newest = heads[-1] if heads else None
    findings = [
        _digest_finding(points, found, skipped={point.sequence for point in missing}, cluster=cluster, last=last),
        _closing_finding(missing, passed, start.sequence),
        await _epoch_finding(connection, end, newest, evidence),
        await _foreign_finding(connection, cluster, heads, evidence, start.sequence),
    ]
    return replace(
        proof,
        compared=len(passed),
        archived=len(missing),
        newest=newest,
        after=max(0, last - max((point.sequence for point in passed), default=0)),
        findings=(*proof.findings, *filter(None, findings)),
    )


def _points(heads: Sequence[Head], evidence: Evidence) -> Iterator[_Point]:
    for head in heads:
        source = f"the head that the leader of epoch {head.epoch} signed at {signed_head.instant(head.at)}"
        yield _Point(sequence=head.sequence, digest=head.digest, source=source)
    for sequence, digest in evidence.expected:
        yield _Point(sequence=sequence, digest=digest, source=f"--expect {sequence}:{digest}")


async def _archived(
    connection: AsyncConnection, cluster: str, folder: Path, wanted: set[int]
) -> Mapping[int, Position]:
    """Return what stands at these places of archives, which `verify` has compared with the books."""
    found: dict[int, Position] = {}
    for carried in await carry_forward.every(connection, cluster):
        of_this = {sequence for sequence in wanted if carried.previous < sequence <= carried.sequence}
        if of_this:
            found |= await asyncio.to_thread(_read_archive, folder / carried.archive, of_this)
    return found


def _read_archive(path: Path, wanted: set[int]) -> dict[int, Position]:
    return {
        record.sequence: Position(record.epoch, record.digest)
        for record in archives.records(path)
        if record.sequence in wanted
    }


def _digest_finding(
    points: Sequence[_Point], found: Mapping[int, Position], *, skipped: set[int], cluster: str, last: int
) -> Finding | None:
    """Return a finding for the first place that the chain does not pass through."""
    passed = 0
    for point in points:
        position = found.get(point.sequence)
        if position is not None and position.digest == point.digest:
            passed = point.sequence
        elif point.sequence not in skipped:
            return Finding(
                sequence=point.sequence,
                what=What.HEAD,
                detail=_difference(point, position, passed=passed, cluster=cluster, last=last),
            )
    return None


def _difference(point: _Point, position: Position | None, *, passed: int, cluster: str, last: int) -> str:
    if not last:
        return f"the books of cluster {cluster} are gone, or empty: {point.source} has transaction {point.sequence}"
    if point.sequence > last:
        return (
            f"the chain ends at transaction {last}, and {point.source} has transaction {point.sequence}: its end was"
            " cut off, or an older copy of the database was put in its place"
        )
    since = f"after transaction {passed}" if passed else "from its beginning or later"
    has = "is not there" if position is None else f"has digest {position.digest}"
    return (
        f"transaction {point.sequence} {has}, by {point.source} it has {point.digest}: the chain was written anew"
        f" {since}"
    )


def _closing_finding(missing: Sequence[_Point], passed: Sequence[_Point], closed: int) -> Finding | None:
    """Return a finding where closed rows cannot be compared, and no later head covers them."""
    if not missing or any(point.sequence >= closed for point in passed):
        return None
    detail = (
        f"the books are closed through transaction {closed}, and no head from there on is kept, so that nothing"
        f" covers {missing[-1].source}: compare the archives, too (--archive)"
    )
    return Finding(sequence=closed, what=What.HEAD, detail=detail)


async def _epoch_finding(
    connection: AsyncConnection, end: read.Head | None, newest: Head | None, evidence: Evidence
) -> Finding | None:
    """Return a finding if the epochs are not those of the leaders that there were."""
    if end is None or newest is None:
        return None
    cluster, epoch = end.cluster, max(newest.epoch, evidence.epoch or 0)
    written = await positions.latest_epoch(connection, cluster)
    if evidence.epoch is not None and written.epoch > epoch:
        detail = (
            f"it was written under epoch {written.epoch}, and no leader has had one above {epoch}: whoever wrote it"
            " was none, and deposes every leader; restore the ledger from before it (docs/runbook.md)"
        )
        return Finding(sequence=written.sequence, what=What.EPOCH, detail=detail)
    earlier = await positions.first_below(connection, cluster, after=newest.sequence, epoch=newest.epoch)
    if earlier is not None:
        detail = f"it was written under epoch {earlier.epoch}, which was over when epoch {newest.epoch} had begun"
        return Finding(sequence=earlier.sequence, what=What.EPOCH, detail=detail)
    known = max(epoch, written.epoch)
    if end.epoch < newest.epoch:
        detail = (
            f"the epoch in table clusters was put back to {end.epoch}, so that leaders whose time is over could write:"
            f" {_correction(cluster, known)}"
        )
        return Finding(sequence=end.sequence, what=What.EPOCH, detail=detail)
    if end.epoch > known:
        later = (
            ""
            if evidence.epoch is not None
            else f" If a leader has begun since {signed_head.instant(newest.at)}, compare with its heads instead."
        )
        detail = (
            f"the epoch in table clusters is {end.epoch}, and no head, transaction or lease has one above {known}: it"
            f" was raised in the table alone, and deposes every leader: {_correction(cluster, known)}{later}"
        )
        return Finding(sequence=end.sequence, what=What.EPOCH, detail=detail)
    return None


def _correction(cluster: str, epoch: int) -> str:
    """Return the statement that sets an epoch right, for the owner of the database."""
    quoted = cluster.replace("'", "''")
    return f"UPDATE clusters SET epoch = {epoch} WHERE cluster = '{quoted}';"  # noqa: S608 - it is shown, not run


async def _foreign_finding(
    connection: AsyncConnection, cluster: str, heads: Sequence[Head], evidence: Evidence, closed: int
) -> Finding | None:
    """Return a finding for the first transaction that no leader wrote, but for closings and what is accepted."""
    for first, last in signed_head.not_accepted({one for head in heads for one in head.foreign}, evidence.accepted):
        query = (
            select(transactions.c.sequence, transactions.c.kind, transactions.c.queue, transactions.c.actor)
            .where(transactions.c.cluster == cluster, transactions.c.kind != Kind.CLOSE.value)
            .where(transactions.c.sequence.between(max(first, closed + 1), last))
            .order_by(transactions.c.sequence)
            .limit(1)
        )
        row = (await connection.execute(query)).one_or_none()
        if row is not None:
            detail = (
                f"another client than the leader wrote it ({row.kind} of queue {row.queue or '-'}, by {row.actor}). If"
                f" it is a correction that you know (`muster ledger reconcile --fix`), pass --accept {first}-{last}"
            )
            return Finding(sequence=row.sequence, what=What.FOREIGN, detail=detail)
    return None
