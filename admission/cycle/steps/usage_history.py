"""What was used before, for budgets and fair shares: read from the ledger once, then kept in step with every mark."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from admission.api.muster.ledger_entries import Bucket, Entry, Kind, UsageInterval
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.errors import LedgerAwayError
from admission.lifecycle import ledger_clock
from admission.quota import budget_periods, budgets, fair_share
from admission.quota.budgets import Balances, BudgetKey, Sources
from admission.scheduling.checks import budget

MINUTE = timedelta(minutes=1)

LONGEST = timedelta(days=400)
"""How far back use is read for fair shares, however long the half-lives are."""


async def read(desk: LeaderState, facts: CycleInputs) -> None:
    """Ask the ledger for what is not known yet, and tell it what this cluster takes of shared budgets."""
    try:
        await read_ahead(desk, facts)
        if not desk.away:
            await _share(desk, facts)
    except LedgerAwayError:
        desk.away = True


async def read_ahead(desk: LeaderState, facts: CycleInputs) -> None:
    """Ask the ledger for what is not known yet. Raises LedgerAwayError."""
    starts = budgets.starts(facts.tree, facts.now)
    desk.booked = {start: sums for start, sums in desk.booked.items() if start in starts}
    desk.split &= desk.booked.keys()
    if desk.away:
        return
    for start in starts:
        if start not in desk.booked or start in desk.split:
            desk.booked[start] = dict(await desk.ports.ledger.spent(start))
            desk.split.discard(start)
    rules = fair_share.Rules.of(facts.tree)
    if desk.history is None or not desk.history.serves(rules):
        desk.history = await _read_history(desk, rules, facts.now)


def mark(desk: LeaderState, entries: Iterable[Entry]) -> None:
    """Add marks that are about to be entered into the book.

    Of a mark whose interval began before the period, the ledger knows how much belongs to the period: it is asked as
    soon as it is there.
    """
    since = desk.book.marked
    for entry in entries:
        if entry.kind is not Kind.USAGE:
            continue
        if desk.history is not None:
            desk.history = desk.history.after(_intervals(entry, since), entry.at) if since is not None else None
        desk.split |= {start for start in desk.booked if since is None or since < start}
        for line in entry.postings:
            if line.bucket is Bucket.SPENT:
                for sums in desk.booked.values():
                    key = (line.queue, line.meter)
                    sums[key] = sums.get(key, 0) + line.amount
        # Of a period that begins with this mark nothing is booked yet, which is known though the database is away.
        desk.booked.setdefault(entry.at, {})
        since = entry.at


def history(desk: LeaderState, facts: CycleInputs) -> fair_share.UsageHistory | None:
    """Return what every queue has used before now, the older the less."""
    since = desk.book.marked
    if desk.history is None or since is None or not fair_share.Rules.of(facts.tree).weights:
        return desk.history
    accrued = [
        UsageInterval(queue=queue, meter=meter, start=since, end=facts.now, seconds=seconds)
        for (queue, meter), seconds in desk.book.accrued(facts.now).items()
    ]
    return desk.history.after(accrued, facts.now)


async def _read_history(desk: LeaderState, rules: fair_share.Rules, now: datetime) -> fair_share.UsageHistory:
    marked = desk.book.marked or now
    if not any(rules.half_lives.values()):
        return fair_share.begun(rules, (), marked)
    since = max(rules.since(now), now - LONGEST)
    return fair_share.begun(rules, await desk.ports.ledger.usage(since), marked)


def _intervals(mark: Entry, since: datetime) -> list[UsageInterval]:
    return [
        UsageInterval(queue=line.queue, meter=line.meter, start=since, end=mark.at, seconds=line.amount)
        for line in mark.postings
        if line.bucket is Bucket.SPENT
    ]


def balances(desk: LeaderState, facts: CycleInputs) -> Balances | None:
    """Return how the budgets stand now; None when that is not known, as the ledger was not there to be asked."""
    return _balances(desk, facts, facts.now)


def reported(desk: LeaderState, facts: CycleInputs) -> Balances | None:
    """Return how the budgets stood at the last full minute: a status is not worth a write every second."""
    minute = facts.now - (facts.now - datetime.min.replace(tzinfo=facts.now.tzinfo)) % MINUTE
    edges = budget_periods.boundaries(
        ledger_clock.budgets_of(facts.tree.queues.values()), after=minute, until=facts.now
    )
    return _balances(desk, facts, max(minute, *edges, minute))


def _balances(desk: LeaderState, facts: CycleInputs, now: datetime) -> Balances | None:
    if not any(queue.budgets for queue in facts.tree.queues.values()):
        return Balances(facts.tree, now, Sources(booked={}))
    sources = Sources(
        booked=desk.booked,
        accrued=desk.book.accrued(now),
        placements=desk.book.placements.values(),
        runtimes=budget.runtimes(group for group in facts.groups if group.placement is not None),
        elsewhere=desk.elsewhere,
    )
    try:
        return Balances(facts.tree, now, sources)
    except KeyError:
        return None


async def _share(desk: LeaderState, facts: CycleInputs) -> None:
    """Tell the ledger what this cluster takes of shared budgets, and read what others do.

    A leader also tells, once, that it takes nothing: its predecessor may have had budgets that are gone.
    """
    known = balances(desk, facts)
    if known is None:
        desk.elsewhere = {}
        return
    shares = known.shares()
    if not shares and desk.shares == ():
        return
    totals = await desk.ports.ledger.state_shares(shares, epoch=desk.epoch, now=facts.now)
    desk.shares = shares
    desk.elsewhere = {
        BudgetKey(share.queue, share.meter, share.start, share.end): total.seconds - share.seconds
        for share, total in zip(shares, totals, strict=True)
    }
