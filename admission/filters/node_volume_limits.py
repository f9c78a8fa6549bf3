"""NodeVolumeLimits: how many volumes of a CSI driver a node attaches (`plugins/nodevolumelimits/csi.go`, v1.37)."""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.pod_volumes import PodVolume
from admission.api.storage.csi import CsiNode
from admission.api.storage.storage import Storage
from admission.api.values.names import NodeName
from admission.filters import pod_claims
from admission.filters.placed_pods import PlacedPods
from admission.filters.pod_claims import CsiVolume, SharedVolumes, csi_volumes
from admission.filters.refusal import Refusal, Rule


class VolumeCounts(NamedTuple):
    """The volumes of a pod that limits count. own: of each driver, how many no other pod uses. shared: the others."""

    own: tuple[tuple[str, int], ...] = ()
    shared: tuple[CsiVolume, ...] = ()


class NodeVolumeLimits:
    """The filter's state for one pod. Its volumes count once on a node, however many pods use them.

    shared: volumes that more than one pod uses; None: any may be.
    """

    __slots__ = ("_added", "_own", "_placed", "_shared", "_storage", "_volumes")

    def __init__(
        self, pod: Pod, placed: PlacedPods, storage: Storage, shared: frozenset[CsiVolume] | None = None
    ) -> None:
        self._placed = placed
        self._storage = storage
        self._shared = shared
        self._volumes = {
            migrates: frozenset(csi_volumes(_named(pod), storage, migrates=migrates)) for migrates in (False, True)
        }
        """What it uses on a node, without CSINode and with it: only there in-tree disks are the driver's."""
        self._added: dict[NodeName, Counter[CsiVolume]] = {}
        """The volumes of the gang's pods that several use, by node."""
        self._own: dict[NodeName, Counter[str]] = {}
        """How many others of each driver they use, by node."""

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return any(self._volumes.values())

    def copy(self) -> Self:
        found = object.__new__(type(self))
        found._placed, found._storage, found._shared = self._placed, self._storage, self._shared
        found._volumes = self._volumes
        found._own = {node: Counter(drivers) for node, drivers in self._own.items()}
        found._added = {node: Counter(volumes) for node, volumes in self._added.items()}
        return found

    @property
    def fingerprint(self) -> Hashable:
        """Return all that the filter reads of the pod, but for the names of volumes that nobody else uses."""
        drivers = self._limited()
        return tuple(self._counted(self._volumes[migrates], drivers) for migrates in (False, True)), tuple(
            sorted({driver for driver, _ in self._volumes[True] if self._storage.drivers.get(driver) is not None})
        )

    def effect(self, other: Pod) -> VolumeCounts | None:
        """Return the volumes of another pod of the gang that count with those of this one; None if none does."""
        drivers = self._limited()
        if not drivers:
            return None
        found = self._counted(frozenset(csi_volumes(_named(other), self._storage, migrates=True)), drivers)
        return found if any(found) else None

    def add(self, effect: VolumeCounts, node: Node, times: int) -> None:
        """Count a pod with this effect on a node; times: -1 to forget it."""
        own, added = self._own.setdefault(node.name, Counter()), self._added.setdefault(node.name, Counter())
        for driver, count in effect.own:
            own[driver] += times * count
        for one in effect.shared:
            added[one] += times
            if not added[one]:
                del added[one]

    def _counted(self, volumes: frozenset[CsiVolume], drivers: frozenset[str]) -> VolumeCounts:
        """Return those of the volumes that are of these drivers."""
        listed = sorted(one for one in volumes if one[0] in drivers)
        shared = tuple(one for one in listed if self._shared is None or one in self._shared)
        own = Counter(one[0] for one in listed if one not in shared)
        return VolumeCounts(tuple(own.items()), shared)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now."""
        csi_node = self._storage.nodes.get(node.name)
        new = self._volumes[csi_node is not None]
        for driver in sorted({driver for driver, _ in new}):
            if self._lacks(driver, csi_node):
                return Refusal(Rule.DRIVER, driver, text="it is not installed there")
        limits = {name: limit for name, limit in csi_node.drivers.items() if limit is not None} if csi_node else {}
        if not any(driver in limits for driver, _ in new):
            return None
        used = self._used(node.name).union(self._added.get(node.name, ()))
        by_driver = Counter(driver for driver, _ in used | self._attached(node.name))
        by_driver.update(self._own.get(node.name, {}))
        # As in kube-scheduler, one that is attached and that no pod uses counts twice if this pod uses it.
        for driver, more in sorted(Counter(driver for driver, _ in new - used).items()):
            if driver in limits and by_driver[driver] + more > limits[driver]:
                return Refusal(Rule.LIMIT, driver, text=f"it attaches {limits[driver]} volumes there at most")
        return None

    def view(self, node: Node) -> Hashable:
        """Return what tells nodes apart: the limits of drivers, and the volumes there that count."""
        drivers = sorted({driver for driver, _ in self._volumes[True]})
        csi_node = self._storage.nodes.get(node.name)
        used = self._used(node.name)
        by_driver = Counter(driver for driver, _ in used | self._attached(node.name))
        limits = csi_node.drivers if csi_node is not None else {}
        here = frozenset(one for one in used if self._shared is None or one in self._shared)
        return csi_node is not None, tuple((limits.get(one), by_driver[one]) for one in drivers), here

    def _limited(self) -> frozenset[str]:
        """Return the drivers of the pod's volumes that some node limits."""
        return self._storage.limited.intersection(driver for driver, _ in self._volumes[True])

    def _lacks(self, driver: str, csi_node: CsiNode | None) -> bool:
        """Return whether a driver that has to be on the node of a pod is not; before 1.37 none has to be."""
        known = self._storage.drivers.get(driver)
        return known is not None and known.must_be_there and (csi_node is None or driver not in csi_node.drivers)

    def _used(self, node: NodeName) -> frozenset[CsiVolume]:
        """Return the volumes of the pods on a node, without the gang."""
        return frozenset() if self._placed.wanted_only else self._placed.csi_volumes(node)

    def _attached(self, node: NodeName) -> frozenset[CsiVolume]:
        """Return the volumes that are attached to a node."""
        if self._placed.wanted_only:
            return frozenset()
        return frozenset(
            (one.attacher, volume.handle)
            for one in self._storage.attached.get(node, ())
            if (volume := self._storage.volumes.get(one.volume)) is not None and volume.driver and one.attacher
        )


