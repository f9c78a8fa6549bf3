"""The search over pods, nodes and devices for gangs that share claims, or whose devices several nodes see.

It enumerates, skips and is bounded as `first_fit`, but branches over devices as well: devices that a pod gets on one
node may be missing on another. Per pod and node it tries the solutions of `JointAllocation`, one of each sort.

Skipped, without losing a plan: devices that are interchangeable on every node that sees them (`_mark`); other orders of
pods, if no claim is shared. A plan stays valid in any order of its pods, since less in use never makes a chosen device
unavailable; with a shared claim it matters which pod brings it.
"""

from collections.abc import Hashable, Iterable

from admission.api.muster.gangs import Charge
from admission.dra.allocator.results import Budget, CachedIterator, DeadEnd, Match, Pick
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.freechoice.joint_allocation import JointAllocation, Priced
from admission.dra.inventory.pools import InventoryDevice
from admission.dra.planner.device_order import DeviceOrders
from admission.dra.planner.first_fit import FirstFitSearch
from admission.dra.planner.node_groups import NodeState
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests import gang_request
from admission.dra.requests.gang_request import Affordable
from admission.dra.requests.requests import ParsedClaim, RequestRefusal
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
        # Where devices take resources of nodes, this search is asked only whether there could be a plan without that.
        self._by_devices = None
        self._orders = DeviceOrders(self.state.units)
        self._solutions: dict[tuple[tuple[ParsedClaim, ...], Hashable], CachedIterator[Match]] = {}
        # With devices chosen freely any order of a plan's pods is possible; only the pod that brings a shared claim
        # has to come first. Volumes are what kube-scheduler gives, so that their order matters.
        self._commuting = not gang.shared and (gang.coupled is None or gang.coupled.commute)

    def _ways(self, kind: int, open_: tuple[int, ...], first: Match, signature: NodeState) -> Iterable[Match]:  # noqa: ARG002
        return self._solved(tuple(self._gang.kinds[kind].parsed_requests[at] for at in open_), signature)

    def _first_fit(self, claims: tuple[ParsedClaim, ...], signature: NodeState) -> Match | DeadEnd | RequestRefusal:
        return next(iter(self._solved(claims, signature)), None) or DeadEnd(0, 0, 0)

    def _solved(self, claims: tuple[ParsedClaim, ...], signature: NodeState) -> CachedIterator[Match]:
        """Return the devices that these claims of one pod may get on such a node, one solution of each sort."""
        node = self.state.first(signature)
        # Nodes that differ in their domains alone, or in what is left of resources, have the same solutions.
        is_apart = self.state.layouts[node].fixed
        key = (claims, signature.contents if is_apart else signature)
        if key not in self._solutions:
            listed_devices = self.state.layouts[node].listed_devices
            marks = [_mark(listed_devices[at]) for at in self.state.visible_devices(node)]
            order = self._orders.marked(signature.contents, marks)

            def priced(claim: ParsedClaim, picks: Iterable[Pick]) -> Charge:
                return self._pricing.of_claim(claim, tuple(picks), order.units)

            prices: Priced | None = None if self._affordable is gang_request.anything else priced
            joint = JointAllocation(claims, order, self.state.units, self._cluster.profile, self._budget)
            self._solutions[key] = CachedIterator(joint.solutions(prices))
        return self._solutions[key]


def _mark(listed: InventoryDevice) -> Hashable:
    """Return what determines the other nodes that see a device and where its claim is usable; None if none see it."""
    if listed.local:
        return None
    place = listed.place
    return (id(listed.slice), listed.binds, place.node_name, place.all_nodes, place.node_selector)
