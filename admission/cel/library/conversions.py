"""Conversions between types, and `type` (cel-go common/types/*.go, ConvertToType), with Go's syntax of numbers."""

import math
import re
from typing import Any

from admission.cel.core import errors, literals, values
from admission.cel.core.arithmetic import checked_int, checked_uint
from admission.cel.core.declarations import Overload, function
from admission.cel.library import times

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})
_INT = re.compile(r"[+-]?[0-9]+")
_UINT = re.compile(r"[0-9]+")
_DOUBLE = re.compile(r"[+-]?(?:[0-9](?:_?[0-9])*)?(?:\.(?:[0-9](?:_?[0-9])*)?)?(?:[eE][+-]?[0-9](?:_?[0-9])*)?")
_HEX_DOUBLE = re.compile(r"[+-]?0[xX]_?[0-9a-fA-F_]*\.?[0-9a-fA-F_]*[pP][+-]?[0-9]+")
_INFINITY = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE)
_MAX_DIGITS = 64
"""Longer numbers are out of range. Bounds the work of Python's conversion."""


def _failed(source: str, target: str) -> errors.EvaluationError:
    return errors.EvaluationError(f"type conversion error from '{source}' to '{target}'")


def _to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _failed("string", "bool")


def _to_int(text: str) -> int:
    if not _INT.fullmatch(text):
        raise _failed("string", "int")
    digits = text.lstrip("+-").lstrip("0")
    value = int(digits or "0") if len(digits) <= _MAX_DIGITS else literals.UINT_MAX
    value = -value if text[0] == "-" else value
    if not literals.INT_MIN <= value <= literals.INT_MAX:
        raise _failed("string", "int")
    return value


def _to_uint(text: str) -> values.Uint:
    digits = text.lstrip("0")
    if not _UINT.fullmatch(text) or len(digits) > _MAX_DIGITS or int(digits or "0") > literals.UINT_MAX:
        raise _failed("string", "uint")
    return values.Uint(int(digits or "0"))


def _to_double(text: str) -> float:
    if _INFINITY.fullmatch(text):
        return float(text)
    try:
        if _HEX_DOUBLE.fullmatch(text):
            return float.fromhex(text.replace("_", ""))
        value = float(text) if _DOUBLE.fullmatch(text) else math.inf
    except (ValueError, OverflowError):
        raise _failed("string", "double") from None
    if math.isinf(value):
        raise _failed("string", "double")
    return value


def _double_to_int(value: float) -> int:
    if math.isnan(value) or not -(2.0**63) < value < 2.0**63:
        raise errors.EvaluationError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> values.Uint:
    if math.isnan(value) or not 0 <= value < 2.0**64:
        raise errors.EvaluationError("unsigned integer overflow")
    return values.Uint(int(value))


def _decode(octets: bytes) -> str:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise errors.EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None


def double_text(value: float) -> str:
    """Format a double as Go's %g: shortest digits, with an exponent from 1e6 on and below 1e-4."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    mantissa, _, exponent = f"{value!r}".partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    whole, _, part = mantissa.partition(".")
    digits = (whole + part).lstrip("0")
    if not digits:
        return f"{sign}0"
    point = int(exponent or 0) + len(whole) - (len(whole + part) - len(digits))
    digits = digits.rstrip("0")
    power = point - 1
    if power < -4 or power >= 6:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[point:]}" if len(digits) > point else ""
    return f"{sign}{digits[:point].ljust(point, '0')}{tail}"


def to_string(value: Any) -> str:  # noqa: PLR0911 - one line a type
    """Return the result of `string(value)`."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(int(value))
        case float():
            return double_text(value)
        case bytes():
            return _decode(value)
        case values.Duration():
            return times.duration_text(value)
        case values.Timestamp():
            return times.timestamp_text(value)
        case values.TypeValue():
            return value.name
        case _:
            raise errors.no_such_overload("string")


def _identity(value: Any) -> Any:
    return value


def _no_int_duration(_: int) -> values.Duration:
    raise _failed("int", "google.protobuf.Duration")


_STRINGS = ("string", "bool", "bytes", "double", "duration", "int", "timestamp", "uint")

OVERLOADS: tuple[Overload, ...] = (
    function("bool", "bool -> bool", _identity),
    function("bool", "string -> bool", _to_bool),
    function("bytes", "bytes -> bytes", _identity),
    function("bytes", "string -> bytes", lambda text: text.encode()),
    function("double", "double -> double", _identity),
    function("double", "int -> double", float),
    function("double", "string -> double", _to_double),
    function("double", "uint -> double", float),
    function("duration", "duration -> duration", _identity),
    function("duration", "int -> duration", _no_int_duration),
    function("duration", "string -> duration", times.parse_duration),
    function("dyn", "A -> dyn", _identity),
    function("int", "int -> int", _identity),
    function("int", "double -> int", _double_to_int),
    function("int", "duration -> int", lambda duration: duration.nanoseconds),
    function("int", "string -> int", _to_int),
    function("int", "timestamp -> int", lambda instant: instant.nanoseconds // 10**9),
    function("int", "uint -> int", lambda value: checked_int(int(value))),
    *(function("string", f"{name} -> string", to_string) for name in _STRINGS),
    function("timestamp", "timestamp -> timestamp", _identity),
    function("timestamp", "int -> timestamp", times.from_seconds),
    function("timestamp", "string -> timestamp", times.parse_timestamp),
    function("type", "A -> type(A)", lambda value: values.TypeValue(values.type_name(value))),
    function("uint", "uint -> uint", _identity),
    function("uint", "double -> uint", _double_to_uint),
    function("uint", "int -> uint", checked_uint),
    function("uint", "string -> uint", _to_uint),
)
