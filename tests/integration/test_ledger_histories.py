"""Random histories: the database holds what the pure books say."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, a_ledger
from tests.property.histories import histories


@settings(max_examples=25, deadline=None)
@given(histories())
def test_the_ledger_loads_what_the_books_replay_and_verifies(history: list[Entry]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check(Path(folder), history))


async def check(folder: Path, history: list[Entry]) -> None:
    url = await a_ledger(folder)
    book = Book()
    async with SqlLedger.open(url, CLUSTER) as ledger:
        for entry in history:
            posted = await ledger.post(entry, epoch=1)
            book = book if posted.repeated else book.apply(entry)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await ledger.load() == book == Book.replay(history)
        verification = await ledger.verify()
        assert verification.ok, verification.finding
        for entry in history:
            assert (await ledger.post(entry, epoch=1)).repeated
