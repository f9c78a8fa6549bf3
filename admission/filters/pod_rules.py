"""The filters for one pod that look at other pods and at volumes, together."""

from collections.abc import Callable, Hashable
from typing import Self

from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.filters.inter_pod_affinity import NO_EFFECT, Effect as AffinityEffect, InterPodAffinity
from admission.filters.node_ports import NodePorts
from admission.filters.placed_pods import PlacedPods
from admission.filters.pod_claims import SharedVolumes
from admission.filters.pod_topology_spread import Effect as SpreadEffect, PodTopologySpread
from admission.filters.refusal import Nodes, Refusal
from admission.filters.volume_binding import VolumeBinding
from admission.filters.volume_rules import Effect as VolumeEffect, VolumeRules

Effect = tuple[bool, VolumeEffect | None, SpreadEffect, AffinityEffect]
"""What another pod means to a pod, by filter."""


class PodRules:
    """The state of these filters for one pod, in the order in which kube-scheduler asks them.

    pinned: whether the pod will be bound to one node by its node affinity. shared: `gang_rules.shared_volumes` of its
    gang; None: any volume may be shared.

    A node that is kept for other pods has to pass with them and without them, as in `RunFilterPluginsWithNominatedPods`
    of `pkg/scheduler/framework/runtime/framework.go` (v1.37).
    """

    __slots__ = ("_affinity", "_kept", "_ports", "_spread", "pod", "volumes")

    def __init__(
        self,
        pod: Pod,
        placed: PlacedPods,
        nodes: Nodes,
        *,
        pinned: bool = False,
        shared: SharedVolumes | None = None,
    ) -> None:
        self.pod = pod
        self._ports = NodePorts(pod, placed, nodes)
        self.volumes = VolumeRules.of(pod, placed, nodes, shared)
        self._spread = PodTopologySpread(pod, placed, nodes, pinned=pinned)
        self._affinity = InterPodAffinity(pod, placed, nodes)
        nominated = placed.nominated_beside(pod) if placed.nominated else {}
        found = {name: tuple(filter(None, map(self._nominated, others))) for name, others in nominated.items()}
        self._kept = {name: effects for name, effects in found.items() if effects}
        """By node, what the pods mean to this one for which the node is kept."""

    def __bool__(self) -> bool:
        """Return whether any node may be refused."""
        own = bool(self._ports) or self.volumes is not None or bool(self._spread) or bool(self._affinity)
        return own or bool(self._kept)

    def copy(self, binding: VolumeBinding | None = None) -> Self:
        """Return a copy that changes by itself. binding: the filter among other pods that compete for volumes."""
        found = object.__new__(type(self))
        found.pod, found._kept = self.pod, self._kept
        found._ports, found._spread, found._affinity = self._ports.copy(), self._spread.copy(), self._affinity.copy()
        found.volumes = self.volumes.copy(binding) if self.volumes is not None else None
        return found

    def effect(self, other: Pod) -> Effect | None:
        """Return what another pod of the gang means to this one, wherever it is; None for nothing."""
        volumes = self.volumes.effect(other) if self.volumes is not None else None
        found = (self._ports.effect(other), volumes, self._spread.effect(other), self._affinity.effect(other))
        return found if any(found) else None

    def _nominated(self, other: Pod) -> Effect | None:
        """Return what a pod means to this one for which a node is kept; None for nothing.

        A plugin that has nothing to ask before these come is not asked (`Skip` in PreFilter).
        """
        volumes = self.volumes.nominated(other) if self.volumes is not None else None
        affinity = self._affinity.effect(other) if self._affinity else NO_EFFECT
        found = (self._ports.effect(other), volumes, self._spread.nominated(other), affinity)
        return found if any(found) else None

    def add(self, effect: Effect, node: Node, times: int) -> None:
        """Count a pod with this effect on a node; times: -1 to forget it."""
        ports, volumes, spread, affinity = effect
        self._ports.add(ports, node, times)
        if self.volumes is not None and volumes is not None:
            self.volumes.add(volumes, node, times)
        if spread:
            self._spread.add(spread, node, times)
        if affinity:
            self._affinity.add(affinity, node, times)

    def refuses(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now; None if it may."""
        return self._refuses(node) or self._beside_kept(node, self._refuses)

    def bars(self, node: Node) -> Refusal | None:
        """Return why the pod may not go to a node now nor when more pods are there; None if it might."""
        return self._bars(node) or self._beside_kept(node, self._bars)

    def _beside_kept(self, node: Node, asked: Callable[[Node], Refusal | None]) -> Refusal | None:
        effects = self._kept.get(node.name, ())
        if not effects:
            return None
        for effect in effects:
            self.add(effect, node, 1)
        refusal = asked(node)
        for effect in effects:
            self.add(effect, node, -1)
        return refusal

    def _refuses(self, node: Node) -> Refusal | None:
        return (
            (self._ports.refuses(node) if self._ports else None)
            or (self.volumes.refuses(node) if self.volumes is not None else None)
            or (self._spread.refuses(node) if self._spread else None)
            or self._affinity.refuses(node)
        )

    def _bars(self, node: Node) -> Refusal | None:
        return (
            (self._ports.bars(node) if self._ports else None)
            or (self.volumes.bars(node) if self.volumes is not None else None)
            or (self._spread.bars(node) if self._spread else None)
            or self._affinity.bars(node)
        )

    @property
    def met(self) -> frozenset[str]:
        """Return the node labels in whose domains are pods that affinity, on either side, is about."""
        return self._affinity.met

    def view(self, node: Node) -> Hashable:
        """Return what tells nodes apart that are not barred and are the only ones of their domains."""
        return (
            self.volumes.view(node) if self.volumes is not None else None,
            self._spread.view(node) if self._spread else None,
            self._affinity.view(node),
            node.name if node.name in self._kept else None,
        )

    @property
    def tells_apart(self) -> bool:
        """Return whether `view` may differ between nodes."""
        return bool(self._spread) or self._affinity.has_company or self.volumes is not None or bool(self._kept)
