"""Optional values (cel-go cel/library.go, OptionalTypes). The planner makes `or` and `orValue` lazy."""

from typing import Any

from admission.cel.core import errors, values
from admission.cel.core.declarations import Overload, function, member


def _value(optional: values.Optional) -> Any:
    if not optional.present:
        raise errors.EvaluationError("optional.none() dereference")
    return optional.value


def _of_non_zero(value: Any) -> values.Optional:
    return values.NONE if _is_zero(value) else values.some(value)


def _is_zero(value: Any) -> bool:
    if isinstance(value, values.Duration):
        return value.nanoseconds == 0
    if isinstance(value, values.Timestamp):
        return value.nanoseconds == -62_135_596_800 * 10**9
    if value is None or isinstance(value, bool | int | float | str | bytes | tuple | dict):
        return not value
    return False


def converted(value: Any) -> Any:
    """Return an optional as cel-go before 0.29 rebuilds it where it is read from a variable or chosen by `?:`.

    It converts what it holds to Go and back, which fails for values of Kubernetes' own types (1.36 and before).
    """
    if type(value) is values.Optional and value.present:
        return values.some(_to_go_and_back(value.held))
    return value


def _to_go_and_back(value: Any) -> Any:
    if isinstance(value, values.Optional):
        return _to_go_and_back(value.held) if value.present else None
    if isinstance(value, values.TypeValue):
        return value.name
    if isinstance(value, _OF_KUBERNETES):
        return values.Unreadable(type(value).__name__)
    return value


_OF_KUBERNETES = (values.Quantity, values.Semver, values.IP, values.CIDR, values.URL)


def _unwrap(elements: tuple[Any, ...]) -> tuple[Any, ...]:
    for element in elements:
        if not isinstance(element, values.Optional):
            raise errors.no_such_overload("optional.unwrap")
    return tuple(element.value for element in elements if element.present)


def _or(optional: values.Optional, other: values.Optional) -> values.Optional:
    return optional if optional.present else other


def _or_value(optional: values.Optional, other: Any) -> Any:
    return optional.value if optional.present else other


def _first(elements: tuple[Any, ...]) -> values.Optional:
    return values.some(elements[0]) if elements else values.NONE


def _last(elements: tuple[Any, ...]) -> values.Optional:
    return values.some(elements[-1]) if elements else values.NONE


OVERLOADS: tuple[Overload, ...] = (
    function("optional.of", "V -> optional(V)", values.some),
    function("optional.none", "-> optional(V)", lambda: values.NONE),
    function("optional.ofNonZeroValue", "V -> optional(V)", _of_non_zero),
    function("optional.unwrap", "list(optional(V)) -> list(V)", _unwrap),
    member("unwrapOpt", "list(optional(V)) -> list(V)", _unwrap),
    member("hasValue", "optional(V) -> bool", lambda o: o.present),
    member("value", "optional(V) -> V", _value),
    member("or", "optional(V), optional(V) -> optional(V)", _or),
    member("orValue", "optional(V), V -> V", _or_value),
    member("first", "list(V) -> optional(V)", _first),
    member("last", "list(V) -> optional(V)", _last),
)
