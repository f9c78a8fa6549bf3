"""The ledger that the flow posts to, in a SQL database."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Self

from sqlalchemy import URL, text
from sqlalchemy.exc import OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from admission.api.entries import Entry, Posted
from admission.api.names import QueueName
from admission.errors import LedgerAwayError, LedgerVersionError
from admission.ledger import migrating, posting, reading, reporting, sessions, verifying
from admission.ledger.reporting import StatementLine
from admission.ledger.tables import REVISION
from admission.ledger.verifying import Verification
from admission.quota.books import Book

_ATTEMPTS = 10
"""How often a writer that was overtaken by another process starts again."""


class SqlLedger:
    """The books of one cluster. Made by `open`; safe for concurrent use in one event loop."""

    def __init__(self, engine: AsyncEngine, url: URL, cluster: str) -> None:
        self._engine = engine
        self._url = url
        self._cluster = cluster
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, cluster: str) -> AsyncIterator[Self]:
        """Yield the ledger at a URL (sqlite or postgresql).

        Raises LedgerVersionError when its schema is missing, older or newer than this program's, LedgerCorruptError
        when the file is no database, LedgerAwayError when the database does not answer, and MendError for a bad URL.
        """
        parsed = sessions.parsed(url)
        await _check_presence(parsed)
        async with sessions.engine(parsed) as engine:
            with sessions.translated(parsed):
                async with sessions.reading(engine) as connection:
                    revision = await _revision(connection)
            await _check_revision(parsed, revision)
            yield cls(engine, parsed, cluster)

    async def load(self) -> Book:
        """Return what is open, and every balance."""
        with sessions.translated(self._url):
            async with sessions.reading(self._engine) as connection:
                return await reading.book(connection, self._cluster)

    async def post(self, entry: Entry, *, epoch: int) -> Posted:
        """Record one entry, as `post_all` does."""
        (posted,) = await self.post_all((entry,), epoch=epoch)
        return posted

    async def post_all(self, entries: Sequence[Entry], *, epoch: int) -> list[Posted]:
        """Record entries under a leader's epoch, in order, all or none; a key that is there already changes nothing.

        Raises DeposedError when a later leader has written, ConflictError when an entry was made for another book than
        the ledger's (load it again), LedgerAwayError when the outcome is unknown (post the same entries again),
        PageError and AmountError as `forms.check`.
        """
        for _ in range(_ATTEMPTS):
            try:
                async with self._writing() as connection:
                    return [await posting.post(connection, self._cluster, entry, epoch=epoch) for entry in entries]
            except posting.OvertakenError:
                continue
        raise self._overtaken()

    async def fence(self, epoch: int) -> None:
        """Shut out the leaders of earlier epochs; a new leader does so before it loads. Raises DeposedError."""
        for _ in range(_ATTEMPTS):
            try:
                async with self._writing() as connection:
                    return await posting.fence(connection, self._cluster, epoch)
            except posting.OvertakenError:
                continue
        raise self._overtaken()

    async def verify(self) -> Verification:
        """Replay the books from the first row; return how far they are right and the first finding, if any."""
        with sessions.translated(self._url):
            async with sessions.reading(self._engine) as connection:
                return await verifying.verify(connection, self._cluster)

    async def statement(self, queue: QueueName | None, start: datetime, end: datetime) -> list[StatementLine]:
        """Return what moved on a queue, or on all, from start on and before end, with running balances."""
        with sessions.translated(self._url):
            async with sessions.reading(self._engine) as connection:
                return await reporting.statement(connection, self._cluster, queue, start, end)

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[AsyncConnection]:
        with sessions.translated(self._url):
            async with self._turn, sessions.writing(self._engine) as connection:
                yield connection

    def _overtaken(self) -> LedgerAwayError:
        return LedgerAwayError(f"the ledger {sessions.shown(self._url)} is busy with the writes of other processes")


async def _check_presence(url: URL) -> None:
    file = sessions.file_of(url)
    if file is not None and not await asyncio.to_thread(file.exists):
        raise LedgerVersionError(f"there is no ledger at {file}: run `muster ledger migrate`")


async def _revision(connection: AsyncConnection) -> str | None:
    try:
        async with connection.begin_nested():
            return (await connection.execute(text("SELECT version_num FROM alembic_version"))).scalar_one_or_none()
    except (OperationalError, ProgrammingError) as error:
        if "alembic_version" in str(error.orig):
            return None
        raise


async def _check_revision(url: URL, revision: str | None) -> None:
    if revision == REVISION:
        return
    place = f"the ledger {sessions.shown(url)}"
    if revision is None:
        raise LedgerVersionError(f"{place} has no tables yet: run `muster ledger migrate`")
    if revision in await migrating.known_revisions():
        raise LedgerVersionError(
            f"{place} is at revision {revision}, older than {REVISION}: run `muster ledger migrate`"
        )
    raise LedgerVersionError(
        f"{place} is at revision {revision}, which this Muster does not know (its own is {REVISION}):"
        " run the Muster that upgraded it, or a later one"
    )
