"""The ledger of a leader, which records what the leader wrote: all other transactions of its term are foreign.

It wraps the real ledger and needs no further requests, since the answer to each write has place and digest.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from admission.accounting.accruals import QueueMeter
from admission.accounting.books import Book
from admission.api.muster.ledger_entries import BudgetShare, Entry, Kind, MemberUsageInterval, Posted, UsageInterval
from admission.errors import LedgerUnavailableError
from admission.heads.signed_head import LARGEST, Range
from admission.ports import Ledger

MOST_RANGES = 10_000
"""The most ranges of own places that are kept; there is one unless other clients write in between."""

MOST_UNCERTAIN = 20_000
"""The most entries with an unanswered write that are kept; the leader's copy of the book keeps fewer."""


class OwnWrites:
    """The port Ledger during one term.

    Rule: a recorded place was written by this process. The flags are set here, and reset by the signer that reads them.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._own: list[Range] = []
        """The places of own transactions, ascending; nearly always one range."""
        self.last: tuple[int, str] | None = None
        """Place and digest of the latest own transaction; None before the first."""
        self._uncertain: dict[str, Entry] = {}
        """By key, the entries whose writes were not answered: they may have been written."""
        self._in_flight = 0
        self._writes = 0
        self.has_written = False
        self.has_marked = False
        self.has_read = False
        """Whether the book was read again, perhaps since another client has written."""

    @property
    def version(self) -> tuple[int, int] | None:
        """Return a value that changes with every write; None while the outcome of a write is open."""
        return None if self._in_flight else (self._writes, len(self._uncertain))

    def others(self, first: int, last: int) -> Iterator[Range]:
        """Yield the places in a range, both ends inclusive, at which this process did not write, as far as is known."""
        for start, end in self._own:
            if end < first or start > last:
                continue
            if first < start:
                yield first, start - 1
            first = end + 1
        if first <= last:
            yield first, last

    def recognize(self, sequence: int, entry: Entry) -> bool:
        """If an entry found at a place is one with an unanswered write, record it as own; return whether it is."""
        known = self._uncertain.get(entry.key)
        if known is not None and known.kind is Kind.MEASURE:
            known = replace(known, at=entry.at)  # the ledger may have dated it later
        if known != entry:
            return False
        del self._uncertain[entry.key]
        self._add(sequence)
        return True

    def forget_before(self, sequence: int) -> None:
        """Forget the places before one."""
        self._own = [(max(start, sequence), end) for start, end in self._own if end >= sequence]

    def _add(self, place: int) -> None:
        at = bisect_right(self._own, (place, LARGEST))
        before = self._own[at - 1] if at else None
        if before is not None and before[1] >= place:
            return
        first = at - 1 if before is not None and before[1] == place - 1 else at
        last = at + 1 if at < len(self._own) and self._own[at][0] == place + 1 else at
        touched = self._own[first:last]
        joined = min((place, *(start for start, _ in touched))), max((place, *(end for _, end in touched)))
        self._own[first:last] = [joined]
        del self._own[:-MOST_RANGES]

    # The port Ledger.

    async def load(self) -> Book:
        book = await self._ledger.load()
        self.has_read = True
        return book

    async def sequence(self) -> int:
        return await self._ledger.sequence()

    async def since(self, sequence: int, *, most: int) -> Sequence[Entry] | None:
        return await self._ledger.since(sequence, most=most)

    async def fence(self, epoch: int) -> None:
        await self._ledger.fence(epoch)

    async def post_all(
        self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
    ) -> Sequence[Posted]:
        return await self.recorded(entries, lambda: self._ledger.post_all(entries, epoch=epoch, shares=shares))

    async def recorded(
        self, entries: Sequence[Entry], write: Callable[[], Awaitable[Sequence[Posted]]]
    ) -> Sequence[Posted]:
        """Write these entries by a call of the ledger, and record them as own. Raises what the call does."""
        self._in_flight += 1
        try:
            posted = await write()
        except (LedgerUnavailableError, asyncio.CancelledError):
            self._uncertain |= {entry.key: entry for entry in entries}
            while len(self._uncertain) > MOST_UNCERTAIN:
                del self._uncertain[next(iter(self._uncertain))]
            raise
        finally:
            self._in_flight -= 1
        self._note(entries, posted)
        return posted

    def _note(self, entries: Sequence[Entry], posted: Sequence[Posted]) -> None:
        for entry, place in zip(entries, posted, strict=True):
            # A key that was stored already is that of an own unanswered write, or of another client's write.
            if not place.repeated or entry.key in self._uncertain:
                self._add(place.sequence)
                self.last = max(self.last or (0, ""), (place.sequence, place.digest))
                self.has_marked |= entry.kind is Kind.USAGE
            self._uncertain.pop(entry.key, None)
        self._writes += 1
        self.has_written = True

    async def spent(self, since: datetime) -> Mapping[QueueMeter, int]:
        return await self._ledger.spent(since)

    async def usage(self, since: datetime) -> Sequence[UsageInterval]:
        return await self._ledger.usage(since)

    async def member_usage(self, since: datetime, until: datetime, step: timedelta) -> Sequence[MemberUsageInterval]:
        return await self._ledger.member_usage(since, until, step)

    async def write_shares(self, shares: Sequence[BudgetShare], *, epoch: int, now: datetime) -> Sequence[BudgetShare]:
        return await self._ledger.write_shares(shares, epoch=epoch, now=now)
