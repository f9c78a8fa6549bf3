"""What Muster would give the claims of a pod on nodes, by their signatures; found once for all gangs of one need.

It is the first solution of `joint_allocation` for one pod, by which nodes are put in order.
"""

from typing import ClassVar

from admission.dra.allocator import stranded_devices
from admission.dra.allocator.results import Budget, Match
from admission.dra.allocator.stranded_devices import Claims, Consumption, Fits, Unranked
from admission.dra.compatibility import SchedulerProfile
from admission.dra.equivalence.node_contents import Units
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.equivalence.tied_devices import Division
from admission.dra.freechoice import group_choice
from admission.dra.freechoice.joint_allocation import JointAllocation
from admission.dra.planner.device_order import DeviceOrders
from admission.dra.requests.kinds_of_use import Ties

MOST_WASTED = 50_000
"""The most answers of `FreeFits.wasted` that are kept."""


class FreeFits(Fits):
    """The answers for nodes of some units under one profile. They are kept with the units."""

    ranks_by_free: ClassVar[bool] = False

    def __init__(self, units: Units, profile: SchedulerProfile) -> None:
        super().__init__(units.results.setdefault((FreeFits, profile), {}))
        self._units = units
        self._profile = profile
        self._wasted: dict[tuple[Claims, NodeSignature, Ties, Division], int] = units.results.setdefault(
            (FreeFits, "wasted", profile), {}
        )

    def wasted(self, claims: Claims, node_sig: NodeSignature, found: Match, ties: Ties, division: Division) -> int:
        """Return the same of the devices that are chosen in place of those that were found."""
        if not division:
            return 0
        key = claims, node_sig, ties, division
        if key not in self._wasted:
            if len(self._wasted) >= MOST_WASTED:
                self._wasted.clear()
            units = [self._units.known[number] for number in node_sig.contents.units]
            chosen = group_choice.chosen(ties, division, claims, found, units)
            self._wasted[key] = super().wasted(claims, node_sig, chosen, ties, division)
        return self._wasted[key]

    def _searched(self, claims: Claims, node_sig: NodeSignature, budget: Budget) -> Consumption | Unranked:
        order = DeviceOrders(self._units).of_contents(node_sig.contents)
        found = JointAllocation(claims, order, self._units, self._profile, budget).first()
        if found is None:
            return Unranked.UNFIT
        units = [self._units.known[number] for number in node_sig.contents.units]
        parsed_requests = self._units.device_signatures.parsed_requests
        return (
            stranded_devices.consumption(claims, found, units, parsed_requests, node_sig.contents)
            or Unranked.PARTITIONS
        )
