"""Quantities: k8s.io/apiserver pkg/cel/library/quantity.go over apimachinery's resource.Quantity (v0.36, v0.37).

Whether a quantity is an integer depends on its notation, not on its value: apimachinery stores some texts as an int64
and a power of ten, others as a wide decimal for which `isInteger` is always false. Comparing it with a wide one makes a
quantity wide, and 1.36 adds to a wide one in place, so that `q.add(1)` is not greater than `q` then.
"""

import dataclasses
import math
import re
from fractions import Fraction

from admission.cel.core import errors, literals
from admission.cel.core.declarations import Overload, function, member
from admission.cel.core.values import Amount, Quantity

NANO = 10**9
MAX_EXPONENT = 4_000
"""Larger powers of ten are rejected, since apimachinery would compute them digit by digit."""

_LONGEST_EXPONENT = 20
"""Characters of an exponent. Longer ones are too large, or have leading zeros, which do not occur."""

_MOST_EXPONENT, _MOST_NEGATIVE_EXPONENT = 308, 323
"""Exponents of powers of ten that Go computes as floats; beyond, they are infinite or zero."""

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
    return _slow(Fraction(number) * Fraction(10) ** scale, scale, negative=negative)


def _binary(whole: str, part: str, exponent: int, *, negative: bool) -> Quantity:
    if not part and 15 - len(whole) - int(exponent * 0.3) - 1 >= 0:
        number = int(whole) << exponent
        return _fast(-number if negative else number, 0)
    amount = Fraction(int(whole + part) << exponent, 10 ** len(part))
    if amount > literals.INT_MAX:
        return _wide(literals.INT_MAX * NANO, 0, negative=negative)
    return _slow(amount, -len(part), negative=negative)


def _fast(mantissa: int, scale: int) -> Quantity:
    return Quantity(Amount(mantissa * 10 ** (scale + 9), scale))


