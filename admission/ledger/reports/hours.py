"""Seconds as decimal hours."""

from fractions import Fraction

PLACES = 4
"""Enough to tell any whole number of seconds from the next: a second is 0.000277… hours."""

_HOUR = 3600


def decimal(seconds: int, *, places: int = PLACES) -> str:
    """Write seconds as hours, rounded half to even where they do not end within the places."""
    return shown(scaled(seconds, places=places), places=places)


def scaled(seconds: int, *, places: int) -> int:
    """Return seconds as a whole number of 10^-places hours, rounded half to even."""
    return round(Fraction(seconds * 10**places, _HOUR))


def shown(value: int, *, places: int) -> str:
    """Write a whole number of 10^-places as a decimal, without zeros at its end."""
    whole, part = divmod(abs(value), 10**places)
    sign = "-" if value < 0 else ""
    return f"{sign}{whole}.{part:0{places}}".rstrip("0").rstrip(".") if part else f"{sign}{whole}"