def shared(pods: Iterable[Pod], placed: PlacedPods) -> SharedVolumes:
    """Return the volumes of a gang's pods that several of them use, or others too, or that are attached already.

    With the claims that several pods of the gang use.
    """
    storage = placed.storage
    if storage is None:
        return SharedVolumes()
    pods = tuple(pods)
    times = Counter(one for pod in pods for one in set(csi_volumes(_named(pod), storage, migrates=True)))
    users = Counter(key for pod in pods for key in {key for _, key in pod_claims.claims_of(pod)})
    nominated = (pod for others in placed.nominated.values() for pod in others)
    elsewhere = placed.all_csi_volumes.union(
        one for pod in nominated for one in csi_volumes(_named(pod), storage, migrates=True)
    )
    attached = {
        (one.attacher, volume.handle)
        for one in storage.attachments.values()
        if (volume := storage.volumes.get(one.volume)) is not None
    }
    return SharedVolumes(
        frozenset(one for one, count in times.items() if count > 1 or one in elsewhere or one in attached),
        frozenset(key for key, count in users.items() if count > 1 and key in storage.unbound),
    )


def _named(pod: Pod) -> Iterator[tuple[PodVolume, str]]:
    for volume in pod.rules.volumes:
        yield volume, f"{pod.meta.namespace}/{volume.claim_of(pod.meta.name)}"
