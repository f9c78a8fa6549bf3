"""Heads: when a leader signs, what it refuses to sign, and where what it signed is published."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import BudgetShare, ChainEnd, Entry, Kind, Posted
from admission.api.muster.status_reports import Notice
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import EventReason
from admission.controller import head_publisher
from admission.controller.head_publisher import ConfigMapSink, HeadPublisher
from admission.controller.head_signer import IDLE, HeadSigner, SigningSettings
from admission.controller.own_writes import OwnWrites
from admission.errors import (
    ConflictError,
    DeposedError,
    FixError,
    LedgerCorruptError,
    LedgerUnavailableError,
    RetryError,
)
from admission.heads import head_document, key_history
from admission.heads.head_document import KeptHeads
from admission.heads.signed_head import Cause, SignedHead
from admission.ports import HeadSink
from admission.simulation import in_memory, in_memory_chain
from tests.unit.heads.builders import AT


class Ledger(in_memory.Ledger):
    """A ledger in memory whose writes extend a chain; its answers can be lost."""

    def __init__(self, chain: in_memory_chain.Chain) -> None:
        super().__init__()
        self.chain = chain
        self.loses_answers = False

    async def post_all(
        self,
        entries: Sequence[Entry],
        *,
        epoch: int,  # noqa: ARG002 - a port
        shares: Sequence[BudgetShare] = (),  # noqa: ARG002
    ) -> list[Posted]:
        posted = []
        stored = {entry.key: sequence for sequence, (entry, _) in self.chain.rows.items()}
        for entry in entries:
            if entry.key in stored:
                sequence = stored[entry.key]
                digest = self.chain.rows[sequence][1]
                posted.append(Posted(sequence=sequence, digest=digest, repeated=True))
            else:
                posted.append(self.chain.write(entry))
        if self.loses_answers:
            raise LedgerUnavailableError("the answer was lost")
        return posted


def an_entry(number: int, kind: Kind = Kind.GRANT) -> Entry:
    if kind is Kind.GRANT:
        return books.grant(QueueName("q"), MeterName("gpu"), 1, at=AT, actor="muster", after=number)
    return Entry(kind=kind, key=f"{kind}:{number}", at=AT, actor="muster", reason="r", queue=QueueName("q"))


@dataclass
class Term:
    """A leader's term over a chain, with a clock that stands still until it is moved."""

    chain: in_memory_chain.Chain = field(default_factory=lambda: in_memory_chain.Chain(epoch=3))
    secret: in_memory_chain.EntryStore = field(default_factory=in_memory_chain.EntryStore)
    config_map: in_memory_chain.EntryStore = field(default_factory=in_memory_chain.EntryStore)
    now: datetime = AT
    epoch: int = 3

    def __post_init__(self) -> None:
        self.ledger = Ledger(self.chain)
        self.begin()

    def begin(self) -> None:
        """Begin another term, which knows what was published."""
        self.writes = OwnWrites(self.ledger)
        settings = SigningSettings(cluster="east")
        self.signer = HeadSigner(
            chain=self.chain, writes=self.writes, keys=self.secret, settings=settings, clock=lambda: self.now
        )
        self.sink = ConfigMapSink(self.config_map, self.signer, lambda: self.now)
        stored = self.config_map.stored
        self.signer.begin(KeptHeads() if stored is None else head_document.from_entries(stored[0]))

    async def post(self, *entries: Entry) -> None:
        await self.writes.post_all(entries, epoch=self.epoch)

    async def sign(self, **passed: float) -> SignedHead | None:
        """Let time pass, sign, and publish."""
        self.now += timedelta(**passed)
        signed = await self.signer.sign(self.epoch)
        if signed is not None:
            await self.sink.publish((signed,))
        return signed

    @property
    def published(self) -> tuple[SignedHead, ...]:
        assert self.config_map.stored is not None
        return head_document.from_entries(self.config_map.stored[0]).heads

    def rewrite(self, sequence: int) -> None:
        """Write the chain anew from a place on, with right digests, as the owner of the database can."""
        entries = [entry for place, (entry, _) in sorted(self.chain.rows.items()) if place > sequence]
        for place in range(sequence, self.chain.last + 1):
            del self.chain.rows[place]
        for entry in (an_entry(99), *entries):
            self.chain.write(entry)


