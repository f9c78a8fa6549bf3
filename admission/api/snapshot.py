"""A frozen view of the cluster: a decision reads only one snapshot, so it cannot contradict itself."""

import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

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


class Version(dict[K, V]):
    """All objects of one kind at one time, with the keys that differ from earlier versions.

    So finding one new pod does not require comparing fifty thousand. Only `put` and `drop` change a version. Earlier
    versions are referenced weakly, so they live as long as another object holds them.
    """

    __slots__ = ("__weakref__", "touched")

    REMEMBERED = 8
    """How many earlier versions are tracked: a reader that runs once in a cycle has one of the last few."""

    def __init__(self, before: "Version[K, V] | None" = None) -> None:
        super().__init__(before or {})
        self.touched: list[tuple[weakref.ref[Version[K, V]], dict[K, None]]] = []
        """Earlier versions, each with the keys that were put or dropped since; the latest version first."""
        if before is not None:
            earlier = [(ref, dict(keys)) for ref, keys in before.touched if ref() is not None]
            self.touched = [(weakref.ref(before), {}), *earlier][: self.REMEMBERED]

    def put(self, key: K, value: V) -> None:
        """Add or replace an object."""
        self[key] = value
        self._touch(key)

    def drop(self, key: K) -> None:
        """Remove an object."""
        del self[key]
        self._touch(key)

    def since(self, before: Mapping[K, V]) -> Iterable[K] | None:
        """Return the keys that were put or dropped since an earlier version; None if that version is not tracked."""
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
