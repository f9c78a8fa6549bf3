"""The frozen state of the cluster that allocation reads: nodes with the devices they see, classes, and what is in use.

`build` makes it from a snapshot and the ledger's open placements. A planned device counts as taken until the real
allocation is observed, and so do a planned pod's resources on its node.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self, TypeVar

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import Device, DeviceClass, DeviceId, RequestDevice
from admission.api.kubernetes.nodes import Node
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.snapshot import Snapshot, changed as changed_keys
from admission.api.values import names
from admission.api.values.names import NodeName, Uid
from admission.dra.compatibility import Features, SchedulerProfile
from admission.dra.inventory import device_taints, node_index
from admission.dra.inventory.counters import SharedCounters
from admission.dra.inventory.device_taints import TaintedSlices
from admission.dra.inventory.node_index import NodeIndex
from admission.dra.inventory.pools import NodeInventory, PoolId, Slices
from admission.dra.requests import device_use, extended_resources
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.dra.requests.gang_request import Plan
from admission.dra.state import incremental, planned_resources
from admission.dra.state.change_log import ChangeLog
from admission.dra.state.incremental import IncrementalUsage, UsageTotals
from admission.dra.state.sources import Sources
from admission.filters.placed_pods import PlacedPods

K = TypeVar("K")
Nodes = frozenset[NodeName]
Left = Mapping[NodeName, Mapping[str, int] | None]
"""What is left of each node's allocatable resources; None for a node that has no limits."""


