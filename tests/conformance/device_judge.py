"""What Muster says of a pod's devices on nodes, and what becomes of its claims when it goes to one."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from admission.api.kubernetes import claims, devices
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling.scheduling_rules import NO_RULES
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName, Uid
from admission.api.values.selectors import NodeSelector, NodeTerm, Requirement
from admission.dra import gang_planner
from admission.dra.allocator import node_allocator
from admission.dra.allocator.node_allocator import Allocated
from admission.dra.inventory.selectors import Selectors
from admission.dra.requests import extended_resources
from admission.dra.requests.gang_request import Plan, PodDemand
from admission.dra.state.cluster_state import ClusterState
from admission.filters.placed_pods import PlacedPods

Json = dict[str, Any]

STEPS = 50_000


def with_devices(snapshot: Snapshot, world: Json) -> Snapshot:
    """Return a snapshot with the slices, classes and claims of a world."""
    slices = [devices.decode_slice(one) for one in world.get("resourceSlices") or ()]
    found = [claims.decode(one) for one in world.get("resourceClaims") or ()]
    return replace(
        snapshot,
        slices={one.meta.name: one for one in slices},
        classes={one.meta.name: one for one in map(devices.decode_class, world.get("deviceClasses") or ())},
        claims={one.meta.key: _identified(one) for one in found},
    )


def demand_of(pod: Pod, snapshot: Snapshot) -> PodDemand | None:
    """Return a pod with its claims; None where one of them is not there."""
    named = [snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(claim)}") for claim in pod.claims]
    found = tuple(claim for claim in named if claim is not None)
    if len(found) < len(named):
        return None
    extended = extended_resources.resources_of(pod.containers, snapshot.classes)
    made = extended_resources.claim_of(pod, snapshot.classes) if extended else None
    return PodDemand(pod=pod, claims=(*found, *([made] if made is not None else ())), extended=extended)


def planned(demand: PodDemand, node: NodeName, cluster: ClusterState, selectors: Selectors) -> Plan | None:
    """Return the plan for one pod on one node, whatever rules there are beside devices; None if there is none.

    cluster: with no pods that rules could be about; see `without_rules`.
    """
    only = NodeTerm(fields=(Requirement(key="metadata.name", operator="In", values=(node,)),))
    pod = replace(demand.pod, rules=NO_RULES, affinity=NodeSelector(terms=(only,)))
    answer = gang_planner.plan([replace(demand, pod=pod)], cluster, selectors=selectors, steps=STEPS, mute=True)
    return answer if isinstance(answer, Plan) else None


def without_rules(cluster: ClusterState) -> ClusterState:
    """Return a cluster state in which no rule between pods applies."""
    by_node = {
        node: {uid: replace(pod, rules=NO_RULES, claims=()) for uid, pod in pods.items()}
        for node, pods in cluster.placed.by_node.items()
    }
    return replace(cluster, placed=PlacedPods(by_node=by_node))


def placed(
    demand: PodDemand, node: NodeName, cluster: ClusterState, snapshot: Snapshot, selectors: Selectors
) -> Snapshot:
    """Return the snapshot after kube-scheduler has bound a pod to a node: with its claims allocated and reserved."""
    plan = planned(demand, node, cluster, selectors)
    used = {claim.meta.key: claim for claim in _allocated(demand, node, cluster, selectors)} if plan is not None else {}
    pod = replace(demand.pod, node=node)
    if plan is not None:
        new = (used[claim.meta.key] for claim in demand.claims if claim.allocation is None and claim.meta.key in used)
        by = tuple(claim.meta.name for claim in new if _takes(claim, cluster))
        pod = replace(pod, claimed=replace(pod.claimed, taken=plan.by_devices.get(pod.meta.uid, {}), by=by))
    return replace(snapshot, pods={**snapshot.pods, pod.meta.uid: pod}, claims={**snapshot.claims, **used})


def _allocated(demand: PodDemand, node: NodeName, cluster: ClusterState, selectors: Selectors) -> Iterator[Claim]:
    wanted = list({claim.meta.key: claim for claim in demand.claims}.values())
    plugged = extended_resources.plugged(cluster.nodes[node], demand.extended)
    if plugged:
        left = extended_resources.claim_of(demand.pod, cluster.classes, plugged)
        wanted = [*wanted[:-1], *filter(None, (left,))]
    open_ = [claim for claim in wanted if claim.allocation is None]
    answer = node_allocator.allocate(open_, node, cluster, selectors=selectors, steps=STEPS)
    given = answer.claims if isinstance(answer, Allocated) else ()
    new = {claim.meta.key: one for claim, one in zip(open_, given, strict=False)}
    for claim in wanted:
        reserved = (*claim.reserved_for, demand.pod.meta.uid)
        one = new.get(claim.meta.key)
        if one is None:
            yield replace(claim, reserved_for=reserved)
            continue
        ids = [f"share-{claim.meta.key}-{at}" for at in range(len(one.given))]
        status = {"metadata": {"name": claim.meta.name}, "spec": {}, "status": {"allocation": one.json(ids)}}
        yield replace(claim, reserved_for=reserved, allocation=claims.decode(status).allocation)


def _takes(claim: Claim, cluster: ClusterState) -> bool:
    """Return whether a device of a claim takes resources of its node."""
    given = claim.allocation.devices if claim.allocation is not None else ()
    described = [cluster.slices.device(one.device) for one in given] if cluster.slices is not None else []
    return any(device is not None and device.node_resources for device in described)


def _identified(claim: Claim) -> Claim:
    """Return a claim with a UID, as the oracle gives it to one that has none."""
    return claim if claim.meta.uid else replace(claim, meta=replace(claim.meta, uid=Uid(claim.meta.key)))
