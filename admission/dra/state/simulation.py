"""Cluster states as they will be, or as they must not be disturbed: some have gone, and others have come.

For reservations in time (`backfill.policy`): what a gang may have when those who run have ended, and what is left now
for those who would still run then. Nothing here knows of times: the caller says who has gone and who has come.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.api.kubernetes.devices import DeviceId
from admission.api.kubernetes.nodes import Resources
from admission.api.values.names import NodeName
from admission.dra.inventory.pools import NodeInventory, PoolId
from admission.dra.requests.device_use import DeviceUse, Holder, Shared
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState

Room = Mapping[NodeName, Mapping[str, int] | None]
"""What is left on nodes; None for a node that limits nothing."""

_Sums = dict[NodeName, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Interval:
    """A gang that is there now: its devices are those of which it is the holder. requests: of each of its pods.

    devices: the same, as far as the caller knows them all; None where the cluster state is to be looked at.
    """

    gang: str
    requests: tuple[tuple[NodeName, Resources], ...] = ()
    devices: tuple[DeviceId, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Arrival:
    """A gang that is to come: its devices, and the requests of its pods.

    room: what is left beside it on its nodes, by the time that it is there.
    """

    gang: str
    uses: tuple[DeviceUse, ...] = ()
    requests: tuple[tuple[NodeName, Resources], ...] = ()
    room: Room = field(default_factory=dict)


Part = Interval | Arrival


@dataclass(frozen=True, slots=True)
class _Last:
    """What was imagined last, and from what. sums: what those who have gone and come give back on each node."""

    now: ClusterState
    parts: Mapping[Part, int]
    sums: _Sums
    cluster: ClusterState


@dataclass(slots=True)
class Simulation:
    """Imagines one cluster state after the other, each from the one that is now.

    A cluster state costs what has changed since the last one: of what is in use it is a view, as long as devices are
    not shared. simulation: tells its cluster states from others, so that what is remembered of nodes from cluster state
    to cluster state stays apart.
    """

    simulation: str
    _last: _Last | None = None
    _held: tuple[ClusterState, Mapping[str, Sequence[DeviceId]]] | None = None
    _seers: tuple[Mapping[NodeName, NodeInventory], Mapping[PoolId, Sequence[NodeName]]] | None = None

    def cluster(
        self,
        now: ClusterState,
        *,
        removed: Iterable[Interval] = (),
        arrived: Iterable[Arrival] = (),
        kept: Iterable[Arrival] = (),
    ) -> ClusterState:
        """Return what is left when some have gone, others have come, and what is kept for a third is out of reach.

        A device that somebody has and another is to have is in use. Of a node with something kept there is left what
        there is now, or what will be beside that, whichever is less.
        """
        removed, arrived, kept = tuple(removed), tuple(arrived), tuple(kept)
        names = frozenset([one.gang for one in removed])
        # How often each part counts on its nodes: who has gone gives back, who has come takes, what is kept does not.
        parts: dict[Part, int] = {**dict.fromkeys(removed, 1), **dict.fromkeys(arrived, -1), **dict.fromkeys(kept, 0)}
        sums, differing = self._summed(parts)
        cluster = replace(
            now,
            simulation=self.simulation,
            taken=SimulatedUsage(now.taken, names, _taken((*arrived, *kept))),
            shares=_shares(now, names, (*arrived, *kept)),
            left=SimulatedResources(now.left, sums, _bounds(kept)),
            conflicted=tuple(one for one in now.conflicted if one.holder.gang not in names),
            pending={node: tuple(one for one in pods if one.gang not in names) for node, pods in now.pending.items()},
        )
        cluster.passing.update(now.passing)
        cluster = self._followed(now, differing, cluster)
        self._last = _Last(now, parts, sums, cluster)
        return cluster

    def _summed(self, parts: Mapping[Part, int]) -> tuple[_Sums, list[Part]]:
        """Return what parts give back on each node, and the parts that count otherwise than the last time."""
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
        """Note where a cluster state differs from the last one, as far as that is known."""
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
        """Return the nodes that see some devices."""
        if self._seers is None or self._seers[0] is not cluster.node_inventories:
            found: dict[PoolId, list[NodeName]] = {}
            for name, node_inventory in cluster.node_inventories.items():
                for pool in node_inventory.relevant:
                    found.setdefault(pool, []).append(name)
            self._seers = cluster.node_inventories, found
        seers = self._seers[1]
        return {node for device in devices for node in seers.get((device.driver, device.pool), ())}

    def _devices(self, now: ClusterState, part: Part) -> Iterable[DeviceId]:
        """Return the devices of a part."""
        if isinstance(part, Arrival):
            return [use.device for use in part.uses]
        if part.devices is not None:
            return part.devices
        if self._held is None or self._held[0] is not now:
            found: dict[str, list[DeviceId]] = {}
            for device, holder in now.taken.items():
                found.setdefault(holder.gang, []).append(device)
            for device, shares in now.shares.items():
                for gang in {share.holder.gang for share in shares}:
                    found.setdefault(gang, []).append(device)
            self._held = now, found
        return self._held[1].get(part.gang, ())


def _taken(arrivals: Iterable[Arrival]) -> dict[DeviceId, Holder]:
    """Return the devices that some will have for themselves, the first of several who will have one."""
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
    """Return the shares of devices without those of some gangs, and with those of others."""
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
    """Return what is left on nodes beside some, as far as that is limited."""
    found: dict[NodeName, list[Mapping[str, int]]] = {}
    for arrival in arrivals:
        for node, room in arrival.room.items():
            if room is not None:
                found.setdefault(node, []).append(room)
    return found


Amounts = Mapping[str, int]
"""What there is of each resource."""


class SimulatedUsage(Mapping[DeviceId, Holder]):
    """The devices that somebody has when some gangs have gone and others have come.

    Where both a gang that stays and one that comes have a device, the one that stays does.
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
        """Return whether anything may be in use: whoever asks that wants to know whether to look at all."""
        return bool(self._now) or bool(self._arrived)


class SimulatedResources(Mapping[NodeName, Amounts | None]):
    """What is left of nodes: what is left now and what is given back, but no more than what is left beside others."""

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
