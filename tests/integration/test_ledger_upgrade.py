"""Books that an earlier release has filled, under this one's schema: still right, and still those that were written."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry
from admission.errors import LedgerVersionError
from admission.ledger.audit.verify import What
from admission.ledger.db import migrations, tables
from admission.ledger.db.tables import GENESIS
from admission.ledger.journal import encoding, hash_chain
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.conftest import Fresh
from tests.integration.ledgers import CLUSTER, a_gang, a_history, minutes, rows, run, tamper


@pytest.fixture
def url(new_database: Fresh) -> str:
    """The URL of a database without tables."""
    return new_database()


async def filled_before(url: str) -> list[Entry]:
    """Make a ledger of revision 0001 and write a history as the release of that time did."""
    await migrations.migrate(url, revision="0001")
    history = [*a_history(), replace(a_gang("strange", at=minutes(9)), reason="zoë's")]
    run(url, *statements(history))
    return history


def statements(history: list[Entry]) -> Iterator[str]:
    yield insert("clusters", CLUSTER, 1, len(history), digests(history)[-1])
    for sequence, (entry, digest) in enumerate(zip(history, digests(history), strict=True), 1):
        kind, key, at, actor, reason, queue, on_behalf_of, _, gang_uid, gang, *_ = hash_chain.hashed(entry)
        seats, holdings = (
            encoding.text(encoding.of_seats(entry.seats)),
            encoding.text(encoding.of_holdings(entry.holdings)),
        )
        said = (key, kind, at, actor, reason, queue, on_behalf_of, gang_uid, gang, seats, holdings)
        links = (encoding.text(entry.closes), ([GENESIS, *digests(history)])[sequence - 1], digest)
        yield insert("transactions", CLUSTER, sequence, 1, *said, *links)
        for number, line in enumerate(hash_chain.lines(entry), 1):
            yield insert("postings", CLUSTER, sequence, number, *line)
    book = Book.replay(history)
    for (queue, meter, bucket), amount in book.balances.items():
        yield insert("balances", CLUSTER, queue, meter, bucket.value, str(amount))
    for open_ in book.placements.values():
        reserved_at = hash_chain.instant(open_.reserved_at)
        yield insert("open_gangs", CLUSTER, open_.gang_uid, open_.gang, open_.queue, reserved_at)
        for seat in open_.seats.values():
            claims = encoding.text(seat.claims)
            yield insert("open_seats", CLUSTER, seat.pod_uid, open_.gang_uid, seat.pod, seat.node, claims)
        for held in open_.holdings.values():
            devices, charge = encoding.of_devices(held.devices), encoding.of_charge(held.charge)
            texts = (encoding.text(devices), encoding.text(charge), held.settled)
            yield insert("open_holdings", CLUSTER, held.claim_uid, open_.gang_uid, held.claim, *texts)


def digests(history: list[Entry]) -> list[str]:
    found = [GENESIS]
    for sequence, entry in enumerate(history, 1):
        found.append(hash_chain.digest(entry, cluster=CLUSTER, epoch=1, sequence=sequence, previous=found[-1], form=1))
    return found[1:]


def insert(table: str, *values: object) -> str:
    texts = (str(v) if isinstance(v, int) else "'" + str(v).replace("'", "''") + "'" for v in values)
    return f"INSERT INTO {table} VALUES ({', '.join(texts)})"  # noqa: S608


async def test_books_from_before_verify_load_and_go_on(url: str) -> None:
    history = await filled_before(url)

    await migrations.migrate(url)

    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert await ledger.load() == Book.replay(history)
        assert (await ledger.verify()).digest == digests(history)[-1]
        late = replace(a_gang("late", at=minutes(10)), user="alice")
        await ledger.post_all([history[1], late], epoch=1)
        verification = await ledger.verify()
        assert verification.ok, verification.finding
        assert verification.transactions == len(history) + 1
        assert (await ledger.load()) == Book.replay([*history, late])
    assert sorted(rows(url, "SELECT format, count(*) FROM transactions GROUP BY format")) == [(1, len(history)), (2, 1)]


@pytest.mark.parametrize("column", ["reason", "seats", "holdings", "closes", '"user"'])
async def test_a_tampered_row_of_an_earlier_ledger_is_named(url: str, column: str) -> None:
    await filled_before(url)
    await migrations.migrate(url)
    tamper(url, f"UPDATE transactions SET {column} = '[1]' WHERE sequence = 2")  # noqa: S608

    async with SqlLedger.open(url, CLUSTER) as ledger:
        finding = (await ledger.verify()).finding

    assert finding is not None
    assert (finding.sequence, finding.what) == (2, What.CHANGED)


async def test_books_from_before_go_back_as_they_were(url: str) -> None:
    await filled_before(url)
    before = rows(url, "SELECT * FROM transactions ORDER BY sequence")
    await migrations.migrate(url)

    await migrations.downgrade(url, revision="0001")

    assert rows(url, "SELECT * FROM transactions ORDER BY sequence") == before
    with pytest.raises(Exception, match="append-only"):
        run(url, "DELETE FROM postings")
    await migrations.migrate(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        assert (await ledger.verify()).ok


async def test_books_that_an_earlier_release_could_not_verify_do_not_go_back(url: str) -> None:
    await migrations.migrate(url)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_gang(), epoch=1)

    with pytest.raises(LedgerVersionError, match="could not verify the 1 transactions and 0 closings"):
        await migrations.downgrade(url, revision="0001")

    assert await migrations.current_revision(url) == tables.REVISION
