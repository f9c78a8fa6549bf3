"""Translation of database errors by what to do next: wait, fix the installation, or inspect the ledger."""

import sqlite3
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
from sqlalchemy import URL, exc

from admission.errors import FixError, LedgerCorruptError, LedgerUnavailableError
from admission.ledger.db.database_url import redacted

_TRANSIENT = ("08", "25006", "40", "53", "55006", "55P03", "57", "58")
"""SQLSTATEs, or their classes, of failures after which a retry may succeed: no connection, a read-only server (a
standby about to take over), rolled back, out of resources, in use, locked, shutting down, a failing disk."""

_DAMAGED = ("file is not a database", "malformed", "file is encrypted")

_UNREADABLE = ("could not decode to utf-8", "json cannot hold blob")
"""Beginnings of SQLite's messages for a value that does not match its column's type, which SQLite does not enforce."""

_FILE_FIXES = {
    "readonly database": "let this user write the file and its folder, which SQLite does even to read, or copy it",
    "unable to open": "let this user read and write the file and its folder, or correct the ledger's URL",
    "disk is full": "make room on its disk",
}
"""The remedy when SQLite cannot write, by a part of its message. The controller retries meanwhile."""

_NO_TLS = "rejected SSL upgrade"

_FIXES = {
    "28": "correct the user or the password in the ledger's URL, or what the server's pg_hba.conf lets in",
    "3D000": "create the database, or correct its name in the ledger's URL",
    "42501": "grant it, or make the URL's user the owner of the database; `muster ledger migrate` needs CREATE on the"
    " schema, `muster serve` needs to read and write the tables",
    "42704": "correct the parameters of the ledger's URL",
}
"""The remedy for a refusal, by SQLSTATE or its class."""


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Translate exceptions of the database into Muster's errors, which are named by what to do next."""
    try:
        yield
    except exc.DBAPIError as error:
        raise _translation(error, url) from error
    except ssl.SSLCertVerificationError as error:
        raise FixError(
            f"the ledger {redacted(url)} shows a certificate that is not trusted ({error.verify_message}): give the"
            " authority's file as sslrootcert in the URL, and the host by the name in the certificate"
        ) from error
    except (exc.TimeoutError, OSError) as error:
        cause = str(error) or type(error).__name__
        if _NO_TLS in cause:
            raise FixError(
                f"the ledger {redacted(url)} speaks no TLS ({cause}): turn it on, or ask for none"
            ) from error
        raise LedgerUnavailableError(f"the ledger {redacted(url)} does not answer: {cause}") from error


def _translation(error: exc.DBAPIError, url: URL) -> Exception:
    cause = str(error.orig)
    state = str(getattr(error.orig, "sqlstate", None) or "")
    if _is_damage(error, state):
        return LedgerCorruptError(_restore_message(url, cause))
    if isinstance(error, exc.IntegrityError):
        return LedgerCorruptError(
            f"the ledger {redacted(url)} holds rows that contradict its chain ({cause}): run `muster ledger verify`"
        )
    if _is_unreadable(error):
        return LedgerCorruptError(
            f"the ledger {redacted(url)} holds a row that cannot be read ({cause}): run `muster ledger verify`"
        )
    if fix := _how_to_fix_file(error, cause):
        return LedgerUnavailableError(f"the ledger {redacted(url)} cannot be used: {cause}: {fix}")
    if _is_transient(error, state):
        return LedgerUnavailableError(f"the ledger {redacted(url)} does not answer: {_driver_message(error, cause)}")
    fix = next((f": {fix}" for prefix, fix in _FIXES.items() if state.startswith(prefix)), "")
    return FixError(f"the ledger {redacted(url)} refuses Muster: {_driver_message(error, cause)}{fix}")


def unreadable(error: Exception) -> str:
    """Return a message that a row cannot be read. Raise the error again when it is of the database, not of a row."""
    if isinstance(error, exc.DBAPIError) and not _is_unreadable(error):
        raise error
    if isinstance(error, LedgerCorruptError):
        return str(error)
    return f"it cannot be read: {error.orig if isinstance(error, exc.DBAPIError) else error}"


def _is_unreadable(error: exc.DBAPIError) -> bool:
    return isinstance(error.orig, sqlite3.Error) and str(error.orig).lower().startswith(_UNREADABLE)


def _how_to_fix_file(error: exc.DBAPIError, cause: str) -> str | None:
    if not isinstance(error.orig, sqlite3.Error):
        return None
    return next((fix for words, fix in _FILE_FIXES.items() if words in cause), None)


def _is_transient(error: exc.DBAPIError, state: str) -> bool:
    if state:
        return state.startswith(_TRANSIENT)
    # Errors of asyncpg without a SQLSTATE: those of the URL or arguments are permanent, those of connections are not.
    if isinstance(getattr(error.orig, "__cause__", None), ValueError):
        return False
    return error.connection_invalidated or isinstance(error, exc.OperationalError | exc.InterfaceError)


def _is_damage(error: exc.DBAPIError, state: str) -> bool:
    """Return whether the storage is damaged: by SQLite's message, or PostgreSQL's data_ or index_corrupted (XX00x)."""
    if isinstance(error.orig, sqlite3.DatabaseError):
        return any(words in str(error.orig) for words in _DAMAGED)
    return state in {"XX001", "XX002"}


def _restore_message(url: URL, cause: str) -> str:
    if url.get_backend_name() == "sqlite":
        return (
            f"{redacted(url)} cannot be read as a ledger ({cause}): move it away with its -wal and -shm files and"
            " restore a backup, then run `muster ledger verify`; without a backup, point the ledger's URL to a new"
            " file, run `muster ledger migrate` and `muster ledger reconcile`"
        )
    return (
        f"the ledger {redacted(url)} is damaged on the server's disk ({cause}): restore a backup of the database, then"
        " run `muster ledger verify` and `muster ledger reconcile`"
    )


def _driver_message(error: exc.DBAPIError, cause: str) -> str:
    """Return the driver's own message; SQLAlchemy prefixes it with the class of an asyncpg error."""
    original = getattr(error.orig, "__cause__", None)
    return str(original) if isinstance(original, asyncpg.PostgresError | asyncpg.InterfaceError) else cause
