"""Engines and SQL transactions: each sees one state of the database, or commits at its end, within a bounded time."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, exc, insert, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from admission.api.muster.ledger_entries import Kind
from admission.ledger.db import database_url
from admission.ledger.db.errors import translated
from admission.ledger.db.postgres import FAREWELL_SECONDS, Connector, TransactionTimer
from admission.ledger.db.tables import FORMATS, GENESIS, clusters, transactions

BUSY_SECONDS = 5
"""How long a statement of SQLite waits for another process's SQL transaction."""

ANSWER_SECONDS = 10.0
"""How long a SQL transaction of the controller may take on PostgreSQL before the database counts as down."""

PATIENT_SECONDS = 3600.0
"""How long a SQL transaction may take for which a person waits, such as verifying or migrating a large ledger."""

_CONNECTIONS = 4


@asynccontextmanager
async def engine(url: URL) -> AsyncIterator[AsyncEngine]:
    """Yield an engine, and dispose of it afterwards."""
    if url.get_backend_name() == "sqlite":
        # In a thread, since creating it imports the driver and reads the working directory.
        made = await asyncio.to_thread(create_async_engine, url, connect_args=sqlite_arguments())
        prepare_sqlite(made.sync_engine)
        try:
            yield made
        finally:
            await made.dispose()
    else:
        async with _postgresql(Connector(url)) as made:
            yield made


@asynccontextmanager
async def _postgresql(connector: Connector) -> AsyncIterator[AsyncEngine]:
    """Yield an engine for PostgreSQL.

    No ping before each use: on a broken connection the first statement fails, and the caller retries all of them on
    another one anyway. READ COMMITTED is enough: a writer locks its cluster's head by a conditional UPDATE, sees all
    earlier commits, and no other writer moves the chain until its commit. SERIALIZABLE would only add retries.
    """
    made = await asyncio.to_thread(
        create_async_engine,
        "postgresql+asyncpg://",
        async_creator=connector,
        isolation_level="READ COMMITTED",
        pool_size=_CONNECTIONS,
        max_overflow=_CONNECTIONS,
        pool_timeout=ANSWER_SECONDS,
    )

    @event.listens_for(made.sync_engine, "checkout")
    def _hand_out(connection: Any, _record: Any, _proxy: Any) -> None:
        connector.hand_out(connection.driver_connection)

    try:
        yield made
    finally:
        try:
            with contextlib.suppress(TimeoutError, OSError):
                async with asyncio.timeout(FAREWELL_SECONDS):
                    await made.dispose()
        finally:
            connector.cut()


def sqlite_arguments() -> dict[str, Any]:
    """Return arguments of `sqlite3.connect`. Without an isolation level, Python begins no implicit transaction."""
    return {"isolation_level": None, "timeout": BUSY_SECONDS}


def prepare_sqlite(made: Engine) -> None:
    """Set SQLite's pragmas on every connection, and begin transactions as their `begin` option says."""

    @event.listens_for(made, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        # FULL: a confirmed commit survives a loss of power, which NORMAL does not guarantee in WAL mode.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('begin', 'DEFERRED')}")

    @event.listens_for(made, "invalidate")
    def _rollback_unfinished(connection: Any, _record: Any, _error: BaseException | None) -> None:
        # A cancelled caller leaves its statement unfinished. A SQLite connection that is closed with one keeps its lock
        # until the statement is finalized (https://sqlite.org/c3ref/close.html), which would block every writer.
        with contextlib.suppress(asyncio.CancelledError):  # the caller's cancellation is being raised already
            connection.rollback()


@asynccontextmanager
async def writing(made: AsyncEngine, *, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
    """Yield a connection in a SQL transaction that commits at the end, within `seconds` (None: ANSWER_SECONDS).

    SQLite takes its write lock at BEGIN: a transaction that reads first fails if another one writes before it does.
    """
    async with _transaction(made, seconds or ANSWER_SECONDS, begin="IMMEDIATE") as connection:
        yield connection


@asynccontextmanager
async def reading(made: AsyncEngine, *, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
    """Yield a connection in a SQL transaction that sees one state of the database throughout (None: ANSWER_SECONDS)."""
    is_sqlite = made.dialect.name == "sqlite"
    options = {} if is_sqlite else {"isolation_level": "REPEATABLE READ"}
    async with _transaction(made, seconds or ANSWER_SECONDS, **options) as connection:
        if not is_sqlite:
            # It holds no lock that others wait for, and the consumer of the output may be slow.
            await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield connection


@asynccontextmanager
async def _transaction(made: AsyncEngine, seconds: float, **options: Any) -> AsyncIterator[AsyncConnection]:
    with TransactionTimer(seconds) as timer:
        try:
            async with made.connect() as connection:
                await timer.start(connection)
                try:
                    yield await connection.execution_options(**options)
                    await connection.commit()
                except BaseException:
                    timer.shorten()
                    raise
        except exc.DBAPIError as error:
            if timer.has_terminated:
                raise TimeoutError(f"no answer within {seconds:g} s") from error
            raise


NOBODY = "muster doctor"
"""A cluster name that no controller uses, so that no leader and this probe wait for each other's rows."""

BYTES = 4 << 20
"""Twice SQLite's page cache, and more than the free space in PostgreSQL's pages, so that a full disk is noticed."""


async def write(url: str) -> None:
    """Probe whether the database takes writes: write an entry as the controller does, and roll it back.

    The ledger must have this program's revision. Raises LedgerUnavailableError where writing may succeed later, as on a
    full disk or a standby, and FixError where it will not, as without the permission.
    """
    parsed = database_url.parsed(url)
    head = {"cluster": NOBODY, "epoch": 0, "sequence": 0, "digest": GENESIS}
    texts = ("actor", "queue", "on_behalf_of", "user", "gang_uid", "gang", "seats", "holdings", "closes")
    entry = {
        **dict.fromkeys(texts, ""),
        "cluster": NOBODY,
        "sequence": 1,
        "format": FORMATS[-1],
        "epoch": 0,
        "key": NOBODY,
        "kind": Kind.ADJUST.value,
        "at": datetime.now(UTC),
        "reason": secrets.token_hex(BYTES // 2),  # random, so that compression does not shrink it
        "previous": GENESIS,
        "digest": GENESIS,
    }
    with translated(parsed):
        async with engine(parsed) as opened, writing(opened) as connection:
            await connection.execute(insert(clusters), [head])
            await connection.execute(insert(transactions), [entry])
            await connection.rollback()
