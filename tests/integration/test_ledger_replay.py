"""The fast replay of the books agrees with the slow one, and doubts what that one refuses."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Entry, Kind
from admission.api.values.names import GangUid, Uid
from admission.errors import MusterError
from admission.ledger.audit.fast_replay import FallBackToExactError, FastReplay
from admission.ledger.db.tables import GENESIS
from admission.ledger.journal import documents, hash_chain
from admission.ledger.sql_ledger import SqlLedger
from tests.integration.ledgers import CLUSTER, GPU, QUEUE, a_gang, a_grant, a_history, minutes
from tests.property.histories import histories

STRANGE = 'it \t fits: "é" \x7f \u2028 \U0001f600 \x01 \x1f \\ / \b\f\n\r'


def a_quick() -> FastReplay:
    return FastReplay(CLUSTER, sequence=0, epoch=0, digest=GENESIS, book=Book())


def written(entries: list[Entry], form: int = hash_chain.FORMAT) -> list[bytes]:
    """Return what a database writes down of entries, chained as if they were posted."""
    lines, previous = [], GENESIS
    for sequence, entry in enumerate(entries, 1):
        said, postings = hash_chain.hashed(entry), hash_chain.lines(entry)
        digest = hash_chain.CHAINED[form](CLUSTER, 1, sequence, previous, said, postings)
        document = hash_chain.document(CLUSTER, 1, sequence, previous, said, postings)
        lines.append(b"%d %s %s" % (form, digest.encode(), document))
        previous = digest
    return lines


@given(histories())
def test_the_fast_replay_ends_with_the_book_of_the_exact_replay(history: list[Entry]) -> None:
    for form in hash_chain.CHAINED:
        fast = a_quick()

        assert fast.follow(written(history, form))
        assert fast.book() == Book.replay(history)


@given(histories(), histories())
def test_the_fast_replay_starts_from_a_given_book(before: list[Entry], after: list[Entry]) -> None:
    fast = a_quick()
    fast.follow(written(before))

    again = FastReplay(CLUSTER, sequence=0, epoch=0, digest=GENESIS, book=fast.book())

    assert again.book() == replace(Book.replay(before), sequence=0)


async def test_the_database_writes_down_what_is_hashed(ledger: SqlLedger) -> None:
    """Whatever the text: SQLite, PostgreSQL and we escape the same."""
    history = [*a_history(), replace(a_gang("strange", at=minutes(9)), reason=STRANGE, user="zoë")]
    await ledger.post_all(history, epoch=1)

    async with ledger.snapshot() as connection:
        assert await documents.batch(connection, CLUSTER, after=0, limit=100) == written(history)
        assert await documents.batch(connection, CLUSTER, after=2, limit=2) == written(history)[2:4]
        assert await documents.batch(connection, CLUSTER, after=7, limit=2) == []


GRANT, GANG = a_grant(), a_gang(claims=2)
PLACED = Book.replay([GRANT, GANG]).placements[GangUid("gang")]
RELEASE = books.release(PLACED, pods=[Uid("gang-claim-0-pod")], at=minutes(1), actor="muster", reason="gone")
SETTLE = books.settle(
    PLACED,
    {Uid("gang-claim-0"): books.Allocated(PLACED.holdings[Uid("gang-claim-0")].devices, {GPU: 1})},
    at=minutes(1),
    actor="muster",
)
assert RELEASE is not None
assert SETTLE is not None
USAGE = books.usage(Book.replay([GRANT, GANG, SETTLE]), at=minutes(2), actor="muster")
assert USAGE is not None

WRONG = {
    "lines that do not sum to zero": replace(GRANT, key="k", postings=GRANT.postings[:1]),
    "a line without an amount": replace(GRANT, key="k", postings=(replace(GRANT.postings[0], amount=0),)),
    "an amount that is too large": replace(
        GRANT, key="k", postings=tuple(replace(line, amount=line.amount * 10**38) for line in GRANT.postings)
    ),
    "no key": replace(GRANT, key=""),
    "what is open already": replace(GANG, key="k"),
    "what is open for another gang": replace(GANG, key="k", gang_uid=GangUid("other")),
    "late pods in another queue": replace(a_gang("late"), gang_uid=GangUid("gang"), queue=type(QUEUE)("other")),
    "seats of no gang": replace(a_gang("none"), gang_uid=GangUid("")),
    "a reservation of what is settled": replace(
        a_gang("new"), holdings=tuple(replace(held, settled=True) for held in a_gang("new").holdings)
    ),
    "a charge below zero": replace(
        a_gang("new"), holdings=tuple(replace(held, charge={GPU: -1}) for held in a_gang("new").holdings)
    ),
    "closing what is not open": replace(RELEASE, closes=(Uid("nobody"),)),
    "closing twice": replace(RELEASE, closes=RELEASE.closes * 2),
    "closing another gang's": replace(RELEASE, gang_uid=GangUid("other")),
    "closing by a grant": replace(RELEASE, kind=Kind.GRANT),
    "a settlement of nothing": replace(SETTLE, gang_uid=GangUid("other")),
    "a settlement that is none": replace(SETTLE, holdings=GANG.holdings[:1]),
    "usage that nobody had": replace(
        USAGE, postings=tuple(replace(line, amount=2 * line.amount) for line in USAGE.postings)
    ),
    "usage that is left out": replace(USAGE, postings=()),
}


@pytest.mark.parametrize("entry", WRONG.values(), ids=WRONG)
def test_the_fast_replay_falls_back_on_entries_that_the_exact_replay_refuses(entry: Entry) -> None:
    history = [GRANT, GANG, SETTLE] if entry.kind is Kind.USAGE else [GRANT, GANG]
    with pytest.raises(MusterError):
        Book.replay([*history, entry])

    with pytest.raises(FallBackToExactError):
        a_quick().follow(written([*history, entry]))


STRAYS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a row less": lambda rows: rows[1:],
    "rows in another order": lambda rows: [rows[0], rows[2], rows[1]],
    "another text": lambda rows: [rows[0].replace(b"quota", b"bribe")],
    "another digest": lambda rows: [b"2 d " + rows[0].split(b" ", 2)[2]],
    "a format that is none": lambda rows: [b"3" + rows[0][1:]],
    "the other format": lambda rows: [b"1" + rows[0][1:]],
    "no document": lambda rows: [rows[0][:70]],
}


@pytest.mark.parametrize("stray", STRAYS.values(), ids=STRAYS)
def test_the_fast_replay_stops_at_a_row_that_breaks_the_chain(stray: Callable[[list[bytes]], list[bytes]]) -> None:
    rows = written(a_history())

    assert not a_quick().follow(stray(rows))