async def test_a_leader_signs_when_it_begins_at_marks_and_while_the_books_grow() -> None:
    term = Term()
    assert term.signer.is_due()
    start = await term.sign()
    assert not term.signer.is_due()

    await term.post(an_entry(1))
    assert not term.signer.is_due(), "a minute has not passed"
    await term.post(an_entry(2, Kind.USAGE))
    assert term.signer.is_due()
    mark = await term.sign(seconds=1)
    await term.post(an_entry(3))
    term.now += timedelta(minutes=1)
    assert term.signer.is_due()
    growth = await term.sign()

    assert [
        signed and (signed.head.cause, signed.head.sequence, signed.head.epoch) for signed in (start, mark, growth)
    ] == [
        (Cause.START, 0, 3),
        (Cause.MARK, 2, 3),
        (Cause.TIME, 3, 3),
    ]
    assert growth is not None
    assert growth.head.digest == term.chain.rows[3][1]
    assert [key_history.problem(one, term.signer.public) for one in term.published] == [None, None]


async def test_what_was_signed_is_signed_again_only_after_a_while() -> None:
    term = Term()
    await term.sign()

    assert await term.sign(seconds=70) is None
    assert not term.signer.is_due()
    term.now = AT + IDLE
    assert term.signer.is_due()
    again = await term.sign()

    assert again is not None
    assert (again.head.sequence, again.head.cause) == (0, Cause.TIME)


async def test_a_look_at_the_books_that_finds_nothing_foreign_signs_no_earlier() -> None:
    term = Term()
    await term.sign()
    await term.post(an_entry(1))
    await term.writes.load()

    assert term.signer.is_due()
    assert await term.sign(seconds=1) is None
    assert not term.signer.is_due()
    term.now += timedelta(minutes=1)
    assert term.signer.is_due()
    assert await term.sign() is not None


async def test_an_entry_that_another_client_wrote_is_named_in_the_next_head() -> None:
    term = Term()
    await term.post(an_entry(1))
    await term.sign()
    await term.post(an_entry(2))
    term.chain.write(an_entry(3))
    term.chain.write(an_entry(4))
    await term.post(an_entry(5))
    await term.writes.load()  # the leader reads the book, as the numbers of its entries have left some out
    assert term.signer.is_due()

    signed = await term.sign()

    assert signed is not None
    assert (signed.head.cause, signed.head.foreign) == (Cause.FOREIGN, ((3, 4),))
    assert [sequence for sequence, _ in term.signer.foreign] == [3, 4]
    await term.post(an_entry(6))
    after = await term.sign(minutes=1)
    assert after is not None
    assert after.head.foreign == ()


async def test_a_closing_is_signed_as_one() -> None:
    term = Term()
    await term.sign()
    term.chain.write(an_entry(1, Kind.CLOSE))
    await term.writes.load()

    signed = await term.sign()

    assert signed is not None
    assert (signed.head.cause, signed.head.foreign) == (Cause.CLOSING, ((1, 1),))
    assert (term.signer.foreign, term.signer.foreign_count) == ((), 0), "a closing is nothing to be alarmed about"


@pytest.mark.parametrize("is_posted_again", [True, False])
async def test_an_own_entry_whose_answer_was_lost_is_not_foreign(*, is_posted_again: bool) -> None:
    term = Term()
    await term.sign()
    term.ledger.loses_answers = True
    with pytest.raises(LedgerUnavailableError):
        await term.post(an_entry(1))
    term.ledger.loses_answers = False
    if is_posted_again:
        await term.post(an_entry(1))
    await term.post(an_entry(2))

    signed = await term.sign(minutes=1)

    assert signed is not None
    assert (signed.head.sequence, signed.head.foreign) == (2, ())


async def test_the_same_key_written_first_by_another_client_is_foreign() -> None:
    term = Term()
    await term.sign()
    term.chain.write(an_entry(1))
    await term.post(an_entry(1))

    signed = await term.sign(minutes=1)

    assert signed is not None
    assert signed.head.foreign == ((1, 1),)


