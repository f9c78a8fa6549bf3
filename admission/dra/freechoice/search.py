"""The search over pods and nodes where devices may be chosen freely, and several nodes see them or pods share claims.

As `first_fit`, but that it branches over devices as well: what a pod is given on one node may be missing on another. Of
devices that can stand for each other on all nodes one is tried.
"""

from collections.abc import Hashable, Iterable

from admission.api.muster.gangs import Charge
from admission.dra.allocator.results import Budget, DeadEnd, Match, Pick, Remembered
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.freechoice.joint_allocation import JointAllocation, Priced
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.planner.device_order import DeviceOrders
from admission.dra.planner.first_fit import FirstFitSearch
from admission.dra.planner.node_groups import NodeState
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests import gang_request
from admission.dra.requests.gang_request import Affordable
from admission.dra.requests.requests import ParsedClaim, Refusal
from admission.dra.state.cluster_state import ClusterState


class FreeChoiceSearch(FirstFitSearch):
    """One search."""

    def __init__(
        self,
        gang: Gang,
        cluster: ClusterState,
        device_signatures: DeviceSignatures,
        budget: Budget,
        affordable: Affordable,
    ) -> None:
        super().__init__(gang, cluster, device_signatures, budget, affordable, greedy=False)
        self._decks = DeviceOrders(self.state.units)
        self._solutions: dict[tuple[tuple[ParsedClaim, ...], NodeState], Remembered[Match]] = {}
        # With devices chosen freely what fits does not depend on the order; only who brings a shared claim may.
        self._commuting = not gang.shared

    def _ways(self, kind: int, open_: tuple[int, ...], first: Match, signature: NodeState) -> Iterable[Match]:  # noqa: ARG002
        return self._solved(tuple(self._gang.kinds[kind].asks[at] for at in open_), signature)

    def _first_fit(self, claims: tuple[ParsedClaim, ...], signature: NodeState) -> Match | DeadEnd | Refusal:
        return next(iter(self._solved(claims, signature)), None) or DeadEnd(0, 0, 0)

    def _solved(self, claims: tuple[ParsedClaim, ...], signature: NodeState) -> Remembered[Match]:
        """Return all that these claims of one pod may get on such a node, one of each sort."""
        key = (claims, signature)
        if key not in self._solutions:
            node = self.state.first(signature)
            spots = self.state.layouts[node].spots
            marks = [_mark(spots[at]) for at in self.state.shown_spots(node)]
            deck = self._decks.marked(signature.contents, marks)

            def priced(claim: ParsedClaim, picks: Iterable[Pick]) -> Charge:
                return self._pricing.of_claim(claim, tuple(picks), deck.units)

            prices: Priced | None = None if self._affordable is gang_request.anything else priced
            joint = JointAllocation(claims, deck, self.state.units, self._cluster.profile, self._budget)
            self._solutions[key] = Remembered(joint.solutions(prices))
        return self._solutions[key]


def _mark(spot: InventoryDevice) -> Hashable:
    """Return what tells which other nodes see a device, and where a claim that has it may be used; None for none."""
    if spot.local:
        return None
    place = spot.place
    return (id(spot.slice), spot.binds, place.node_name, place.all_nodes, place.node_selector)
