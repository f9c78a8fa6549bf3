"""The runtime cost of a call, by its arguments and its result.

The rules are those of cel-go (interpreter/runtimecost.go, ext/lists.go, ext/sets.go) and of Kubernetes' libraries
(k8s.io/apiserver pkg/cel/library/cost.go), v0.26 and v0.36; calls that they do not name cost 1. Some rules apply only
where the static types determine the overload: cel-go charges 1 for a call that it dispatches by name.
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
"""Maps the arguments, receiver first, and the result to a cost. An error stands for a value that failed."""

_SIZED: frozenset[type] = frozenset({str, bytes, tuple}) | values.MAPS


def rule_of(overloads: Sequence[Overload], release: int) -> Rule:
    """Return the rule for a call. overloads: those that fit its static types."""
    first = overloads[0]
    if first.name == "matches" and (first.member or release >= 37):
        return _by_pattern
    if first.name == "includes" and release >= 37:
        return _by_traversal
    rule = _BY_NAME.get((first.name, first.member))
    if len(overloads) == 1:
        rule = _BY_OVERLOAD.get((first.name, tuple(kind.name for kind in first.parameters)), rule)
    if release < 37:
        rule = _BEFORE_37.get(rule, rule) if rule else rule
    return rule or _one


def size(value: Any) -> int:
    """Return the size of a value, also of one within an optional, or 1 for a value without a size."""
    kind = type(value)
    if kind in _SIZED:
        return len(value)
    if kind is values.Optional and value.present:
        return size(value.held)
    return _octets(value)


def _octets(value: Any) -> int:
    if type(value) is values.IP:
        return 4 if isinstance(value.address, ipaddress.IPv4Address) else 16
    if type(value) is values.CIDR:
        return math.ceil(value.prefix / 8)
    return 1


def _plain_size(value: Any) -> int:
    """Return the size as Kubernetes' libraries find it, for which an optional counts 1."""
    return 1 if type(value) is values.Optional else size(value)


def _one(_: Sequence[Any], __: Any) -> int:
    return 1


def _by_length(arguments: Sequence[Any], _: Any) -> int:
    return scaled(_plain_size(arguments[0]), STRING_FACTOR)


def _by_double_length(arguments: Sequence[Any], _: Any) -> int:
    return scaled(_plain_size(arguments[0]), 2 * STRING_FACTOR)


def _by_prefix(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[1]), STRING_FACTOR)


def _by_joined_length(_: Sequence[Any], result: Any) -> int:
    return scaled(_plain_size(result), 2 * STRING_FACTOR)


def _by_pattern(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[0]) + 1, STRING_FACTOR) * scaled(size(arguments[1]), size_estimate.PATTERN_FACTOR)


def _by_product(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[0]), STRING_FACTOR) * scaled(size(arguments[1]), STRING_FACTOR)


def _by_format(arguments: Sequence[Any], _: Any) -> int:
    named, text = arguments
    if type(named) is not values.NamedFormat:
        return 1
    return scaled(_plain_size(text) + 1, STRING_FACTOR) * scaled(named.pattern_size, size_estimate.PATTERN_FACTOR)


def _by_equality(arguments: Sequence[Any], result: Any) -> int:
    if type(arguments[0]) in _CONSTANT_EQUALITY:
        return 1
    return _by_shorter(arguments, result)


_CONSTANT_EQUALITY = frozenset({values.Quantity, values.Semver, values.IP, values.CIDR, values.URL, values.NamedFormat})


def _by_shorter(arguments: Sequence[Any], _: Any) -> int:
    return scaled(min(size(arguments[0]), size(arguments[1])), STRING_FACTOR)


def _by_list_size(arguments: Sequence[Any], _: Any) -> int:
    return size(arguments[1])


def _by_sum(arguments: Sequence[Any], _: Any) -> int:
    return scaled(size(arguments[0]) + size(arguments[1]), STRING_FACTOR)


def _by_traversal(arguments: Sequence[Any], _: Any) -> int:
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


def _by_address(arguments: Sequence[Any], _: Any) -> int:
    return scaled(2 * _plain_size(arguments[0]), STRING_FACTOR)


def _by_network(arguments: Sequence[Any], result: Any) -> int:
    return _by_address(arguments, result) + scaled(_plain_size(arguments[0]), STRING_FACTOR) + 1


def _and_argument_length(rule: Rule) -> Rule:
    return lambda arguments, result: rule(arguments, result) + scaled(_plain_size(arguments[1]), STRING_FACTOR)


