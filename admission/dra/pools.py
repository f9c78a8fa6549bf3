"""The pools that a node sees: which slices count, whether a pool is whole and sound, and the order of its devices.

Mirrors `GatherPools` of `k8s.io/dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go`
(v0.37.1, all features of a default 1.37 cluster on). The order of pools and devices is part of the answer: the
allocator takes the first that fits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from admission.api.devices import Device, DeviceId, Slice
from admission.api.names import NodeName
from admission.api.nodes import Node

PoolId = tuple[str, str]
"""Driver and name of a pool."""


class Spot(NamedTuple):
    """A device as one node sees it.

    local: no other node can see it. reachable: False for a device of a slice with per-device node selection that is
    meant for other nodes; selectors are evaluated on it all the same, as kube-scheduler does.
    """

    id: DeviceId
    device: Device
    slice: Slice
    at: int
    """Its place in the slice."""
    local: bool
    reachable: bool


class Soundness(StrEnum):
    """Whether a pool's devices may be used."""

    SOUND = "Sound"
    INCOMPLETE = "Incomplete"
    """Slices of the newest generation are missing, or there are too many."""
    INVALID = "Invalid"
    """Two devices or counter sets have one name, or a device draws from a counter that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """One pool as one node sees it. why: what is wrong with it, for people."""

    driver: str
    name: str
    soundness: Soundness = Soundness.SOUND
    why: str = ""
    spots: tuple[Spot, ...] = ()

    @property
    def title(self) -> str:
        return f"pool {self.name} of {self.driver}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shelf:
    """What one node sees, in the order in which the allocator looks at it, and the slices that it was made from."""

    pools: tuple[Pool, ...] = ()
    spots: tuple[Spot, ...] = ()
    """The devices of all sound pools, in order."""
    sources: tuple[Slice, ...] = ()


class Slices:
    """All slices of the cluster, indexed for gathering."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self.on_node: dict[NodeName, list[Slice]] = {}
        self.elsewhere: list[Slice] = []
        self.of_pool: dict[PoolId, list[Slice]] = {}
        for slice_ in slices:
            self.of_pool.setdefault((slice_.driver, slice_.pool), []).append(slice_)
            if slice_.node_name:
                self.on_node.setdefault(slice_.node_name, []).append(slice_)
            else:
                self.elsewhere.append(slice_)
        self._owners = {pool: {s.node_name for s in members} for pool, members in self.of_pool.items()}

    def is_local(self, pool: PoolId) -> bool:
        """Return whether every slice of the pool names one and the same node."""
        owners = self._owners[pool]
        return len(owners) == 1 and NodeName("") not in owners


def gather(node: Node, slices: Slices) -> Shelf:
    """Return the pools that the node sees."""
    relevant = [*slices.on_node.get(node.name, ()), *(s for s in slices.elsewhere if _relevant(s, node))]
    plain: list[Pool] = []
    binding: list[Pool] = []
    for pool_id, members in sorted(_newest(relevant).items()):
        pool = _pool(pool_id, members, node, slices)
        if pool is not None:
            (binding if any(spot.device.binding_conditions for spot in pool.spots) else plain).append(pool)
    pools = (*plain, *binding)
    return Shelf(
        pools=pools, spots=tuple(spot for pool in pools for spot in _usable(pool)), sources=_sources(node, slices)
    )


def unchanged(shelf: Shelf, node: Node, slices: Slices) -> bool:
    """Return whether the node sees the very slices from which the shelf was made, all of its pools being whole."""
    now = _sources(node, slices)
    return (
        len(now) == len(shelf.sources)
        and all(map(lambda a, b: a is b, now, shelf.sources))
        and all(pool.soundness is Soundness.SOUND for pool in shelf.pools)
        and (not slices.elsewhere)
    )


def _sources(node: Node, slices: Slices) -> tuple[Slice, ...]:
    return (*slices.on_node.get(node.name, ()), *slices.elsewhere)


def _usable(pool: Pool) -> tuple[Spot, ...]:
    return pool.spots if pool.soundness is Soundness.SOUND else ()


def node_matches(place: Slice | Device, node: Node) -> bool:
    """Return whether a slice, or a device of a slice with per-device selection, is meant for the node."""
    if place.node_name:
        return place.node_name == node.name
    if place.all_nodes:
        return True
    return place.node_selector is not None and place.node_selector.matches(node.name, node.meta.labels)


def _relevant(slice_: Slice, node: Node) -> bool:
    if slice_.all_nodes or slice_.node_selector is not None:
        return node_matches(slice_, node)
    return bool(slice_.per_device_nodes) and any(node_matches(device, node) for device in slice_.devices)


def _newest(slices: Iterable[Slice]) -> dict[PoolId, list[Slice]]:
    """Group slices by pool and keep those of the highest generation that this node sees."""
    found: dict[PoolId, list[Slice]] = {}
    for slice_ in slices:
        members = found.setdefault((slice_.driver, slice_.pool), [])
        if members and slice_.generation > members[0].generation:
            members.clear()
        if not members or slice_.generation == members[0].generation:
            members.append(slice_)
    return found


def _pool(pool_id: PoolId, members: Sequence[Slice], node: Node, slices: Slices) -> Pool | None:
    """Return one pool; None when a newer generation of it exists, so that these slices mean nothing any more."""
    driver, name = pool_id
    whole: Sequence[Slice] = members
    expected = members[0].slice_count
    if len(members) != expected:
        everywhere = slices.of_pool[pool_id]
        if any(s.generation > members[0].generation for s in everywhere):
            return None
        whole = [s for s in everywhere if s.generation == members[0].generation]
    spots = _spots(members, node, local=slices.is_local(pool_id))
    if len(whole) != expected:
        why = f"{len(whole)} of {expected} slices of generation {members[0].generation} are there"
        return Pool(driver=driver, name=name, soundness=Soundness.INCOMPLETE, why=why, spots=spots)
    if flaw := _flaw(spots, whole):
        return Pool(driver=driver, name=name, soundness=Soundness.INVALID, why=flaw, spots=spots)
    return Pool(driver=driver, name=name, spots=spots)


def _spots(members: Iterable[Slice], node: Node, *, local: bool) -> tuple[Spot, ...]:
    return tuple(
        Spot(
            id=DeviceId(slice_.driver, slice_.pool, device.name),
            device=device,
            slice=slice_,
            at=at,
            local=local,
            reachable=not slice_.per_device_nodes or node_matches(device, node),
        )
        for slice_ in sorted(members, key=lambda slice_: slice_.meta.name.encode())
        for at, device in enumerate(slice_.devices)
    )


def _flaw(spots: Iterable[Spot], whole: Iterable[Slice]) -> str | None:
    if twice := _repeated(spot.device.name for spot in spots):
        return f"device {twice} is there twice"
    whole = list(whole)
    if twice := _repeated(name for slice_ in whole for name in slice_.counters):
        return f"counter set {twice} is there twice"
    counters = {name: counters for slice_ in whole for name, counters in slice_.counters.items()}
    return next(filter(None, (_unknown_counter(d, counters) for slice_ in whole for d in slice_.devices)), None)


def _unknown_counter(device: Device, counters: Mapping[str, Mapping[str, object]]) -> str | None:
    for use in device.consumes:
        for counter in use.counters:
            if counter not in counters.get(use.counter_set, {}):
                return f"device {device.name} draws from counter {use.counter_set}/{counter}, which is not there"
        if use.counter_set not in counters:
            return f"device {device.name} draws from counter set {use.counter_set}, which is not there"
    return None


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)
