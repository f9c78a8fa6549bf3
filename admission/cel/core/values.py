"""CEL values: native Python values, and classes for the types that Python lacks.

bool, int, double, string, bytes and null are Python's bool, int, float, str, bytes and None; a list is a tuple, a map
a dict. `type(value)` distinguishes them: neither bool nor Uint is an int here.
"""

import ipaddress
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.cel.core import errors


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class BoolKey:
    """A bool as a map key: Python's True equals the key 1."""

    __slots__ = ("value",)

    def __init__(self, *, value: bool) -> None:
        self.value = value


TRUE = BoolKey(value=True)
FALSE = BoolKey(value=False)


class IdentityKey:
    """A list, map or another value as a map key, of which cel-go looks at the identity only."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        # Python has one empty tuple, whereas two empty lists in an expression are two keys.
        return type(other) is IdentityKey and other.value is self.value and self.value != ()

    def __hash__(self) -> int:
        return id(self.value)


class DomainMap(dict[Any, Any]):
    """The outer map of attributes or capacities. Any domain may be read; an unknown one is empty."""

    __slots__ = ()

    def __missing__(self, key: object) -> "StringMap":
        return EMPTY


class StringMap(dict[str, Any]):
    """A map with string keys only, such as that of a domain: a look-up of anything else finds nothing."""

    __slots__ = ()


class LazyMap(dict[str, Any]):
    """A map of known names whose values, or failures, are computed when they are first read."""

    __slots__ = ("_compute", "_failed", "_names")

    def __init__(self, names: Collection[str], compute: Callable[[str], Any]) -> None:
        super().__init__()
        self._names = names
        self._compute = compute
        self._failed: dict[str, Exception] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __missing__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        if name in self._failed:
            raise self._failed[name]
        try:
            value = self._compute(name)
        except errors.EvaluationError as error:
            self._failed[name] = error
            raise
        self[name] = value
        return value


@dataclass(frozen=True, slots=True)
class Optional:
    """An optional value. present distinguishes an optional that holds null from none.

    held: its value, or Unreadable for one that can be asked whether it has a value, and for nothing else.
    """

    held: Any
    present: bool

    @property
    def value(self) -> Any:
        if type(self.held) is Unreadable:
            raise errors.EvaluationError(f"unsupported conversion to ref.Val: {self.held.kind}")
        return self.held


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What an optional holds when its value could not be converted. kind: of the value, in CEL."""

    kind: str


NONE = Optional(None, present=False)


def some(value: Any) -> Optional:
    return Optional(value, present=True)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """A type as a value: the result of `type(x)`, or a type's name in an expression."""

    name: str


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanoseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """An instant, in nanoseconds since 1970 in UTC; offset: that of its textual form's zone, in seconds."""

    nanoseconds: int
    offset: int = field(default=0, compare=False)


@dataclass(slots=True, eq=False)
class Amount:
    """The number that a quantity holds: nanos, in units of 10⁻⁹, to which Kubernetes rounds.

    scale: the power of ten in whose units apimachinery stores it; wide: in any number of digits (inf.Dec), for which
    `isInteger` is always false, else in 64 bits. shared: whether other evaluations read it, so that none may change it.
    """

    nanos: int
    scale: int
    wide: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """A quantity, which is identical only to itself: functions of Kubernetes may change its amount in place.

    computed: whether it is a result of add or sub, which cel-go compares only on the left of `==`.
    """

    amount: Amount
    computed: bool = False


@dataclass(frozen=True, slots=True)
class Semver:
    """A version. order: a sort key by the precedence of semver 2.0, without build metadata."""

    order: tuple[Any, ...]
    numbers: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class IP:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class CIDR:
    """A network. address keeps the host bits."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    prefix: int


@dataclass(frozen=True, slots=True)
class URL:
    """An absolute URL or path. text: Go's normalized form, by which URLs are compared."""

    text: str
    scheme: str
    host: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class Empty:
    """google.protobuf.Empty, the only message that stays a message."""


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named format of strings. validate: returns the problems of a string.

    pattern_size: the length of the regular expression by which Kubernetes charges a validation.
    """

    name: str
    pattern_size: int
    validate: Callable[[str], list[str]]


EMPTY = StringMap()
_MAP_CLASSES: tuple[type, ...] = (dict, StringMap, DomainMap, LazyMap)
MAPS = frozenset(_MAP_CLASSES)
_KEYS_BY_VALUE: frozenset[type] = frozenset(
    {int, Uint, float, str, type(None), Duration, Timestamp, TypeValue, IP, CIDR, BoolKey, IdentityKey}
)


def key_of(value: Any) -> Any:
    """Return the dict key of a value. Bools get keys of their own; Python compares numbers by value, as CEL does."""
    if value is True:
        return TRUE
    if value is False:
        return FALSE
    return value if type(value) in _KEYS_BY_VALUE else IdentityKey(value)


def from_key(key: Any) -> Any:
    return key.value if type(key) in (BoolKey, IdentityKey) else key


def from_json(value: Any) -> Any:
    """Return the CEL value of JSON. Integers beyond 64 bits become doubles, as Kubernetes reads them."""
    kind = type(value)
    # The classes that json.loads returns come first, by identity: a claim is converted for every review.
    if kind is str or value is None or kind is bool or kind is float:
        return value
    if kind is dict:
        return {str(key): from_json(element) for key, element in value.items()}
    if kind is list:
        return tuple([from_json(element) for element in value])
    if kind is int:
        return value if -(2**63) <= value < 2**63 else float(value)
    if isinstance(value, Mapping):
        return {str(key): from_json(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(from_json, value))
    raise TypeError(f"no JSON: {type(value).__name__}")


TYPE_NAMES = {
    "null": "null_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}
"""CEL's names of the types that signatures abbreviate."""

_TYPES = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    StringMap: "map",
    DomainMap: "map",
    LazyMap: "map",
    Optional: "optional_type",
    TypeValue: "type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    IP: "net.IP",
    CIDR: "net.CIDR",
    URL: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
    Empty: "google.protobuf.Empty",
}


def type_name(value: Any) -> str:
    """Return the name of a value's type."""
    return _TYPES[type(value)]
