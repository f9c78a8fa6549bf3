"""The `format` function: cel-go's ext/formatting.go, whose fixed and scientific clauses use the locale en-US."""

import math
import re
from collections.abc import Iterator
from typing import Any

from admission.cel.core import budget, errors, values
from admission.cel.core.declarations import Overload, member
from admission.cel.library import conversions

Clause = tuple[str, str, int | None]
"""The text before the clause, its letter (empty at the end of the string), its precision."""

MAX_PRECISION = 1_000

_CLAUSE = re.compile(r"(?:\.([0-9]*))?([\s\S])")
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_STRINGS = (int, float, bool, str, bytes, values.Duration, values.Timestamp, values.TypeValue)


def clauses(pattern: str) -> Iterator[Clause]:
    """Yield the pattern's clauses, then the rest. Raises EvaluationError at an invalid clause."""
    before: list[str] = []
    position = 0
    while True:
        found = pattern.find("%", position)
        if found < 0:
            yield "".join([*before, pattern[position:]]), "", None
            return
        before.append(pattern[position:found])
        if pattern[found + 1 : found + 2] == "%":
            before.append("%")
            position = found + 2
            continue
        match = _CLAUSE.match(pattern, found + 1)
        if match is None:
            raise errors.EvaluationError("unexpected end of string")
        if match[2] not in "sdfebxXo" or match[1] == "":
            raise errors.EvaluationError(
                f'could not parse formatting clause: unrecognized formatting clause "{match[2]}"'
            )
        yield "".join(before), match[2], None if match[1] is None else _precision(match[1])
        before = []
        position = match.end()


def _precision(digits: str) -> int:
    if len(digits) > 6 or int(digits) > MAX_PRECISION:
        raise errors.AbortError(f"Muster formats with a precision of at most {MAX_PRECISION}")
    return int(digits)


def _format(pattern: str, arguments: tuple[Any, ...]) -> str:
    result: list[str] = []
    size = used = 0
    for before, letter, precision in clauses(pattern):
        result.append(before)
        if letter:
            if used >= len(arguments):
                raise errors.EvaluationError(f"index {used} out of range")
            result.append(_format_clause(letter, precision, arguments[used]))
            used += 1
        size += len(before) + len(result[-1])
        budget.check_size(size)
    return "".join(result)


def _format_clause(letter: str, precision: int | None, value: Any) -> str:  # noqa: PLR0911 - one line a clause
    match letter:
        case "s":
            return _string(value)
        case "d":
            return _decimal(value)
        case "f":
            return _fixed(_number(value, "fixed-point"), 6 if precision is None else precision)
        case "e":
            return _scientific(_number(value, "scientific"), 6 if precision is None else precision)
        case "b" if type(value) is bool:
            return "1" if value else "0"
        case "x" | "X" if type(value) in (str, bytes):
            octets = value.encode() if isinstance(value, str) else value
            return octets.hex() if letter == "x" else octets.hex().upper()
        case _:
            return format(_integer(value), letter)


def _wrong_type(clause: str, value: Any) -> errors.EvaluationError:
    return errors.EvaluationError(f"error during formatting: {clause} clause given {values.type_name(value)}")


def _integer(value: Any) -> int:
    if type(value) not in (int, values.Uint):
        raise _wrong_type("integer", value)
    return int(value)


def _decimal(value: Any) -> str:
    return str(_integer(value))


def _number(value: Any, clause: str) -> float:
    if value in ("NaN", "Infinity", "-Infinity") and type(value) is str:
        return float(value)
    if type(value) is not float:
        raise _wrong_type(clause, value)
    return value


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _fixed(value: float, precision: int) -> str:
    return _special(value) or f"{value or 0.0:,.{precision}f}"


def _scientific(value: float, width: int) -> str:
    """Format with six digits: cel-go passes the precision as a width."""
    special = _special(value)
    if special is not None:
        return special.rjust(width)
    mantissa, _, exponent = f"{value or 0.0:.6e}".partition("e")
    return f"{mantissa}\N{MULTIPLICATION SIGN}10{exponent.lstrip('+').translate(_SUPERSCRIPTS)}".rjust(width)


def _string(value: Any) -> str:
    if value is None:
        return "null"
    if type(value) is tuple:
        return f"[{', '.join(map(_literal, value))}]"
    if type(value) in values.MAPS:
        return _map(value)
    if isinstance(value, _STRINGS):
        return conversions.to_string(value)
    raise _wrong_type("string", value)


def _map(mapping: dict[Any, Any]) -> str:
    entries = []
    for key, value in mapping.items():
        plain = values.from_key(key)
        if type(plain) not in (str, bool, int, values.Uint):
            raise _wrong_type("map key", plain)
        entries.append((_literal(plain), _literal(value)))
    return (
        "{" + ", ".join(f"{key}:{value}" for key, value in sorted(entries, key=lambda entry: entry[0].encode())) + "}"
    )


def _literal(value: Any) -> str:
    """Format an element of a list or map."""
    match value:
        case str():
            return quoted(value)
        case bytes():
            return f"b{quoted(conversions.to_string(value))}"
        case values.Duration():
            return f"duration({quoted(conversions.to_string(value))})"
        case values.Timestamp():
            return f"timestamp({quoted(conversions.to_string(value))})"
        case float():
            text = conversions.double_text(value)
            return quoted(text) if not math.isfinite(value) else f"{value:.6f}"
        case _:
            return _string(value)


def quoted(text: str) -> str:
    """Quote a string as Go's %q does."""
    return '"' + "".join(map(_escaped, text)) + '"'


_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


OVERLOADS: tuple[Overload, ...] = (member("format", "string, list(dyn) -> string", _format),)
