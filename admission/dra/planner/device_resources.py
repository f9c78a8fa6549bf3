"""What the pods of a gang take of nodes by their devices, in one search.

kube-scheduler takes the first devices that fit and only then looks at the resources: where too few are left, the pod
does not go to the node, although other devices of it might do.
"""

from collections.abc import Callable, Hashable, Mapping

from admission.dra.allocator.results import Match
from admission.dra.compatibility import Release
from admission.dra.planner.node_groups import NodeState, SearchState
from admission.dra.planner.pod_groups import ClaimToAllocate, Gang
from admission.dra.requests import node_resources
from admission.dra.requests.node_resources import Given, Lacking, OfClaim, Unfit
from admission.dra.requests.requests import Fatal


class DeviceResources:
    """The resources that devices take. `share` records what shared claims got; all else is read only."""

    def __init__(self, gang: Gang, state: SearchState, release: Release) -> None:
        self._gang = gang
        self._state = state
        self._release = release
        self._shared: dict[int, tuple[Given, ...]] = {}

    @property
    def key(self) -> Hashable:
        """Return what shared claims have, as part of all that the rest of a search depends on."""
        return frozenset(
            (number, tuple((one.resources, _items(one.consumed)) for one in given))
            for number, given in self._shared.items()
        )

    def checked(self, kind: int, open_: tuple[int, ...], found: Match, node: NodeState) -> Match | Lacking | Fatal:
        """Return the devices of a pod, or why its node does not take it with them."""
        taken = self.of_pod(kind, open_, found, node)
        if isinstance(taken, Fatal):
            return taken
        return node_resources.lacking(self._gang.kinds[kind].wants, taken, self._state.left_of(node)) or found

    def of_pod(self, kind: int, open_: tuple[int, ...], found: Match, node: NodeState) -> Mapping[str, int] | Fatal:
        """Return what a pod takes beside its requests with these devices. open_: the places of their claims."""
        described = self._gang.kinds[kind]
        claims = [*described.bound]
        for at, wanted in enumerate(described.wanted[0]):
            one = self._of_claim(kind, at, wanted, open_, found, node)
            if isinstance(one, Unfit):
                return Fatal(one.why)
            if one is None:
                continue
            if wanted.shared is not None and one.mapped is not None:
                return Fatal(node_resources.exclusive(wanted.claim.meta.name))
            claims.append(one)
        if not claims:
            return {}
        taken = node_resources.taken(described.members[0].pod, claims, self._release)
        return Fatal(taken.why) if isinstance(taken, Unfit) else taken

    def share(self, number: int, given: tuple[Given, ...]) -> Callable[[], None]:
        """Record the devices of a shared claim; return the undo."""
        self._shared[number] = given
        return lambda: self._shared.__delitem__(number)

    def _of_claim(  # noqa: PLR0917 - a claim of a pod with its devices
        self, kind: int, at: int, wanted: ClaimToAllocate, open_: tuple[int, ...], found: Match, node: NodeState
    ) -> OfClaim | Unfit | None:
        users = self._gang.kinds[kind].claim_users[at]
        if at in open_:
            return node_resources.of_claim(self.given(wanted, found, open_.index(at), node), users, wanted.claim)
        assert wanted.shared is not None  # noqa: S101 - only a shared claim is allocated by then
        return node_resources.of_claim(self._shared.get(wanted.shared, ()), users, wanted.claim)

    def given(self, wanted: ClaimToAllocate, found: Match, place: int, node: NodeState) -> tuple[Given, ...]:
        """Return the devices of a claim. place: of the claim among those in `found`."""
        units = self._state.units_of(node)
        parsed_requests = self._state.units.device_signatures.parsed_requests
        picked = [
            (wanted.parsed.requests[pick.request].options[pick.option].parsed, units[pick.at].signature)
            for pick in found.picks[place]
        ]
        return tuple(
            Given(signature.node_resources, signature.consumed(parsed_requests[parsed]))
            for parsed, signature in picked
            if signature.node_resources
        )


def _items(amounts: Mapping[str, object]) -> Hashable:
    return tuple(sorted(amounts.items(), key=lambda pair: pair[0]))
