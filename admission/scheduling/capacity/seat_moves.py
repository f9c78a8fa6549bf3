"""Moves of seats to nodes that came, whose devices kube-scheduler gives to nobody, since they are behind a fence.

A gang for which nodes were asked has seats on what stands for these (`names.node_to_come`), without devices, and its
pods are let in towards the labels of the shape. kube-scheduler gives them the devices of nodes that come; behind a
fence Muster has to. So the pods that wait are planned once more, on the cluster as it is, and if as many of them fit as
have to start together, one entry of the books replaces their seats and holdings by those of the plan. Where such a node
is gone again before its pods are bound, they are planned again. The claims are then allocated as those of
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
from admission.api.values.names import GangUid, MeterName, NodeName, Uid
from admission.api.values.reasons import Detail, Hold, HoldReason
from admission.dra.metering import device_meters
from admission.dra.planner import node_filters
from admission.dra.requests.gang_request import Affordable, Plan, PodDemand, Shortfall, anything
from admission.dra.state import cluster_state, what_if
from admission.dra.state.cluster_state import ClusterState
from admission.dra.state.nodes_to_come import NodesToCome
from admission.dra.state.what_if import Belongings
from admission.lifecycle import placement_progress
from admission.lifecycle.transitions import ObservedAllocations
from admission.quota.headroom import QueueUsage
from admission.scheduling.cache.verdict_cache import Verdict
from admission.scheduling.checks import chain, elastic, faults
from admission.scheduling.checks.chain import Inputs, Rules
from admission.scheduling.checks.faults import During
from admission.scheduling.placement import mode
from admission.scheduling.placement.proposal import Proposal
from admission.workloads import topology
from admission.workloads.gangs import Group

MOST = 64
"""The most gangs that are planned in a cycle, of those that may fit."""

REASON = "nodes came on which the pods can be placed together"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatMove:
    """The pods of a gang that wait for nodes, and their plan on those that are there. claims: by pod, all that it uses.

    group: the gang as if these pods, and no others, waited for a decision.
    """

    group: Group
    plan: Plan
    claims: Mapping[Uid, tuple[Uid, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A gang with pods that wait for nodes to come, and to get devices there.

    pods: these. claims: those of theirs that are without devices. since: when the first of the nodes was asked for.
    is_gated: whether a gate is closed, which opens towards the shape; so long none of the pods can be moved.
    """

    group: Group
    pods: tuple[Pod, ...]
    claims: frozenset[Uid]
    since: datetime
    is_gated: bool

    @property
    def part(self) -> Group:
        """Return the gang in which these pods are held, have no place, and are the only ones that wait."""
        group, moved = self.group, {pod.meta.uid for pod in self.pods}
        placement, others = group.placement, {pod.meta.uid for pod in group.waiting}
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

    @property
    def asked(self) -> Mapping[str, int]:
        """Return how many nodes of each shape these pods wait for."""
        seats = self.group.placement.seats if self.group.placement is not None else {}
        return placement_progress.asked_for(seats[pod.meta.uid].as_asked for pod in self.pods)

    @property
    def least(self) -> int:
        """Return how many of the pods have to be moved together: with those that have their places, what it needs.

        Pods that join a gang of which others had started are moved one by one.
        """
        group, placement = self.group, self.group.placement
        seats = placement.seats if placement is not None else {}
        if all(names.joined_at(seats[pod.meta.uid].as_asked) is not None for pod in self.pods):
            return 1
        return max(group.still_needed - (len(group.pods) - len(group.waiting) - len(self.pods)), 1)


@dataclass(slots=True)
class Turns:
    """Whose turn it is of gangs that may fit, where these are more than are planned in a cycle. One per leader."""

    _had: frozenset[GangUid] = frozenset()
    """Those that had their turn since all of them had."""

    @property
    def has_more(self) -> bool:
        """Return whether others have their turn in the next cycle, though nothing changes."""
        return bool(self._had)

    def end(self) -> None:
        """Forget whose turn it was: nobody waits."""
        self._had = frozenset()

    def next(self, gangs: Sequence[Waiting]) -> list[Waiting]:
        """Return at most `MOST` of the gangs, in their order: those first that have waited longest for their turn."""
        left = [one for one in gangs if one.group.uid not in self._had]
        again = [one for one in gangs if one.group.uid in self._had] if len(left) < MOST else []
        chosen = {one.group.uid for one in [*left[:MOST], *again[: MOST - len(left)]]}
        self._had = frozenset() if len(left) <= MOST else self._had | chosen
        return [one for one in gangs if one.group.uid in chosen]


