"""The periods of budgets, where the calendar and the clocks are at their oddest."""

from datetime import UTC, datetime, timedelta

import pytest

from admission.api.muster.queues import Budget, Period
from admission.api.values.names import MeterName
from admission.quota import budget_periods
from admission.quota.budget_periods import Span

BERLIN = "Europe/Berlin"


def a_budget(period: Period | None = None, zone: str = "UTC", **window: datetime) -> Budget:
    return Budget(meter=MeterName("gpu"), seconds=1, period=period, time_zone=zone, **window)  # type: ignore[arg-type]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


CASES: dict[str, tuple[Period, str, str, str, str]] = {
    "a day of UTC": (Period.DAY, "UTC", "2026-11-21T12:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
    "a moment that begins a day is in it": (
        *(Period.DAY, "UTC", "2026-11-21T00:00:00Z"),
        *("2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
    ),
    "a week begins on Monday, also over a new year": (
        *(Period.WEEK, "UTC", "2027-01-01T12:00:00Z"),
        *("2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"),
    ),
    "February of a leap year": (
        *(Period.MONTH, "UTC", "2028-02-29T23:59:59.999Z"),
        *("2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
    ),
    "December": (Period.MONTH, "UTC", "2026-12-31T00:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    "the last quarter": (Period.QUARTER, "UTC", "2026-11-21T00:00:00Z", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    "a year": (Period.YEAR, "UTC", "2026-11-21T00:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
    "a month with a change of the clocks": (
        *(Period.MONTH, BERLIN, "2026-10-21T00:00:00Z"),
        *("2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z"),
    ),
    "a day of 23 hours": (Period.DAY, BERLIN, "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"),
    "a day of 25 hours": (Period.DAY, BERLIN, "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"),
    "no midnight in Santiago": (
        *(Period.DAY, "America/Santiago", "2024-09-08T12:00:00Z"),
        *("2024-09-08T04:00:00Z", "2024-09-09T03:00:00Z"),
    ),
    "no midnight in Beirut": (
        *(Period.DAY, "Asia/Beirut", "2024-03-31T12:00:00Z"),
        *("2024-03-30T22:00:00Z", "2024-03-31T21:00:00Z"),
    ),
    "no midnight in Toronto, whose clocks went forward half an hour before": (
        *(Period.DAY, "America/Toronto", "1919-03-31T12:00:00Z"),
        *("1919-03-31T04:30:00Z", "1919-04-01T04:00:00Z"),
    ),
    "the first of two midnights in Havana": (
        *(Period.DAY, "America/Havana", "2024-11-03T05:30:00Z"),
        *("2024-11-03T04:00:00Z", "2024-11-04T05:00:00Z"),
    ),
    "a day that has begun stays begun where the clocks go back over midnight": (
        # In St. John's they went from 00:01 back to 23:01, which was the day before again.
        *(Period.DAY, "America/St_Johns", "2010-11-07T02:45:00Z"),
        *("2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"),
    ),
    "an offset of 5:45": (
        *(Period.DAY, "Asia/Kathmandu", "2026-11-21T18:15:00Z"),
        *("2026-11-21T18:15:00Z", "2026-11-22T18:15:00Z"),
    ),
    "the day before the one that Apia left out": (
        *(Period.DAY, "Pacific/Apia", "2011-12-30T09:59:59Z"),
        *("2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"),
    ),
    "the day after the one that Apia left out": (
        *(Period.DAY, "Pacific/Apia", "2011-12-30T10:00:00Z"),
        *("2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"),
    ),
}


@pytest.mark.parametrize(("period", "zone", "now", "start", "end"), CASES.values(), ids=CASES)
def test_a_period_begins_and_ends(period: Period, zone: str, now: str, start: str, end: str) -> None:
    assert budget_periods.span(a_budget(period, zone), at(now)) == Span(at(start), at(end))


def test_a_window_is_open_from_its_start_until_before_its_end_and_limits_nothing_else() -> None:
    start, end = datetime(2026, 10, 1, tzinfo=UTC), datetime(2027, 4, 1, tzinfo=UTC)
    window = a_budget(start=start, end=end)

    assert (
        budget_periods.span(window, start)
        == budget_periods.span(window, end - timedelta(microseconds=1))
        == Span(start, end)
    )
    assert budget_periods.span(window, start - timedelta(microseconds=1)) is None
    assert budget_periods.span(window, end) is None


def test_budget_boundaries_are_listed_after_a_time_and_up_to_another() -> None:
    budgets = [
        a_budget(Period.MONTH),
        a_budget(Period.MONTH),
        a_budget(Period.DAY, BERLIN),
        a_budget(start=at("2026-11-30T06:00:00Z"), end=at("2026-12-24T00:00:00Z")),
    ]

    found = budget_periods.boundaries(budgets, after=at("2026-11-29T23:00:00Z"), until=at("2026-12-01T00:00:00Z"))

    assert found == (at("2026-11-30T06:00:00Z"), at("2026-11-30T23:00:00Z"), at("2026-12-01T00:00:00Z"))


def test_no_boundary_lies_in_a_time_that_runs_backwards() -> None:
    now = at("2026-12-01T00:00:00Z")

    assert budget_periods.boundaries([a_budget(Period.DAY)], after=now, until=now - timedelta(days=2)) == ()


@pytest.mark.parametrize("now", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
@pytest.mark.parametrize("period", Period)
def test_the_ends_of_time_have_a_period_too(period: Period, now: datetime) -> None:
    start, end = budget_periods.calendar(period, "Asia/Kathmandu", now)

    assert start < end


FOLLOWING: dict[str, tuple[Budget, str, tuple[str, str] | None]] = {
    "the next day has 23 hours": (
        a_budget(Period.DAY, BERLIN),
        *("2026-03-28T12:00:00Z", ("2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z")),
    ),
    "the next year": (
        a_budget(Period.YEAR),
        *("2026-01-01T00:00:00Z", ("2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z")),
    ),
    "nothing at the end of time": (a_budget(Period.YEAR), "9999-01-01T00:00:00Z", None),
    "a window that comes": (
        a_budget(start=at("2026-02-01T00:00:00Z"), end=at("2026-03-01T00:00:00Z")),
        *("2026-01-31T23:59:59Z", ("2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")),
    ),
    "nothing after a window that has begun": (
        a_budget(start=at("2026-02-01T00:00:00Z"), end=at("2026-03-01T00:00:00Z")),
        *("2026-02-01T00:00:00Z", None),
    ),
}


@pytest.mark.parametrize(("budget", "now", "span"), FOLLOWING.values(), ids=FOLLOWING)
def test_a_budget_period_is_followed_by_the_expected_period(
    budget: Budget, now: str, span: tuple[str, str] | None
) -> None:
    assert budget_periods.following(budget, at(now)) == (span and Span(*map(at, span)))
