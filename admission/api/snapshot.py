"""One frozen view of the cluster: a decision reads it and nothing else, so it cannot contradict itself."""

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

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
from admission.api.values.names import MeterName, NodeName, QueueName, Uid
from admission.errors import MalformedObjectError

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything that a cycle may read. Namespaced objects are keyed `namespace/name`, jobs and pods by UID.

    parents: by kind, written `Kind.group`, what pods belong to beside batch Jobs: by UID, but PodGroups by
    `namespace/name`. unwatched: why the objects of a kind are not seen, by kind.
    malformed: objects that could not be read, by (kind, key); they take no part in decisions and are reported.
    unread_queues: the metadata of such queues, which can be deleted all the same.
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
    priorities: Mapping[str, PriorityClass] = field(default_factory=dict)
    malformed: Mapping[tuple[str, str], MalformedObjectError] = field(default_factory=dict)
    unread_queues: Mapping[QueueName, Meta] = field(default_factory=dict)


class Version(dict[K, V]):
    """All objects of one kind as they were at one time, which knows in what it differs from versions before it.

    So nobody need compare fifty thousand pods to find the one that is new. Only `put` and `drop` change a version; the
    versions before it are held as long as another client holds them.
    """

    __slots__ = ("__weakref__", "touched")

    REMEMBERED = 8
    """How many earlier versions are known: whoever looks once in a cycle knows one of the last few."""

    def __init__(self, before: "Version[K, V] | None" = None) -> None:
        super().__init__(before or {})
        self.touched: list[tuple[weakref.ref[Version[K, V]], dict[K, None]]] = []
        """Earlier versions, each with the keys that were put or dropped since; the latest one first."""
        if before is not None:
            earlier = [(ref, dict(keys)) for ref, keys in before.touched if ref() is not None]
            self.touched = [(weakref.ref(before), {}), *earlier][: self.REMEMBERED]

    def put(self, key: K, value: V) -> None:
        """Add or replace an object."""
        self[key] = value
        self._touch(key)

    def drop(self, key: K) -> None:
        """Take an object out."""
        del self[key]
        self._touch(key)

    def since(self, before: Mapping[K, V]) -> Iterable[K] | None:
        """Return the keys that were put or dropped since an earlier version; None where that is not known."""
        return next((keys for ref, keys in self.touched if ref() is before), None)

    def _touch(self, key: K) -> None:
        for _, keys in self.touched:
            keys[key] = None


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
