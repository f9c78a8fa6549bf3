"""Durations and timestamps: Go's time.ParseDuration, RFC 3339, and accessors, which count from 0 where CEL does.

Zones are offsets, or names of the tz database.
"""

import datetime as dt
import re
from collections.abc import Callable
from fractions import Fraction

from admission.cel.core import errors
from admission.cel.core.arithmetic import checked_duration, checked_timestamp
from admission.cel.core.declarations import Implementation, Overload, member
from admission.cel.core.values import Duration, Timestamp
from admission.cel.library import time_zones

SECOND = 10**9
DAY = 86_400 * SECOND
_EPOCH = dt.date(1970, 1, 1).toordinal()
_MAX_DIGITS = 19
"""Digits of one part of a duration, before the point and after it."""

_LONGEST = 2**63
"""The smallest number of nanoseconds that is too large."""

_CYCLE = 146_097
"""Days in 400 years, after which the calendar, including weekdays, repeats."""

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,
    "μs": 1_000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3_600 * SECOND,
}
_PART = re.compile(r"([0-9]*)(?:(\.)([0-9]*))?(ns|us|µs|μs|ms|s|m|h)")
_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_ZONE = re.compile(r"([+-]?[0-9]+):([+-]?[0-9]+)")


def parse_duration(text: str) -> Duration:
    """Parse a duration such as `1h30m`, in linear time. Raises EvaluationError."""
    sign, rest = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if rest == "0":
        return Duration(0)
    total, position = 0, 0
    while position < len(rest) and total <= _LONGEST:
        match = _PART.match(rest, position)
        if match is None or not (match[1] or match[3]):
            break
        total += _part(match[1], match[3] or "", _UNITS[match[4]])
        position = match.end()
    if not rest or position < len(rest):
        raise errors.EvaluationError("type conversion error from 'string' to 'google.protobuf.Duration'")
    return checked_duration(-total if sign == "-" else total)


def _part(whole: str, fraction: str, unit: int) -> int:
    """Return one part in nanoseconds, or more than any duration if it has too many digits."""
    digits = whole.lstrip("0")
    if len(digits) > _MAX_DIGITS:
        return _LONGEST + 1
    return int(Fraction(f"{digits or 0}.{fraction[:_MAX_DIGITS] or 0}") * unit)


def parse_timestamp(text: str) -> Timestamp:
    """Parse an RFC 3339 timestamp. Raises EvaluationError."""
    match = _INSTANT.fullmatch(text)
    error = errors.EvaluationError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    if match is None:
        raise error
    hour, minute, second = int(match[4]), int(match[5]), int(match[6])
    zone_hours, zone_minutes = int(match[9] or 0), int(match[10] or 0)
    if hour > 23 or minute > 59 or second > 59 or zone_hours > 24 or zone_minutes > 60:
        raise error
    try:
        days = dt.date(int(match[1]), int(match[2]), int(match[3])).toordinal() - _EPOCH
    except ValueError:
        raise error from None
    offset = (zone_hours * 3600 + zone_minutes * 60) * (-1 if match[8] == "-" else 1)
    nanoseconds = int((match[7] or "0")[:9].ljust(9, "0"))
    return checked_timestamp(days * DAY + (hour * 3600 + minute * 60 + second - offset) * SECOND + nanoseconds, offset)


def from_seconds(seconds: int) -> Timestamp:
    return checked_timestamp(seconds * SECOND)


def duration_text(duration: Duration) -> str:
    """Format a duration in seconds, with the digits of a double."""
    seconds = duration.nanoseconds / SECOND
    text = f"{Fraction(repr(seconds)).numerator}" if seconds.is_integer() else _positional(seconds)
    return f"{text}s"


def _positional(value: float) -> str:
    text = f"{value!r}"
    if "e" not in text:
        return text
    return f"{value:.9f}".rstrip("0")


def timestamp_text(instant: Timestamp) -> str:
    """Format a timestamp in RFC 3339, in the zone from which it was parsed."""
    local = instant.nanoseconds + instant.offset * SECOND
    day, year = _date(local // DAY)
    seconds, nanoseconds = divmod(local % DAY, SECOND)
    part = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    clock = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{part}"
    return f"{year:04d}-{day.month:02d}-{day.day:02d}T{clock}{_offset_text(instant.offset)}"


def _offset_text(offset: int) -> str:
    if not offset:
        return "Z"
    minutes = abs(offset) // 60
    return f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


def zone_offset(zone: str, nanoseconds: int) -> int:
    """Return a zone's offset in seconds, at an instant. Raises EvaluationError for unknown zones."""
    if zone in ("", "UTC"):
        return 0
    if ":" not in zone:
        return time_zones.offset(zone, nanoseconds // SECOND)
    match = _ZONE.fullmatch(zone)
    if match is None or len(zone) > 16:
        raise errors.EvaluationError(f"unknown time zone {zone[:40]}")
    hours, minutes = int(match[1]), int(match[2])
    return (hours * 60 + (-minutes if zone[0] == "-" else minutes)) * 60


def _date(days: int) -> tuple[dt.date, int]:
    """Return a day by its number since 1970, and its year, which in a zone may be outside of Python's 1 to 9999."""
    cycles, rest = divmod(days + _EPOCH - 1, _CYCLE)
    day = dt.date.fromordinal(rest + 1)
    return day, day.year + 400 * cycles


def _accessor(read: Callable[[dt.date, int], int]) -> Implementation:
    """Return an accessor that reads the date, or the nanosecond of the day, in UTC or a zone."""

    def run(instant: Timestamp, zone: str = "") -> int:
        days, nanosecond = divmod(instant.nanoseconds + zone_offset(zone, instant.nanoseconds) * SECOND, DAY)
        return read(_date(days)[0], nanosecond)

    return run


def _full_year(instant: Timestamp, zone: str = "") -> int:
    return _date((instant.nanoseconds + zone_offset(zone, instant.nanoseconds) * SECOND) // DAY)[1]


def _whole_units(unit: int) -> Implementation:
    return lambda duration: abs(duration.nanoseconds) // unit * (-1 if duration.nanoseconds < 0 else 1)


_CALENDAR: dict[str, Callable[[dt.date, int], int]] = {
    "getDate": lambda day, _: day.day,
    "getDayOfMonth": lambda day, _: day.day - 1,
    "getDayOfWeek": lambda day, _: day.isoweekday() % 7,
    "getDayOfYear": lambda day, _: day.timetuple().tm_yday - 1,
    "getMonth": lambda day, _: day.month - 1,
    "getHours": lambda _, nanosecond: nanosecond // (3_600 * SECOND),
    "getMinutes": lambda _, nanosecond: nanosecond // (60 * SECOND) % 60,
    "getSeconds": lambda _, nanosecond: nanosecond // SECOND % 60,
    "getMilliseconds": lambda _, nanosecond: nanosecond // 1_000_000 % 1_000,
}

_PARTS = {"getHours": 3_600 * SECOND, "getMinutes": 60 * SECOND, "getSeconds": SECOND, "getMilliseconds": 1_000_000}

OVERLOADS: tuple[Overload, ...] = (
    member("getFullYear", "timestamp -> int", _full_year),
    member("getFullYear", "timestamp, string -> int", _full_year),
    *(member(name, "timestamp -> int", _accessor(read)) for name, read in _CALENDAR.items()),
    *(member(name, "timestamp, string -> int", _accessor(read)) for name, read in _CALENDAR.items()),
    *(member(name, "duration -> int", _whole_units(unit)) for name, unit in _PARTS.items()),
)
