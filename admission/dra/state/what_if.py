"""What-if variants of a cluster state: without the usage of some gangs, or with more in use.

The functions make one state each: for preemption (without some gangs, with a nominated one) and for whether a gang fits
into an empty cluster. A `WhatIfSeries` makes successive states for reservations in time (`backfill.policy`): what a
gang gets when running gangs have ended, and what is left now for gangs that would still run then. Times are not known
here: the caller passes which gangs have ended and which start.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import NodeName, Uid
from admission.dra.inventory.pools import NodeInventory, PoolId
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.dra.state import cluster_state, incremental
from admission.dra.state.cluster_state import ClusterState
from admission.filters.placed_pods import OnNode, PlacedPods
from admission.incremental import Memo

Room = Mapping[NodeName, Mapping[str, int] | None]
"""What is left of each node's resources; None for a node that limits nothing."""

_Sums = dict[NodeName, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interval:
    """A gang that runs now: its devices are those of which it is the holder. requests: of each of its pods.

    devices: all of them, if the caller knows them; None to read them from the cluster state. pods: its pods.
    """

    gang: str
    requests: tuple[tuple[NodeName, Resources], ...] = ()
    devices: tuple[DeviceId, ...] | None = None
    pods: frozenset[Uid] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrival:
    """A gang that starts later: its devices, and the requests of its pods.

    room: what is left beside it on its nodes when it has started. pods: its pods on nodes, for the rules between pods.
    """

    gang: str
    uses: tuple[DeviceUse, ...] = ()
    requests: tuple[tuple[NodeName, Resources], ...] = ()
    room: Room = field(default_factory=dict)
    pods: tuple[OnNode, ...] = ()


Part = Interval | Arrival


@dataclass(frozen=True, slots=True)
class _Last:
    """The last what-if state and its inputs. sums: what the parts give back on each node in total."""

    now: ClusterState
    parts: Mapping[Part, int]
    sums: _Sums
    cluster: ClusterState


@dataclass(slots=True)
class WhatIfSeries:
    """Builds successive what-if states, each from the observed one.

    A state costs what has changed since the last one: the usage of exclusive devices is a view, not a copy. series:
    the name of its series of states, under which caches keep them apart from observed ones.

    The last state is no value over `admission.incremental`: the next is built from it by the parts that differ, and its
    change log begins there.
    """

    series: str
    _last: _Last | None = None
    _held: Memo[None, Mapping[str, Sequence[DeviceId]]] = field(default_factory=Memo)
    """Of a cluster state, the devices by gang."""
    _seers: Memo[None, Mapping[PoolId, Sequence[NodeName]]] = field(default_factory=Memo)
    """Of the inventories of nodes, the nodes that see each pool."""

    def cluster(
        self,
        now: ClusterState,
        *,
        removed: Iterable[Interval] = (),
        arrived: Iterable[Arrival] = (),
        kept: Iterable[Arrival] = (),
    ) -> ClusterState:
        """Return the state without `removed` gangs, with those of `arrived`, and with nothing of `kept` available.

        A device that a running gang has and a later one will have is in use. On a node with kept resources, what is
        left now or what will be left beside the kept gang counts, whichever is less.
        """
        removed, arrived, kept = tuple(removed), tuple(arrived), tuple(kept)
        names = frozenset([one.gang for one in removed])
        # The sign of each part's requests on its nodes: removed gangs give back, new ones take, kept ones do neither.
        parts: dict[Part, int] = {**dict.fromkeys(removed, 1), **dict.fromkeys(arrived, -1), **dict.fromkeys(kept, 0)}
        sums, differing = self._summed(parts)
        cluster = replace(
            now,
            series=self.series,
            taken=WhatIfUsage(now.taken, names, _taken((*arrived, *kept))),
            shares=_shares(now, names, (*arrived, *kept)),
            left=WhatIfResources(now.left, sums, _bounds(kept)),
            placed=_placed(now.placed, removed, arrived, kept),
            conflicted=tuple(one for one in now.conflicted if one.holder.gang not in names),
            pending={node: tuple(one for one in pods if one.gang not in names) for node, pods in now.pending.items()},
        )
        cluster.passing.update(now.passing)
        cluster = self._followed(now, differing, cluster)
        self._last = _Last(now, parts, sums, cluster)
        return cluster

    def _summed(self, parts: Mapping[Part, int]) -> tuple[_Sums, list[Part]]:
        """Return what parts give back on each node, and the parts whose sign differs from the last state."""
        before = self._last.parts if self._last is not None else {}
        sums = dict(self._last.sums) if self._last is not None else {}
        differing = [part for part, times in parts.items() if before.get(part) != times]
        differing += [part for part in before if part not in parts]
        for part in differing:
            times = parts.get(part, 0) - before.get(part, 0)
            for node, requests in part.requests if times else ():
                present = sums.get(node, {})
                sums[node] = {
                    **present,
                    **{name: present.get(name, 0) + times * amount for name, amount in requests.items()},
                }
                if not any(sums[node].values()):
                    del sums[node]
        return sums, differing

    def _followed(self, now: ClusterState, differing: Iterable[Part], cluster: ClusterState) -> ClusterState:
        """Record in the change log where a state differs from the last one, if that is known; return the state."""
        last = self._last
        if last is None or last.now.nodes is not now.nodes:
            return cluster
        between = frozenset[NodeName]() if last.now is now else cluster_state.changed(last.now, now)
        if between is None:
            return cluster
        nodes = set(between)
        for part in differing:
            nodes.update(node for node, _ in part.requests)
            nodes.update(self._seeing(cluster, self._devices(now, part)))
            if isinstance(part, Arrival):
                nodes.update(part.room)
        return cluster_state.follow(last.cluster, cluster, frozenset(nodes))

    def _seeing(self, cluster: ClusterState, devices: Iterable[DeviceId]) -> Iterable[NodeName]:
        """Return the nodes that see these devices."""
        inventories = cluster.node_inventories
        seers = self._seers.get(None, (inventories,), lambda: _seers(inventories))
        return {node for device in devices for node in seers.get((device.driver, device.pool), ())}

    def _devices(self, now: ClusterState, part: Part) -> Iterable[DeviceId]:
        """Return the devices of a part."""
        if isinstance(part, Arrival):
            return [use.device for use in part.uses]
        if part.devices is not None:
            return part.devices
        return self._held.get(None, (now,), lambda: _held(now)).get(part.gang, ())


def _placed(
    now: PlacedPods, removed: Iterable[Interval], arrived: Iterable[Arrival], kept: Iterable[Arrival]
) -> PlacedPods:
    """Return the pods on nodes. Those of kept gangs are not there yet: they only keep others off."""
    coming = [pod for one in arrived for pod in one.pods]
    coming += [(node, uid, pod.as_guard()) for one in kept for node, uid, pod in one.pods if pod.keeps_off]
    return now.without_later(one.pods for one in removed).added_later(coming)


def _seers(inventories: Mapping[NodeName, NodeInventory]) -> dict[PoolId, list[NodeName]]:
    """Return the nodes that see each pool."""
    found: dict[PoolId, list[NodeName]] = {}
    for name, node_inventory in inventories.items():
        for pool in node_inventory.relevant:
            found.setdefault(pool, []).append(name)
    return found


def _held(now: ClusterState) -> dict[str, list[DeviceId]]:
    """Return the devices of each gang."""
    found: dict[str, list[DeviceId]] = {}
    for device, holder in now.taken.items():
        found.setdefault(holder.gang, []).append(device)
    for device, shares in now.shares.items():
        for gang in {share.holder.gang for share in shares}:
            found.setdefault(gang, []).append(device)
    return found


def _taken(arrivals: Iterable[Arrival]) -> dict[DeviceId, Holder]:
    """Return the devices that gangs will have exclusively; of several gangs for one device the first."""
    found: dict[DeviceId, Holder] = {}
    for arrival in arrivals:
        holder = Holder(claim="", gang=arrival.gang)
        for use in arrival.uses:
            if not use.shared:
                found.setdefault(use.device, holder)
    return found


def _shares(
    now: ClusterState, removed: frozenset[str], arrivals: Iterable[Arrival]
) -> Mapping[DeviceId, tuple[Shared, ...]]:
    """Return the shares of devices without those of removed gangs, and with those of arrivals."""
    found: dict[DeviceId, tuple[Shared, ...]] = {}
    for device, shares in now.shares.items():
        left = tuple(share for share in shares if share.holder.gang not in removed)
        if left:
            found[device] = left
    for arrival in arrivals:
        holder = Holder(claim="", gang=arrival.gang)
        for use in arrival.uses:
            if use.shared:
                found[use.device] = (*found.get(use.device, ()), Shared(use.share, holder))
    return found


def _bounds(arrivals: Iterable[Arrival]) -> dict[NodeName, list[Mapping[str, int]]]:
    """Return what is left on nodes beside each of these gangs, where it is limited."""
    found: dict[NodeName, list[Mapping[str, int]]] = {}
    for arrival in arrivals:
        for node, room in arrival.room.items():
            if room is not None:
                found.setdefault(node, []).append(room)
    return found


Amounts = Mapping[str, int]
"""The amount of each resource."""


class WhatIfUsage(Mapping[DeviceId, Holder]):
    """The devices in use without some gangs and with others: a view, so that nothing is copied.

    If a gang that stays and one that comes both have a device, its holder is the one that stays.
    """

    __slots__ = ("_arrived", "_now", "_removed")

    def __init__(
        self, now: Mapping[DeviceId, Holder], removed: Collection[str], arrived: Mapping[DeviceId, Holder]
    ) -> None:
        self._now = now
        self._removed = removed
        self._arrived = arrived

    def __getitem__(self, device: DeviceId) -> Holder:
        holder = self._now.get(device)
        return holder if holder is not None and holder.gang not in self._removed else self._arrived[device]

    def __contains__(self, device: object) -> bool:
        holder = self._now.get(device)  # type: ignore[call-overload]
        return (holder is not None and holder.gang not in self._removed) or device in self._arrived

    def __iter__(self) -> Iterator[DeviceId]:
        left = [device for device, holder in self._now.items() if holder.gang not in self._removed]
        yield from left
        yield from self._arrived.keys() - left

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """Return whether a device may be in use; not exact, so that it costs nothing: it only saves look-ups."""
        return bool(self._now) or bool(self._arrived)


class WhatIfResources(Mapping[NodeName, Amounts | None]):
    """The resources left: those left now plus those given back, but no more than the bounds of kept gangs. A view."""

    __slots__ = ("_bounds", "_more", "_now")

    def __init__(
        self,
        now: Mapping[NodeName, Amounts | None],
        more: Mapping[NodeName, Amounts],
        bounds: Mapping[NodeName, Sequence[Amounts]],
    ) -> None:
        self._now = now
        self._more = more
        self._bounds = bounds

    def __getitem__(self, node: NodeName) -> Amounts | None:
        left, more = self._now.get(node), self._more.get(node)
        if left is not None and more is not None:
            left = {name: amount_left + more.get(name, 0) for name, amount_left in left.items()}
        for room in self._bounds.get(node, ()):
            left = (
                room
                if left is None
                else {name: min(amount_left, room.get(name, amount_left)) for name, amount_left in left.items()}
            )
        if left is None and node not in self._now:
            raise KeyError(node)
        return left

    def __iter__(self) -> Iterator[NodeName]:
        yield from self._now
        yield from self._bounds.keys() - self._now.keys()

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Belongings:
    """What becomes free when a gang is removed.

    claims: `namespace/name` of those whose devices become free. uids: of the same, by `key_of`. pods: those that use
    claims. room: the requests of each pod, on its node. placed: all pods that leave their nodes.
    """

    claims: frozenset[str] = frozenset()
    uids: frozenset[Uid] = frozenset()
    pods: frozenset[Uid] = frozenset()
    room: tuple[tuple[NodeName, Resources], ...] = ()
    placed: frozenset[Uid] = frozenset()


def empty(cluster: ClusterState, *, keep: Collection[DeviceId] = (), without_claims: bool = False) -> ClusterState:
    """Return the cluster state with nothing in use but the devices to keep.

    Pods count as there only for others that have to be with them. without_claims: with nothing known of claims either,
    neither where they are pinned nor who uses them.
    """
    if without_claims:
        cluster = replace(cluster, pinned={}, users={})
    return replace(
        cluster,
        is_what_if=True,
        taken={device: holder for device, holder in cluster.taken.items() if device in keep},
        shares={device: shares for device, shares in cluster.shares.items() if device in keep},
        left={name: node.allocatable for name, node in cluster.nodes.items()},
        placed=cluster.placed.as_wanted_only(),
    )


def with_reserved(cluster: ClusterState, reserved: Mapping[NodeName, Iterable[Resources]]) -> ClusterState:
    """Return the cluster state in which nodes lack what is reserved on them. reserved: by node, in parts."""
    left = dict(cluster.left)
    for node, parts in reserved.items():
        for part in parts if node in left else ():
            left[node] = incremental.less(left[node], part)
    return replace(cluster, is_what_if=True, left=left)


def without_gangs(cluster: ClusterState, removed: Iterable[Belongings]) -> ClusterState:
    """Return the cluster state in which the removed gangs have given everything back."""
    parts = [*removed]
    if not parts:
        return cluster
    claims = frozenset[str]().union(*(one.claims for one in parts))
    uids, pods = (
        frozenset[Uid]().union(*(one.uids for one in parts)),
        frozenset[Uid]().union(*(one.pods for one in parts)),
    )
    left = dict(cluster.left)
    for node, requests in (room for one in parts for room in one.room):
        before = left.get(node)
        if before is not None:
            left[node] = {name: amount + requests.get(name, 0) for name, amount in before.items()}
    return replace(
        _without_users(cluster, uids, pods),
        is_what_if=True,
        taken={device: holder for device, holder in cluster.taken.items() if holder.claim not in claims},
        shares={
            device: kept
            for device, shares in cluster.shares.items()
            if (kept := tuple(one for one in shares if one.holder.claim not in claims))
        },
        left=left,
        placed=cluster.placed.without(frozenset[Uid]().union(*(one.placed for one in parts))),
    )


def with_usage(
    cluster: ClusterState,
    room: Iterable[tuple[NodeName, Resources]],
    given: Iterable[tuple[Holder, Iterable[DeviceUse]]],
    pods: Iterable[tuple[NodeName, Uid, Pod]] = (),
) -> ClusterState:
    """Return the cluster state with more in use. room: requests on nodes. given: devices, by holder. pods: on nodes."""
    placed = cluster.placed.granted(pods)
    left = dict(cluster.left)
    for node, requests in room:
        before = left.get(node)
        if before is not None:
            left[node] = {name: amount - requests.get(name, 0) for name, amount in before.items()}
    taken, shares = dict(cluster.taken), dict(cluster.shares)
    pools: set[PoolId] = set()
    for holder, uses in given:
        for use in uses:
            device = use.device
            pools.add((device.driver, device.pool))
            if use.shared:
                shares[device] = (*shares.get(device, ()), Shared(use.share, holder))
            else:
                taken[device] = holder
    where = frozenset(
        name
        for name, node_inventory in cluster.node_inventories.items()
        if not pools.isdisjoint(node_inventory.relevant)
    )
    return cluster_state.with_usage(cluster, (taken, shares), left, where, placed)


def _without_users(cluster: ClusterState, uids: frozenset[Uid], pods: frozenset[Uid]) -> ClusterState:
    """Return the cluster state in which no pod waits for these claims, and these pods use no claim."""
    return replace(
        cluster,
        pinned={uid: nodes for uid, nodes in cluster.pinned.items() if uid not in uids},
        users={uid: left for uid, users in cluster.users.items() if (left := users.difference(pods))},
        conflicted=tuple(one for one in cluster.conflicted if cluster_state.key_of(one.claim) not in uids),
        pending={
            node: kept
            for node, waiting in cluster.pending.items()
            if (kept := tuple(one for one in waiting if uids.isdisjoint(map(cluster_state.key_of, one.claims))))
        },
    )
