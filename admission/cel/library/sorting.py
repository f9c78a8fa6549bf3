"""Ordering of lists: sort, sortBy, min, max, sum, isSorted (cel-go ext/lists.go v3, apiserver library/lists.go)."""

import functools
import itertools
from typing import Any

from admission.cel.core import arithmetic, budget, equality, errors, values
from admission.cel.core.declarations import Implementation

_ZEROS = {"int": 0, "uint": values.Uint(0), "double": 0.0, "duration": values.Duration(0)}
MAX_SORTED = 100_000
"""Keys of one sort. cel-go's cost allows some 700 of a known type; it charges nothing for an unknown type."""

_COMPARABLE = frozenset({bool, int, values.Uint, float, str, bytes, values.Duration, values.Timestamp})


def _order(left: Any, right: Any) -> int:
    """Compare, or return 0 for values without an order: the libraries treat any error as "not less"."""
    try:
        return equality.compare(left, right)
    except errors.EvaluationError:
        return 0


_KEY = functools.cmp_to_key(_order)


def sort(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    return by_keys(elements, elements)


def by_keys(elements: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the elements in the order of their keys, which must be of one ordered type."""
    if not keys:
        return elements
    if type(keys[0]) not in _COMPARABLE:
        raise errors.EvaluationError("list elements must be comparable")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise errors.EvaluationError("list elements must have the same type")
    budget.check_size(len(keys), MAX_SORTED)
    order = sorted(range(len(keys)), key=lambda index: _KEY(keys[index]))
    return tuple(elements[index] for index in order)


def is_sorted(elements: tuple[Any, ...]) -> bool:
    _check_comparable(elements)
    return all(_order(one, other) <= 0 for one, other in itertools.pairwise(elements))


def smallest(elements: tuple[Any, ...]) -> Any:
    return _extreme(elements, "min", 1)


def largest(elements: tuple[Any, ...]) -> Any:
    return _extreme(elements, "max", -1)


def _extreme(elements: tuple[Any, ...], name: str, replaced_when: int) -> Any:
    if not elements:
        raise errors.EvaluationError(f"{name} called on empty list")
    _check_comparable(elements)
    result = elements[0]
    for element in elements[1:]:
        if _order(result, element) == replaced_when:
            result = element
    return result


def _check_comparable(elements: tuple[Any, ...]) -> None:
    for element in elements:
        if type(element) not in _COMPARABLE:
            raise errors.no_such_overload()


def sum_of(name: str) -> Implementation:
    """Return `sum` of lists of an element type. A list of unknown type is summed by that of its first element."""
    zero = _ZEROS[name]

    def run(elements: tuple[Any, ...]) -> Any:
        total: Any = zero
        if elements and type(elements[0]) is not type(zero):
            total = next((other for other in _ZEROS.values() if type(other) is type(elements[0])), zero)
        for element in elements:
            total = arithmetic.add(total, element)
        return total

    return run
