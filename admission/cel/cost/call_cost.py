"""Estimates of a call: its maximal cost by the sizes of its arguments, and the size of its result.

The rules are those of cel-go (checker/cost.go, ext/lists.go, ext/sets.go) and of Kubernetes' libraries
(k8s.io/apiserver pkg/cel/library/cost.go), v0.26 and v0.36; calls that they do not name cost 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from admission.cel.core import ast, size_estimate, types
from admission.cel.core.declarations import Overload
from admission.cel.core.size_estimate import MAX, STRING_FACTOR, Size, scaled
from admission.cel.core.types import Type


@dataclass(frozen=True, slots=True)
class Part:
    """A receiver or argument. element: the size of a list's elements, if it is declared."""

    node: ast.Node
    type_: Type
    size: Size
    element: Size


class CallEstimate(NamedTuple):
    """The cost of a call without that of its arguments, and the size of its result if it is known."""

    cost: int
    size: Size | None = None


Rule = Callable[[Sequence[Part]], CallEstimate]
"""Maps the receiver, if there is one, and the arguments to an estimate."""


def estimate(overload: Overload, parts: Sequence[Part], release: int) -> CallEstimate:
    """Return the worst case of a call of one overload, by Kubernetes' rules."""
    if overload.name == "sort":
        return sorting(parts[0], overload.parameters[0].parameters[0])
    if overload.name == "includes" and release < 37:
        return CallEstimate(48)
    if overload.name == "matches" and not overload.member and release < 37:
        return CallEstimate(1)
    rule = _RULES.get((overload.name, overload.member))
    if rule is None:
        rule = _BY_TYPE.get((overload.name, tuple(type_.name for type_ in overload.parameters)))
    return rule(parts) if rule is not None else CallEstimate(1)


def bound(overload: Overload, parts: Sequence[Part], release: int) -> CallEstimate:
    """Return an upper bound: Kubernetes' estimate, raised where a call can cost more than that."""
    charge = estimate(overload, parts, release)
    cost = charge.cost
    if overload.name in ("startsWith", "endsWith"):
        cost = max(scaled(part.size.most, STRING_FACTOR) for part in parts)
    elif overload.name == "validate":
        cost = scaled(scaled(min(parts[1].size.most + 1, MAX), STRING_FACTOR), _LONGEST_PATTERN)
    elif overload.name == "join":
        cost = 2 * cost
    elif _RULES.get((overload.name, overload.member)) in (_by_elements, _includes) and _is_nested(parts[0].type_):
        cost = MAX
    return CallEstimate(min(cost, MAX), charge.size)


_LONGEST_PATTERN = 1_103 * size_estimate.PATTERN_FACTOR


def _is_nested(type_: Type) -> bool:
    """Whether a list's elements may have elements, which a traversal charges too."""
    return bool(type_.parameters) and (type_.parameters[0].name in ("list", "map", "dyn", "any", types.OPTIONAL))


def _by_length(factor: float = STRING_FACTOR, *, sized: bool = False) -> Rule:
    """Charge the length of the first argument. sized: the result is as long."""

    def rule(parts: Sequence[Part]) -> CallEstimate:
        size = parts[0].size
        return CallEstimate(scaled(size.most, factor), size if sized else None)

    return rule


