"""Moves of seats to nodes that came, whose devices kube-scheduler gives to nobody, since they are behind a fence.

A gang for which nodes were asked has seats on what stands for these (`names.node_to_come`), without devices, and its
pods are let in towards the labels of the shape. kube-scheduler gives them the devices of nodes that come; behind a
fence Muster has to. So all pods that wait are planned once more, on the cluster as it is, and if all of them fit, one
entry of the books replaces their seats and holdings by those of the plan. The claims are then allocated as those of
other gangs, and kube-scheduler binds the pods where their claims are. Until they fit, they wait for more nodes, at most
until the queue's timeout. The search is that of a decision, but its checks are not repeated: the gang was granted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from admission.accounting import seat_transfer
from admission.accounting.books import Book
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import Entry, Seat
from admission.api.muster.queues import PlacementMode
from admission.api.values import names
from admission.api.values.names import MeterName, NodeName, Uid
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.dra.metering import device_meters
from admission.dra.requests.gang_request import Affordable, Plan, PodDemand, Shortfall, anything
from admission.dra.state import cluster_state, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.nodes_to_come import NodesToCome
from admission.dra.state.what_if import Belongings
from admission.lifecycle import placement_progress
from admission.quota.headroom import QueueUsage
from admission.scheduling.checks import chain, faults
from admission.scheduling.checks.chain import Inputs, Rules
from admission.scheduling.checks.faults import During
from admission.scheduling.placement import mode
from admission.scheduling.placement.proposal import Proposal
from admission.workloads import topology
from admission.workloads.gangs import Group

MOST = 64
"""The most gangs that are looked at in a cycle, those first that have waited longest."""

REASON = "nodes came on which the pods can be placed together"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatMove:
    """The pods of a gang that wait for nodes, and their plan on those that are there. claims: by pod, all that it uses.

    group: the gang as if these pods waited for a decision.
    """

    group: Group
    plan: Plan
    claims: Mapping[Uid, tuple[Uid, ...]]


def waiting(granted: Iterable[Group], book: Book) -> list[Group]:
    """Return the gangs with pods that wait for nodes to come and to get devices there, the oldest first."""
    found = [group for group in granted if _lacking(group, book)]
    return sorted(found, key=_waiting_since)[:MOST]


def moves(  # noqa: PLR0917 - all that it depends on
    groups: Sequence[Group],
    rules: Rules,
    cluster: ClusterState,
    usage: QueueUsage,
    book: Book,
    own: Collection[NodeName],
) -> Iterator[SeatMove]:
    """Yield the moves of gangs all of whose pods fit now, one after the other.

    groups: of `waiting`. own: the nodes that came for them, and are nobody else's.
    """
    cluster = _open_to(groups, cluster, book, own)
    # A gang may wait for long in a cluster that is full, and is planned in each cycle.
    small = NodesToCome.parted(cluster, _full(cluster))
    for group in groups:
        part = _as_waiting(group)
        find = partial(_move, part, rules, small if _ignores_full_nodes(part, rules, cluster) else cluster, usage)
        move = faults.guard(During.PLANNING, group.key, find, rules.workspace.defects)
        if move is not None:
            yield move
            pods = {pod.meta.uid: pod for pod in part.waiting}
            small, cluster = (
                cluster_state.granted(state, move.plan, pods, group.key, move.claims) for state in (small, cluster)
            )


def entry(move: SeatMove, book: Book, *, at: datetime, actor: str) -> Entry | None:
    """Return the entry that moves the seats; None if the books have a claim of the plan for another gang."""
    placement, plan = book.placements[move.group.uid], move.plan
    claims = [holding.claim_uid for holding in plan.holdings]
    if any(book.owners.get(uid, move.group.uid) != move.group.uid for uid in claims):
        return None
    seats = [
        Seat(
            pod_uid=pod.uid,
            pod=pod.pod,
            node=pod.node,
            claims=move.claims[pod.uid],
            asked_as=placement.seats[pod.uid].node,
        )
        for pod in plan.pods
    ]
    gone = [*(pod.uid for pod in plan.pods), *claims]
    return seat_transfer.inherit(
        placement, gone=gone, seats=seats, holdings=plan.holdings, at=at, actor=actor, reason=REASON
    )


def _waiting_since(group: Group) -> tuple[datetime, str]:
    placement = group.placement
    seats = placement.seats if placement is not None else {}
    asked = (placement_progress.nodes_asked_at(seats[pod.meta.uid], placement) for pod in _pods(group) if placement)
    return min(at for at in asked if at is not None), group.key


def _pods(group: Group) -> list[Pod]:
    """Return the pods of a gang that wait for nodes to come."""
    seats = group.placement.seats if group.placement is not None else {}
    return [
        pod
        for pod in group.pods
        if not pod.node and pod.meta.uid in seats and names.shape_of(seats[pod.meta.uid].node) is not None
    ]


def _lacking(group: Group, book: Book) -> frozenset[Uid]:
    """Return the claims of such pods without devices; empty while a gate is closed, which opens towards the shape."""
    pods, placement = _pods(group), group.placement
    if placement is None or any(pod.gated for pod in pods):
        return frozenset()
    claims = {uid for pod in pods for uid in placement.seats[pod.meta.uid].claims}
    held = placement_progress.holdings(group, book)
    return frozenset(one.claim_uid for one in held if one.claim_uid in claims and not (one.settled or one.devices))


def _as_waiting(group: Group) -> Group:
    """Return a gang in which the pods that wait for nodes are held, have no place, and are the only ones that wait."""
    placement, moved = group.placement, {pod.meta.uid for pod in _pods(group)}
    others = {pod.meta.uid for pod in group.waiting}
    return replace(
        group,
        pods=tuple(
            replace(pod, gates=(names.GATE,)) if pod.meta.uid in moved else pod
            for pod in group.pods
            if pod.meta.uid not in others
        ),
        placement=placement
        and replace(placement, seats={uid: seat for uid, seat in placement.seats.items() if uid not in moved}),
    )


def _open_to(groups: Iterable[Group], cluster: ClusterState, book: Book, own: Collection[NodeName]) -> ClusterState:
    """Return the state in which pods of these gangs have no places yet, and the nodes that came are open to them.

    An autoscaler may have nominated such a pod for a node, which keeps the node from others and not from its own gang.
    """
    parts: list[Belongings] = []
    for group in groups:
        pods = frozenset(pod.meta.uid for pod in _pods(group))
        parts.append(Belongings(uids=_lacking(group, book), pods=pods, placed=pods))
    moved = frozenset[Uid]().union(*(part.pods for part in parts))
    found = what_if.without_gangs(cluster, parts)
    nominated = {
        node: tuple(pod for pod in pods if pod.meta.uid not in moved) for node, pods in found.placed.nominated.items()
    }
    opened = {name: replace(cluster.nodes[name], reserved=False) for name in own if name in cluster.nodes}
    return replace(found, nodes={**cluster.nodes, **opened}, placed=found.placed.with_nominated(nominated))


def _full(cluster: ClusterState) -> frozenset[NodeName]:
    """Return the nodes on which no device is free, nor shared."""
    bugs = cluster.profile.known_bugs
    free = {
        name
        for name, inventory in cluster.node_inventories.items()
        if any(one.id not in cluster.taken for pool in inventory.seen(bugs) for one in pool.listed_devices)
    }
    return frozenset(cluster.nodes.keys() - free)


def _ignores_full_nodes(group: Group, rules: Rules, cluster: ClusterState) -> bool:
    """Return whether a plan is the same without nodes that have no free device, and what is there."""
    if topology.request(group) is not None or cluster.placed.with_anti_affinity:
        return False
    return all(
        pod.claims and not (pod.rules.concern_pods or pod.rules.volumes) and _takes_devices(pod, rules)
        for pod in group.waiting
    )


def _takes_devices(pod: Pod, rules: Rules) -> bool:
    named = (rules.snapshot.claims.get(f"{pod.meta.namespace}/{pod.claim_name(one)}") for one in pod.claims)
    options = [
        option
        for claim in named
        if claim is not None and claim.allocation is None
        for request in claim.spec.requests
        for option in request.alternatives
    ]
    return bool(options) and not any(option.admin_access for option in options)


def _move(group: Group, rules: Rules, cluster: ClusterState, usage: QueueUsage) -> SeatMove | None:
    """Return the move of a gang; None if its pods do not all fit, or if kube-scheduler gives them their devices."""
    queue = rules.snapshot.queues.get(group.queue)
    if queue is None:
        return None
    inputs = Inputs(rules=rules, group=group, queue=queue, cluster=cluster, queue_usage=usage)
    if chain.claims_exist(inputs) is not None:
        return None
    inputs = chain.with_demand(inputs)
    options = [one.demands for one in chain.attempts(inputs)] or [inputs.demands]
    found = next(filter(None, (_proposal(demands, inputs) for demands in options)), None)
    if found is None or not _is_fenced(found, rules):
        return None
    claims = {one.pod.meta.uid: _uids(one) for one in inputs.demands}
    return SeatMove(group=group, plan=found.plan, claims=claims)


def _proposal(demands: Sequence[PodDemand], inputs: Inputs) -> Proposal | None:
    """Return a plan that is charged no more than was reserved, or else any: what is given is charged, as elsewhere."""
    group = inputs.group
    wanted, asked = mode.requested(group.record, inputs.queue), topology.request(group)
    demands = topology.with_subgroups(tuple(demands), asked, group)
    planner = chain.planner(replace(inputs.rules, mute=True))
    found = planner.propose(demands, inputs.cluster, wanted, _at_most(_reserved(demands, group)), asked)
    if isinstance(found, Hold) and found.reason is HoldReason.QUOTA_EXCEEDED:
        found = planner.propose(demands, inputs.cluster, wanted, anything, asked)
    return found if isinstance(found, Proposal) else None


def _is_fenced(proposal: Proposal, rules: Rules) -> bool:
    """Return whether only Muster can give the devices of a plan, and may."""
    drivers = {one.device.driver for holding in proposal.plan.holdings for one in holding.devices}
    return proposal.chosen.mode is PlacementMode.ALLOCATE and not drivers.isdisjoint(rules.protection.closed)


def _reserved(demands: Iterable[PodDemand], group: Group) -> Charge:
    """Return what is reserved for pods of a gang, and for their claims."""
    holdings = group.placement.holdings if group.placement is not None else {}
    own = {uid for one in demands for uid in (names.resources_claim(one.pod.meta.uid), *_uids(one))}
    return device_meters.added(held.charge for uid, held in holdings.items() if uid in own and not held.settled)


def _uids(demand: PodDemand) -> tuple[Uid, ...]:
    return tuple(claim.meta.uid for claim in demand.claims)


@dataclass(frozen=True, slots=True)
class _More:
    """The shortfall of a plan that would be charged more than was reserved."""

    meter: MeterName

    @property
    def message(self) -> str:
        return f"more {self.meter} than was reserved"

    @property
    def details(self) -> Mapping[str, Detail]:
        return {"meter": self.meter}


def _at_most(reserved: Charge) -> Affordable:
    def affordable(charge: Charge) -> Shortfall | None:
        return next((_More(meter) for meter, amount in charge.items() if amount > reserved.get(meter, 0)), None)

    return affordable
