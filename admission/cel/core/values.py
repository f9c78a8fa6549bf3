"""Values of CEL as native Python values, and classes for the kinds that Python lacks.

bool, int, double, string, bytes and null are Python's bool, int, float, str, bytes and None; a list is a tuple, a map
a dict. Kinds are told apart by `type(value)`: bool is no int here, nor is Uint.
"""

import ipaddress
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.cel.core import errors


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Truth:
    """A bool as the key of a map: Python's True would be the key 1."""

    __slots__ = ("value",)

    def __init__(self, *, value: bool) -> None:
        self.value = value


TRUE = Truth(value=True)
FALSE = Truth(value=False)


class Domains(dict[Any, Any]):
    """The outer map of attributes and capacities: any domain may be read, an unknown one is empty."""

    __slots__ = ()

    def __missing__(self, key: object) -> "Names":
        return EMPTY


class Names(dict[str, Any]):
    """The inner map of a domain: only strings are keys, and looking up anything else finds nothing."""

    __slots__ = ()


class Computed(dict[str, Any]):
    """A map of known names whose values are computed when they are first read, a failure included."""

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
    """An optional value; present tells one that holds null from none."""

    value: Any
    present: bool


NONE = Optional(None, present=False)


def some(value: Any) -> Optional:
    return Optional(value, present=True)


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What `type(x)` returns and a type's name means."""

    name: str


@dataclass(frozen=True, slots=True, order=True)
class Duration:
    nanoseconds: int


@dataclass(frozen=True, slots=True, order=True)
class Timestamp:
    """An instant, in nanoseconds since 1970 in UTC; offset: seconds of the zone it is written in."""

    nanoseconds: int
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Quantity:
    """An amount in units of 10⁻⁹, to which Kubernetes rounds.

    scale: the power of ten of the 64-bit form in which apimachinery keeps most amounts, None in its slow form, an
    arbitrary-precision decimal, which is never an integer to it. computed: the result of add or sub, which cel-go
    finds equal only on the left of `==`.
    """

    nanos: int
    scale: int | None
    computed: bool = False


@dataclass(frozen=True, slots=True)
class Semver:
    """A version. order: compares as semver 2.0 says, build metadata left out."""

    order: tuple[Any, ...]
    numbers: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class IP:
    address: ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class CIDR:
    """A network; address keeps the bits behind the prefix."""

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    prefix: int


@dataclass(frozen=True, slots=True)
class URL:
    """An absolute URL or path. text: as Go writes it again, by which URLs are equal."""

    text: str
    scheme: str
    host: str
    path: str
    query: str


@dataclass(frozen=True, slots=True)
class Empty:
    """The message without fields, the only one that stays a message."""


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format of strings; validate returns what is wrong with one.

    pattern_size: of the regular expression that Kubernetes charges for a test.
    """

    name: str
    pattern_size: int
    validate: Callable[[str], list[str]]


EMPTY = Names()
_MAP_CLASSES: tuple[type, ...] = (dict, Names, Domains, Computed)
MAPS = frozenset(_MAP_CLASSES)


def key_of(value: Any) -> Any:
    """Return how a value is looked up in a dict: bools apart from numbers, which Python compares by value as CEL."""
    if value is True:
        return TRUE
    if value is False:
        return FALSE
    return value


def from_key(key: Any) -> Any:
    return key.value if type(key) is Truth else key


def of_json(value: Any) -> Any:
    """Return JSON as expressions see it. Numbers beyond 64 bits become doubles, as Kubernetes reads them."""
    kind = type(value)
    # What json.loads returns is told by its class alone, which matters where a claim is converted for every review.
    if kind is str or value is None or kind is bool or kind is float:
        return value
    if kind is dict:
        return {str(key): of_json(element) for key, element in value.items()}
    if kind is list:
        return tuple([of_json(element) for element in value])
    if kind is int:
        return value if -(2**63) <= value < 2**63 else float(value)
    if isinstance(value, Mapping):
        return {str(key): of_json(element) for key, element in value.items()}
    if isinstance(value, list | tuple):
        return tuple(map(of_json, value))
    raise TypeError(f"no JSON: {type(value).__name__}")


TYPE_NAMES = {
    "null": "null_type",
    "duration": "google.protobuf.Duration",
    "timestamp": "google.protobuf.Timestamp",
}
"""How CEL names the types that signatures write shorter."""

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
    Names: "map",
    Domains: "map",
    Computed: "map",
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
    """Name the type of a value."""
    return _TYPES[type(value)]
