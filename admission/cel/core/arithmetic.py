"""Arithmetic operators (`+ - * / %`, negation): checked 64-bit integers, IEEE doubles, concatenation, time."""

import math
from typing import Any

from admission.cel.core import budget, errors, literals, values
from admission.cel.core.declarations import Overload, function


def checked_int(value: int) -> int:
    """Return the value. Raises EvaluationError if it is no int64."""
    if literals.INT_MIN <= value <= literals.INT_MAX:
        return value
    raise errors.EvaluationError("integer overflow")


def checked_uint(value: int) -> values.Uint:
    """Return the value as uint. Raises EvaluationError if it is no uint64."""
    if 0 <= value <= literals.UINT_MAX:
        return values.Uint(value)
    raise errors.EvaluationError("unsigned integer overflow")


def checked_duration(nanoseconds: int) -> values.Duration:
    if literals.INT_MIN <= nanoseconds <= literals.INT_MAX:
        return values.Duration(nanoseconds)
    raise errors.EvaluationError("integer overflow")


FIRST_INSTANT = -62_135_596_800 * 10**9
LAST_INSTANT = 253_402_300_800 * 10**9 - 1


def checked_timestamp(nanoseconds: int, offset: int = 0) -> values.Timestamp:
    """Return the instant. Raises EvaluationError outside of the years 1 to 9999."""
    if FIRST_INSTANT <= nanoseconds <= LAST_INSTANT:
        return values.Timestamp(nanoseconds, offset)
    raise errors.EvaluationError("timestamp overflow")


def _quotient(left: int, right: int) -> int:
    if right == 0:
        raise errors.EvaluationError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: int, right: int) -> int:
    if right == 0:
        raise errors.EvaluationError("modulus by zero")
    if right == -1 and left == literals.INT_MIN:
        raise errors.EvaluationError("integer overflow")
    return left - right * _quotient(left, right)


def _divide(left: float, right: float) -> float:
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _multiply(left: float, right: float) -> float:
    return left * right


def _moved(instant: values.Timestamp, nanoseconds: int) -> values.Timestamp:
    return checked_timestamp(instant.nanoseconds + nanoseconds, instant.offset)


def _concatenate(left: Any, right: Any) -> Any:
    budget.check_size(len(left) + len(right), budget.MAX_SIZE if type(left) is tuple else budget.MAX_TEXT)
    return left + right


OVERLOADS: tuple[Overload, ...] = (
    function("_+_", "int, int -> int", lambda a, b: checked_int(a + b)),
    function("_+_", "uint, uint -> uint", lambda a, b: checked_uint(int(a) + int(b))),
    function("_+_", "double, double -> double", lambda a, b: a + b),
    function("_+_", "string, string -> string", _concatenate),
    function("_+_", "bytes, bytes -> bytes", _concatenate),
    function("_+_", "list(A), list(A) -> list(A)", _concatenate),
    function("_+_", "duration, duration -> duration", lambda a, b: checked_duration(a.nanoseconds + b.nanoseconds)),
    function("_+_", "duration, timestamp -> timestamp", lambda a, b: _moved(b, a.nanoseconds)),
    function("_+_", "timestamp, duration -> timestamp", lambda a, b: _moved(a, b.nanoseconds)),
    function("_-_", "int, int -> int", lambda a, b: checked_int(a - b)),
    function("_-_", "uint, uint -> uint", lambda a, b: checked_uint(int(a) - int(b))),
    function("_-_", "double, double -> double", lambda a, b: a - b),
    function("_-_", "duration, duration -> duration", lambda a, b: checked_duration(a.nanoseconds - b.nanoseconds)),
    function("_-_", "timestamp, timestamp -> duration", lambda a, b: checked_duration(a.nanoseconds - b.nanoseconds)),
    function("_-_", "timestamp, duration -> timestamp", lambda a, b: _moved(a, -b.nanoseconds)),
    function("_*_", "int, int -> int", lambda a, b: checked_int(a * b)),
    function("_*_", "uint, uint -> uint", lambda a, b: checked_uint(int(a) * int(b))),
    function("_*_", "double, double -> double", _multiply),
    function("_/_", "int, int -> int", lambda a, b: checked_int(_quotient(a, b))),
    function("_/_", "uint, uint -> uint", lambda a, b: checked_uint(_quotient(int(a), int(b)))),
    function("_/_", "double, double -> double", _divide),
    function("_%_", "int, int -> int", _remainder),
    function("_%_", "uint, uint -> uint", lambda a, b: values.Uint(_remainder(int(a), int(b)))),
    function("-_", "int -> int", lambda a: checked_int(-a)),
    function("-_", "double -> double", lambda a: -a),
)

_ADDITIONS = {
    tuple(next(iter(classes)) for classes in overload.classes if classes): overload.run
    for overload in OVERLOADS
    if overload.name == "_+_"
}


def add(left: Any, right: Any) -> Any:
    """Return left + right, by their run-time types."""
    run = _ADDITIONS.get((type(left), type(right)))
    if run is None:
        raise errors.no_such_overload("_+_")
    return run(left, right)
