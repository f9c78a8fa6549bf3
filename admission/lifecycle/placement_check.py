"""Whether kube-scheduler would give a gang the devices that are booked for it, if its gates were opened now.

What was planned for Muster to allocate may use any devices. If Muster may not allocate by the time the gang is placed,
such a plan holds only if kube-scheduler would come to the same devices. The books record neither who was to allocate
nor the order of the pods; so it is tried, in the order in which the gates would be opened.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.dra.allocator import nominated
from admission.dra.allocator.results import StepsEndedError
from admission.dra.inventory.selectors import Selectors
from admission.dra.state.cluster_state import ClusterState, PendingAllocation
from admission.lifecycle.placement_progress import Missing
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """What is tried with: the cluster state in which the gang is planned, and the bound of each search."""

    cluster: ClusterState
    selectors: Selectors
    steps: int


def holds(group: Group, gates: Iterable[tuple[Pod, NodeName]], missing: Iterable[Missing], fitting: Fitting) -> bool:
    """Return whether each claim of a gang that has no devices yet would get those that are booked for it.

    Those whose gates are open come before it. What is not found out within the bound does not hold; what asks for
    extended resources was planned as kube-scheduler does in any case.
    """
    booked = {one.claim.meta.uid: (one.claim, one.devices) for one in missing}
    seats = group.placement.seats if group.placement is not None else {}
    if any(names.is_extended_claim(uid) for seat in seats.values() for uid in seat.claims):
        return True
    lanes: dict[NodeName, list[PendingAllocation]] = {}
    for pod, node in gates:
        mine = [*_taken(seats[pod.meta.uid].claims, booked)]
        if mine:
            claims, devices = (tuple(part) for part in zip(*mine, strict=True))
            lanes.setdefault(node, []).append(PendingAllocation(claims=claims, devices=devices, gang=group.key))
    return not booked and all(_hold(node, pods, fitting) for node, pods in lanes.items())


def _taken(
    wanted: Iterable[Uid], booked: dict[Uid, tuple[Claim, tuple[RequestDevice, ...]]]
) -> Iterator[tuple[Claim, tuple[RequestDevice, ...]]]:
    """Yield what a pod's claims have booked, each for the first pod that comes with it."""
    for uid in wanted:
        if uid in booked:
            yield booked.pop(uid)


def _hold(node: NodeName, pods: list[PendingAllocation], fitting: Fitting) -> bool:
    cluster = fitting.cluster
    before = cluster.pending.get(node, ())
    try:
        predictions = nominated.replayed(
            node, [*before, *pods], cluster, selectors=fitting.selectors, steps=fitting.steps
        )
    except StepsEndedError:
        return False
    return all(one.holds for one in predictions[len(before) :])
