"""Lists: cel-go's ext/lists.go v3, k8s.io/apiserver's library/lists.go, ext/sets.go, and DRA's `includes`."""

from typing import Any

from admission.cel.core import budget, equality, errors
from admission.cel.core.declarations import Overload, function, member
from admission.cel.library import sorting

_INCLUDES_LIMIT = 48


def _slice(elements: tuple[Any, ...], start: int, end: int) -> tuple[Any, ...]:
    if start < 0 or end < 0:
        raise errors.EvaluationError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise errors.EvaluationError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if end > len(elements):
        raise errors.EvaluationError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _flatten(elements: tuple[Any, ...], depth: int = 1) -> tuple[Any, ...]:
    """Replace lists by their elements, to a depth.

    All visited elements are counted, not those of the result alone: a short expression can build 2^30 empty lists.
    """
    if depth < 0:
        raise errors.EvaluationError("level must be non-negative")
    result: list[Any] = []
    visited = 0
    iterators = [iter(elements)]
    while iterators:
        for element in iterators[-1]:
            visited += 1
            if visited > budget.MAX_SIZE:
                raise budget.exceeded()
            if type(element) is tuple and len(iterators) <= depth:
                iterators.append(iter(element))
                break
            result.append(element)
        else:
            iterators.pop()
    return tuple(result)


def _range_checked(count: int) -> tuple[int, ...]:
    if count < 0:
        raise errors.EvaluationError(f"lists.range: size must be non-negative, got {count}")
    return _range(count)


def _range(count: int) -> tuple[int, ...]:
    if count > budget.STEPS:
        raise budget.exceeded()
    return tuple(range(count))


def _distinct(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    """Keep the first of equal elements. The work is quadratic, since CEL's equality has no hash, hence bounded."""
    result: list[Any] = []
    work = 0
    for element in elements:
        work += len(result)
        if work > budget.STEPS:
            raise budget.exceeded()
        if not any(equality.is_element(element, other) for other in result):
            result.append(element)
    return tuple(result)


def _index_of(elements: tuple[Any, ...], sought: Any) -> int:
    return next((index for index, element in enumerate(elements) if equality.is_element(element, sought)), -1)


def _last_index_of(elements: tuple[Any, ...], sought: Any) -> int:
    indices = range(len(elements) - 1, -1, -1)
    return next((index for index in indices if equality.is_element(elements[index], sought)), -1)


def _contains_all(elements: tuple[Any, ...], sought: tuple[Any, ...]) -> bool:
    _check_product(elements, sought)
    return all(equality.contains(element, elements) for element in sought)


def _equivalent(elements: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    return _contains_all(elements, others) and _contains_all(others, elements)


def _intersects(elements: tuple[Any, ...], others: tuple[Any, ...]) -> bool:
    _check_product(elements, others)
    return any(equality.contains(element, others) for element in elements)


def _check_product(elements: tuple[Any, ...], others: tuple[Any, ...]) -> None:
    if len(elements) * len(others) > budget.STEPS:
        raise budget.exceeded()


def _includes(target: Any, sought: Any) -> bool:
    if type(target) is not tuple:
        return equality.is_element(target, sought)
    for index, element in enumerate(target):
        if index >= _INCLUDES_LIMIT:
            raise errors.EvaluationError(
                f"'includes' function cannot be applied to lists longer than {_INCLUDES_LIMIT} values"
            )
        if equality.is_element(element, sought):
            return True
    return False


def _includes_any_length(target: Any, sought: Any) -> bool:
    elements = target if type(target) is tuple else (target,)
    return any(equality.is_element(element, sought) for element in elements)


_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_SUMMABLE = ("int", "uint", "double", "duration")

OVERLOADS: tuple[Overload, ...] = (
    member("slice", "list(T), int, int -> list(T)", _slice),
    member("flatten", "list(list(T)) -> list(T)", _flatten),
    member("flatten", "list(dyn), int -> list(dyn)", _flatten),
    function("lists.range", "int -> list(int)", _range),
    *(member("sort", f"list({kind}) -> list({kind})", sorting.sort) for kind in _COMPARABLE),
    member("distinct", "list(T) -> list(T)", _distinct),
    member("reverse", "list(T) -> list(T)", lambda elements: elements[::-1]),
    *(member("isSorted", f"list({kind}) -> bool", sorting.is_sorted) for kind in _COMPARABLE),
    *(member("sum", f"list({kind}) -> {kind}", sorting.sum_of(kind)) for kind in _SUMMABLE),
    *(member("min", f"list({kind}) -> {kind}", sorting.smallest) for kind in _COMPARABLE),
    *(member("max", f"list({kind}) -> {kind}", sorting.largest) for kind in _COMPARABLE),
    member("indexOf", "list(A), A -> int", _index_of),
    member("lastIndexOf", "list(A), A -> int", _last_index_of),
    function("sets.contains", "list(T), list(T) -> bool", _contains_all),
    function("sets.equivalent", "list(T), list(T) -> bool", _equivalent),
    function("sets.intersects", "list(T), list(T) -> bool", _intersects),
    member("includes", "dyn, dyn -> bool", _includes),
)

RELEASE_37: tuple[Overload, ...] = (
    function("lists.range", "int -> list(int)", _range_checked),
    member("includes", "dyn, dyn -> bool", _includes_any_length),
)
"""Overloads that Kubernetes 1.37 changed."""
