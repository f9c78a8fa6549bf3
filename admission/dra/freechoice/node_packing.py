"""The sets of a gang's pods that one node takes together, where devices may be chosen freely, and their devices.

A set is a tuple here: how many pods of each kind, by the kinds' numbers. A set that fits still fits with a pod less, so
the largest sets determine all others, and a set that contains one that does not fit does not fit either.
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
    """Packs the nodes of one search state, which must not change. order: of the kinds, those to serve first."""

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
        """Return the devices of such a node in the order in which they are tried."""
        return self._orders.of_contents(signature.contents)

    def members(self, pods: Pods) -> list[int]:
        """Return the kind of each pod, in the order in which their claims are served."""
        return [kind for kind in self._order for _ in range(pods[kind])]

    def found(self, signature: NodeState, pods: Pods) -> Match | None:
        """Return devices for pods on such a node, claim after claim in the order of `members`; None if they do not fit.

        Raises StepsEndedError.
        """
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
        """Return the charge of pods on such a node with these devices."""
        units, picks = self._state.units_of(signature), iter(found.picks)
        charges = []
        for kind in self.members(pods):
            places = range(len(self._gang.kinds[kind].parsed_requests))
            charges.append(self._pricing.of_pod(kind, places, [next(picks) for _ in places], units))
        return device_meters.added(charges)

    def largest(self, signature: NodeState, most: Pods) -> Iterator[Pods]:
        """Yield the largest sets of pods that such a node takes, of at most so many of each kind."""
        key = (signature, most)
        if key not in self._largest:
            self._largest[key] = CachedIterator(self._all_largest(signature, most))
        return iter(self._largest[key])

    def offers(self, signature: NodeState, most: Pods) -> Iterator[tuple[Pods, Charge, Match]]:
        """Yield all sets of pods that such a node takes, with charge and devices, the largest sets first.

        A way to serve the same pods that costs no less of any meter than an earlier one is skipped: no other node sees
        the devices, so the earlier one serves any plan as well.
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
        """Return a largest set: add pods one by one beside devices given before, then with devices given out again."""
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
        """Yield the largest sets that extend `pods`, chosen for the kinds before `at`; most of the next kind first.

        A branch whose highest set is within a set already yielded has no new largest set, so it is skipped.
        """
        self._budget.spend(1 + len(yielded) // COMPARISONS_PER_STEP)
        if at == len(self._order):
            yield pods
            return
        kind = self._order[at]
        ways = [pods]
        while self._may_fit(signature, more := _with_one(ways[-1], kind), most) and self._fits(signature, more):
            ways.append(more)
        later = set(self._order[at + 1 :])
        # Most of this kind first: so whatever contains a set in this branch was yielded before it.
        for way in reversed(ways):
            highest = tuple(most[k] if k in later else count for k, count in enumerate(way))
            if not any(_within(highest, other) for other in yielded):
                yield from self._descending(signature, most, way, at + 1, yielded)

    def _may_fit(self, signature: NodeState, pods: Pods, most: Pods) -> bool:
        """Return whether such a node takes these pods as far as filters and resources go."""
        kinds = (kind for kind, count in enumerate(pods) if count)
        return _within(pods, most) and signature.kinds.issuperset(kinds) and self._state.fits(signature, pods)

    def _fits(self, signature: NodeState, pods: Pods) -> bool:
        # Monotone: pods that contain a set that does not fit do not fit.
        too_many = self._too_many[signature]
        self._budget.spend(len(too_many) // (2 * COMPARISONS_PER_STEP))
        if any(_within(other, pods) for other in too_many):
            return False
        return self.found(signature, pods) is not None


COMPARISONS_PER_STEP = 3
"""How many pods and devices are prepared for a search, or known sets compared with a new one, in the time of a step."""


def _with_one(pods: Pods, kind: int) -> Pods:
    return (*pods[:kind], pods[kind] + 1, *pods[kind + 1 :])


def _within(pods: Pods, most: Pods) -> bool:
    return all(map(le, pods, most))


def _costs_no_less(charge: Charge, other: Charge) -> bool:
    return all(charge.get(meter, 0) >= amount for meter, amount in other.items())
