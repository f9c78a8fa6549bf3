"""What a call has cost, from its arguments and its result, in cel-go's units.

The rules are those of cel-go (interpreter/runtimecost.go, ext/lists.go, ext/sets.go) and of Kubernetes' libraries
(k8s.io/apiserver pkg/cel/library/cost.go), v0.26 and v0.36; what they do not name costs 1. Some rules hold only where
the types say which overload is meant, as in cel-go, where a call by name alone costs 1.
"""

import ipaddress
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from admission.cel.core import size_estimate, values
from admission.cel.core.declarations import Overload
from admission.cel.core.size_estimate import STRING_FACTOR, scaled

Rule = Callable[[Sequence[Any], Any], int]
"""From the arguments, receiver first, and the result; an error stands for what failed."""

_SIZED: frozenset[type] = frozenset({str, bytes, tuple}) | values.MAPS


def rule_of(overloads: Sequence[Overload], release: int) -> Rule:
    """Return how the cost of a call is found; overloads: those that fit its types."""
    first = overloads[0]
    if first.name == "matches" and (first.member or release >= 37):
        return _matched
    if first.name == "includes" and release >= 37:
        return _traversed
    rule = _BY_NAME.get((first.name, first.member))
    if len(overloads) == 1:
        rule = _BY_OVERLOAD.get((first.name, tuple(kind.name for kind in first.parameters)), rule)
    if release < 37:
        rule = _BEFORE_37.get(rule, rule) if rule else rule
    return rule or _one


def size(value: Any) -> int:
    """Return the size of what has one, also within an optional; 1 for any other value."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is values.Optional and value.present:
        return size(value.value)
    return _octets(value)


def _octets(value: Any) -> int:
    if type(value) is values.IP:
        return 4 if isinstance(value.address, ipaddress.IPv4Address) else 16
    if type(value) is values.CIDR:
        return math.ceil(value.prefix / 8)
    return 1


def _plain_size(value: Any) -> int:
    """Return the same, an optional counting 1: Kubernetes' libraries do not look into it."""
    return 1 if type(value) is values.Optional else size(value)


def _one(_: Sequence[Any], __: Any) -> int:
    return 1


def _read(arguments: Sequence[Any], _: Any) -> int:
    return scaled(_plain_size(arguments[0]), STRING_FACTOR)


def _read_twice(arguments: Sequence[Any], _: Any) -> int:
    return scaled(_plain_size(arguments[0]), 2 * STRING_FACTOR)


def _started(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[1]), STRING_FACTOR)


def _joined(_: Sequence[Any], result: Any) -> int:
    return scaled(_plain_size(result), 2 * STRING_FACTOR)


def _matched(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[0]) + 1, STRING_FACTOR) * scaled(size(arguments[1]), size_estimate.PATTERN_FACTOR)


def _contained(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[0]), STRING_FACTOR) * scaled(size(arguments[1]), STRING_FACTOR)


def _validated(arguments: Sequence[Any], _: Any) -> int:
    named, text = arguments
    if type(named) is not values.NamedFormat:
        return 1
    return scaled(_plain_size(text) + 1, STRING_FACTOR) * scaled(named.pattern_size, size_estimate.PATTERN_FACTOR)


def _equated(arguments: Sequence[Any], result: Any) -> int:
    if type(arguments[0]) in _AT_ONCE:
        return 1
    return _compared(arguments, result)


_AT_ONCE = frozenset({values.Quantity, values.Semver, values.IP, values.CIDR, values.URL, values.NamedFormat})


def _compared(arguments: Sequence[Any], _: Any) -> int:
    return scaled(min(size(arguments[0]), size(arguments[1])), STRING_FACTOR)


def _found_in(arguments: Sequence[Any], _: Any) -> int:
    return size(arguments[1])


def _concatenated(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[0]) + size(arguments[1]), STRING_FACTOR)


def _traversed(arguments: Sequence[Any], _: Any) -> int:
    return _traversal(arguments[0])


def _traversal(value: Any) -> int:
    if type(value) is str:
        return int(len(value.encode(errors="replace")) * STRING_FACTOR)
    if type(value) is bytes:
        return int(len(value) * STRING_FACTOR)
    if type(value) is tuple:
        return sum(map(_traversal, value))
    if type(value) in values.MAPS:
        return sum(_traversal(values.from_key(key)) + _traversal(element) for key, element in value.items())
    return 1


def _address_in(arguments: Sequence[Any], _: Any) -> int:
    return scaled(2 * _plain_size(arguments[0]), STRING_FACTOR)


