"""What devices of granted pods will take of their nodes, as long as the status of the pods does not say it yet."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from admission.api.kubernetes import nodes
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Holding, Placement, Seat
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName, Uid
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.pools import Slices
from admission.dra.requests import device_use, node_resources
from admission.dra.requests.node_resources import Given, OfClaim, Unfit
from admission.dra.state import incremental
from admission.dra.state.incremental import IncrementalUsage, UsageTotals


def count(  # noqa: PLR0917 - all that usage depends on
    kept: IncrementalUsage,
    snapshot: Snapshot,
    placements: Sequence[Placement],
    claims: Mapping[Uid, Claim],
    slices: Slices,
    profile: SchedulerProfile,
) -> UsageTotals:
    """Count usage, with that taken from what is left of nodes. claims: by their UIDs in the ledger."""
    totals = kept.count(snapshot, placements, claims, profile)
    if not slices.takes_of_nodes and not kept.by_devices:
        return totals
    left, found = dict(totals.left), _Planned(snapshot, claims, slices, profile)
    taken: dict[NodeName, Resources] = {}
    for placement in placements if slices.takes_of_nodes else ():
        for seat in placement.seats.values():
            more = found.of_seat(seat, placement)
            if more and seat.node in left:
                taken[seat.node] = nodes.total((taken.get(seat.node, {}), more))
                left[seat.node] = incremental.less(left[seat.node], more)
    moved = {name for name in {*taken, *kept.by_devices} if taken.get(name) != kept.by_devices.get(name)}
    kept.by_devices = taken
    return totals._replace(left=left, nodes={*totals.nodes, *moved})


class _Planned:
    """The devices of granted pods in a snapshot."""

    def __init__(
        self, snapshot: Snapshot, claims: Mapping[Uid, Claim], slices: Slices, profile: SchedulerProfile
    ) -> None:
        self._pods = snapshot.pods
        self._claims = claims
        self._slices = slices
        self._profile = profile

    def of_seat(self, seat: Seat, placement: Placement) -> Resources:
        """Return what the devices of a pod will take of its node; nothing once it is bound, or its status says it."""
        pod = self._pods.get(seat.pod_uid)
        if pod is None or pod.node or pod.finished or pod.claimed.taken:
            return {}
        taken = [one for uid in seat.claims if (one := self._of_claim(uid, pod, placement.holdings.get(uid)))]
        found = node_resources.taken(pod, taken, self._profile.release) if taken else {}
        return {} if isinstance(found, Unfit) else found

    def _of_claim(self, uid: Uid, pod: Pod, holding: Holding | None) -> OfClaim | None:
        claim = self._claims.get(uid)
        if claim is None:
            return None
        if claim.allocation is not None:
            # 1.36 counts only what it allocates itself.
            seen = not self._profile.release.before_1_37
            given: Iterable[Given] = node_resources.of_allocation(claim.allocation, self._slices) if seen else ()
        else:
            given = self._booked(holding, claim) if holding is not None else ()
        names = [own.name for own in pod.claims if pod.claim_name(own) == claim.meta.name]
        found = node_resources.of_claim(given, node_resources.users_of(pod, names), claim)
        return found if isinstance(found, OfClaim) else None

    def _booked(self, holding: Holding, claim: Claim) -> Iterator[Given]:
        described = {one.device: found for one in holding.devices if (found := self._slices.device(one.device))}
        uses = device_use.from_plan(holding.devices, claim.spec, described, self._profile.features)
        consumed = {use.device: use.share or {} for use in uses}
        for one in holding.devices:
            device = described.get(one.device)
            if device is not None and device.node_resources:
                yield Given(device.node_resources, consumed.get(one.device, {}))
