"""The gangs that hold devices now, ordered by their expected ends."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from admission.dra.metering import device_meters
from admission.dra.state.what_if import Interval
from admission.scheduling.backfill import reservations
from admission.scheduling.backfill.reservations import Estimate, ExpectedEnd
from admission.scheduling.checks import runtime


class _End(NamedTuple):
    """When a gang should end, to the second, with its name as tie-breaker."""

    second: datetime
    gang: str


@dataclass(slots=True)
class RunningGangs:
    """The running gangs, by name. One per leader, owned by its `Backfill`.

    Rule: only this class changes its fields. The time moves by `move_to`. What has changed since the flags were reset
    is recorded whenever a gang is added, removed or expected at another time.

    The gangs change in place within a cycle, so their orders are no values over `admission.incremental`: `changes` and
    `now` are what they are kept for, and `expect` drops them.
    """

    _now: datetime
    _expected_ends: dict[str, ExpectedEnd] = field(default_factory=dict)
    _changes: int = 0
    _is_early: bool = False
    """Whether a gang has ended sooner than expected since the cycle began, or is about to."""
    _overdue: datetime | None = None
    """The earliest expected end of gangs that ended late. What was computed after it expected them to end later."""
    _is_vague: bool = False
    _source: Mapping[str, ExpectedEnd] = field(default_factory=dict)
    _ends: list[_End] = field(default_factory=list)
    _by_end: list[ExpectedEnd] = field(default_factory=list)
    """The gangs with a known end, in the order of `_ends`, their declared ends."""
    _unknown: tuple[int, Estimate | None] = (-1, None)
    """Why starts are unknown, as of a value of `changes`."""
    _expected: tuple[datetime, int, list[_End], list[ExpectedEnd]] | None = None
    """The expected ends and their gangs, as of a time and a value of `changes`; None if equal to the declared ones."""

    @property
    def now(self) -> datetime:
        return self._now

    @property
    def expected_ends(self) -> Mapping[str, ExpectedEnd]:
        return self._expected_ends

    @property
    def changes(self) -> int:
        """Return a number that grows whenever a gang starts or ends, and with `note_change`."""
        return self._changes

    @property
    def is_vague(self) -> bool:
        """Return whether a gang with an unknown end has started or ended since the cycle began."""
        return self._is_vague

    def move_to(self, now: datetime) -> None:
        """Set the time."""
        self._now = now

    def note_change(self) -> None:
        """Record a change beside the gangs themselves, so that what depends on `changes` is computed again."""
        self._changes += 1

    def expect(self, expected_ends: Mapping[str, ExpectedEnd], now: datetime) -> None:
        """Replace the running gangs at the beginning of a cycle."""
        if expected_ends is self._source:
            return
        before, self._source = self._expected_ends, expected_ends
        self._expected_ends = {gang: self._same(gang, one) for gang, one in expected_ends.items()}
        self._by_end = sorted((one for one in self._expected_ends.values() if one.end is not None), key=_end)
        self._ends = [*map(_end, self._by_end)]
        self._expected, self._unknown = None, (-1, None)
        removed = [one for gang, one in before.items() if gang not in expected_ends]
        added = [one for gang, one in self._expected_ends.items() if gang not in before]
        self._changes += bool(removed or added)
        self._is_early |= any(_is_early(one, now) for one in removed) or any(
            _is_sooner(one, before[gang]) for gang, one in self._expected_ends.items() if gang in before
        )
        self._is_vague |= any(one.end is None for one in (*removed, *added))
        for one in removed:
            self._note_overdue(one, now)

    def reset_flags(self) -> None:
        """Forget what has changed, at the beginning of a cycle."""
        self._is_vague = False
        self.reset_ends()

    def reset_ends(self) -> None:
        """Forget that gangs have ended at another time than expected."""
        self._is_early, self._overdue = False, None

    def is_sooner(self, made: datetime) -> bool:
        """Return whether a gang has ended sooner than expected at the time when something was computed."""
        return self._is_early or (self._overdue is not None and self._overdue <= made)

    def add(self, expected_end: ExpectedEnd) -> None:
        """Add a gang, or more pods of one."""
        gang, self._source = expected_end.interval.gang, {}
        known = self._pop(gang)
        if known is not None:
            last = max(known.end, expected_end.end) if known.end is not None and expected_end.end is not None else None
            charge = device_meters.added((known.charge, expected_end.charge))
            expected_end = replace(
                known, interval=_merge(known.interval, expected_end.interval), charge=charge, end=last
            )
        self._expected_ends[gang] = expected_end
        if expected_end.end is not None:
            at = bisect_left(self._ends, _end(expected_end))
            self._ends.insert(at, _end(expected_end))
            self._by_end.insert(at, expected_end)
        self._changes += 1

    def remove(self, gang: str) -> ExpectedEnd | None:
        """Remove a gang; return its expected end, if it is known."""
        # Compare with the ledger again in the next cycle, even if it has not changed.
        self._source = {}
        self._changes += 1
        known = self._pop(gang)
        if known is not None:
            self._is_early |= _is_early(known, self._now)
            self._note_overdue(known, self._now)
        return known

    def late(self) -> dict[str, datetime]:
        """Return the gangs that should have ended by now, with their expected ends."""
        due = self._ends[: bisect_left(self._ends, _End(runtime.floor_to_second(self._now) + runtime.SECOND, ""))]
        expected_at = ((gang, self._expected_ends[gang].end) for _, gang in due)
        return {
            gang: runtime.expected(end, self._now) for gang, end in expected_at if end is not None and end <= self._now
        }

    @property
    def ends(self) -> Iterator[datetime]:
        """Return the expected ends in order."""
        return (second for second, _ in self._in_order()[0])

    def removed(self, at: datetime) -> Sequence[ExpectedEnd]:
        """Return the gangs that will have ended by a time, in the order of their ends."""
        ends, expected_ends = self._in_order()
        return expected_ends[: bisect_left(ends, _End(at + datetime.resolution, ""))]

    def unknown(self) -> Estimate | None:
        """Return that starts are unknown, since the ends of some gangs are; None if all ends are known."""
        if self._unknown[0] != self._changes:
            endless = sorted(gang for gang, one in self._expected_ends.items() if one.end is None)
            self._unknown = self._changes, reservations.unknown(endless) if endless else None
        return self._unknown[1]

    def _note_overdue(self, expected_end: ExpectedEnd, now: datetime) -> None:
        if expected_end.end is not None and expected_end.end < now:
            self._overdue = expected_end.end if self._overdue is None else min(self._overdue, expected_end.end)

    def _pop(self, gang: str) -> ExpectedEnd | None:
        known = self._expected_ends.pop(gang, None)
        if known is not None and known.end is not None:
            at = bisect_left(self._ends, _end(known))
            del self._ends[at], self._by_end[at]
        return known

    def _in_order(self) -> tuple[list[_End], list[ExpectedEnd]]:
        """Return the expected ends in order, and their gangs."""
        # Only gangs that are late, or due in this second, are expected at another time than declared.
        first = bisect_left(self._ends, _End(runtime.floor_to_second(self._now) + runtime.SECOND, ""))
        if not first:
            return self._ends, self._by_end
        known = self._expected
        if known is None or known[:2] != (self._now, self._changes):
            ends = self._ends[first:]
            for second, gang in self._ends[:first]:
                expected_at = self._expected_ends[gang].end or second
                insort(ends, _End(runtime.expected(expected_at, self._now), gang))
            known = self._expected = self._now, self._changes, ends, [self._expected_ends[gang] for _, gang in ends]
        return known[2:]

    def _same(self, gang: str, expected_end: ExpectedEnd) -> ExpectedEnd:
        """Return the known object of a gang if it is equal, so that identity shows changes."""
        known = self._expected_ends.get(gang)
        if known is expected_end:
            return expected_end
        if known is None or _what_counts(known) != _what_counts(expected_end):
            return expected_end
        return known if known.interval.requests == expected_end.interval.requests else expected_end


def _what_counts(one: ExpectedEnd) -> tuple[object, ...]:
    return one.queue, one.end, one.charge, one.is_used, one.is_used_in_the_end


def _end(expected_end: ExpectedEnd) -> _End:
    assert expected_end.end is not None  # noqa: S101 - gangs without a known end are not in `_ends`
    return _End(runtime.floor_to_second(expected_end.end), expected_end.interval.gang)


def _is_early(expected_end: ExpectedEnd, now: datetime) -> bool:
    """Return whether an ended gang was expected to end later. Ending within the expected second is not early."""
    return expected_end.end is None or runtime.floor_to_second(expected_end.end) > runtime.floor_to_second(now)


def _is_sooner(now: ExpectedEnd, before: ExpectedEnd) -> bool:
    """Return whether a gang's end has moved forward, as when its pods have ended and its claims are not free yet."""
    return now is not before and now.end is not None and (before.end is None or now.end < before.end)


def _merge(one: Interval, other: Interval) -> Interval:
    """Return the interval of a gang whose pods started in two parts."""
    devices = (*one.devices, *other.devices) if one.devices is not None and other.devices is not None else None
    requests = (*one.requests, *other.requests)
    return Interval(gang=one.gang, requests=requests, devices=devices, pods=one.pods | other.pods)
