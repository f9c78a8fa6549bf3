"""`==`, `!=`, `in` and ordering, by run-time kinds as cel-go compares them.

Values of different kinds are unequal without error, except that some kinds on the left fail on any other.
"""

from typing import Any

from admission.cel.core import errors, values

_NUMBERS = frozenset({int, values.Uint, float})
_PICKY = frozenset({values.Semver, values.Quantity, values.IP, values.CIDR, values.URL})
_PLAIN = frozenset(
    {str, bool, bytes, values.Duration, values.Timestamp, values.TypeValue, values.NamedFormat, values.Empty}
)
_ORDERED = frozenset({str, bool, bytes, values.Duration, values.Timestamp})
_UNHASHABLE = frozenset({values.Semver, bytes})


def equal(left: Any, right: Any) -> bool:  # noqa: PLR0911 - one line a kind
    """Return left == right. Raises EvaluationError where only the same kind may stand on the right."""
    kind, other = type(left), type(right)
    if kind in _NUMBERS:
        return other in _NUMBERS and _numbers_equal(left, right)
    if left is None or right is None:
        return left is right
    if kind in _PLAIN:
        return kind is other and bool(left == right)
    if kind in _PICKY:
        return _picky_equal(left, right)
    if kind is tuple:
        return other is tuple and len(left) == len(right) and all(map(equal_inside, left, right))
    if kind in values.MAPS:
        return other in values.MAPS and _maps_equal(left, right)
    if kind is values.Optional:
        return other is values.Optional and _optionals_equal(left, right)
    return left is right


def unequal(left: Any, right: Any) -> bool:
    """Return left != right: true also where `==` fails."""
    try:
        return not equal(left, right)
    except errors.EvaluationError:
        return True


def equal_inside(left: Any, right: Any) -> bool:
    """Return whether elements of lists or maps count as equal: where comparing them fails, they do."""
    try:
        return equal(left, right)
    except errors.EvaluationError:
        return True


def found(needle: Any, element: Any) -> bool:
    """Return whether a list's element is what is looked for: where comparing fails, it is not."""
    try:
        return equal(needle, element)
    except errors.EvaluationError:
        return False


def contains(needle: Any, container: Any) -> bool:
    """Return `needle in container`."""
    kind = type(container)
    if kind is tuple:
        return any(found(needle, element) for element in container)
    if kind in values.MAPS:
        return has_key(container, needle)
    raise errors.no_such_overload()


def contains_literal(needle: Any, elements: tuple[Any, ...]) -> bool:
    """Return `needle in [literals]`, which cel-go makes a set: versions and bytes crash it."""
    check_hashable(needle)
    if type(needle) in (int, values.Uint):
        # The set holds of a double only the int that is exactly it, where `==` would round the needle.
        return any(type(element) in _NUMBERS and needle == element for element in elements)
    return any(found(needle, element) for element in elements)


def check_hashable(value: Any) -> None:
    """Fail as cel-go does on looking up what Go cannot hash."""
    if type(value) in _UNHASHABLE:
        name = "cel.Semver" if type(value) is values.Semver else "types.Bytes"
        raise errors.AbortError(f"internal error: runtime error: hash of unhashable type {name}")


def has_key(mapping: dict[Any, Any], key: Any) -> bool:
    """Return whether a map really has a key."""
    kind = type(key)
    if kind is str or kind in _NUMBERS:
        return key in mapping
    if kind is bool:
        return values.key_of(key) in mapping
    return _has_odd_key(mapping, key)


def lookup(mapping: dict[Any, Any], key: Any, default: Any) -> Any:
    """Return what a map has at a key, or the default."""
    if type(mapping) is values.Domains:
        return mapping[key] if type(key) is str else values.EMPTY
    if has_key(mapping, key):
        return mapping[values.key_of(key)]
    return default


def _has_odd_key(mapping: dict[Any, Any], key: Any) -> bool:
    """Keys of other kinds are never there; to a written map, in which cel-go hashes them, some are fatal."""
    if type(mapping) is dict:
        check_hashable(key)
    return False


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1. Raises EvaluationError for kinds without an order."""
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


def _picky_equal(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        raise errors.no_such_overload()
    if type(left) is values.Quantity:
        if right.computed:
            raise errors.no_such_overload()
        return bool(left.nanos == right.nanos)
    if type(left) is values.Semver:
        return bool(left.order == right.order)
    return bool(left == right)


def _maps_equal(left: dict[Any, Any], right: dict[Any, Any]) -> bool:
    if len(left) != len(right):
        return False
    return all(key in right and equal_inside(value, right[key]) for key, value in left.items())


def _optionals_equal(left: values.Optional, right: values.Optional) -> bool:
    if left.present and right.present:
        return equal(left.value, right.value)
    return left.present == right.present
