"""Tries whether the database takes entries, and leaves none behind."""

import secrets
from datetime import UTC, datetime

from sqlalchemy import insert

from admission.api.muster.ledger_entries import Kind
from admission.ledger.db import database_url, engines
from admission.ledger.db.errors import translated
from admission.ledger.db.tables import FORMATS, GENESIS, clusters, transactions

NOBODY = "muster doctor"
"""A cluster that nobody has: no leader waits for its row, and none for us."""

BYTES = 4 << 20
"""Twice what SQLite keeps in memory, and more than there is room for in pages of PostgreSQL: a full disk shows."""


async def write(url: str) -> None:
    """Write an entry into a ledger of this program's revision, as the controller does, and roll it back.

    Raises LedgerAwayError where writing may succeed later, as on a full disk or a standby, and MendError where it will
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
        async with engines.engine(parsed) as engine, engines.writing(engine) as connection:
            await connection.execute(insert(clusters), [head])
            await connection.execute(insert(transactions), [entry])
            await connection.rollback()
