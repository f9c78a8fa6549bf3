"""How little the devices of gangs have been in use of late, by what was recorded beside the books.

A row is measured use of one claim in one recorded time. What was not measured counts as use, so that a gang of which
nothing is known is never idle. For each gang only so much is kept as says since when all of its rows are below a
percentage: the ends of rows, each with a smaller percentage than the one before, of which there are at most 101.
"""

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from admission.api.muster.ledger_entries import MeasuredUsage
from admission.api.values.names import GangUid

MICRO = 1_000_000


class LowUse(NamedTuple):
    """That all rows of a gang from `since` to `until` are below a percentage."""

    since: datetime
    until: datetime


def percent_in_use(row: MeasuredUsage, devices: int) -> int:
    """Return the percentage of the time in which the devices of a row were in use, rounded down, at most 100.

    devices: how many of them can be measured, at least 1.
    """
    seconds = devices * round((row.end - row.start).total_seconds())
    missing = max(0, seconds - row.measured_seconds)
    used = (row.used_microseconds or 0) + missing * MICRO
    return min(100, used * 100 // (seconds * MICRO)) if seconds else 0


@dataclass(slots=True)
class _Use:
    """The rows of a gang, without gaps between them. peaks: ends of rows in order, with falling percentages."""

    since: datetime
    until: datetime
    peaks: list[tuple[datetime, int]] = field(default_factory=list)


class RecentUse:
    """The recent use of gangs' devices. Rule: rows are added once each, in the order of their recorded times."""

    def __init__(self) -> None:
        self._gangs: dict[GangUid, _Use] = {}

    def add(self, row: MeasuredUsage, devices: int) -> None:
        """Add a row. devices: how many of it can be measured; a row of none says nothing."""
        if devices <= 0 or row.end <= row.start:
            return
        use = self._gangs.get(row.gang_uid)
        if use is None or row.start > use.until:  # it had no devices in between
            use = self._gangs[row.gang_uid] = _Use(row.start, row.end)
        use.since, use.until = min(use.since, row.start), max(use.until, row.end)
        percent = percent_in_use(row, devices)
        at = bisect_left(use.peaks, row.end, key=lambda peak: peak[0])
        if at < len(use.peaks) and use.peaks[at][1] >= percent:
            return
        first = at
        while first and use.peaks[first - 1][1] <= percent:
            first -= 1
        is_same = at < len(use.peaks) and use.peaks[at][0] == row.end
        use.peaks[first : at + is_same] = [(row.end, percent)]

    def below(self, gang: GangUid, percent: int) -> LowUse | None:
        """Return since when, and until when, a gang's rows are below a percentage; None if the last one is not."""
        use = self._gangs.get(gang)
        if use is None:
            return None
        since = max((end for end, peak in use.peaks if peak >= percent), default=use.since)
        return LowUse(since, use.until) if since < use.until else None

    def known_since(self, gang: GangUid) -> datetime | None:
        """Return the beginning of a gang's rows, as far back as there is no gap between them; None without any."""
        use = self._gangs.get(gang)
        return use.since if use is not None else None

    def keep(self, gangs: Collection[GangUid]) -> None:
        """Forget all gangs but these."""
        self._gangs = {uid: use for uid, use in self._gangs.items() if uid in gangs}
