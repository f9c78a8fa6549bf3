"""An object while defaults are added to it: every change is an operation of a JSON patch, visible to the next."""

from typing import Any

from admission.api.values import json_patch
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Operation, Patch

END = "-"
"""The place after the last element of a list (RFC 6902)."""

Way = tuple[str | int, ...]
"""The keys and indices from the object to one of its values."""


class Draft:
    """One object with its changes. The object as it was sent is not modified."""

    def __init__(self, obj: Json) -> None:
        self.obj: Any = obj
        self._steps: list[Operation] = []

    @property
    def patch(self) -> Patch:
        return tuple(self._steps)

    def get(self, *way: str | int) -> Any:
        """Return the value at a path; None if there is none."""
        return found(self.obj, *way)

    def put(self, way: Way, value: Any) -> None:
        """Put a value at a path, creating the missing objects and lists on it."""
        there = self._depth(way)
        for part in reversed(way[there + 1 :]):
            value = [value] if part == END else {part: value}
        self._steps.append(json_patch.add(json_patch.pointer(*way[: there + 1]), value))
        self.obj = _with(self.obj, way[: there + 1], value)

    def drop(self, way: Way) -> None:
        """Remove the value at a path."""
        self._steps.append(json_patch.remove(json_patch.pointer(*way)))
        *before, last = way
        holder = {key: value for key, value in self.get(*before).items() if key != last}
        self.obj = _with(self.obj, tuple(before), holder)

    def _depth(self, way: Way) -> int:
        """Return the index in the path of the first part that has to be created."""
        value = self.obj
        for depth, part in enumerate(way[:-1]):
            value = found(value, part)
            if value is None:
                return depth
        return len(way) - 1


def found(obj: Any, *way: str | int) -> Any:
    """Return the value at a path through an object; None if there is none."""
    for part in way:
        # Parsed JSON has only dicts and lists; isinstance is faster for these than for Mapping and Sequence.
        if isinstance(obj, dict):
            obj = obj.get(part)
        elif isinstance(obj, list) and isinstance(part, int) and part < len(obj):
            obj = obj[part]
        else:
            return None
    return obj


def _with(obj: Any, way: Way, value: Any) -> Any:
    """Return the object with a value at a path; objects on the path are copied, all others shared."""
    if not way:
        return value
    first, rest = way[0], way[1:]
    if isinstance(obj, dict):
        return {**obj, first: _with(obj.get(first), rest, value)}
    changed = list(obj)
    if first == END:
        return [*changed, value]
    changed[int(first)] = _with(changed[int(first)], rest, value)
    return changed
