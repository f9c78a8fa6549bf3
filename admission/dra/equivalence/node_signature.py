"""The signatures of nodes for one need, kept between cluster states: only nodes that changed are evaluated again.

A `NodeSignatureCache` serves the planner and `pod_allocator`: it belongs to the device signatures of one need, and is
updated with each cluster state. Nodes with equal signatures are equal in everything that the need reads.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import chain

from admission.api.kubernetes.devices import DeviceId
from admission.api.values.names import NodeName
from admission.dra.equivalence import node_usage
from admission.dra.equivalence.device_signature import DeviceSignatures, Layout, Segment
from admission.dra.equivalence.node_contents import NodeContents, Units
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.inventory.pools import NodeInventory, PoolId
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

MOST_SIGNATURES = 100_000
"""The most signatures that a cache keeps; in a large cluster every node may have had several."""

_IDENTITY = 1 << 24
"""The code of a device is its unit's number; of one that several nodes see, that plus a multiple of this."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeSignature:
    """A node's devices as a search sees them; within one cache equal signatures are one object.

    codes: the devices in order, see `is_local`. free: how many of them no claim has exclusively.
    """

    codes: tuple[int, ...]
    contents: NodeContents
    free: int


class NodeSignatureCache:
    """The signatures of all nodes in one cluster state, brought up to date by `update`.

    includes_taken: whether devices in use are part of them, since mode All or admin access reads these.
    """

    def __init__(self, device_signatures: DeviceSignatures, *, includes_taken: bool) -> None:
        self.device_signatures = device_signatures
        self.units = Units(device_signatures)
        self.node_sigs: dict[NodeName, NodeSignature] = {}
        self.groups: dict[NodeSignature, set[NodeName]] = {}
        self._seeing: dict[PoolId, set[NodeName]] = {}
        """By pool that several nodes may see, the nodes that see it."""
        self._includes_taken = includes_taken
        self._cluster: ClusterState | None = None
        self._identities: dict[DeviceId, int] = {}
        self._known: dict[Hashable, NodeSignature] = {}
        self._stamp: Hashable = None
        self._shared: dict[tuple[int, int], tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Units and codes of pools that several nodes see; valid while the overlay has the same stamp."""

    def layout(self, node: NodeName) -> Layout:
        """Return the layout of a node in the current cluster state."""
        cluster = self._cluster
        return self.device_signatures.layout(_BARE if cluster is None else cluster.node_inventories.get(node, _BARE))

    def update(self, cluster: ClusterState) -> None:
        """Bring every signature up to date with a cluster state."""
        before = self._cluster
        if before is cluster:
            return
        if len(self._known) > MOST_SIGNATURES:
            self._start_over()
            before = None
        self._cluster = cluster
        changed = cluster_state.changed(before, cluster) if before is not None else None
        if changed is None:
            changed = frozenset(cluster.nodes)
        usage = AllocatedOverlay(cluster)
        for name in changed:
            self._forget(name)
            if name in cluster.nodes:
                self._lay_out(name, cluster)
        for name in changed:
            if name in cluster.nodes:
                self._put(name, self.node_sig(name, usage, cluster))

    def _start_over(self) -> None:
        """Drop all signatures, those that no node has any more among them."""
        self.units = Units(self.device_signatures)
        self._known.clear()
        self._stamp = None
        for name in list(self.node_sigs):
            self._forget(name)

    def node_sig(self, node: NodeName, usage: AllocatedOverlay, cluster: ClusterState) -> NodeSignature:
        """Return the signature of a node under some use of its devices."""
        layout = self.device_signatures.layout(cluster.node_inventories.get(node, _BARE))
        parts = [self._part(segment, counter_set, usage) for segment, counter_set in layout.parts]
        codes = parts[0][1] if len(parts) == 1 else tuple(chain.from_iterable(codes for _, codes in parts))
        units = codes if layout.fixed else tuple(chain.from_iterable(units for units, _ in parts))
        found = node_usage.contents_of(layout, self.units, usage, cluster, numbers=units)
        key = (codes, found.counter_sets, found.troubles, found.disputed, found.slices)
        known = self._known.get(key)
        if known is None:
            free = sum(not self.units.known[number].use.taken for number in found.units)
            known = self._known[key] = NodeSignature(codes, found, free)
        return known

    def _part(
        self, segment: Segment, counter_set: int, usage: AllocatedOverlay
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return units and codes of one pool's devices; computed once for a pool that several nodes see."""
        if segment.local:
            units = node_usage.units_of(segment, counter_set, usage, self.units, includes_taken=self._includes_taken)
            return units, units
        if usage.stamp != self._stamp:
            self._stamp = usage.stamp
            self._shared.clear()
        key = (id(segment), counter_set)
        known = self._shared.get(key)
        if known is None:
            units = node_usage.units_of(segment, counter_set, usage, self.units, includes_taken=self._includes_taken)
            shown = [
                listed for listed in segment.listed_devices if self._includes_taken or not usage.is_taken(listed.id)
            ]
            # A device that several nodes see has a code of its own, the same on all of them.
            codes = tuple(
                unit if listed.local else unit + _IDENTITY * self._identities[listed.id]
                for unit, listed in zip(units, shown, strict=True)
            )
            known = self._shared[key] = (units, codes)
        return known

    def shown(self, node: NodeName, usage: AllocatedOverlay) -> list[int]:
        """Return the places in the node's layout of the devices in its signature, in order."""
        return list(node_usage.shown(self.layout(node), usage, includes_taken=self._includes_taken))

    def nodes_of(self, device: DeviceId) -> set[NodeName]:
        """Return the nodes whose signatures may change with the use of a device."""
        pool = (device.driver, device.pool)
        found = self._seeing.get(pool)
        if found is not None:
            return found
        owner = (
            self._cluster.slices.owner(pool) if self._cluster is not None and self._cluster.slices is not None else None
        )
        return {owner} if owner in self.node_sigs else set()

    def _lay_out(self, name: NodeName, cluster: ClusterState) -> None:
        layout = self.device_signatures.layout(cluster.node_inventories.get(name, _BARE))
        if layout.fixed:
            return
        for listed in layout.listed_devices:
            if not listed.local:
                self._seeing.setdefault((listed.id.driver, listed.id.pool), set()).add(name)
                self._identities.setdefault(listed.id, len(self._identities) + 1)

    def _forget(self, name: NodeName) -> None:
        node_sig = self.node_sigs.pop(name, None)
        if node_sig is not None:
            self.groups[node_sig].discard(name)
            if not self.groups[node_sig]:
                del self.groups[node_sig]
        for seeing in self._seeing.values():
            seeing.discard(name)

    def _put(self, name: NodeName, node_sig: NodeSignature) -> None:
        self.node_sigs[name] = node_sig
        self.groups.setdefault(node_sig, set()).add(name)


def build(device_signatures: DeviceSignatures, cluster: ClusterState, *, includes_taken: bool) -> NodeSignatureCache:
    """Return the signature cache of a need; what-if states and series have caches of their own."""
    key = (includes_taken, cluster.is_what_if, cluster.series)
    if key not in device_signatures.signature_caches:
        device_signatures.signature_caches[key] = NodeSignatureCache(device_signatures, includes_taken=includes_taken)
    found: NodeSignatureCache = device_signatures.signature_caches[key]
    return found


def is_local(code: int) -> bool:
    """Return whether no other node sees the device with this code."""
    return code < _IDENTITY


_BARE = NodeInventory()
