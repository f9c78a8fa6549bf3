"""What is spent of the budgets: read from the ledger once for each period, then kept in step with every mark."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from admission.api.entries import Bucket, Entry, Kind
from admission.errors import LedgerAwayError
from admission.flow.desks import Desk, Facts
from admission.policy import paying
from admission.quota import budgets
from admission.quota.budgets import Balances, Purse, Sources

MINUTE = timedelta(minutes=1)


async def read(desk: Desk, facts: Facts) -> None:
    """Ask the ledger for what is not known yet, and tell it what this cluster takes of shared budgets."""
    starts = budgets.starts(facts.tree, facts.now)
    desk.booked = {start: sums for start, sums in desk.booked.items() if start in starts}
    desk.split &= desk.booked.keys()
    if desk.away:
        return
    try:
        for start in starts:
            if start not in desk.booked or start in desk.split:
                desk.booked[start] = dict(await desk.ports.ledger.spent(start))
                desk.split.discard(start)
        await _share(desk, facts)
    except LedgerAwayError:
        desk.away = True


def mark(desk: Desk, entries: Iterable[Entry]) -> None:
    """Add marks that are about to be entered into the book.

    Of a mark whose interval began before the period, the ledger knows how much belongs to the period: it is asked as
    soon as it is there.
    """
    since = desk.book.marked
    for entry in entries:
        if entry.kind is not Kind.USAGE:
            continue
        desk.split |= {start for start in desk.booked if since is None or since < start}
        for line in entry.postings:
            if line.bucket is Bucket.SPENT:
                for sums in desk.booked.values():
                    key = (line.queue, line.meter)
                    sums[key] = sums.get(key, 0) + line.amount
        since = entry.at


def balances(desk: Desk, facts: Facts) -> Balances | None:
    """Return how the budgets stand now; None when that is not known, as the ledger was not there to be asked."""
    return _balances(desk, facts, facts.now)


def reported(desk: Desk, facts: Facts) -> Balances | None:
    """Return how the budgets stood at the last full minute: a status is not worth a write every second."""
    minute = facts.now - (facts.now - datetime.min.replace(tzinfo=facts.now.tzinfo)) % MINUTE
    return _balances(desk, facts, max(minute, *budgets.starts(facts.tree, facts.now), minute))


def _balances(desk: Desk, facts: Facts, now: datetime) -> Balances | None:
    starts = budgets.starts(facts.tree, now)
    if not set(starts) <= set(desk.booked):
        return None
    sources = Sources(booked=desk.booked)
    if starts:
        sources = Sources(
            booked=desk.booked,
            accrued=desk.book.accrued(now),
            placements=desk.book.placements.values(),
            runtimes=paying.runtimes(group for group in facts.groups if group.placement is not None),
            elsewhere=desk.elsewhere,
        )
    return Balances(facts.tree, now, sources)


async def _share(desk: Desk, facts: Facts) -> None:
    known = balances(desk, facts)
    shares = known.shares() if known is not None else ()
    if not shares:
        desk.elsewhere = {}
        return
    totals = await desk.ports.ledger.state_shares(shares, epoch=desk.epoch)
    desk.elsewhere = {
        Purse(share.queue, share.meter, share.start, share.end): total.seconds - share.seconds
        for share, total in zip(shares, totals, strict=True)
    }
