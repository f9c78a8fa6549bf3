"""The search over pods and nodes: depth first, with steps back, over kinds of pods and groups of equal nodes.

Why it is complete: at every point each kind of pod that is left is tried on one node of every group of equal nodes. A
point from which everything was tried is not tried again, however it is reached. Points that cannot lead to a plan are
left early: too few devices or resources by counting, or not affordable even at the lowest prices.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from admission.api.devices import Device, Slice
from admission.api.gangs import Charge
from admission.api.names import MeterName, NodeName
from admission.dra import metering, pools, searching, states
from admission.dra.asking import ClaimAsk, Refusal
from admission.dra.demands import Gang, PodKind, Wanted
from admission.dra.plans import Affordable, Shortfall
from admission.dra.pools import Spot
from admission.dra.profiles import Answer, Profiles
from admission.dra.searching import Budget, Found, Stuck
from admission.dra.states import Signature, State, Undo
from admission.dra.worlds import World


@dataclass(frozen=True, slots=True)
class Placed:
    """A pod's place: its kind, its number among the members, its node, and per claim the devices by request."""

    kind: int
    member: int
    node: int
    claims: tuple[tuple[Wanted, tuple[tuple[int, Spot], ...]], ...]


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to go on: a pod of a kind, on a node. open: the kind's claims that are allocated here."""

    kind: int
    node: int
    found: Found
    open: tuple[int, ...]
    charge: Charge


@dataclass(slots=True)
class Outcome:
    """What the search met.

    names: of the nodes, by number. placed: the plan when `done`; else, of a greedy search, how far it came. stuck: the
    kind that found no place there. shortfall: the first charge that was not affordable. refusals: what stopped the
    search of devices, and for which kind, in the order met.
    """

    names: list[NodeName]
    done: bool = False
    placed: list[Placed] = field(default_factory=list)
    stuck: int | None = None
    shortfall: Shortfall | None = None
    refusals: dict[Refusal, int] = field(default_factory=dict)


_Ranked = tuple[int, int, Found, Signature]
"""Free devices, number of a node, what a pod gets there, and the node's signature."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Free devices of one node: per ask; its own, for any ask; and the asks of which some device stops the search."""

    matching: tuple[int, ...]
    own: int
    unknown: frozenset[int]


