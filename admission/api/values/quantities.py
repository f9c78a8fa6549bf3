"""Kubernetes quantities as exact numbers.

The grammar is that of `k8s.io/apimachinery/pkg/api/resource` (Quantity): a decimal number and one suffix, binary
(Ki … Ei), decimal (n, u, m, none, k … E) or an exponent (e3, E3).
"""

import re
from fractions import Fraction
from functools import lru_cache

from admission.errors import AmountError

BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}

INT64 = 2**63 - 1

LIMIT = 10**38 - 1
"""Largest amount that the ledger stores: NUMERIC(38, 0)."""

MOST = 10**27
"""Largest amount of a meter, in its base unit: after 3,000 years of use, its meter-seconds are still within LIMIT."""

LONGEST = 4096
"""Most characters of a quantity; Python parses numbers of up to 4,300 digits."""


_LONGEST_QUOTE = 60
_USUAL = 32
"""Most characters of a cached quantity, so that long ones cannot fill the memory."""

_QUANTITY = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,3})|([KMGTPE]i|[numkMGTPE]?))", re.ASCII)


def parse(text: str) -> Fraction:
    """Return the exact value of a quantity, in units. Raises AmountError when the text is not a quantity."""
    return _parse_cached(text) if len(text) <= _USUAL else _parsed(text)


@lru_cache(maxsize=4096)
def _parse_cached(text: str) -> Fraction:
    """Parse a quantity with a cache, since thousands of pods have equal requests."""
    return _parsed(text)


def _parsed(text: str) -> Fraction:
    match = _QUANTITY.fullmatch(text) if len(text) <= LONGEST else None
    if match is None:
        raise AmountError(f"{quoted(text)} is not a Kubernetes quantity such as 8, 500m, 80Gi or 1e3")
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(digits if "." not in digits else digits.strip(".") if digits.endswith(".") else digits)
    if exponent:
        value *= Fraction(10) ** int(exponent[1:])
    elif suffix in BINARY:
        value *= 1024 ** BINARY[suffix]
    else:
        value *= Fraction(10) ** DECIMAL[suffix or ""]
    return -value if sign == "-" else value


def measure(text: str) -> Fraction:
    """Return a quantity as Kubernetes stores it: rounded up to billionths, with a binary suffix at most 2^63-1.

    Raises AmountError when the text is not a quantity.
    """
    value = parse(text)
    if text[-1:] == "i":
        value = max(min(value, Fraction(INT64)), Fraction(-INT64))
    billionths = value * 10**9
    if billionths.denominator == 1:
        return value
    # Away from zero, so that a non-zero amount is never counted as zero.
    rounded = -(-abs(billionths.numerator) // billionths.denominator)
    return Fraction(rounded if value > 0 else -rounded, 10**9)


def parse_amount(text: str) -> int:
    """Return a quantity that must be a whole number ≥ 0 of base units, at most MOST. Raises AmountError when not."""
    value = parse(text)
    if value.denominator != 1:
        raise AmountError(f"{quoted(text)} is not a whole number of the meter's base unit")
    if value < 0:
        raise AmountError(f"{quoted(text)} is negative; write 0 for none")
    if value > MOST:
        raise AmountError(f"{quoted(text)} is more than can be counted, 10^27 of the meter's base unit")
    return value.numerator


def parse_hours(text: str) -> int:
    """Return meter-hours > 0 as whole meter-seconds, at most LIMIT. Raises AmountError when they are not."""
    seconds = parse(text) * 3600
    if seconds <= 0:
        raise AmountError(f"{quoted(text)} must be more than 0; to give nothing, set the quota's nominal to 0")
    if seconds.denominator != 1:
        raise AmountError(f"{quoted(text)} hours are not a whole number of seconds; 0.0025 hours are 9 seconds")
    if seconds > LIMIT:
        raise AmountError(f"{quoted(text)} hours are more than the ledger can count, 10^38 meter-seconds")
    return seconds.numerator


def seconds_of(text: str) -> int:
    """Return the meter-seconds of rounded hours in a status. Raises AmountError for text that is no number."""
    return round(parse(text) * 3_600)


def parse_weight(text: str) -> Fraction:
    """Return a quantity ≥ 0 that need not be whole, at most MOST. Raises AmountError when it is not."""
    value = parse(text)
    if value < 0:
        raise AmountError(f"{quoted(text)} is negative; write 0 to come after all others")
    if value > MOST or value.denominator > MOST:
        raise AmountError(f"{quoted(text)} is too large or too fine; use a number such as 2 or 0.5")
    return value


def parse_ceiling(text: str) -> int:
    """Return a quantity rounded up to whole units, as Kubernetes' Quantity.Value() does."""
    value = parse(text)
    return -(-value.numerator // value.denominator)


def parse_millis(text: str) -> int:
    """Return a quantity in thousandths, rounded up, as Kubernetes counts CPU (Quantity.MilliValue())."""
    value = parse(text) * 1000
    return -(-value.numerator // value.denominator)


def checked(amount: int) -> int:
    """Return the amount. Raises AmountError when it is too large for the ledger."""
    if abs(amount) > LIMIT:
        raise AmountError(
            f"an amount of {amount.bit_length()} bits is larger than the ledger keeps (38 decimal digits)"
        )
    return amount


def render(amount: int) -> str:
    """Return an amount as a canonical quantity: with the largest binary suffix, from 1Ki on, that keeps it whole."""
    if amount and amount % 1024 == 0:
        for suffix, power in reversed(BINARY.items()):
            if amount % 1024**power == 0:
                return f"{amount // 1024**power}{suffix}"
    return str(amount)


def write(value: Fraction) -> str:
    """Return an exact value as a quantity: whole amounts as `render`, others with the first of m, u, n that fits.

    Raises AmountError for a value finer than a billionth.
    """
    if value.denominator == 1:
        return render(value.numerator)
    for suffix, power in (("m", 3), ("u", 6), ("n", 9)):
        scaled = value * 10**power
        if scaled.denominator == 1:
            return f"{scaled.numerator}{suffix}"
    raise AmountError(f"{value} cannot be written as a quantity: it is finer than a billionth")


def is_decimal(text: str) -> bool:
    """Return whether Kubernetes stores a quantity as an unbounded decimal instead of a 64-bit integer with a scale.

    It does for a fraction with a binary suffix, and for more than 18 digits (`ParseQuantity`).
    """
    if "." not in text and len(text) <= 18:
        return False
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return False
    digits, suffix = match[2], match[4]
    return ("." in digits and suffix in BINARY) or len(digits.replace(".", "")) > 18


def quoted(text: str) -> str:
    """Return a user's text in quotes for messages, cut if it is long."""
    return repr(text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…")
