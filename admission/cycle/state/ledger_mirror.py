"""The leader's copy of the ledger's book, and the entries that wait for the database.

What happened in the cluster is entered into the copy at once and posted in order, each batch all or none. While the
database is down entries go on to be entered into the copy, with the times of observation; they are posted before
anything else when the database is back, under the same keys, since an earlier post may have been committed although its
answer was lost. Grants never wait in this way: no gate opens before its row is committed.

An entry that the ledger refuses as made for another book is dropped, and the next cycle derives it from the cluster
again: an entry of one gang never keeps those of others out of the ledger.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from admission.accounting.books import Book
from admission.api.muster.ledger_entries import BudgetShare, Entry, Placement, Posted
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.term import Term
from admission.cycle.state.usage_history import UsageHistory
from admission.errors import AmountError, ConflictError, LedgerUnavailableError, PageError
from admission.ports import Ledger
from admission.quota import fair_share
from admission.quota.budgets import Balances
from admission.quota.fair_share import MemberHistory

MOST_UNPOSTED = 10_000
"""The most entries that wait for the database; if there are more, all are dropped, and later derived again."""

MOST_FOLLOWED = 2_000
"""The most entries that are read to continue a preloaded book, instead of reading the whole book."""

BATCH = 500
"""The most entries posted in one transaction."""

FENCE_SECONDS = 0.5
"""How long a cycle waits for the fencing check; what it guards may wait for the next cycle."""


class MirrorState(StrEnum):
    """How the copy relates to the ledger's book."""

    UNREAD = "unread"
    """Nothing was read, or the copy was discarded."""
    PRELOADED = "preloaded"
    """Read as a standby: the leader of that time may have written since."""
    CURRENT = "current"
    STALE = "stale"
    """Complete, but another client has written, or the outcome of a write is unknown: read it again."""
    DOWN_UNREAD = "database down, unread"
    DOWN_PRELOADED = "database down, preloaded"
    DOWN = "database down"
    """Complete, and updated while the database does not answer."""


class MirrorEvent(StrEnum):
    """An event that changes the state."""

    PRELOAD = "preload"
    READ = "read"
    OUTDATE = "outdate"
    """Another client has written, or the book is about to be read again."""
    NO_ANSWER = "no answer"
    ANSWER = "answer"
    DISCARD = "discard"
    """The copy is discarded: waiting entries were dropped or refused."""


_S, _E = MirrorState, MirrorEvent
TRANSITIONS: Mapping[MirrorEvent, Mapping[MirrorState, MirrorState]] = MappingProxyType(
    {
        _E.PRELOAD: {_S.UNREAD: _S.PRELOADED},
        _E.READ: dict.fromkeys((_S.UNREAD, _S.PRELOADED, _S.CURRENT, _S.STALE), _S.CURRENT),
        _E.OUTDATE: {_S.CURRENT: _S.STALE},
        _E.NO_ANSWER: {
            _S.UNREAD: _S.DOWN_UNREAD,
            _S.PRELOADED: _S.DOWN_PRELOADED,
            _S.CURRENT: _S.DOWN,
            _S.STALE: _S.DOWN,
        },
        _E.ANSWER: {_S.DOWN_UNREAD: _S.UNREAD, _S.DOWN_PRELOADED: _S.PRELOADED, _S.DOWN: _S.STALE},
        _E.DISCARD: {
            **dict.fromkeys((_S.PRELOADED, _S.CURRENT, _S.STALE), _S.UNREAD),
            **dict.fromkeys((_S.DOWN_PRELOADED, _S.DOWN), _S.DOWN_UNREAD),
        },
    }
)
"""The next state, by event and state; pairs that are not listed change nothing."""

_DOWN = frozenset({_S.DOWN_UNREAD, _S.DOWN_PRELOADED, _S.DOWN})
_COMPLETE = frozenset({_S.CURRENT, _S.STALE, _S.DOWN})