def waiting(granted: Iterable[Group], book: Book, observed: ObservedAllocations) -> list[Waiting]:
    """Return the gangs with pods that wait for nodes to come and to get devices there, the oldest first."""
    found = filter(None, (_waiting(group, book, observed) for group in granted))
    return sorted(found, key=lambda one: (one.since, one.group.key))


def moves(  # noqa: PLR0917 - all that it depends on
    gangs: Sequence[Waiting],
    rules: Rules,
    cluster: ClusterState,
    usage: QueueUsage,
    come: Mapping[str, Collection[NodeName]],
    turns: Turns,
) -> Iterator[SeatMove]:
    """Yield the moves of gangs of whose pods as many fit now as have to be moved together, one gang after the other.

    gangs: of `waiting`. come: the nodes that came for them, by shape, and are nobody else's.
    """
    cluster = _open_to(gangs, cluster, frozenset[NodeName]().union(*come.values()))
    # A gang may wait for long in a cluster that is full, and is planned in each cycle.
    small = NodesToCome.parted(cluster, _full(cluster))
    parts = {one.group.uid: one.part for one in gangs if not one.is_gated}
    alone = {uid for uid, part in parts.items() if _ignores_full_nodes(part, rules, cluster)}
    free = _Free(small)
    due = {
        one.group.uid
        for one in turns.next(
            [one for one in gangs if not one.is_gated and (one.group.uid not in alone or free.has_one_for(one.pods))]
        )
    }
    for one in gangs:
        if one.is_gated:
            kept = _kept(one, come, cluster)
            small, cluster = _closed(small, kept), _closed(cluster, kept)
        if one.group.uid not in due:
            continue
        part = parts[one.group.uid]
        find = partial(_largest, part, one.least, rules, small if one.group.uid in alone else cluster, usage)
        move = faults.guard(During.PLANNING, part.key, find, rules.workspace.defects)
        if move is not None:
            yield move
            pods = {pod.meta.uid: pod for pod in part.waiting}
            small, cluster = (
                cluster_state.granted(state, move.plan, pods, part.key, move.claims) for state in (small, cluster)
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
            asked_as=placement.seats[pod.uid].as_asked,
        )
        for pod in plan.pods
    ]
    gone = [*(pod.uid for pod in plan.pods), *claims]
    return seat_transfer.inherit(
        placement, gone=gone, seats=seats, holdings=plan.holdings, at=at, actor=actor, reason=REASON
    )


def _waiting(group: Group, book: Book, observed: ObservedAllocations) -> Waiting | None:
    placement, nodes = group.placement, observed.snapshot.nodes
    seats = placement.seats if placement is not None else {}
    pods = tuple(
        pod
        for pod in group.pods
        if not pod.node and pod.meta.uid in seats and placement_progress.awaits_node(seats[pod.meta.uid], nodes)
    )
    claims = {uid for pod in pods for uid in seats[pod.meta.uid].claims}
    lacking = frozenset(
        held.claim_uid
        for held in (placement_progress.holdings(group, book) if pods else ())
        if held.claim_uid in claims and (not (held.settled or held.devices) or _lost(held.claim_uid, observed))
    )
    # A claim that several gangs share is moved with the one that is charged for it; the others then go where it is.
    if placement is None or not lacking or any(book.owners.get(uid) != group.uid for uid in lacking):
        return None
    asked = (placement_progress.nodes_asked_at(seats[pod.meta.uid], placement) for pod in pods)
    since = min(filter(None, asked), default=placement.reserved_at)
    return Waiting(group=group, pods=pods, claims=lacking, since=since, is_gated=any(pod.gated for pod in pods))


def _lost(claim: Uid, observed: ObservedAllocations) -> bool:
    """Return whether a claim has lost the devices that it was planned with or had, as those of a node that is gone."""
    found = observed.claims.get(claim)
    return found is not None and found.allocation is None


class _Free:
    """The nodes on which devices are free."""

    def __init__(self, cluster: ClusterState) -> None:
        self._nodes = [node for node in cluster.nodes.values() if not (node.reserved or node.leaving)]
        self._known: list[tuple[Pod, bool]] = []

    def has_one_for(self, pods: Iterable[Pod]) -> bool:
        """Return whether one of the pods may go to one of the nodes by its labels."""
        return any(self._has(pod) for pod in pods)

    def _has(self, pod: Pod) -> bool:
        """Return the answer for a pod. Most differ in nothing but their shapes, of which there are few."""
        for other, answer in self._known:
            if (pod.node_selector, pod.affinity, pod.features) == (other.node_selector, other.affinity, other.features):
                return answer
        found = any(node_filters.matches(pod, node) for node in self._nodes)
        self._known = [(pod, found), *self._known[:MOST]]
        return found


