"""JSON as an API server writes it: UTF-8, each key of an object once, no numbers that JSON has not, nothing else.

Parsers differ in what they make of anything else: which of two equal keys counts, what `NaN` or half a surrogate pair
is. An object that two readers see differently could pass the one that judges and mean something else to the other.
"""

import gc
import json
from typing import Any

import msgspec

from admission.errors import JsonError

MAX_VALUES = 250_000
"""Values and keys of one text. An object of 1.5 MiB, the most that etcd stores, has a third of them; each takes memory
and time, and a text of 3 MiB may have 1.5 million."""

UNCOUNTED_BYTES = 64 * 1024
"""Shorter texts cannot have too many values, so theirs are not counted."""

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_ESCAPED_QUOTE = rb"\u0022"


def decode(text: bytes) -> Any:
    """Return the value of a JSON text. Raises JsonError."""
    _check_size(text)
    try:
        value, encoded = _read_long(text) if len(text) > UNCOUNTED_BYTES else _read(text)
    except RecursionError:
        raise JsonError("it is nested too deeply") from None
    except ValueError as error:
        raise JsonError(_short(error)) from None
    # Most texts come as they are written here. Otherwise the quotes are counted: each key and string has two and those
    # escaped within it, and a key that the parser dropped had quotes that are missing now.
    if encoded != text and (text.count(b'"') != encoded.count(b'"') or _ESCAPED_QUOTE in text):
        _check_slowly(text)
    return value


def _read(text: bytes) -> tuple[Any, bytes]:
    """Return the value of a text, and the value as it is written here."""
    value = _decode(text)
    return value, _encode(value)


def _read_long(text: bytes) -> tuple[Any, bytes]:
    """Read a long text, with the garbage collector waiting: there is no garbage, and it would look often."""
    is_collecting = gc.isenabled()
    gc.disable()
    try:
        return _read(text)
    finally:
        if is_collecting:
            gc.enable()


def _check_size(text: bytes) -> None:
    """Raise JsonError for a text that is no UTF-8, or may have too many values."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise JsonError(f"it is not UTF-8: byte {error.start} is {error.reason}") from None
    if len(text) <= UNCOUNTED_BYTES:
        return
    values = text.count(b",") + text.count(b"{") + text.count(b"[")
    if values > MAX_VALUES:
        raise JsonError(f"it has about {values:,} values, and at most {MAX_VALUES:,} are read; write a smaller object")


def _check_slowly(text: bytes) -> None:
    """Raise JsonError for a key that an object has twice."""
    try:
        json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise JsonError("it is nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) == len(pairs):
        return
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            raise JsonError(f"an object has the key {key[:64]!r} twice")
        seen.add(key)


def _short(error: Exception) -> str:
    """Return the message, cut off because it may quote the text at length."""
    return str(error)[:200]
