"""The constraints of a claim while its devices are being chosen: devices are added, and removed in reverse order.

Mirrors `matchAttributeConstraint` and `distinctAttributeConstraint` of `k8s.io/dynamic-resource-allocation/structured`
(v0.37.1: internal/incubating; internal/experimental where list attributes are on), and where v0.36.3 differs. A
constraint is monotonic: a device that it refuses it would refuse with more devices as well.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from admission.api.kubernetes.devices import AttributeValue, Device, Version
from admission.dra.compatibility import SchedulerProfile

Value = tuple[str, object]
"""The type of an attribute and its value; for a list, the frozen set of its values."""

UNREADABLE: Value = ("", None)
"""A value that cannot be compared: of an unknown type, or a list where lists are not compared."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A constraint: the attribute, whether values must be equal or all different, and the requests that it binds.

    requests: `request` or `request/alternative`, as the constraint writes them; empty for all.
    """

    attribute: str
    distinct: bool
    requests: frozenset[str]

    def binds(self, request: str, option: str) -> bool:
        """Return whether devices for a request, or for its alternative with this full name, are bound."""
        return not self.requests or request in self.requests or option in self.requests


class Running(Protocol):
    """A constraint with the devices added so far."""

    def add(self, value: Value | None, request: str) -> bool:
        """Add a device by its attribute's value, None if it lacks it; return False and change nothing if refused."""

    def remove(self, request: str) -> None:
        """Remove the device that was added last."""

    def state(self) -> Hashable:
        """Return all that later answers depend on."""


def running(rule: Rule, profile: SchedulerProfile) -> Running:
    """Return a constraint without devices, with the behaviour of the profile's kube-scheduler."""
    lists, known_bugs = profile.features.list_attributes, profile.known_bugs
    if not rule.distinct:
        return (_ShrinkingSet() if known_bugs.lists_only_shrink else _SetMatch()) if lists else _Match()
    if known_bugs.distinct_forgets:
        return _Forgetful(lists=lists)
    return _Distinct(lists=lists)


def value_of(device: Device, driver: str, attribute: str, *, lists: bool) -> Value | None:
    """Return an attribute with its type; None when the device does not have it.

    A name is looked up as written; without its domain too, where the domain is the driver's (`lookupAttribute`).
    """
    found = attribute_of(device, driver, attribute)
    return None if found is None else _value(found[0], lists=lists)


def attribute_of(device: Device, driver: str, attribute: str) -> tuple[AttributeValue | None, str] | None:
    """Return an attribute as the slice has it, with the name of its type, since True == 1 in Python."""
    domain, slash, name = attribute.partition("/")
    for key in (attribute, name) if slash and domain == driver else (attribute,):
        if key in device.attributes:
            value = device.attributes[key]
            return (value, _type(value[0] if isinstance(value, tuple) and value else value))
    return None


def _value(value: AttributeValue | None, *, lists: bool) -> Value:
    if value is None or (isinstance(value, tuple) and not (lists and value)):
        return UNREADABLE
    if isinstance(value, tuple):
        return (_type(value[0]), frozenset(value))
    return (_type(value), frozenset((value,)) if lists else value)


def _type(value: object) -> str:
    return "version" if isinstance(value, Version) else type(value).__name__


class _Match:
    """matchAttribute without lists: all values equal that of the first device."""

    def __init__(self) -> None:
        self._first: Value | None = None
        self._added = 0

    def add(self, value: Value | None, request: str) -> bool:  # noqa: ARG002 - only 1.36 looks at the request
        if value is None:
            return False
        if not self._added:
            self._first = value
        elif value == UNREADABLE or value != self._first:
            return False
        self._added += 1
        return True

    def remove(self, request: str) -> None:  # noqa: ARG002 - the same
        self._added -= 1

    def state(self) -> Hashable:
        return self._first if self._added else None


class _SetMatch:
    """matchAttribute with lists: devices have a value in common. The common values are kept per device added."""

    def __init__(self) -> None:
        self._common: list[Value] = []

    def add(self, value: Value | None, request: str) -> bool:  # noqa: ARG002 - the same
        if value is None or value == UNREADABLE:
            return False
        common = _common(self._common[-1], value) if self._common else value
        if common is None:
            return False
        self._common.append(common)
        return True

    def remove(self, request: str) -> None:  # noqa: ARG002 - the same
        self._common.pop()

    def state(self) -> Hashable:
        return self._common[-1] if self._common else None


class _ShrinkingSet:
    """matchAttribute with lists as in 1.36: removing a device does not restore the values that it excluded."""

    def __init__(self) -> None:
        self._common: Value = UNREADABLE
        self._added = 0

    def add(self, value: Value | None, request: str) -> bool:  # noqa: ARG002 - the same
        if value is None or value == UNREADABLE:
            return False
        common = _common(self._common, value) if self._added else value
        if common is None:
            return False
        self._common = common
        self._added += 1
        return True

    def remove(self, request: str) -> None:  # noqa: ARG002 - the same
        self._added -= 1

    def state(self) -> Hashable:
        return (self._common, self._added)


class _Distinct:
    """distinctAttribute: all values differ; values of different types always do."""

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self._values: list[Value] = []

    def add(self, value: Value | None, request: str) -> bool:  # noqa: ARG002 - the same
        if value is None or not _differs(value, self._values, lists=self._lists):
            return False
        self._values.append(value)
        return True

    def remove(self, request: str) -> None:  # noqa: ARG002 - the same
        self._values.pop()

    def state(self) -> Hashable:
        return frozenset(self._values)


class _Forgetful:
    """distinctAttribute as in 1.36: it keeps one value per request, and none once a device of it was removed."""

    def __init__(self, *, lists: bool) -> None:
        self._lists = lists
        self._values: dict[str, Value] = {}
        self._added = 0

    def add(self, value: Value | None, request: str) -> bool:
        if value is None:
            return False
        if self._added and not _differs(value, list(self._values.values()), lists=self._lists):
            return False
        self._values[request] = value
        self._added += 1
        return True

    def remove(self, request: str) -> None:
        self._values.pop(request, None)
        self._added -= 1

    def state(self) -> Hashable:
        return (frozenset(self._values.items()), self._added)


def _differs(value: Value, others: list[Value], *, lists: bool) -> bool:
    if lists:
        return value != UNREADABLE and not any(_common(value, other) is not None for other in others)
    return not others or (value != UNREADABLE and value not in others)


def _common(one: Value, other: Value) -> Value | None:
    """Return the values that two sets have in common; None if there are none."""
    if one[0] != other[0] or not isinstance(one[1], frozenset) or not isinstance(other[1], frozenset):
        return None
    found = one[1] & other[1]
    return (one[0], found) if found else None