def _slow(amount: Fraction, scale: int, *, negative: bool) -> Quantity:
    """Round up to 10⁻⁹, which becomes the scale; zero alone keeps the scale in which it is written."""
    nanos = -(-(amount * NANO).numerator // (amount * NANO).denominator)
    return _wide(nanos, -9 if nanos else scale, negative=negative)


def _wide(nanos: int, scale: int, *, negative: bool) -> Quantity:
    return Quantity(Amount(-nanos if negative else nanos, scale, wide=True))


def from_int(value: int) -> Quantity:
    return Quantity(Amount(value * NANO, 0))


def parse_shared(text: str) -> Quantity:
    """Parse a quantity that several evaluations will read."""
    quantity = parse(text)
    quantity.amount.shared = True
    return quantity


def copied(quantity: Quantity) -> Quantity:
    """Return the quantity with an amount of its own, which an evaluation may change."""
    return Quantity(dataclasses.replace(quantity.amount, shared=False), quantity.computed)


def _mantissa(amount: Amount) -> int:
    places = amount.scale + 9
    mantissa: int = amount.nanos // 10**places if places >= 0 else amount.nanos * 10**-places
    return mantissa


def _in_range(value: int) -> bool:
    return literals.INT_MIN <= value <= literals.INT_MAX


def as_int(quantity: Quantity) -> int | None:
    """Return the result of apimachinery's AsInt64: the integer, or None for an amount that it stores otherwise."""
    amount = quantity.amount
    if amount.wide or amount.scale < 0:
        return None
    value = amount.nanos // NANO
    return value if _in_range(value) else None


def _as_integer(quantity: Quantity) -> int:
    value = as_int(quantity)
    if value is None:
        raise errors.EvaluationError("cannot convert value to integer")
    return value


def add(left: Quantity, right: Quantity) -> Quantity:
    """Add as apimachinery does: two amounts of 64 bits stay so while they and their sum fit at their common scale."""
    return Quantity(_sum(left.amount, right.amount), computed=True)


def subtract(left: Quantity, right: Quantity) -> Quantity:
    """Subtract as apimachinery does, with which the least integer of 64 bits is its own negative."""
    return Quantity(_difference(left.amount, right.amount), computed=True)


def _add_in_place(left: Quantity, right: Quantity) -> Quantity:
    return Quantity(_kept(left.amount, _sum(left.amount, right.amount)), computed=True)


def _subtract_in_place(left: Quantity, right: Quantity) -> Quantity:
    return Quantity(_kept(left.amount, _difference(left.amount, right.amount)), computed=True)


def _kept(receiver: Amount, result: Amount) -> Amount:
    """Store a result in the receiver if that is wide, as 1.36 does (1.37 copies it first)."""
    if not receiver.wide:
        return result
    receiver.nanos, receiver.scale = result.nanos, result.scale
    return receiver


def _sum(left: Amount, right: Amount) -> Amount:
    found = None if left.wide or right.wide else _narrow_sum(left, right)
    return found or Amount(left.nanos + right.nanos, min(left.scale, right.scale), wide=True)


def _difference(left: Amount, right: Amount) -> Amount:
    found = None
    if not left.wide and not right.wide:
        is_least = _mantissa(right) == literals.INT_MIN
        found = _narrow_sum(left, right if is_least else Amount(-right.nanos, right.scale))
    return found or Amount(left.nanos - right.nanos, min(left.scale, right.scale), wide=True)


def _narrow_sum(left: Amount, right: Amount) -> Amount | None:
    """Return the sum of two amounts of 64 bits (amount.go, int64Amount.Add), None if it needs more."""
    if right.nanos == 0:
        return dataclasses.replace(left)
    if left.nanos == 0:
        return dataclasses.replace(right)
    found = Amount(left.nanos + right.nanos, min(left.scale, right.scale))
    parts = (Amount(one.nanos, found.scale) for one in (found, left, right))
    return found if all(_in_range(_mantissa(part)) for part in parts) else None


def _approximate(quantity: Quantity) -> float:
    amount = quantity.amount
    try:
        mantissa = float(_mantissa(amount))
    except OverflowError:
        mantissa = math.inf if amount.nanos > 0 else -math.inf
    return mantissa * _power_of_ten(amount.scale) if amount.scale else mantissa


def _power_of_ten(exponent: int) -> float:
    """Return Go's math.Pow10, which multiplies or divides two powers, so that its last bit may be another."""
    large, small = divmod(abs(exponent), 32)
    if exponent > _MOST_EXPONENT:
        return math.inf
    if exponent < -_MOST_NEGATIVE_EXPONENT:
        return 0.0
    if exponent >= 0:
        return float(f"1e{32 * large}") * float(f"1e{small}")
    return float(f"1e-{32 * large}") / float(f"1e{small}")


def _compare(left: Quantity, right: Quantity) -> int:
    """Compare, which makes the receiver wide if the argument is (quantity.go, Cmp)."""
    one, other = left.amount, right.amount
    if other.wide and not one.shared:
        one.wide = True
    return (one.nanos > other.nanos) - (one.nanos < other.nanos)


def _is_quantity(text: str) -> bool:
    try:
        parse(text)
    except errors.EvaluationError:
        return False
    return True


OVERLOADS: tuple[Overload, ...] = (
    function("quantity", "string -> Quantity", parse),
    function("isQuantity", "string -> bool", _is_quantity),
    function("sign", "Quantity -> int", lambda q: (q.amount.nanos > 0) - (q.amount.nanos < 0)),
    member("isInteger", "Quantity -> bool", lambda q: as_int(q) is not None),
    member("asInteger", "Quantity -> int", _as_integer),
    member("asApproximateFloat", "Quantity -> double", _approximate),
    member("add", "Quantity, Quantity -> Quantity", _add_in_place),
    member("add", "Quantity, int -> Quantity", lambda q, n: _add_in_place(q, from_int(n))),
    member("sub", "Quantity, Quantity -> Quantity", _subtract_in_place),
    member("sub", "Quantity, int -> Quantity", lambda q, n: _subtract_in_place(q, from_int(n))),
    member("isGreaterThan", "Quantity, Quantity -> bool", lambda q, p: _compare(q, p) > 0),
    member("isLessThan", "Quantity, Quantity -> bool", lambda q, p: _compare(q, p) < 0),
    member("compareTo", "Quantity, Quantity -> int", _compare),
)

RELEASE_37: tuple[Overload, ...] = (
    member("add", "Quantity, Quantity -> Quantity", add),
    member("add", "Quantity, int -> Quantity", lambda q, n: add(q, from_int(n))),
    member("sub", "Quantity, Quantity -> Quantity", subtract),
    member("sub", "Quantity, int -> Quantity", lambda q, n: subtract(q, from_int(n))),
)
"""Overloads that Kubernetes 1.37 changed."""

DEPEND_ON_FORM: frozenset[str] = frozenset({"add", "sub", "isInteger", "asInteger", "asApproximateFloat"})
"""Functions that depend on how an amount is stored, which others may have changed in place."""
