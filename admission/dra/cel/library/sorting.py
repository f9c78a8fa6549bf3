"""Order of lists: sort, sortBy, min, max, isSorted (cel-go ext/lists.go v3, k8s.io/apiserver library/lists.go)."""

import functools
from typing import Any

from admission.dra.cel import equality, failures

_COMPARE = functools.cmp_to_key(equality.compare)


def sort(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    return by_keys(elements, elements)


def by_keys(elements: tuple[Any, ...], keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the elements in the order of their keys, which must be of one kind."""
    if keys and any(type(key) is not type(keys[0]) for key in keys):
        raise failures.EvaluationError("list elements must have the same type")
    try:
        order = sorted(range(len(keys)), key=lambda place: _COMPARE(keys[place]))
        if len(keys) == 1:
            equality.compare(keys[0], keys[0])
    except failures.EvaluationError:
        raise failures.EvaluationError("list elements must be comparable") from None
    return tuple(elements[place] for place in order)