def _prefix(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(scaled(parts[1].size.most, STRING_FACTOR))


def _format(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(scaled(parts[0].size.most, STRING_FACTOR))


def _to_bytes(parts: Sequence[Part]) -> CallEstimate:
    size = parts[0].size
    return CallEstimate(scaled(size.most, STRING_FACTOR), Size(size.least, size.most * 4 & MAX))


def _to_string(parts: Sequence[Part]) -> CallEstimate:
    size = parts[0].size
    return CallEstimate(scaled(size.most, STRING_FACTOR), Size(size.least // 4, size.most))


def _quote(parts: Sequence[Part]) -> CallEstimate:
    size = parts[0].size
    return CallEstimate(scaled(size.most, STRING_FACTOR), Size(size.least + 2, size.most * 2 + 2 & MAX))


def _by_elements(parts: Sequence[Part]) -> CallEstimate:
    """Charge 1 for each element, more if elements are strings; a string, or a dyn, by its length."""
    target = parts[0]
    if not target.type_.parameters:
        return CallEstimate(scaled(target.size.most, STRING_FACTOR))
    each = 1
    if target.type_.parameters[0].name in ("string", "bytes"):
        each += scaled(target.element.most, STRING_FACTOR)
    return CallEstimate(min(target.size.most * each, MAX))


def _includes(parts: Sequence[Part]) -> CallEstimate:
    if parts[0].type_.parameters:
        return _by_elements(parts)
    return CallEstimate(parts[0].size.most)


def _replace(parts: Sequence[Part]) -> CallEstimate:
    text, old, new = (part.size for part in parts[:3])
    size = Size(_replaced_least(text, old, new), _replaced_most(text, old, new))
    return CallEstimate(scaled(text.most, 2 * STRING_FACTOR), size)


def _replaced_most(text: Size, old: Size, new: Size) -> int:
    if old.least == 0:
        return min((text.most + 1) * new.most + text.most, MAX)
    if new.most <= old.least:
        return text.most
    return min(math.ceil(float(text.most) / float(old.least)) * new.most, MAX)


def _replaced_least(text: Size, old: Size, new: Size) -> int:
    if old.most == 0:
        return min((text.least + 1) * new.least + text.least, MAX)
    if old.most <= new.least:
        return text.least
    return min(math.ceil(float(text.least) / float(old.most)) * new.least, MAX)


def _split(parts: Sequence[Part]) -> CallEstimate:
    text = parts[0].size
    most = text.most
    if len(parts) > 2 and isinstance(parts[2].node, ast.Literal) and type(parts[2].node.value) is int:
        most = parts[2].node.value & MAX
    return CallEstimate(scaled(text.most, 2 * STRING_FACTOR), Size(0, most))


def _join(parts: Sequence[Part]) -> CallEstimate:
    elements = parts[0].size
    size = size_estimate.EMPTY
    if parts[0].type_.parameters:
        size = elements.times(parts[0].element)
    if len(parts) > 1:
        between = Size(max(elements.least - 1, 0), max(elements.most - 1, 0))
        size = size.plus(parts[1].size.times(between))
    return CallEstimate(scaled(size.most, STRING_FACTOR), size)


def _pattern(parts: Sequence[Part]) -> int:
    text = scaled(min(parts[0].size.most + 1, MAX), STRING_FACTOR)
    return min(text * scaled(parts[1].size.most, size_estimate.PATTERN_FACTOR), MAX)


def _matches(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(_pattern(parts))


def _find(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(_pattern(parts), Size(0, parts[0].size.most))


def _contains(parts: Sequence[Part]) -> CallEstimate:
    text, part = (scaled(part.size.most, STRING_FACTOR) for part in parts)
    return CallEstimate(min(text * part, MAX))


def _validate(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(
        scaled(scaled(parts[1].size.most, STRING_FACTOR), _FORMAT_PATTERN * size_estimate.PATTERN_FACTOR)
    )


_FORMAT_PATTERN = 128
_ADDRESS = 16
"""Octets of the longest address."""

_ADDRESS_COST = scaled(2 * _ADDRESS, STRING_FACTOR)
_NETWORK_COST = _ADDRESS_COST + scaled(_ADDRESS, STRING_FACTOR) + 1


def _address(base: int, *, reads: bool) -> Rule:
    return lambda parts: CallEstimate(min(base + (scaled(parts[1].size.most, STRING_FACTOR) if reads else 0), MAX))


def _membership(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(scaled(parts[1].size.most, 1))


def _comparison(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(scaled(min(parts[0].size.most, parts[1].size.most), STRING_FACTOR))


def _equality(parts: Sequence[Part]) -> CallEstimate:
    left, right = parts
    if left.type_ == right.type_:
        if left.type_ in (types.IP, types.CIDR, types.QUANTITY, types.SEMVER):
            return CallEstimate(1)
        if left.type_ == types.NAMED_FORMAT:
            return CallEstimate(scaled(64, STRING_FACTOR))
        if left.type_ == types.URL:
            return CallEstimate(scaled(1 if right.size == size_estimate.UNKNOWN else right.size.most, STRING_FACTOR))
    return _comparison(parts)


def _concatenation(parts: Sequence[Part]) -> CallEstimate:
    size = parts[0].size.plus(parts[1].size)
    return CallEstimate(scaled(size.most, STRING_FACTOR), size)


def _list_concatenation(parts: Sequence[Part]) -> CallEstimate:
    return CallEstimate(1, parts[0].size.plus(parts[1].size))


def _allocation(factor: float, size: Size) -> CallEstimate:
    return CallEstimate(min(scaled(size.most, factor) + 1 + size_estimate.LIST_COST, MAX), size)


def _number(part: Part, default: int) -> int:
    """Return the value of an int literal, at least 0, or the default."""
    if isinstance(part.node, ast.Literal) and type(part.node.value) is int:
        return max(part.node.value, 0)
    return default


def _slice(parts: Sequence[Part]) -> CallEstimate:
    length = (_number(parts[2], parts[0].size.most) - _number(parts[1], 0)) & MAX
    return _allocation(1, Size(length, length))


def _range(parts: Sequence[Part]) -> CallEstimate:
    length = _number(parts[0], MAX)
    return _allocation(1, Size(length, length))


def _flatten(parts: Sequence[Part]) -> CallEstimate:
    return _allocation(float(_number(parts[1], MAX) if len(parts) > 1 else 1), parts[0].size)


def _pairwise(part: Part, factor: float) -> CallEstimate:
    return _allocation(factor, part.size.times(part.size))


def _sets(factor: float) -> Rule:
    return lambda parts: CallEstimate(min(scaled(parts[0].size.times(parts[1].size).most, factor) + 1, MAX))


def sorting(keys: Part, type_: Type) -> CallEstimate:
    """Estimate sorting by a list of keys of a type."""
    return _pairwise(keys, 2 + STRING_FACTOR if type_ in (types.STRING, types.BYTES) else 2)


_RULES: Mapping[tuple[str, bool], Rule] = MappingProxyType(
    {
        **dict.fromkeys(
            ((name, True) for name in ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf")), _by_elements
        ),
        ("includes", True): _includes,
        ("url", False): _by_length(sized=True),
        **dict.fromkeys(
            ((name, True) for name in ("lowerAscii", "upperAscii", "substring", "trim")), _by_length(sized=True)
        ),
        ("replace", True): _replace,
        ("split", True): _split,
        ("join", True): _join,
        ("find", True): _find,
        ("findAll", True): _find,
        **dict.fromkeys(
            (
                (name, False)
                for name in ("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver")
            ),
            _by_length(),
        ),
        ("ip.isCanonical", False): _by_length(2 * STRING_FACTOR),
        ("validate", True): _validate,
        ("matches", True): _matches,
        ("matches", False): _matches,
        ("contains", True): _contains,
        ("startsWith", True): _prefix,
        ("endsWith", True): _prefix,
        ("format", True): _format,
        ("strings.quote", False): _quote,
        ("_==_", False): _equality,
        ("_!=_", False): _comparison,
        ("slice", True): _slice,
        ("lists.range", False): _range,
        ("flatten", True): _flatten,
        ("reverse", True): lambda parts: _allocation(1, parts[0].size),
        ("distinct", True): lambda parts: _pairwise(parts[0], 2),
        ("sets.contains", False): _sets(1),
        ("sets.intersects", False): _sets(1),
        ("sets.equivalent", False): _sets(2),
    }
)

_ORDERINGS = ("_<_", "_<=_", "_>_", "_>=_")
_BY_TYPE: Mapping[tuple[str, tuple[str, ...]], Rule] = MappingProxyType(
    {
        ("bytes", ("string",)): _to_bytes,
        ("string", ("bytes",)): _to_string,
        ("@in", ("A", "list")): _membership,
        ("_+_", ("string", "string")): _concatenation,
        ("_+_", ("bytes", "bytes")): _concatenation,
        ("_+_", ("list", "list")): _list_concatenation,
        ("containsIP", (types.CIDR.name, "string")): _address(_ADDRESS_COST, reads=True),
        ("containsIP", (types.CIDR.name, types.IP.name)): _address(_ADDRESS_COST, reads=False),
        ("containsCIDR", (types.CIDR.name, "string")): _address(_NETWORK_COST, reads=True),
        ("containsCIDR", (types.CIDR.name, types.CIDR.name)): _address(_NETWORK_COST, reads=False),
        **{(name, (type_, type_)): _comparison for name in _ORDERINGS for type_ in ("string", "bytes")},
    }
)
