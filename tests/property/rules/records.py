"""What a record is about: pools with their devices, requests, and the use of a device by a request."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Json = dict[str, Any]
DeviceKey = tuple[str, str, str]
Counts = dict[tuple[str, str], Fraction]


@dataclass(frozen=True, eq=False)
class Setting:
    """Where and when allocations are judged: in which release of Kubernetes, with which features, for which node."""

    release: int
    features: Mapping[str, bool]
    node: Json


@dataclass(frozen=True, eq=False)
class Device:
    """A device in a slice; two are the same if they are the same object."""

    driver: str
    pool: str
    obj: Json
    slice: Json

    @property
    def key(self) -> DeviceKey:
        return self.driver, self.pool, self.obj["name"]

    @property
    def is_shared(self) -> bool:
        return bool(self.obj.get("allowMultipleAllocations"))

    def __str__(self) -> str:
        return "/".join(self.key)


@dataclass(frozen=True, eq=False)
class Pool:
    """A driver's pool as a node sees it, with its devices of all nodes, `everywhere`.

    `wrong` says why nothing may be taken from it.
    """

    devices: Sequence[Device] = ()
    everywhere: Sequence[Device] = ()
    counters: Counts = field(default_factory=dict)
    wrong: str = ""


@dataclass(frozen=True, eq=False)
class Ask:
    """A request, or one alternative of a request (then `name` is "request/alternative")."""

    claim: int
    request: str
    name: str
    spec: Json

    @property
    def is_admin(self) -> bool:
        return bool(self.spec.get("adminAccess"))

    @property
    def wants_all(self) -> bool:
        return bool(self.spec.get("allocationMode") == "All")


@dataclass(frozen=True, eq=False)
class Use:
    """One device given to one request, in the order in which it was given."""

    parsed: Ask
    device: Device


def key(entry: Json) -> DeviceKey:
    return entry["driver"], entry["pool"], entry["device"]
