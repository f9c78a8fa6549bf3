"""Whatever the owner of the database does to the books is found where heads are kept, and named.

The leader here is the real one, but for its cycles: its writes go through `OwnWrites`, and its signer looks at the real
ledger. What it signs is kept in memory, where whoever changes the database has no access.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry
from admission.controller.head_publisher import ConfigMapSink
from admission.controller.head_signer import HeadSigner, SigningSettings
from admission.controller.own_writes import OwnWrites
from admission.errors import DeposedError, LedgerCorruptError
from admission.heads import head_document
from admission.heads.head_document import KeptHeads
from admission.heads.signed_head import SignedHead
from admission.ledger.audit.close_period import Order
from admission.ledger.audit.kept_heads import Evidence, Proof
from admission.ledger.audit.verify import Finding, What
from admission.ledger.sql_ledger import SqlLedger
from admission.simulation import in_memory_chain
from tests.integration.ledgers import (
    AT,
    CLUSTER,
    ON_SQLITE,
    a_gang,
    a_grant,
    a_history,
    database_of,
    file_of,
    forge,
    minutes,
    rows,
    run,
)
from tests.integration.test_ledger_closing import TAMPERED, a_long_history
from tests.integration.test_ledger_verify import TAMPERING

EPOCH = 3

TABLES = (
    *("postings", "transactions", "balances", "open_seats", "open_holdings", "open_gangs"),
    *("carried_usage", "closings", "clusters"),
)
"""All that the ledger has of a cluster, in an order in which it can be removed."""


@dataclass
class Office:
    """A ledger with its leaders, and what they keep outside of it."""

    url: str
    folder: Path
    config_map: in_memory_chain.EntryStore = field(default_factory=in_memory_chain.EntryStore)
    secret: in_memory_chain.EntryStore = field(default_factory=in_memory_chain.EntryStore)
    now: datetime = AT

    @asynccontextmanager
    async def leader(self, epoch: int = EPOCH) -> AsyncIterator["Leader"]:
        """Begin a term; its first head is signed."""
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            leader = Leader(self, ledger, epoch)
            await leader.begin()
            yield leader

    async def write(self, entries: Sequence[Entry], *, epoch: int = EPOCH) -> None:
        """Write entries as a leader that signs after each of them."""
        async with self.leader(epoch) as leader:
            for entry in entries:
                await leader.post(entry)
                await leader.sign()

    @property
    def heads(self) -> KeptHeads:
        stored = self.config_map.stored
        return KeptHeads() if stored is None else head_document.from_entries(stored[0])

    async def proof(self, *, archive: bool = False, **evidence: Any) -> Proof:
        known = Evidence(heads=self.heads, **evidence)
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            return await ledger.prove(known, archive=self.folder if archive else None)

    async def findings(self, *, archive: bool = False, **evidence: Any) -> list[tuple[What, int]]:
        return [(found.what, found.sequence) for found in (await self.proof(archive=archive, **evidence)).findings]

    async def finding(self, **evidence: Any) -> Finding:
        [finding] = (await self.proof(**evidence)).findings
        return finding

    async def is_believed_without_heads(self) -> bool:
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            return (await ledger.verify()).ok

    async def close(self, before: datetime) -> None:
        order = Order(before=before, folder=self.folder, actor="root@host", reason="over", at=minutes(10_000))
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            assert await ledger.close_period(order) is not None

    def remove(self) -> None:
        """Remove all that the ledger has of the cluster."""
        forge(self.url, *(f"DELETE FROM {table} WHERE cluster = '{CLUSTER}'" for table in TABLES))  # noqa: S608

    async def replace(self, entries: Sequence[Entry], *, epoch: int = EPOCH) -> None:
        """Put other books in place, with right hashes, balances and gangs, as somebody can who has Muster's code."""
        self.remove()
        async with SqlLedger.open(self.url, CLUSTER) as ledger:
            await ledger.fence(epoch)
            for entry in entries:
                await ledger.post(entry, epoch=epoch)


class Leader:
    """One term: writes, and signs."""

    def __init__(self, office: Office, ledger: SqlLedger, epoch: int) -> None:
        self.office, self.ledger, self.epoch = office, ledger, epoch
        self.writes = OwnWrites(ledger)
        self.signer = HeadSigner(
            chain=ledger,
            writes=self.writes,
            keys=office.secret,
            settings=SigningSettings(cluster=CLUSTER),
            clock=lambda: office.now,
        )
        self.signer.begin(office.heads)

    async def begin(self) -> None:
        await self.ledger.fence(self.epoch)
        await self.sign()

    async def post(self, *entries: Entry) -> None:
        await self.writes.post_all(entries, epoch=self.epoch)

    async def sign(self) -> SignedHead | None:
        self.office.now += timedelta(minutes=1)
        signed = await self.signer.sign(self.epoch)
        await ConfigMapSink(self.office.config_map, self.signer, lambda: self.office.now).publish(())
        return signed


