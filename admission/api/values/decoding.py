"""Reading of JSON with field paths: all decoders of `api` use it, so that they find all problems of an object.

A `Reader` has one mapping and its path. Each method reads one field and checks its type; for a wrong field it notes a
problem and returns a default. `Reader.finish` raises if any problem was noted.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from admission.errors import AmountError, MalformedObjectError, Problem

Json = Mapping[str, Any]

MAX_PROBLEMS = 100
"""The most problems that are recorded of one object; a longer message would not help."""

T = TypeVar("T")


class Reader:
    """One mapping of an object being decoded, its path, and the problems found so far in the whole object."""

    __slots__ = ("_above", "_key", "_name", "_problems", "_value")

    def __init__(self, value: Any, name: str = "", above: "Reader | None" = None, key: Any = None) -> None:
        """name, and key within a list or mapping: its place in the object above. The path is built when needed."""
        self._name, self._key, self._above = name, key, above
        self._problems: list[Problem] = [] if above is None else above._problems  # noqa: SLF001 - of the same object
        # The fast check first: msgspec decodes to dict.
        if value is not None and type(value) is not dict and not isinstance(value, Mapping):
            self.problem("", f"is {kind_of(value)}, an object is expected")
            value = None
        self._value: Json = value or {}

    @property
    def path(self) -> str:
        """Return its path in the whole object."""
        here = self._name if self._key is None else f"{self._name}[{self._key}]"
        return here if self._above is None else self._above._at(here)  # noqa: SLF001 - of the same object

    @property
    def value(self) -> Json:
        """Return the mapping as it was written; an empty one if it is absent, or none."""
        return self._value

    def __contains__(self, name: str) -> bool:
        return self._value.get(name) is not None

    def raw(self, name: str) -> Any:
        """Return the field's JSON unchecked; None when absent."""
        return self._value.get(name)

    def problem(self, name: str, message: str) -> None:
        """Note a problem of a field of this mapping."""
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(Problem(self._at(name) or ".", message))

    def child(self, name: str) -> "Reader":
        """Return a reader of a nested object; of an empty object when the field is absent."""
        return Reader(self._value.get(name), name, self)

    def children(self, name: str) -> Iterator["Reader"]:
        """Yield a reader for every object of a list; none when the field is absent."""
        for index, item in enumerate(self._list(name)):
            yield Reader(item, name, self, index)

    def element(self, name: str, value: Any) -> "Reader":
        """Return a reader of one value under the name "", for entries of lists that are no objects."""
        return Reader({"": value}, name, self)

    def entries(self, name: str) -> Iterator[tuple[str, "Reader"]]:
        """Yield key and reader for every object of a mapping."""
        for key, item in self._mapping(name).items():
            yield str(key), Reader(item, name, self, key)

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the keys of a mapping; none when the field is absent or no mapping."""
        return tuple(map(str, self._mapping(name)))

    def unknown(self, known: Collection[str]) -> tuple[str, ...]:
        """Return the names of fields that are not among the known ones."""
        return tuple(str(name) for name in self._value if name not in known)

    def object(self, name: str) -> Json:
        """Return an object unread, to be passed on as JSON; an empty one when absent."""
        return dict(self._mapping(name))

    def objects(self, name: str) -> tuple[Json, ...]:
        """Return the objects of a list unread, to be passed on as JSON."""
        items = self._list(name)
        if not all(isinstance(item, Mapping) for item in items):
            self.problem(name, "must hold objects only")
            return ()
        return tuple(dict(item) for item in items)

    def text(self, name: str, default: str = "") -> str:
        return self._typed(name, str, "a string", default)

    def required(self, name: str) -> str:
        """Return a string that must be present and not empty."""
        value = self.text(name)
        if not value and len(self._problems) < MAX_PROBLEMS:
            field = self._at(name)
            if not any(problem.field == field for problem in self._problems):
                self.problem(name, "is required")
        return value

    def optional(self, name: str) -> str | None:
        return self.text(name) if name in self else None

    def integer(self, name: str, default: int = 0) -> int:
        value = self._typed(name, int, "an integer", default)
        if isinstance(value, bool):
            self.problem(name, "is a boolean, an integer is expected")
            return default
        return value

    def int32(self, name: str) -> int:
        """Return an integer of 32 bits, as the fields of our objects are; 0 when absent."""
        value = self.integer(name)
        if not -(2**31) <= value < 2**31:
            self.problem(name, f"{value} is not an integer from -2147483648 to 2147483647")
            return 0
        return value

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self._typed(name, bool, "true or false", default)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of strings; empty when absent."""
        items = self._list(name)
        if not all(isinstance(item, str) for item in items):
            self.problem(name, "must hold strings only")
            return ()
        return tuple(items)

    def pairs(self, name: str) -> dict[str, str]:
        """Return a mapping of strings to strings, as labels and annotations are; empty when absent."""
        items = self._mapping(name)
        if not all(isinstance(text, str) for pair in items.items() for text in pair):
            self.problem(name, "must map strings to strings")
            return {}
        return dict(items)

    def parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """Return a text or number through a parser that raises AmountError or ValueError."""
        value = self._value.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.problem(name, f"is {kind_of(value)}, a string is expected")
            return default
        try:
            return parse(str(value))
        except (AmountError, ValueError) as error:
            self.problem(name, str(error))
            return default

    def all_parsed(self, name: str, parse: Callable[[str], T]) -> tuple[T, ...]:
        """Return a list of texts or numbers, each through a parser as in `parsed`; those that fail are problems."""
        found: list[T] = []
        for index, item in enumerate(self._list(name)):
            value = self.element(f"{name}[{index}]", item).parsed("", parse, None)
            if value is not None:
                found.append(value)
        return tuple(found)

    def time(self, name: str) -> datetime | None:
        """Return an RFC 3339 time; None when absent."""
        return self.parsed(name, datetime.fromisoformat, None)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every problem noted so far anywhere in the object, each once."""
        return tuple(dict.fromkeys(self._problems))

    def finish(self, kind: str, name: str) -> None:
        """Raise MalformedObjectError if any problem was noted anywhere in the object."""
        if self._problems:
            raise MalformedObjectError(kind, name, tuple(self._problems))

    def _at(self, name: str) -> str:
        path = self.path
        return f"{path}.{name}" if path and name else path or name

    def _typed(self, name: str, kind: type[T], wanted: str, default: T) -> T:
        value = self._value.get(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            self.problem(name, f"is {kind_of(value)}, {wanted} is expected")
            return default
        return value

    def _list(self, name: str) -> list[Any]:
        return self._typed(name, list, "a list", [])

    def _mapping(self, name: str) -> Json:
        value = self._value.get(name)
        if value is None:
            return {}
        if type(value) is not dict and not isinstance(value, Mapping):
            self.problem(name, f"is {kind_of(value)}, an object is expected")
            return {}
        return value


def kind_of(value: Any) -> str:
    """Return the type of a JSON value for messages: `a string`, `null`."""
    names: dict[type, str] = {
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        list: "a list",
        dict: "an object",
        type(None): "null",
    }
    return names.get(type(value), f"of type {type(value).__name__}")
