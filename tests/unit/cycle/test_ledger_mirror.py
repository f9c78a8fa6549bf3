"""How the leader's copy of the book relates to the ledger's: the states, and what moves between them."""

from datetime import timedelta

import pytest

from admission.accounting import books
from admission.api.muster.ledger_entries import Entry
from admission.api.values.names import MeterName, QueueName
from admission.cycle.state.ledger_mirror import TRANSITIONS, LedgerMirror, MirrorEvent as E, MirrorState as S
from admission.cycle.state.term import Term
from admission.cycle.state.usage_history import UsageHistory
from admission.errors import LedgerUnavailableError
from admission.simulation import in_memory
from tests.builders import NOON

U, P, C, ST, DU, DP, D = S
TABLE = {
    #    PRELOAD READ OUTDATE NO_ANSWER ANSWER DISCARD
    U:  (P,      C,   U,      DU,       U,     U),
    P:  (P,      C,   P,      DP,       P,     U),
    C:  (C,      C,   ST,     D,        C,     U),
    ST: (ST,     C,   ST,     D,        ST,    U),
    DU: (DU,     DU,  DU,     DU,       U,     DU),
    DP: (DP,     DP,  DP,     DP,       P,     DU),
    D:  (D,      D,   D,      D,        ST,    DU),
}  # fmt: skip
EVENTS = (E.PRELOAD, E.READ, E.OUTDATE, E.NO_ANSWER, E.ANSWER, E.DISCARD)


class Ledger(in_memory.Ledger):
    """A ledger whose database may be down."""

    down = False
    reads = 0

    def _answer(self) -> None:
        if self.down:
            raise LedgerUnavailableError("down")

    async def load(self) -> books.Book:
        self._answer()
        self.reads += 1
        return await super().load()

    async def sequence(self) -> int:
        self._answer()
        return await super().sequence()

    async def since(self, sequence: int, *, most: int) -> list[Entry] | None:
        self._answer()
        return await super().since(sequence, most=most)

    async def fence(self, epoch: int) -> None:
        self._answer()
        await super().fence(epoch)

    async def post_all(self, *args: object, **options: object) -> list:  # type: ignore[type-arg]
        self._answer()
        return await super().post_all(*args, **options)  # type: ignore[arg-type]


def a_mirror(ledger: Ledger) -> LedgerMirror:
    return LedgerMirror(ledger, Term(actor="test", epoch=1), UsageHistory(ledger))


def an_entry(mirror: LedgerMirror, minutes: int = 0) -> Entry:
    at = NOON + timedelta(minutes=minutes)
    return books.grant(QueueName("q"), MeterName("gpu"), 1, at=at, actor="test", after=mirror.book.sequence)


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("event", EVENTS)
def test_every_event_in_every_mirror_state_leads_where_the_table_says(state: S, event: E) -> None:
    assert TRANSITIONS[event].get(state, state) is TABLE[state][EVENTS.index(event)]


@pytest.mark.parametrize(
    ("state", "is_complete", "is_down"),
    [
        (S.UNREAD, False, False),
        (S.PRELOADED, False, False),
        (S.CURRENT, True, False),
        (S.STALE, True, False),
        (S.DOWN_UNREAD, False, True),
        (S.DOWN_PRELOADED, False, True),
        (S.DOWN, True, True),
    ],
)
def test_a_mirror_state_says_whether_the_book_is_complete_and_the_database_down(
    state: S, is_complete: bool, is_down: bool
) -> None:
    mirror = a_mirror(Ledger())
    mirror._state = state

    assert (mirror.is_complete, mirror.is_down, mirror.is_current) == (is_complete, is_down, state is S.CURRENT)


async def test_a_mirror_is_read_once_and_again_when_others_have_written() -> None:
    ledger = Ledger()
    mirror = a_mirror(ledger)
    await mirror.open()
    await mirror.open()
    assert (mirror.state, ledger.reads) == (S.CURRENT, 1)

    await ledger.post_all([an_entry(mirror)], epoch=1)
    await mirror.open()

    assert (mirror.state, ledger.reads) == (S.CURRENT, 2)
    assert mirror.book == ledger.book


async def test_entries_recorded_while_the_database_is_down_are_posted_when_the_database_is_back() -> None:
    ledger = Ledger()
    mirror = a_mirror(ledger)
    await mirror.open()
    ledger.down = True

    await mirror.record([an_entry(mirror)])
    assert (mirror.state, len(mirror.unposted), ledger.entries) == (S.DOWN, 1, [])
    await mirror.open()
    assert mirror.state is S.DOWN

    ledger.down = False
    await mirror.open()

    assert (mirror.state, mirror.unposted, len(ledger.entries)) == (S.CURRENT, (), 1)
    assert mirror.book == ledger.book


async def test_a_preloaded_mirror_continues_from_its_copy_once_the_database_answers() -> None:
    ledger = Ledger()
    mirror = a_mirror(ledger)
    await mirror.preload()
    assert mirror.state is S.PRELOADED

    ledger.down = True
    await mirror.open()
    assert mirror.state in {S.PRELOADED, S.DOWN_PRELOADED}

    ledger.down = False
    await mirror.open()
    assert (mirror.state, ledger.reads) == (S.CURRENT, 1)
