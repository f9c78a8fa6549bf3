"""What one evaluation may take besides its cost: steps of loops, and sizes of what it builds, charged before building.

The API's own limit is a cost of 1,000,000 (CELSelectorExpressionMaxCost), which `runtime_cost` counts. These bounds
hold for what costs little or nothing in cel-go but much here, or charges only after building.
"""

from collections.abc import Sequence
from typing import Any

from admission.cel.core import errors, values

STEPS = 1_000_000
"""Turns of loops. cel-go charges for most turns 2 and more, for a few of them nothing."""

MAX_SIZE = 1_000_000
"""Elements of one list, or characters of a text whose length cel-go does not charge."""

MAX_TEXT = 10_000_000
"""Characters of a text that cel-go charges by its length, a tenth each."""


def exceeded() -> errors.AbortError:
    return errors.AbortError("operation cancelled: actual cost limit exceeded")


def check_size(size: int, most: int = MAX_SIZE) -> None:
    """Raise AbortError before something of this size is built."""
    if size > most:
        raise exceeded()


def nested_work(arguments: Sequence[Any]) -> int:
    """Return the steps that a function of lists within lists may take beyond the elements that cel-go charges.

    A value that is bound can stand twice in the next one, so a short text can write a list with 2^30 leaves.
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
        return (value.value,)
    return value if type(value) is tuple else value.values()


def _weight(value: Any) -> int:
    """Count all leaves. Raises AbortError when there are too many."""
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
    """Return the steps that a value of this size takes: less than the tenth a character that cel-go charges."""
    return size >> 5
