"""Equality, membership and ordering by run-time types, as cel-go compares them.

Values of different types are unequal without an error, except that some types, on the left, fail with any other.
"""

from typing import Any

from admission.cel.core import errors, values

_NUMBERS = frozenset({int, values.Uint, float})
_STRICT = frozenset({values.Semver, values.Quantity, values.IP, values.CIDR, values.URL})
_PLAIN = frozenset(
    {str, bool, bytes, values.Duration, values.Timestamp, values.TypeValue, values.NamedFormat, values.Empty}
)
_ORDERED = frozenset({str, bool, bytes, values.Duration, values.Timestamp})
_UNHASHABLE: dict[type, str] = {values.Semver: "cel.Semver", bytes: "types.Bytes", values.NamedFormat: "cel.Format"}


def equal(left: Any, right: Any) -> bool:  # noqa: PLR0911 - one line a type
    """Return left == right. Raises EvaluationError if the left can be compared only with its own type."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        return other in _NUMBERS and _numbers_equal(left, right)
    if left is None or right is None:
        return left is right
    if kind in _PLAIN:
        return kind is other and bool(left == right)
    if kind in _STRICT:
        return _strict_equal(left, right)
    if kind is tuple:
        return other is tuple and len(left) == len(right) and all(map(elements_equal, left, right))
    if kind in values.MAPS:
        return other in values.MAPS and _maps_equal(left, right)
    if kind is values.Optional:
        return other is values.Optional and _optionals_equal(left, right)
    return left is right


def unequal(left: Any, right: Any) -> bool:
    """Return left != right, which is true if `==` fails."""
    try:
        return not equal(left, right)
    except errors.EvaluationError:
        return True


def elements_equal(left: Any, right: Any) -> bool:
    """Return whether elements of lists or maps count as equal, which they do also if comparing them fails."""
    try:
        return equal(left, right)
    except errors.EvaluationError:
        return True


def is_element(needle: Any, element: Any) -> bool:
    """Return whether `in` finds the needle in an element, which it does not if comparing them fails."""
    try:
        return equal(needle, element)
    except errors.EvaluationError:
        return False


def contains(needle: Any, container: Any) -> bool:
    """Return `needle in container`."""
    kind = type(container)
    if kind is tuple:
        return any(is_element(needle, element) for element in container)
    if kind in values.MAPS:
        return has_key(container, needle)
    raise errors.no_such_overload()


def contains_literal(needle: Any, elements: tuple[Any, ...]) -> bool:
    """Return `needle in [literals]`. cel-go makes a set of the literals, in which versions and bytes crash."""
    check_hashable(needle)
    if type(needle) in (int, values.Uint):
        # In cel-go's set a double equals only the int of exactly its value, whereas `==` rounds the int.
        return any(type(element) in _NUMBERS and needle == element for element in elements)
    return any(is_element(needle, element) for element in elements)


def check_hashable(value: Any) -> None:
    """Raise AbortError for a value that Go cannot hash, on which cel-go crashes."""
    name = _UNHASHABLE.get(type(value))
    if name is not None:
        raise errors.AbortError(f"internal error: runtime error: hash of unhashable type {name}")


def has_key(mapping: dict[Any, Any], key: Any) -> bool:
    """Return whether a map has a key. Domains that are only readable do not count."""
    kind = type(key)
    if kind is str or kind in _NUMBERS:
        return key in mapping
    if kind is bool:
        return values.key_of(key) in mapping
    return _has_unusual_key(mapping, key)


def lookup(mapping: dict[Any, Any], key: Any, default: Any) -> Any:
    """Return a map's value at a key, or the default."""
    if type(mapping) is values.DomainMap:
        return mapping[key] if type(key) is str else values.EMPTY
    if has_key(mapping, key):
        return mapping[values.key_of(key)]
    return default


def _has_unusual_key(mapping: dict[Any, Any], key: Any) -> bool:
    """Only maps that an expression builds have keys of other types. cel-go hashes them, which crashes for some."""
    if type(mapping) is not dict or not mapping:
        return False
    check_hashable(key)
    return values.key_of(key) in mapping


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1. Raises EvaluationError for types without an order."""
    kind = type(left)
    if kind is type(right) and kind in _ORDERED:
        return int(left > right) - int(left < right)
    if kind in _NUMBERS and type(right) in _NUMBERS:
        if kind is float or type(right) is float:
            left, right = float(left), float(right)
            if left != left or right != right:  # noqa: PLR0124 - NaN
                raise errors.EvaluationError("NaN values cannot be ordered")
        return int(left > right) - int(left < right)
    raise errors.no_such_overload()


def _numbers_equal(left: Any, right: Any) -> bool:
    if type(left) is float or type(right) is float:
        return float(left) == float(right)
    return bool(left == right)


def _strict_equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        raise errors.no_such_overload()
    if type(left) is values.Quantity:
        if right.computed:
            raise errors.no_such_overload()
        return bool(left.amount.nanos == right.amount.nanos)
    if type(left) is values.Semver:
        return bool(left.order == right.order)
    return bool(left == right)


def _maps_equal(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    return all(key in right and elements_equal(value, right[key]) for key, value in left.items())


def _optionals_equal(left: values.Optional, right: values.Optional) -> bool:
    if left.present and right.present:
        return equal(left.value, right.value)
    return left.present == right.present
