"""Formats of amounts, times and charges on pages."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from urllib.parse import quote

from admission.api.values import quantities
from admission.quota import budgets

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def amount(value: int) -> str:
    """Return an amount of a meter as text."""
    return quantities.render(value)


def charge(charges: Mapping[str, int]) -> str:
    """Return a charge as `gpus 4, claims 2`."""
    return ", ".join(f"{meter} {quantities.render(value)}" for meter, value in sorted(charges.items())) or "-"


def hours(seconds: int) -> str:
    """Return meter-seconds as hours with one decimal."""
    tenths = round(seconds / 360)
    return budgets.hours(tenths * 360)


def span(length: timedelta) -> str:
    """Return a duration in its two largest units."""
    seconds = max(0, int(length.total_seconds()))
    found: list[str] = []
    for size, unit in _UNITS:
        count, seconds = divmod(seconds, size)
        if count:
            found.append(f"{count} {unit}")
        if len(found) == 2 or (found and not seconds):
            break
    return " ".join(found) or "0 s"


def between(at: datetime, now: datetime) -> str:
    """Return how long ago, or in how long, a time is."""
    length = now - at
    return f"{span(length)} ago" if length >= timedelta(0) else f"in {span(-length)}"


def moment(at: datetime) -> str:
    """Return a time in UTC, for people."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def instant(at: datetime) -> str:
    """Return a time in RFC 3339."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def segment(text: str) -> str:
    """Return a name as one segment of a path."""
    return quote(text, safe="")


def read_moment(text: str) -> datetime | None:
    """Return a time from a form, converted to UTC, which is also its default offset; None if it is invalid."""
    try:
        at = datetime.fromisoformat(text.strip())
        return at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