READ = (
    *("profile", "nodes", "classes", "taken", "shares", "left", "pinned", "users", "conflicted", "node_inventories"),
    "placed",
)
"""The fields of a ClusterState that the allocator's answers depend on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflicted:
    """A planned claim that cannot get its devices, since another claim has some. `nominated` predicts what it gets."""

    claim: Claim
    node: NodeName
    holder: Holder


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAllocation:
    """A pod whose gate is open and whose claims are not yet observed as allocated by kube-scheduler.

    claims: in the pod's order. devices: what is booked for each of them. gang: of the pod.
    """

    claims: tuple[Claim, ...]
    devices: tuple[tuple[RequestDevice, ...], ...]
    gang: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterState:
    """The cluster as the allocator sees it.

    profile: of the kube-scheduler that decides there. taken: allocated or planned devices, with their holder. shares:
    of devices that several claims may use. pinned: by `key_of`, planned claims not yet seen allocated, with the nodes
    of their waiting pods. users: by claim UID, the pods of the gang that use it. conflicted: planned claims whose
    devices went to other claims. pending: by node, in the order of opened gates, pods whose planned claims are pending.
    placed: the pods on nodes, bound or granted, for rules between pods. is_what_if: whether this is a single what-if
    state, which no other follows. series: name of a series of what-if states; empty for the observed one. slices,
    tainted, sources: inputs of the rest, for the next state; None while use that depends on slices is planned but not
    seen. kept: results per claim and node. token: identity of this state. change_log, place: the change log shared with
    its predecessors, and its position there.
    """

    profile: SchedulerProfile = field(default_factory=SchedulerProfile)
    nodes: Mapping[NodeName, Node] = field(default_factory=dict)
    node_inventories: Mapping[NodeName, NodeInventory] = field(default_factory=dict)
    classes: Mapping[str, DeviceClass] = field(default_factory=dict)
    taken: Mapping[DeviceId, Holder] = field(default_factory=dict)
    shares: Mapping[DeviceId, tuple[Shared, ...]] = field(default_factory=dict)
    left: Left = field(default_factory=dict)
    placed: PlacedPods = field(default_factory=PlacedPods)
    pinned: Mapping[Uid, frozenset[NodeName]] = field(default_factory=dict)
    users: Mapping[Uid, frozenset[Uid]] = field(default_factory=dict)
    conflicted: tuple[Conflicted, ...] = ()
    pending: Mapping[NodeName, tuple[PendingAllocation, ...]] = field(default_factory=dict)
    is_what_if: bool = False
    series: str = ""
    slices: Slices | None = None
    tainted: TaintedSlices | None = None
    sources: Sources | None = None
    kept: IncrementalUsage = field(default_factory=IncrementalUsage, repr=False)
    token: object = field(default_factory=object, init=False)
    change_log: ChangeLog = field(default_factory=ChangeLog, init=False)
    place: int = field(default=0, init=False)
    passing: dict[Hashable, Nodes] = field(default_factory=dict, init=False)
    """Results of `node_filters`, which depend on the nodes alone. Rule: only `node_filters.passed` adds any, and
    `follow` takes them over to a state with the same nodes."""
    _vanished: frozenset[PoolId] | None = field(default=None, init=False)

    @property
    def vanished(self) -> frozenset[PoolId]:
        """Return the pools with a device in use that is in no slice any more; empty if no pool has counters."""
        found = self._vanished
        if found is None:
            slices = self.slices if self.slices is not None and self.slices.has_counters else None
            used = (*self.taken, *self.shares) if slices is not None else ()
            found = frozenset((d.driver, d.pool) for d in used if slices is not None and slices.device(d) is None)
            object.__setattr__(self, "_vanished", found)
        return found


def build(
    snapshot: Snapshot,
    placements: Iterable[Placement],
    *,
    profile: SchedulerProfile | None = None,
    before: ClusterState | None = None,
    claims: Mapping[Uid, Claim] | None = None,
) -> ClusterState:
    """Return the cluster state of a snapshot and the ledger's open placements.

    before: the cluster state of an earlier cycle; what did not change is taken from it. claims: the result of
    `extended_resources.index_claims`, if the caller has it.
    """
    profile = profile or SchedulerProfile()
    before = before if before is not None and before.profile == profile else None
    placements = tuple(placements)
    tainted = device_taints.apply_rules(
        snapshot.slices, snapshot.taint_rules, profile.release, before.tainted if before is not None else None
    )
    sources = Sources.of(snapshot, placements)
    in_use = before is not None and before.sources is not None and before.sources.same(sources)
    if before is not None and in_use and before.tainted is tainted:
        return before
    slices, node_inventories = _node_inventories(snapshot, tainted, profile, before)
    if before is not None and in_use and not (slices.takes_of_nodes or before.kept.by_devices):
        cluster = replace(before, node_inventories=node_inventories, slices=slices, tainted=tainted)
        if cluster.kept.counted_for is before.token:
            cluster.kept.counted_for = cluster.token
        return follow(before, cluster, _reindexed_nodes(before, cluster))
    by_uid = claims if claims is not None else extended_resources.index_claims(snapshot)
    kept = before.kept if before is not None else IncrementalUsage()
    counted = planned_resources.count(kept, snapshot, placements, by_uid, slices, profile)
    unseen = counted.unseen
    use = _Use(dict(counted.taken), dict(counted.shares)) if unseen else None
    by_uid = {**by_uid, **{claim.meta.uid: claim for claim in _absent(snapshot, unseen, by_uid)}} if unseen else by_uid
    pinned = _pinned(placements, unseen, by_uid)
    conflicted = () if use is None else _add_planned(use, unseen, by_uid, pinned, slices, profile.features)
    cluster = ClusterState(
        profile=profile,
        nodes=snapshot.nodes,
        node_inventories=node_inventories,
        classes=snapshot.classes,
        taken=counted.taken if use is None else MappingProxyType(use.taken),
        shares=counted.shares if use is None else use.shares,
        left=counted.left,
        placed=counted.placed,
        pinned=pinned,
        users=counted.users,
        conflicted=conflicted,
        pending=_pending(snapshot, unseen, by_uid, conflicted),
        slices=slices,
        tainted=tainted,
        sources=None if unseen else sources,
        kept=kept,
    )
    return _following(before, cluster, counted, use.added if use is not None else ())


def _node_inventories(
    snapshot: Snapshot, tainted: TaintedSlices, profile: SchedulerProfile, before: ClusterState | None
) -> tuple[Slices, Mapping[NodeName, NodeInventory]]:
    """Return the slices and the inventory of every node; the same objects as before if nothing changed."""
    known = before.slices if before is not None and before.tainted is tainted else None
    if before is not None and known is not None and before.nodes is snapshot.nodes:
        return known, before.node_inventories
    slices = known or Slices(tainted.slices, profile, before.slices if before is not None else None)
    index = None
    if before is not None and before.slices is not None:
        index = NodeIndex(before.nodes, before.node_inventories, before.slices)
    return slices, node_index.build(snapshot.nodes, slices, index)


def changed(before: ClusterState, cluster: ClusterState) -> frozenset[NodeName] | None:
    """Return the nodes whose devices, their use or resources changed between two cluster states; None for all.

    The answer is exact if the second state is the last that followed from the first; else it may have more nodes.
    """
    if before.profile != cluster.profile:
        return None
    if (log := cluster.change_log) is before.change_log or log.knows(before.change_log, before.place):
        return frozenset(log.since(min(before.place, cluster.place)))
    return _differing(before, cluster)


def key_of(claim: Claim) -> Uid:
    """Return the key of a claim: its UID, or its namespaced name if it has none, as in manifests read offline."""
    return claim.meta.uid or Uid(claim.meta.key)


def same(left: ClusterState, right: ClusterState) -> bool:
    """Return whether the allocator sees no difference. Identical objects are not compared."""
    if left is right:
        return True
    pairs = ((getattr(left, name), getattr(right, name)) for name in READ)
    return all(one is other or one == other for one, other in pairs)


def granted(
    cluster: ClusterState,
    plan: Plan,
    pods: Mapping[Uid, Pod],
    gang: str,
    claims: Mapping[Uid, Iterable[Uid]] | None = None,
) -> ClusterState:
    """Return the cluster state after a plan was granted in this cycle.

    pods: those of the plan, by UID. claims: by pod UID, the claims that the pod uses.
    """
    claims = claims or {}
    use = _Use.from_cluster(cluster)
    left, pinned, users = dict(cluster.left), dict(cluster.pinned), dict(cluster.users)
    placed = cluster.placed.granted((place.node, place.uid, pods[place.uid]) for place in plan.pods)
    for place in plan.pods:
        for claim in place.claims:
            key = claim.uid or Uid(claim.claim)
            pinned[key] = pinned.get(key, _NO_NODES) | {place.node}
            use.add(plan.uses.get(key, ()), Holder(claim=claim.claim, gang=gang))
        left[place.node] = incremental.less(left.get(place.node), plan.taken_by(pods[place.uid]))
        for uid in claims.get(place.uid, ()):
            users[uid] = users.get(uid, _NO_PODS) | {place.uid}
            if uid in pinned:
                pinned[uid] |= {place.node}
    after = replace(use.on(cluster), left=left, placed=placed, pinned=pinned, users=users)
    return follow(cluster, after, nodes_of(cluster, use.added).union(place.node for place in plan.pods))


def with_devices(cluster: ClusterState, given: Iterable[DeviceUse], holder: Holder) -> ClusterState:
    """Return the cluster state with more devices in use."""
    use = _Use.from_cluster(cluster)
    use.add(given, holder)
    return follow(cluster, use.on(cluster), nodes_of(cluster, use.added))


def with_usage(
    cluster: ClusterState,
    use: tuple[Mapping[DeviceId, Holder], Mapping[DeviceId, tuple[Shared, ...]]],
    left: Left,
    where: Nodes,
    placed: PlacedPods | None = None,
) -> ClusterState:
    """Return the state with exactly these devices in use, taken and shared. where: all nodes where that differs.

    placed: the pods on nodes, if they differ.
    """
    after = replace(cluster, taken=use[0], shares=use[1], left=left, placed=placed or cluster.placed)
    return follow(cluster, after, where)


def follow(before: ClusterState, cluster: ClusterState, nodes: frozenset[NodeName]) -> ClusterState:
    """Record in a new cluster state from which one it follows, and on which nodes it differs; return it."""
    log = before.change_log if before.place == before.change_log.steps else before.change_log.branch(before.place)
    log.add(nodes)
    object.__setattr__(cluster, "change_log", log)
    object.__setattr__(cluster, "place", log.steps)
    if cluster.nodes is before.nodes:
        cluster.passing.update(before.passing)
    return cluster


@dataclass(frozen=True, slots=True)
class _Use:
    """Devices in use, while they are being counted."""

    taken: dict[DeviceId, Holder]
    shares: dict[DeviceId, tuple[Shared, ...]]
    added: set[DeviceId] = field(default_factory=set)

    @classmethod
    def from_cluster(cls, cluster: ClusterState) -> Self:
        """Return a copy of the devices in use in a cluster state."""
        return cls(dict(cluster.taken), dict(cluster.shares))

    def on(self, cluster: ClusterState) -> ClusterState:
        """Return a cluster state with exactly these devices in use."""
        return replace(cluster, taken=self.taken, shares=self.shares)

    def add(self, uses: Iterable[DeviceUse], holder: Holder) -> None:
        for use_ in uses:
            self.added.add(use_.device)
            if use_.shared:
                self.shares[use_.device] = (*self.shares.get(use_.device, ()), Shared(use_.share, holder))
            else:
                self.taken[use_.device] = holder

    def leaves(self, uses: Sequence[DeviceUse], slices: Slices) -> bool:
        """Return whether all of these uses fit beside those in use."""
        if any(use_.device in self.taken for use_ in uses):
            return False
        for use_ in uses:
            device = slices.device(use_.device) if use_.shared else None
            if device is not None and not self._has_room(device, use_):
                return False
        pools = {(use_.device.driver, use_.device.pool) for use_ in uses}
        given = {use_.device for use_ in uses}
        return all(self._has_counters(slices.counter_set(pool), given) for pool in sorted(pools) if slices.draws(pool))

    def _has_room(self, device: Device, device_use: DeviceUse) -> bool:
        shares = [shared.share for shared in self.shares.get(device_use.device, ())]
        wanted = [share for share in (*shares, device_use.share) if share is not None]
        return all(sum(share.get(name, 0) for share in wanted) <= one.value for name, one in device.capacity.items())

    def _has_counters(self, counter_set: SharedCounters | None, given: Collection[DeviceId]) -> bool:
        # A device that draws nothing, or has shares already, is given even if counters are overdrawn.
        if counter_set is None or not any(
            device in counter_set.draws and device not in self.shares for device in given
        ):
            return True
        in_use = (
            device for device in counter_set.draws if device in self.taken or device in self.shares or device in given
        )
        return all(amount >= 0 for amount in counter_set.available(in_use))


def nodes_of(cluster: ClusterState, devices: Iterable[DeviceId], pools: Iterable[PoolId] = ()) -> frozenset[NodeName]:
    """Return the nodes that see these devices, or these pools."""
    wanted = {(device.driver, device.pool) for device in devices}.union(pools)
    inventories, slices, found = cluster.node_inventories, cluster.slices, set[NodeName]()
    for pool in tuple(wanted):
        owner = slices.owner(pool) if slices is not None else None
        if owner is not None:
            wanted.discard(pool)
            if owner in inventories and pool in inventories[owner].relevant:
                found.add(owner)
    if wanted:
        found.update(name for name, inventory in inventories.items() if not wanted.isdisjoint(inventory.relevant))
    return frozenset(found)


def _differing(before: ClusterState, cluster: ClusterState) -> frozenset[NodeName]:
    """Return the nodes that differ, by full comparison. Holders count too, since messages name them."""
    devices = _changed(before.taken, cluster.taken)
    devices |= {device for device in before.taken if device not in cluster.taken}
    if cluster.shares or before.shares:
        both = cluster.shares.keys() | before.shares.keys()
        devices |= {device for device in both if cluster.shares.get(device) != before.shares.get(device)}
    moved = _changed(before.left, cluster.left) | before.placed.differing(cluster.placed, cluster.nodes)
    return _reindexed_nodes(before, cluster) | nodes_of(cluster, devices) | moved


def _following(
    before: ClusterState | None, cluster: ClusterState, counted: UsageTotals, planned: Collection[DeviceId]
) -> ClusterState:
    """Record where a state differs from the one before. planned: the devices in use in addition to the counts."""
    kept, known = cluster.kept, cluster.kept.planned
    is_next = before is not None and counted.follows is before.token
    kept.counted_for, kept.planned = cluster.token, planned
    if before is None:
        return cluster
    is_same = all(getattr(before, name) is getattr(cluster, name) for name in ("taken", "left", "slices", "tainted"))
    if is_next and is_same and before.sources is not None and cluster.sources is not None and same(before, cluster):
        # What came or went uses nothing: all that was found of the state before holds.
        object.__setattr__(before, "sources", cluster.sources)
        kept.counted_for = before.token
        return before
    if is_next and counted.devices is not None:
        return follow(before, cluster, _moved(before, cluster, {*counted.devices, *known, *planned}, counted.nodes))
    return follow(before, cluster, _differing(before, cluster))


def _moved(
    before: ClusterState, cluster: ClusterState, devices: Collection[DeviceId], nodes: Collection[NodeName]
) -> frozenset[NodeName]:
    """Return the nodes that differ, given all devices and nodes that may differ."""
    differing = {one for one in devices if before.taken.get(one) != cluster.taken.get(one)}
    if cluster.shares or before.shares:
        differing |= {one for one in devices if before.shares.get(one) != cluster.shares.get(one)}
    left = {name for name in nodes if name in cluster.left and before.left.get(name) != cluster.left[name]}
    left |= before.placed.differing(cluster.placed, nodes)
    return _reindexed_nodes(before, cluster) | nodes_of(cluster, differing) | left


def _changed(before: Mapping[K, object], now: Mapping[K, object]) -> set[K]:
    """Return the keys whose value is new or not equal to the one before."""
    known = before.get
    return (
        set() if before is now else {k for k, value in now.items() if (old := known(k)) is not value and old != value}
    )


def _reindexed_nodes(before: ClusterState, cluster: ClusterState) -> frozenset[NodeName]:
    """Return the nodes that see other devices, or a pool that began or ceased to be `vanished`."""
    nodes = changed_keys(before.node_inventories, cluster.node_inventories)
    return frozenset(nodes) | nodes_of(cluster, (), before.vanished ^ cluster.vanished)


def _add_planned(  # noqa: PLR0917 - what a plan was made of
    use: _Use,
    placements: Iterable[Placement],
    claims: Mapping[Uid, Claim],
    pinned: Mapping[Uid, frozenset[NodeName]],
    slices: Slices,
    features: Features,
) -> tuple[Conflicted, ...]:
    """Add the devices of claims that are planned and not yet allocated; return the claims whose devices are taken.

    kube-scheduler takes pods of one node in its own order, so one may be given the device that another was planned on,
    the rest of a shared device, or the rest of a counter that the planned device needs.
    """
    conflicted: list[Conflicted] = []
    for placement in placements:
        for uid, holding in placement.holdings.items():
            claim = claims.get(uid)
            if _seen(claim):
                continue
            holder = Holder(claim=holding.claim, gang=placement.gang)
            spec = claim.spec if claim is not None else None
            described = {given.device: found for given in holding.devices if (found := slices.device(given.device))}
            taken = list(device_use.from_plan(holding.devices, spec, described, features))
            if claim is not None and uid in pinned and not use.leaves(taken, slices):
                conflicted.append(Conflicted(claim=claim, node=min(pinned[uid]), holder=holder))
            else:
                use.add(taken, holder)
    return tuple(conflicted)


def _absent(snapshot: Snapshot, placements: Iterable[Placement], seen: Collection[Uid]) -> Iterable[Claim]:
    """Yield the claims for extended resources that kube-scheduler has still to create for granted pods."""
    held = (uid for placement in placements for uid in placement.holdings)
    unmade = {uid for uid in held if names.is_extended_claim(uid) and uid not in seen}
    if not unmade:
        return
    for seat in (seat for placement in placements for seat in placement.seats.values()):
        pod = snapshot.pods.get(seat.pod_uid)
        if pod is None or unmade.isdisjoint(seat.claims):
            continue
        offered = extended_resources.resources_of(pod.containers, snapshot.classes)
        plugged = extended_resources.plugged(snapshot.nodes.get(seat.node), offered)
        claim = extended_resources.claim_of(pod, snapshot.classes, plugged)
        if claim is not None:
            yield claim


def _pinned(
    placements: Iterable[Placement], unseen: Iterable[Placement], claims: Mapping[Uid, Claim]
) -> dict[Uid, frozenset[NodeName]]:
    """Return, by unallocated planned claim, the nodes of the pods that use it, whichever gang pays for it."""
    found: dict[Uid, frozenset[NodeName]] = {}
    open_ = {uid for placement in unseen for uid in placement.holdings if not _seen(claims.get(uid))}
    for placement in placements if open_ else ():
        for seat in placement.seats.values():
            for uid in seat.claims:
                if uid in open_:
                    found[uid] = found.get(uid, _NO_NODES) | {seat.node}
    return found


def _pending(
    snapshot: Snapshot, placements: Iterable[Placement], claims: Mapping[Uid, Claim], conflicted: Iterable[Conflicted]
) -> dict[NodeName, tuple[PendingAllocation, ...]]:
    """Return, by node, the pods that kube-scheduler may schedule now and whose claims it has still to allocate.

    A gated pod is left out: kube-scheduler does not allocate for it. A claim that several pods wait for is with the
    first of them.
    """
    found: dict[NodeName, list[PendingAllocation]] = {}
    known = {key_of(one.claim) for one in conflicted}
    for placement in placements:
        for seat in placement.seats.values():
            pod = snapshot.pods.get(seat.pod_uid)
            if pod is not None and (pod.gated or pod.finished):
                continue
            mine = [uid for uid in seat.claims if uid in placement.holdings and uid in claims and uid not in known]
            mine = [uid for uid in mine if not _seen(claims[uid])]
            known.update(mine)
            if mine:
                devices = tuple(placement.holdings[uid].devices for uid in mine)
                known_claims = tuple(claims[uid] for uid in mine)
                pending = PendingAllocation(claims=known_claims, devices=devices, gang=placement.gang)
                found.setdefault(seat.node, []).append(pending)
    return {node: tuple(pods) for node, pods in found.items()}


_NO_NODES: frozenset[NodeName] = frozenset()
_NO_PODS: frozenset[Uid] = frozenset()


def _seen(claim: Claim | None) -> bool:
    return claim is not None and claim.allocation is not None
