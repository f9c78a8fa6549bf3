"""Who has devices now, and who of them will have ended by a time; for `reserving`."""

from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from admission.dra import metering
from admission.dra.outlooks import Stay
from admission.policy import runtimes
from admission.policy.reservations import Tenure


@dataclass(slots=True)
class Presence:
    """The gangs that have devices, by name. changes: grows whenever one comes or goes.

    is_early: whether one has gone, since the cycle began, of whom that was not expected yet. is_vague: whether one has
    come or gone of whom nobody knows how long it runs.
    """

    now: datetime
    tenures: dict[str, Tenure] = field(default_factory=dict)
    changes: int = 0
    is_early: bool = False
    is_vague: bool = False
    _told: Mapping[str, Tenure] = field(default_factory=dict)
    _ends: tuple[datetime, int, tuple[datetime, ...], tuple[Tenure, ...]] | None = None
    """When gangs are expected to end, in order; as of when, and as of which change."""

    def expect(self, tenures: Mapping[str, Tenure], now: datetime) -> None:
        """Take over who has devices at the beginning of a cycle."""
        if tenures is self._told:
            return
        before, self._told = self.tenures, tenures
        self.tenures = {gang: self._same(gang, one) for gang, one in tenures.items()}
        gone = [one for gang, one in before.items() if gang not in tenures]
        came = [one for gang, one in self.tenures.items() if gang not in before]
        self.changes += bool(gone or came)
        self.is_early |= any(one.end is None or one.end > now for one in gone)
        self.is_vague |= any(one.end is None for one in (*gone, *came))

    def begin(self) -> None:
        """Begin to look at what changes."""
        self.is_early = self.is_vague = False

    def come(self, tenure: Tenure) -> None:
        """Let a gang, or more of one, come."""
        gang = tenure.stay.gang
        known = self.tenures.get(gang)
        if known is not None:
            last = max(known.end, tenure.end) if known.end is not None and tenure.end is not None else None
            stay = Stay(gang=gang, requests=(*known.stay.requests, *tenure.stay.requests))
            charge = metering.added((known.charge, tenure.charge))
            tenure = replace(known, stay=stay, charge=charge, end=last)
        self.tenures[gang] = tenure
        self.changes += 1

    def go(self, gang: str) -> Tenure | None:
        """Let a gang go, and return what it had, if it is known."""
        self.changes += 1
        return self.tenures.pop(gang, None)

    @property
    def ends(self) -> tuple[datetime, ...]:
        """Return when gangs are expected to end, in order."""
        return self._expected()[0]

    def gone(self, at: datetime) -> tuple[Tenure, ...]:
        """Return who will have ended by a time, in the order of their ends."""
        ends, tenures = self._expected()
        return tenures[: bisect(ends, at)]

    def _expected(self) -> tuple[tuple[datetime, ...], tuple[Tenure, ...]]:
        if self._ends is None or self._ends[:2] != (self.now, self.changes):
            ends = [(runtimes.expected(one.end, self.now), one) for one in self.tenures.values() if one.end is not None]
            ends.sort(key=lambda one: (one[0], one[1].stay.gang))
            self._ends = self.now, self.changes, tuple(end for end, _ in ends), tuple(one for _, one in ends)
        return self._ends[2:]

    def _same(self, gang: str, tenure: Tenure) -> Tenure:
        """Return what was known of a gang where nothing else is known now."""
        known = self.tenures.get(gang)
        if known is None or (known.queue, known.end, known.charge) != (tenure.queue, tenure.end, tenure.charge):
            return tenure
        return known if known.stay.requests == tenure.stay.requests else tenure
