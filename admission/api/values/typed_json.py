"""Parsed JSON as types of msgspec, in any thread.

msgspec 0.22.0 finds out what fields a type has when the type is first used, and a thread that uses it meanwhile ends
the process by a null pointer. So functions that convert or decode are made here, at import, and find out at once.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def converter(kind: type[T]) -> Callable[[Any], T]:
    """Return a function from parsed JSON to a type; it raises msgspec.ValidationError."""
    decoder(kind)
    return partial(msgspec.convert, type=kind)


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """Return a function from the text of JSON to a type; it raises msgspec.DecodeError."""
    return msgspec.json.Decoder(kind).decode
