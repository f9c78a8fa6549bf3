"""Quantities: k8s.io/apiserver pkg/cel/library/quantity.go over apimachinery's resource.Quantity (v0.36).

Whether a quantity is an integer depends on its notation, not on its value: apimachinery stores some texts as an int64
and a power of ten, others as a decimal for which `isInteger` is always false.
"""

import re
from fractions import Fraction

from admission.cel.core import errors, literals
from admission.cel.core.declarations import Overload, function, member
from admission.cel.core.values import Quantity

NANO = 10**9
MAX_EXPONENT = 4_000
"""Larger powers of ten are rejected, since apimachinery would compute them digit by digit."""

_LONGEST_EXPONENT = 20
"""Characters of an exponent. Longer ones are too large, or have leading zeros, which do not occur."""

_SHAPE = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_ALLOWED = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)")


def parse(text: str) -> Quantity:
    """Parse a quantity. Raises EvaluationError for an invalid text."""
    match = _SHAPE.fullmatch(text)
    if match is None or not text or not text.isascii():
        raise errors.EvaluationError(
            "unable to parse quantity's suffix"
            if _ALLOWED.fullmatch(text)
            else "quantities must be numbers with a suffix"
        )
    sign, whole, part, suffix = match[1], match[2].lstrip("0") or "0", match[3] or "", match[4]
    if len(whole) + len(part) > MAX_EXPONENT:
        raise errors.AbortError("Muster does not compute quantities of more than 4000 digits")
    negative = sign == "-"
    if suffix in _BINARY:
        return _binary(whole, part, _BINARY[suffix], negative=negative)
    return _decimal(whole, part, _exponent(suffix), negative=negative)


def _exponent(suffix: str) -> int:
    if suffix in _DECIMAL:
        return _DECIMAL[suffix]
    match = _EXPONENT.fullmatch(suffix)
    if match is None:
        raise errors.EvaluationError("unable to parse quantity's suffix")
    exponent = int(match[1]) if len(match[1]) <= _LONGEST_EXPONENT else MAX_EXPONENT + 1
    if abs(exponent) > MAX_EXPONENT:
        raise errors.AbortError("Muster does not compute exponents of quantities beyond 4000")
    return exponent


def _decimal(whole: str, part: str, exponent: int, *, negative: bool) -> Quantity:
    scale = exponent - len(part)
    number = int(whole + part)
    if len(whole) + len(part) <= 18 and scale >= -9:
        return _fast(-number if negative else number, scale)
    return _slow(Fraction(number) * Fraction(10) ** scale, negative=negative)


def _binary(whole: str, part: str, exponent: int, *, negative: bool) -> Quantity:
    if not part and 15 - len(whole) - int(exponent * 0.3) - 1 >= 0:
        number = int(whole) << exponent
        return _fast(-number if negative else number, 0)
    amount = Fraction(int(whole + part) << exponent, 10 ** len(part))
    return _slow(min(amount, Fraction(literals.INT_MAX)), negative=negative)


def _fast(mantissa: int, scale: int) -> Quantity:
    return Quantity(mantissa * 10 ** (scale + 9), scale)


def _slow(amount: Fraction, *, negative: bool) -> Quantity:
    nanos = -(-(amount * NANO).numerator // (amount * NANO).denominator)
    return Quantity(-nanos if negative else nanos, None)


def from_int(value: int) -> Quantity:
    return Quantity(value * NANO, 0)


def as_int(quantity: Quantity) -> int | None:
    """Return the result of apimachinery's AsInt64: the integer, or None for an amount that it stores otherwise."""
    if quantity.scale is None or (quantity.scale < 0 and quantity.nanos):
        return None
    value = quantity.nanos // NANO
    return value if literals.INT_MIN <= value <= literals.INT_MAX else None


def _as_integer(quantity: Quantity) -> int:
    value = as_int(quantity)
    if value is None:
        raise errors.EvaluationError("cannot convert value to integer")
    return value


def add(left: Quantity, right: Quantity) -> Quantity:
    """Add as apimachinery does: two fast amounts stay fast while they fit 64 bits at their common scale."""
    nanos = left.nanos + right.nanos
    if left.scale is None or right.scale is None:
        return Quantity(nanos, None, computed=True)
    if right.nanos == 0:
        return Quantity(nanos, left.scale, computed=True)
    if left.nanos == 0:
        return Quantity(nanos, right.scale, computed=True)
    scale = min(left.scale, right.scale)
    parts = (nanos, left.nanos, right.nanos)
    fits = all(abs(part) <= literals.INT_MAX * 10 ** (scale + 9) for part in parts)
    return Quantity(nanos, scale if fits else None, computed=True)


def subtract(left: Quantity, right: Quantity) -> Quantity:
    """Subtract as apimachinery does."""
    return add(left, _negated(right))


def _negated(quantity: Quantity) -> Quantity:
    return Quantity(-quantity.nanos, quantity.scale)


def _approximate(quantity: Quantity) -> float:
    scale = quantity.scale
    if scale is None:
        return float(quantity.nanos) * 1e-9
    mantissa = quantity.nanos // 10 ** (scale + 9)
    return float(mantissa) * float(f"1e{scale}") if scale else float(mantissa)


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except errors.EvaluationError:
        return False
    return True


OVERLOADS: tuple[Overload, ...] = (
    function("quantity", "string -> Quantity", parse),
    function("isQuantity", "string -> bool", _is_quantity),
    function("sign", "Quantity -> int", lambda q: (q.nanos > 0) - (q.nanos < 0)),
    member("isInteger", "Quantity -> bool", lambda q: as_int(q) is not None),
    member("asInteger", "Quantity -> int", _as_integer),
    member("asApproximateFloat", "Quantity -> double", _approximate),
    member("add", "Quantity, Quantity -> Quantity", add),
    member("add", "Quantity, int -> Quantity", lambda q, n: add(q, from_int(n))),
    member("sub", "Quantity, Quantity -> Quantity", subtract),
    member("sub", "Quantity, int -> Quantity", lambda q, n: add(q, from_int(-n))),
    member("isGreaterThan", "Quantity, Quantity -> bool", lambda q, p: q.nanos > p.nanos),
    member("isLessThan", "Quantity, Quantity -> bool", lambda q, p: q.nanos < p.nanos),
    member("compareTo", "Quantity, Quantity -> int", _compare),
)
