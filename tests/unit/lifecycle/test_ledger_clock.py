"""The time of the books, and when they are marked."""

from datetime import UTC, datetime, timedelta

import pytest

from admission.accounting.books import Book
from admission.api.muster.queues import Budget, Period
from admission.api.values.names import MeterName
from admission.lifecycle import ledger_clock

MARKED = datetime(2026, 3, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAYS = Budget(meter=MeterName("gpus"), seconds=1, period=Period.DAY, time_zone="Europe/Berlin")
WINDOW = Budget(meter=MeterName("gpus"), seconds=1, start=MARKED + HOUR / 2, end=MARKED + 3 * HOUR / 2)


def at(hours: float, days: int = 28) -> datetime:
    return datetime(2026, 3, days, tzinfo=UTC) + hours * HOUR


CASES: dict[str, tuple[frozenset[Budget], datetime, list[datetime]]] = {
    "before the hour is over nothing is due": (frozenset(), at(12.9), []),
    "at the full hour a mark is due": (frozenset(), at(13), [at(13)]),
    "after a pause of days one mark is due, at the latest full hour": (frozenset(), at(14.5, 30), [at(14, 30)]),
    "and one at every midnight of a daily budget, also where the clocks change": (
        frozenset({DAYS}),
        at(14.5, 30),
        [at(23), at(22, 29), at(14, 30)],
    ),
    "a window is marked where it begins and ends": (frozenset({WINDOW}), at(14), [at(12.5), at(13.5), at(14)]),
}


@pytest.mark.parametrize(("budgets", "now", "due"), CASES.values(), ids=CASES)
def test_usage_is_marked_at_full_hours_and_where_budget_periods_end(
    budgets: frozenset[Budget], now: datetime, due: list[datetime]
) -> None:
    assert ledger_clock.marks(Book(at=MARKED, marked=MARKED), budgets, now) == due


def test_time_goes_on_by_a_moment_where_the_clock_is_behind_the_books() -> None:
    moment = timedelta(microseconds=1)

    assert ledger_clock.entry_time(at(12), Book()) == at(12)
    assert ledger_clock.entry_time(at(13), Book(at=at(13))) == at(13)
    assert ledger_clock.entry_time(at(12), Book(at=at(13))) == at(13) + moment


def test_no_mark_is_earlier_than_the_latest_entry() -> None:
    book = Book(at=at(13.2), marked=MARKED)

    assert ledger_clock.marks(book, frozenset({WINDOW}), at(13.6)) == [at(13.5)]


def test_new_books_are_marked_from_their_first_entry_on() -> None:
    assert ledger_clock.marks(Book(), frozenset(), at(13)) == []
    assert ledger_clock.marks(Book(at=at(12.5)), frozenset(), at(12.9)) == []
    assert ledger_clock.marks(Book(at=at(12.5)), frozenset(), at(13.1)) == [at(13)]


def test_the_next_mark_is_at_the_full_hour_or_where_a_period_ends_before_it() -> None:
    assert ledger_clock.next_mark(frozenset({DAYS}), at(12.1)) == at(13)
    assert ledger_clock.next_mark(frozenset({WINDOW}), at(12.1)) == at(12.5)
    assert ledger_clock.next_mark(frozenset({WINDOW}), at(13)) == at(13.5)