_filled: list[tuple[bytes, Any, Any, datetime]] = []


@pytest.fixture
async def office(url: str, tmp_path: Path) -> Office:
    """Six transactions, and a head of each. Those in a file are written once and copied."""
    made = Office(url, tmp_path / "archives")
    if database_of(url) != "sqlite":
        await made.write(a_history())
        return made
    if not _filled:
        await made.write(a_history())
        _filled.append((file_of(url).read_bytes(), made.config_map.stored, made.secret.stored, made.now))
    content, made.config_map.stored, made.secret.stored, made.now = _filled[0]
    file_of(url).write_bytes(content)
    return made


def a_mark(entries: Sequence[Entry], minute: int) -> Entry:
    mark = books.usage(Book.replay(entries), at=minutes(minute), actor="muster")
    assert mark is not None
    return mark


def altered(sequence: int) -> list[Entry]:
    """Return the history with another text in one transaction."""
    entries = a_history()
    entries[sequence - 1] = replace(entries[sequence - 1], reason="it was always so")
    return entries


async def test_books_that_nobody_touched_pass_through_every_head(office: Office) -> None:
    proof = await office.proof(epoch=EPOCH)

    assert proof.ok
    assert (proof.compared, proof.archived, proof.after) == (7, 0, 0)
    assert proof.newest is not None
    assert (proof.newest.sequence, proof.newest.epoch) == (6, EPOCH)


@ON_SQLITE
@pytest.mark.parametrize(("statements", "sequence", "what"), TAMPERING.values(), ids=TAMPERING)
async def test_what_is_found_without_heads_is_found_with_them(
    statements: list[str], sequence: int, what: What, office: Office
) -> None:
    forge(office.url, *statements)

    findings = await office.findings(epoch=EPOCH)

    assert findings[0] == (what, sequence)


@pytest.mark.parametrize("sequence", range(1, 7))
async def test_a_chain_that_was_written_anew_from_any_point_is_found(sequence: int, office: Office) -> None:
    await office.replace(altered(sequence))
    assert await office.is_believed_without_heads()

    finding = await office.finding()

    assert (finding.what, finding.sequence) == (What.HEAD, sequence)
    since = f"after transaction {sequence - 1}" if sequence > 1 else "from its beginning or later"
    assert finding.detail.endswith(f"the chain was written anew {since}")


@pytest.mark.parametrize("left", range(6))
async def test_an_end_that_was_cut_off_is_found(left: int, office: Office) -> None:
    await office.replace(a_history()[:left])
    assert await office.is_believed_without_heads()

    finding = await office.finding()

    assert (finding.what, finding.sequence) == (What.HEAD, left + 1)
    assert (f"the chain ends at transaction {left}" if left else "are gone, or empty") in finding.detail


async def raise_epoch(office: Office) -> None:
    forge(office.url, "UPDATE clusters SET epoch = 1000000")


async def lower_epoch(office: Office) -> None:
    await office.replace(a_history(), epoch=EPOCH - 1)


async def remove_cluster(office: Office) -> None:
    office.remove()


async def rename_cluster(office: Office) -> None:
    """Write the same books for another cluster."""
    office.remove()
    async with SqlLedger.open(office.url, "west") as ledger:
        for entry in a_history():
            await ledger.post(entry, epoch=EPOCH)


async def put_other_history(office: Office) -> None:
    await office.replace([a_grant(64), a_gang("other", at=minutes(2))])


async def put_longer_history(office: Office) -> None:
    await office.replace([*altered(2), a_gang("later", at=minutes(9)), a_grant(1, at=minutes(10))])


async def write_under_a_later_epoch(office: Office) -> None:
    async with SqlLedger.open(office.url, CLUSTER) as ledger:
        await ledger.post(a_grant(64, at=minutes(9)), epoch=1000)


async def write_under_an_epoch_that_was_over(office: Office) -> None:
    async with office.leader(EPOCH + 5):
        pass
    run(office.url, "UPDATE clusters SET epoch = 4")
    async with SqlLedger.open(office.url, CLUSTER) as ledger:
        await ledger.post(a_grant(64, at=minutes(9)), epoch=EPOCH + 4)


BEYOND_VERIFY: dict[str, tuple[Callable[[Office], Awaitable[None]], What, str]] = {
    "an epoch that was raised in the table alone": (raise_epoch, What.EPOCH, "UPDATE clusters SET epoch = 3 WHERE"),
    "other epochs": (lower_epoch, What.HEAD, "written anew from its beginning"),
    "a cluster that was removed": (remove_cluster, What.HEAD, "the books of cluster east are gone"),
    "a cluster that was renamed": (rename_cluster, What.HEAD, "the books of cluster east are gone"),
    "another history": (put_other_history, What.HEAD, "written anew"),
    "a longer history": (put_longer_history, What.HEAD, "written anew after transaction 1"),
    "an entry of an epoch that no leader has had": (
        write_under_a_later_epoch,
        What.EPOCH,
        "no leader has had one above",
    ),
    "an entry of an epoch that was over": (write_under_an_epoch_that_was_over, What.EPOCH, "which was over"),
}


