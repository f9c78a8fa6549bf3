"""The search over pods and nodes where devices may be chosen freely, and several nodes see them or pods share claims.

As `first_fit`, but that it branches over devices as well: what a pod is given on one node may be missing on another. Of
devices that can stand for each other on all nodes one is tried.
"""

from collections.abc import Hashable, Iterable

from admission.api.muster.gangs import Charge
from admission.dra.allocator.results import Budget, Found, Pick, Remembered, Stuck
from admission.dra.equivalence.device_signature import Traits
from admission.dra.freechoice.joint_allocation import Joint, Priced
from admission.dra.inventory.pools import Spot
from admission.dra.planner.device_order import Decks
from admission.dra.planner.first_fit import Placer
from admission.dra.planner.node_groups import Signature
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests import gang_request
from admission.dra.requests.gang_request import Affordable
from admission.dra.requests.requests import ClaimAsk, Refusal
from admission.dra.state.cluster_state import World


class Chooser(Placer):
    """One search."""

    def __init__(self, gang: Gang, world: World, traits: Traits, budget: Budget, affordable: Affordable) -> None:
        super().__init__(gang, world, traits, budget, affordable, greedy=False)
        self._decks = Decks(self.state.units)
        self._solutions: dict[tuple[tuple[ClaimAsk, ...], Signature], Remembered[Found]] = {}
        # With devices chosen freely what fits does not depend on the order; only who brings a shared claim may.
        self._commuting = not gang.shared

    def _ways(self, kind: int, open_: tuple[int, ...], first: Found, signature: Signature) -> Iterable[Found]:  # noqa: ARG002
        return self._solved(tuple(self._gang.kinds[kind].asks[at] for at in open_), signature)

    def _first_fit(self, claims: tuple[ClaimAsk, ...], signature: Signature) -> Found | Stuck | Refusal:
        return next(iter(self._solved(claims, signature)), None) or Stuck(0, 0, 0)

    def _solved(self, claims: tuple[ClaimAsk, ...], signature: Signature) -> Remembered[Found]:
        """Return all that these claims of one pod may get on such a node, one of each sort."""
        key = (claims, signature)
        if key not in self._solutions:
            node = self.state.first(signature)
            spots = self.state.layouts[node].spots
            marks = [_mark(spots[at]) for at in self.state.shown_spots(node)]
            deck = self._decks.marked(signature.contents, marks)

            def priced(claim: ClaimAsk, picks: Iterable[Pick]) -> Charge:
                return self._pricing.of_claim(claim, tuple(picks), deck.units)

            prices: Priced | None = None if self._affordable is gang_request.anything else priced
            joint = Joint(claims, deck, self.state.units, self._world.profile, self._budget)
            self._solutions[key] = Remembered(joint.solutions(prices))
        return self._solutions[key]


def _mark(spot: Spot) -> Hashable:
    """Return what tells which other nodes see a device, and where a claim that has it may be used; None for none."""
    if spot.local:
        return None
    place = spot.place
    return (id(spot.slice), spot.binds, place.node_name, place.all_nodes, place.node_selector)
