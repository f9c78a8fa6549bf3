"""The past usage for budgets and fair shares: read from the ledger once, then updated with every mark."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, BudgetShare, Entry, Kind, UsageInterval
from admission.api.values.names import QueueName
from admission.cycle.state.inputs import CycleInputs
from admission.lifecycle import ledger_clock
from admission.ports import Ledger
from admission.quota import budget_periods, budgets, fair_share
from admission.quota.budgets import Balances, BudgetKey, Sources
from admission.quota.fair_share import MemberHistory
from admission.scheduling.checks import budget

MINUTE = timedelta(minutes=1)

LONGEST = timedelta(days=400)
"""How far back usage is read at most for fair shares."""

SECOND = timedelta(seconds=1)
STEPS_IN_HALF_LIFE = 24
MOST_STEPS = 1_000
"""The usage of members is read in so many steps of a half-life, and altogether in no more than these."""


@dataclass(slots=True)
class UsageHistory:
    """The usage of queues up to the last mark. One per leader, owned by its `LedgerMirror`.

    Rule: every mark that is entered into the book passes through `mark` first; when a book is read as a whole, `clear`
    is called, and `read` then gets what is missing from the ledger.
    """

    _ledger: Ledger
    _spent: dict[datetime, dict[QueueMeter, int]] = field(default_factory=dict)
    """By moment at which a budget's period begins, the meter-seconds in the ledger from then to the last mark."""
    _split: set[datetime] = field(default_factory=set)
    """Those of these moments that are between two marks, so that their sums have to be read again."""
    _past: fair_share.UsageHistory | None = None
    """The decayed usage for fair shares; None if it has to be read."""
    _members: MemberHistory | None = None
    """The decayed usage of the members of queues when it was read; None if it has to be read, or none counts."""
    _shares: tuple[BudgetShare, ...] | None = None
    """This cluster's use of shared budgets, as last stated to the ledger; None before the first statement."""
    _elsewhere: dict[BudgetKey, int] = field(default_factory=dict)
    """What other clusters have used of shared budgets."""

    def clear(self) -> None:
        """Drop what was read."""
        self._spent, self._past, self._members = {}, None, None

    def mark(self, entries: Iterable[Entry], since: datetime | None) -> None:
        """Add marks that are about to be entered into the book. since: the mark before them.

        If the interval of a mark began before a period, only the ledger can split it: `read` gets the sum again once
        the ledger has the mark.
        """
        for entry in entries:
            if entry.kind is not Kind.USAGE:
                continue
            if self._past is not None:
                self._past = self._past.after(_intervals(entry, since), entry.at) if since is not None else None
            self._split |= {start for start in self._spent if since is None or since < start}
            for line in entry.postings:
                if line.bucket is Bucket.SPENT:
                    for sums in self._spent.values():
                        key = (line.queue, line.meter)
                        sums[key] = sums.get(key, 0) + line.amount
            # In a period that begins with this mark nothing is spent yet: no need to read that.
            self._spent.setdefault(entry.at, {})
            since = entry.at

    async def read(self, inputs: CycleInputs, book: Book) -> None:
        """Read what is missing from the ledger. Raises LedgerUnavailableError."""
        starts = self.keep_current(inputs)
        for start in starts:
            if start not in self._spent or start in self._split:
                self._spent[start] = dict(await self._ledger.spent(start))
                self._split.discard(start)
        rules = fair_share.Rules.from_tree(inputs.tree)
        if self._past is None or not self._past.covers(rules):
            self._past = await self._read_past(rules, inputs.now, book)
        half_lives = fair_share.member_half_lives(inputs.tree)
        if not half_lives:
            self._members = None
        elif self._members is None or self._members.half_lives != half_lives:
            self._members = await self._read_members(half_lives, inputs.now)

    @property
    def members(self) -> MemberHistory | None:
        """Return the decayed usage of the members of queues, at the time when it was read; None if it is unknown.

        From then on `MemberUsage` goes on by what the book says that they use.
        """
        return self._members

    def keep_current(self, inputs: CycleInputs) -> tuple[datetime, ...]:
        """Drop periods that no budget has any more; return the beginnings of the current ones."""
        starts = budgets.starts(inputs.tree, inputs.now)
        self._spent = {start: sums for start, sums in self._spent.items() if start in starts}
        self._split &= self._spent.keys()
        return starts

    async def write_shares(self, inputs: CycleInputs, book: Book, epoch: int) -> None:
        """Record this cluster's use of shared budgets, and read that of others. Raises LedgerUnavailableError.

        A leader without shared budgets also writes that once, since its predecessor may have had some.
        """
        known = self.balances(inputs, book)
        if known is None:
            self._elsewhere = {}
            return
        shares = known.shares()
        if not shares and self._shares == ():
            return
        totals = await self._ledger.write_shares(shares, epoch=epoch, now=inputs.now)
        self._shares = shares
        self._elsewhere = {
            BudgetKey(share.queue, share.meter, share.start, share.end): total.seconds - share.seconds
            for share, total in zip(shares, totals, strict=True)
        }

    def past(self, inputs: CycleInputs, book: Book) -> fair_share.UsageHistory | None:
        """Return the decayed usage of every queue up to now; None if it is unknown."""
        since = book.marked
        if self._past is None or since is None or not fair_share.Rules.from_tree(inputs.tree).weights:
            return self._past
        accrued = [
            UsageInterval(queue=queue, meter=meter, start=since, end=inputs.now, seconds=seconds)
            for (queue, meter), seconds in book.accrued(inputs.now).items()
        ]
        return self._past.after(accrued, inputs.now)

    def balances(self, inputs: CycleInputs, book: Book) -> Balances | None:
        """Return the balances of budgets now; None if they are unknown, since the ledger could not be read."""
        return self._balances(inputs, book, inputs.now)

    def reported_balances(self, inputs: CycleInputs, book: Book) -> Balances | None:
        """Return the balances of budgets at the last full minute, so that statuses do not change every second."""
        minute = inputs.now - (inputs.now - datetime.min.replace(tzinfo=inputs.now.tzinfo)) % MINUTE
        edges = budget_periods.boundaries(
            ledger_clock.budgets_of(inputs.tree.queues.values()), after=minute, until=inputs.now
        )
        return self._balances(inputs, book, max(minute, *edges, minute))

    def _balances(self, inputs: CycleInputs, book: Book, now: datetime) -> Balances | None:
        if not any(queue.budgets for queue in inputs.tree.queues.values()):
            return Balances(inputs.tree, now, Sources(booked={}))
        sources = Sources(
            booked=self._spent,
            accrued=book.accrued(now),
            placements=book.placements.values(),
            runtimes=budget.runtimes(group for group in inputs.groups if group.placement is not None),
            elsewhere=self._elsewhere,
        )
        try:
            return Balances(inputs.tree, now, sources)
        except KeyError:
            return None

    async def _read_members(self, half_lives: Mapping[QueueName, timedelta], now: datetime) -> MemberHistory:
        longest = min(fair_share.HALF_LIVES * max(half_lives.values()), LONGEST)
        # Within a step use counts as if it were even. As the time is bounded, so is what is read.
        step = max(longest / MOST_STEPS, min(half_lives.values()) / STEPS_IN_HALF_LIFE, SECOND)
        whole = timedelta(seconds=math.ceil(step.total_seconds()))
        used = await self._ledger.member_usage(now - longest, now, whole)
        return MemberHistory(at=now, half_lives=half_lives).after(used, now)

    async def _read_past(self, rules: fair_share.Rules, now: datetime, book: Book) -> fair_share.UsageHistory:
        marked = book.marked or now
        if not any(rules.half_lives.values()):
            return fair_share.start_history(rules, (), marked)
        since = max(rules.since(now), now - LONGEST)
        return fair_share.start_history(rules, await self._ledger.usage(since), marked)


def _intervals(mark: Entry, since: datetime) -> list[UsageInterval]:
    return [
        UsageInterval(queue=line.queue, meter=line.meter, start=since, end=mark.at, seconds=line.amount)
        for line in mark.postings
        if line.bucket is Bucket.SPENT
    ]
