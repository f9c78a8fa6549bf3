"""An object while defaults are added to it: every change is an operation of a JSON patch, visible to the next.

Each object and list on the path of a change is copied once, so that many changes take no longer than what they add.
"""

from collections.abc import Sequence
from typing import Any

from admission.api.kubernetes import meta
from admission.api.values import decoding, json_patch
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Operation, Patch
from admission.api.values.work_budget import Work, WorkBudget
from admission.errors import MalformedObjectError, Problem

END = "-"
"""The place after the last element of a list (RFC 6902)."""

JsonPath = tuple[str | int, ...]
"""The keys and indices from the object to one of its values."""


class Draft:
    """One object with its changes. The object as it was sent, and values that were put into it, are not modified.

    work: is charged for every change. Changes raise MalformedObjectError if a value on their path is neither object nor
    list, and TooMuchWorkError.
    """

    def __init__(self, obj: Json, work: WorkBudget | None = None) -> None:
        self.obj: Any = obj
        self.work = work if work is not None else WorkBudget()
        self._operations: list[Operation] = []
        self._own: dict[int, Any] = {}
        """The objects and lists that are copies already, by `id`; kept here, so that no id is used again."""

    @property
    def patch(self) -> Patch:
        return tuple(self._operations)

    @property
    def length(self) -> int:
        """Return the number of the patch's operations."""
        return len(self._operations)

    def get(self, *path: str | int) -> Any:
        """Return the value at a path; None if there is none. A later change may change it."""
        return value_at(self.obj, *path)

    def objects(self, *path: str | int) -> list[dict[str, Any]]:
        """Return those elements of the list at a path that are objects; none if there is no list."""
        found = self.get(*path)
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def put(self, path: JsonPath, value: Any) -> None:
        """Put a value at a path, creating the missing objects and lists on it."""
        self.work.charge(Work.CHANGE)
        depth = self._first_missing(path)
        for part in reversed(path[depth + 1 :]):
            value = [value] if part == END else {part: value}
        self._operations.append(json_patch.add(json_patch.pointer(*path[: depth + 1]), value))
        if not path:
            self.obj = value
            return
        parent, last = self._copied(path[:depth]), path[depth]
        if isinstance(parent, dict):
            parent[last] = value
        elif last == END:
            parent.append(value)
        elif isinstance(last, int):
            parent[last] = value
        else:
            raise self._malformed(path[:depth], parent)

    def extend(self, path: JsonPath, values: Sequence[Any]) -> None:
        """Append values to the list at a path in one operation, creating it if it is missing; nothing for no values."""
        if values:
            present = self.get(*path)
            self.put(path, [*(present if isinstance(present, list) else ()), *values])

    def drop(self, path: JsonPath) -> None:
        """Remove the value at a path."""
        self.work.charge(Work.CHANGE)
        self._operations.append(json_patch.remove(json_patch.pointer(*path)))
        del self._copied(path[:-1])[path[-1]]

    def _first_missing(self, path: JsonPath) -> int:
        """Return the index in the path of the first part that has to be created."""
        value = self.obj
        for depth, part in enumerate(path[:-1]):
            value = value_at(value, part)
            if value is None:
                return depth
        return len(path) - 1

    def _copied(self, path: JsonPath) -> Any:
        """Return the object or list at a path that exists, after copying those on the path that are no copies yet."""
        self.obj = value = self._copy(self.obj, ())
        for depth, part in enumerate(path, 1):
            inner = self._copy(value[part], path[:depth])
            value[part] = inner
            value = inner
        return value

    def _copy(self, value: Any, path: JsonPath) -> Any:
        if id(value) in self._own:
            return value
        if not isinstance(value, dict | list):
            raise self._malformed(path, value)
        copied = value.copy()
        self._own[id(copied)] = copied
        return copied

    def _malformed(self, path: JsonPath, value: Any) -> MalformedObjectError:
        kind = str(value_at(self.obj, "kind") or "object")
        message = f"is {decoding.kind_of(value)}, an object is expected"
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")
        return MalformedObjectError(kind, meta.name_in(self.obj), (Problem(field or ".", message),))


def value_at(obj: Any, *path: str | int) -> Any:
    """Return the value at a path through an object; None if there is none."""
    for part in path:
        # Parsed JSON has only dicts and lists; isinstance is faster for these than for Mapping and Sequence.
        if isinstance(obj, dict):
            obj = obj.get(part)
        elif isinstance(obj, list) and isinstance(part, int) and part < len(obj):
            obj = obj[part]
        else:
            return None
    return obj
