"""Creating and upgrading the schema, by alembic's scripts in the folder `migrations`.

Alembic is synchronous and reads files, so it runs in a thread. One process migrates at a time: SQLite's exclusive lock
and PostgreSQL's advisory lock (in `migrations/env.py`) are held until the commit.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, create_engine, exc

from admission import resources
from admission.errors import LedgerVersionError
from admission.ledger.db import database_url, engines
from admission.ledger.db.errors import translated

T = TypeVar("T")

LOCK_SECONDS = 10.0
"""How long a migration waits on PostgreSQL for another migration, or for the users of a table, before it fails: while
it waits, all later users of the table queue behind it."""

_RETRY_SECONDS = 0.02
"""The pause between two tries to connect to a file of SQLite that others write."""

_ALEMBIC = threading.Lock()
"""Held while alembic runs: the `context` and `op` of its scripts are global to the process."""


async def migrate(url: str, *, revision: str = "head") -> None:
    """Create the ledger or upgrade it. Raises LedgerVersionError when a newer Muster has upgraded it already."""
    await asyncio.to_thread(_migrate, database_url.parsed(url), revision)


async def downgrade(url: str, *, revision: str) -> None:
    """Revert migrations down to a revision, or to `base`, which removes all books."""
    await asyncio.to_thread(_change, database_url.parsed(url), lambda config: command.downgrade(config, revision))


async def current_revision(url: str) -> str | None:
    """Return the schema's revision; None when there is no ledger yet."""
    return await asyncio.to_thread(_current, database_url.parsed(url))


async def known_revisions() -> list[str]:
    """Return the revisions for which this program has scripts, oldest first."""
    return await asyncio.to_thread(_known)


def _migrate(url: URL, revision: str) -> None:
    if file := database_url.file_of(url):
        file.parent.mkdir(parents=True, exist_ok=True)
    current = _current(url)
    if current is not None and current not in _known():
        raise LedgerVersionError(
            f"the ledger {database_url.redacted(url)} is at revision {current}, newer than this Muster's"
            f" {_known()[-1]}: run the Muster that upgraded it, or a later one"
        )
    _change(url, lambda config: command.upgrade(config, revision))


def _change(url: URL, work: Callable[[Config], None]) -> None:
    def on(connection: Connection) -> None:
        config = _config()
        config.attributes["connection"] = connection
        work(config)

    with _ALEMBIC, translated(url):
        _connected(url, on, begin="EXCLUSIVE", seconds=engines.PATIENT_SECONDS)


def _current(url: URL) -> str | None:
    file = database_url.file_of(url)
    if file is not None and not file.exists():
        return None
    with translated(url):
        return _connected(
            url, lambda on: MigrationContext.configure(on).get_current_revision(), begin="DEFERRED", seconds=None
        )


def _known() -> list[str]:
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return [script.revision for script in scripts][::-1]


def _config() -> Config:
    config = Config()
    # Doubled, since a percent sign starts an interpolation in alembic's options.
    config.set_main_option("script_location", str(resources.migrations()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _connected(url: URL, work: Callable[[Connection], T], *, begin: str, seconds: float | None) -> T:
    if url.get_backend_name() == "sqlite":
        return _in_sqlite(url, work, begin=begin)
    return asyncio.run(_in_postgresql(url, work, seconds=seconds))


def _in_sqlite(url: URL, work: Callable[[Connection], T], *, begin: str) -> T:
    engine = create_engine(url.set(drivername="sqlite"), connect_args=engines.sqlite_arguments())
    engines.prepare_sqlite(engine)
    try:
        with _connect_to_sqlite(engine.execution_options(begin=begin)) as connection, connection.begin():
            return work(connection)
    finally:
        engine.dispose()


def _connect_to_sqlite(engine: Engine) -> Connection:
    """Connect, which puts a new file into WAL mode, and wait up to BUSY_SECONDS for others that do so.

    SQLite calls no busy handler where a reader becomes a writer, as the pragma does inside, and reports the file as
    locked at once (https://sqlite.org/c3ref/busy_handler.html): processes that create one ledger would meet there.
    """
    until = time.monotonic() + engines.BUSY_SECONDS
    while True:
        try:
            return engine.connect()
        except exc.OperationalError as error:
            is_busy = getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > until:
                raise
        time.sleep(_RETRY_SECONDS)


async def _in_postgresql(url: URL, work: Callable[[Connection], T], *, seconds: float | None) -> T:
    async with engines.engine(url) as engine, engines.writing(engine, seconds=seconds) as connection:
        return await connection.run_sync(work)
