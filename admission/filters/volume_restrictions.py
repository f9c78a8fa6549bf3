"""VolumeRestrictions: disks that one pod of a node uses at a time, and claims that one pod uses anywhere.

As `pkg/scheduler/framework/plugins/volumerestrictions` (v1.37).
"""

from collections import Counter
from collections.abc import Hashable
from typing import Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.pod_volumes import Disk, PodVolume
from admission.api.scheduling.scheduling_rules import SchedulingRules
from admission.api.storage.persistent_volumes import ONE_POD
from admission.api.storage.storage import Storage
from admission.api.values.names import NodeName
from admission.filters.placed_pods import PlacedPods
from admission.filters.refusal import Nodes, Refusal, Rule


class VolumeRestrictions:
    """The filter's state for one pod."""

    __slots__ = ("_disks", "_namespace", "_on_node", "_sole", "_used")

    def __init__(self, pod: Pod, placed: PlacedPods, storage: Storage, nodes: Nodes) -> None:
        self._namespace = pod.meta.namespace
        self._disks = tuple(one.disk for one in pod.rules.volumes if one.disk is not None and one.disk.is_exclusive)
        self._sole = frozenset(one.claim for one in pod.rules.volumes if _is_sole(one, pod, storage))
        self._on_node: Counter[NodeName] = Counter()
        """How many pods of each node use one of its disks."""
        self._used = 0
        """How many pods use one of its claims for one pod."""
        for name in placed.with_volumes if self and not placed.wanted_only else ():
            for other in placed.on(name).values():
                self._on_node[name] += _conflict(self._disks, other.rules)
                self._used += name in nodes and self._shares(other.namespace, other.rules)

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return bool(self._disks or self._sole)

    def copy(self) -> Self:
        found = object.__new__(type(self))
        found._namespace, found._disks, found._sole = self._namespace, self._disks, self._sole
        found._on_node, found._used = Counter(self._on_node), self._used
        return found

    def effect(self, other: Pod) -> tuple[bool, bool]:
        """Return whether another pod of the gang cannot be on the same node, and whether it cannot be anywhere."""
        return _conflict(self._disks, other.rules), self._shares(other.meta.namespace, other.rules)

    def nominated(self, other: Pod) -> tuple[bool, bool]:
        """Return the same of a pod for which a node is kept: claims are asked for only beside disks, and by name alone.

        As `AddPod`: after `Skip` it is not called, and it takes claims of one name in two namespaces for one.
        """
        here = _conflict(self._disks, other.rules)
        return here, bool(self._disks) and any(one.claim in self._sole for one in other.rules.volumes)

    def add(self, effect: tuple[bool, bool], node: Node, times: int) -> None:
        """Count a pod with this effect on a node; times: -1 to forget it."""
        here, anywhere = effect
        if here:
            self._on_node[node.name] += times
        if anywhere:
            self._used += times

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now."""
        if self._on_node.get(node.name, 0) > 0:
            return Refusal(Rule.DISK, self._disks[0].name, text="another pod there uses it")
        if self._used > 0:
            return Refusal(Rule.SOLE, min(self._sole), text=f"another pod uses it, and it is {ONE_POD}")
        return None

    def _shares(self, namespace: str, rules: SchedulingRules) -> bool:
        return namespace == self._namespace and any(one.claim in self._sole for one in rules.volumes)


def fingerprint(pod: Pod, storage: Storage) -> Hashable:
    """Return all that the filter reads of a pod."""
    return tuple(one.disk or (one.claim if _is_sole(one, pod, storage) else None) for one in pod.rules.volumes)


def _is_sole(volume: PodVolume, pod: Pod, storage: Storage) -> bool:
    claim = storage.claims.get(f"{pod.meta.namespace}/{volume.claim}") if volume.claim else None
    return claim is not None and ONE_POD in claim.access_modes


def _conflict(disks: tuple[Disk, ...], rules: SchedulingRules) -> bool:
    return any(one.disk is not None and any(disk.conflicts(one.disk) for disk in disks) for one in rules.volumes)
