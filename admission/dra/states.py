"""The "what if" of a gang's search: free devices and resources per node, changed and given back.

Nodes are grouped by a signature: equal signatures mean that nothing the gang asks can tell two nodes apart. The
signature has the node's kinds of pods, what is left of its resources (as far as the whole gang could use it), its
devices in order with the use that is made of them, what is left of their counters, and the shared claims that are
usable there. A device that several nodes see stands for itself in it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass

from admission.api.devices import DeviceId
from admission.dra import asking, contents
from admission.dra.asking import Mode
from admission.dra.contents import Contents, Left, Trouble, Unit, Units, Use
from admission.dra.demands import Gang, PodKind
from admission.dra.pools import PoolId, Shelf
from admission.dra.stocks import Amount, Stock
from admission.dra.takings import Share, Taking
from admission.dra.traits import Layout, Traits
from admission.dra.worlds import World

_IDENTITY = 1 << 24
"""A device is written as its unit's number; one that several nodes see, as that plus a multiple of this."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What tells nodes apart; within one state equal signatures are one object.

    kinds: of pods that may come here. left: of every resource, or for how many pods, where all are of one size. codes:
    the devices in order, see `unit_of`. usable: shared claims that are allocated and may be used from here.
    """

    kinds: frozenset[int]
    left: tuple[int, ...] | None
    codes: tuple[int, ...]
    usable: frozenset[int]
    contents: Contents
    free: int
    """How many devices nobody has, of those that the gang might want."""


class State:
    """Every node's state, and the groups of equal nodes. Nodes go by their number in the order of names."""

    def __init__(self, gang: Gang, world: World, traits: Traits) -> None:
        self.gang = gang
        self.names = sorted({name for kind in gang.kinds for name in kind.nodes})
        self.allocated: list[frozenset[int] | None] = [None] * gang.shared
        """Per shared claim, the nodes from which it may be used; None before it is allocated."""
        self.traits = traits
        self.units = Units(traits)
        self._shelves = [world.shelves.get(name, _BARE) for name in self.names]
        self.layouts: list[Layout] = [traits.layout(shelf) for shelf in self._shelves]
        self.groups: dict[Signature, set[int]] = {}
        self.signatures: list[Signature] = []
        self.on_change: Callable[[Signature, Signature], None] = _ignore
        self._world = world
        self._taken = set(world.taken)
        self._shares: dict[DeviceId, list[Share]] = {
            device: [shared.share for shared in shares] for device, shares in world.shares.items()
        }
        self._shows_taken = any(o.admin or o.mode is Mode.ALL for o in asking.options(gang.claims))
        self._resources = sorted({resource for kind in gang.kinds for resource in kind.wants})
        self._most = self._demanded()
        self._pods = sum(len(kind.members) for kind in gang.kinds)
        self._one_size = len({frozenset(kind.wants.items()) for kind in gang.kinds}) == 1 and bool(self._resources)
        self._kinds = [frozenset(at for at, kind in enumerate(gang.kinds) if name in kind.nodes) for name in self.names]
        self._left: list[dict[str, int] | None] = [self._start_with(world.left.get(name)) for name in self.names]
        self._places, self._pool_places = self._shared_places()
        self._vanished = self._gone()
        self._identities = {device: number for number, device in enumerate(self._places, start=1)}
        self._interned: dict[Hashable, Signature] = {}
        for node in range(len(self.names)):
            self.signatures.append(self._signature(node))
            self.groups.setdefault(self.signatures[node], set()).add(node)

    def left(self, node: int) -> Mapping[str, int] | None:
        """Return what is left of the resources that the gang asks for; None for no limit."""
        return self._left[node]

    @property
    def free_shared(self) -> int:
        """How many devices that several nodes see are free."""
        return len(self._places) - len(self._taken & self._places.keys())

    def shown_spots(self, node: int) -> list[int]:
        """Return the places in the node's layout of the devices that its signature shows, in order."""
        return [at for at, spot in enumerate(self.layouts[node].spots) if self._is_shown(spot.id)]

    def free_spots(self, node: int) -> list[int]:
        """Return the places of the node's devices that nobody has for himself, in order."""
        return [at for at, spot in enumerate(self.layouts[node].spots) if spot.id not in self._taken]

    def rooms(self, kind: PodKind, signature: Signature) -> int | None:
        """Return for how many more pods resources are left; None for no limit."""
        if signature.left is None:
            return None
        if self._one_size:
            return signature.left[0]
        return None if not kind.wants else _rooms(kind, dict(zip(self._resources, signature.left, strict=True)))

    def units_of(self, signature: Signature) -> list[Unit]:
        """Return the devices that a signature shows."""
        return [self.units.known[number] for number in signature.contents.units]

    def take(self, kind: PodKind, node: int, taken: Iterable[Taking]) -> Undo:
        """Take devices, shares and resources; return what gives them back."""
        given = tuple(taken)
        touched = {node}.union(*(self._places.get(taking.device, ()) for taking in given))
        if self._pool_places:
            pools = {(taking.device.driver, taking.device.pool) for taking in given}
            touched.update(*(self._pool_places.get(pool, ()) for pool in pools))
        self._use(given)
        self._add(node, kind, -1)
        self._refresh(touched)

        def undo() -> None:
            self._unuse(given)
            self._add(node, kind, 1)
            self._refresh(touched)

        return undo

    def allocate_shared(self, number: int, nodes: frozenset[int]) -> Undo:
        """Note from which nodes a shared claim may be used from now on."""
        self.allocated[number] = nodes
        self._refresh(nodes)

        def undo() -> None:
            self.allocated[number] = None
            self._refresh(nodes)

        return undo

    def _use(self, given: Iterable[Taking]) -> None:
        for taking in given:
            if taking.shared:
                self._shares.setdefault(taking.device, []).append(taking.share)
            else:
                self._taken.add(taking.device)

    def _unuse(self, given: Iterable[Taking]) -> None:
        for taking in given:
            if not taking.shared:
                self._taken.discard(taking.device)
                continue
            self._shares[taking.device].pop()
            if not self._shares[taking.device]:
                del self._shares[taking.device]

    def _add(self, node: int, kind: PodKind, sign: int) -> None:
        left = self._left[node]
        if left is not None:
            for resource, amount in kind.wants.items():
                left[resource] = left[resource] + sign * amount

    def _refresh(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            before, after = self.signatures[node], self._signature(node)
            if before is after:
                continue
            group = self.groups[before]
            group.remove(node)
            if not group:
                del self.groups[before]
            self.signatures[node] = after
            self.groups.setdefault(after, set()).add(node)
            self.on_change(before, after)

    def _signature(self, node: int) -> Signature:
        """Return the node's signature; equal ones are one object."""
        left = self._left[node]
        codes = self._codes(node)
        shelf = self._shelves[node]
        troubles: tuple[Trouble, Trouble] = contents.troubles(shelf)
        disputed = contents.disputed(shelf, self.traits)
        stocks = self._stocks(node)
        usable = frozenset(at for at, nodes in enumerate(self.allocated) if nodes is not None and node in nodes)
        kinds, told = self._kinds[node], None if left is None else self._left_to_tell(left)
        key = (kinds, told, codes, usable, stocks, troubles, disputed)
        known = self._interned.get(key)
        if known is None:
            units = tuple(map(unit_of, codes))
            free = sum(not self.units.known[number].use.taken for number in units)
            found = Contents(units, stocks, troubles, disputed)
            known = self._interned[key] = Signature(kinds, told, codes, usable, found, free)
        return known

    def _codes(self, node: int) -> tuple[int, ...]:
        layout, number = self.layouts[node], self.units.number
        shows, taken = self._shows_taken, self._taken
        return tuple(
            number(trait, self._use_of(spot.id, trait), stock)
            + (0 if spot.local else _IDENTITY * self._identities[spot.id])
            for spot, trait, stock in zip(layout.spots, layout.numbers, layout.stocks, strict=True)
            if shows or spot.id not in taken
        )

    def _use_of(self, device: DeviceId, trait: int) -> Use:
        if device in self._taken:
            return contents.TAKEN
        shares = self._shares.get(device) if self._shares else None
        return contents.FREE if shares is None else contents.shared_use(self.traits.known[trait], shares)

    def _is_shown(self, device: DeviceId) -> bool:
        return self._shows_taken or device not in self._taken

    def _stocks(self, node: int) -> tuple[Left, ...]:
        drawn = self.layouts[node].drawn
        if not drawn:
            return ()
        namesakes = contents.namesakes([pool.name for pool in drawn])
        return tuple(
            Left(tuple(pool.stock.totals), self._available(pool.stock), namesake, pool.id in self._vanished)
            for pool, namesake in zip(drawn, namesakes, strict=True)
            if pool.stock is not None
        )

    def _available(self, stock: Stock) -> tuple[Amount, ...]:
        return stock.available(device for device in stock.draws if device in self._taken or device in self._shares)

    def _gone(self) -> frozenset[PoolId]:
        """Return the pools with counters of which a device is in use that no slice has any more."""
        drawn = {pool.id: pool for layout in self.layouts for pool in layout.drawn}
        if not drawn:
            return frozenset()
        found: set[PoolId] = set()
        for device in (*self._taken, *self._shares):
            pool = drawn.get((device.driver, device.pool))
            if pool is not None and pool.stock is not None and device not in pool.stock.devices:
                found.add(pool.id)
        return frozenset(found)

    def _left_to_tell(self, left: Mapping[str, int]) -> tuple[int, ...]:
        """Return what tells nodes apart by resources: where all pods are of one size, for how many there is room."""
        if self._one_size:
            return (min(self._pods, _rooms(self.gang.kinds[0], left)),)
        return tuple(min(left[name], self._most[name]) for name in self._resources)

    def _demanded(self) -> dict[str, int]:
        """Return what the whole gang asks of each resource: more than that left on a node makes no difference."""
        return {
            resource: sum(kind.wants.get(resource, 0) * len(kind.members) for kind in self.gang.kinds)
            for resource in self._resources
        }

    def _start_with(self, left: Mapping[str, int] | None) -> dict[str, int] | None:
        if left is None:
            return None
        return {name: left.get(name, self._most[name] if name == "pods" else 0) for name in self._resources}

    def _shared_places(self) -> tuple[dict[DeviceId, list[int]], dict[PoolId, list[int]]]:
        """Return the nodes that see each device which is not a single node's own, and each such pool with counters."""
        devices: dict[DeviceId, list[int]] = {}
        pools: dict[PoolId, list[int]] = {}
        for node, layout in enumerate(self.layouts):
            if layout.fixed:
                continue
            for spot in layout.spots:
                if not spot.local:
                    devices.setdefault(spot.id, []).append(node)
            for pool in layout.drawn:
                pools.setdefault(pool.id, []).append(node)
        return devices, pools


def _rooms(kind: PodKind, left: Mapping[str, int]) -> int:
    """Return for how many pods of a kind that wants something there is enough."""
    return min(max(0, left[resource]) // amount for resource, amount in kind.wants.items())


_BARE = Shelf()


def _ignore(_before: Signature, _after: Signature) -> None:
    return None


def is_local(code: int) -> bool:
    """Return whether a device in a signature is the node's own."""
    return code < _IDENTITY


def unit_of(code: int) -> int:
    """Return the number of the unit of a device in a signature."""
    return code % _IDENTITY
