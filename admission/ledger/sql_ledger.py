"""The ledger of one cluster in a SQL database: what the controller, the commands and the dashboard call."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self, TypeVar

import tenacity
from sqlalchemy import URL, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import (
    Allocation,
    BudgetShare,
    ChainEnd,
    Entry,
    MeasuredPage,
    MeasuredUsage,
    MemberUsageInterval,
    Posted,
    UsageInterval,
    Waited,
)
from admission.api.values.names import QueueName
from admission.errors import LedgerCorruptError, LedgerUnavailableError, LedgerVersionError
from admission.ledger.audit import close_period, kept_heads, rebuild, verify
from admission.ledger.audit.close_period import Order
from admission.ledger.audit.kept_heads import Evidence, Proof
from admission.ledger.audit.verify import Verification
from admission.ledger.db import database_url, engines, migrations
from admission.ledger.db.errors import translated
from admission.ledger.db.tables import GENESIS, REVISION
from admission.ledger.journal import (
    amend,
    base,
    measured_usage,
    positions,
    post,
    read,
    shared_budgets,
    waiting_hours,
)
from admission.ledger.journal.base import Window
from admission.ledger.journal.carry_forward import Carried
from admission.ledger.reports import allocation_intervals, member_usage, statement, usage
from admission.ledger.reports.statement import Statement

T = TypeVar("T")

PATIENCE = 5.0
"""Seconds for which a call is retried while the database is down or other writers come first. After that the caller
decides whether to wait."""

_UNDEFINED_TABLE = "42P01"
"""PostgreSQL's SQLSTATE."""


