"""Connections to PostgreSQL that never block a caller for ever.

asyncpg parses the URL as libpq does, with `sslmode`, `sslrootcert`, `passfile`, `target_session_attrs` and the PG…
variables of the environment. If the server hangs, or the network drops packets, our own timer (`TransactionTimer`) cuts
the connection. asyncpg's `command_timeout` is not enough: when it expires, asyncpg asks the server to cancel the
command and waits for the answer, for ever if the server hangs.
"""

import asyncio
from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import URL
from sqlalchemy.ext.asyncio import AsyncConnection

from admission.errors import FixError

CONNECT_SECONDS = 5.0
"""How long a new connection may take, TLS and authentication included; `connect_timeout` in the URL overrides it."""

FAREWELL_SECONDS = 2.0
"""How long a rollback may take after a failure, and the closing of a connection."""

_SETTINGS = {
    # A writer waits this long for a row that another one has locked.
    "lock_timeout": "5s",
    # Free the locks of a client that froze within a SQL transaction …
    "idle_in_transaction_session_timeout": "60s",
    # … or whose connection broke unnoticed.
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_KEPT = "CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END"
"""A confirmed commit survives a crash of the server even where the server's default is `off`."""

_SET = "SELECT " + ", ".join(
    f"set_config('{name}', {value}, false)"
    for name, value in {
        **{name: f"'{value}'" for name, value in _SETTINGS.items()},
        "synchronous_commit": _KEPT,
    }.items()
)


class Connector:
    """Opens connections for SQLAlchemy's pool, and can cut all of them."""

    def __init__(self, url: URL) -> None:
        query = dict(url.query)
        if "ssl" in query:  # SQLAlchemy's name for it
            query["sslmode"] = query.pop("ssl")
        self._seconds = _seconds(query.pop("connect_timeout", None))
        query.setdefault("application_name", "muster")
        self._dsn = url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)
        self._opened: WeakKeyDictionary[Any, asyncio.TimerHandle] = WeakKeyDictionary()

    async def __call__(self) -> Any:
        """Return a new asyncpg connection."""
        seconds = CONNECT_SECONDS if self._seconds is None else self._seconds
        try:
            connection = await asyncpg.connect(self._dsn, timeout=seconds)
        except TimeoutError as error:
            raise TimeoutError(f"no connection within {seconds:g} s") from error
        # The timer covers the first statements of SQLAlchemy, until the pool hands the connection out.
        self._opened[connection] = asyncio.get_running_loop().call_later(seconds, connection.terminate)
        try:
            await connection.execute(_SET)
        except BaseException:  # including cancellation, after which no one else has a reference to it
            connection.terminate()
            raise
        return connection

    def hand_out(self, connection: Any) -> None:
        """Stop the timer of a new connection: from now on the caller's `TransactionTimer` covers it."""
        self._opened[connection].cancel()

    def cut(self) -> None:
        """Cut all open connections without notifying the server."""
        for connection in list(self._opened):
            connection.terminate()


def _seconds(text: object) -> float | None:
    try:
        return None if text is None else float(str(text))
    except ValueError as error:
        raise FixError(f"connect_timeout in the ledger's URL is {text!r}, not a number of seconds") from error


class TransactionTimer:
    """A context: cuts the connection of a SQL transaction that exceeds its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.has_terminated = False
        self._driver: Any = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    async def start(self, connection: AsyncConnection) -> None:
        """Start the timer. SQLite's connections need none: their only wait, for a lock, has a timeout of its own."""
        driver = (await connection.get_raw_connection()).driver_connection
        if isinstance(driver, asyncpg.Connection):
            self._driver = driver
            self._start(self.seconds)

    def shorten(self) -> None:
        """Restart the timer with FAREWELL_SECONDS: the transaction has failed, or its task is cancelled."""
        if self._driver is not None:
            self._stop()
            self._start(FAREWELL_SECONDS)

    def _start(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._cut)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _cut(self) -> None:
        self.has_terminated = True
        self._driver.terminate()
