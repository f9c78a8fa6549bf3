"""Durations as Go and Kubernetes write them: `90s`, `5m`, `1h30m`, `1.5h`."""

import re
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_MICROSECONDS = {
    "ns": Fraction(1, 1000),
    "us": Fraction(1),
    "µs": Fraction(1),
    "ms": Fraction(1000),
    "s": Fraction(10**6),
    "m": Fraction(60 * 10**6),
    "h": Fraction(3600 * 10**6),
}

LONGEST = 256
"""Characters."""


@lru_cache(maxsize=10_000)
def parse(text: str) -> timedelta:
    """Return the duration, to the microsecond. Raises ValueError when the text is not one."""
    total, position = Fraction(0), 0
    if len(text) > LONGEST:
        raise ValueError(f"a duration of more than {LONGEST} characters is too long; write it as 1h30m")
    for match in _PART.finditer(text):
        if match.start() != position:
            break
        total += Fraction(match[1].rstrip(".") or "0") * _MICROSECONDS[match[2]]
        position = match.end()
    if not text or position != len(text):
        raise ValueError(f"{text!r} is not a duration such as 90s, 5m or 1h30m")
    try:
        return timedelta(microseconds=round(total))
    except OverflowError:
        raise ValueError(f"{text!r} is longer than can be counted") from None


def parse_positive(text: str) -> timedelta:
    """Return a duration longer than 0. Raises ValueError when the text is not one."""
    found = parse(text)
    if not found:
        raise ValueError(f"{text!r} must be longer than 0s, for example 90s, 30m or 1h30m")
    return found


def render(duration: timedelta) -> str:
    """Return a duration as text in hours, minutes and seconds: `1h30m`, `45s`, `0s`."""
    seconds = round(duration.total_seconds())
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"
