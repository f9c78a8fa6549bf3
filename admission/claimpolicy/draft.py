"""An object while defaults are added to it: every change is an operation of a JSON patch, visible to the next."""

from typing import Any

from admission.api.values import json_patch
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Operation, Patch

END = "-"
"""The place after the last element of a list (RFC 6902)."""

JsonPath = tuple[str | int, ...]
"""The keys and indices from the object to one of its values."""


class Draft:
    """One object with its changes. The object as it was sent is not modified."""

    def __init__(self, obj: Json) -> None:
        self.obj: Any = obj
        self._operations: list[Operation] = []

    @property
    def patch(self) -> Patch:
        return tuple(self._operations)

    def get(self, *path: str | int) -> Any:
        """Return the value at a path; None if there is none."""
        return value_at(self.obj, *path)

    def put(self, path: JsonPath, value: Any) -> None:
        """Put a value at a path, creating the missing objects and lists on it."""
        depth = self._first_missing(path)
        for part in reversed(path[depth + 1 :]):
            value = [value] if part == END else {part: value}
        self._operations.append(json_patch.add(json_patch.pointer(*path[: depth + 1]), value))
        self.obj = _with_value(self.obj, path[: depth + 1], value)

    def drop(self, path: JsonPath) -> None:
        """Remove the value at a path."""
        self._operations.append(json_patch.remove(json_patch.pointer(*path)))
        *parents, last = path
        parent = {key: value for key, value in self.get(*parents).items() if key != last}
        self.obj = _with_value(self.obj, tuple(parents), parent)

    def _first_missing(self, path: JsonPath) -> int:
        """Return the index in the path of the first part that has to be created."""
        value = self.obj
        for depth, part in enumerate(path[:-1]):
            value = value_at(value, part)
            if value is None:
                return depth
        return len(path) - 1


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


def _with_value(obj: Any, path: JsonPath, value: Any) -> Any:
    """Return the object with a value at a path; objects on the path are copied, all others shared."""
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(obj, dict):
        return {**obj, first: _with_value(obj.get(first), rest, value)}
    changed = list(obj)
    if first == END:
        return [*changed, value]
    changed[int(first)] = _with_value(changed[int(first)], rest, value)
    return changed