class SqlLedger:
    """The books of one cluster. Made by `open`; safe for concurrent use in one event loop."""

    def __init__(self, engine: AsyncEngine, url: URL, cluster: str) -> None:
        self._engine = engine
        self._url = url
        self._cluster = cluster
        self._write_lock = asyncio.Lock()
        self._last_head: read.Head | None = None
        """The end of the chain at the latest read."""

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, cluster: str) -> AsyncIterator[Self]:
        """Yield the ledger at a URL (sqlite or postgresql).

        Raises LedgerVersionError when its schema is missing, older or newer than this program's, LedgerCorruptError
        when the file is no database, LedgerUnavailableError when the database does not answer, and FixError for a bad
        URL.
        """
        parsed = database_url.parsed(url)
        await _check_exists(parsed)
        async with engines.engine(parsed) as engine:
            with translated(parsed):
                async with engines.reading(engine) as connection:
                    revision = await _revision(connection)
            await _check_revision(parsed, revision)
            yield cls(engine, parsed, cluster)

    async def load(self) -> Book:
        """Return the book: every balance, and the open gangs, seats and holdings."""

        async def once() -> Book:
            async with engines.reading(self._engine) as connection:
                self._last_head = await read.head(connection, self._cluster)
                return await read.book(connection, self._cluster)

        return await self._persist(once)

    async def sequence(self) -> int:
        """Return the number of the latest entry, by any writer; 0 before the first."""

        async def once() -> int:
            async with engines.reading(self._engine) as connection:
                head = await read.head(connection, self._cluster)
                return 0 if head is None else head.sequence

        return await self._persist(once)

    async def end(self) -> ChainEnd:
        """Return the end of the chain as it is stored, and the place through which its rows were archived."""

        async def once() -> ChainEnd:
            async with engines.reading(self._engine) as connection:
                head = await read.head(connection, self._cluster)
                start = await base.base(connection, self._cluster)
            if head is None:
                return ChainEnd(epoch=0, sequence=0, digest=GENESIS, closed=start.sequence)
            return ChainEnd(epoch=head.epoch, sequence=head.sequence, digest=head.digest, closed=start.sequence)

        return await self._persist(once)

    async def digests(self, sequences: Collection[int]) -> dict[int, str]:
        """Return the digests at these places; what is not there, or was archived, is left out."""

        async def once() -> dict[int, str]:
            async with engines.reading(self._engine) as connection:
                found = await positions.positions(connection, self._cluster, sequences)
                return {sequence: position.digest for sequence, position in found.items()}

        return await self._persist(once)

    async def entries(self, first: int, last: int) -> list[tuple[int, Entry]]:
        """Return the entries from a place through another, with their places. Raises LedgerCorruptError."""

        async def once() -> list[tuple[int, Entry]]:
            async with engines.reading(self._engine) as connection:
                try:
                    found = await read.records(connection, self._cluster, after=first - 1, limit=last - first + 1)
                except ValueError as error:
                    raise LedgerCorruptError(f"{error}: run `muster ledger verify`") from error
                return [(record.sequence, record.entry) for record in found if record.sequence <= last]

        return await self._persist(once)

    async def first_of(self, epoch: int, *, after: int) -> int | None:
        """Return the first place after one that was written under this epoch or a later one; None if none was."""

        async def once() -> int | None:
            async with engines.reading(self._engine) as connection:
                return await positions.first_of(connection, self._cluster, epoch, after=after)

        return await self._persist(once)

    async def since(self, sequence: int, *, most: int) -> list[Entry] | None:
        """Return the entries after a number, in order; None where they do not explain every change since.

        None is returned for more than `most` entries, for books other than those read up to that number (restored from
        a backup, for example), and after entries were archived or the projections rebuilt.
        """

        async def once() -> list[Entry] | None:
            known = self._last_head
            if known is None or known.sequence != sequence:
                return None
            async with engines.reading(self._engine) as connection:
                self._last_head = end = await read.head(connection, self._cluster)
                return await read.since(connection, self._cluster, known, end, most=most)

        return await self._persist(once)

    async def post(self, entry: Entry, *, epoch: int) -> Posted:
        """Record one entry, as `post_all` does."""
        (posted,) = await self.post_all((entry,), epoch=epoch)
        return posted

    async def post_all(
        self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
    ) -> list[Posted]:
        """Record entries under a leader's epoch, in order, all or none; an entry whose key is stored changes nothing.

        shares: this cluster's shares of shared budgets with these entries. Raises BudgetTakenError when all clusters
        together would exceed a limit, DeposedError when a later leader has written, ConflictError when an entry was
        made for another book than the ledger's or is older than its latest (load it again), LedgerUnavailableError when
        the outcome is unknown (post the same entries again), PageError and AmountError as `entry_rules.check`.
        """

        async def once() -> list[Posted]:
            async with engines.writing(self._engine) as connection:
                posted = await post.post_all(connection, self._cluster, entries, epoch=epoch)
                if shares:
                    await post.hold(connection, self._cluster, epoch)
                    await shared_budgets.write_within_limits(connection, self._cluster, shares)
                return posted

        return await self._exclusively(once)

    async def write_shares(self, shares: Sequence[BudgetShare], *, epoch: int, now: datetime) -> list[BudgetShare]:
        """Store this cluster's shares of shared budgets, even where the sum exceeds the limit.

        A period that begins after `now` and has no stated share is reset to zero. Return the same shares in their
        order, with `seconds` as the sum over all clusters. Raises DeposedError and LedgerUnavailableError.
        """

        async def once() -> list[BudgetShare]:
            async with engines.writing(self._engine) as connection:
                await post.hold(connection, self._cluster, epoch)
                return await shared_budgets.write(connection, self._cluster, shares, now)

        return await self._exclusively(once)

    async def write_waiting(self, waited: Waited, *, epoch: int, keep_from: datetime) -> None:
        """Replace how long gangs have waited in these hours and days, and remove those before `keep_from`.

        Raises DeposedError and LedgerUnavailableError.
        """

        async def once() -> None:
            async with engines.writing(self._engine) as connection:
                await post.hold(connection, self._cluster, epoch)
                await waiting_hours.write(connection, self._cluster, waited, keep_from=keep_from)

        await self._exclusively(once)

    async def waiting(self, start: datetime, end: datetime) -> Waited:
        """Return how long gangs have waited in the hours, and on the days, that begin in a time.

        Raises LedgerUnavailableError.
        """

        async def once() -> Waited:
            async with engines.reading(self._engine) as connection:
                window = Window(start, end)
                hours = await waiting_hours.between(connection, self._cluster, window)
                return Waited(hours, await waiting_hours.shapes_between(connection, self._cluster, window))

        return await self._persist(once)

    async def measured(self) -> MeasuredPage | None:
        """Return the page of allocations that was measured last; None if none was. Raises LedgerUnavailableError."""

        async def once() -> MeasuredPage | None:
            async with engines.reading(self._engine) as connection:
                try:
                    return await measured_usage.latest(connection, self._cluster)
                except ValueError as error:
                    raise LedgerCorruptError(f"{error}: run `muster ledger verify`") from error

        return await self._persist(once)

    async def allocations(self, start: datetime, end: datetime) -> list[Allocation]:
        """Return the allocations of devices in a time of whole seconds, as far as it is not closed, in a fixed order.

        Raises LedgerUnavailableError.
        """
        async with self.snapshot() as connection:
            return await allocation_intervals.allocations(connection, self._cluster, Window(start, end))

    async def recorded(
        self, start: datetime, end: datetime, queues: Collection[QueueName]
    ) -> AsyncIterator[MeasuredUsage]:
        """Yield the rows of queues in times within a time, oldest first. Raises LedgerUnavailableError."""
        async with self.snapshot() as connection:
            async for row in measured_usage.within(connection, self._cluster, Window(start, end), queues):
                yield row

    async def write_measured(self, entry: Entry, rows: Sequence[MeasuredUsage], *, epoch: int) -> list[Posted]:
        """Record a measure entry with its rows, together or not at all; if its key is stored, nothing changes.

        Raises as `post_all`.
        """

        async def once() -> list[Posted]:
            async with engines.writing(self._engine) as connection:
                (posted,) = await post.post_all(connection, self._cluster, (entry,), epoch=epoch)
                if not posted.repeated:
                    await measured_usage.write(connection, self._cluster, posted.sequence, rows)
                return [posted]

        return await self._exclusively(once)

    async def spent(self, since: datetime) -> dict[QueueMeter, int]:
        """Return the meter-seconds used from `since` (cut to the second) up to the latest mark; no zeros."""
        async with self.snapshot() as connection:
            return await usage.spent(connection, self._cluster, since)

    async def usage(self, since: datetime) -> list[UsageInterval]:
        """Return the same use by intervals between marks, oldest first."""
        async with self.snapshot() as connection:
            return await usage.usage(connection, self._cluster, since)

    async def member_usage(self, since: datetime, until: datetime, step: timedelta) -> list[MemberUsageInterval]:
        """Return the use of a time by namespace and creator, step by step, oldest first, as far as it is not closed."""
        async with self.snapshot() as connection:
            return await member_usage.member_usage(connection, self._cluster, Window(since, until), step)

    async def fence(self, epoch: int) -> None:
        """Fence off the leaders of earlier epochs; a new leader does so before `load`. Raises DeposedError."""

        async def once() -> None:
            async with engines.writing(self._engine) as connection:
                await post.fence(connection, self._cluster, epoch)

        await self._exclusively(once)

    async def amend(self, entries: Sequence[Entry], *, known: Book) -> list[Posted]:
        """Record entries without the leadership. Raises ConflictError when the ledger is ahead of the book `known`."""

        async def once() -> list[Posted]:
            async with engines.writing(self._engine) as connection:
                return await amend.amend(connection, self._cluster, entries, known=known.sequence)

        return await self._exclusively(once)

    async def rebuild(self, note: Entry) -> Posted:
        """Rebuild the projections from the chain, and record an entry without lines that notes it.

        Raises LedgerCorruptError when the chain is wrong, and ConflictError when another client writes meanwhile.
        """
        async with self.snapshot() as connection:
            book = await rebuild.replayed(connection, self._cluster)

        async def once() -> Posted:
            async with engines.writing(self._engine, seconds=engines.PATIENT_SECONDS) as connection:
                return await rebuild.rebuild(connection, self._cluster, book, note)

        return await self._exclusively(once)

    async def close_period(self, order: Order) -> Carried | None:
        """Close the books through the last mark at or before a time; None when there is nothing to close.

        Raises LedgerCorruptError when the books are wrong, FixError when the archive cannot be written, and
        ConflictError when another client closes them.
        """
        async with self.snapshot() as connection:
            prepared = await close_period.prepare(connection, self._cluster, order)
        if prepared is None:
            return None

        async def once() -> Carried:
            async with engines.writing(self._engine, seconds=engines.PATIENT_SECONDS) as connection:
                await close_period.commit(connection, prepared, order)
                return prepared.carried

        return await self._exclusively(once)

    async def verify(self, *, archive: Path | None = None) -> Verification:
        """Replay the books; return how far they are right and the first finding, if any.

        archive: the folder with the archives of closed periods, to replay from the very first row; by default the state
        that the latest closing carried forward is trusted.
        """
        with translated(self._url):
            async with engines.reading(self._engine, seconds=engines.PATIENT_SECONDS) as connection:
                return await verify.verify(connection, self._cluster, archive=archive)

    async def prove(self, evidence: Evidence, *, archive: Path | None = None) -> Proof:
        """Replay the books as `verify` does, and compare them with what is known from elsewhere."""
        with translated(self._url):
            async with engines.reading(self._engine, seconds=engines.PATIENT_SECONDS) as connection:
                return await kept_heads.prove(connection, self._cluster, evidence, archive=archive)

    async def statement(self, queue: QueueName | None, start: datetime, end: datetime) -> Statement:
        """Return the movements of a queue, or of all queues, in [start, end), with running balances."""
        async with self.snapshot() as connection:
            return await statement.statement(connection, self._cluster, queue, start, end)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Yield a connection that sees one consistent state of all clusters' books, for reports and exports."""
        with translated(self._url):
            async with engines.reading(self._engine, seconds=engines.PATIENT_SECONDS) as connection:
                yield connection

    async def _exclusively(self, write: Callable[[], Awaitable[T]]) -> T:
        """Write after earlier calls have finished, so that a retry does not change the order."""
        async with self._write_lock:
            return await self._persist(write)

    async def _persist(self, work: Callable[[], Awaitable[T]]) -> T:
        """Retry while the database is down, for PATIENCE seconds.

        Writing twice is safe: after a commit whose answer was lost, the retry finds the entries by their keys.
        """
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type((LedgerUnavailableError, post.OvertakenError)),
            wait=tenacity.wait_random_exponential(multiplier=0.02, max=1.0),
            # At least one retry: only the timeout of the first attempt shows that a connection died long ago.
            stop=tenacity.stop_all(tenacity.stop_after_delay(PATIENCE), tenacity.stop_after_attempt(2)),
            reraise=True,
        )
        try:
            return await retrying(self._translated, work)
        except post.OvertakenError as error:
            raise LedgerUnavailableError(
                f"the ledger {database_url.redacted(self._url)} is busy with the writes of other processes"
            ) from error

    async def _translated(self, work: Callable[[], Awaitable[T]]) -> T:
        with translated(self._url):
            return await work()


async def _check_exists(url: URL) -> None:
    file = database_url.file_of(url)
    if file is not None and not await asyncio.to_thread(file.exists):
        raise LedgerVersionError(f"there is no ledger at {file}: run `muster ledger migrate`")


async def _revision(connection: AsyncConnection) -> str | None:
    try:
        async with connection.begin_nested():
            return (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one_or_none()
    except (OperationalError, ProgrammingError) as error:
        if getattr(error.orig, "sqlstate", None) == _UNDEFINED_TABLE or "no such table" in str(error.orig):
            return None
        raise


async def _check_revision(url: URL, revision: str | None) -> None:
    if revision == REVISION:
        return
    place = f"the ledger {database_url.redacted(url)}"
    if revision is None:
        raise LedgerVersionError(f"{place} has no tables yet: run `muster ledger migrate`")
    if revision in await migrations.known_revisions():
        raise LedgerVersionError(
            f"{place} is at revision {revision}, older than {REVISION}: run `muster ledger migrate`"
        )
    raise LedgerVersionError(
        f"{place} is at revision {revision}, which this Muster does not know (its own is {REVISION}):"
        " run the Muster that upgraded it, or a later one"
    )