@dataclass(slots=True)
class LedgerMirror:
    """The copy of the book. One per leader.

    Rule: only this class changes the book, its state, the waiting entries and the past usage. Every method that writes
    raises DeposedError if a later leader has taken over.
    """

    _ledger: Ledger
    _term: Term
    _usage: UsageHistory
    _book: Book = field(default_factory=Book)
    _state: MirrorState = MirrorState.UNREAD
    _unposted: list[Entry] = field(default_factory=list)
    """The entries that the copy has and the ledger may lack, in order."""

    @property
    def book(self) -> Book:
        return self._book

    @property
    def state(self) -> MirrorState:
        return self._state

    @property
    def actor(self) -> str:
        """Return the author of this leader's entries."""
        return self._term.actor

    @property
    def is_current(self) -> bool:
        """Return whether the copy equals the ledger's book and no entry waits."""
        return self._state is MirrorState.CURRENT and not self._unposted

    @property
    def is_complete(self) -> bool:
        """Return whether the book was read and not discarded since."""
        return self._state in _COMPLETE

    @property
    def is_down(self) -> bool:
        """Return whether the database did not answer the last request."""
        return self._state in _DOWN

    @property
    def unposted(self) -> Sequence[Entry]:
        return tuple(self._unposted)

    # Reading.

    async def open(self) -> None:
        """Begin a cycle: post waiting entries, and read the book unless the copy is known to be current."""
        if self.is_down and await self.holds_epoch():
            self._move(MirrorEvent.ANSWER)
        if self._unposted and not self.is_down:
            await self._post_waiting()
        elif self._state is MirrorState.CURRENT:
            await self._detect_foreign_entries()
        if self._state is not MirrorState.CURRENT and not self.is_down:
            await self._load()

    async def preload(self) -> None:
        """Read the book while another process leads and writes it. Raises LedgerUnavailableError."""
        await self._read()
        self._move(MirrorEvent.PRELOAD)

    async def preload_usage(self, inputs: CycleInputs) -> None:
        """Read past usage while another process leads. Raises LedgerUnavailableError."""
        await self._usage.read(inputs, self._book)
        if await self._ledger.sequence() != self._book.sequence:
            # Entries written in between would be counted twice: in these sums, and when they are read.
            self._usage.clear()

    async def read_usage(self, inputs: CycleInputs) -> None:
        """Read missing past usage, and state this cluster's use of shared budgets."""
        if self.is_down:
            self._usage.keep_current(inputs)
            return
        try:
            await self._usage.read(inputs, self._book)
            await self._usage.write_shares(inputs, self._book, self._term.epoch)
        except LedgerUnavailableError:
            self._move(MirrorEvent.NO_ANSWER)

    def balances(self, inputs: CycleInputs) -> Balances | None:
        """Return the balances of budgets now; None if they are unknown, since the ledger could not be read."""
        return self._usage.balances(inputs, self._book)

    def reported_balances(self, inputs: CycleInputs) -> Balances | None:
        """Return the balances of budgets at the last full minute; None as in `balances`."""
        return self._usage.reported_balances(inputs, self._book)

    def past_usage(self, inputs: CycleInputs) -> fair_share.UsageHistory | None:
        """Return the decayed usage of every queue up to now; None if it is unknown."""
        return self._usage.past(inputs, self._book)

    @property
    def past_member_usage(self) -> MemberHistory | None:
        """Return the decayed usage of the members of queues, at the time when it was read; None if it is unknown."""
        return self._usage.members

    async def holds_epoch(self) -> bool:
        """Return whether the database answers and has no later epoch. Raises DeposedError if it has.

        The API server refuses a late write to a claim or a gate by its resource version. It does not refuse a late
        eviction, nor a late deallocation of what another leader has booked: before these, the fencing token is checked.
        """
        try:
            async with asyncio.timeout(FENCE_SECONDS):
                await self._ledger.fence(self._term.epoch)
        except (LedgerUnavailableError, TimeoutError):
            return False
        return True

    # Writing.

    async def record(self, entries: Iterable[Entry | None]) -> None:
        """Record entries: in the copy now, in the ledger now or when the database is back."""
        wanted = [entry for entry in entries if entry is not None]
        if not wanted:
            return
        self._enter(wanted)
        if len(self._unposted) > MOST_UNPOSTED:
            self._discard()
        elif not self.is_down:
            await self._post_waiting()

    async def reserve(self, entries: Sequence[Entry], shares: Sequence[BudgetShare] = ()) -> list[Entry]:
        """Commit grants. Return those that the ledger refuses as made for another book.

        Raises LedgerUnavailableError if the outcome is unknown: the book is then read again before anything else is
        granted. Raises BudgetTakenError, with nothing committed.
        """
        if not entries:
            return []
        try:
            await self._write(entries, shares)
        except ConflictError:
            return await self._one_by_one(entries, shares)
        return []

    def _move(self, event: MirrorEvent) -> None:
        self._state = TRANSITIONS[event].get(self._state, self._state)

    async def _detect_foreign_entries(self) -> None:
        """Detect entries of other clients, as of an operator who reconciles, so that the book is read again.

        A leader that posts detects them by the sequence number of its entry; an idle leader has to ask, or it would
        hold gangs for quota that was given back.
        """
        try:
            if await self._ledger.sequence() != self._book.sequence:
                self._move(MirrorEvent.OUTDATE)
        except LedgerUnavailableError:
            self._move(MirrorEvent.NO_ANSWER)

    def _enter(self, entries: Sequence[Entry]) -> None:
        """Enter entries into the copy; entries that do not apply are dropped."""
        self._usage.mark(entries, self._book.marked)
        try:
            self._book = self._book.apply_all(entries)
            self._unposted += entries
        except ConflictError:
            for entry in entries:
                try:
                    self._book = self._book.apply(entry)
                    self._unposted.append(entry)
                except ConflictError:
                    continue

    async def _post_waiting(self) -> None:
        """Post waiting entries in order. Those that the ledger refuses are dropped, and the book is read again."""
        try:
            end = self._book.sequence
            while some := self._unposted[:BATCH]:
                end = (await self._ledger.post_all(some, epoch=self._term.epoch))[-1].sequence
                del self._unposted[: len(some)]
            if end != self._book.sequence:
                # Another client has written, or a grant whose answer was lost was committed.
                await self._load()
        except LedgerUnavailableError:
            self._move(MirrorEvent.NO_ANSWER)
        except ConflictError:
            entries = list(self._unposted)
            self._discard()
            await self._rescue(entries)

    async def _rescue(self, entries: Sequence[Entry]) -> None:
        try:
            await self._one_by_one(entries)
        except LedgerUnavailableError:
            self._discard()

    async def _one_by_one(self, entries: Sequence[Entry], shares: Sequence[BudgetShare] = ()) -> list[Entry]:
        """Read the book again, post entries singly, return those refused. Raises LedgerUnavailableError."""
        refused = []
        await self._reload()
        for entry in entries:
            try:
                await self._write([entry], shares)
            except ConflictError:
                refused.append(entry)
                await self._reload()
        return refused

    async def _write(self, entries: Sequence[Entry], shares: Sequence[BudgetShare] = ()) -> None:
        try:
            posted = await self._ledger.post_all(entries, epoch=self._term.epoch, shares=shares)
        except LedgerUnavailableError:
            self._move(MirrorEvent.NO_ANSWER)
            raise
        self._book = _after(self._book, entries, posted)
        if posted[-1].sequence != self._book.sequence:
            self._move(MirrorEvent.OUTDATE)

    async def _load(self) -> None:
        try:
            await self._reload()
        except LedgerUnavailableError:
            return

    async def _reload(self) -> None:
        self._move(MirrorEvent.OUTDATE)
        try:
            await self._read()
        except LedgerUnavailableError:
            self._move(MirrorEvent.NO_ANSWER)
            raise
        self._move(MirrorEvent.READ)

    async def _read(self) -> None:
        """Make the copy equal to the ledger's book; a preloaded copy is continued if possible."""
        if self._state is MirrorState.PRELOADED and await self._follow():
            return
        self._usage.clear()
        book, before = await self._ledger.load(), self._book.placements
        kept = {uid: _same(placement, before.get(uid)) for uid, placement in book.placements.items()}
        self._book = replace(book, placements=kept)

    async def _follow(self) -> bool:
        """Enter the entries written since the book was preloaded; return whether that was possible."""
        entries = await self._ledger.since(self._book.sequence, most=MOST_FOLLOWED)
        if entries is None:
            return False
        self._usage.mark(entries, self._book.marked)
        try:
            self._book = self._book.apply_all(entries)
        except (AmountError, ConflictError, PageError):
            return False
        return True

    def _discard(self) -> None:
        """Discard copy and waiting entries; these are derived from the cluster again once the book is read."""
        self._unposted.clear()
        self._move(MirrorEvent.DISCARD)


def _after(book: Book, entries: Sequence[Entry], posted: Sequence[Posted]) -> Book:
    return book.apply_all(entry for entry, place in zip(entries, posted, strict=True) if not place.repeated)


def _same(read: Placement, before: Placement | None) -> Placement:
    """Return a placement that was read: the same object as before if they are equal, so that caches hold.

    The tables do not have `first_reserved`, so it is kept while the placement has a slot in common with the old one.
    """
    if before is None or before == read:
        return before or read
    goes_on = not before.seats.keys().isdisjoint(read.seats)
    return replace(read, first_reserved=before.first_reserved) if goes_on else read
