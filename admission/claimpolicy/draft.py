"""An object while defaults are put into it: every step is a JSON patch of what was sent, and is seen by the next."""

from typing import Any

from admission.api.values import json_patch
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Operation, Patch

END = "-"
"""Behind the last element of a list, as RFC 6902 writes it."""

Way = tuple[str | int, ...]
"""The keys and indices from the object to one of its values."""


class Draft:
    """One object. What was sent is not changed."""

    def __init__(self, obj: Json) -> None:
        self.obj: Any = obj
        self._steps: list[Operation] = []

    @property
    def patch(self) -> Patch:
        return tuple(self._steps)

    def get(self, *way: str | int) -> Any:
        """Return the value at the end of a way; None where there is none."""
        return found(self.obj, *way)

    def put(self, way: Way, value: Any) -> None:
        """Put a value at the end of a way, making the objects and lists on it that are missing."""
        there = self._depth(way)
        for part in reversed(way[there + 1 :]):
            value = [value] if part == END else {part: value}
        self._steps.append(json_patch.add(json_patch.pointer(*way[: there + 1]), value))
        self.obj = _with(self.obj, way[: there + 1], value)

    def drop(self, way: Way) -> None:
        """Take the value at the end of a way out of its object."""
        self._steps.append(json_patch.remove(json_patch.pointer(*way)))
        *before, last = way
        holder = {key: value for key, value in self.get(*before).items() if key != last}
        self.obj = _with(self.obj, tuple(before), holder)

    def _depth(self, way: Way) -> int:
        """Return the place in the way of the first part that is to be made."""
        value = self.obj
        for depth, part in enumerate(way[:-1]):
            value = found(value, part)
            if value is None:
                return depth
        return len(way) - 1


def found(obj: Any, *way: str | int) -> Any:
    """Return the value at the end of a way through an object; None where there is none."""
    for part in way:
        # JSON as it was parsed: nothing but dicts and lists, which are told apart faster than mappings and sequences.
        if isinstance(obj, dict):
            obj = obj.get(part)
        elif isinstance(obj, list) and isinstance(part, int) and part < len(obj):
            obj = obj[part]
        else:
            return None
    return obj


def _with(obj: Any, way: Way, value: Any) -> Any:
    """Return the object with a value at the end of the way; what is on the way is copied, the rest is shared."""
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
