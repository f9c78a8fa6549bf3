"""Which pods of a gang one node can take in together, where devices may be chosen freely, and what they get there.

How many pods of each kind is a tuple here, by the kinds' numbers. What fits still fits with a pod less, so the largest
of such tuples tell all.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from operator import le

from admission.api.muster.gangs import Charge
from admission.dra.allocator.results import Budget, CachedIterator, Match, Pick
from admission.dra.compatibility import SchedulerProfile
from admission.dra.freechoice.joint_allocation import JointAllocation
from admission.dra.metering import device_meters
from admission.dra.planner.cost import Pricing
from admission.dra.planner.device_order import DeviceOrder, DeviceOrders
from admission.dra.planner.node_groups import NodeState, SearchState
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests.requests import ParsedClaim

Pods = tuple[int, ...]
"""How many pods of each kind."""


class NodePacker:
    """Answers for the nodes of one state, which does not change. order: of the kinds, those to serve first."""

    def __init__(
        self,
        gang: Gang,
        state: SearchState,
        profile: SchedulerProfile,
        budget: Budget,
        *,
        order: Sequence[int],
        pricing: Pricing,
    ) -> None:
        self._gang = gang
        self._state = state
        self._profile = profile
        self._budget = budget
        self._order = order
        self._pricing = pricing
        self._orders = DeviceOrders(state.units)
        self._found: dict[tuple[NodeState, Pods], Match] = {}
        self._too_many: defaultdict[NodeState, list[Pods]] = defaultdict(list)
        self._largest: dict[tuple[NodeState, Pods], CachedIterator[Pods]] = {}

    def ordered(self, signature: NodeState) -> DeviceOrder:
        """Return the devices of such a node in the order in which they are given."""
        return self._orders.of_contents(signature.contents)

    def members(self, pods: Pods) -> list[int]:
        """Return the kinds of pods, one after the other, in the order in which their claims are served."""
        return [kind for kind in self._order for _ in range(pods[kind])]

    def found(self, signature: NodeState, pods: Pods) -> Match | None:
        """Return devices for pods on such a node, claim after claim in the order of `members`; None for no way."""
        key = (signature, pods)
        if key not in self._found:
            self._budget.spend(1 + (sum(pods) + len(signature.contents.units)) // COMPARISONS_PER_STEP)
            found = self._joint(signature, pods).first()
            if found is None:
                self._too_many[signature].append(pods)
                return None
            self._found[key] = found
        return self._found[key]

    def charge(self, signature: NodeState, pods: Pods, found: Match) -> Charge:
        """Return what pods cost on such a node with these devices."""
        units, picks = self._state.units_of(signature), iter(found.picks)
        charges = []
        for kind in self.members(pods):
            places = range(len(self._gang.kinds[kind].parsed_requests))
            charges.append(self._pricing.of_pod(kind, places, [next(picks) for _ in places], units))
        return device_meters.added(charges)

    def largest(self, signature: NodeState, most: Pods) -> Iterator[Pods]:
        """Yield the largest pods that such a node can take in, of at most so many of each kind."""
        key = (signature, most)
        if key not in self._largest:
            self._largest[key] = CachedIterator(self._all_largest(signature, most))
        return iter(self._largest[key])

    def offers(self, signature: NodeState, most: Pods) -> Iterator[tuple[Pods, Charge, Match]]:
        """Yield all pods that such a node can take in, with what they cost, the largest first.

        Of ways to serve the same pods only those that cost less of something than the ones before.
        """
        yielded: list[Pods] = []
        for pods in self.largest(signature, most):
            yielded.append(pods)
            yield from self._ways(signature, pods)
        for pods in product(*(range(count, -1, -1) for count in most)):
            self._budget.spend(1 + len(yielded) // COMPARISONS_PER_STEP)
            if pods not in yielded and any(_within(pods, other) for other in yielded):
                yield from self._ways(signature, pods)

    def _ways(self, signature: NodeState, pods: Pods) -> Iterator[tuple[Pods, Charge, Match]]:
        known: list[Charge] = []
        units = self.ordered(signature).units

        def priced(claim: ParsedClaim, picks: Sequence[Pick]) -> Charge:
            return self._pricing.of_claim(claim, picks, units)

        for found in self._joint(signature, pods).solutions(priced):
            charge = self.charge(signature, pods, found)
            if not any(_costs_no_less(charge, other) for other in known):
                known.append(charge)
                yield pods, charge, found

    def _joint(self, signature: NodeState, pods: Pods) -> JointAllocation:
        claims = [parsed for kind in self.members(pods) for parsed in self._gang.kinds[kind].parsed_requests]
        return JointAllocation(claims, self.ordered(signature), self._state.units, self._profile, self._budget)

    def _all_largest(self, signature: NodeState, most: Pods) -> Iterator[Pods]:
        first = self._grown(signature, most)
        yielded = [first]
        yield first
        for pods in self._descending(signature, most, (0,) * len(most), 0, yielded):
            yielded.append(pods)
            yield pods

    def _grown(self, signature: NodeState, most: Pods) -> Pods:
        """Return as many pods as fit: one after the other as long as that goes, then whatever fits together."""
        joint = self._joint(signature, (0,) * len(most))
        pods = (0,) * len(most)
        for kind in self._order:
            while (more := _with_one(pods, kind)) and self._may_fit(signature, more, most):
                if not joint.grow(self._gang.kinds[kind].parsed_requests):
                    break
                pods = more
        self._found[signature, pods] = joint.found
        for kind in self._order:
            while (more := _with_one(pods, kind)) and self._may_fit(signature, more, most):
                if not self._fits(signature, more):
                    break
                pods = more
        return pods

    def _descending(
        self, signature: NodeState, most: Pods, pods: Pods, at: int, yielded: Sequence[Pods]
    ) -> Iterator[Pods]:
        """Yield the largest pods, most of the first kind first, that have these of the kinds before a place."""
        self._budget.spend(1 + len(yielded) // COMPARISONS_PER_STEP)
        if at == len(self._order):
            yield pods
            return
        kind = self._order[at]
        ways = [pods]
        while self._may_fit(signature, more := _with_one(ways[-1], kind), most) and self._fits(signature, more):
            ways.append(more)
        later = set(self._order[at + 1 :])
        for way in reversed(ways):
            highest = tuple(most[k] if k in later else count for k, count in enumerate(way))
            if not any(_within(highest, other) for other in yielded):
                yield from self._descending(signature, most, way, at + 1, yielded)

    def _may_fit(self, signature: NodeState, pods: Pods, most: Pods) -> bool:
        """Return whether nothing but devices could keep these pods off such a node."""
        kinds = (kind for kind, count in enumerate(pods) if count)
        return _within(pods, most) and signature.kinds.issuperset(kinds) and self._state.fits(signature, pods)

    def _fits(self, signature: NodeState, pods: Pods) -> bool:
        too_many = self._too_many[signature]
        self._budget.spend(len(too_many) // (2 * COMPARISONS_PER_STEP))
        if any(_within(other, pods) for other in too_many):
            return False
        return self.found(signature, pods) is not None


COMPARISONS_PER_STEP = 3
"""Pods and devices that are made ready for a search, or answers that a new one is held against, in a step's time."""


def _with_one(pods: Pods, kind: int) -> Pods:
    return (*pods[:kind], pods[kind] + 1, *pods[kind + 1 :])


def _within(pods: Pods, most: Pods) -> bool:
    return all(map(le, pods, most))


def _costs_no_less(charge: Charge, other: Charge) -> bool:
    return all(charge.get(meter, 0) >= amount for meter, amount in other.items())