async def test_what_an_earlier_leader_wrote_after_its_last_head_is_not_foreign() -> None:
    term = Term()
    await term.sign()
    await term.post(an_entry(1))
    term.epoch = term.chain.epoch = 4
    term.begin()

    signed = await term.sign()

    assert signed is not None
    assert (signed.head.cause, signed.head.sequence, signed.head.foreign) == (Cause.START, 1, ())


async def a_term_with_history() -> Term:
    term = Term()
    for number in range(1, 5):
        await term.post(an_entry(number))
        await term.sign(minutes=1)
    return term


@pytest.mark.parametrize("is_new_leader", [True, False], ids=["a new leader", "the same leader"])
@pytest.mark.parametrize("sequence", [1, 3, 4])
async def test_a_chain_that_was_written_anew_is_not_signed(sequence: int, *, is_new_leader: bool) -> None:
    term = await a_term_with_history()
    term.rewrite(sequence)
    if is_new_leader:
        term.begin()

    with pytest.raises(LedgerCorruptError, match="its chain was written anew"):
        await term.sign(minutes=1)

    assert term.signer.is_due(), "it is tried again"
    assert term.published[-1].head.sequence == 4


async def test_a_chain_whose_end_was_cut_off_is_not_signed() -> None:
    term = await a_term_with_history()
    del term.chain.rows[4]

    with pytest.raises(LedgerCorruptError, match="the ledger's chain ends at transaction 3"):
        await term.sign(minutes=1)


async def test_an_own_entry_after_the_last_head_that_was_changed_is_noticed() -> None:
    term = await a_term_with_history()
    await term.post(an_entry(5))
    term.rewrite(5)

    with pytest.raises(LedgerCorruptError, match="what this leader has written"):
        await term.sign(minutes=1)


async def test_books_that_were_closed_past_the_newest_head_are_not_signed() -> None:
    """Their rows are gone: whoever wrote them anew could hide it so."""
    term = await a_term_with_history()
    term.chain.write(an_entry(10))
    term.chain.close(5)
    term.chain.write(an_entry(11, Kind.CLOSE))

    with pytest.raises(LedgerCorruptError, match="past everything that is known"):
        await term.sign(minutes=1)


async def test_books_that_were_closed_before_the_newest_head_go_on() -> None:
    term = await a_term_with_history()
    term.chain.close(3)
    term.begin()

    assert await term.sign(minutes=1) is not None
    term.chain.close(4)
    assert await term.sign(minutes=20) is not None, "the newest head is of the last closed transaction"


async def test_books_that_are_closed_while_they_are_looked_at_are_looked_at_again() -> None:
    term = await a_term_with_history()
    term.begin()

    class Closing(in_memory_chain.Chain):
        async def digests(self, sequences: Collection[int]) -> dict[int, str]:
            if not self._closed[0]:
                self.close(3)
            return await super().digests(sequences)

    closing = Closing(epoch=3)
    closing.rows, closing.epochs = term.chain.rows, term.chain.epochs
    term.signer.chain = closing

    assert await term.sign(minutes=1) is not None


async def test_a_leader_whose_epoch_is_over_signs_nothing() -> None:
    term = Term()
    term.chain.epoch = 4

    with pytest.raises(DeposedError, match="epoch 3 is over"):
        await term.sign()


async def test_no_head_is_signed_while_a_write_is_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entry might be there already, and seem to be another client's."""
    monkeypatch.setattr("admission.controller.head_signer.TRY_SECONDS", 0)
    term = Term()
    await term.sign()
    go_on = asyncio.Event()

    class SlowLedger(in_memory.Ledger):
        async def post_all(
            self,
            entries: Sequence[Entry],
            *,
            epoch: int,  # noqa: ARG002 - a port
            shares: Sequence[BudgetShare] = (),  # noqa: ARG002
        ) -> list[Posted]:
            posted = [term.chain.write(entry) for entry in entries]
            await go_on.wait()
            return posted

    term.writes._ledger = SlowLedger()
    writing = asyncio.create_task(term.post(an_entry(1)))
    await asyncio.sleep(0)
    with pytest.raises(ConflictError, match="writes all the time"):
        await term.sign(minutes=1)
    go_on.set()
    await writing
    signed = await term.sign(minutes=1)

    assert signed is not None
    assert (signed.head.sequence, signed.head.foreign) == (1, ())


