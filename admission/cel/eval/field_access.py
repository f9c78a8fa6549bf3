"""Field selection and indexing of values: maps, lists, and optionals."""

from typing import Any

from admission.cel.core import equality, errors, values

_ABSENT = object()
_QUALIFIERS: frozenset[type] = frozenset({str, int, values.Uint, float, bool})


def check_qualifier(key: Any) -> None:
    """Raise EvaluationError for a key that no index may be, whatever it is an index of."""
    if type(key) not in _QUALIFIERS:
        raise errors.EvaluationError(f"invalid qualifier type: {values.type_name(key)}")


def field(operand: Any, name: str) -> Any:
    """Return `operand.name`."""
    kind = type(operand)
    if kind in values.MAPS:
        try:
            return operand[name]
        except KeyError:
            raise errors.no_such_key(name) from None
    if kind is values.Optional:
        return optional_field(operand, name)
    raise errors.no_such_key(name)


def optional_field(operand: Any, name: str) -> values.Optional:
    """Return `operand.?name`, which is none for a value without fields."""
    return _optional_lookup(operand, name)


def has_field(operand: Any, name: str) -> bool:
    """Return `has(operand.name)`, also of an optional's value."""
    if type(operand) is values.Optional:
        return operand.present and has_field(operand.value, name)
    return has_plain_field(operand, name)


def has_plain_field(operand: Any, name: str) -> bool:
    """Return `has(operand.name)`: false for a value without fields, true for any domain."""
    kind = type(operand)
    return kind is values.DomainMap or (kind in values.MAPS and name in operand)


def index(operand: Any, key: Any) -> Any:
    """Return `operand[key]`."""
    check_qualifier(key)
    kind = type(operand)
    if kind in values.MAPS:
        value = equality.lookup(operand, key, _ABSENT)
        if value is _ABSENT:
            raise errors.no_such_key(key)
        return value
    if kind is tuple:
        position = _position(key)
        if not 0 <= position < len(operand):
            raise errors.EvaluationError(f"index out of bounds: {position}")
        return operand[position]
    if kind is values.Optional:
        return optional_index(operand, key)
    raise errors.no_such_key(key)


def optional_index(operand: Any, key: Any) -> values.Optional:
    """Return `operand[?key]`, which is none outside of a list and for a key that a map lacks."""
    check_qualifier(key)
    if type(operand) is tuple:
        position = _position(key)
        return values.some(operand[position]) if 0 <= position < len(operand) else values.NONE
    return _optional_lookup(operand, key)


def _optional_lookup(operand: Any, key: Any) -> values.Optional:
    kind = type(operand)
    if kind is values.Optional:
        return optional_index(operand.value, key) if operand.present else values.NONE
    if kind not in values.MAPS:
        return values.NONE
    value = equality.lookup(operand, key, _ABSENT)
    return values.NONE if value is _ABSENT else values.some(value)


def _position(key: Any) -> int:
    if type(key) in (int, values.Uint):
        return int(key)
    if type(key) is float and key.is_integer():
        return int(key)
    raise errors.EvaluationError(f"unsupported index value in list: {key}")
