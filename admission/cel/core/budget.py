"""Bounds of one evaluation besides its cost: loop steps, and the sizes of built values, charged before building.

The API's limit is a cost of 1,000,000 (CELSelectorExpressionMaxCost), which `runtime_cost` counts. These bounds cover
operations that cost little or nothing in cel-go but much here, or that cel-go charges only after building.
"""

from collections.abc import Sequence
from typing import Any

from admission.cel.core import errors, values

STEPS = 1_000_000
"""Iterations of loops. cel-go charges 2 or more for most iterations, nothing for a few."""

MAX_SIZE = 1_000_000
"""Elements of one list, or characters of a string whose length cel-go does not charge."""

MAX_TEXT = 10_000_000
"""Characters of a string that cel-go charges by its length, 0.1 each."""


def exceeded() -> errors.AbortError:
    return errors.AbortError("operation cancelled: actual cost limit exceeded")


def check_size(size: int, most: int = MAX_SIZE) -> None:
    """Raise AbortError for a value that would be too large, before it is built."""
    if size > most:
        raise exceeded()


def nested_work(arguments: Sequence[Any]) -> int:
    """Return the steps that a function may take within nested lists, beyond the elements that cel-go charges.

    A bound value can occur twice in the next one, so a short expression can build a list with 2^30 leaves.
    """
    lists = [argument for argument in arguments if type(argument) in _CONTAINERS]
    if not any(map(_is_nested, lists)):
        return 0
    turns = max(len(_elements(value)) for value in lists) if len(lists) > 1 else 1
    return turns * sum(map(_weight, lists))


def _is_nested(value: Any) -> bool:
    return any(type(element) in _CONTAINERS for element in _elements(value))


def _elements(value: Any) -> Any:
    if type(value) is values.Optional:
        return (value.held,)
    return value if type(value) is tuple else value.values()


def _weight(value: Any) -> int:
    """Return the number of leaves. Raises AbortError if there are too many."""
    count, waiting = 0, [value]
    while waiting:
        elements = _elements(waiting.pop())
        count += len(elements)
        if count > MAX_SIZE:
            raise exceeded()
        waiting.extend(element for element in elements if type(element) in _CONTAINERS)
    return count


_CONTAINERS: frozenset[type] = values.MAPS | {tuple, values.Optional}


def charge_size(size: int) -> int:
    """Return the steps of building a value of this size: less than the 0.1 per character that cel-go charges."""
    return size >> 5
