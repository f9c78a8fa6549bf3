"""Strings: the standard library's and cel-go's ext/strings.go, version 2. Indices and sizes count code points."""

from collections.abc import Callable, Sequence
from typing import Any

from admission.cel.core import budget, errors, values
from admission.cel.core.declarations import Overload, function, member

_WHITE_SPACE = (
    "\t\n\v\f\r \u0085\u00a0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space, which Go trims. Python's strip also removes U+001C to U+001F."""

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v"}
_QUOTES = str.maketrans({**_QUOTED, "\\": "\\\\", '"': '\\"'})


def _out_of_range(index: int) -> errors.EvaluationError:
    return errors.EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part) if part else len(text)


def _last_index_before(text: str, part: str, offset: int) -> int:
    if not part:
        return offset
    if offset < 0:
        raise _out_of_range(offset)
    return text.rfind(part, 0, offset + len(part)) if offset < len(text) else -1


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old)
    times = found if count < 0 else min(count, found)
    budget.check_size(len(text) + times * max(0, len(new) - len(old)))
    return text.replace(old, new, times)


def _split(text: str, separator: str, limit: int = -1) -> tuple[str, ...]:
    if limit == 0:
        return ()
    if separator:
        return tuple(text.split(separator, limit - 1 if limit > 0 else -1))
    if limit < 0 or limit > len(text):
        return tuple(text)
    return (*text[: limit - 1], text[limit - 1 :])


def _substring(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    return text[start:]


def _substring_between(text: str, start: int, end: int) -> str:
    if start > end:
        raise errors.EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: tuple[Any, ...], separator: str = "") -> str:
    if parts and type(parts[0]) is not str:
        # Before a function is called, cel-go compares the type of a list's first element with its signature.
        raise errors.no_such_overload("join")
    for part in parts:
        if type(part) is not str:
            raise errors.EvaluationError(f"join: invalid input: a value of type {values.type_name(part)}")
    budget.check_size(sum(map(len, parts)) + len(separator) * len(parts), budget.MAX_TEXT)
    return separator.join(parts)


def lower_ascii(text: str) -> str:
    """Convert only A to Z to lower case."""
    return text.translate(_LOWER)


def upper_ascii(text: str) -> str:
    """Convert only a to z to upper case."""
    return text.translate(_UPPER)


def quote(text: str) -> str:
    """Return a string as a literal."""
    return f'"{text.translate(_QUOTES)}"'


Sized = str | bytes | Sequence[Any] | dict[Any, Any]
_SIZED = ("string", "bytes", "list(A)", "map(A, B)")

_size: Callable[[Sized], int] = len

OVERLOADS: tuple[Overload, ...] = (
    *(function("size", f"{parameter} -> int", _size) for parameter in _SIZED),
    *(member("size", f"{parameter} -> int", _size) for parameter in _SIZED),
    member("contains", "string, string -> bool", lambda text, part: part in text),
    member("startsWith", "string, string -> bool", str.startswith),
    member("endsWith", "string, string -> bool", str.endswith),
    member("charAt", "string, int -> string", _char_at),
    member("indexOf", "string, string -> int", _index_of),
    member("indexOf", "string, string, int -> int", _index_of),
    member("lastIndexOf", "string, string -> int", _last_index_of),
    member("lastIndexOf", "string, string, int -> int", _last_index_before),
    member("lowerAscii", "string -> string", lower_ascii),
    member("upperAscii", "string -> string", upper_ascii),
    member("replace", "string, string, string -> string", _replace),
    member("replace", "string, string, string, int -> string", _replace),
    member("split", "string, string -> list(string)", _split),
    member("split", "string, string, int -> list(string)", _split),
    member("substring", "string, int -> string", _substring),
    member("substring", "string, int, int -> string", _substring_between),
    member("trim", "string -> string", lambda text: text.strip(_WHITE_SPACE)),
    member("join", "list(string) -> string", _join),
    member("join", "list(string), string -> string", _join),
    function("strings.quote", "string -> string", quote),
)