@pytest.mark.parametrize(
    ("sequence", "digest"), [(10**15, "f" * 64), (1, "f" * 64)], ids=["far away", "another digest"]
)
async def test_a_stored_end_that_is_not_that_of_the_chain_is_not_signed(sequence: int, digest: str) -> None:
    """The owner of the database may write anything into the head's row."""
    term = Term()
    await term.sign()
    await term.post(an_entry(1))

    class Forged(in_memory_chain.Chain):
        async def end(self) -> ChainEnd:
            return ChainEnd(epoch=3, sequence=sequence, digest=digest)

    forged = Forged()
    forged.rows, forged.epochs = term.chain.rows, term.chain.epochs
    term.signer.chain = forged
    with pytest.raises(LedgerCorruptError, match="by the stored end of the chain"):
        await term.sign(minutes=1)


async def test_an_entry_under_the_epoch_of_the_next_leader_is_foreign_to_it() -> None:
    """Who deposes a leader by an entry under the next epoch would have it taken for that of a leader in between."""
    term = Term()
    await term.sign()
    term.chain.epoch = 4
    term.chain.write(an_entry(1))
    term.epoch = 4
    term.begin()
    await term.post(an_entry(2))

    signed = await term.sign()

    assert signed is not None
    assert (signed.head.cause, signed.head.sequence, signed.head.foreign) == (Cause.START, 2, ((1, 1),))
    assert [sequence for sequence, _ in term.signer.foreign] == [1]


async def test_a_deposed_leader_tells_of_what_others_wrote_during_its_term() -> None:
    """The next one cannot tell it from what this one wrote."""
    term = Term()
    await term.sign()
    await term.post(an_entry(1))
    term.chain.write(an_entry(2))
    term.chain.epoch = 4
    term.chain.write(an_entry(3))
    running = Running(term)

    await running.publisher.check_ended_term(term.epoch)

    assert [notice.reason for notice in running.notices] == [EventReason.FOREIGN_ENTRIES]
    assert "transactions 2 to 2" in running.notices[0].message
    assert running.metrics.checks == [(False, 1)]


async def test_keys_are_replaced_when_they_are_old_and_when_their_secret_was_deleted() -> None:
    term = Term()
    await term.sign()
    await term.sign(days=91)
    term.secret.stored = None
    await term.sign(days=1)

    keys = term.signer.public
    assert [key.until is None for key in keys] == [False, False, True]
    assert {signed.key for signed in term.published} == {key.id for key in keys}
    assert [key_history.problem(signed, keys) for signed in term.published] == [None] * 3
    stored = term.config_map.stored
    assert stored is not None
    assert head_document.from_entries(stored[0]).keys == keys


async def test_a_secret_that_is_none_of_keys_is_named() -> None:
    term = Term()
    await term.secret.write({"private.pem": b"x"}, None)

    with pytest.raises(FixError, match=r"private\.pem"):
        await term.sign()


async def test_heads_that_were_deleted_are_published_again() -> None:
    term = await a_term_with_history()
    term.config_map.stored = None
    await term.post(an_entry(5))
    await term.sign(minutes=1)

    assert [signed.head.sequence for signed in term.published] == [1, 2, 3, 4, 5]


class Metrics:
    """The metrics of heads, as a list."""

    def __init__(self) -> None:
        self.published: dict[str, datetime] = {}
        self.failed: list[str] = []
        self.checks: list[tuple[bool, int]] = []

    def head_published(self, place: str, at: datetime) -> None:
        self.published[place] = at

    def head_failed(self, place: str) -> None:
        self.failed.append(place)

    def chain_checked(self, *, broken: bool, foreign: int = 0) -> None:
        self.checks.append((broken, foreign))


class Refusing:
    """A place that refuses some times."""

    def __init__(self, times: int, error: Exception | None = None) -> None:
        self.left = times
        self.error = error or RetryError("no")
        self.got: list[SignedHead] = []

    async def publish(self, heads: Sequence[SignedHead]) -> None:
        if self.left:
            self.left -= 1
            raise self.error
        self.got += heads


