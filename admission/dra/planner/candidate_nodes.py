"""The candidate nodes of a gang: of nodes that are equal to it, as many as it has pods.

Sound and complete: a plan puts a gang of n pods on at most n nodes, so of equal nodes it needs no more than n, and the
first n in the order of names suffice. That holds where the use of one node changes nothing on others; where several
nodes see one device no node is left out. The groups of equal nodes are kept between cluster states: only nodes that
changed are evaluated again. Which did, the change log of the cluster state tells without a look at all nodes, where
`admission.incremental` would compare a mapping of them; the sums are updated in place for the same reason.

The pods that all these nodes have room for are added up as well, as an upper bound. If it is less than the gang's pods,
or no node takes a single one, there is no plan, whatever the quota, and no search is made.

Messages about missing plans name all nodes, so this is for callers that do not need the messages.

The groups are kept in `node_order` as well. A gang of n pods, of one kind and without rules between them, is searched
for on the first n groups first: each of them takes a pod, and whatever pods are placed there, the best group that is
left is among them. So that finds the plan that a search over all nodes finds, at a cost that does not grow with them.
"""

import bisect
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from types import MappingProxyType
from weakref import ref

from admission.api.values.names import NodeName
from admission.dra.allocator import stranded_devices
from admission.dra.allocator.stranded_devices import Fits, Unranked
from admission.dra.equivalence import node_signature, selected_devices
from admission.dra.equivalence.device_signature import Answer, DeviceSignatures
from admission.dra.equivalence.node_contents import Units
from admission.dra.equivalence.node_signature import NodeSignature, NodeSignatureCache
from admission.dra.equivalence.selected_devices import DeviceDemand
from admission.dra.equivalence.tied_devices import DeviceDivisions, Division
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.planner import node_filters, node_order, requeue_hint
from admission.dra.planner.node_order import FirstFitRank
from admission.dra.planner.pod_groups import Gang, PodKind
from admission.dra.requests import requests
from admission.dra.requests.gang_request import Choice
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.requests.requests import Mode
from admission.dra.state.cluster_state import ClusterState

_NOTHING: Mapping[str, int] = MappingProxyType({})

MOST_PODS_COUNTED = 10_000
"""The most pods that a node's room is counted up to: no gang has more."""

BEST_SHARE = 8
"""A search on the nodes that come first has one of so many parts of the steps, since all are searched after it."""

MOST_OLD_RANKS = 64
"""The most ranks of the past that are kept beside twice the groups."""

MOST_CANDIDATES = 50_000
"""The most nodes in all `CandidateNodes` kept for one need; the least recently used are dropped."""

_NO_POD = (Unranked.UNFIT, Unranked.UNFIT_NOW, Unranked.REFUSED)
_UNPLACED = (Unranked.UNKNOWN,)
_UNPLACED_BY_USE = (Unranked.UNKNOWN, Unranked.PARTITIONS)

_Equivalence = tuple[NodeSignature, int | None, int | None, Division, int]
"""What is equal for equal nodes: their devices, the pods for which they have resources left, for how many devices these
suffice, roughly; None for no limit; the groups of the devices, and what others lose with each of them."""


