"""The ledger's URL: parsing it, and formatting it for messages without its secrets."""

import re
from pathlib import Path

from sqlalchemy import URL, exc, make_url

from admission.errors import FixError

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}

_LOGGED = frozenset({"host", "port", "dbname", "user", "sslmode", "target_session_attrs"})
"""Parameters of a URL that messages may show; the others may be passwords."""


def parsed(url: str) -> URL:
    """Return the URL with the asynchronous driver. Raises FixError when it names no database that Muster can use."""
    try:
        parsed_url = make_url(url)
    except (exc.ArgumentError, ValueError):
        # `from None`, since the text of the cause may contain a part of the password.
        raise FixError(
            f"{_mask_passwords(url)!r} is not a database URL such as sqlite:////var/lib/muster/ledger.db or"
            " postgresql://muster:password@host:5432/muster, with special characters of the password as %40"
        ) from None
    name = parsed_url.get_backend_name()
    if name not in _DRIVERS:
        raise FixError(f"the ledger is kept in sqlite or postgresql, not in {name}")
    if name == "sqlite" and file_of(parsed_url) is None:
        raise FixError("the ledger needs a file: sqlite:////var/lib/muster/ledger.db; memory forgets it")
    return parsed_url.set(drivername=_DRIVERS[name])


def file_of(url: URL) -> Path | None:
    """Return the file of a SQLite URL; None for PostgreSQL and for a database in memory."""
    if url.get_backend_name() != "sqlite" or url.database in {None, "", ":memory:"}:
        return None
    return Path(str(url.database))


def redacted(url: URL) -> str:
    """Return how messages name a database: the file, or the URL without its secrets."""
    harmless = {name: value for name, value in url.query.items() if name in _LOGGED}
    return str(file_of(url) or url.set(drivername="postgresql", query=harmless).render_as_string(hide_password=True))


def _mask_passwords(url: str) -> str:
    """Hide every part that may be a password in a URL that cannot be parsed."""
    return re.sub(r"(password=)[^&]*", r"\1***", re.sub(r"://.*@", "://***@", url))
