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
from admission.ledger.db.postgres import FAREWELL_SECONDS, Connector, Watch
from admission.ledger.db.tables import FORMATS, GENESIS, clusters, transactions

BUSY_SECONDS = 5
"""How long a statement of SQLite waits for another process's SQL transaction."""

ANSWER_SECONDS = 10.0
"""How long a SQL transaction of the controller may take on PostgreSQL before the database counts as away."""

PATIENT_SECONDS = 3600.0
"""How long one may take that a person waits for, such as verifying, or migrating, a large ledger."""

_CONNECTIONS = 4


@asynccontextmanager
async def engine(url: URL) -> AsyncIterator[AsyncEngine]:
    """Yield an engine that is disposed of afterwards."""
    if url.get_backend_name() == "sqlite":
        # In a thread, since it imports the driver and asks for the working directory.
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

    No ping before each use: a connection that broke meanwhile fails the first statement, and the caller repeats it all
    on another one anyway. READ COMMITTED is enough: a writer holds its cluster's head by a conditional UPDATE, sees
    what was committed before that, and nobody else moves the chain until its commit. SERIALIZABLE would only add
    transactions that have to be repeated.
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
    """Return arguments of `sqlite3.connect`. Without an isolation level, Python begins no transaction of its own."""
    return {"isolation_level": None, "timeout": BUSY_SECONDS}


def prepare_sqlite(made: Engine) -> None:
    """Set SQLite's pragmas on every connection, and begin transactions as their `begin` option says."""

    @event.listens_for(made, "connect")
    def _pragmas(connection: Any, _record: Any) -> None:
        cursor = connection.cursor()
        # FULL: a commit that was answered survives a loss of power. In WAL mode, NORMAL would not promise that.
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(made, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('begin', 'DEFERRED')}")

    @event.listens_for(made, "invalidate")
    def _give_back(connection: Any, _record: Any, _error: BaseException | None) -> None:
        # A caller that is cancelled leaves its statement unfinished. Closed like this, a connection of SQLite lives on
        # with its lock until the statement goes (https://sqlite.org/c3ref/close.html), and nobody can write any more.
        with contextlib.suppress(asyncio.CancelledError):  # once more: it is on its way already
            connection.rollback()


@asynccontextmanager
async def writing(made: AsyncEngine, *, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
    """Yield a connection in a SQL transaction that commits at the end, within `seconds` (None: ANSWER_SECONDS).

    SQLite takes its write lock at once: a transaction that reads first and then finds another's write cannot continue.
    """
    async with _transaction(made, seconds or ANSWER_SECONDS, begin="IMMEDIATE") as connection:
        yield connection


@asynccontextmanager
async def reading(made: AsyncEngine, *, seconds: float | None = None) -> AsyncIterator[AsyncConnection]:
    """Yield a connection in a SQL transaction that sees one state of the database throughout (None: ANSWER_SECONDS)."""
    lite = made.dialect.name == "sqlite"
    options = {} if lite else {"isolation_level": "REPEATABLE READ"}
    async with _transaction(made, seconds or ANSWER_SECONDS, **options) as connection:
        if not lite:
            # It locks nothing that others wait for, and whoever reads the output may take their time.
            await connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield connection


@asynccontextmanager
async def _transaction(made: AsyncEngine, seconds: float, **options: Any) -> AsyncIterator[AsyncConnection]:
    with Watch(seconds) as watch:
        try:
            async with made.connect() as connection:
                await watch.over(connection)
                try:
                    yield await connection.execution_options(**options)
                    await connection.commit()
                except BaseException:
                    watch.hurry()
                    raise
        except exc.DBAPIError as error:
            if watch.has_cut:
                raise TimeoutError(f"no answer within {seconds:g} s") from error
            raise


NOBODY = "muster doctor"
"""A cluster that nobody has: no leader waits for its row, and none for us."""

BYTES = 4 << 20
"""Twice what SQLite keeps in memory, and more than there is room for in pages of PostgreSQL: a full disk shows."""


async def write(url: str) -> None:
    """Write an entry into a ledger of this program's revision, as the controller does, and roll it back.

    Raises LedgerAwayError where writing may succeed later, as on a full disk or a standby, and FixError where it will
    not, as without the right.
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
        "reason": secrets.token_hex(BYTES // 2),  # nothing makes it smaller
        "previous": GENESIS,
        "digest": GENESIS,
    }
    with translated(parsed):
        async with engine(parsed) as opened, writing(opened) as connection:
            await connection.execute(insert(clusters), [head])
            await connection.execute(insert(transactions), [entry])
            await connection.rollback()
