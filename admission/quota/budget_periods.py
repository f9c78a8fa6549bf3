"""The periods of budgets: when each begins and ends.

A calendar period begins at midnight of its first day in the budget's time zone: a day at each, a week on Monday, a
quarter in January, April, July and October. So a day has 23 or 25 hours where the clocks change. If midnight does not
exist, because the clocks go forward over it, the period begins at the first moment that does; if it exists twice, at
the first of the two. Periods tile time: each ends where the next one begins, and a date that a zone has skipped
(30 December 2011 in Pacific/Apia) has none.

A fixed window is one span. Outside it the budget has no period and limits nothing: use `stopPolicy` or a quota of 0 to
stop a queue outside a window.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple, assert_never
from zoneinfo import ZoneInfo

from admission.accounting import accruals
from admission.api.muster.queues import Budget, Period
from admission.api.values import time_zones

_FIRST, _LAST = datetime(2, 1, 1, tzinfo=UTC), datetime(9997, 1, 1, tzinfo=UTC)
"""Moments are clamped to these, so that the periods around them have a beginning and an end."""


class Span(NamedTuple):
    """A time span from start, inclusive, to end, exclusive; both in UTC and whole seconds."""

    start: datetime
    end: datetime

    def contains(self, moment: datetime) -> bool:
        return self.start <= moment < self.end


def span(budget: Budget, now: datetime) -> Span | None:
    """Return the period of a budget that is open at a moment; None outside of its fixed window."""
    if budget.period is not None:
        return calendar(budget.period, budget.time_zone, now)
    if budget.start is None or budget.end is None:
        return None
    window = Span(budget.start, budget.end)
    return window if window.contains(now) else None


def following(budget: Budget, now: datetime) -> Span | None:
    """Return the next period of a budget, or its window if that has not begun; None if there is none."""
    if budget.period is not None:
        coming = calendar(budget.period, budget.time_zone, calendar(budget.period, budget.time_zone, now).end)
    elif budget.start is not None and budget.end is not None:
        coming = Span(budget.start, budget.end)
    else:
        return None
    return coming if now < coming.start else None


def calendar(period: Period, time_zone: str, now: datetime) -> Span:
    """Return the calendar period that contains a moment. Raises ValueError for an unknown time zone."""
    zone = time_zones.find(time_zone)
    if zone is None:
        raise ValueError(f"{time_zone} is not a known time zone")
    now = min(max(now, _FIRST), _LAST)
    first = _first_day(period, now.astimezone(zone).date())
    # If the clocks go back over midnight, the date goes back as well, but the new period has begun.
    while _begin(following := _next(period, first), zone) <= now:
        first = following
    return Span(_begin(first, zone), _begin(_next(period, first), zone))


def boundaries(budgets: Iterable[Budget], *, after: datetime, until: datetime) -> tuple[datetime, ...]:
    """Return the moments in (after, until] at which a period or window of these budgets begins or ends.

    They are in order, each once. The ledger marks usage at each of them, so that it counts for the period in which it
    was used.
    """
    found: set[datetime] = set()
    for period, time_zone in {(b.period, b.time_zone) for b in budgets if b.period is not None}:
        found.update(_ends(period, time_zone, after, until))
    found.update(moment for b in budgets if b.period is None for moment in (b.start, b.end) if moment is not None)
    return tuple(sorted(moment for moment in found if after < moment <= until))


def _ends(period: Period, time_zone: str, after: datetime, until: datetime) -> Iterator[datetime]:
    end = calendar(period, time_zone, after).end
    while end <= min(until, _LAST):
        yield end
        end = calendar(period, time_zone, end).end


def _first_day(period: Period, day: date) -> date:
    match period:
        case Period.DAY:
            return day
        case Period.WEEK:
            return day - timedelta(days=day.weekday())
        case Period.MONTH:
            return day.replace(day=1)
        case Period.QUARTER:
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case Period.YEAR:
            return day.replace(month=1, day=1)
        case _:
            assert_never(period)


_MONTHS = {Period.MONTH: 1, Period.QUARTER: 3, Period.YEAR: 12}


def _next(period: Period, first: date) -> date:
    """Return the first day of the period after the one that begins on a day."""
    if period not in _MONTHS:
        return first + timedelta(days=7 if period is Period.WEEK else 1)
    years, month = divmod(first.month - 1 + _MONTHS[period], 12)
    return first.replace(year=first.year + years, month=month + 1)


def _begin(day: date, zone: ZoneInfo) -> datetime:
    """Return the first moment at which a zone's clocks show midnight of a day, or later.

    Python converts a local time that does not exist with the offset before the gap, which gives a moment after the gap,
    and with `fold` by the one after it, which gives a moment before it: the gap is between them, found by bisection.
    """
    midnight = datetime.combine(day, time(), tzinfo=zone)
    late = midnight.astimezone(UTC)
    if _formatted(late, zone) == midnight.replace(tzinfo=None):
        return accruals.floor_to_second(late)
    early = midnight.replace(fold=1).astimezone(UTC)
    seconds = accruals.between(early, late)
    below, above = 0, seconds
    while below < above:
        middle = (below + above) // 2
        if _formatted(early + timedelta(seconds=middle), zone) < midnight.replace(tzinfo=None):
            below = middle + 1
        else:
            above = middle
    return early + timedelta(seconds=above)


def _formatted(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)