class Placer:
    """One search. `greedy` never steps back: it shows people where the gang gets stuck."""

    def __init__(  # noqa: PLR0913 - the parts of one search
        self, gang: Gang, world: World, profiles: Profiles, budget: Budget, affordable: Affordable, *, greedy: bool
    ) -> None:
        self.state = State(gang, world, profiles)
        self.outcome = Outcome(self.state.names)
        self._gang = gang
        self._world = world
        self._profiles = profiles
        self._budget = budget
        self._affordable = affordable
        self._greedy = greedy
        self._left = [len(kind.members) for kind in gang.kinds]
        self._charge: dict[MeterName, int] = {}
        self._undo: list[tuple[Undo, ...]] = []
        self._failed: set[Hashable] = set()
        self._moved: defaultdict[Signature, int] = defaultdict(int)
        self._fits: dict[tuple[int, tuple[int, ...], Signature], Found | Stuck | Refusal | None] = {}
        self._searched: dict[Hashable, Found | Stuck | Refusal] = {}
        self._rooms: dict[tuple[int, Signature], int] = {}
        self._ask = {ask: at for at, ask in enumerate(profiles.need.asks)}
        self._own_needs = [self._needs(kind) for kind in gang.kinds]
        self._counted: dict[Signature, _Counts] = {}
        self._total = [self._all_rooms(kind) for kind in range(len(gang.kinds))]
        self._cheapest = [self._least(kind) for kind in gang.kinds]
        self._order = sorted(range(len(gang.kinds)), key=self._scarcity)
        # With one kind of pod and nothing shared, what a node takes in does not depend on the others: where the first
        # try is stuck, every other one is too.
        fixed = all(layout.fixed for layout in self.state.layouts)
        self._plain = len(gang.kinds) == 1 and not gang.shared and fixed
        self._countable = not any(self._counts(signature).unknown for signature in self.state.groups)
        self._devices = sum(self._counts(signature).own * len(nodes) for signature, nodes in self.state.groups.items())
        self._need_of_each = [sum(needs.values()) for needs in self._own_needs]
        self._commuting = fixed and not gang.shared and self._commutes()
        self.state.on_change = self._changed

    def run(self) -> Outcome:
        """Search. Raises StepsEndedError."""
        if self._is_dead():
            return self.outcome
        stack = [self._options()]
        while stack:
            if not any(self._left):
                self.outcome.done = True
                return self.outcome
            option = next(stack[-1], None)
            if option is not None:
                self._budget.spend()
                self._apply(option)
                if self._is_dead():
                    self._take_back()
                else:
                    stack.append(self._options())
                continue
            if self._is_final():
                return self.outcome
            self._failed.add(self._key())
            stack.pop()
            if stack:
                self._take_back()
        return self.outcome

    def _is_final(self) -> bool:
        """Return whether being stuck here is the end."""
        return self._greedy or (self._plain and self.outcome.stuck is not None)

    # What may come next.

    def _options(self) -> Iterator[_Option]:
        for kind in self._order:
            if not self._left[kind]:
                continue
            open_ = self._open(kind)
            ranked, hopeless = self._ranked(kind, open_)
            for _, node, found, signature in ranked:
                yield _Option(kind, node, found, open_, self._price(kind, open_, found, signature))
            if not ranked:
                self.outcome.stuck = kind
            if hopeless or self._commuting or self._greedy:
                return

    def _open(self, kind: int) -> tuple[int, ...]:
        """Return the places of the kind's claims that are still to be allocated."""
        allocated = self.state.allocated
        shared = self._gang.kinds[kind].shared
        return tuple(at for at, number in enumerate(shared) if number is None or allocated[number] is None)

    def _ranked(self, kind: int, open_: tuple[int, ...]) -> tuple[list[_Ranked], bool]:
        """Return one node for each group of equal nodes, the fullest first, and whether the kind has no hope left.

        A pod that fits nowhere now fits nowhere later, when less is free; unless a failing selector kept it away, since
        the device may be taken by then, or it waits for a claim that another pod brings.
        """
        shared = self._gang.kinds[kind].shared
        needed = {number for at, number in enumerate(shared) if number is not None and at not in open_}
        final = all(shared[at] is None for at in open_)
        ranked: list[_Ranked] = []
        for signature, nodes in self.state.groups.items():
            if needed <= signature.usable:
                found = self._fit(kind, open_, signature)
                if isinstance(found, Found):
                    ranked.append((len(signature.free), min(nodes), found, signature))
                elif found is not None and not isinstance(found, Stuck):
                    final = False
                    self.outcome.refusals.setdefault(found, kind)
        ranked.sort(key=itemgetter(0, 1))
        return ranked, final and not ranked

    def _fit(self, kind: int, open_: tuple[int, ...], signature: Signature) -> Found | Stuck | Refusal | None:
        """Return what a pod of the kind gets on such a node; None when it may not go there or has no room."""
        key = (kind, open_, signature)
        if key not in self._fits:
            self._fits[key] = self._searched_fit(kind, open_, signature)
        return self._fits[key]

    def _searched_fit(self, kind: int, open_: tuple[int, ...], signature: Signature) -> Found | Stuck | Refusal | None:
        described = self._gang.kinds[kind]
        if kind not in signature.kinds or self.state.rooms(described, signature) == 0:
            return None
        claims = tuple(described.asks[at] for at in open_)
        free = tuple(map(states.profile_of, signature.free))
        found = self._searched.get((claims, free))
        if found is None:
            found = self._searched[claims, free] = searching.search(claims, free, self._profiles, self._budget)
        return found

    def _price(self, kind: int, open_: tuple[int, ...], found: Found, signature: Signature) -> Charge:
        total: dict[MeterName, int] = {}
        for at, picks in zip(open_, found.picks, strict=True):
            marks: set[metering.Mark] = set()
            for request, place in picks:
                ask = self._ask[self._gang.kinds[kind].asks[at].requests[request].ask]
                price = self._profiles.known[states.profile_of(signature.free[place])].prices[ask]
                marks |= price.marks
                for meter, amount in price.amounts:
                    total[meter] = total.get(meter, 0) + amount
            for meter, _ in marks:
                total[meter] = total.get(meter, 0) + 1
        return total

    def _commutes(self) -> bool:
        """Return whether the order of pods does not matter, so that one order is enough.

        So it is where no two kinds can get the same device, or only devices that are all equal.
        """
        known = self._profiles.known
        numbers = {number for row in {layout.numbers for layout in self.state.layouts} for number in row}
        matched = [
            {number for number in numbers if any(known[number].answers[ask] is not Answer.NO for ask in needs)}
            for needs in self._own_needs
        ]
        return all(
            not (one & other) or (one == other and len(one) == 1)
            for at, one in enumerate(matched)
            for other in matched[:at]
        )

    # Going on and back.

    def _apply(self, option: _Option) -> None:
        kind = self._gang.kinds[option.kind]
        spots, places = self.state.layouts[option.node].spots, self.state.free_spots(option.node)
        member = len(kind.members) - self._left[option.kind]
        claims = tuple(
            (kind.wanted[member][at], tuple((request, spots[places[place]]) for request, place in picks))
            for at, picks in zip(option.open, option.found.picks, strict=True)
        )
        taken = self.state.take(kind, option.node, (spot.id for _, picks in claims for _, spot in picks))
        shared = tuple(
            self.state.allocate_shared(wanted.shared, self._usable_from(option.node, [spot for _, spot in picks]))
            for wanted, picks in claims
            if wanted.shared is not None
        )
        before = self._charge
        self._charge = metering.added((before, option.charge))
        self._left[option.kind] -= 1
        self.outcome.placed.append(Placed(option.kind, member, option.node, claims))

        def restore() -> None:
            self._charge = before
            self._left[option.kind] += 1
            self.outcome.placed.pop()

        self._undo.append((restore, *reversed(shared), taken))

    def _take_back(self) -> None:
        for undo in self._undo.pop():
            undo()

    def _usable_from(self, node: int, spots: Sequence[Spot]) -> frozenset[int]:
        """Return the nodes on which a claim with these devices may be used, as its allocation will say."""
        if any(_is_of_one_node(spot) for spot in spots):
            return frozenset((node,))
        nodes = [self._world.nodes[name] for name in self.state.names]
        return frozenset(
            at for at, other in enumerate(nodes) if all(pools.node_matches(_place(spot), other) for spot in spots)
        )

    # What is left early.

    def _is_dead(self) -> bool:
        """Return whether no plan can come from here."""
        if self._greedy:
            return False
        if any(total < left for total, left in zip(self._total, self._left, strict=True)) or self._is_short():
            return True
        if self._failed and self._key() in self._failed:
            return True
        shortfall = self._affordable(self._at_least())
        self.outcome.shortfall = self.outcome.shortfall or shortfall
        return shortfall is not None

    def _is_short(self) -> bool:
        """Return whether the pods that are left need more devices than are free, whoever gets which."""
        if not self._countable:
            return False
        needed = sum(left * need for left, need in zip(self._left, self._need_of_each, strict=True))
        return self._devices < needed and self._devices + self.state.free_shared < needed

    def _key(self) -> Hashable:
        """Return what the rest of the search depends on."""
        moved = frozenset(entry for entry in self._moved.items() if entry[1])
        return (tuple(self._left), tuple(self.state.allocated), tuple(sorted(self._charge.items())), moved)

    def _changed(self, before: Signature, after: Signature) -> None:
        self._moved[before] -= 1
        self._moved[after] += 1
        for kind in range(len(self._total)):
            self._total[kind] += self._rooms_for(kind, after) - self._rooms_for(kind, before)
        self._devices += self._counts(after).own - self._counts(before).own

    def _all_rooms(self, kind: int) -> int:
        return sum(self._rooms_for(kind, signature) * len(nodes) for signature, nodes in self.state.groups.items())

    def _rooms_for(self, kind: int, signature: Signature) -> int:
        """Return for how many pods of a kind a node has enough at most, by counting resources and devices."""
        key = (kind, signature)
        if key not in self._rooms:
            self._rooms[key] = self._counted_rooms(kind, signature)
        return self._rooms[key]

    def _counted_rooms(self, kind: int, signature: Signature) -> int:
        if kind not in signature.kinds:
            return 0
        described = self._gang.kinds[kind]
        rooms = self.state.rooms(described, signature)
        most = len(described.members) if rooms is None else min(rooms, len(described.members))
        needs = self._own_needs[kind]
        counts = self._counts(signature)
        if counts.unknown & needs.keys():
            return most
        for ask, count in needs.items():
            most = min(most, counts.matching[ask] // count)
        if len(needs) > 1:
            rows = (self._profiles.known[states.profile_of(code)].answers for code in signature.free)
            matching = sum(any(row[ask] is Answer.YES for ask in needs) for row in rows)
            most = min(most, matching // sum(needs.values()))
        return most

    def _counts(self, signature: Signature) -> "_Counts":
        """Return the free devices of a node by what they do for."""
        known = self._counted.get(signature)
        if known is None:
            rows = [self._profiles.known[states.profile_of(code)].answers for code in signature.free]
            asks = range(len(self._profiles.need.asks))
            known = self._counted[signature] = _Counts(
                matching=tuple(sum(row[ask] is Answer.YES for row in rows) for ask in asks),
                own=sum(
                    Answer.YES in row for code, row in zip(signature.free, rows, strict=True) if states.is_local(code)
                ),
                unknown=frozenset(ask for ask in asks if any(not isinstance(row[ask], Answer) for row in rows)),
            )
        return known

    def _needs(self, kind: PodKind) -> dict[int, int]:
        """Return per ask the devices that every pod of the kind needs; shared claims are not needed by each."""
        needs: dict[int, int] = {}
        for wanted in kind.wanted[0]:
            if wanted.shared is None:
                for request in wanted.ask.requests:
                    ask = self._ask[request.ask]
                    needs[ask] = needs.get(ask, 0) + request.count
        return {ask: count for ask, count in needs.items() if count > 0}

    def _at_least(self) -> Charge:
        """Return the charge so far and the lowest that the rest may cost."""
        rest = (
            {meter: amount * left for meter, amount in cheapest.items()}
            for cheapest, left in zip(self._cheapest, self._left, strict=True)
            if left
        )
        return metering.added((self._charge, *rest))

    def _least(self, kind: PodKind) -> Charge:
        """Return what a pod's own claims cost at least, on any device that does for them."""
        own = (wanted.ask for wanted in kind.wanted[0] if wanted.shared is None)
        return metering.added(self._least_of(claim) for claim in own)

    def _least_of(self, claim: ClaimAsk) -> Charge:
        total: dict[MeterName, int] = {}
        marks: dict[metering.Mark, bool] = {}
        for request in claim.requests:
            ask = self._ask[request.ask]
            prices = [p.prices[ask] for p in self._profiles.known if p.answers[ask] is Answer.YES]
            for meter in {meter for price in prices for meter, _ in price.amounts}:
                lowest = min(dict(price.amounts).get(meter, 0) for price in prices)
                total[meter] = total.get(meter, 0) + lowest * request.count
            if prices and request.count:
                marks.update(dict.fromkeys(frozenset.intersection(*(price.marks for price in prices)), True))
        for meter, _ in marks:
            total[meter] = total.get(meter, 0) + 1
        return total

    def _scarcity(self, kind: int) -> tuple[int, int, int]:
        """Return the sort key of kinds: those with the fewest nodes first, then those that need the most devices."""
        described = self._gang.kinds[kind]
        nodes = sum(len(group) for signature, group in self.state.groups.items() if self._rooms_for(kind, signature))
        return (nodes, -described.devices, kind)


def _is_of_one_node(spot: Spot) -> bool:
    return bool(_place(spot).node_name)


def _place(spot: Spot) -> Slice | Device:
    """Return what says on which nodes a device may be used: its slice, or the device itself."""
    return spot.device if spot.slice.per_device_nodes else spot.slice
