"""Verification finds whatever was done to the file behind the ledger's back."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from admission.api.muster.ledger_entries import Kind
from admission.errors import LedgerCorruptError
from admission.ledger.audit import verify
from admission.ledger.audit.verify import Finding, Verification, What
from admission.ledger.journal import encoding, hash_chain
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, a_gang, a_grant, a_history, a_ledger, file_of, minutes, rows, tamper

POSITION = "UPDATE {} SET sequence = {} WHERE sequence = {}"


def move(source: int, target: int) -> list[str]:
    return [POSITION.format(table, target, source) for table in ("transactions", "postings")]


def remove(sequence: int) -> list[str]:
    return [f"DELETE FROM {table} WHERE sequence = {sequence}" for table in ("postings", "transactions")]  # noqa: S608


def insert(
    sequence: int, *, previous: str = "(SELECT digest FROM transactions WHERE sequence = 3)", digest: str = "'d'"
) -> str:
    return (
        "INSERT INTO transactions (cluster, sequence, format, epoch, key, kind, at, actor, reason, queue,"  # noqa: S608
        " on_behalf_of, user, gang_uid, gang, seats, holdings, closes, previous, digest)"
        f" SELECT cluster, {sequence}, format, epoch, 'false', kind, at, actor, reason, queue, on_behalf_of, user,"
        f" gang_uid, gang, seats, holdings, closes, {previous}, {digest} FROM transactions WHERE sequence = 1"
    )


SHIFTED_UP = [statement for sequence in (6, 5, 4) for statement in move(sequence, sequence + 1)]

TAMPERING = {
    "an amount": (["UPDATE postings SET amount = '7' WHERE sequence = 2 AND line = 1"], 2, What.CHANGED),
    "an amount that is no number": (
        ["PRAGMA ignore_check_constraints = ON", "UPDATE postings SET amount = 'x' WHERE sequence = 2 AND line = 1"],
        2,
        What.CHANGED,
    ),
    "a text": (["UPDATE transactions SET reason = 'it fits well' WHERE sequence = 3"], 3, What.CHANGED),
    "a kind that does not exist": (
        ["PRAGMA ignore_check_constraints = ON", "UPDATE transactions SET kind = 'gift' WHERE sequence = 3"],
        3,
        What.CHANGED,
    ),
    "a kind that exists": (["UPDATE transactions SET kind = 'adjust' WHERE sequence = 3"], 3, What.CHANGED),
    "a time": (["UPDATE transactions SET at = '2026-03-01T12:01:00.000001+00:00' WHERE sequence = 2"], 2, What.CHANGED),
    "a time that is none": (["UPDATE transactions SET at = 'noon' WHERE sequence = 2"], 2, What.CHANGED),
    "devices": (
        ["UPDATE transactions SET holdings = replace(holdings, 'gpu-0', 'gpu-1') WHERE sequence = 2"],
        2,
        What.CHANGED,
    ),
    "devices in a form that is none": (
        ["UPDATE transactions SET holdings = '[7]' WHERE sequence = 2"],
        2,
        What.CHANGED,
    ),
    "text that reads the same": (
        ["UPDATE transactions SET holdings = replace(holdings, '[{', '[{\"note\":\"mine\",') WHERE sequence = 2"],
        2,
        What.CHANGED,
    ),
    "blanks": (["UPDATE transactions SET seats = seats || ' ' WHERE sequence = 3"], 3, What.CHANGED),
    "a time in another form, which sorts elsewhere": (
        ["UPDATE transactions SET at = '2026-03-01T13:01:00.000000+01:00' WHERE sequence = 2"],
        2,
        What.CHANGED,
    ),
    "a line that has another number": (
        ["UPDATE postings SET line = 7 WHERE sequence = 2 AND line = 2"],
        2,
        What.CHANGED,
    ),
    "bytes instead of text": (["UPDATE transactions SET reason = x'00' WHERE sequence = 3"], 3, What.CHANGED),
    "bytes instead of a time": (["UPDATE transactions SET at = x'00' WHERE sequence = 3"], 3, What.CHANGED),
    "text that is not UTF-8": (
        ["UPDATE transactions SET reason = CAST(x'ff' AS TEXT) WHERE sequence = 3"],
        3,
        What.CHANGED,
    ),
    "bytes instead of an amount": (
        ["PRAGMA ignore_check_constraints = ON", "UPDATE postings SET amount = x'38' WHERE sequence = 1 AND line = 1"],
        1,
        What.CHANGED,
    ),
    "text instead of an epoch": (["UPDATE transactions SET epoch = 'x' WHERE sequence = 4"], 4, What.CHANGED),
    "a format that does not exist": (
        ["PRAGMA ignore_check_constraints = ON", "UPDATE transactions SET format = 7 WHERE sequence = 4"],
        4,
        What.CHANGED,
    ),
    "a digest with a blank": (["UPDATE transactions SET digest = digest || ' ' WHERE sequence = 4"], 4, What.CHANGED),
    "a key": (["UPDATE transactions SET key = 'other' WHERE sequence = 1"], 1, What.CHANGED),
    "an epoch": (["UPDATE transactions SET epoch = 9 WHERE sequence = 1"], 1, What.CHANGED),
    "a digest": (["UPDATE transactions SET digest = 'd' WHERE sequence = 4"], 4, What.CHANGED),
    "a predecessor": (["UPDATE transactions SET previous = 'd' WHERE sequence = 4"], 4, What.CHANGED),
    "a line less": (["DELETE FROM postings WHERE sequence = 2 AND line = 1"], 2, What.CHANGED),
    "a line more": (
        ["INSERT INTO postings SELECT cluster, 2, 9, queue, meter, bucket, amount, claim FROM postings LIMIT 1"],
        2,
        What.CHANGED,
    ),
    "lines in another order": (
        [
            "UPDATE postings SET line = 9 WHERE sequence = 2 AND line = 1",
            "UPDATE postings SET line = 1 WHERE sequence = 2 AND line = 2",
            "UPDATE postings SET line = 2 WHERE sequence = 2 AND line = 9",
        ],
        2,
        What.CHANGED,
    ),
    "lines without a transaction": (
        ["INSERT INTO postings SELECT cluster, 9, line, queue, meter, bucket, amount, claim FROM postings LIMIT 1"],
        9,
        What.INSERTED,
    ),
    "lines before the first transaction": (
        [
            "PRAGMA ignore_check_constraints = ON",
            "INSERT INTO postings SELECT cluster, 0, line, queue, meter, bucket, amount, claim FROM postings LIMIT 1",
        ],
        0,
        What.INSERTED,
    ),
    "a removed row": (remove(3), 3, What.REMOVED),
    "the first row removed": (remove(1), 1, What.REMOVED),
    "the last row removed": (remove(6), 6, What.REMOVED),
    "all rows removed": ([s for sequence in range(1, 7) for s in remove(sequence)], 1, What.REMOVED),
    "a removed row whose gap was closed": ([*remove(3), *move(4, 3), *move(5, 4), *move(6, 5)], 3, What.REMOVED),
    "an inserted row": ([*SHIFTED_UP, insert(4)], 4, What.INSERTED),
    "an inserted row that names no predecessor": ([*SHIFTED_UP, insert(4, previous="'p'")], 4, What.INSERTED),
    "a row after the last": ([insert(7, previous="(SELECT digest FROM clusters)")], 7, What.CHANGED),
    "two rows that changed places": ([*move(3, 99), *move(4, 3), *move(99, 4)], 3, What.REORDERED),
    "the first two rows changed places": ([*move(1, 99), *move(2, 1), *move(99, 2)], 1, What.REORDERED),
    "the head put back": (["UPDATE clusters SET sequence = 5"], 6, What.INSERTED),
    "the head's digest": (["UPDATE clusters SET digest = 'd'"], 6, What.CHANGED),
    "the head's epoch put back": (["UPDATE clusters SET epoch = 0"], 6, What.CHANGED),
    "a head that is no number": (["UPDATE clusters SET sequence = 'x'"], 6, What.CHANGED),
    "a head that is not UTF-8": (["UPDATE clusters SET digest = CAST(x'ff' AS TEXT)"], 6, What.PROJECTION),
    "no head": (["DELETE FROM clusters"], 1, What.INSERTED),
    "a balance": (["UPDATE balances SET amount = '0' WHERE bucket = 'used'"], 6, What.BALANCE),
    "a balance in another form": (
        ["PRAGMA ignore_check_constraints = ON", "UPDATE balances SET amount = amount || ' ' WHERE bucket = 'used'"],
        6,
        What.PROJECTION,
    ),
    "a balance less": (["DELETE FROM balances WHERE bucket = 'used'"], 6, What.BALANCE),
    "a balance more": (["INSERT INTO balances VALUES ('east', 'team-b', 'gpu', 'free', '100')"], 6, What.BALANCE),
    "a balance that is no number": (
        ["PRAGMA ignore_check_constraints = ON", "UPDATE balances SET amount = 'x'"],
        6,
        What.PROJECTION,
    ),
    "bytes instead of a queue": (["UPDATE balances SET queue = x'00' WHERE bucket = 'used'"], 6, What.BALANCE),
    "a node that is not UTF-8": (["UPDATE open_seats SET node = CAST(x'ff' AS TEXT)"], 6, What.PROJECTION),
    "a seat less": (["DELETE FROM open_seats"], 6, What.PROJECTION),
    "a seat on another node": (["UPDATE open_seats SET node = 'other'"], 6, What.PROJECTION),
    "a holding of other devices": (["UPDATE open_holdings SET devices = '[]'"], 6, What.PROJECTION),
    "a holding that is not settled": (["UPDATE open_holdings SET settled = 0"], 6, What.PROJECTION),
    "a holding in a form that is none": (["UPDATE open_holdings SET charge = '[]'"], 6, What.PROJECTION),
    "a gang of another queue": (["UPDATE open_gangs SET queue = 'other'"], 6, What.PROJECTION),
    "a gang less": (["DELETE FROM open_gangs"], 6, What.PROJECTION),
    "a gang more": (
        ["INSERT INTO open_gangs SELECT cluster, 'ghost', 'ns/ghost', queue, user, reserved_at FROM open_gangs"],
        6,
        What.PROJECTION,
    ),
}


_filled: list[bytes] = []


async def a_filled_ledger(folder: Path) -> str:
    """Return the URL of a ledger with the short history. It is written once and copied."""
    url = await a_ledger(folder)
    if not _filled:
        async with SqlLedger.open(url, CLUSTER) as ledger:
            for entry in a_history():
                await ledger.post(entry, epoch=1)
        _filled.append(file_of(url).read_bytes())
    file_of(url).write_bytes(_filled[0])
    return url


async def verified(url: str) -> Verification:
    async with SqlLedger.open(url, CLUSTER) as ledger:
        return await ledger.verify()


async def test_an_untampered_ledger_verifies(tmp_path: Path) -> None:
    verification = await verified(await a_filled_ledger(tmp_path))

    assert verification.ok
    assert verification.transactions == 6
    assert len(verification.digest) == 64


async def test_an_empty_ledger_verifies(tmp_path: Path) -> None:
    assert await verified(await a_ledger(tmp_path)) == Verification(cluster=CLUSTER, transactions=0, digest="0" * 64)


@pytest.fixture(params=[2, 500])
def _batch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verify, "BATCH", request.param)


@pytest.mark.usefixtures("_batch")
@pytest.mark.parametrize(("statements", "sequence", "what"), TAMPERING.values(), ids=TAMPERING)
async def test_tampering_is_found(statements: list[str], sequence: int, what: What, tmp_path: Path) -> None:
    url = await a_filled_ledger(tmp_path)
    tamper(url, *statements)

    finding = (await verified(url)).finding

    assert finding is not None
    assert (finding.sequence, finding.what) == (sequence, what)


async def test_an_inserted_row_with_a_right_digest_is_found(tmp_path: Path) -> None:
    url = await a_filled_ledger(tmp_path)
    ((previous,),) = rows(url, "SELECT digest FROM transactions WHERE sequence = 3")
    entry = replace(a_history()[0], key="false", postings=())
    digest = hash_chain.digest(entry, cluster=CLUSTER, epoch=1, sequence=4, previous=str(previous))
    tamper(url, *SHIFTED_UP, insert(4, digest=f"'{digest}'"))

    finding = (await verified(url)).finding

    assert finding == Finding(sequence=4, what=What.INSERTED, detail="transaction 5 was written without it")


async def test_a_row_after_the_last_with_a_right_digest_is_found(tmp_path: Path) -> None:
    url = await a_filled_ledger(tmp_path)
    ((previous,),) = rows(url, "SELECT digest FROM clusters")
    entry = replace(a_history()[0], key="false", postings=())
    digest = hash_chain.digest(entry, cluster=CLUSTER, epoch=1, sequence=7, previous=str(previous))
    tamper(url, insert(7, previous="(SELECT digest FROM clusters)", digest=f"'{digest}'"))

    finding = (await verified(url)).finding

    assert finding is not None
    assert (finding.sequence, finding.what) == (7, What.INSERTED)


async def test_a_chain_that_is_right_but_says_what_cannot_be_is_found(tmp_path: Path) -> None:
    """Someone who writes digests and head anew still has to keep the rules of the books."""
    url = await a_ledger(tmp_path)
    async with SqlLedger.open(url, CLUSTER) as ledger:
        await ledger.post(a_grant(), epoch=1)
    forged = replace(a_grant(), postings=a_grant().postings[:1])
    digest = hash_chain.digest(forged, cluster=CLUSTER, epoch=1, sequence=1, previous="0" * 64)
    tamper(
        url,
        "DELETE FROM postings WHERE line = 2",
        *(f"UPDATE {table} SET digest = '{digest}'" for table in ("transactions", "clusters")),  # noqa: S608
    )

    finding = (await verified(url)).finding

    assert finding is not None
    assert finding.what is What.CHANGED
    assert "sum to -8" in finding.detail


async def test_a_verification_difference_is_reported_in_numbers(tmp_path: Path) -> None:
    url = await a_filled_ledger(tmp_path)
    tamper(url, "UPDATE balances SET amount = '1' WHERE bucket = 'used'")

    finding = (await verified(url)).finding

    assert finding is not None
    assert finding.detail == "used gpu of queue team-a is 1, its lines sum to 3"


async def test_loading_a_row_that_is_no_text_does_not_wait_for_the_database(tmp_path: Path) -> None:
    url = await a_filled_ledger(tmp_path)
    tamper(url, "UPDATE open_seats SET node = CAST(x'ff' AS TEXT)")

    async with SqlLedger.open(url, CLUSTER) as ledger:
        with pytest.raises(LedgerCorruptError, match="run `muster ledger verify`"):
            await ledger.load()


async def test_loading_refuses_rows_that_do_not_belong_together(tmp_path: Path) -> None:
    url = await a_filled_ledger(tmp_path)
    tamper(url, "DELETE FROM open_gangs")

    async with SqlLedger.open(url, CLUSTER) as ledger:
        with pytest.raises(LedgerCorruptError, match="run `muster ledger verify`"):
            await ledger.load()


def test_the_digest_covers_every_field() -> None:
    entry = a_gang()
    place = {"cluster": "c", "epoch": 1, "sequence": 1, "previous": "p"}
    variants = [
        replace(entry, kind=Kind.ADJUST),
        replace(entry, key="k"),
        replace(entry, at=minutes(1)),
        replace(entry, actor="a"),
        replace(entry, reason="r"),
        replace(entry, queue=type(entry.queue)("q")),
        replace(entry, on_behalf_of="o"),
        replace(entry, user="u"),
        replace(entry, gang_uid=type(entry.gang_uid)("u")),
        replace(entry, gang="g"),
        replace(entry, postings=entry.postings[::-1]),
        replace(entry, seats=()),
        replace(entry, holdings=()),
        replace(entry, closes=(entry.seats[0].pod_uid,)),
    ]
    assert len(variants) == len(entry.__slots__)
    digests = {hash_chain.digest(variant, cluster="c", epoch=1, sequence=1, previous="p") for variant in variants}
    for field, other in {"cluster": "d", "epoch": 2, "sequence": 2, "previous": "q"}.items():
        digests.add(hash_chain.digest(entry, **{**place, field: other}))  # type: ignore[arg-type]
    assert len(digests | {hash_chain.digest(entry, **place)}) == len(variants) + 5  # type: ignore[arg-type]


GOLDEN = {
    1: "b2aa4ec07be8c524a4e36865e65749d948e2478352ef8ea9805c8a571e8a97e5",
    2: "0cb7361420c28d0cbaa2a186f3d1440626542b717e919b39c90d03871d0d2ad6",
}


@pytest.mark.parametrize("form", GOLDEN)
def test_the_digest_of_an_entry_does_not_change_between_releases(form: int) -> None:
    """Every ledger out there is chained by it; if this fails, the chain of every user breaks."""
    digest = hash_chain.digest(
        replace(a_gang(), key="k"), cluster="c", epoch=1, sequence=1, previous="0" * 64, form=form
    )

    assert digest == GOLDEN[form]


def test_hashed_text_has_the_documented_form() -> None:
    """Computed here as an auditor would, from the columns alone and with another JSON writer."""
    entry = replace(a_gang(claims=2), key="k", reason='it \t fits: "é" \x7f \u2028 \U0001f600 \x01', user="alice")
    said = hash_chain.hashed(entry)
    lines = [[p.queue, p.meter, p.bucket.value, str(p.amount), p.claim] for p in entry.postings]
    document = json.dumps([2, "c", 3, 7, "p", *said, lines], ensure_ascii=False, separators=(",", ":"))

    expected = hashlib.sha256(document.encode()).hexdigest()

    assert hash_chain.digest(entry, cluster="c", epoch=3, sequence=7, previous="p") == expected
    assert said.at == "2026-03-01T12:00:00.000000+00:00"
    assert json.loads(said.seats)[1] == {
        "claims": ["gang-claim-1"],
        "node": "node",
        "pod": "ns/pod",
        "pod_uid": "gang-claim-1-pod",
    }


def test_text_that_is_hashed_in_format_1_is_ascii_without_blanks_and_in_order() -> None:
    assert encoding.text({"b": [1, "é"], "a": {}}) == '{"a":{},"b":[1,"\\u00e9"]}'
