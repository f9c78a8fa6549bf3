"""The search over pods and nodes under first fit: depth first, over kinds of pods and groups of equal nodes.

Sound: a pod is placed on a node only with the devices that the allocator's first fit gives it there beside the pods
placed before it, and the quota is checked with their cost.

Enumerated at every point: the kinds with pods left, those with the fewest nodes first, and pods that follow only when
all others are placed; for each kind one node of every group of equal nodes that takes it, the node with the fewest free
devices first.

Skipped, without losing a plan:
- the other nodes of a group: nothing that the gang reads tells them apart;
- a point from which everything was tried, however it is reached (`_failed`);
- a point that fails a bound that no plan below it can beat (`_is_dead`): too few devices or resources by counting, or
  not affordable even at the lowest prices;
- the kinds after one that fits nowhere now and so nowhere later (`_ranked`);
- other orders of pods where the order changes nothing (`_commutes`);
- all other points, once one has no option and every other order would end the same (`_plain`).

Bounded by the budget: at its end StepsEndedError is raised, and nothing is proved.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from types import MappingProxyType

from admission.api.muster.gangs import Charge
from admission.api.values.names import MeterName
from admission.dra.allocator import stranded_devices
from admission.dra.allocator.allocation import AllocatedRequest
from admission.dra.allocator.first_fits import FirstFits
from admission.dra.allocator.results import Budget, DeadEnd, Match, Pick
from admission.dra.allocator.stranded_devices import Consumption
from admission.dra.equivalence import selected_devices
from admission.dra.equivalence.device_signature import Answer, DeviceSignature, DeviceSignatures
from admission.dra.inventory import pools
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.metering import device_meters
from admission.dra.planner import node_order, pod_groups
from admission.dra.planner.cost import Pricing
from admission.dra.planner.device_resources import DeviceResources
from admission.dra.planner.node_groups import NodeState, SearchState, Undo
from admission.dra.planner.node_order import FirstFitRank
from admission.dra.planner.pod_groups import Gang, Outcome, Placed, PodKind
from admission.dra.planner.upper_bound import RemainingPods, UpperBounds
from admission.dra.requests import requests
from admission.dra.requests.gang_request import Affordable
from admission.dra.requests.kinds_of_use import KindsOfUse
from admission.dra.requests.node_resources import Lacking
from admission.dra.requests.requests import Fatal, ParsedClaim, RequestRefusal
from admission.dra.state.cluster_state import ClusterState


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to go on: a pod of a kind, on a node. open: the places of its claims that are allocated with it."""

    kind: int
    node: int
    found: Match
    open: tuple[int, ...]
    charge: Charge


_Fit = Match | DeadEnd | Lacking | RequestRefusal | None
"""What a pod gets on a node, or why it gets nothing."""

_NOTHING: Mapping[str, int] = MappingProxyType({})

_RankedNode = tuple[FirstFitRank[int], Match, NodeState]
"""A node's rank, what a pod gets there, and the node's state."""


