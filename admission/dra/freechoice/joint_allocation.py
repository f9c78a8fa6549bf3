"""The search for the devices of several pods together on one node, where devices may be chosen freely.

The rules are those of `allocator.search` with every known defect of kube-scheduler fixed; the order is that of
`device_order`. A request with admin access takes nothing. A device is passed over if a selector fails on it, a meter
cannot price it, or its taint would have the pod deleted.

Enumerated as there, over the claims of all pods one after the other; a failure steps back across all of them, so a
solution that is not found does not exist.

Skipped, without losing a solution: of devices and partitionable devices that are interchangeable all but one (`_sort`);
a request that starts in a state in which it failed (`_state`); everything, where counting shows too few devices or
counters (`_is_short`).

Bounded by the budget: at its end StepsEndedError is raised, and nothing is proved.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence

from admission.api.muster.gangs import Charge
from admission.dra.allocator.results import Budget, Failure, Match, Pick
from admission.dra.allocator.search import Search
from admission.dra.allocator.trampoline import Answered, Halt, Step, run, runs
from admission.dra.compatibility import FIXED, SchedulerProfile
from admission.dra.equivalence.device_signature import Answer
from admission.dra.equivalence.node_contents import Units
from admission.dra.planner import device_order
from admission.dra.planner.device_order import DeviceOrder
from admission.dra.requests import constraints
from admission.dra.requests.requests import Option, ParsedClaim

Priced = Callable[[ParsedClaim, Sequence[Pick]], Charge]
"""Returns the charge of a claim with these devices, given by their places in the device order."""


class JointAllocation(Search):
    """One search. The claims of all pods are one list; all of them are served, or none."""

    def __init__(
        self, claims: Sequence[ParsedClaim], order: DeviceOrder, units: Units, profile: SchedulerProfile, budget: Budget
    ) -> None:
        self._profile = profile.with_known_bugs(FIXED)
        super().__init__(list(claims), order.contents, units, self._profile, budget)
        self._order = order
        self._device_signatures = units.device_signatures
        self._visits: dict[int, frozenset[int]] = {}
        """By device, the claims that have it with admin access."""
        self._touched: dict[int, set[int]] = {}
        """Per partitionable device, its devices that are taken or shared here."""
        self._equal = True
        self._stops = False
        self._sweeping = False
        self._priced: Priced | None = None

    def first(self) -> Match | None:
        """Return devices for all claims; None if there is no solution. Raises StepsEndedError."""
        return self.found if isinstance(self.answer(), Match) else None

    def solutions(self, priced: Priced | None = None) -> Iterator[Match]:
        """Yield devices for all claims, one solution of each sort. Raises StepsEndedError.

        Solutions are of one sort if the devices they leave are interchangeable and, with prices, if they cost the same.
        While the caller has a solution, its devices are taken.
        """
        if self._prepare() is not None or self._is_short():
            return
        self._sweeping, self._priced = True, priced
        for _ in runs(self._claim(0)):
            yield self.found

    def grow(self, claims: Sequence[ParsedClaim]) -> bool:
        """Add the claims of one more pod if there are devices for them beside those given already, which stay."""
        first = len(self._claims)
        self._claims = [*self._claims, *claims]
        parsed_requests, values = self._device_signatures.parsed_requests, self._device_signatures.attributes
        for claim in claims:
            self.picks.append([])
            self._parsed_requests.append(
                [[parsed_requests[o.parsed] for o in request.options] for request in claim.requests]
            )
            self._rules.append([(values[r.attribute], constraints.running(r, self._profile)) for r in claim.rules])
        self._end = len(self._claims)
        self._dead.clear()
        if self._prepare(first) is None and not super()._is_short(first) and run(self._claim(first)) is True:
            return True
        self._claims, self._end = self._claims[:first], first
        self._all = {request: devices for request, devices in self._all.items() if request[0] < first}
        del self.picks[first:], self._parsed_requests[first:], self._rules[first:]
        return False

    @property
    def found(self) -> Match:
        """Return the devices given now, by their places in the node's own order, sorted."""
        places = self._order.places
        return Match(
            tuple(
                tuple(sorted((Pick(p.request, p.option, places[p.at]) for p in picks), key=lambda p: (p.request, p.at)))
                for picks in self.picks
            )
        )

    # Where it differs from the first-fit search.

    def _claim(self, c: int) -> Step:
        if c == self._end and self._sweeping:
            # Each solution counts as a failure, so that the search goes on; `_dead` then skips others of its sort.
            yield Halt.FOUND
            return False
        return (yield from super()._claim(c))

    def _every(self, c: int, r: int, o: int, option: Option) -> list[int]:
        found = super()._every(c, r, o, option)
        # If a device cannot be evaluated or slices are missing, "all devices" is unknown: the request is not served.
        return found if isinstance(found, list) else []

    def _at_odds(self, c: int, r: int, o: int) -> Answered:  # noqa: ARG002 - another choice of devices may do
        return False

    def _is_short(self, first: int = 0) -> bool:
        return super()._is_short(first) or self._is_drained()

    def _is_drained(self) -> bool:
        """Return whether all claims together need more counters or shared capacity than is left, whatever they get."""
        if not self._order.left:
            return False
        parsed_requests = self._device_signatures.parsed_requests
        needed = device_order.needs_of(self._claims, lambda parsed: self._order.least(parsed_requests[parsed]))
        return any(amount > self._order.left.get(name, 0) for name, amount in needed.items())

    def _may_have(self, c: int, r: int, o: int, at: int) -> bool:
        parsed, signature = self._parsed_requests[c][r][o], self._units[at].signature
        if signature.answers[parsed] is not Answer.YES or parsed in signature.evicting:
            return False
        if not self._claims[c].requests[r].options[o].admin and (not self._order.live[at] or at in self._taken):
            return False
        return signature.shared or not (c in self._visits.get(at, ()) or c in self._taken.get(at, ()))

    def _take(self, c: int, r: int, o: int, at: int) -> bool | Failure:
        unit, option = self._units[at], self._claims[c].requests[r].options[o]
        if option.admin:
            if not self._bind(c, r, option, unit):
                return Failure.CONSTRAINT
            self._visits[at] = self._visits.get(at, frozenset()) | {c}
            self.picks[c].append(Pick(r, o, at))
            return False
        taken = super()._take(c, r, o, at)
        if not isinstance(taken, Failure) and self._order.partitions[at] >= 0:
            self._touched.setdefault(self._order.partitions[at], set()).add(at)
        return taken

    def _give_back(self, c: int, at: int, *, counted: bool) -> None:
        pick = self.picks[c][-1]
        request = self._claims[c].requests[pick.request]
        if request.options[pick.option].admin:
            self.picks[c].pop()
            self._visits[at] -= {c}
            self._unbind(c, request.name, request.options[pick.option], len(self._rules[c]))
            return
        super()._give_back(c, at, counted=counted)
        if self._order.partitions[at] >= 0 and at not in self._taken and at not in self._shares:
            self._touched[self._order.partitions[at]].discard(at)

    # What is known.

    def _sort(self, at: int) -> Hashable:
        partition, sort = self._order.partitions[at], self._order.sorts[at]
        touched = at in self._taken or at in self._shares or at in self._visits
        mine = (sort, self._touch(at)) if touched else sort
        return (mine, self._state_of(partition)) if self._touched.get(partition) else mine

    def _touch(self, at: int) -> Hashable:
        return (self._taken.get(at), self._visits.get(at), tuple(sorted(self._shares.get(at, ()))))

    def _state_of(self, partition: int) -> Hashable:
        """Return what was taken of a partitionable device; if equal for two equal ones, they stay interchangeable."""
        return frozenset(Counter((self._order.sorts[at], self._use_of(at)) for at in self._touched[partition]).items())

    def _use_of(self, at: int) -> Hashable:
        """Return the shares taken of a device here, without the claims that have them."""
        return tuple(sorted(self._shares.get(at, ())))

    def _state(self, c: int, r: int) -> Hashable:
        order = self._order
        partitions = Counter(self._state_of(partition) for partition, touched in self._touched.items() if touched)
        others = (
            (order.sorts[at], self._use_of(at)) for at in (*self._taken, *self._shares) if order.partitions[at] < 0
        )
        return (
            c,
            r,
            len(self.picks[c]),
            frozenset(partitions.items()),
            frozenset(Counter(others).items()),
            frozenset(pick.at for pick in self.picks[c]) if self._is_partly_admin(c) else None,
            tuple(rule.state() for _, rule in self._rules[c]),
            self._paid(c) if self._priced is not None else None,
        )

    def _is_partly_admin(self, c: int) -> bool:
        """Return whether a claim has a request with admin access.

        To such a request only the claim's own devices are unavailable, so it matters which these are.
        """
        return any(option.admin for request in self._claims[c].requests for option in request.options)

    def _paid(self, c: int) -> Hashable:
        """Return the cost of the claims before, and what the cost of this one depends on so far."""
        assert self._priced is not None  # noqa: S101 - asked only where there are prices
        total: Counter[str] = Counter()
        for claim, picks in zip(self._claims[:c], self.picks[:c], strict=True):
            total.update(self._priced(claim, picks))
        begun = Counter((pick.request, pick.option, self._order.sorts[pick.at]) for pick in self.picks[c])
        return (frozenset(total.items()), frozenset(begun.items()))