class Running:
    """A publisher that runs, and what it tells."""

    def __init__(self, term: Term, **sinks: HeadSink) -> None:
        self.term = term
        self.metrics = Metrics()
        self.notices: list[Notice] = []
        self.publisher = HeadPublisher(
            term.signer,
            config_map=term.sink,
            sinks=sinks,
            metrics=self.metrics,
            notify=self._notify,
            subject=("muster-system", "muster-heads"),
        )

    async def _notify(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def until(self, condition: object) -> None:
        """Run until a condition holds."""
        running = asyncio.create_task(self.publisher.run(self.term.epoch))
        async with asyncio.timeout(30):
            while not condition():  # type: ignore[operator]
                await asyncio.sleep(0)
                if running.done():
                    await running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_publisher, "TICK", 0)
    monkeypatch.setattr(head_publisher, "_pause", lambda _: 0)


async def test_a_head_is_published_everywhere_and_a_place_that_refuses_holds_up_no_other() -> None:
    term, stubborn, file = Term(), Refusing(10**9), in_memory_chain.HeadSink()
    running = Running(term, http=stubborn, file=file)

    await running.until(lambda: file.heads and term.config_map.stored and "http" in running.metrics.failed)

    assert {signed.head.cause for signed in term.published} == {Cause.START}
    assert running.metrics.published["file"] == term.now
    assert [notice.reason for notice in running.notices] == [EventReason.HEAD_SIGNED]
    assert running.metrics.checks == [(False, 0)]


@pytest.mark.parametrize("error", [RetryError("no"), FixError("full"), ValueError("a defect")])
async def test_a_place_that_failed_gets_every_head_later(error: Exception) -> None:
    term, place = Term(), Refusing(2, error)
    running = Running(term, http=place)

    await running.until(lambda: place.got)

    assert running.metrics.failed == ["http"] * 2
    assert [signed.head.sequence for signed in place.got] == [0]


async def test_books_that_are_not_those_that_were_signed_are_told_and_not_signed() -> None:
    term = await a_term_with_history()
    term.rewrite(2)
    term.begin()
    running = Running(term)

    await running.until(lambda: running.metrics.checks)

    assert running.metrics.checks[0] == (True, 0)
    assert running.notices[0].reason is EventReason.HEAD_NOT_PASSED
    assert "muster ledger verify --heads cluster" in running.notices[0].message
    assert term.published[-1].head.sequence == 4


async def test_a_leader_that_was_deposed_ends_its_term() -> None:
    term = Term()
    term.chain.epoch = 4

    with pytest.raises(ExceptionGroup) as caught:
        await Running(term).publisher.run(term.epoch)

    assert caught.group_contains(DeposedError, match="epoch 3 is over")


async def test_entries_of_others_are_told_with_their_authors() -> None:
    term = Term()
    await term.sign()
    term.chain.write(an_entry(1))
    await term.writes.load()
    running = Running(term)

    await running.until(lambda: running.notices)

    assert running.notices[0].reason is EventReason.FOREIGN_ENTRIES
    assert running.notices[0].message == (
        "another client has written into the books (1): transactions 1 to 1, the first of them (grant) by muster"
    )
    assert running.metrics.checks == [(False, 1)]


@pytest.mark.parametrize("error", [RetryError("away"), FixError("forbidden"), ValueError("a defect")])
async def test_while_heads_cannot_be_read_nothing_is_signed_and_the_term_goes_on(error: Exception) -> None:
    term = Term()

    class Away(in_memory_chain.EntryStore):
        times = 1

        async def read(self) -> None:
            self.times -= 1
            if self.times >= 0:
                raise error

    term.sink._store = Away()
    running = Running(term)

    await running.until(lambda: running.metrics.checks)

    assert running.metrics.failed == ["signature"]
    assert running.metrics.checks[0] == (False, 0)


def test_a_simulation_signs_nothing() -> None:
    """Its ledger has no chain, and nobody there is given a key."""
    assert not hasattr(in_memory.Ledger(Book()), "end")