@pytest.mark.parametrize(("manipulate", "what", "words"), BEYOND_VERIFY.values(), ids=BEYOND_VERIFY)
async def test_what_verify_alone_believes_is_found_with_heads(
    manipulate: Callable[[Office], Awaitable[None]], what: What, words: str, office: Office
) -> None:
    await manipulate(office)
    assert await office.is_believed_without_heads()

    finding = (await office.proof(epoch=EPOCH)).findings[0]

    assert finding.what is what
    assert words in finding.detail


async def test_an_epoch_that_was_raised_deposes_every_leader_until_it_is_set_right_as_told(office: Office) -> None:
    await raise_epoch(office)
    with pytest.raises(DeposedError):
        async with office.leader(EPOCH + 1):
            pass
    details = [(await office.finding(epoch=epoch)).detail for epoch in (None, EPOCH + 1)]
    assert ["raised in the table alone, and deposes every leader" in detail for detail in details] == [True, True]
    statement = details[-1].partition(": UPDATE")[2].partition(";")[0]

    run(office.url, f"UPDATE{statement}")

    assert await office.findings(epoch=EPOCH + 1) == []
    async with office.leader(EPOCH + 1) as leader:
        await leader.post(a_grant(1, at=minutes(9)))
        await leader.sign()
    assert await office.findings(epoch=EPOCH + 1) == []


async def test_an_epoch_that_was_put_back_is_found_with_its_correction(office: Office) -> None:
    async with office.leader(EPOCH + 5):
        pass
    run(office.url, "UPDATE clusters SET epoch = 3")
    assert await office.is_believed_without_heads()

    finding = await office.finding()

    assert finding.what is What.EPOCH
    assert "UPDATE clusters SET epoch = 8 WHERE cluster = 'east';" in finding.detail


async def test_a_leader_that_has_begun_and_not_signed_yet_is_no_finding(office: Office) -> None:
    async with SqlLedger.open(office.url, CLUSTER) as ledger:
        await ledger.fence(EPOCH + 1)

    assert await office.findings(epoch=EPOCH + 1) == []


async def test_a_grant_that_was_appended_is_found_at_the_leaders_next_head(
    office: Office,
) -> None:
    async with office.leader(EPOCH + 1) as leader:
        async with SqlLedger.open(office.url, CLUSTER) as forger:
            await forger.post(replace(a_grant(64, at=minutes(9)), actor="mallory"), epoch=EPOCH + 1)
        assert await office.is_believed_without_heads()
        before = await office.proof(epoch=EPOCH + 1)
        assert (before.ok, before.after) == (True, 1)

        await leader.post(a_gang("next", at=minutes(10)))
        await leader.sign()

    finding = await office.finding(epoch=EPOCH + 1)
    assert (finding.what, finding.sequence) == (What.FOREIGN, 7)
    assert "grant of queue team-a, by mallory" in finding.detail
    assert await office.findings(epoch=EPOCH + 1, accepted=((7, 7),)) == []
    assert await office.findings(epoch=EPOCH + 1, accepted=((1, 6), (8, 9))) == [(What.FOREIGN, 7)]


async def test_an_entry_that_deposes_the_leader_is_foreign_to_the_next_one(office: Office) -> None:
    async with SqlLedger.open(office.url, CLUSTER) as forger:
        await forger.post(a_grant(64, at=minutes(9)), epoch=EPOCH + 1)
    async with office.leader(EPOCH + 1):
        pass

    assert await office.findings(epoch=EPOCH + 1) == [(What.FOREIGN, 7)]


async def test_a_leader_that_is_deposed_so_knows_what_it_did_not_write(office: Office) -> None:
    async with office.leader(EPOCH + 1) as leader, SqlLedger.open(office.url, CLUSTER) as forger:
        await leader.post(a_gang("next", at=minutes(9)))
        await forger.post(a_grant(64, at=minutes(10)), epoch=EPOCH + 1)
        await forger.post(a_grant(65, at=minutes(11)), epoch=EPOCH + 2)

        await leader.signer.check_ended_term(EPOCH + 1)

        assert [sequence for sequence, _ in leader.signer.foreign] == [8]


async def test_a_head_row_that_is_not_of_the_chain_is_not_signed(office: Office) -> None:
    run(office.url, "UPDATE clusters SET digest = previous FROM transactions WHERE transactions.sequence = 6")

    with pytest.raises(LedgerCorruptError, match="by the stored end of the chain"):
        async with office.leader(EPOCH + 1):
            pass