def _network_in(arguments: Sequence[Any], result: Any) -> int:
    return _address_in(arguments, result) + scaled(_plain_size(arguments[0]), STRING_FACTOR) + 1


def _and_read(rule: Rule) -> Rule:
    return lambda arguments, result: rule(arguments, result) + scaled(_plain_size(arguments[1]), STRING_FACTOR)


def _allocated(length: int, factor: float = 1.0) -> int:
    """Charge a list and its making; below zero, 64 bits wrap around, as in Go."""
    return int(float(length) * factor) + 1 + size_estimate.LIST_COST & size_estimate.MAX


def _made(_: Sequence[Any], result: Any) -> int:
    return _allocated(_plain_size(result))


def _flattened(arguments: Sequence[Any], _: Any) -> int:
    depth = arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else 1
    return _allocated(_plain_size(arguments[0]), float(depth) if depth >= 0 else 1.0)


def _flattened_below_zero(arguments: Sequence[Any], result: Any) -> int:
    """Take a negative depth for what Go makes of it: a number near the largest."""
    depth = arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else 1
    if depth >= 0:
        return _flattened(arguments, result)
    return _allocated(_plain_size(arguments[0]), float(depth))


def sorted_by(keys: Any) -> int:
    """Return the cost of ordering by keys: each with each."""
    factor = 2 + STRING_FACTOR if type(keys) is tuple and keys and type(keys[0]) in (str, bytes) else 2.0
    return _allocated(_plain_size(keys) ** 2 if type(keys) is tuple else 1, factor)


def _sorted(arguments: Sequence[Any], _: Any) -> int:
    return sorted_by(arguments[0])


def _sets(factor: int) -> Rule:
    return lambda arguments, _: 1 + _plain_size(arguments[0]) * _plain_size(arguments[1]) * factor


_BY_NAME: Mapping[tuple[str, bool], Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            ((name, True) for name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf")), _traversed
        ),
        **dict.fromkeys(((name, True) for name in ("lowerAscii", "upperAscii", "substring", "trim")), _read),
        **dict.fromkeys(
            (
                (name, False)
                for name in ("url", "cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver")
            ),
            _read,
        ),
        ("replace", True): _read_twice,
        ("split", True): _read_twice,
        ("ip.isCanonical", False): _read_twice,
        ("join", True): _joined,
        ("containsIP", True): _address_in,
        ("containsCIDR", True): _network_in,
        ("find", True): _matched,
        ("findAll", True): _matched,
        ("validate", True): _validated,
        ("_==_", False): _equated,
        ("_!=_", False): _compared,
    }
)

_ORDERINGS = ("_<_", "_<=_", "_>_", "_>=_")
_BY_OVERLOAD: Mapping[tuple[str, tuple[str, ...]], Rule] = MappingProxyType(
    {
        ("startsWith", ("string", "string")): _started,
        ("endsWith", ("string", "string")): _started,
        ("bytes", ("string",)): _read,
        ("string", ("bytes",)): _read,
        ("strings.quote", ("string",)): _read,
        ("format", ("string", "list")): _read,
        ("@in", ("A", "list")): _found_in,
        ("_+_", ("string", "string")): _concatenated,
        ("_+_", ("bytes", "bytes")): _concatenated,
        ("contains", ("string", "string")): _contained,
        ("containsIP", ("net.CIDR", "string")): _and_read(_address_in),
        ("containsCIDR", ("net.CIDR", "string")): _and_read(_network_in),
        ("slice", ("list", "int", "int")): _made,
        ("lists.range", ("int",)): _made,
        ("reverse", ("list",)): _made,
        ("flatten", ("list",)): _flattened,
        ("flatten", ("list", "int")): _flattened,
        ("distinct", ("list",)): _sorted,
        ("sort", ("list",)): _sorted,
        ("sets.contains", ("list", "list")): _sets(1),
        ("sets.intersects", ("list", "list")): _sets(1),
        ("sets.equivalent", ("list", "list")): _sets(2),
        **{(name, (kind, kind)): _compared for name in _ORDERINGS for kind in ("string", "bytes")},
    }
)

_BEFORE_37: Mapping[Rule, Rule] = MappingProxyType({_started: _read, _flattened: _flattened_below_zero})

LATE: frozenset[Rule] = frozenset({_joined, _made, _traversed})
"""Rules that need the result, or look into lists that the call itself bounds. All others are charged before the call,
so that what costs too much is not begun."""
