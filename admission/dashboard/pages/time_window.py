"""The period of a ledger page, read from a form."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.dashboard import formatting
from admission.dashboard.ledger_queries import Extent, Window

DAYS = 7

LASTS = {"day": 1, "week": 7, "month": 30}
"""Days of the periods up to now that may be asked for by name (`last`)."""

MAX_LENGTH = timedelta(days=400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """A period. notes: what was changed in it, or could not be read."""

    window: Window
    notes: tuple[str, ...] = ()

    @property
    def start(self) -> str:
        return f"{self.window.start:%Y-%m-%dT%H:%M}"

    @property
    def end(self) -> str:
        return f"{self.window.end:%Y-%m-%dT%H:%M}"


def period(query: Mapping[str, str], *, now: datetime, extent: Extent, days: int = DAYS) -> Period:
    """Return the period from `from` to `to`, in UTC, or the `last` day, week or month; by default the last days."""
    notes: list[str] = []
    latest = now.replace(microsecond=0) + timedelta(seconds=1)
    last = LASTS.get(query.get("last", ""))
    end = latest if last else min(_read(query, "to", notes) or latest, latest)
    start = None if last else _read(query, "from", notes)
    start = start or end - timedelta(days=last or days)
    if start >= end:
        notes.append("The start is not before the end, so the days before the end are shown.")
        start = end - timedelta(days=days)
    if end - start > MAX_LENGTH:
        notes.append(f"At most {MAX_LENGTH.days} days are shown at a time.")
        start = end - MAX_LENGTH
    if extent.start is not None and start < extent.start:
        notes.append(f"The books begin at {formatting.moment(extent.start)}; what was before is archived.")
        start = extent.start
    return Period(window=Window(start, max(start, end)), notes=tuple(notes))


def _read(query: Mapping[str, str], name: str, notes: list[str]) -> datetime | None:
    text = query.get(name, "").strip()
    if not text:
        return None
    found = formatting.read_moment(text[:40])
    if found is None:
        notes.append(f"{text[:40]!r} is no time such as 2026-09-01T12:00.")
    return found
