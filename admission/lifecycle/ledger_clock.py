"""The time of the books, and when they are marked.

Time never goes back in the books: a clock that does is not followed, and no entry is older than the latest one. A mark
(`books.usage`) is due at every full hour of UTC and wherever a budget's period begins or ends, so that the usage of a
period is a sum of whole marks.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from admission.accounting.books import Book
from admission.api.muster.queues import Budget, Queue
from admission.quota import budget_periods

HOUR = timedelta(hours=1)

NOTABLE = timedelta(seconds=5)
"""How far a clock may be behind before anybody is told."""


MOMENT = timedelta(microseconds=1)
"""The shortest time that the books tell apart."""


def onward(now: datetime, book: Book) -> datetime:
    """Return what time it is for the books: now, or a moment after their latest entry where the clock is behind it.

    Not the same time again: a gang that is taken back and granted again in it would seem to be posted once more, since
    keys of entries tell reservations apart by their times.
    """
    return now if book.at is None or now >= book.at else book.at + MOMENT


def behind(now: datetime, time: datetime) -> timedelta:
    """Return how far the clock is behind the time of the books; zero where that is little."""
    late = time - now
    return late if late >= NOTABLE else timedelta(0)


def marks(book: Book, budgets: Iterable[Budget], now: datetime) -> list[datetime]:
    """Return the times at which the books have to be marked before anything of `now` is written, in order.

    Of full hours only the latest counts: after a long pause the books are not filled with empty marks. A time before
    the latest entry is left out, since time never goes back; the lines themselves tell what was used around it.
    """
    since = book.marked or book.at
    if since is None or book.at is None:
        return []
    edges = budget_periods.boundaries(budgets, after=since, until=now)
    return sorted(time for time in {*edges, _hour(now)} if since < time <= now and time >= book.at)


def next_mark(budgets: Iterable[Budget], now: datetime) -> datetime:
    """Return the next time at which a mark is due."""
    hour = _hour(now) + HOUR
    return min((*budget_periods.boundaries(budgets, after=now, until=hour), hour))


def budgets_of(queues: Iterable[Queue]) -> frozenset[Budget]:
    """Return the budgets that queues have, each once."""
    return frozenset(budget for queue in queues for budget in queue.budgets)


def _hour(now: datetime) -> datetime:
    return now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
