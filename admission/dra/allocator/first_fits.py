"""What kube-scheduler gives the claims of a pod on nodes, by their signatures; found once for all gangs of one need."""

from typing import ClassVar

from admission.dra.allocator import search, stranded_devices
from admission.dra.allocator.results import Budget, DeadEnd, Match
from admission.dra.allocator.stranded_devices import Claims, Consumption, Fits, Unranked
from admission.dra.compatibility import SchedulerProfile
from admission.dra.equivalence.node_contents import Units
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.requests.requests import RequestRefusal

Fit = Match | DeadEnd | RequestRefusal


class FirstFits(Fits):
    """The answers for nodes of some units under one profile. They are kept with the units."""

    ranks_by_free: ClassVar[bool] = True

    def __init__(self, units: Units, profile: SchedulerProfile) -> None:
        super().__init__(units.results.setdefault((FirstFits, profile), {}))
        self._units = units
        self._profile = profile
        self._known: dict[Claims, dict[NodeSignature, tuple[Fit, int]]] = units.results.setdefault(profile, {})
        """With how many steps finding the answer took."""
        self._consumptions: dict[Claims, dict[NodeSignature, Consumption | None]] = units.results.setdefault(
            (Consumption, profile), {}
        )

    def fit(self, claims: Claims, node_sig: NodeSignature, budget: Budget) -> Fit:
        """Return what the claims get on such a node. Raises StepsEndedError.

        The steps are spent again if the answer is known, so that the steps a gang needs do not depend on the gangs
        planned before.
        """
        known = self._known.setdefault(claims, {})
        if node_sig in known:
            found, steps = known[node_sig]
            budget.spend(steps)
            return found
        spent = budget.spent
        found = search.search(claims, node_sig.contents, self._units, self._profile, budget, certain=True)
        known[node_sig] = found, budget.spent - spent
        return found

    def consumption(self, claims: Claims, node_sig: NodeSignature, found: Match) -> Consumption | None:
        """Return what a pod takes that gets these devices there; see `stranded_devices.consumption`."""
        known = self._consumptions.setdefault(claims, {})
        if node_sig not in known:
            units = [self._units.known[number] for number in node_sig.contents.units]
            parsed_requests = self._units.device_signatures.parsed_requests
            known[node_sig] = stranded_devices.consumption(claims, found, units, parsed_requests, node_sig.contents)
        return known[node_sig]

    def _searched(self, claims: Claims, node_sig: NodeSignature, budget: Budget) -> Consumption | Unranked:
        found = self.fit(claims, node_sig, budget)
        if isinstance(found, DeadEnd):
            return Unranked.UNFIT if found.firm else Unranked.UNFIT_NOW
        if not isinstance(found, Match):
            return Unranked.REFUSED
        return self.consumption(claims, node_sig, found) or Unranked.PARTITIONS
