"""The filters for one pod that look at volumes, together, in the order in which kube-scheduler asks them."""

from collections.abc import Hashable
from typing import NamedTuple, Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.storage.persistent_volumes import BETA_REGION, BETA_ZONE, REGION, ZONE
from admission.api.storage.storage import Storage
from admission.filters import pod_claims, volume_binding, volume_restrictions
from admission.filters.node_volume_limits import NodeVolumeLimits, VolumeCounts
from admission.filters.placed_pods import PlacedPods
from admission.filters.pod_claims import PodClaims, SharedVolumes
from admission.filters.refusal import Nodes, Refusal, Rule
from admission.filters.volume_binding import VolumeBinding
from admission.filters.volume_restrictions import VolumeRestrictions

_NAMED_SINCE = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class VolumeZone:
    """Bound volumes with labels of zones or regions are used there only (`plugins/volumezone`, v1.37)."""

    __slots__ = ("_zones",)

    def __init__(self, claims: PodClaims) -> None:
        self._zones = [
            (claim.meta.name, key, values) for claim, volume in claims.bound for key, values in volume.zones.items()
        ]

    def __bool__(self) -> bool:
        """Return whether the filter may refuse any node."""
        return bool(self._zones)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node. A node without any such label takes every volume."""
        labels = node.meta.labels
        if all(key not in labels for key in (BETA_ZONE, BETA_REGION, ZONE, REGION)):
            return None
        for claim, key, values in self._zones:
            value = labels.get(key, labels.get(_NAMED_SINCE.get(key, key)))
            if value not in values:
                text = f"its volume is in {key} {', '.join(sorted(values))}"
                return Refusal(Rule.VOLUME_ZONE, claim, text=text)
        return None


class Effect(NamedTuple):
    """What another pod of the gang means to a pod: a disk or a claim that both use, and volumes that count.

    competes: whether both wait for one of the same volumes.
    """

    restrictions: tuple[bool, bool]
    limits: VolumeCounts | None
    competes: bool = False

    @property
    def apart(self) -> bool:
        """Return whether both pods cannot be on one node."""
        return any(self.restrictions)


class VolumeRules:
    """The state of these filters for one pod."""

    __slots__ = ("_limits", "_refusal", "_restrictions", "_zone", "binding")

    def __init__(
        self, pod: Pod, placed: PlacedPods, storage: Storage, nodes: Nodes, shared: SharedVolumes | None
    ) -> None:
        claims = pod_claims.resolve(pod, storage)
        self._refusal = claims.refusal
        self._restrictions = VolumeRestrictions(pod, placed, storage, nodes)
        self._limits = NodeVolumeLimits(pod, placed, storage, shared.volumes if shared is not None else None)
        self.binding = VolumeBinding(
            claims, storage, placed.assumed(nodes), shared.claims if shared is not None else None, pod.priority
        )
        self._zone = VolumeZone(claims)

    @classmethod
    def of(cls, pod: Pod, placed: PlacedPods, nodes: Nodes, shared: SharedVolumes | None = None) -> Self | None:
        """Return the state for a pod; None if its volumes keep it off no node, or nothing is known of them."""
        storage = placed.storage
        if storage is None or not pod.rules.volumes:
            return None
        found = cls(pod, placed, storage, nodes, shared)
        is_asked = found._refusal or found._restrictions or found._limits or found.binding or found._zone
        return found if is_asked else None

    def copy(self, binding: VolumeBinding | None = None) -> Self:
        """Return a copy that changes by itself. binding: the filter among other pods that compete for volumes."""
        found = object.__new__(type(self))
        found._refusal, found.binding, found._zone = self._refusal, binding or self.binding, self._zone
        found._restrictions, found._limits = self._restrictions.copy(), self._limits.copy()
        return found

    def effect(self, other: Pod) -> Effect | None:
        """Return what another pod of the gang means to this one, wherever it is; None for nothing."""
        found = Effect(self._restrictions.effect(other), self._limits.effect(other), self.binding.competes(other))
        return found if found.apart or found.limits is not None or found.competes else None

    def nominated(self, other: Pod) -> Effect | None:
        """Return what a pod means to this one for which a node is kept; None for nothing."""
        found = Effect(self._restrictions.nominated(other), self._limits.effect(other))
        return found if found.apart or found.limits is not None else None

    def add(self, effect: Effect, node: Node, times: int) -> None:
        """Count a pod with this effect on a node; times: -1 to forget it."""
        self._restrictions.add(effect.restrictions, node, times)
        if effect.limits is not None:
            self._limits.add(effect.limits, node, times)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now."""
        return (
            self._refusal
            or self._restrictions.refuses(node)
            or self._limits.refuses(node)
            or self.binding.refuses(node)
            or self._zone.refuses(node)
        )

    def bars(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now nor when more pods are there."""
        return (
            self._refusal
            or self._restrictions.refuses(node)
            or self._limits.refuses(node)
            or self.binding.bars(node)
            or self._zone.refuses(node)
        )

    def view(self, node: Node) -> Hashable:
        """Return what tells nodes apart beside those that are barred."""
        return self._limits.view(node)


def fingerprint(pod: Pod, placed: PlacedPods, nodes: Nodes, shared: SharedVolumes) -> Hashable:
    """Return all that these filters read of a pod, but for the names of claims and volumes that are its own alone.

    shared: `gang_rules.shared_volumes` of its gang.
    """
    storage = placed.storage
    if storage is None or not pod.rules.volumes:
        return None
    claims = pod_claims.resolve(pod, storage)
    return (
        claims.refusal,
        tuple((volume.affinity, tuple(volume.zones.items()), volume.disk) for _, volume in claims.bound),
        volume_binding.fingerprint(claims, storage, placed.assumed(nodes), shared.claims),
        volume_restrictions.fingerprint(pod, storage),
        NodeVolumeLimits(pod, placed, storage, shared.volumes).fingerprint,
    )
