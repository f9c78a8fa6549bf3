"""Checks that kube-scheduler would give a gang what the ledger has for it, if its gates were opened now.

A plan for Muster's own allocation may use any devices, and after any plan others may have become free. If
kube-scheduler picks, the gang may still be placed where each pod gets devices on its node, for the same requests and at
the same charge; which ones they are, its settlement says. The ledger records neither which of the two was to allocate
nor the order of the pods, so the allocations are replayed, in the order in which the gates would be opened.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from admission.api.kubernetes.devices import RequestDevice
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.dra.allocator import nominated
from admission.dra.allocator.allocation import AllocatedRequest
from admission.dra.allocator.nominated import Prediction
from admission.dra.allocator.results import StepsEndedError
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import Meters
from admission.dra.state.cluster_state import ClusterState, PendingAllocation
from admission.lifecycle.placement_progress import Missing
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputs:
    """The inputs of the check: the cluster state in which the gang is planned, and the bound of each search."""

    cluster: ClusterState
    meters: Meters
    selectors: Selectors
    steps: int


def matches_ledger(
    group: Group, gates: Iterable[tuple[Pod, NodeName]], missing: Iterable[Missing], inputs: CheckInputs, *, exact: bool
) -> bool:
    """Return whether each claim of a gang without devices would get those that the ledger has for it, or equal ones.

    exact: no others are as good, as where all pods of the gang have to get devices of one kind.
    Pods whose gates are open already precede it. A search that reaches its bound counts as no. Claims for extended
    resources need no check: they were planned as kube-scheduler allocates them.
    """
    planned_devices = {one.claim.meta.uid: one for one in missing}
    seats = group.placement.seats if group.placement is not None else {}
    if any(names.is_extended_claim(uid) for seat in seats.values() for uid in seat.claims):
        return True
    pending_by_node: dict[NodeName, list[tuple[Missing, ...]]] = {}
    for pod, node in gates:
        planned = tuple(_take_planned(seats[pod.meta.uid].claims, planned_devices))
        if planned:
            pending_by_node.setdefault(node, []).append(planned)
    return not planned_devices and all(
        _node_matches(node, pods, group.key, inputs, exact=exact) for node, pods in pending_by_node.items()
    )


def _take_planned(claim_uids: Iterable[Uid], planned: dict[Uid, Missing]) -> Iterator[Missing]:
    """Yield what the ledger has for a pod's claims; a shared claim counts for the first of its pods."""
    for uid in claim_uids:
        if uid in planned:
            yield planned.pop(uid)


def _node_matches(
    node: NodeName, pods: Sequence[tuple[Missing, ...]], gang: str, inputs: CheckInputs, *, exact: bool
) -> bool:
    cluster = inputs.cluster
    before = cluster.pending.get(node, ())
    own = [
        PendingAllocation(
            claims=tuple(one.claim for one in planned), devices=tuple(one.devices for one in planned), gang=gang
        )
        for planned in pods
    ]
    try:
        predictions = nominated.replayed(node, [*before, *own], cluster, selectors=inputs.selectors, steps=inputs.steps)
    except StepsEndedError:
        return False
    pairs = zip(predictions[len(before) :], pods, strict=True)
    return all(
        prediction.holds or (not exact and _is_as_good(prediction, planned, inputs.meters))
        for prediction, planned in pairs
    )


def _is_as_good(prediction: Prediction, planned: Iterable[Missing], meters: Meters) -> bool:
    """Return whether a pod gets devices for the same requests and at the same charge as those planned."""
    if prediction.given is None:
        return False
    return all(
        _requests(one.request_device for one in given) == _requests(missing.devices)
        and _charge(given, missing, meters) == missing.charge
        for given, missing in zip(prediction.given, planned, strict=True)
    )


def _requests(devices: Iterable[RequestDevice]) -> list[str]:
    return sorted(one.request for one in devices)


def _charge(given: Iterable[AllocatedRequest], missing: Missing, meters: Meters) -> object:
    """Return the charge of a claim with these devices, or an error, which equals no charge."""
    priced = [
        device_meters.PricedDevice(one.request_device, one.listed.device, one.option.admin, one.consumed or None)
        for one in given
    ]
    return device_meters.charge(meters, missing.claim.spec, priced)