class FirstFitSearch:
    """One search.

    Its plans rest on no known defect of kube-scheduler. greedy: never step back, to show where the gang gets stuck.
    disproved: whether a search with more freedom proves that there is no plan; called once, when an eighth of the
    budget is spent. beside: what pods request beside each device, in the mean, for the order of nodes; empty to try
    those with the fewest free devices first. kinds_of_use: for the same order.
    """

    def __init__(  # noqa: PLR0913 - the parts of one search
        self,
        gang: Gang,
        cluster: ClusterState,
        device_signatures: DeviceSignatures,
        budget: Budget,
        affordable: Affordable,
        *,
        greedy: bool,
        disproved: Callable[[], bool] | None = None,
        beside: Mapping[str, int] = _NOTHING,
        kinds_of_use: KindsOfUse = (),
    ) -> None:
        self.state = SearchState(gang, cluster, device_signatures, beside, kinds_of_use=kinds_of_use)
        self._orders_by_use = bool(beside)
        self.outcome = Outcome(self.state.names)
        self._gang = gang
        self._cluster = cluster
        self._device_signatures = device_signatures
        self._budget = budget
        self._affordable = affordable
        self._greedy = greedy
        self._disproved = disproved
        self._charge: dict[MeterName, int] = {}
        self._undo: list[tuple[Undo, ...]] = []
        self._failed: set[Hashable] = set()
        self._fits: dict[Hashable, _Fit] = {}
        self._searched: dict[Hashable, Match | DeadEnd | RequestRefusal] = {}
        # Contents are as the signatures' profile has them, which for a free choice lacks defects of the cluster's.
        self._first_fits = FirstFits(self.state.units, device_signatures.need.profile)
        self._consumptions: dict[Hashable, Consumption | None] = {}
        self._parsed = device_signatures.parsed_requests
        self._bounds = UpperBounds(gang, self.state, device_signatures)
        self._remaining = RemainingPods(gang, self.state, self._bounds)
        self._pricing = Pricing(gang, device_signatures)
        self._prices: dict[tuple[int, tuple[int, ...], int, NodeState], tuple[Match, Charge]] = {}
        self._order = sorted(range(len(gang.kinds)), key=self._scarcity)
        # With one kind of pod and nothing shared, how many pods a node takes does not depend on other nodes: a point
        # without options has filled every node, and every other order would end there as well.
        fixed = all(layout.fixed for layout in self.state.layouts)
        rules = gang.coupled
        self._depends_on_order = rules is not None and rules.depend_on_order
        self._plain = len(gang.kinds) == 1 and not gang.shared and fixed and (rules is None or rules.are_plain)
        self._commuting = fixed and not gang.shared and (rules is None or rules.commute) and self._commutes()
        self._by_devices = DeviceResources(gang, self.state, cluster.profile.release) if self.state.takes else None
        self.state.on_change = self._remaining.follow

    def run(self) -> Outcome:
        """Search. Raises StepsEndedError."""
        if self._is_dead() or (not self._greedy and (self._bounds.are_drained() or self._bounds.are_crowded())):
            return self.outcome
        # The stack has the untried options of every point on the way here; `has_backtracked`: whether it ever stepped
        # back.
        stack, has_backtracked = [self._options()], False
        while stack:
            if not any(self._remaining.left):
                self.outcome.done = True
                return self.outcome
            option = next(stack[-1], None)
            if option is not None:
                self._budget.spend(self._work(option) if has_backtracked else 1)
                if has_backtracked and self._is_disproved():
                    self.outcome.shortfall = None
                    return self.outcome
                self._apply(option)
                if self._is_dead():
                    has_backtracked = True
                    self._undo_last()
                else:
                    stack.append(self._options())
                continue
            if self._is_final():
                return self.outcome
            # Everything from this point was tried: the key has all that the rest depends on, so no equal point helps.
            has_backtracked = True
            self._failed.add(self._key())
            stack.pop()
            if stack:
                self._undo_last()
        return self.outcome

    def dead_end_at(self, kind: PodKind, node: int) -> DeadEnd | None:
        """Return where the search for devices of a pod of the kind gets stuck on a node in the current state."""
        number = next(at for at, one in enumerate(self._gang.kinds) if one is kind)
        found = self._fit(number, self._open(number), self.state.signatures[node])
        return found if isinstance(found, DeadEnd) else None

    def lacking_at(self, kind: PodKind, node: int) -> Lacking | None:
        """Return what a node has too little of for a pod of the kind with the devices that it would get there."""
        number = next(at for at, one in enumerate(self._gang.kinds) if one is kind)
        found = self._fit(number, self._open(number), self.state.signatures[node])
        return found if isinstance(found, Lacking) else None

    def _is_final(self) -> bool:
        """Return whether a point without options ends the whole search."""
        return self._greedy or (self._plain and self.outcome.dead_end is not None)

    def _is_disproved(self) -> bool:
        """Return whether the search with more freedom has proved that there is no plan, with or without quota."""
        disproved = self._disproved
        if disproved is None or self._budget.spent * 8 < self._budget.total:
            return False
        self._disproved = None
        return disproved()

    def _work(self, option: _Option) -> int:
        """Return the steps for placing a pod: its node's devices and the groups of nodes are evaluated again."""
        return MOVE_STEPS + (len(self.state.layouts[option.node].numbers) + len(self.state.groups)) // 4

    # What may come next.

    def _options(self) -> Iterator[_Option]:
        are_followers_next = True
        for kind in self._order:
            if not self._remaining.left[kind]:
                continue
            follows = self._gang.kinds[kind].follows
            if follows and not are_followers_next:
                return
            are_followers_next = are_followers_next and follows
            open_ = self._open(kind)
            ranked, is_unplaceable = self._ranked(kind, open_)
            for (*_, node), first, node_state in ranked:
                for found in self._ways(kind, open_, first, node_state):
                    yield _Option(kind, node, found, open_, self._price(kind, open_, found, node_state))
            if not ranked:
                self.outcome.dead_end = kind
            # The other kinds are skipped: a hopeless kind is never placed below here, and if the order does not matter
            # every plan can be built with the kinds in this order.
            if is_unplaceable or self._commuting or self._greedy:
                return

    def _price(self, kind: int, open_: tuple[int, ...], found: Match, node_state: NodeState) -> Charge:
        """Return what a pod costs with these devices; computed once for pods that get the same."""
        key = (kind, open_, id(found), node_state)
        known = self._prices.get(key)
        if known is None:
            charge = self._pricing.of_pod(kind, open_, found.picks, self.state.units_of(node_state))
            # The match is kept with the charge, so that no other object takes its id.
            known = self._prices[key] = (found, charge)
        return known[1]

    def _ways(self, kind: int, open_: tuple[int, ...], first: Match, node_state: NodeState) -> Iterable[Match]:  # noqa: ARG002
        """Return the devices that a pod of the kind may get on such a node: only the first fit."""
        return (first,)

    def _open(self, kind: int) -> tuple[int, ...]:
        """Return the places of the kind's claims that are not allocated yet; a shared one may be."""
        allocated = self.state.allocated
        shared = self._gang.kinds[kind].shared
        return tuple(at for at, number in enumerate(shared) if number is None or allocated[number] is None)

    def _ranked(self, kind: int, open_: tuple[int, ...]) -> tuple[list[_RankedNode], bool]:
        """Return one node for each group of equal nodes, in `node_order`, and whether the kind is hopeless.

        A pod that fits nowhere now fits nowhere later, when less is free. The exceptions are not hopeless: a selector
        failed, or the devices are not certain (a dead end that is not firm), and the device in question may be taken
        later; or the pod waits for a shared claim that another pod has to bring.
        """
        shared = self._gang.kinds[kind].shared
        needed = {number for at, number in enumerate(shared) if number is not None and at not in open_}
        final = all(shared[at] is None for at in open_)
        ranked: list[_RankedNode] = []
        for node_state in self.state.groups:
            if needed <= node_state.usable:
                found = self._fit(kind, open_, node_state)
                if isinstance(found, Match) and self._is_refused(kind, node_state):
                    final = final and not self._depends_on_order
                elif isinstance(found, Match):
                    ranked.append((self._rank(kind, open_, found, node_state), found, node_state))
                elif isinstance(found, DeadEnd):
                    final = final and found.firm
                elif isinstance(found, Lacking):
                    # When its devices are taken, it gets others, which may take less.
                    final = False
                elif found is not None:
                    final = False
                    self.outcome.refusals.setdefault(found, (kind, _claim_of(found, open_)))
        ranked.sort(key=itemgetter(0))
        return ranked, final and not ranked

    def _rank(self, kind: int, open_: tuple[int, ...], found: Match, node_state: NodeState) -> FirstFitRank[int]:
        """Return the place of a group of nodes in the order."""
        first, described = self.state.first(node_state), self._gang.kinds[kind]
        if not self._orders_by_use:
            return node_order.first_fit_rank(node_state.free, first, None, 0, described.devices)
        key = (kind, open_, node_state.node_sig)
        claims = tuple(described.parsed_requests[at] for at in open_)
        if key not in self._consumptions:
            self._consumptions[key] = self._first_fits.consumption(claims, node_state.node_sig, found)
        consumption = self._consumptions[key]
        if consumption is None:
            return node_order.first_fit_rank(node_state.free, first, None, 0, described.devices)
        before, after = self.state.served(first), self.state.served(first, described.wants)
        stranded = stranded_devices.growth(consumption, before, after)
        division = node_state.division or self.state.division(first)
        stranded += self._first_fits.wasted(claims, node_state.node_sig, found, self.state.ties, division)
        stranded += selected_devices.growth(self.state.excess(first), consumption.taken)
        return node_order.first_fit_rank(node_state.free, first, consumption, stranded, described.devices)

    def _is_refused(self, kind: int, node_state: NodeState) -> bool:
        """Return whether a rule between pods keeps a pod of the kind off such a node now."""
        if self.state.rules is None:
            return False
        return self.state.refuses(self._gang.kinds[kind], self.state.first(node_state)) is not None

    def _fit(self, kind: int, open_: tuple[int, ...], node_state: NodeState) -> _Fit:
        """Return what a pod of the kind gets on such a node; None if filters or resources keep it off."""
        key = (kind, open_, node_state, None if self._by_devices is None else self._by_devices.key)
        if key not in self._fits:
            self._fits[key] = self._searched_fit(kind, open_, node_state)
        return self._fits[key]

    def _searched_fit(self, kind: int, open_: tuple[int, ...], node_state: NodeState) -> _Fit:
        described = self._gang.kinds[kind]
        if kind not in node_state.kinds or self.state.bounds(described, node_state) == 0:
            return None
        found = self._first_fit(tuple(described.parsed_requests[at] for at in open_), node_state)
        if self._by_devices is None or not isinstance(found, Match):
            return found
        return self._by_devices.checked(kind, open_, found, node_state)

    def _first_fit(self, claims: tuple[ParsedClaim, ...], node_state: NodeState) -> Match | DeadEnd | RequestRefusal:
        """Return what kube-scheduler will give on such a node."""
        key = (claims, node_state.contents)
        found = self._searched.get(key)
        if found is None:
            found = self._searched[key] = self._first_fits.fit(claims, node_state.node_sig, self._budget)
        return found

    def _commutes(self) -> bool:
        """Return whether the order of pods does not matter, so that one order is enough.

        It does not if for any two kinds no device matches both, or both match the same single sort of device and each
        takes a fixed number; and, with several kinds, no device is shared or draws from counters.
        """
        kinds, known = self._gang.kinds, self._device_signatures.known
        numbers = {number for row in {layout.numbers for layout in self.state.layouts} for number in row}
        if len(kinds) > 1 and any(known[number].shared or known[number].draw is not None for number in numbers):
            return False
        options = [list(requests.options(kind.parsed_requests)) for kind in kinds]
        fixed = [
            all(len(r.options) == 1 and r.options[0].plain for c in kind.parsed_requests for r in c.requests)
            for kind in kinds
        ]
        matched = [
            {
                number
                for number in numbers
                if any(known[number].answers[self._parsed[o.parsed]] is not Answer.NO for o in wanted)
            }
            for wanted in options
        ]
        return all(
            not (one & other) or (one == other and len(one) == 1 and fixed[at] and fixed[before])
            for at, one in enumerate(matched)
            for before, other in enumerate(matched[:at])
        )

    # Going on and back.

    def _apply(self, option: _Option) -> None:
        kind = self._gang.kinds[option.kind]
        listed_devices = self.state.layouts[option.node].listed_devices
        shown = [listed_devices[place] for place in self.state.visible_devices(option.node)]
        member = len(kind.members) - self._remaining.left[option.kind]
        units = self.state.units_of(self.state.signatures[option.node])
        wanted_here = [kind.wanted[member][at] for at in option.open]
        claims = tuple(
            (
                wanted,
                tuple(self._given(wanted.parsed, pick, shown[pick.at], units[pick.at].signature) for pick in picks),
            )
            for wanted, picks in zip(wanted_here, option.found.picks, strict=True)
        )
        uses = [use for _, given in claims for one in given if (use := one.use) is not None]
        by_devices, shares = self._taken_by_devices(option)
        taken = self.state.assume(kind, option.node, uses, by_devices)
        shared = tuple(
            self.state.allocate_shared(wanted.shared, self._usable_from(option.node, [one.listed for one in given]))
            for wanted, given in claims
            if wanted.shared is not None
        )
        before = self._charge
        self._charge = device_meters.added((before, option.charge))
        self._remaining.left[option.kind] -= 1
        self.outcome.placed.append(Placed(option.kind, member, option.node, claims, by_devices))

        def restore() -> None:
            self._charge = before
            self._remaining.left[option.kind] += 1
            self.outcome.placed.pop()

        self._undo.append((restore, *reversed(shared), taken, *shares))

    def _taken_by_devices(self, option: _Option) -> tuple[Mapping[str, int], list[Undo]]:
        """Return what a pod's devices take of its node; record those of shared claims, and return the undo of that."""
        if self._by_devices is None:
            return {}, []
        node_state, kind = self.state.signatures[option.node], self._gang.kinds[option.kind]
        taken = self._by_devices.of_pod(option.kind, option.open, option.found, node_state)
        wanted = [(place, kind.wanted[0][at]) for place, at in enumerate(option.open)]
        shares = [
            self._by_devices.share(one.shared, self._by_devices.given(one, option.found, place, node_state))
            for place, one in wanted
            if one.shared is not None
        ]
        return {} if isinstance(taken, Fatal) else taken, shares

    def _given(
        self, claim: ParsedClaim, pick: Pick, listed: InventoryDevice, signature: DeviceSignature
    ) -> AllocatedRequest:
        option = claim.requests[pick.request].options[pick.option]
        return pod_groups.given(option, listed, signature, self._parsed)

    def _undo_last(self) -> None:
        for undo in self._undo.pop():
            undo()

    def _usable_from(self, node: int, listed_devices: Sequence[InventoryDevice]) -> frozenset[int]:
        """Return the nodes on which a claim with these devices may be used, as its allocation will say."""
        if any(listed.binds for listed in listed_devices):
            return frozenset((node,))
        nodes = [self._cluster.nodes[name] for name in self.state.names]
        return frozenset(
            at
            for at, other in enumerate(nodes)
            if all(pools.node_matches(listed.place, other) for listed in listed_devices)
        )

    # What is skipped.

    def _is_dead(self) -> bool:
        """Return whether no plan can be reached from here: by counting, by memory of failures, or by quota.

        The counts are upper bounds and the prices lower bounds, so no plan is cut off.
        """
        if self._greedy:
            return False
        if self._remaining.are_too_many() or self.state.are_short_of_volumes(self._remaining.left):
            return True
        if self._failed and self._key() in self._failed:
            return True
        shortfall = self._affordable(self._at_least())
        self.outcome.shortfall = self.outcome.shortfall or shortfall
        return shortfall is not None

    def _key(self) -> Hashable:
        """Return all that the rest of the search depends on: pods left, node states, shared claims and charge."""
        shared = None if self._by_devices is None else self._by_devices.key
        return (self._remaining.key, tuple(self.state.allocated), tuple(sorted(self._charge.items())), shared)

    def _at_least(self) -> Charge:
        """Return the charge so far plus a lower bound on the cost of the rest."""
        rest = (
            {meter: amount * left for meter, amount in cheapest.items()}
            for cheapest, left in zip(self._pricing.least, self._remaining.left, strict=True)
            if left
        )
        shared = (least for number, least in self._pricing.least_shared.items() if self.state.allocated[number] is None)
        return device_meters.added((self._charge, *rest, *shared))

    def _scarcity(self, kind: int) -> tuple[bool, int, int, int, int]:
        """Return the sort key of a kind: followers last, then kube-scheduler's order, few nodes, many devices."""
        described, rules = self._gang.kinds[kind], self._gang.coupled
        rank = rules.rank(described.rules) if rules is not None else 0
        nodes = sum(
            len(group) for node_state, group in self.state.groups.items() if self._bounds.of_node(kind, node_state)
        )
        return (described.follows, rank, nodes, -described.devices, kind)


MOVE_STEPS = 24
"""Steps for placing a pod, beside those for evaluating devices and groups again."""


def _claim_of(refusal: RequestRefusal, open_: Sequence[int]) -> int | None:
    """Return the place, among the pod's claims, of the open claim that stopped the search."""
    return open_[refusal.claim] if isinstance(refusal, Fatal) and refusal.claim is not None else None