def _allocation(length: int, factor: float = 1.0) -> int:
    """Charge the allocation of a list. A negative cost wraps around to 64 bits, as in Go."""
    return int(float(length) * factor) + 1 + size_estimate.LIST_COST & size_estimate.MAX


def _by_result_size(_: Sequence[Any], result: Any) -> int:
    return _allocation(_plain_size(result))


def _by_flattening(arguments: Sequence[Any], _: Any) -> int:
    depth = arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else 1
    return _allocation(_plain_size(arguments[0]), float(depth) if depth >= 0 else 1.0)


def _by_negative_flattening(arguments: Sequence[Any], result: Any) -> int:
    """Charge a negative depth as Go does, as an unsigned number near the largest."""
    depth = arguments[1] if len(arguments) > 1 and type(arguments[1]) is int else 1
    if depth >= 0:
        return _by_flattening(arguments, result)
    return _allocation(_plain_size(arguments[0]), float(depth))


def sort_cost(keys: Any) -> int:
    """Return the cost of sorting by keys: all pairs."""
    factor = 2 + STRING_FACTOR if type(keys) is tuple and keys and type(keys[0]) in (str, bytes) else 2.0
    return _allocation(_plain_size(keys) ** 2 if type(keys) is tuple else 1, factor)


def _by_sorting(arguments: Sequence[Any], _: Any) -> int:
    return sort_cost(arguments[0])


def _sets(factor: int) -> Rule:
    return lambda arguments, _: 1 + _plain_size(arguments[0]) * _plain_size(arguments[1]) * factor


_BY_NAME: Mapping[tuple[str, bool], Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            ((name, True) for name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf")), _by_traversal
        ),
        **dict.fromkeys(((name, True) for name in ("lowerAscii", "upperAscii", "substring", "trim")), _by_length),
        **dict.fromkeys(
            (
                (name, False)
                for name in ("url", "cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver")
            ),
            _by_length,
        ),
        ("replace", True): _by_double_length,
        ("split", True): _by_double_length,
        ("ip.isCanonical", False): _by_double_length,
        ("join", True): _by_joined_length,
        ("containsIP", True): _by_address,
        ("containsCIDR", True): _by_network,
        ("find", True): _by_pattern,
        ("findAll", True): _by_pattern,
        ("validate", True): _by_format,
        ("_==_", False): _by_equality,
        ("_!=_", False): _by_shorter,
    }
)

_ORDERINGS = ("_<_", "_<=_", "_>_", "_>=_")
_BY_OVERLOAD: Mapping[tuple[str, tuple[str, ...]], Rule] = MappingProxyType(
    {
        ("startsWith", ("string", "string")): _by_prefix,
        ("endsWith", ("string", "string")): _by_prefix,
        ("bytes", ("string",)): _by_length,
        ("string", ("bytes",)): _by_length,
        ("strings.quote", ("string",)): _by_length,
        ("format", ("string", "list")): _by_length,
        ("@in", ("A", "list")): _by_list_size,
        ("_+_", ("string", "string")): _by_sum,
        ("_+_", ("bytes", "bytes")): _by_sum,
        ("contains", ("string", "string")): _by_product,
        ("containsIP", ("net.CIDR", "string")): _and_argument_length(_by_address),
        ("containsCIDR", ("net.CIDR", "string")): _and_argument_length(_by_network),
        ("slice", ("list", "int", "int")): _by_result_size,
        ("lists.range", ("int",)): _by_result_size,
        ("reverse", ("list",)): _by_result_size,
        ("flatten", ("list",)): _by_flattening,
        ("flatten", ("list", "int")): _by_flattening,
        ("distinct", ("list",)): _by_sorting,
        ("sort", ("list",)): _by_sorting,
        ("sets.contains", ("list", "list")): _sets(1),
        ("sets.intersects", ("list", "list")): _sets(1),
        ("sets.equivalent", ("list", "list")): _sets(2),
        **{(name, (kind, kind)): _by_shorter for name in _ORDERINGS for kind in ("string", "bytes")},
    }
)

_BEFORE_37: Mapping[Rule, Rule] = MappingProxyType({_by_prefix: _by_length, _by_flattening: _by_negative_flattening})

LATE: frozenset[Rule] = frozenset({_by_joined_length, _by_result_size, _by_traversal})
"""Rules that need the result, or traverse lists that the call itself bounds. All others are charged before the call, so
that a call that costs too much does not begin."""
