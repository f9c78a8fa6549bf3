"""Comprehensions at run time: all, exists, exists_one, map, filter and the two-variable forms.

`all` and `exists` absorb errors as `&&` and `||` do and stop where the answer is known; the others do neither.
"""

from collections.abc import Iterator
from typing import Any

from admission.cel.core import budget, equality, errors, frames, values
from admission.cel.core.frames import Frame, Run

Slots = tuple[int, int | None]


def turns(frame: Frame, value: Any, slots: Slots) -> Iterator[None]:
    """Set the variables for each element of a list or map in turn."""
    first, second = slots
    kind = type(value)
    if kind is not tuple and kind not in values.MAPS:
        raise errors.EvaluationError(f"got '{type_label(value)}', expected iterable type")
    if second is None:
        for element in value:
            frames.step(frame)
            frame[first] = values.from_key(element)
            yield
        return
    for key, element in enumerate(value) if kind is tuple else value.items():
        frames.step(frame)
        frame[first] = values.from_key(key)
        frame[second] = element
        yield


def type_label(value: Any) -> str:
    """Name a value's kind as cel-go's errors do."""
    return f"types.{type(value).__name__.capitalize()}"


def decide(source: Run, slots: Slots, body: Run, *, conjunction: bool) -> Run:
    """Compile `all` (conjunction) or `exists`."""
    deciding = not conjunction

    def run(frame: Frame) -> bool:
        error: errors.EvaluationError | None = None
        for _ in turns(frame, source(frame), slots):
            try:
                value = body(frame)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            if value is deciding:
                return not conjunction
            if value is not conjunction:
                error = error or errors.no_such_overload()
        if error is not None:
            raise error
        return conjunction

    return run


def count_one(source: Run, slots: Slots, body: Run) -> Run:
    """Compile `exists_one`."""

    def run(frame: Frame) -> bool:
        return sum(truth(body(frame)) for _ in turns(frame, source(frame), slots)) == 1

    return run


def truth(value: Any) -> bool:
    """Return a condition's value. Raises EvaluationError when it is no bool."""
    if isinstance(value, bool):
        return value
    raise errors.no_such_overload()


def collect(source: Run, slots: Slots, condition: Run | None, body: Run) -> Run:
    """Compile `map`, `transformList`, and `filter`, whose body is its variable."""

    def run(frame: Frame) -> tuple[Any, ...]:
        elements = turns(frame, source(frame), slots)
        return tuple([body(frame) for _ in elements if condition is None or truth(condition(frame))])

    return run


def collect_map(source: Run, slots: Slots, condition: Run | None, body: Run) -> Run:
    """Compile `transformMap`: the keys (or positions) stay."""

    def run(frame: Frame) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for _ in turns(frame, source(frame), slots):
            if condition is None or truth(condition(frame)):
                insert(result, frame[slots[0]], body(frame))
        return result

    return run


def collect_entries(source: Run, slots: Slots, condition: Run | None, body: Run) -> Run:
    """Compile `transformMapEntry`: each turn gives a map of entries."""

    def run(frame: Frame) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for _ in turns(frame, source(frame), slots):
            if condition is not None and not truth(condition(frame)):
                continue
            insert_all(result, body(frame))
        return result

    return run


def insert_all(result: dict[Any, Any], entries: Any) -> None:
    """Add all entries of another map."""
    if type(entries) not in values.MAPS:
        raise errors.no_such_overload("cel.@mapInsert")
    for key, value in entries.items():
        insert(result, values.from_key(key), value)


def insert(result: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry to a map that does not have its key yet."""
    if equality.has_key(result, key):
        raise errors.EvaluationError(f"insert failed: key {key} already exists")
    result[values.key_of(key)] = value
    budget.check_size(len(result))
