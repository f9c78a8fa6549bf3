"""The state of a gang's search: the free devices and resources of every node, taken and given back.

Nodes are grouped by a signature: if two are equal, nothing that the gang reads tells the nodes apart. The signature
has the kinds of pods that may go to the node, what is left of its resources (up to what the whole gang could use), its
devices in order with their use, what is left of their counters, and the shared claims that are usable there. A device
that several nodes see is in it by identity, so that nodes are equal only if they see the same one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from types import MappingProxyType

from admission.dra.allocator import stranded_devices
from admission.dra.equivalence import node_signature
from admission.dra.equivalence.device_signature import DeviceSignatures, Layout
from admission.dra.equivalence.node_contents import DeviceGroup, NodeContents
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.equivalence.selected_devices import DeviceDemand
from admission.dra.equivalence.tied_devices import DeviceDivisions, Division
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.planner.pod_groups import Gang, PodKind
from admission.dra.requests import requests
from admission.dra.requests.device_use import DeviceUse
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.requests.requests import Mode
from admission.dra.state.cluster_state import ClusterState
from admission.filters.gang_rules import Place, RulesSearch
from admission.filters.refusal import Refusal

Undo = Callable[[], None]
_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)
class NodeState:
    """The signature of a node; within one search equal signatures are one object.

    kinds: of pods that may go to the node. left: amount of every resource or, if all pods are of one size, the number
    of pods that fit; None for no limit. node_sig: its devices. usable: shared claims that are allocated and may be used
    there. place: what coupled rules between pods tell it apart by; None if there are none. served: for how many devices
    its resources suffice, roughly; None for no limit, or where it makes no difference between nodes. division, excess:
    the groups of its devices, and what others lose with each of them, where they make a difference.
    """

    kinds: frozenset[int]
    left: tuple[int, ...] | None
    node_sig: NodeSignature
    usable: frozenset[int]
    place: Place | None = None
    served: int | None = None
    division: Division = ()
    excess: int = 0

    @property
    def free(self) -> int:
        """Return how many devices are free, of those that match some request of the gang."""
        return self.node_sig.free

    @property
    def contents(self) -> NodeContents:
        return self.node_sig.contents


class SearchState:
    """Every node's state, and the groups of equal nodes. Nodes go by their number in the order of names.

    Only `assume` and `allocate_shared` change it; each returns its undo, to be called in reverse order.
    """

    def __init__(
        self,
        gang: Gang,
        cluster: ClusterState,
        device_signatures: DeviceSignatures,
        beside: Mapping[str, int] = _NOTHING,
        *,
        kinds_of_use: KindsOfUse = (),
        by_served: bool = True,
    ) -> None:
        """beside: what pods request beside each device, in the mean; kinds_of_use: what else tells nodes apart.

        by_served: equal nodes serve equally many, and their devices are divided and asked for in the same way.
        """
        self.gang = gang
        kinds = kinds_of_use if beside else ()
        self._divisions = DeviceDivisions(kinds, device_signatures)
        self._demand = DeviceDemand(kinds, device_signatures)
        self.ties = self._divisions.ties
        self._beside = beside
        self._by_served = by_served and bool(beside)
        # Where kinds of pods are tried in several orders, more groups would make proofs longer.
        self._by_division = by_served and len(gang.kinds) == 1 and not gang.shared
        self.names = sorted({name for kind in gang.kinds for name in kind.nodes})
        self.allocated: list[frozenset[int] | None] = [None] * gang.shared
        """Per shared claim, the nodes from which it may be used; None before it is allocated."""
        includes_taken = any(option.admin or option.mode is Mode.ALL for option in requests.options(gang.claims))
        self._signatures_by_node = node_signature.build(device_signatures, cluster, includes_taken=includes_taken)
        self._signatures_by_node.update(cluster)
        self.units = self._signatures_by_node.units
        self.layouts: list[Layout] = [self._signatures_by_node.layout(name) for name in self.names]
        self.groups: dict[NodeState, set[int]] = {}
        self.signatures: list[NodeState] = []
        self.on_change: Callable[[NodeState, NodeState], None] = _ignore
        self._cluster = cluster
        self._usage = AllocatedOverlay(cluster)
        self._node_sigs: list[NodeSignature] = [self._signatures_by_node.node_sigs[name] for name in self.names]
        self._numbers = {name: at for at, name in enumerate(self.names)}
        by_devices = self._taken_by_devices()
        self.takes = bool(by_devices)
        """Whether devices may take resources of nodes beside what pods request."""
        self._resources = sorted({resource for kind in gang.kinds for resource in kind.wants} | by_devices)
        self._most = self._demanded()
        self._pods = sum(len(kind.members) for kind in gang.kinds)
        self._has_uniform_pods = (
            not self.takes
            and len({frozenset(kind.wants.items()) for kind in gang.kinds}) == 1
            and bool(self._resources)
        )
        self._kinds = self._kinds_of_nodes()
        self.rules = RulesSearch(gang.coupled, self.names) if gang.coupled is not None else None
        self._left: list[dict[str, int] | None] = [self._initial_left(cluster.left.get(name)) for name in self.names]
        seen = (listed for layout in self.layouts if not layout.fixed for listed in layout.listed_devices)
        self._non_local_devices = {listed.id for listed in seen if not listed.local}
        self._interned: dict[Hashable, NodeState] = {}
        self._heaps: defaultdict[NodeState, list[int]] = defaultdict(list)
        """Per group a heap of its nodes, and of some that have left it."""
        self._group()

    def _group(self) -> None:
        """Put all nodes into groups."""
        for node in range(len(self.names)):
            signature = self._signature(node)
            self.signatures.append(signature)
            self.groups.setdefault(signature, set()).add(node)
            # Numbers are appended in ascending order, so the list is a heap.
            self._heaps[signature].append(node)

    def left(self, node: int) -> Mapping[str, int] | None:
        """Return what is left of the resources that the gang requests; None for no limit."""
        return self._left[node]

    def served(self, node: int, wants: Mapping[str, int] = _NOTHING) -> int | None:
        """Return for how many thousandths of devices a node's resources suffice, once a pod has what it wants."""
        everything, own = self._cluster.left.get(self.names[node]), self._left[node]
        return None if own is None else stranded_devices.served(everything, self._beside, wants, known=own)

    def division(self, node: int) -> Division:
        """Return the groups of a node's devices, for the claims that tie devices."""
        if not self.ties:
            return ()
        return self._divisions.of_node(self.layouts[node], self.visible_devices(node), self._usage)

    def excess(self, node: int) -> int:
        """Return what others lose with each of a node's devices, in eighths; see `selected_devices`."""
        return self._demand.excess(self.layouts[node])

    def left_of(self, signature: NodeState) -> Mapping[str, int] | None:
        """Return the same of a group of nodes, where devices may take resources."""
        return None if signature.left is None else dict(zip(self._resources, signature.left, strict=True))

    def first(self, signature: NodeState) -> int:
        """Return the first node of a group."""
        group, nodes = self.groups[signature], self._heaps[signature]
        while nodes[0] not in group:
            heappop(nodes)
        return nodes[0]

    @property
    def is_apart(self) -> bool:
        """Whether the use of one node changes nothing on others, as `BinPacker` requires."""
        gang = self.gang
        return not gang.shared and gang.coupled is None and all(layout.fixed for layout in self.layouts)

    @property
    def free_shared(self) -> int:
        """How many devices that several nodes see are free."""
        return sum(not self._usage.is_taken(device) for device in self._non_local_devices)

    def visible_devices(self, node: int) -> list[int]:
        """Return the places in the node's layout of the devices in its signature, in order."""
        return self._signatures_by_node.shown(self.names[node], self._usage)

    def refuses(self, kind: PodKind, node: int) -> Refusal | None:
        """Return the rule between pods that keeps a pod off a node now, beside those in `kind.nodes`."""
        return self.rules.refuses(kind.rules, self.names[node]) if self.rules is not None else None

    def are_short_of_volumes(self, pods: Sequence[int]) -> bool:
        """Return whether too few volumes are left for these pods. pods: how many of each kind."""
        if self.rules is None:
            return False
        left: Counter[int] = Counter()
        for kind, count in zip(self.gang.kinds, pods, strict=True):
            left[kind.rules] += count
        return self.rules.are_short_of_volumes(left)

    def free_devices(self, node: int) -> list[int]:
        """Return the places of the node's devices that no claim has exclusively, in order."""
        return [
            at for at, listed in enumerate(self.layouts[node].listed_devices) if not self._usage.is_taken(listed.id)
        ]

    def bounds(self, kind: PodKind, signature: NodeState) -> int | None:
        """Return for how many more pods resources are left; None for no limit."""
        if signature.left is None:
            return None
        if self._has_uniform_pods:
            return signature.left[0]
        return None if not kind.wants else _bounds(kind, dict(zip(self._resources, signature.left, strict=True)))

    def fits(self, signature: NodeState, pods: Sequence[int]) -> bool:
        """Return whether resources are left for these pods together. pods: how many of each kind."""
        if signature.left is None:
            return True
        if self._has_uniform_pods:
            return sum(pods) <= signature.left[0]
        wanted = [(kind.wants, count) for kind, count in zip(self.gang.kinds, pods, strict=True) if count]
        # Less than nothing may be left of a resource, which matters to no pod that does not request it.
        return all(
            sum(wants.get(name, 0) * count for wants, count in wanted) <= max(left, 0)
            for name, left in zip(self._resources, signature.left, strict=True)
        )

    def units_of(self, signature: NodeState) -> list[DeviceGroup]:
        """Return the devices of a signature."""
        return [self.units.known[number] for number in signature.contents.units]

    def assume(
        self, kind: PodKind, node: int, taken: Iterable[DeviceUse], by_devices: Mapping[str, int] = _NOTHING
    ) -> Undo:
        """Take devices, shares and resources; return the undo. by_devices: what the devices take of the node."""
        given = tuple(taken)
        touched = {node}
        devices = {(use.device.driver, use.device.pool): use.device for use in given}
        for device in devices.values():
            # A pool that only one node sees touches that node, or none if the gang may not go there.
            touched.update(
                self._numbers[name] for name in self._signatures_by_node.nodes_of(device) if name in self._numbers
            )
        before = {at: self._node_sigs[at] for at in touched}
        self._usage.add(given)
        self._add(node, (kind.wants, by_devices), -1)
        if self.rules is not None:
            self.rules.assume(kind.rules, self.names[node])
        for at in touched:
            self._node_sigs[at] = self._signatures_by_node.node_sig(self.names[at], self._usage, self._cluster)
        self._refresh(touched)

        def undo() -> None:
            self._usage.remove(given)
            self._add(node, (kind.wants, by_devices), 1)
            if self.rules is not None:
                self.rules.forget(kind.rules, self.names[node])
            for at, node_sig in before.items():
                self._node_sigs[at] = node_sig
            self._refresh(touched)

        return undo

    def allocate_shared(self, number: int, nodes: frozenset[int]) -> Undo:
        """Mark a shared claim as allocated and usable from these nodes; return the undo."""
        self.allocated[number] = nodes
        self._refresh(nodes)

        def undo() -> None:
            self.allocated[number] = None
            self._refresh(nodes)

        return undo

    def _add(self, node: int, parts: Iterable[Mapping[str, int]], sign: int) -> None:
        left = self._left[node]
        if left is not None:
            for resource, amount in (one for part in parts for one in part.items()):
                left[resource] = left[resource] + sign * amount

    def _refresh(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            before, after = self.signatures[node], self._signature(node)
            if before is after:
                continue
            group = self.groups[before]
            group.remove(node)
            if not group:
                del self.groups[before]
            self.signatures[node] = after
            self._put(node, after)
            self.on_change(before, after)

    def _put(self, node: int, signature: NodeState) -> None:
        self.groups.setdefault(signature, set()).add(node)
        heappush(self._heaps[signature], node)

    def _signature(self, node: int) -> NodeState:
        """Return the node's signature; equal ones are one object."""
        left = self._left[node]
        usable = self._usable(node) if self.allocated else _NONE
        place = self.rules.place(self.names[node]) if self.rules is not None else None
        served = self.served(node) if self._by_served else None
        key = (
            self._kinds[node],
            None if left is None else self._counters_left(left),
            self._node_sigs[node],
            usable,
            place,
            None if served is None else served // stranded_devices.SERVED_STEP,
            self.division(node) if self._by_division else (),
            self.excess(node) if self._by_division else 0,
        )
        known = self._interned.get(key)
        if known is None:
            known = self._interned[key] = NodeState(*key)
        return known

    def _usable(self, node: int) -> frozenset[int]:
        return frozenset(at for at, nodes in enumerate(self.allocated) if nodes is not None and node in nodes)

    def _kinds_of_nodes(self) -> list[frozenset[int]]:
        """Return the kinds of pods that may go to each node; equal sets are one object."""
        if all(len(kind.nodes) == len(self.names) for kind in self.gang.kinds):
            return [frozenset(range(len(self.gang.kinds)))] * len(self.names)
        shared: dict[frozenset[int], frozenset[int]] = {}
        found = (frozenset(at for at, kind in enumerate(self.gang.kinds) if name in kind.nodes) for name in self.names)
        return [shared.setdefault(kinds, kinds) for kinds in found]

    def _counters_left(self, left: Mapping[str, int]) -> tuple[int, ...]:
        """Return what is left of resources, for the signature: the number of pods that fit if all are of one size."""
        if self._has_uniform_pods:
            return (min(self._pods, _bounds(self.gang.kinds[0], left)),)
        if self.takes:
            return tuple(left[name] for name in self._resources)
        return tuple(min(left[name], self._most[name]) for name in self._resources)

    def _taken_by_devices(self) -> set[str]:
        """Return the resources of which devices may take some."""
        signatures = self._signatures_by_node.device_signatures.known
        found = {one.name for signature in signatures for one in signature.node_resources}
        return found.union(name for kind in self.gang.kinds for claim in kind.bound for name in claim.names)

    def _demanded(self) -> dict[str, int]:
        """Return what the whole gang requests of each resource: more than that on a node makes no difference."""
        return {
            resource: sum(kind.wants.get(resource, 0) * len(kind.members) for kind in self.gang.kinds)
            for resource in self._resources
        }

    def _initial_left(self, left: Mapping[str, int] | None) -> dict[str, int] | None:
        if left is None:
            return None
        return {name: left.get(name, self._most[name] if name == "pods" else 0) for name in self._resources}


def _bounds(kind: PodKind, left: Mapping[str, int]) -> int:
    """Return how many pods of a kind fit what is left; the kind must request something."""
    return min(max(0, left[resource]) // amount for resource, amount in kind.wants.items())


_NONE: frozenset[int] = frozenset()


def _ignore(_before: NodeState, _after: NodeState) -> None:
    return None
