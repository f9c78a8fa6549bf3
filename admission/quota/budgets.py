"""Budgets: what a queue may still spend of a meter in the current period, and whether that pays for a gang.

All sums are whole meter-seconds, for a budget of limit L in its period [start, end), at a moment `now`:

- *spent*: usage under the queue since start: what the ledger has booked up to its latest mark, plus what has accrued
  since (`Book.accrued`). The ledger must mark usage at every boundary of a period (`budget_periods.boundaries`);
  otherwise usage before a boundary counts in the new period;
- *paid time* of a gang: its own runtime, at most the queue's maxRuntime; else defaultRuntime, else maxRuntime, else one
  hour. It begins when the gang is admitted;
- *committed*: the sum over all gangs admitted under the queue of charge x max(0, min(reserved + paid, end) - now). A
  gang that runs for longer than its paid time commits nothing more, but continues to spend;
- *elsewhere*: what other clusters have spent and committed, if the budget's scope is Global;
- *future*: what admitted gangs commit in the period after this one, or in a window that has not begun: charge x the
  part of their paid time in it. For Global budgets only, since the other clusters need it when that period begins;
- *left* = L - spent - committed - elsewhere. It is negative when gangs ran for longer than their paid time, or when the
  budget was lowered;
- *need* of a gang: charge x (min(now + paid, end) - now): the next period pays for usage after this one.

A gang may start if its need is at most what is left, in every budget of its queue and of the queues above it. A budget
of a meter that is not in its charge, and a fixed window that is not open, are not checked. `onExhausted: Warn` never
holds a gang, but adds a warning. Times are truncated to seconds, as in `accruals`. Kueue has no budgets over time.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from admission.accounting import accruals
from admission.accounting.accruals import QueueMeter
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import BudgetShare, Placement
from admission.api.muster.queues import Budget, OnExhausted, Queue, Scope
from admission.api.values import quantities, time_zones
from admission.api.values.names import GangUid, MeterName, QueueName
from admission.api.values.reasons import Detail
from admission.quota import budget_periods
from admission.quota.budget_periods import Span
from admission.quota.tree import Tree

UNKNOWN_RUNTIME = timedelta(hours=1)
"""The paid time of a gang if neither it nor its queue states a runtime."""

_SECOND = timedelta(seconds=1)


class BudgetKey(NamedTuple):
    """A Global budget that clusters share: of the queue of this name, in one period."""

    queue: QueueName
    meter: MeterName
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The inputs of balances.

    booked: by moment of `starts`, the meter-seconds in the ledger from then to its latest mark. accrued: those since
    the mark. placements: the admitted gangs. runtimes: of those that state one. elsewhere: what other clusters have
    taken of Global budgets.
    """

    booked: Mapping[datetime, Mapping[QueueMeter, int]]
    accrued: Mapping[QueueMeter, int] = field(default_factory=dict)
    placements: Iterable[Placement] = ()
    runtimes: Mapping[GangUid, timedelta] = field(default_factory=dict)
    elsewhere: Mapping[BudgetKey, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """A budget in its current period. spent, committed, elsewhere: meter-seconds of the queue and those below it."""

    queue: QueueName
    budget: Budget
    span: Span
    spent: int
    committed: int
    elsewhere: int

    @property
    def left(self) -> int:
        """Return limit - spent - committed - elsewhere; negative if the budget is overdrawn."""
        return self.budget.seconds - self.spent - self.committed - self.elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShortage:
    """A gang that a budget cannot pay for. needed: meter-seconds until the end of the period."""

    balance: Balance
    needed: int

    @property
    def message(self) -> str:
        """Return in one sentence what is short, and when the period ends; amounts are meter-hours."""
        balance, budget = self.balance, self.balance.budget
        kind = f" a {budget.period.lower()}" if budget.period else ""
        elsewhere = f", taken by other clusters {hours(balance.elsewhere)}" if budget.scope is Scope.GLOBAL else ""
        end = balance.span.end.astimezone(time_zones.find(budget.time_zone) or UTC).isoformat()
        needed = f"the gang needs {hours(self.needed)}"
        if self.needed > budget.seconds:
            needed += ", more than the whole budget"
        return (
            f"queue {balance.queue} has {hours(balance.left)} hours of {budget.meter} left of its budget of"
            f" {hours(budget.seconds)}{kind} (spent {hours(balance.spent)}, promised to gangs that were let in"
            f" {hours(balance.committed)}{elsewhere}), {needed};"
            f" {'it is full again at' if budget.period else 'it ends at'} {end}"
        )

    @property
    def details(self) -> Mapping[str, Detail]:
        """Return the numbers: meter-hours as decimal strings, times in UTC. reset: when the period ends."""
        balance, budget = self.balance, self.balance.budget
        found: dict[str, Detail] = {
            "queue": balance.queue,
            "meter": budget.meter,
            "hours": hours(budget.seconds),
            "spent": hours(balance.spent),
            "promised": hours(balance.committed),
            "left": hours(balance.left),
            "needed": hours(self.needed),
            "start": balance.span.start.isoformat(),
            "end": balance.span.end.isoformat(),
            "reset": balance.span.end.isoformat(),
            "period": budget.period or "",
            "timeZone": budget.time_zone,
            "scope": budget.scope,
        }
        if budget.scope is Scope.GLOBAL:
            found["elsewhere"] = hours(balance.elsewhere)
        return found


def starts(tree: Tree, now: datetime) -> tuple[datetime, ...]:
    """Return when the current periods of all budgets began, in order, each once: `Sources.booked` needs these."""
    return tuple(sorted({line.span.start for line in _Lines(tree, now, budget_periods.span, *Scope)}))


def paid_seconds(queue: Queue, runtime: timedelta | None = None) -> int:
    """Return the paid time of a gang in whole seconds, rounded up. runtime: what the gang states, if anything."""
    longest = queue.max_runtime
    if runtime is not None and longest is not None:
        runtime = min(runtime, longest)
    paid = runtime or queue.default_runtime or longest or UNKNOWN_RUNTIME
    return -(-paid // _SECOND)


def hours(seconds: int) -> str:
    """Return meter-seconds as decimal hours with up to four places, so that different seconds differ."""
    # 10,000 parts of an hour are 25/9 of its seconds; rounded to the nearest.
    whole, part = divmod((abs(seconds) * 50 + 9) // 18, 10_000)
    digits = f".{part:04d}".rstrip("0").rstrip(".")
    return f"{'-' if seconds < 0 else ''}{whole}{digits}"


class Balances:
    """All budgets of a tree in one cycle, kept up to date with every grant. Not thread-safe.

    Building it costs a step per budget, and one per level above each usage or admitted gang; a query or a grant costs
    a step per budget concerned.
    """

    def __init__(self, tree: Tree, now: datetime, sources: Sources) -> None:
        """Add everything up. Raises KeyError if `booked` lacks the beginning of a period."""
        self._tree = tree
        self._now = accruals.floor_to_second(now)
        self._lines = _Lines(tree, now, budget_periods.span, *Scope)
        self._future = _Lines(tree, now, budget_periods.following, Scope.GLOBAL)
        self._add_spent(sources)
        for placement in sources.placements:
            self._add_committed(placement, sources.runtimes.get(placement.gang_uid))
        for line in self._lines:
            if line.budget.scope is Scope.GLOBAL:
                line.elsewhere = sources.elsewhere.get(line.key, 0)

    def of_queue(self, queue: QueueName) -> tuple[Balance, ...]:
        """Return the balances of a queue's own budgets, in the order of its spec, without windows that are not open."""
        return tuple(line.balance() for line in self._lines.of_queue(queue))

    def shortage(self, queue: QueueName, charge: Charge, runtime: timedelta | None = None) -> BudgetShortage | None:
        """Return None if every budget that holds can pay for a gang, else the shortage that lasts longest."""
        return max(self._short(queue, charge, runtime, OnExhausted.HOLD), key=_end, default=None)

    def warnings(
        self, queue: QueueName, charge: Charge, runtime: timedelta | None = None
    ) -> tuple[BudgetShortage, ...]:
        """Return the shortages of a gang in budgets that only warn, to be reported when it is admitted."""
        return tuple(self._short(queue, charge, runtime, OnExhausted.WARN))

    def charge(self, queue: QueueName, charge: Charge, runtime: timedelta | None = None) -> None:
        """Commit the need of an admitted gang, whether that much is left or not."""
        for line, needed in self._needs(queue, charge, runtime, future=True):
            line.committed += needed

    def give_back(self, queue: QueueName, charge: Charge, runtime: timedelta | None = None) -> None:
        """Undo `charge`."""
        for line, needed in self._needs(queue, charge, runtime, future=True):
            line.committed -= needed

    def shares(self) -> tuple[BudgetShare, ...]:
        """Return what this cluster has taken of every Global budget, in order, with the smallest limit that holds.

        Budgets that only warn have no limit, written as the largest sum that the ledger stores. The same goes for
        future commitments: the next period has to pay for them, whatever is left there.
        """
        found: dict[BudgetKey, BudgetShare] = {}
        for line, maximum in self._shared_lines():
            limit = min(maximum, found[line.key].limit) if line.key in found else maximum
            seconds = min(line.spent + line.committed, quantities.LIMIT)
            found[line.key] = BudgetShare(**line.key._asdict(), limit=limit, seconds=seconds)
        return tuple(found[key] for key in sorted(found))

    def _shared_lines(self) -> Iterator[tuple["_Line", int]]:
        for line in self._lines:
            if line.budget.scope is Scope.GLOBAL:
                holds = line.budget.on_exhausted is OnExhausted.HOLD
                yield line, line.budget.seconds if holds else quantities.LIMIT
        for line in self._future:
            yield line, quantities.LIMIT

    def _short(
        self, queue: QueueName, charge: Charge, runtime: timedelta | None, action: OnExhausted
    ) -> Iterator[BudgetShortage]:
        for line, needed in self._needs(queue, charge, runtime):
            balance = line.balance()
            if line.budget.on_exhausted is action and needed > balance.left:
                yield BudgetShortage(balance=balance, needed=needed)

    def _needs(
        self, queue: QueueName, charge: Charge, runtime: timedelta | None, *, future: bool = False
    ) -> Iterator[tuple["_Line", int]]:
        """Yield the budgets that pay for a gang, with its need of each. future: those of the next period too."""
        declared = self._tree.queues.get(queue)
        if declared is None:
            return
        paid = paid_seconds(declared, runtime)
        for meter, amount in sorted(charge.items()):
            for line in self._binding(queue, meter, future=future) if amount else ():
                yield line, amount * line.within(self._now, paid)

    def _add_spent(self, sources: Sources) -> None:
        booked = {line.span.start: sources.booked[line.span.start] for line in self._lines}
        for key in {*sources.accrued, *(key for part in booked.values() for key in part)}:
            for line in self._lines.binding(*key):
                line.spent += booked[line.span.start].get(key, 0) + sources.accrued.get(key, 0)

    def _add_committed(self, placement: Placement, runtime: timedelta | None) -> None:
        declared = self._tree.queues.get(placement.queue)
        if declared is None:
            return
        reserved = accruals.floor_to_second(placement.reserved_at)
        begin = max(self._now, reserved)
        remaining = paid_seconds(declared, runtime) - accruals.between(reserved, begin)
        if remaining <= 0:
            return
        for holding in placement.holdings.values():
            for meter, amount in holding.charge.items():
                for line in self._binding(placement.queue, meter, future=True):
                    line.committed += amount * line.within(begin, remaining)

    def _binding(self, queue: QueueName, meter: MeterName, *, future: bool) -> tuple["_Line", ...]:
        return self._lines.binding(queue, meter) + (self._future.binding(queue, meter) if future else ())


@dataclass(slots=True, kw_only=True)
class _Line:
    """A balance being added up."""

    queue: QueueName
    budget: Budget
    span: Span
    spent: int = 0
    committed: int = 0
    elsewhere: int = 0

    @property
    def key(self) -> BudgetKey:
        return BudgetKey(self.queue, self.budget.meter, self.span.start, self.span.end)

    def within(self, begin: datetime, seconds: int) -> int:
        """Return how many of these seconds, counted from a moment, lie in the period."""
        delay = max(0, accruals.between(begin, self.span.start))
        return max(0, min(seconds, accruals.between(begin, self.span.end)) - delay)

    def balance(self) -> Balance:
        return Balance(
            queue=self.queue,
            budget=self.budget,
            span=self.span,
            spent=self.spent,
            committed=self.committed,
            elsewhere=self.elsewhere,
        )


class _Lines:
    """A line for every budget of a placed queue that has such a span: its current period, or the next one."""

    def __init__(
        self, tree: Tree, now: datetime, span: Callable[[Budget, datetime], Span | None], *scopes: Scope
    ) -> None:
        budgets_by_queue = {
            name: [budget for budget in queue.budgets if budget.scope in scopes]
            for name, queue in tree.queues.items()
            if queue.budgets and name in tree.placed
        }
        calendars = {_calendar(budget): budget for budgets in budgets_by_queue.values() for budget in budgets}
        spans = {calendar: span(budget, now) for calendar, budget in calendars.items()}
        self._tree = tree
        self._bindings: dict[QueueMeter, tuple[_Line, ...]] = {}
        self._by_queue = {
            name: tuple(
                _Line(queue=name, budget=budget, span=found)
                for budget in budgets
                if (found := spans[_calendar(budget)]) is not None
            )
            for name, budgets in budgets_by_queue.items()
        }

    def __iter__(self) -> Iterator[_Line]:
        return (line for lines in self._by_queue.values() for line in lines)

    def of_queue(self, queue: QueueName) -> tuple[_Line, ...]:
        """Return the lines of a queue's own budgets, in the order of its spec."""
        return self._by_queue.get(queue, ())

    def binding(self, queue: QueueName, meter: MeterName) -> tuple[_Line, ...]:
        """Return the lines of a meter that bind a queue: its own, then those of the queues above it."""
        key = (queue, meter)
        if key not in self._bindings:
            above = self._tree.bearing(queue)
            self._bindings[key] = tuple(
                line for name in above for line in self.of_queue(name) if line.budget.meter == meter
            )
        return self._bindings[key]


def _calendar(budget: Budget) -> tuple[object, str]:
    """Return a key that is equal for budgets with the same spans."""
    return budget.period or budget, budget.time_zone


def _end(shortage: BudgetShortage) -> datetime:
    return shortage.balance.span.end
