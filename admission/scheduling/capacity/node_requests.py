"""Grants on nodes that are asked for: a gang that needs nodes gets its quota, and its pods are let in towards them.

The books have what stands for each such node in place of a name (`names.node_to_come`), no devices, and the charge of
the plan. kube-scheduler binds the pods when nodes have come, and the charge is settled by what they get; devices behind
a fence Muster gives them (`seat_moves`).
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from admission.api.capacity.node_provision import ProvisioningMode
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Holding
from admission.api.muster.queues import PlacementMode
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.dra.requests.gang_request import Plan, Topology
from admission.lifecycle import placement_progress
from admission.scheduling.capacity import capacity_requests
from admission.scheduling.capacity.node_needs import NodesNeeded
from admission.scheduling.checks import elastic
from admission.scheduling.checks.chain import Grant
from admission.scheduling.placement.mode import Chosen
from admission.workloads import topology
from admission.workloads.gangs import Group

LONGEST_NAME = 200
"""The longest name of a shape of which nodes are asked for: the books have it with a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """Says for which gangs nodes are asked, of queues that ask for some (`node_needs.Asker`)."""

    snapshot: Snapshot

    def refusal(self, group: Group, needed: NodesNeeded | None) -> str:
        """Return why no nodes are asked for a gang; empty if they are. needed: None before it is known."""
        return self._refused(group) if needed is None else self._refused_nodes(group, needed)

    def part(self, group: Group) -> Group:
        """Return the gang with the pods for which nodes may be asked together.

        Pods that do not run in time and without which the others go on are deleted, if their gates were open. The Job
        controller counts that as their failure, so there are no more of them than their Job may lose.
        """
        queue = self.snapshot.queues.get(group.queue)
        if queue is None or queue.provisioning.mode is not ProvisioningMode.PODS:
            return group
        left: dict[Uid, int] = {}
        excess: list[Pod] = []
        for pod in elastic.in_order(group)[0 if group.started else group.still_needed :]:
            job = self.snapshot.jobs.get(pod.meta.controller.uid) if pod.meta.controller is not None else None
            spare = job.spare_failures(pod.meta.annotations) if job is not None else None
            if job is not None and spare is not None:
                left.setdefault(job.meta.uid, spare)
                left[job.meta.uid] -= 1
                if left[job.meta.uid] < 0:
                    excess.append(pod)
        return group.without(excess) if excess else group

    def _refused(self, group: Group) -> str:
        if not group.waiting:
            return (
                "no nodes are asked for pods that join it: were they taken back, since nodes do not come, their Job"
                " would fail (spec.backoffLimit); a podFailurePolicy that ignores DisruptionTarget helps, or"
                " spec.provisioning.mode ProvisioningRequest of the queue"
            )
        seats = group.placement.seats if group.placement is not None else {}
        outstanding = placement_progress.outstanding(group, is_there=lambda pod: bool(pod.node))
        if placement_progress.asked_for(seats[uid].as_asked for uid in outstanding):
            return "no more nodes are asked for before the pods are bound for which nodes were asked"
        if capacity_requests.asks_by_request(self.snapshot.queues.get(group.queue)):
            why_not = capacity_requests.unserved(self.snapshot) or capacity_requests.too_many_sets(group)
            if why_not:
                return f"no nodes are asked for: {why_not}"
        return ""

    def _refused_nodes(self, group: Group, needed: NodesNeeded) -> str:
        why_not = _unknown_domain(topology.request(group), needed, self.snapshot)
        if why_not:
            return why_not
        long = next((name for name in needed.counts if len(name) > LONGEST_NAME), None)
        return f"NodeShape {long} has a name of more than {LONGEST_NAME} characters" if long is not None else ""


def _unknown_domain(wanted: Topology | None, needed: NodesNeeded, snapshot: Snapshot) -> str:
    """Return why it is not known in which domain of a gang's topology nodes would come; empty if it is.

    The planner has found one domain for nodes with the shapes' labels, but pods are kept to `matchLabels` alone.
    """
    labels = {each.required for each in wanted.each if each.required} if wanted is not None else set()
    for label in sorted(labels):
        shape = next((name for name in sorted(needed.counts) if label not in snapshot.shapes[name].matches), None)
        if shape is not None:
            return (
                f"no nodes are asked for a gang that has to be in one domain of {label}: to which those of NodeShape"
                f" {shape} come is not known, unless spec.matchLabels of it has that label"
            )
    return ""


def grant(needed: NodesNeeded, planned: Grant, at: datetime, *, joins: bool = False) -> Grant:
    """Return the grant with which nodes are asked for. planned: as if they were there. at: the time.

    joins: whether the pods join a gang that has started.
    """
    numbers, come = Counter[str](), dict[str, NodeName]()
    for one in needed.nodes:
        numbers[one.shape] += 1
        come[one.node.name] = names.node_to_come(
            one.shape, numbers[one.shape], joined_at=at if joins else None, asked_at=at
        )
    plan = planned.plan
    pods = tuple(
        replace(pod, node=come[pod.node], claims=tuple(replace(claim, devices=()) for claim in pod.claims))
        if pod.node in come
        else pod
        for pod in plan.pods
    )
    holdings = tuple(_without_devices(holding, come.keys()) for holding in plan.holdings)
    return replace(
        planned,
        plan=Plan(pods=pods, charge=plan.charge, holdings=holdings, apart=plan.apart),
        chosen=Chosen(mode=PlacementMode.PIN, reason=reason(numbers)),
    )


def reason(counts: Mapping[str, int]) -> str:
    """Return who gives the devices of a gang for which nodes were asked."""
    return f"{asked(counts)}; kube-scheduler gives it the devices of those that come, Muster those behind a fence"


def asked(counts: Mapping[str, int]) -> str:
    """Return which nodes were asked for."""
    listed = ", ".join(placement_progress.in_words(counts))
    return f"nodes were asked for ({listed})"


def _without_devices(holding: Holding, come: Collection[str]) -> Holding:
    """Return a holding; without its devices if they are of nodes to come, whose pools have the nodes' names."""
    return replace(holding, devices=()) if any(one.device.pool in come for one in holding.devices) else holding
