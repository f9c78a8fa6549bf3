"""Engines and SQL transactions, and what a failing database means to the caller."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, event, exc, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from admission.errors import LedgerAwayError, LedgerCorruptError, MendError

_PASSING = ("08", "40", "53", "55", "57", "58")
"""PostgreSQL's classes of SQLSTATE for what may succeed later: connection, rollback, resources, locks, shutdown."""

BUSY_SECONDS = 10
"""How long a statement waits for another process's SQL transaction."""

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}

_DAMAGED = ("file is not a database", "malformed", "file is encrypted")


def parsed(url: str) -> URL:
    """Return the URL with the asynchronous driver. Raises MendError when it names no database that Muster can use."""
    try:
        parsed_url = make_url(url)
    except exc.ArgumentError as error:
        raise MendError(f"{url!r} is not a database URL such as sqlite:////var/lib/muster/ledger.db") from error
    name = parsed_url.get_backend_name()
    if name not in _DRIVERS:
        raise MendError(f"the ledger is kept in sqlite or postgresql, not in {name}")
    if name == "sqlite" and file_of(parsed_url) is None:
        raise MendError("the ledger needs a file: sqlite:////var/lib/muster/ledger.db; memory forgets it")
    return parsed_url.set(drivername=_DRIVERS[name])


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite URL; None for PostgreSQL and for a database in memory."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def shown(url: URL) -> str:
    """Return how messages name a database: the file, or the URL without its password."""
    return str(file_of(url) or url.render_as_string(hide_password=True))


@asynccontextmanager
async def engine(url: URL) -> AsyncIterator[AsyncEngine]:
    """Yield an engine that is disposed of afterwards. Raises MendError when the database's driver is not installed."""
    lite = url.get_backend_name() == "sqlite"
    try:
        # In a thread, since it imports the driver and asks for the working directory.
        made = await asyncio.to_thread(
            create_async_engine, url, connect_args=sqlite_arguments() if lite else {}, pool_pre_ping=not lite
        )
    except ModuleNotFoundError as error:
        raise MendError(f"a ledger in {url.get_backend_name()} needs the Python package {error.name}") from error
    if lite:
        prepare_sqlite(made.sync_engine)
    try:
        yield made
    finally:
        await made.dispose()


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


@asynccontextmanager
async def writing(made: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Yield a connection in a SQL transaction that commits at the end.

    SQLite takes its write lock at once: a transaction that reads first and then finds another's write cannot continue.
    """
    async with made.execution_options(begin="IMMEDIATE").begin() as connection:
        yield connection


@asynccontextmanager
async def reading(made: AsyncEngine) -> AsyncIterator[AsyncConnection]:
    """Yield a connection in a SQL transaction that sees one state of the database throughout."""
    options = {} if made.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    async with made.execution_options(**options).begin() as connection:
        yield connection


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn what the database raises into what the caller has to do: wait, or have a person look."""
    try:
        yield
    except exc.DBAPIError as error:
        raise _translation(error, url) from error
    except (exc.TimeoutError, OSError) as error:
        raise LedgerAwayError(f"the ledger {shown(url)} does not answer: {error}") from error


def _translation(error: exc.DBAPIError, url: URL) -> Exception:
    cause = str(error.orig)
    if isinstance(error.orig, sqlite3.DatabaseError) and any(words in cause for words in _DAMAGED):
        return LedgerCorruptError(
            f"{shown(url)} cannot be read as a ledger ({cause}): move it away with its -wal and -shm files and restore"
            " a backup, then run `muster ledger verify`; without a backup, point the ledger's URL to a new file, run"
            " `muster ledger migrate` and `muster ledger reconcile`"
        )
    state = str(getattr(error.orig, "sqlstate", None) or "")
    if (
        isinstance(error, exc.OperationalError | exc.InterfaceError)
        or error.connection_invalidated
        or state.startswith(_PASSING)
    ):
        return LedgerAwayError(f"the ledger {shown(url)} does not answer: {cause}")
    if isinstance(error, exc.IntegrityError):
        return LedgerCorruptError(
            f"the ledger {shown(url)} holds rows that contradict its chain ({cause}): run `muster ledger verify`"
        )
    return MendError(f"the ledger {shown(url)} refuses Muster: {cause}")