def _kept(gated: Waiting, come: Mapping[str, Collection[NodeName]], cluster: ClusterState) -> frozenset[NodeName]:
    """Return nodes that came and of which nothing is in use, as many as a gang expects whose gates are closed."""
    if not any(come.get(shape) for shape in gated.asked):
        return frozenset()
    used = {
        name
        for name, inventory in cluster.node_inventories.items()
        for pool in inventory.seen(cluster.profile.known_bugs)
        if any(one.id in cluster.taken or one.id in cluster.shares for one in pool.listed_devices)
    }
    kept: set[NodeName] = set()
    for shape, count in gated.asked.items():
        idle = sorted(
            name
            for name in come.get(shape, ())
            if name in cluster.nodes and not cluster.nodes[name].reserved and name not in used
        )
        kept |= {*idle[:count]}
    return frozenset(kept)


def _closed(cluster: ClusterState, kept: Collection[NodeName]) -> ClusterState:
    """Return the state in which nodes are kept from the gangs that follow."""
    closed = {name: replace(cluster.nodes[name], reserved=True) for name in kept if name in cluster.nodes}
    return replace(cluster, nodes={**cluster.nodes, **closed}) if closed else cluster


def _open_to(gangs: Iterable[Waiting], cluster: ClusterState, own: Collection[NodeName]) -> ClusterState:
    """Return the state in which pods of these gangs have no places yet, and the nodes that came are open to them.

    An autoscaler may have nominated such a pod for a node, which keeps the node from others and not from its own gang.
    """
    parts: list[Belongings] = []
    for one in gangs:
        pods = frozenset(pod.meta.uid for pod in one.pods)
        parts.append(Belongings(uids=one.claims, pods=pods, placed=pods))
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


def _largest(part: Group, least: int, rules: Rules, cluster: ClusterState, usage: QueueUsage) -> SeatMove | None:
    """Return the move of as many pods as fit; None if they are fewer than have to be moved together."""

    def decide(group: Group) -> Verdict:
        return Verdict(group=group, outcome=_move(group, rules, cluster, usage))

    found = elastic.largest(part, decide, fewest=least).outcome
    return found if isinstance(found, SeatMove) else None


def _move(group: Group, rules: Rules, cluster: ClusterState, usage: QueueUsage) -> SeatMove | Hold:
    """Return the move of a gang; a hold if its pods do not all fit, or if kube-scheduler gives them their devices."""
    queue = rules.snapshot.queues.get(group.queue)
    if queue is None:
        return Hold(HoldReason.QUEUE_INACTIVE, f"queue {group.queue} does not exist")
    inputs = Inputs(rules=rules, group=group, queue=queue, cluster=cluster, queue_usage=usage)
    missing = chain.claims_exist(inputs)
    if missing is not None:
        return missing
    inputs = chain.with_demand(inputs)
    options = [one.demands for one in chain.attempts(inputs)] or [inputs.demands]
    found = [_proposal(demands, inputs) for demands in options]
    best = next((one for one in found if isinstance(one, Proposal)), found[0])
    if isinstance(best, Hold):
        return best
    if not _is_fenced(best, rules):
        return Hold(HoldReason.WAITING_FOR_CLAIMS, "kube-scheduler gives its pods their devices")
    claims = {one.pod.meta.uid: _uids(one) for one in inputs.demands}
    return SeatMove(group=group, plan=best.plan, claims=claims)


def _proposal(demands: Sequence[PodDemand], inputs: Inputs) -> Proposal | Hold:
    """Return a plan that is charged no more than was reserved, or else any: what is given is charged, as elsewhere."""
    group = inputs.group
    wanted, asked = mode.requested(group.record, inputs.queue), topology.request(group)
    demands = topology.with_subgroups(tuple(demands), asked, group)
    planner = chain.planner(replace(inputs.rules, mute=True))
    found = planner.propose(demands, inputs.cluster, wanted, _at_most(_reserved(demands, group)), asked)
    if isinstance(found, Hold) and found.reason is HoldReason.QUOTA_EXCEEDED:
        return planner.propose(demands, inputs.cluster, wanted, anything, asked)
    return found


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
