"""The time of ledger entries, and the times of usage marks.

Time never goes back in the ledger: if the clock does, no entry gets a time before the latest one. A mark
(`books.usage`) is due at every full hour of UTC and at both ends of a budget's period, so that the usage of a period is
a sum of whole marks.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from admission.accounting.books import Book
from admission.api.muster.queues import Budget, Queue
from admission.quota import budget_periods

HOUR = timedelta(hours=1)

MIN_REPORTED_LAG = timedelta(seconds=5)
"""How far behind a clock must be to be reported."""


RESOLUTION = timedelta(microseconds=1)
"""The resolution of the ledger's times."""


def entry_time(now: datetime, book: Book) -> datetime:
    """Return the time for a new entry: now, or a moment after the latest entry if the clock is behind it.

    The same time would not do: the keys of entries distinguish reservations by their times, so a gang that is evicted
    and granted again at one time would seem to be posted twice.
    """
    return now if book.at is None or now >= book.at else book.at + RESOLUTION


def lag(now: datetime, time: datetime) -> timedelta:
    """Return how far the clock is behind the ledger's time; zero if it is not worth a report."""
    difference = time - now
    return difference if difference >= MIN_REPORTED_LAG else timedelta(0)


def marks(book: Book, budgets: Iterable[Budget], now: datetime) -> list[datetime]:
    """Return the times of the marks that are due before any entry of `now`, in order.

    Of the full hours only the latest counts, so that a long pause adds no empty marks. A time before the latest entry
    is left out, since time never goes back; the entries themselves show the usage around it.
    """
    since = book.marked or book.at
    if since is None or book.at is None:
        return []
    boundaries = budget_periods.boundaries(budgets, after=since, until=now)
    return sorted(time for time in {*boundaries, _hour(now)} if since < time <= now and time >= book.at)


def next_mark(budgets: Iterable[Budget], now: datetime) -> datetime:
    """Return the time of the next mark."""
    hour = _hour(now) + HOUR
    return min((*budget_periods.boundaries(budgets, after=now, until=hour), hour))


def budgets_of(queues: Iterable[Queue]) -> frozenset[Budget]:
    """Return the distinct budgets of the queues."""
    return frozenset(budget for queue in queues for budget in queue.budgets)


def _hour(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
