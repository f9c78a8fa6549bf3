"""Quantities as the records write them."""

import math
from collections.abc import Mapping
from fractions import Fraction

_SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)} | {
    letter + binary: Fraction((1024 if binary else 1000) ** power)
    for power, letter in enumerate("kMGTPE", 1)
    for binary in ("", "i")
}
_SUFFIXES["Ki"] = _SUFFIXES.pop("ki")


def read(text: str | int | Fraction) -> Fraction:
    """Read a quantity; what is finer than a billionth is rounded up."""
    if isinstance(text, Fraction):
        return text
    written = str(text)
    digits = written.rstrip("numkMGTPEKi")
    exact = Fraction(digits) * _SUFFIXES[written[len(digits) :]]
    return Fraction(math.ceil(exact * 10**9), 10**9)


def read_all(given: Mapping[str, str]) -> dict[str, Fraction]:
    return {name: read(text) for name, text in given.items()}


def whole(amount: str | int | Fraction) -> int:
    return math.ceil(read(amount))
