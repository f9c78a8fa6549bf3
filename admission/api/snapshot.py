"""A frozen view of the cluster: a decision reads only one snapshot, so it cannot contradict itself."""

import weakref
from collections.abc import Collection, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from admission.api.capacity.node_pools import NodePool
from admission.api.capacity.node_shapes import NodeShape
from admission.api.capacity.provisioning_requests import ProvisioningRequest
from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.device_taint_rules import TaintRule
from admission.api.kubernetes.devices import DeviceClass, Slice
from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.nodes import Namespace, Node
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.kubernetes.priority_classes import PriorityClass
from admission.api.muster.claim_policies import ClaimPolicy
from admission.api.muster.gangs import Gang
from admission.api.muster.meters import Meter
from admission.api.muster.queues import Queue
from admission.api.storage.storage import Storage
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.errors import MalformedObjectError

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The objects that a cycle may read. Namespaced objects are keyed `namespace/name`, jobs and pods by UID.

    parents: the workloads of pods besides batch Jobs: by kind, written `Kind.group`, then by UID, but PodGroups by
    `namespace/name`. unwatched: why a kind cannot be read, by kind.
    malformed: the errors of objects that cannot be decoded, by (kind, key); decisions ignore these objects, and reports
    name them. unread_queues: the metadata of such queues, since they can be deleted all the same. storage: None where
    nobody reads it.
    """

    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    slices: Mapping[str, Slice] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    taint_rules: Mapping[str, TaintRule] = field(default_factory=dict)
    claims: Mapping[str, Claim] = field(default_factory=dict)
    templates: Mapping[str, ClaimTemplate] = field(default_factory=dict)
    pods: Mapping[Uid, Pod] = field(default_factory=dict)
    jobs: Mapping[Uid, Job] = field(default_factory=dict)
    parents: Mapping[str, Mapping[str, Parent]] = field(default_factory=dict)
    unwatched: Mapping[str, str] = field(default_factory=dict)
    queues: Mapping[QueueName, Queue] = field(default_factory=dict)
    meters: Mapping[MeterName, Meter] = field(default_factory=dict)
    gangs: Mapping[str, Gang] = field(default_factory=dict)
    policies: Mapping[str, ClaimPolicy] = field(default_factory=dict)
    shapes: Mapping[str, NodeShape] = field(default_factory=dict)
    node_pools: Mapping[str, NodePool] = field(default_factory=dict)
    provisioning_requests: Mapping[str, ProvisioningRequest] = field(default_factory=dict)
    priorities: Mapping[str, PriorityClass] = field(default_factory=dict)
    malformed: Mapping[tuple[str, str], MalformedObjectError] = field(default_factory=dict)
    unread_queues: Mapping[QueueName, Meta] = field(default_factory=dict)
    storage: Storage | None = None


class _Gone:
    """Stands in a version for an object of its base that was dropped."""


_GONE = _Gone()
_UNKNOWN = _Gone()


class Version(Mapping[K, V]):
    """All objects of one kind at one time, with the keys that differ from earlier versions.

    So finding one new pod does not require comparing fifty thousand, and a version that follows another costs no copy
    of them: they share a base, beside which each has what differs from it. Once that is much, the next version gets a
    base of its own. Objects keep their order, as in a dict; one that was dropped may come again in its old place.

    Only `put` and `drop` change a version, and nothing does once another one follows it. Earlier versions are
    referenced weakly, so they live as long as another object holds them.
    """

    __slots__ = ("__weakref__", "_length", "_shares", "base", "own", "touched")

    REMEMBERED = 8
    """How many earlier versions are tracked: a reader that runs once in a cycle has one of the last few."""

    PART = 64
    """A version shares the base of another while that differs from it in less than one of so many objects."""

    def __init__(self, before: "Version[K, V] | None" = None) -> None:
        self.touched: list[tuple[weakref.ref[Version[K, V]], dict[K, None]]] = []
        """Earlier versions, each with the keys that were put or dropped since; the latest version first."""
        self.base: dict[K, V] = {}
        """All objects, or, if it is shared with other versions, those from which this one differs by `own`."""
        self.own: dict[K, V | _Gone] = {}
        self._shares = False
        self._length = 0
        """The number of objects, if the base is shared."""
        if before is None:
            return
        # With more keys than objects, comparing all is no slower; a version that is kept would gather keys for ever.
        most = max(len(before), self.PART)
        earlier = [(ref, dict(keys)) for ref, keys in before.touched if ref() is not None and len(keys) <= most]
        self.touched = [(weakref.ref(before), {}), *earlier][: self.REMEMBERED]
        if self.PART * len(before.own) < len(before.base):
            self.base, self.own, self._shares, self._length = before.base, dict(before.own), True, len(before)
        else:
            self.base = dict(before.items())

    def __len__(self) -> int:
        return self._length if self._shares else len(self.base)

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.pairs()) if self.own else iter(self.base)

    def __contains__(self, key: object) -> bool:
        own: Mapping[Any, Any] = self.own
        found = own.get(key, _UNKNOWN)
        return key in self.base if found is _UNKNOWN else found is not _GONE

    def __getitem__(self, key: K) -> V:
        found = self.own.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            return self.base[key]
        if isinstance(found, _Gone):
            raise KeyError(key)
        return found

    def get(self, key: K, default: Any = None) -> Any:
        """Return an object, or the default."""
        found = self.own.get(key, _UNKNOWN)
        if found is _UNKNOWN:
            return self.base.get(key, default)
        return default if found is _GONE else found

    def keys(self) -> KeysView[K]:
        """Return a view of the keys."""
        return super().keys() if self.own else self.base.keys()

    def items(self) -> ItemsView[K, V]:
        """Return a view of keys and objects."""
        return _Items(self) if self.own else self.base.items()

    def values(self) -> ValuesView[V]:
        """Return a view of the objects."""
        return _Values(self) if self.own else self.base.values()

    def put(self, key: K, value: V) -> None:
        """Add or replace an object."""
        if self._shares:
            self._length += key not in self
            self.own[key] = value
        else:
            self.base[key] = value
        self._touch(key)

    def drop(self, key: K) -> None:
        """Remove an object."""
        if not self._shares:
            del self.base[key]
        elif key not in self:
            raise KeyError(key)
        else:
            self._length -= 1
            if key in self.base:
                self.own[key] = _GONE
            else:
                del self.own[key]
        self._touch(key)

    def since(self, before: Mapping[K, V]) -> Iterable[K] | None:
        """Return the keys that were put or dropped since an earlier version; None if that version is not tracked."""
        found = next((keys for ref, keys in self.touched if ref() is before), None)
        if found is None and isinstance(before, Version) and before.base is self.base:
            return before.own | self.own
        return found

    def pairs(self) -> Iterator[tuple[K, V]]:
        """Yield keys and objects; `items` is faster where nothing differs from the base."""
        own, base = self.own, self.base
        for key, value in base.items():
            found = own.get(key, _UNKNOWN)
            if found is _UNKNOWN:
                yield key, value
            elif not isinstance(found, _Gone):
                yield key, found
        for key, found in own.items():
            if key not in base and not isinstance(found, _Gone):
                yield key, found

    def _touch(self, key: K) -> None:
        for _, keys in self.touched:
            keys[key] = None


class _Items(ItemsView[K, V]):
    """The keys and objects of a version that differs from its base."""

    _mapping: Version[K, V]

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping.pairs()


class _Values(ValuesView[V]):
    """The objects of such a version."""

    _mapping: Version[Any, V]

    def __iter__(self) -> Iterator[V]:
        return (value for _, value in self._mapping.pairs())


class Merged(Generic[K, V]):
    """One mapping of several, of which the last one that has a key counts, followed by what differs in each."""

    def __init__(self) -> None:
        self._parts: tuple[Mapping[K, V], ...] = ()
        self._merged: Version[K, V] = Version()

    def update(self, *parts: Mapping[K, V]) -> Mapping[K, V]:
        """Return the mapping of these; the same object as before if nothing differs."""
        pairs = zip_longest(self._parts, parts, fillvalue=_NOTHING)
        keys = dict.fromkeys(key for before, after in pairs for key in changed(before, after))
        self._parts = parts
        if keys:
            self._merged = Version(self._merged)
            for key in keys:
                part = next((one for one in reversed(parts) if key in one), None)
                if part is not None:
                    self._merged.put(key, part[key])
                elif key in self._merged:
                    self._merged.drop(key)
        return self._merged


_NOTHING: Mapping[Any, Any] = MappingProxyType({})


def changed(before: Mapping[K, V], after: Mapping[K, V]) -> list[K]:
    """Return the keys of the objects that were added, removed or replaced. Objects are compared by identity."""
    if before is after:
        return []
    touched = after.since(before) if isinstance(after, Version) else None
    if touched is not None:
        return [key for key in touched if before.get(key) is not after.get(key)]
    found = [key for key, value in after.items() if before.get(key) is not value]
    if len(before) + sum(key not in before for key in found) > len(after):
        found += [key for key in before if key not in after]
    return found


def without(objects: Mapping[K, V], keys: Collection[K]) -> Mapping[K, V]:
    """Return a mapping without some keys; of a version, a version that follows it."""
    if not isinstance(objects, Version):
        return {key: value for key, value in objects.items() if key not in keys}
    found = Version(objects)
    for key in keys:
        if key in found:
            found.drop(key)
    return found