class CandidateNodes:
    """The nodes where pods of one kind may go, in groups of equal nodes, in one cluster state."""

    def __init__(
        self,
        kind: PodKind,
        signatures_by_node: NodeSignatureCache,
        *,
        counts: bool,
        beside: Mapping[str, int],
        kinds_of_use: KindsOfUse,
        fits: Callable[[Units], Fits],
    ) -> None:
        """counts: whether the pods need a fixed number of free devices, so that free devices can be counted.

        beside: what pods request beside each device; nodes are equal only if they serve as many. kinds_of_use: of
        devices; nodes are equal only if theirs are of as much use to these. fits: what pods get on nodes.
        """
        self._beside = beside
        self.nodes = kind.nodes
        self._wants = kind.wants
        self._devices = kind.devices
        self._least = kind.devices if counts else 0
        self._signatures_by_node = signatures_by_node
        self._cluster: ClusterState | None = None
        self._equivalences: dict[NodeName, _Equivalence] = {}
        self._equal: dict[_Equivalence, list[NodeName]] = {}
        self._odd: set[NodeName] = set()
        """Nodes with devices that other nodes see as well."""
        self._bounds = 0
        """The most pods that all nodes together have room for."""
        self._inspected = 0
        self._stops = False
        """Whether some device stops a search that meets it."""
        self._takes = bool(kind.bound)
        """Whether devices take resources of nodes: then nodes are equal only if they have the same left."""
        self._units = signatures_by_node.units
        self._claims = kind.parsed_requests
        self._fits = fits
        self._ranked = RankedGroups()
        self._divisions = DeviceDivisions(kinds_of_use, signatures_by_node.device_signatures)
        self._demand = DeviceDemand(kinds_of_use, signatures_by_node.device_signatures)
        self._usage: AllocatedOverlay | None = None
        self._known = fits(self._units)
        self._by_free = self._known.ranks_by_free
        self._has_order = self._by_free or bool(beside)
        self._answers: dict[_Equivalence, Unranked] = {}
        """The groups for which it is not known what a pod consumes there."""
        self._unranked: Counter[Unranked] = Counter()
        """How many groups have each of these answers."""
        self._wasted: dict[_Equivalence, int] = {}
        """How much more of a node in a group is of no use to claims that tie devices once a pod is there."""

    def some(self, cluster: ClusterState, most: int) -> frozenset[NodeName] | None:
        """Return up to `most` nodes of every group of equal nodes; None if no node may be left out."""
        self._update(cluster)
        if self._odd or self._takes:
            return None
        return frozenset(name for names in self._equal.values() for name in names[:most])

    @property
    def _is_ranked(self) -> bool:
        """Return whether all groups have their place in the order."""
        # Only what is now counts, so that whoever comes to know the same nodes in another order puts them in this one.
        unplaced = _UNPLACED if self._by_free else _UNPLACED_BY_USE
        return self._has_order and not any(self._unranked[answer] for answer in unplaced)

    def best(self, cluster: ClusterState, pods: int) -> tuple[frozenset[NodeName], bool] | None:
        """Return the nodes on which the first plan for so many pods is; None if that is not known.

        And whether these are all nodes that matter: the others, but for equal ones, take no pod at all.
        """
        self._update(cluster)
        if self._odd or self._takes or not self._is_ranked:
            return None
        found = frozenset(name for group in self._ranked.first(pods) for name in self._equal[group][:pods])
        # A node that takes no pod may take one once others have taken devices there.
        may_fit = self._unranked[Unranked.REFUSED] or self._unranked[Unranked.UNFIT_NOW]
        return found, len(self._ranked) <= pods and not may_fit

    def is_short(self, cluster: ClusterState, pods: int) -> bool:
        """Return whether there is no room for so many pods, by counting, or since no node takes a single one.

        False where a device stops searches: the search then gives that device as the reason.
        """
        self._update(cluster)
        if self._odd or self._stops:
            return False
        is_full = self._is_ranked and not self._takes and not self._ranked
        return self._bounds < pods or (is_full and not self._unranked[Unranked.REFUSED])

    def _update(self, cluster: ClusterState) -> None:
        before = self._cluster
        if before is cluster:
            return
        self._cluster = cluster
        self._signatures_by_node.update(cluster)
        changed = requeue_hint.changed(before, cluster) if before is not None else None
        if self._inspect_new_signatures() or self._units is not self._signatures_by_node.units:
            # What was counted by devices is no longer, or their numbers are others: count all nodes again.
            self._units = self._signatures_by_node.units
            self._bounds, changed = 0, None
            self._equivalences, self._equal, self._ranked = {}, {}, RankedGroups()
            self._answers, self._unranked, self._wasted = {}, Counter(), {}
            self._known = self._fits(self._units)
        self._usage = AllocatedOverlay(cluster)
        for name in self.nodes if changed is None else changed & self.nodes:
            self._put(name, cluster)

    def _inspect_new_signatures(self) -> bool:
        """Evaluate new sorts of devices; return whether counting must stop, since one of them can be shared."""
        known = self._signatures_by_node.device_signatures.known
        new, self._inspected = known[self._inspected :], len(known)
        self._takes |= any(signature.node_resources for signature in new)
        self._stops |= any(not isinstance(answer, Answer) for signature in new for answer in signature.answers)
        if not self._least or not any(signature.shared for signature in new):
            return False
        self._least = 0
        return True

    def _put(self, name: NodeName, cluster: ClusterState) -> None:
        equivalence, before = self._equivalence(name, cluster), self._equivalences.pop(name, None)
        if before is not None:
            self._bounds -= self._room(before)
            names = self._equal[before]
            names.pop(bisect.bisect_left(names, name))
            if not names:
                del self._equal[before]
            if before != equivalence:
                self._rank(before, cluster)
        if equivalence is not None:
            self._bounds += self._room(equivalence)
            self._equivalences[name] = equivalence
            bisect.insort(self._equal.setdefault(equivalence, []), name)
            self._rank(equivalence, cluster)
        (self._odd.discard if self._signatures_by_node.layout(name).fixed else self._odd.add)(name)

    def _rank(self, group: _Equivalence, cluster: ClusterState) -> None:
        """Bring the place of a group in the order up to date."""
        if self._has_order:
            self._ranked.put(group, self._rank_of(group, cluster))

    def _rank_of(self, group: _Equivalence, cluster: ClusterState) -> FirstFitRank[NodeName] | None:
        """Return the rank of a group; None if it takes no pod, or is empty."""
        names = self._equal.get(group)
        if group in self._answers:
            self._unranked[self._answers.pop(group)] -= 1
        if not names:
            self._wasted.pop(group, None)
            return None
        use = self._known.use(self._claims, group[0])
        if isinstance(use, Unranked):
            self._answers[group] = use
            self._unranked[use] += 1
            if use in _NO_POD:
                return None
        if isinstance(use, Unranked) or not self._beside:
            return node_order.first_fit_rank(group[0].free, names[0], None, 0, self._devices)
        left = cluster.left.get(names[0])
        before = stranded_devices.served(left, self._beside)
        after = stranded_devices.served(left, self._beside, self._wants)
        stranded = stranded_devices.growth(use, before, after)
        if group[3] and group not in self._wasted:
            self._wasted[group] = self._known.wasted(self._claims, group[0], use.found, self._divisions.ties, group[3])
        stranded += self._wasted.get(group, 0)
        stranded += selected_devices.growth(group[4], use.taken)
        return node_order.first_fit_rank(group[0].free, names[0], use, stranded, self._devices)

    def _room(self, equivalence: _Equivalence) -> int:
        """Return the most pods that a node has room for."""
        node_sig, bounds, *_ = equivalence
        most = MOST_PODS_COUNTED if bounds is None else bounds
        return min(node_sig.free // self._least, most) if self._least else most

    def _equivalence(self, name: NodeName, cluster: ClusterState) -> _Equivalence | None:
        """Return the key of a node's group; None for a node that has no room for a pod of the kind now."""
        node_sig, left = self._signatures_by_node.node_sigs[name], cluster.left.get(name)
        if node_sig.free < self._least or node_filters.lacking(self._wants, left) is not None:
            return None
        division, excess = self._division(name), self._demand.excess(self._signatures_by_node.layout(name))
        if left is None:
            return node_sig, None, None, division, excess
        served = stranded_devices.served(left, self._beside) if self._beside else None
        named = ((left[resource], amount) for resource, amount in self._wants.items() if resource in left)
        most = min((MOST_PODS_COUNTED, *(free // amount for free, amount in named)))
        return node_sig, most, None if served is None else served // stranded_devices.SERVED_STEP, division, excess

    def _division(self, name: NodeName) -> Division:
        """Return the groups of a node's devices."""
        if not self._divisions.ties or self._usage is None:
            return ()
        shown = self._signatures_by_node.shown(name, self._usage)
        return self._divisions.of_node(self._signatures_by_node.layout(name), shown, self._usage)


class RankedGroups:
    """Groups by rank. A heap has the rank of each, and ranks of the past, which are dropped as they come up."""

    def __init__(self) -> None:
        self._ranks: dict[_Equivalence, FirstFitRank[NodeName]] = {}
        self._heap: list[tuple[FirstFitRank[NodeName], int, _Equivalence]] = []
        self._entered = 0
        """How many entries the heap has had: equal ranks go by it, since groups have no order."""

    def __len__(self) -> int:
        return len(self._ranks)

    def put(self, group: _Equivalence, rank: FirstFitRank[NodeName] | None) -> None:
        """Set the rank of a group; None to leave it out."""
        if self._ranks.get(group) == rank:
            return
        if rank is None:
            del self._ranks[group]
            return
        self._ranks[group] = rank
        self._enter(group, rank)
        if len(self._heap) > 2 * len(self._ranks) + MOST_OLD_RANKS:
            self._heap.clear()
            for one, known in self._ranks.items():
                self._enter(one, known)

    def first(self, count: int) -> list[_Equivalence]:
        """Return so many groups of the least rank."""
        found: dict[_Equivalence, FirstFitRank[NodeName]] = {}
        while self._heap and len(found) < count:
            rank, _, group = heappop(self._heap)
            if self._ranks.get(group) == rank:
                found[group] = rank
        for group, rank in found.items():
            self._enter(group, rank)
        return [*found]

    def _enter(self, group: _Equivalence, rank: FirstFitRank[NodeName]) -> None:
        self._entered += 1
        heappush(self._heap, (rank, self._entered, group))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CapacityBound:
    """A proof by counting that a gang of equal pods has no plan, to be repeated in other cluster states.

    The candidate nodes are large, so this holds only the key under which they are kept, and a weak reference.
    """

    kind: PodKind
    series: str
    _known: "ref[DeviceSignatures]"
    _key: Hashable

    def is_felt(self, cluster: ClusterState) -> bool:
        """Return whether a cluster state has too little room; False where counting does not show it."""
        known = self._known()
        candidates: CandidateNodes | None = known.candidate_nodes.get(self._key) if known is not None else None
        if candidates is None or cluster.series != self.series or cluster.is_what_if:
            return False
        nodes = node_filters.passed(self.kind.members[0], cluster)
        return (nodes is candidates.nodes or nodes == candidates.nodes) and candidates.is_short(
            cluster, len(self.kind.members)
        )


@dataclass(frozen=True, slots=True)
class CountedGang:
    """A gang of equal pods, with its candidate nodes."""

    gang: Gang
    cluster: ClusterState
    candidates: CandidateNodes
    capacity_bound: CapacityBound

    @property
    def is_short(self) -> bool:
        """Return whether there is no room for all of them."""
        return self.candidates.is_short(self.cluster, self.gang.size)

    def limited(self) -> tuple[Gang | None, Gang]:
        """Return the gang limited to nodes that are searched first, and to those where it has a plan if it has any.

        None where no nodes are first, or all others take no pod.
        """
        # Nodes with equal devices may be in different domains of a rule.
        if self.gang.coupled is not None or self.is_short:
            return None, self.gang
        best, are_all = self.candidates.best(self.cluster, self.gang.size) or (None, False)
        if best and are_all:
            return None, self._limited_to(best)
        some = self.candidates.some(self.cluster, self.gang.size)
        return self._limited_to(best) if best else None, self.gang if some is None else self._limited_to(some)

    def _limited_to(self, nodes: frozenset[NodeName]) -> Gang:
        return replace(self.gang, kinds=(replace(self.capacity_bound.kind, nodes=nodes),))


def count(
    gang: Gang,
    cluster: ClusterState,
    known: DeviceSignatures,
    fits: Callable[[Units], Fits],
    *,
    choice: Choice,
    beside: Mapping[str, int] = _NOTHING,
    kinds_of_use: KindsOfUse = (),
) -> CountedGang | None:
    """Return a gang with its candidate nodes; None if its pods are of several kinds or the cluster state simulated.

    fits: what its pods get on nodes if the devices are picked by `choice`.
    """
    if len(gang.kinds) != 1 or gang.shared or cluster.is_what_if:
        return None
    (kind,) = gang.kinds
    options = [*requests.options(gang.claims)]
    includes_taken = any(option.admin or option.mode is Mode.ALL for option in options)
    plain = not includes_taken and all(option.plain for option in options)
    wants = tuple(sorted(kind.wants.items()))
    kinds_of_use = kinds_of_use if beside else ()
    by_use = (tuple(sorted(beside.items())), kinds_of_use)
    claims = kind.parsed_requests
    key = (cluster.series, includes_taken, kind.nodes, claims, plain, wants, bool(kind.bound), by_use, choice)
    candidates: CandidateNodes | None = known.candidate_nodes.pop(key, None)
    if candidates is None:
        candidates = CandidateNodes(
            kind,
            node_signature.build(known, cluster, includes_taken=includes_taken),
            counts=plain,
            beside=beside,
            kinds_of_use=kinds_of_use,
            fits=fits,
        )
        if len(known.candidate_nodes) * (len(kind.nodes) + 1) > MOST_CANDIDATES:
            del known.candidate_nodes[next(iter(known.candidate_nodes))]
    known.candidate_nodes[key] = candidates
    return CountedGang(
        gang, cluster, candidates, CapacityBound(kind=kind, series=cluster.series, _known=ref(known), _key=key)
    )
