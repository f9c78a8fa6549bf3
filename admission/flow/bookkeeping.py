"""Keeping the books: what has happened in the cluster is posted, all or none at a time.

An entry that the ledger refuses as made for another book is dropped, and what it is about is looked at anew by the next
cycle: nothing that one gang has done keeps the others from being booked.
"""

from collections.abc import Iterable, Sequence

from admission.api.entries import Entry
from admission.errors import ConflictError, LedgerAwayError
from admission.flow.desks import Desk, Facts
from admission.policy import following
from admission.quota import books


async def catch_up(desk: Desk, facts: Facts) -> bool:
    """Read the book unless it is known, and post quota changes and settlements. Return whether the ledger is away."""
    try:
        if not desk.loaded:
            await _load(desk)
        placements = desk.book.placements.values()
        at, actor = facts.now, desk.actor
        settled = [following.settlement(placement, facts.sight, at=at, actor=actor) for placement in placements]
        adjusted = [following.adjustment(placement, facts.sight, at=at, actor=actor) for placement in placements]
        await post(desk, [*_quota_changes(desk, facts), *settled, *adjusted])
    except LedgerAwayError:
        # What happened shows in the cluster for as long as the books do not say so: the next cycle posts it.
        return True
    return False


async def release(desk: Desk, facts: Facts) -> bool:
    """Post what is gone. Return whether the ledger is away."""
    placements = desk.book.placements.values()
    wanted = following.wanted_claims(placements, facts.sight)
    entries = [
        following.release(placement, facts.sight, wanted, at=facts.now, actor=desk.actor) for placement in placements
    ]
    try:
        await post(desk, entries)
    except LedgerAwayError:
        return True
    return False


async def post(desk: Desk, entries: Iterable[Entry | None]) -> list[Entry]:
    """Record entries and keep the book in step. Return those that the ledger refused as made for another book.

    Raises LedgerAwayError when the outcome is not known, and DeposedError.
    """
    wanted = [entry for entry in entries if entry is not None]
    if not wanted:
        return []
    try:
        await _write(desk, wanted)
    except ConflictError:
        return await _one_by_one(desk, wanted)
    return []


async def _one_by_one(desk: Desk, entries: Sequence[Entry]) -> list[Entry]:
    refused = []
    await _load(desk)
    for entry in entries:
        try:
            await _write(desk, [entry])
        except ConflictError:
            refused.append(entry)
            await _load(desk)
    return refused


async def _write(desk: Desk, entries: list[Entry]) -> None:
    try:
        posted = await desk.ports.ledger.post_all(entries, epoch=desk.epoch)
    except LedgerAwayError:
        # Whether the entries were written is not known; the book is read again before anything else is decided.
        desk.loaded = False
        raise
    desk.book = desk.book.apply_all(entry for entry, place in zip(entries, posted, strict=True) if not place.repeated)


async def _load(desk: Desk) -> None:
    desk.loaded = False
    desk.book = await desk.ports.ledger.load()
    desk.loaded = True


def _quota_changes(desk: Desk, facts: Facts) -> Iterable[Entry]:
    """Yield a grant for every nominal quota that is not what the ledger says."""
    wanted = {
        (name, quota.meter): quota.nominal for name, queue in facts.snapshot.queues.items() for quota in queue.quotas
    }
    known = {(account.queue, account.meter) for account in desk.book.balances}
    for queue, meter in sorted({*wanted, *known}):
        delta = wanted.get((queue, meter), 0) - desk.book.nominal(queue, meter)
        if delta and ("Queue", queue) not in facts.snapshot.malformed:
            yield books.grant(queue, meter, delta, at=facts.now, actor=desk.actor)
