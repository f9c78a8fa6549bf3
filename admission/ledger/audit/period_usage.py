"""The use of a period in intervals, as a closing carries it forward.

Budgets and fair shares need the use since any time, long after the rows are archived. So each carried interval lies
within one quarter of an hour, or has a constant amount in use. Both can be divided exactly at the start of a budget's
period: the days of every time zone begin at a quarter, and constant use divides in proportion to time.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from admission.accounting import accruals
from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import Bucket, Entry, Kind, UsageInterval

QUARTER = timedelta(minutes=15)
SECOND = timedelta(seconds=1)


class Tally:
    """The use since a book, in meter-seconds."""

    def __init__(self, book: Book) -> None:
        self._start = book.marked
        self._used: dict[QueueMeter, int] = {
            (account.queue, account.meter): amount
            for account, amount in book.balances.items()
            if account.bucket is Bucket.USED
        }
        self._since: dict[QueueMeter, datetime] = {key: accrual.since for key, accrual in book.accruals.items()}
        self._parts: dict[tuple[QueueMeter, datetime], int] = {}
        """Meter-seconds in quarters of an hour with changing use, by the quarter's start."""
        self._steady: dict[QueueMeter, list[tuple[datetime, datetime, int]]] = {}
        """Runs of whole quarters with constant use: start, end, and the amount in use."""

    def add(self, entries: Iterable[Entry]) -> None:
        """Count entries, given in the order in which `EntryDraft.apply` takes them."""
        for entry in entries:
            used = [((line.queue, line.meter), line.amount) for line in entry.postings if line.bucket is Bucket.USED]
            self.move(entry.at, used, marks=entry.kind is Kind.USAGE)

    def move(self, at: datetime, used: Iterable[tuple[QueueMeter, int]], *, marks: bool) -> None:
        """Count one entry. used: its changes of the amounts in use; marks: it is a usage entry."""
        for key, amount in used:
            self._count_until(key, at)
            self._used[key] = self._used.get(key, 0) + amount
        if marks:
            for key in self._used:
                self._count_until(key, at)

    def intervals(self, *, end: datetime) -> list[UsageInterval]:
        """Return the use up to a mark, the last entry that was added."""
        parts = [self._quarter_interval(key, quarter, seconds, end) for (key, quarter), seconds in self._parts.items()]
        steady = [
            _interval(key, start, until, used * accruals.between(start, until))
            for key, runs in self._steady.items()
            for start, until, used in runs
        ]
        return [*steady, *(interval for interval in parts if interval.seconds)]

    def _count_until(self, key: QueueMeter, at: datetime) -> None:
        """Count the use until a moment, which becomes the start of what is counted next."""
        start = self._since.get(key, accruals.begin(at, self._start).since)
        end = max(start, accruals.floor_to_second(at))
        used = self._used.get(key, 0)
        if used and end > start:
            self._divide(key, start, end, used)
        self._since[key] = end

    def _divide(self, key: QueueMeter, start: datetime, end: datetime, used: int) -> None:
        """Keep the whole quarters as one interval, and add the parts before and after to their quarters."""
        first, last = _quarter(start + QUARTER - SECOND), _quarter(end)
        if first >= last:
            for begin, until in _split_by_quarter(start, end):
                self._add_to_quarter(key, begin, used * accruals.between(begin, until))
            return
        self._add_to_quarter(key, start, used * accruals.between(start, first))
        self._add_to_quarter(key, last, used * accruals.between(last, end))
        runs = self._steady.setdefault(key, [])
        if runs and runs[-1][1:] == (first, used):
            first = runs.pop()[0]
        runs.append((first, last, used))

    def _add_to_quarter(self, key: QueueMeter, at: datetime, seconds: int) -> None:
        quarter_key = (key, _quarter(at))
        self._parts[quarter_key] = self._parts.get(quarter_key, 0) + seconds

    def _quarter_interval(self, key: QueueMeter, quarter: datetime, seconds: int, end: datetime) -> UsageInterval:
        start = quarter if self._start is None else max(quarter, self._start)
        return _interval(key, start, min(quarter + QUARTER, end), seconds)


def _split_by_quarter(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield the parts of a time that lie in one quarter each."""
    while start < end:
        until = min(_quarter(start) + QUARTER, end)
        yield start, until
        start = until


def _quarter(at: datetime) -> datetime:
    return at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)


def _interval(key: QueueMeter, start: datetime, end: datetime, seconds: int) -> UsageInterval:
    queue, meter = key
    return UsageInterval(queue=queue, meter=meter, start=start, end=end, seconds=seconds)
