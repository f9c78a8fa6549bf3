"""The pods and gangs for which kube-scheduler may be allocating devices at this moment.

Its assume cache cannot be seen: a pod that it may bind, and that lacks devices, may have been promised any free one.
"""

from collections.abc import Collection, Iterator
from datetime import datetime

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import Uid
from admission.dra.requests import extended_resources
from admission.lifecycle import placement_progress


def outsiders(snapshot: Snapshot, placements: Collection[Placement], opened: Collection[Uid]) -> Iterator[Pod]:
    """Yield the pods that Muster has not admitted and that kube-scheduler may be allocating devices for.

    placements: the ledger's open ones. opened: pods whose gate Muster has opened, also if not seen yet.
    """
    free = _schedulable(snapshot, opened)
    seated = {uid for placement in placements for uid in placement.seats} if free else frozenset[Uid]()
    return (pod for uid, pod in free.items() if uid not in seated and _has_no_devices(pod, snapshot))


def in_flight(
    snapshot: Snapshot, placements: Collection[Placement], opened: Collection[Uid], driver: str | None = None
) -> Iterator[Placement]:
    """Yield the gangs for which kube-scheduler is choosing devices: admitted, with unallocated claims.

    Settled ones as well: kube-scheduler deallocates for a pod that does not fit its node, and chooses again. driver:
    whose devices are booked for these claims; None for any.
    """
    free = _schedulable(snapshot, opened)
    begun = [placement for placement in placements if free and not placement.seats.keys().isdisjoint(free)]
    claims = extended_resources.index_claims(snapshot) if begun else {}
    for placement in begun:
        named = {uid for seat in placement.seats.values() if seat.pod_uid in free for uid in seat.claims}
        lacking = (
            holding
            for uid, holding in placement.holdings.items()
            if uid in named and ((claim := claims.get(uid)) is None or claim.allocation is None)
        )
        if any(driver in (None, given.device.driver) for holding in lacking for given in holding.devices):
            yield placement


def towards_nodes(
    snapshot: Snapshot, placements: Collection[Placement], opened: Collection[Uid], until: datetime
) -> Iterator[Pod]:
    """Yield the pods that were let in towards nodes to come and lack devices: no book says which ones they may get.

    until: the time up to which the nodes were asked for.
    """
    waiting = [
        seat.pod_uid
        for placement in placements
        for seat in placement.seats.values()
        if names.shape_of(seat.node) is not None
        and (asked := placement_progress.nodes_asked_at(seat, placement)) is not None
        and asked <= until
    ]
    free = _schedulable(snapshot, opened) if waiting else {}
    return (free[uid] for uid in waiting if uid in free and _has_no_devices(free[uid], snapshot))


def _schedulable(snapshot: Snapshot, opened: Collection[Uid]) -> dict[Uid, Pod]:
    """Return the pods that kube-scheduler may be scheduling: neither gated nor bound nor finished."""
    return {
        uid: pod
        for uid, pod in snapshot.pods.items()
        if not (pod.node or pod.finished or (pod.gated and uid not in opened))
    }


def _has_no_devices(pod: Pod, snapshot: Snapshot) -> bool:
    claims = (snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(claim)}") for claim in pod.claims)
    if any(claim is None or claim.allocation is None for claim in claims):
        return True
    return bool(pod.containers) and bool(extended_resources.resources_of(pod.containers, snapshot.classes))
