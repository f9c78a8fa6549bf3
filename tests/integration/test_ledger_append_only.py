"""What was posted cannot be changed, replaced or taken away, whatever program tries."""

import sqlite3

import asyncpg
import pytest

from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import ON_POSTGRESQL, ON_SQLITE, a_gang, run

REFUSED = (sqlite3.IntegrityError, asyncpg.RaiseError)
"""What a trigger's refusal is to the drivers."""

APPEND_ONLY = {
    "UPDATE transactions SET reason = 'other'": "transactions are append-only",
    "DELETE FROM transactions": "transactions are append-only",
    "UPDATE postings SET amount = '0'": "postings are append-only",
    "DELETE FROM postings": "postings are append-only",
}


@pytest.mark.parametrize(("statement", "said"), APPEND_ONLY.items(), ids=APPEND_ONLY)
async def test_the_books_are_append_only(url: str, ledger: SqlLedger, statement: str, said: str) -> None:
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(REFUSED, match=said):
        run(url, statement)
    assert (await ledger.verify()).ok


REPLACED = {
    "a transaction at its place": "REPLACE INTO transactions SELECT * FROM transactions",
    "a transaction by its key": (
        "REPLACE INTO transactions SELECT cluster, 9, format, epoch, key, kind, at, actor, reason, queue, on_behalf_of,"
        " user, gang_uid, gang, seats, holdings, closes, previous, digest FROM transactions"
    ),
    "lines": "INSERT OR REPLACE INTO postings SELECT * FROM postings",
}


@ON_SQLITE
@pytest.mark.parametrize("statement", REPLACED.values(), ids=REPLACED)
async def test_the_books_are_not_replaced(url: str, ledger: SqlLedger, statement: str) -> None:
    """SQLite removes the row that is in the way, and tells no trigger on DELETE."""
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(REFUSED, match="are append-only"):
        run(url, statement)
    assert (await ledger.verify()).ok


@ON_POSTGRESQL
async def test_the_books_are_not_truncated(url: str, ledger: SqlLedger) -> None:
    await ledger.post(a_gang(), epoch=1)

    with pytest.raises(asyncpg.RaiseError, match="are append-only"):
        run(url, "TRUNCATE transactions CASCADE")
