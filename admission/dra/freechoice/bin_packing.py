"""The search for a gang's nodes where devices may be chosen freely: node after node, the tightest first.

It requires that every device is seen by one node only and that no claim is shared. So a gang is placed if and only if
every pod is on a node that takes all of its pods together, which `node_packing` answers.

Enumerated: nodes in groups of equal ones, by the first node of each in `node_order`, as are the nodes of a group, which
may have more or less left than the gang could use; for each node in turn the largest sets of the pods left that it
takes. If that plan is not affordable and prices differ, a second search tries
smaller sets and all prices as well.

Skipped, without losing a plan:
- smaller sets, without quota: in a plan where a node has fewer pods, a pod of a later node can be moved to it;
- the rest of a group of equal nodes after one that is left empty: the empty nodes of a group may be put last;
- a point with the same node and charge, and at least the pods left, of one that failed (`_is_dead`);
- a point where the nodes left have too little room by upper bounds, or that is not affordable at the lowest prices.

Bounded by the budget: at its end StepsEndedError is raised, and nothing is proved.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter, le, mul, sub
from types import MappingProxyType

from admission.api.muster.gangs import Charge
from admission.dra.allocator import stranded_devices
from admission.dra.allocator.allocation import AllocatedRequest
from admission.dra.allocator.results import Budget, Match, Pick
from admission.dra.allocator.stranded_devices import Consumption, Unranked
from admission.dra.equivalence import selected_devices
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.freechoice import group_choice
from admission.dra.freechoice.free_fits import FreeFits
from admission.dra.freechoice.node_packing import NodePacker, Pods
from admission.dra.metering import device_meters
from admission.dra.planner import node_order, pod_groups
from admission.dra.planner.cost import Pricing
from admission.dra.planner.node_groups import NodeState, SearchState
from admission.dra.planner.node_order import FirstFitRank, FreeChoiceRank
from admission.dra.planner.pod_groups import ClaimToAllocate, Gang, Outcome, Placed, PodKind
from admission.dra.planner.upper_bound import UpperBounds
from admission.dra.requests import gang_request
from admission.dra.requests.gang_request import Affordable
from admission.dra.state.cluster_state import ClusterState

_NOTHING: Mapping[str, int] = MappingProxyType({})

_Rank = tuple[bool, FirstFitRank[int]]
"""The place of a node by what a pod uses there. Last are those that are not known to take one."""


@dataclass(frozen=True, slots=True)
class _Offer:
    """Pods for one node. found: their devices, if their charge was computed."""

    node: int
    node_state: NodeState
    pods: Pods
    charge: Charge
    found: Match | None = None


@dataclass(frozen=True, slots=True)
class _Point:
    """A point of the search. used: how many nodes of the group have had their turn. left: pods still to place."""

    group: int
    used: int
    left: Pods
    charge: Charge


class BinPacker:
    """One search, over a state in which every device is one node's own and no claim is shared.

    beside: what pods request beside each device, in the mean, for the order of nodes; empty to try those with the
    fewest takeable devices first.
    """

    def __init__(  # noqa: PLR0917 - the parts of one search
        self,
        gang: Gang,
        state: SearchState,
        cluster: ClusterState,
        device_signatures: DeviceSignatures,
        budget: Budget,
        affordable: Affordable,
        beside: Mapping[str, int] = _NOTHING,
    ) -> None:
        self.outcome = Outcome(state.names)
        self._fits = FreeFits(state.units, cluster.profile)
        self._gang = gang
        self._state = state
        self._device_signatures = device_signatures
        self._budget = budget
        self._affordable = affordable
        self._pricing = Pricing(gang, device_signatures)
        bounds = self._bounds = UpperBounds(gang, state, device_signatures, stops=False)
        kinds = range(len(gang.kinds))
        total = [sum(bounds.of_node(kind, s) * len(nodes) for s, nodes in state.groups.items()) for kind in kinds]
        order = sorted(kinds, key=lambda kind: (total[kind], -gang.kinds[kind].devices, kind))
        self._node_packer = NodePacker(gang, state, cluster.profile, budget, order=order, pricing=self._pricing)
        groups = [(s, sorted(nodes)) for s, nodes in state.groups.items() if any(bounds.of_node(k, s) for k in kinds)]
        first = next((kind for kind in order if gang.kinds[kind].wanted[0]), None) if beside else None
        self._groups = sorted(groups, key=self._rank) if first is None else self._by_use(gang.kinds[first], groups)
        self._caps = [tuple(bounds.of_node(kind, node_state) for kind in kinds) for node_state, _ in self._groups]
        self._later = self._sums(self._caps, len(gang.kinds))
        self._needed = tuple(bounds.needed(kind) for kind in gang.kinds)
        counts = [bounds.counts(node_state) for node_state, _ in self._groups]
        # A shared device may serve any number of requests, so with one counting devices gives no bound.
        self._own = [(count.own,) for count in counts] if not any(count.unknown for count in counts) else []
        self._devices = self._sums(self._own, 1) if self._own else []

    def run(self) -> Outcome:
        """Search without quota first, since that is mostly enough, then with it. Raises StepsEndedError."""
        chosen = None if self._bounds.are_drained() else self._search(gang_request.anything)
        if chosen is None:
            return self.outcome
        shortfall = self._affordable(device_meters.added(offer.charge for offer in self._priced(chosen)))
        if shortfall is not None:
            self.outcome.shortfall = shortfall
            chosen = None if self._pricing.is_fixed else self._search(self._affordable)
        if chosen is not None:
            self.outcome.done, self.outcome.shortfall = True, None
            self.outcome.placed = sorted(self._placed(chosen), key=lambda placed: (placed.kind, placed.member))
        return self.outcome

    def _rank(self, group: tuple[NodeState, Sequence[int]]) -> FreeChoiceRank:
        node_state, nodes = group
        return node_order.free_choice_rank(node_state.left, self._takeable(node_state), nodes[0])

    def _by_use(
        self, kind: PodKind, groups: Sequence[tuple[NodeState, Sequence[int]]]
    ) -> list[tuple[NodeState, Sequence[int]]]:
        """Return groups, and the nodes of each, by what a pod of a kind would take and strand there."""
        found: list[tuple[_Rank, NodeState, list[int]]] = []
        # By name, so that at the end of the budget the same groups have no rank.
        for node_state, nodes in sorted(groups, key=lambda group: group[1][0]):
            use = self._fits.use(kind.parsed_requests, node_state.node_sig)
            ranked = sorted((self._rank_by_use(kind, node_state, node, use), node) for node in nodes)
            found.append((ranked[0][0], node_state, [node for _, node in ranked]))
        return [(node_state, nodes) for _, node_state, nodes in sorted(found, key=itemgetter(0))]

    def _rank_by_use(self, kind: PodKind, node_state: NodeState, node: int, use: Consumption | Unranked) -> _Rank:
        """Return the place of a node; those that are not known to take a pod come last."""
        if isinstance(use, Unranked):
            is_last = use in {Unranked.UNFIT, Unranked.UNKNOWN}
            return is_last, node_order.first_fit_rank(self._takeable(node_state), node, None, 0, kind.devices)
        before, after = self._state.served(node), self._state.served(node, kind.wants)
        stranded = stranded_devices.growth(use, before, after)
        parts = (kind.parsed_requests, node_state.node_sig, use.found, self._state.ties, self._state.division(node))
        stranded += self._fits.wasted(*parts)
        stranded += selected_devices.growth(self._state.excess(node), use.taken)
        return False, node_order.first_fit_rank(node_state.free, node, use, stranded, kind.devices)

    def _takeable(self, node_state: NodeState) -> int:
        """Return how many devices can still be taken, each considered alone."""
        ordered = self._node_packer.ordered
        return ordered(node_state).takeable if node_state.contents.counter_sets else node_state.free

    def _sums(self, each: Sequence[Pods], width: int) -> list[Pods]:
        """Return for every group what its nodes and all later ones have together. each: per node of a group."""
        sums: list[Pods] = [(0,) * width]
        for one, (_, nodes) in zip(reversed(each), reversed(self._groups), strict=True):
            sums.append(tuple(amount * len(nodes) + later for amount, later in zip(one, sums[-1], strict=True)))
        return sums[::-1]

    # The search.

    def _search(self, affordable: Affordable) -> list[_Offer] | None:
        """Return the pods of every node; None if there is no plan."""
        start = _Point(0, 0, tuple(len(kind.members) for kind in self._gang.kinds), {})
        failed: defaultdict[Hashable, list[Pods]] = defaultdict(list)
        stack, chosen = [(start, self._offers(start, affordable))], list[_Offer]()
        while stack:
            point, offers = stack[-1]
            if not any(point.left):
                return chosen
            offer = next(offers, None)
            if offer is None:
                # With the same nodes to come and the same charge, more pods left would fail as well (`_is_dead`).
                failed[_place(point)].append(point.left)
                stack.pop()
                del chosen[-1:]
                continue
            self._budget.spend()
            after = self._after(point, offer)
            if not self._is_dead(after, failed, affordable):
                chosen.append(offer)
                stack.append((after, self._offers(after, affordable)))
        return None

    def _offers(self, point: _Point, affordable: Affordable) -> Iterator[_Offer]:
        if point.group == len(self._groups):
            return
        node_state, nodes = self._groups[point.group]
        node, most = nodes[point.used], tuple(map(min, point.left, self._caps[point.group]))
        if affordable is gang_request.anything:
            # Smaller sets are not needed: a plan with one becomes a plan with a largest set if pods of later nodes are
            # moved here, and those nodes still take the rest.
            for pods in self._node_packer.largest(node_state, most):
                yield _Offer(node, node_state, pods, {})
        else:
            # Moving pods may change the charge, so with quota smaller sets may be needed.
            for pods, charge, found in self._node_packer.offers(node_state, most):
                yield _Offer(node, node_state, pods, charge, found)

    def _after(self, point: _Point, offer: _Offer) -> _Point:
        if not any(offer.pods):
            # The empty nodes of a group may be put last, so its other nodes stay empty as well.
            return _Point(point.group + 1, 0, point.left, point.charge)
        left = tuple(map(sub, point.left, offer.pods))
        charge = device_meters.added((point.charge, offer.charge)) if offer.charge else point.charge
        if point.used + 1 < len(self._groups[point.group][1]):
            return _Point(point.group, point.used + 1, left, charge)
        return _Point(point.group + 1, 0, left, charge)

    def _is_dead(self, point: _Point, failed: Mapping[Hashable, Sequence[Pods]], affordable: Affordable) -> bool:
        """Return whether no plan can be reached from a point.

        By upper bounds on the nodes left; since a failed point with the same node and charge had no more pods left; or
        since the charge, with a lower bound on the rest, is not affordable.
        """
        if not all(map(le, point.left, self._rest(self._later, self._caps, point))):
            return True
        if self._own and self._rest(self._devices, self._own, point)[0] < sum(map(mul, point.left, self._needed)):
            return True
        if any(all(map(le, other, point.left)) for other in failed.get(_place(point), ())):
            return True
        if affordable is gang_request.anything:
            return False
        shortfall = affordable(self._at_least(point))
        self.outcome.shortfall = self.outcome.shortfall or shortfall
        return shortfall is not None

    def _rest(self, sums: Sequence[Pods], each: Sequence[Pods], point: _Point) -> Pods:
        """Return what the nodes that have not had their turn have together, from the sums of all groups."""
        if not point.used:
            return sums[point.group]
        return tuple(later - one * point.used for later, one in zip(sums[point.group], each[point.group], strict=True))

    def _at_least(self, point: _Point) -> Charge:
        """Return the charge so far plus a lower bound on the cost of the rest."""
        least = zip(self._pricing.least, point.left, strict=True)
        rest = ({meter: amount * left for meter, amount in charge.items()} for charge, left in least if left)
        return device_meters.added((point.charge, *rest))

    # The plan.

    def _priced(self, chosen: Sequence[_Offer]) -> list[_Offer]:
        """Return the offers with devices and charges; equal nodes with equal pods get equal ones."""
        known: dict[tuple[NodeState, Pods], tuple[Match, Charge]] = {}
        offers: list[_Offer] = []
        for offer in chosen:
            key = (offer.node_state, offer.pods)
            if offer.found is None and key not in known:
                devices = self._node_packer.found(*key)
                assert devices is not None  # noqa: S101 - it was found to fit
                known[key] = (devices, self._node_packer.charge(*key, devices))
            found, charge = known[key] if offer.found is None else (offer.found, offer.charge)
            offers.append(replace(offer, charge=charge, found=found))
        return offers

    def _placed(self, chosen: Sequence[_Offer]) -> Iterator[Placed]:
        members = [0] * len(self._gang.kinds)
        for offer in self._priced(chosen):
            assert offer.found is not None  # noqa: S101 - priced
            picks = iter(self._chosen(offer, offer.found).picks)
            for kind in self._node_packer.members(offer.pods):
                wanted = self._gang.kinds[kind].wanted[members[kind]]
                claims = tuple((one, self._given(offer, one, next(picks))) for one in wanted)
                yield Placed(kind, members[kind], offer.node, claims)
                members[kind] += 1

    def _chosen(self, offer: _Offer, found: Match) -> Match:
        """Return devices of a node in place of those found: such as leave the most to claims that tie devices."""
        division = self._state.division(offer.node)
        kinds = (self._gang.kinds[kind] for kind in self._node_packer.members(offer.pods))
        claims = [claim for kind in kinds for claim in kind.parsed_requests]
        return group_choice.chosen(self._state.ties, division, claims, found, self._state.units_of(offer.node_state))

    def _given(self, offer: _Offer, wanted: ClaimToAllocate, picks: Sequence[Pick]) -> tuple[AllocatedRequest, ...]:
        listed_devices, shown = self._state.layouts[offer.node].listed_devices, self._state.visible_devices(offer.node)
        units = self._state.units_of(offer.node_state)
        parsed_requests = self._device_signatures.parsed_requests
        options = [wanted.parsed.requests[pick.request].options[pick.option] for pick in picks]
        return tuple(
            pod_groups.given(option, listed_devices[shown[pick.at]], units[pick.at].signature, parsed_requests)
            for option, pick in zip(options, picks, strict=True)
        )


def _place(point: _Point) -> Hashable:
    """Return all that the rest of the search depends on, beside the pods left to place."""
    return (point.group, point.used, tuple(sorted(point.charge.items())))
