"""The pools that a node sees: which slices count, whether a pool is complete and valid, and the order of its devices.

Mirrors `GatherPools` of `k8s.io/dynamic-resource-allocation/structured/internal/incubating/pools_incubating.go`
(v0.37.1; where v0.36.3 differs, `NodeInventory` has its view too). The order of pools and devices is part of the
answer: the allocator takes the first device that fits.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from admission.api.kubernetes.devices import Device, DeviceId, Slice
from admission.api.kubernetes.nodes import Node
from admission.api.values.names import NodeName
from admission.dra.compatibility import KnownBugs, SchedulerProfile
from admission.dra.inventory import counters, slice_tables
from admission.dra.inventory.counters import SharedCounters
from admission.dra.inventory.slice_tables import SliceTables

PoolId = tuple[str, str]
"""Driver and name of a pool."""


class InventoryDevice(NamedTuple):
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

    @property
    def place(self) -> Slice | Device:
        """Return the object whose node fields apply to the device: its slice, or the device itself."""
        return self.device if self.slice.per_device_nodes else self.slice

    @property
    def binds(self) -> bool:
        """Return whether the device binds its claim to one node."""
        return bool(self.place.node_name) or self.device.binds_to_node


class PoolHealth(StrEnum):
    """Whether a pool's devices may be used."""

    SOUND = "Sound"
    INCOMPLETE = "Incomplete"
    """Slices of the newest generation are missing, or there are more than the pool states."""
    INVALID = "Invalid"
    """Two devices or counter sets have one name, or a device draws from a counter that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """One pool as one node sees it; nodes that see the same share the object.

    why: what is wrong with it, for people. counter_set: its shared counters, if it has some. lenient: whether
    kube-scheduler gives its devices although it is incomplete.
    """

    driver: str
    name: str
    soundness: PoolHealth = PoolHealth.SOUND
    why: str = ""
    listed_devices: tuple[InventoryDevice, ...] = ()
    counter_set: SharedCounters | None = None
    lenient: bool = False

    @property
    def id(self) -> PoolId:
        return (self.driver, self.name)

    @property
    def title(self) -> str:
        return f"pool {self.name} of {self.driver}"

    @property
    def sound(self) -> bool:
        return self.soundness is PoolHealth.SOUND

    @property
    def serves(self) -> bool:
        """Return whether kube-scheduler gives devices of it."""
        return self.sound or (self.lenient and self.soundness is PoolHealth.INCOMPLETE)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeInventory:
    """The pools that one node sees, in the allocator's order, and the slices that they were built from.

    disputed: pools that 1.36 sees differently, since it reads slices with counters on every node. old: all pools as
    1.36 sees them; None if none is disputed. foreign: broken pools of other nodes that 1.36 meets on this one. own and
    elsewhere: the slices that name the node, and all that name no node. relevant: by pool with devices for the node,
    all slices of the pool.
    """

    node: Node | None = None
    pools: tuple[Pool, ...] = ()
    disputed: frozenset[PoolId] = frozenset()
    old: tuple[Pool, ...] | None = None
    foreign: tuple[Pool, ...] = ()
    own: tuple[Slice, ...] = ()
    elsewhere: tuple[Slice, ...] = ()
    relevant: Mapping[PoolId, tuple[Slice, ...]] = field(default_factory=dict)
    plain: bool = True
    """Whether every pool is sound and every release sees the same."""

    def seen(self, known_bugs: KnownBugs) -> tuple[Pool, ...]:
        """Return the pools as a kube-scheduler with these defects sees them."""
        return self.old if known_bugs.foreign_counters and self.old is not None else self.pools

    def broken(self, known_bugs: KnownBugs) -> tuple[Pool, ...]:
        """Return the incomplete and invalid pools, with those of other nodes if they matter under these bugs."""
        mine = tuple(pool for pool in self.seen(known_bugs) if not pool.sound)
        return (*mine, *self.foreign) if known_bugs.foreign_counters else mine

    @property
    def sources(self) -> Iterable[Slice]:
        """Return the slices of all pools with devices for the node."""
        return chain.from_iterable(self.relevant.values())


class Slices:
    """All slices of the cluster, indexed for gathering.

    A pool that several nodes see in the same way is built once. before: the slices of an earlier cycle, from which what
    did not change is taken.
    """

    def __init__(
        self, slices: Mapping[str, Slice], profile: SchedulerProfile | None = None, before: "Slices | None" = None
    ) -> None:
        profile = profile or SchedulerProfile()
        self._features = profile.features
        self._lenient = profile.known_bugs.incomplete_serve
        self._knows_groups = not profile.release.before_1_37
        self.tables: SliceTables = slice_tables.build(slices, before.tables if before is not None else None)
        tables = self.tables
        self.by_key = tables.by_key
        self.on_node = tables.on_node
        self.elsewhere = tables.elsewhere.slices
        self.members: Mapping[PoolId, tuple[Slice, ...]] = tables.members
        self.takes_of_nodes = tables.takes_of_nodes
        """Whether a device takes resources of its node beside what pods request."""
        self._local: dict[PoolId, bool] = {}
        self._devices: dict[PoolId, dict[str, Device]] = {}
        self._made: dict[object, Pool | None] = {}
        self._counter_sets: dict[tuple[int, ...], SharedCounters | str | None] = {}
        self._foreign: tuple[Pool, ...] | None = None

    def is_local(self, pool: PoolId) -> bool:
        """Return whether every slice of the pool names the same node."""
        known = self._local.get(pool)
        if known is None:
            owners = {slice_.node_name for slice_ in self.members[pool]}
            known = self._local[pool] = len(owners) == 1 and NodeName("") not in owners
        return known

    def device(self, wanted: DeviceId) -> Device | None:
        """Return a device from the newest slice that has it; None if no slice of its pool has it."""
        pool = (wanted.driver, wanted.pool)
        if pool not in self._devices:
            members = sorted(self.members.get(pool, ()), key=lambda slice_: slice_.generation)
            self._devices[pool] = {device.name: device for slice_ in members for device in slice_.devices}
        return self._devices[pool].get(wanted.device)

    def owner(self, pool: PoolId) -> NodeName | None:
        """Return the only node that can see a pool; None if there may be several."""
        return self.members[pool][0].node_name if pool in self.members and self.is_local(pool) else None

    @property
    def has_counters(self) -> bool:
        """Whether any pool has shared counters."""
        return bool(self.tables.drawing)

    def draws(self, pool: PoolId) -> bool:
        """Return whether the pool has slices with shared counters."""
        return self._features.partitionable and pool in self.tables.drawing

    def counter_set(self, pool: PoolId) -> SharedCounters | None:
        """Return the counters of the newest generation of a pool; None if it has none, or invalid ones."""
        found = self._counter_set(_newest(self.members[pool])) if pool in self.members else None
        return found if isinstance(found, SharedCounters) else None

    def usable(self, slice_: Slice) -> bool:
        """Return whether kube-scheduler reads a slice at all under these feature gates."""
        has_counters = bool(slice_.counters) and not self._lenient
        if not self._features.partitionable and (slice_.per_device_nodes is not None or has_counters):
            return False
        return not self._grouped(slice_)

    def relevant(self, node: Node) -> dict[PoolId, list[Slice]]:
        """Return, by pool, the slices that are for the node."""
        found: dict[PoolId, list[Slice]] = {}
        for slice_ in (*self.on_node.get(node.name, ()), *self.tables.elsewhere.candidates(node)):
            if self.usable(slice_) and _relevant(slice_, node):
                found.setdefault((slice_.driver, slice_.pool), []).append(slice_)
        return found

    def pool(self, pool_id: PoolId, relevant: Sequence[Slice], node: Node) -> Pool | None:
        """Return the pool as seen by a node to which these slices are relevant; None if they are outdated."""
        newest = _newest(relevant)
        reach = tuple(_reach(slice_, node) for slice_ in newest)
        key = (tuple(map(id, newest)), reach)
        if key not in self._made:
            self._made[key] = self._pool(pool_id, newest, reach)
        return self._made[key]

    @property
    def has_broken(self) -> bool:
        """Return whether 1.36 meets a broken pool with counters on nodes that see none of its devices."""
        return bool(self.foreign(()))

    def foreign(self, own: Iterable[PoolId]) -> tuple[Pool, ...]:
        """Return the broken pools with counters that 1.36 meets on a node that sees none of their devices."""
        if self._foreign is None:
            seen = (self._unseen(pool) for pool in sorted(self.tables.drawing) if self.draws(pool))
            self._foreign = tuple(pool for pool in seen if pool is not None and not pool.sound)
        if not self._foreign:
            return ()
        mine = set(own)
        return tuple(pool for pool in self._foreign if pool.id not in mine)

    def _grouped(self, slice_: Slice) -> bool:
        """Return whether a device is in compatibility groups, which a default 1.37 does not handle."""
        return self._knows_groups and any(use.grouped for device in slice_.devices for use in device.consumes)

    def _unseen(self, pool_id: PoolId) -> Pool | None:
        counters = [slice_ for slice_ in self.members[pool_id] if slice_.counters]
        return self._pool(pool_id, _newest(counters), tuple(() for _ in _newest(counters)))

    def _pool(
        self, pool_id: PoolId, relevant: Sequence[Slice], reach: Sequence[tuple[bool, ...] | None]
    ) -> Pool | None:
        """Return one pool; None if a newer generation of it exists, so that these slices are outdated.

        1.34 looks at the slices for the node alone, and gives devices of what is outdated or incomplete by these.
        """
        driver, name = pool_id
        members = self.members[pool_id]
        generation, expected = relevant[0].generation, relevant[0].slice_count
        complete: Sequence[Slice] = relevant
        is_outdated = any(slice_.generation > generation for slice_ in members)
        if len(relevant) != expected and not self._lenient:
            if is_outdated:
                return None
            complete = [s for s in members if s.generation == generation and not self._grouped(s)]
        listed_devices = self._listed_devices(pool_id, relevant, reach)
        if len(complete) != expected or (is_outdated and self._lenient):
            return Pool(
                driver=driver,
                name=name,
                soundness=PoolHealth.INCOMPLETE,
                why=f"{len(complete)} of {expected} slices of generation {generation} are there",
                listed_devices=listed_devices,
                lenient=self._lenient,
            )
        counter_set = self._counter_set(complete)
        twice = _repeated(listed.device.name for listed in listed_devices)
        problem = f"device {twice} is there twice" if twice else counter_set
        if isinstance(problem, str):
            return Pool(
                driver=driver, name=name, soundness=PoolHealth.INVALID, why=problem, listed_devices=listed_devices
            )
        return Pool(driver=driver, name=name, listed_devices=listed_devices, counter_set=problem)

    def _counter_set(self, whole: Sequence[Slice]) -> SharedCounters | str | None:
        """Return the counters of a complete pool, or what is wrong with them; built once for the same slices."""
        if not self._features.partitionable:
            return None
        key = tuple(sorted(map(id, whole)))
        if key not in self._counter_sets:
            self._counter_sets[key] = counters.build(whole)
        return self._counter_sets[key]

    def _listed_devices(
        self, pool_id: PoolId, relevant: Sequence[Slice], reach: Sequence[tuple[bool, ...] | None]
    ) -> tuple[InventoryDevice, ...]:
        local = self.is_local(pool_id)
        pairs = sorted(zip(relevant, reach, strict=True), key=lambda pair: pair[0].meta.name.encode())
        return tuple(
            InventoryDevice(
                id=DeviceId(slice_.driver, slice_.pool, device.name),
                device=device,
                slice=slice_,
                at=at,
                local=local,
                reachable=reached is None or reached[at],
            )
            for slice_, reached in pairs
            if not (slice_.counters and self._features.partitionable)
            for at, device in enumerate(slice_.devices)
        )


def gather(node: Node, slices: Slices) -> NodeInventory:
    """Return the pools that the node sees."""
    relevant = slices.relevant(node)
    pools = _ordered(slices.pool(pool, found, node) for pool, found in relevant.items())
    drawing = {pool: found for pool, found in relevant.items() if slices.draws(pool)}
    disputed, old = _disputed(drawing, pools, node, slices)
    foreign = slices.foreign(relevant)
    return NodeInventory(
        node=node,
        pools=pools,
        disputed=disputed,
        old=old,
        foreign=foreign,
        plain=not foreign and not disputed and all(pool.sound for pool in pools),
        own=slices.on_node.get(node.name, ()),
        elsewhere=slices.elsewhere,
        relevant={pool: slices.members[pool] for pool in relevant},
    )


def unchanged(node_inventory: NodeInventory, node: Node, slices: Slices) -> bool:
    """Return whether the node sees the same slice objects that its inventory was built from, and nothing changed it."""
    own = slices.on_node.get(node.name, ())
    return (
        (node_inventory.node is node or not slices.elsewhere)
        and _same(node_inventory.own, own)
        and (node_inventory.elsewhere is slices.elsewhere or _same(node_inventory.elsewhere, slices.elsewhere))
        and all(_same(members, slices.members.get(pool, ())) for pool, members in node_inventory.relevant.items())
        and (
            not (node_inventory.foreign or slices.has_broken)
            or _equal_but_broken(node_inventory.foreign, slices.foreign(node_inventory.relevant))
        )
    )


def node_matches(place: Slice | Device, node: Node) -> bool:
    """Return whether a slice, or a device of a slice with per-device node selection, is for the node."""
    if place.node_name:
        return place.node_name == node.name
    if place.all_nodes:
        return True
    return place.node_selector is not None and place.node_selector.matches(node.name, node.meta.labels)


def _disputed(
    drawing: Mapping[PoolId, Sequence[Slice]], pools: tuple[Pool, ...], node: Node, slices: Slices
) -> tuple[frozenset[PoolId], tuple[Pool, ...] | None]:
    """Return the pools that 1.36 sees differently, and all pools as it sees them.

    To 1.36 every slice with counters is relevant on every node, also one of a generation that the node does not see.
    """
    if not drawing:
        return frozenset(), None
    fixed = {pool.id: pool for pool in pools}
    old = dict(fixed)
    for pool_id, found in drawing.items():
        more = [s for s in slices.members[pool_id] if s.counters and not any(s is seen for seen in found)]
        if not more:
            continue
        seen = slices.pool(pool_id, [*found, *more], node)
        if seen is None:
            old.pop(pool_id, None)
        elif not _equal(seen, fixed.get(pool_id)):
            old[pool_id] = seen
    changed = frozenset(pool for pool in drawing if old.get(pool) is not fixed.get(pool))
    return changed, _ordered(old.values()) if changed else None


def _equal_but_broken(left: Sequence[Pool], right: Sequence[Pool]) -> bool:
    return [(p.id, p.soundness, p.why) for p in left] == [(p.id, p.soundness, p.why) for p in right]


def _equal(one: Pool, other: Pool | None) -> bool:
    return (
        other is not None
        and one.soundness is other.soundness
        and one.listed_devices == other.listed_devices
        and one.counter_set is other.counter_set
    )


def _ordered(pools: Iterable[Pool | None]) -> tuple[Pool, ...]:
    """Return pools by driver and name; those with a device that has binding conditions come last."""
    found = sorted((pool for pool in pools if pool is not None), key=lambda pool: pool.id)
    binding = [
        pool for pool in found if pool.sound and any(listed.device.binding_conditions for listed in pool.listed_devices)
    ]
    return (*(pool for pool in found if not any(pool is last for last in binding)), *binding)


def _newest(slices: Sequence[Slice]) -> list[Slice]:
    """Return the slices of the highest generation among these."""
    newest = max(slice_.generation for slice_ in slices)
    return [slice_ for slice_ in slices if slice_.generation == newest]


def _relevant(slice_: Slice, node: Node) -> bool:
    if slice_.node_name or slice_.all_nodes or slice_.node_selector is not None:
        return node_matches(slice_, node)
    return bool(slice_.per_device_nodes) and any(node_matches(device, node) for device in slice_.devices)


def _reach(slice_: Slice, node: Node) -> tuple[bool, ...] | None:
    """Return which devices of a slice with per-device node selection are for the node; None if all are."""
    if not slice_.per_device_nodes:
        return None
    reached = tuple(node_matches(device, node) for device in slice_.devices)
    return None if all(reached) else reached


def _same(left: Sequence[Slice], right: Sequence[Slice]) -> bool:
    return len(left) == len(right) and all(map(lambda a, b: a is b, left, right))


def _repeated(names: Iterable[str]) -> str | None:
    return next((name for name, times in Counter(names).items() if times > 1), None)
