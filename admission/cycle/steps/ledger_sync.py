"""Keeping the books: what has happened in the cluster is posted, in order, all or none at a time.

What happened is written into the book in memory at once and waits in `desk.unposted` until the ledger has it. So while
the database is away the book goes on as if all were posted, with the times at which things were seen; it is posted
before anything else when the database is back, under the same keys, since an answer that was lost may have been a yes.
Grants are never kept so: no gate opens before its row is there.

An entry that the ledger refuses as made for another book is dropped, and what it is about is looked at anew by the next
cycle: nothing that one gang has done keeps the others from being booked.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from admission.accounting import books
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import BudgetShare, Entry, Placement, Posted
from admission.cycle import fencing
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.cycle.steps import deallocate, usage_history
from admission.errors import AmountError, ConflictError, LedgerAwayError, PageError
from admission.lifecycle import ledger_clock, transitions
from admission.scheduling.checks import faults, replacement_slots
from admission.scheduling.checks.faults import During

MOST_UNPOSTED = 10_000
"""Entries that wait for the database. With more, all are dropped, and derived from the cluster when it is back."""

MOST_FOLLOWED = 2_000
"""Entries that are read one by one, rather than the whole book."""

SLICE = 500
"""Entries that are posted together, when many have waited."""


async def open_book(desk: LeaderState) -> None:
    """Begin a cycle: post what waits, and read the book unless it is known to be what the ledger holds."""
    desk.overtaken = False
    desk.away = desk.away and not await fencing.holds(desk)
    if desk.unposted and not desk.away:
        await _post_waiting(desk)
    elif desk.loaded:
        await _notice_others(desk)
    if not desk.loaded and not desk.away:
        await _load(desk)


async def read_ahead(desk: LeaderState) -> None:
    """Read the book while another process leads and writes it. Raises LedgerAwayError."""
    await _read(desk)
    desk.ahead = True


async def _notice_others(desk: LeaderState) -> None:
    """See whether somebody else has written: an operator who reconciles or closes, say. Then the book is read anew.

    A leader that posts something sees it by the number of its entry; one for which nothing happens has to ask, or it
    would hold gangs for quota that was given back.
    """
    try:
        desk.loaded = await desk.ports.ledger.sequence() == desk.book.sequence
    except LedgerAwayError:
        _lose(desk)


async def catch_up(desk: LeaderState, facts: CycleInputs) -> None:
    """Write down marks, quota changes, settlements and what was allocated anew."""
    if not desk.known:
        return
    at, actor = facts.now, desk.actor
    for time in ledger_clock.marks(desk.book, ledger_clock.budgets_of(facts.tree.queues.values()), at):
        await record(desk, [books.usage(desk.book, at=time, actor=actor)])

    followed: list[Entry] = []
    if desk.caught_up:
        desk.dirty.look(desk.book, facts.observed, desk.users.of(desk.book.placements))
        followed = _allocated(desk, facts)
    await record(desk, [*_quota_changes(desk, facts), *followed])


def look_ahead(desk: LeaderState, facts: CycleInputs) -> None:
    """Find the gangs of which nothing follows, so that the first cycle need not look at them. Nothing is written."""
    desk.dirty.look(desk.book, facts.observed, desk.users.of(desk.book.placements))
    _allocated(desk, facts)
    _gone(desk, facts)
    desk.dirty.rest()


def _allocated(desk: LeaderState, facts: CycleInputs) -> list[Entry]:
    """Return what follows from allocations: settlements, and what was allocated anew."""
    at, actor = facts.now, desk.actor

    def settled(placement: Placement) -> Entry | None:
        return transitions.settlement(placement, facts.observed, at=at, actor=actor)

    def adjusted(placement: Placement) -> Entry | None:
        return transitions.adjustment(placement, facts.observed, at=at, actor=actor)

    return [*_of_each(desk, settled), *_of_each(desk, adjusted)]


async def release(desk: LeaderState, facts: CycleInputs) -> None:
    """Write down what is gone.

    A gang that is to be taken back and could not be yet stays as it is: that pods of it are gone is why it has to be.
    """
    desk.dirty.look(desk.book, facts.observed, desk.users.of(desk.book.placements))
    entries = _gone(desk, facts)
    desk.dirty.rest()
    secured = await deallocate.secured(desk, facts, entries)
    desk.vacant = replacement_slots.after(desk.vacant, desk.book.placements, secured)
    await record(desk, secured)


def _gone(desk: LeaderState, facts: CycleInputs) -> list[Entry]:
    wanted = transitions.Wanted(desk.users.of(desk.book.placements), desk.book, facts.observed)
    at, actor = facts.now, desk.actor

    def gone(placement: Placement) -> Entry | None:
        if placement.gang_uid in facts.taken_back and placement.seats:
            desk.dirty.follows(placement.gang_uid)
            return None
        return transitions.release(placement, facts.observed, wanted, at=at, actor=actor)

    return _of_each(desk, gone)


def _of_each(desk: LeaderState, follow: Callable[[Placement], Entry | None]) -> list[Entry]:
    """Return the entries that follow for every gang; one that Muster fails of stays as it is in the books."""
    entries: list[Entry] = []
    for placement in desk.dirty.placements(desk.book):
        failed = len(desk.defects)
        found = faults.spared(During.FOLLOWING, placement.gang, partial(follow, placement), desk.defects)
        if found is not None:
            entries.append(found)
        if found is not None or len(desk.defects) > failed:
            desk.dirty.follows(placement.gang_uid)
    return entries


async def record(desk: LeaderState, entries: Iterable[Entry | None]) -> None:
    """Write down what has happened: in the book now, in the ledger now or when it is back. Raises DeposedError."""
    wanted = [entry for entry in entries if entry is not None]
    if not wanted:
        return
    _enter(desk, wanted)
    if len(desk.unposted) > MOST_UNPOSTED:
        _forget(desk)
    elif not desk.away:
        await _post_waiting(desk)


async def reserve(desk: LeaderState, entries: Sequence[Entry], shares: Sequence[BudgetShare] = ()) -> list[Entry]:
    """Commit grants. Return those that the ledger refuses as made for another book.

    Raises LedgerAwayError when the outcome is not known: the book is then read again before anything else is granted.
    Raises BudgetTakenError, with nothing committed, and DeposedError.
    """
    if not entries:
        return []
    try:
        await _write(desk, entries, shares)
    except ConflictError:
        return await _one_by_one(desk, entries, shares)
    return []


def _enter(desk: LeaderState, entries: Sequence[Entry]) -> None:
    """Write entries into the book in memory; one that it refuses is dropped."""
    usage_history.mark(desk, entries)
    try:
        desk.book = desk.book.apply_all(entries)
        desk.unposted += entries
    except ConflictError:
        for entry in entries:
            try:
                desk.book = desk.book.apply(entry)
                desk.unposted.append(entry)
            except ConflictError:
                continue


async def _post_waiting(desk: LeaderState) -> None:
    """Post what waits, in order. What the ledger refuses is dropped, and the book is read again."""
    try:
        end = desk.book.sequence
        while some := desk.unposted[:SLICE]:
            end = (await desk.ports.ledger.post_all(some, epoch=desk.epoch))[-1].sequence
            del desk.unposted[: len(some)]
        if end != desk.book.sequence:
            # Somebody else has written to the books, or a grant whose answer was lost has reached them.
            desk.loaded = False
            await _load(desk)
    except LedgerAwayError:
        _lose(desk)
    except ConflictError:
        entries = list(desk.unposted)
        _forget(desk)
        await _rescue(desk, entries)


async def _rescue(desk: LeaderState, entries: Sequence[Entry]) -> None:
    try:
        await _one_by_one(desk, entries)
    except LedgerAwayError:
        _forget(desk)


async def _one_by_one(desk: LeaderState, entries: Sequence[Entry], shares: Sequence[BudgetShare] = ()) -> list[Entry]:
    """Post entries to the ledger as it is; return those that it refuses. Raises LedgerAwayError."""
    refused = []
    await _reload(desk)
    for entry in entries:
        try:
            await _write(desk, [entry], shares)
        except ConflictError:
            refused.append(entry)
            await _reload(desk)
    return refused


async def _write(desk: LeaderState, entries: Sequence[Entry], shares: Sequence[BudgetShare] = ()) -> None:
    try:
        posted = await desk.ports.ledger.post_all(entries, epoch=desk.epoch, shares=shares)
    except LedgerAwayError:
        _lose(desk)
        raise
    desk.book = _after(desk.book, entries, posted)
    if posted[-1].sequence != desk.book.sequence:
        desk.loaded = False


def _after(book: Book, entries: Sequence[Entry], posted: Sequence[Posted]) -> Book:
    return book.apply_all(entry for entry, place in zip(entries, posted, strict=True) if not place.repeated)


async def _load(desk: LeaderState) -> None:
    try:
        await _reload(desk)
    except LedgerAwayError:
        return


async def _reload(desk: LeaderState) -> None:
    desk.loaded = False
    try:
        await _read(desk)
    except LedgerAwayError:
        _lose(desk)
        raise
    desk.ahead = False
    desk.loaded = desk.known = True


async def _read(desk: LeaderState) -> None:
    """Have the book be what the ledger holds; what was read ahead is gone on from."""
    if desk.ahead and await _followed(desk):
        return
    desk.history = None
    desk.booked.clear()
    book, before = await desk.ports.ledger.load(), desk.book.placements
    kept = {uid: _known(placement, before.get(uid)) for uid, placement in book.placements.items()}
    desk.book = replace(book, placements=kept)


async def _followed(desk: LeaderState) -> bool:
    """Enter what others have written since the book was read ahead; return whether it is what the ledger holds then."""
    entries = await desk.ports.ledger.since(desk.book.sequence, most=MOST_FOLLOWED)
    if entries is None:
        return False
    usage_history.mark(desk, entries)
    try:
        desk.book = desk.book.apply_all(entries)
    except (AmountError, ConflictError, PageError):
        return False
    return True


def _known(read: Placement, before: Placement | None) -> Placement:
    """Return a placement that was read: the very one of before where they are equal, so that nobody looks at it anew.

    The tables do not tell since when it has had seats.
    """
    if before is None or before == read:
        return before or read
    goes_on = not before.seats.keys().isdisjoint(read.seats)
    return replace(read, first_reserved=before.first_reserved) if goes_on else read


def _lose(desk: LeaderState) -> None:
    """Note that the database does not answer. The book goes on, and is read again when it does."""
    desk.away = True
    desk.loaded = False


def _forget(desk: LeaderState) -> None:
    """Give up the book in memory: what happens is derived from the cluster, when the ledger's book is read."""
    desk.unposted.clear()
    desk.loaded = desk.known = False


def _quota_changes(desk: LeaderState, facts: CycleInputs) -> Iterable[Entry]:
    """Yield a grant for every nominal quota that is not what the ledger says."""
    wanted = {
        (name, quota.meter): quota.nominal for name, queue in facts.snapshot.queues.items() for quota in queue.quotas
    }
    known = {(account.queue, account.meter) for account in desk.book.balances}
    for queue, meter in sorted({*wanted, *known}):
        delta = wanted.get((queue, meter), 0) - desk.book.nominal(queue, meter)
        if delta and ("Queue", queue) not in facts.snapshot.malformed:
            yield books.grant(queue, meter, delta, at=facts.now, actor=desk.actor, after=desk.book.sequence)
