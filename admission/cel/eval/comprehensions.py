"""Comprehensions at run time: all, exists, exists_one, map, filter and the two-variable forms.

`all` and `exists` absorb errors as `&&` and `||` do and stop where the answer is known; the others do neither. A
tracked program is charged as the folds to which cel-go expands macros, which continue after an error; a plain one stops
at the first error, since nothing that follows changes the answer.
"""

from collections.abc import Iterator
from typing import Any

from admission.cel.core import budget, equality, errors, values
from admission.cel.core.activation import STEPS, Activation, Interpretable
from admission.cel.cost.runtime_cost import CostTracker, charge

Slots = tuple[int, int | None]

_END = object()


def iterate(activation: Activation, value: Any, slots: Slots) -> Iterator[None]:
    """Set the variables for each element of a list or map, and take a step for each."""
    first, second = slots
    kind = type(value)
    if kind is not tuple and kind not in values.MAPS:
        raise errors.EvaluationError(f"got '{type_label(value)}', expected iterable type")
    if second is None:
        for element in value:
            activation[STEPS] -= 1
            if activation[STEPS] < 0:
                raise budget.exceeded()
            activation[first] = values.from_key(element)
            yield
        return
    for key, element in enumerate(value) if kind is tuple else value.items():
        activation[STEPS] -= 1
        if activation[STEPS] < 0:
            raise budget.exceeded()
        activation[first] = values.from_key(key)
        activation[second] = element
        yield


def type_label(value: Any) -> str:
    """Return the name of a value's type in cel-go's errors."""
    return f"types.{type(value).__name__.capitalize()}"


def decide(
    source: Interpretable, slots: Slots, body: Interpretable, tracker: CostTracker, *, conjunction: bool
) -> Interpretable:
    """Plan `all` (conjunction) or `exists`: each iteration begins with a test whether the result is known."""
    test = 2 if conjunction else 3
    body = tracker.before(test + 1, body)
    is_tracked = tracker.is_on

    def evaluate(activation: Activation) -> bool:
        error: errors.EvaluationError | None = None
        elements = iterate(activation, source(activation), slots)
        for _ in elements:
            try:
                value = body(activation)
            except errors.AbortError:
                raise
            except errors.EvaluationError as raised:
                error = error or raised
                continue
            if value is not conjunction:
                if isinstance(value, bool):
                    break
                error = error or errors.no_such_overload()
        else:
            if is_tracked:
                charge(activation, 1)
            if error is not None:
                raise error
            return conjunction
        if is_tracked:
            charge(activation, 1 if next(elements, _END) is _END else test + 1)
        return not conjunction

    return evaluate


def count_one(source: Interpretable, slots: Slots, body: Interpretable, tracker: CostTracker) -> Interpretable:
    """Plan `exists_one`."""
    holding = collect(source, slots, body, lambda _: True, tracker, end=2)
    return lambda activation: len(holding(activation)) == 1


def truth(value: Any) -> bool:
    """Return a condition's value. Raises EvaluationError when it is no bool."""
    if isinstance(value, bool):
        return value
    raise errors.no_such_overload()


def collect(
    source: Interpretable,
    slots: Slots,
    condition: Interpretable | None,
    body: Interpretable,
    tracker: CostTracker,
    *,
    end: int = 1,
) -> Interpretable:
    """Plan `map`, `transformList`, and `filter`, whose body is its variable. end: the cost of the result."""
    body = tracker.before(2, body)
    is_tracked = tracker.is_on

    def evaluate(activation: Activation) -> tuple[Any, ...]:
        error: errors.EvaluationError | None = None
        result: list[Any] = []
        for _ in iterate(activation, source(activation), slots):
            try:
                if condition is None or truth(condition(activation)):
                    result.append(body(activation))
            except errors.EvaluationError as raised:
                if not is_tracked or isinstance(raised, errors.AbortError):
                    raise
                error = error or raised
        if is_tracked:
            _end_fold(activation, end, error)
        return tuple(result)

    return evaluate


def collect_map(
    source: Interpretable,
    slots: Slots,
    condition: Interpretable | None,
    body: Interpretable,
    tracker: CostTracker,
    *,
    entries: bool,
) -> Interpretable:
    """Plan `transformMap`, which keeps the keys (or positions), or `transformMapEntry`, whose body is a map."""
    first, body, is_tracked = slots[0], tracker.before(2, body), tracker.is_on

    def evaluate(activation: Activation) -> dict[Any, Any]:
        error: errors.EvaluationError | None = None
        result: dict[Any, Any] = {}
        for _ in iterate(activation, source(activation), slots):
            try:
                if condition is not None and not truth(condition(activation)):
                    continue
                if entries:
                    insert_all(result, body(activation))
                elif error is None:
                    try:
                        value = body(activation)
                    finally:
                        if is_tracked:
                            charge(activation, 1)
                    insert(result, activation[first], value)
                else:
                    charge(activation, 1)
            except errors.EvaluationError as raised:
                if not is_tracked or isinstance(raised, errors.AbortError):
                    raise
                error = error or raised
        if is_tracked:
            _end_fold(activation, 1, error)
        return result

    return evaluate


def _end_fold(activation: Activation, cost: int, error: errors.EvaluationError | None) -> None:
    """Charge the result of a fold, then raise its first error."""
    charge(activation, cost)
    if error is not None:
        raise error


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
