"""The periods of any zone tile time: no gap, no overlap, and each begins at midnight where there is one."""

from datetime import UTC, datetime, time, timedelta
from itertools import pairwise

from hypothesis import given, strategies as st

from admission.api.muster.queues import Budget, Period
from admission.api.values import time_zones
from admission.api.values.names import MeterName
from admission.quota import budget_periods

ZONES = st.sampled_from(time_zones.names())
PERIODS = st.sampled_from(Period)
SECOND = timedelta(seconds=1)
NEAR = st.sampled_from([timedelta(0), -SECOND, SECOND, timedelta(minutes=-30), timedelta(minutes=45)])
CHANGES = [  # Where clocks went over midnight, forward or back, or over a whole day.
    datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2010, 11, 7, 2, 31, tzinfo=UTC),
    datetime(2024, 9, 8, 4, tzinfo=UTC),
    datetime(2024, 11, 3, 5, tzinfo=UTC),
    datetime(1993, 8, 21, 12, tzinfo=UTC),
]
CENTURIES = st.timedeltas(timedelta(0), timedelta(days=220 * 365))
MOMENTS = st.builds(lambda distance: datetime(1880, 1, 1, tzinfo=UTC) + distance, CENTURIES) | st.builds(
    lambda moment, distance: moment + distance, st.sampled_from(CHANGES), NEAR
)


@given(PERIODS, ZONES, MOMENTS)
def test_a_period_contains_its_moment_and_touches_its_neighbours(period: Period, zone: str, now: datetime) -> None:
    span = budget_periods.calendar(period, zone, now)

    assert span.contains(now)
    assert budget_periods.calendar(period, zone, span.start) == span
    assert budget_periods.calendar(period, zone, span.start - SECOND).end == span.start
    assert budget_periods.calendar(period, zone, span.end).start == span.end


@given(PERIODS, ZONES, MOMENTS)
def test_a_period_begins_at_midnight_or_at_the_first_moment_after_a_gap(
    period: Period, name: str, now: datetime
) -> None:
    zone = time_zones.find(name)
    start = budget_periods.calendar(period, name, now).start
    shown, before = start.astimezone(zone), (start - SECOND).astimezone(zone)

    assert shown.date() > before.date()
    assert shown.time() == time() or shown.utcoffset() != before.utcoffset()


@given(st.lists(st.tuples(PERIODS, ZONES), max_size=3), MOMENTS, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_the_boundaries_are_all_ends_of_periods(
    calendars: list[tuple[Period, str]], after: datetime, distance: timedelta
) -> None:
    budgets = [Budget(meter=MeterName("m"), seconds=1, period=period, time_zone=zone) for period, zone in calendars]
    until = after + distance

    found = budget_periods.boundaries(budgets, after=after, until=until)

    assert all(one < other for one, other in pairwise((after, *found)))
    assert all(moment <= until for moment in found)
    for part, following in pairwise((after, *found, until)):
        for budget in budgets:
            span = budget_periods.span(budget, part)
            assert span is not None
            assert following == until or following <= span.end