async def test_a_grant_that_was_appended_and_taken_away_again_is_found(office: Office) -> None:
    async with SqlLedger.open(office.url, CLUSTER) as forger:
        await forger.post(a_grant(64, at=minutes(9)), epoch=EPOCH)
    async with office.leader(EPOCH + 1):
        pass
    await office.replace(a_history())

    assert (What.HEAD, 7) in await office.findings()


async def test_a_leader_signs_no_chain_that_was_written_anew_while_it_leads(office: Office) -> None:
    async with office.leader(EPOCH + 1) as leader:
        await leader.post(a_gang("next", at=minutes(10)))
        await office.replace([*altered(4), a_gang("next", at=minutes(10))], epoch=EPOCH + 1)

        with pytest.raises(LedgerCorruptError, match="its chain was written anew"):
            await leader.sign()


async def test_the_signed_bytes_of_every_head_are_checked(office: Office) -> None:
    kept = office.heads
    forged = replace(kept.heads[-1], head=replace(kept.heads[-1].head, sequence=5))

    for heads in (replace(kept, heads=(*kept.heads, forged)), replace(kept, keys=())):
        async with SqlLedger.open(office.url, CLUSTER) as ledger:
            [finding] = (await ledger.prove(Evidence(heads=heads))).findings
        assert finding.what is What.SIGNATURE


async def test_an_expected_digest_is_compared_without_any_head(office: Office) -> None:
    office.config_map.stored = None
    [(digest,)] = rows(office.url, "SELECT digest FROM transactions WHERE sequence = 4")
    expected = ((4, str(digest)),)

    assert await office.findings(expected=expected) == []
    await office.replace(altered(2))
    finding = await office.finding(expected=expected)

    assert (finding.what, finding.sequence) == (What.HEAD, 4)
    assert f"by --expect 4:{digest} it has" in finding.detail


# Closings.


async def a_closed_office(office: Office) -> Office:
    """Return two closed periods, and what followed; every transaction has a head."""
    async with office.leader(EPOCH + 1) as leader:
        for entry in a_long_history()[len(a_history()) :]:
            await leader.post(entry)
            await leader.sign()
        await office.close(minutes(60))
        await office.close(minutes(130))
        await leader.writes.load()
        signed = await leader.sign()
        assert signed is not None
        assert (signed.head.cause, signed.head.sequence) == ("closing", 14)
    return office


async def test_a_closed_period_is_covered_by_later_heads_and_compared_with_archives(office: Office) -> None:
    await a_closed_office(office)

    without, compared = await office.proof(), await office.proof(archive=True)

    assert without.ok, without.findings
    assert compared.ok, compared.findings
    assert (without.archived, compared.archived) == (9, 0)
    assert compared.compared == without.compared + without.archived


@ON_SQLITE
@pytest.mark.parametrize("statements", TAMPERED.values(), ids=TAMPERED)
async def test_a_change_of_a_closing_is_found_where_heads_are_kept(office: Office, statements: str) -> None:
    await a_closed_office(office)
    forge(office.url, *statements.split("; "))

    assert await office.findings()


async def test_books_that_were_written_anew_and_closed_are_found(office: Office) -> None:
    """After the forged closing no row is left that could be compared with a head."""
    await office.replace([*altered(2), a_mark(altered(2), 60)])
    await office.close(minutes(60))
    assert await office.is_believed_without_heads()

    finding = await office.finding()
    assert (finding.what, finding.sequence) == (What.HEAD, 7)
    assert "covers the head that the leader of epoch 3 signed at 2026-03-01T12:07" in finding.detail
    assert (await office.findings(archive=True)) == [(What.HEAD, 2)]
    with pytest.raises(LedgerCorruptError, match="past everything that is known"):
        async with office.leader(EPOCH + 1):
            pass


async def test_a_closing_that_was_forged_at_the_end_is_told_as_not_proven_yet(office: Office) -> None:
    async with office.leader(EPOCH + 1) as leader:
        await leader.post(a_mark(a_history(), 60))
        await leader.sign()
        await office.close(minutes(60))

        assert (await office.proof()).after == 1
        await leader.writes.load()
        signed = await leader.sign()

    assert signed is not None
    assert (signed.head.cause, signed.head.foreign) == ("closing", ((8, 8),))
    assert (await office.proof()).after == 0


@pytest.mark.parametrize("change", ["changed", "missing"])
async def test_an_archive_that_was_changed_or_is_missing_is_found(office: Office, change: str) -> None:
    await a_closed_office(office)
    path = min(office.folder.iterdir())
    if change == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"\0")

    assert await office.findings() == []
    [(what, _)] = await office.findings(archive=True)
    assert what is What.ARCHIVE
