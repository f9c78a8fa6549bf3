"""Checks that kube-scheduler would allocate a gang the devices in the ledger if its gates were opened now.

A plan for Muster's own allocation may use any devices. If Muster may not allocate when the gang is placed, the plan is
valid only if kube-scheduler would choose the same devices. The ledger records neither which of the two was to allocate
nor the order of the pods, so the allocations are replayed, in the order in which the gates would be opened.
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
class CheckInputs:
    """The inputs of the check: the cluster state in which the gang is planned, and the bound of each search."""

    cluster: ClusterState
    selectors: Selectors
    steps: int


def matches_ledger(
    group: Group, gates: Iterable[tuple[Pod, NodeName]], missing: Iterable[Missing], inputs: CheckInputs
) -> bool:
    """Return whether each claim of a gang without devices would get those that the ledger has for it.

    Pods whose gates are open already precede it. A search that reaches its bound counts as no. Claims for extended
    resources need no check: they were planned as kube-scheduler allocates them.
    """
    planned_devices = {one.claim.meta.uid: (one.claim, one.devices) for one in missing}
    seats = group.placement.seats if group.placement is not None else {}
    if any(names.is_extended_claim(uid) for seat in seats.values() for uid in seat.claims):
        return True
    pending_by_node: dict[NodeName, list[PendingAllocation]] = {}
    for pod, node in gates:
        planned = [*_take_planned(seats[pod.meta.uid].claims, planned_devices)]
        if planned:
            claims, devices = (tuple(part) for part in zip(*planned, strict=True))
            pending_by_node.setdefault(node, []).append(
                PendingAllocation(claims=claims, devices=devices, gang=group.key)
            )
    return not planned_devices and all(_node_matches(node, pods, inputs) for node, pods in pending_by_node.items())


def _take_planned(
    claim_uids: Iterable[Uid], planned_devices: dict[Uid, tuple[Claim, tuple[RequestDevice, ...]]]
) -> Iterator[tuple[Claim, tuple[RequestDevice, ...]]]:
    """Yield the devices in the ledger for a pod's claims; a shared claim counts for the first of its pods."""
    for uid in claim_uids:
        if uid in planned_devices:
            yield planned_devices.pop(uid)


def _node_matches(node: NodeName, pods: list[PendingAllocation], inputs: CheckInputs) -> bool:
    cluster = inputs.cluster
    pending = cluster.pending.get(node, ())
    try:
        predictions = nominated.replayed(
            node, [*pending, *pods], cluster, selectors=inputs.selectors, steps=inputs.steps
        )
    except StepsEndedError:
        return False
    return all(one.holds for one in predictions[len(pending) :])
