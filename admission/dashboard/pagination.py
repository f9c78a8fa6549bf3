"""Pages of lists, and values from query strings, which may contain anything."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

SIZE = 50
LONGEST = 253
"""The most characters of a word in a query: the limit of Kubernetes' names, and enough for all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page. number: from 1; total: of the whole list."""

    items: Sequence[T]
    number: int
    size: int
    total: int

    @property
    def last(self) -> int:
        return max(1, -(-self.total // self.size))

    @property
    def first_item(self) -> int:
        return (self.number - 1) * self.size + 1 if self.total else 0

    @property
    def last_item(self) -> int:
        return min(self.number * self.size, self.total)


def page(items: Sequence[T], query: Mapping[str, str], *, size: int = SIZE) -> Page[T]:
    """Return the page of a list that a query asks for; the nearest existing one if there is none of that number."""
    last = max(1, -(-len(items) // size))
    number = min(max(1, integer(query, "page") or 1), last)
    return Page(items=items[(number - 1) * size : number * size], number=number, size=size, total=len(items))


def ordered(items: Sequence[T], query: Mapping[str, str], columns: Mapping[str, Callable[[T], Any]]) -> Sequence[T]:
    """Return a list in the order that a query asks for: `sort=COLUMN`, or `sort=-COLUMN` for the reverse.

    columns: the key of each column by which it may be sorted. Without one of these, the list is returned as it is.
    """
    name = query.get("sort", "")
    key = columns.get(name.removeprefix("-"))
    return sorted(items, key=key, reverse=name.startswith("-")) if key is not None else items


def word(query: Mapping[str, str], name: str) -> str:
    """Return a value of a query, without surrounding spaces."""
    return query.get(name, "")[:LONGEST].strip()


def integer(query: Mapping[str, str], name: str) -> int | None:
    """Return a value of a query as a number ≥ 0; None if it is none."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def changed(query: Mapping[str, str], **changes: str | int | None) -> str:
    """Return a query string with some values changed, and without the page number unless it is among them."""
    values = {key: value for key, value in query.items() if key not in ("page", "format", "size", "table")}
    values |= {key: str(value) for key, value in changes.items() if value is not None}
    for key, value in changes.items():
        if value is None or value == "":
            values.pop(key, None)
    return f"?{urlencode(values)}" if values else "?"
