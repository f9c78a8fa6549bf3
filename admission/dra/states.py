"""The "what if" of a gang's search: free devices and resources per node, changed and given back.

Nodes are grouped by a signature: equal signatures mean that nothing the gang asks can tell two nodes apart. The
signature has the node's kinds of pods, what is left of its resources (as far as the whole gang could use it), the
profiles of its free devices in order, and the shared claims that are usable there. A device that several nodes see
stands for itself in it.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from admission.api.devices import DeviceId
from admission.dra.demands import Gang, PodKind
from admission.dra.pools import Shelf
from admission.dra.profiles import Answer, Layout, Profiles
from admission.dra.worlds import World

_IDENTITY = 1 << 24
"""A free device is written as its profile's number; one that several nodes see, as that plus a multiple of this."""

Undo = Callable[[], None]


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """What tells nodes apart; within one state equal signatures are one object.

    free: the free devices in order, see `profile_of`.
    """

    kinds: frozenset[int]
    left: tuple[int, ...] | None
    """What is left of every resource, or for how many pods, where all are of one size."""
    free: tuple[int, ...]
    usable: frozenset[int]
    """Shared claims that are allocated and may be used from here."""


class State:
    """Every node's state, and the groups of equal nodes. Nodes go by their number in the order of names."""

    def __init__(self, gang: Gang, world: World, profiles: Profiles) -> None:
        self.gang = gang
        self.names = sorted({name for kind in gang.kinds for name in kind.nodes})
        self.allocated: list[frozenset[int] | None] = [None] * gang.shared
        """Per shared claim, the nodes from which it may be used; None before it is allocated."""
        self.layouts: list[Layout] = [profiles.layout(world.shelves.get(name, _BARE)) for name in self.names]
        self.groups: dict[Signature, set[int]] = {}
        self.signatures: list[Signature] = []
        self.on_change: Callable[[Signature, Signature], None] = _ignore
        self._world = world
        self._taken = set(world.taken)
        self._resources = sorted({resource for kind in gang.kinds for resource in kind.wants})
        self._most = self._demanded()
        self._pods = sum(len(kind.members) for kind in gang.kinds)
        self._one_size = len({frozenset(kind.wants.items()) for kind in gang.kinds}) == 1 and bool(self._resources)
        self._kinds = [frozenset(at for at, kind in enumerate(gang.kinds) if name in kind.nodes) for name in self.names]
        self._left: list[dict[str, int] | None] = [self._start_with(world.left.get(name)) for name in self.names]
        self._places = self._shared_places()
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

    def free_spots(self, node: int) -> list[int]:
        """Return the places of the node's free devices in its layout, in order."""
        return [at for at, spot in enumerate(self.layouts[node].spots) if spot.id not in self._taken]

    def rooms(self, kind: PodKind, signature: Signature) -> int | None:
        """Return for how many more pods resources are left; None for no limit."""
        if signature.left is None:
            return None
        if self._one_size:
            return signature.left[0]
        return None if not kind.wants else _rooms(kind, dict(zip(self._resources, signature.left, strict=True)))

    def take(self, kind: PodKind, node: int, devices: Iterable[DeviceId]) -> Undo:
        """Take devices and resources; return what gives them back."""
        given = frozenset(devices)
        touched = {node}.union(*(self._places.get(device, ()) for device in given))
        self._taken |= given
        self._add(node, kind, -1)
        self._refresh(touched)

        def undo() -> None:
            self._taken.difference_update(given)
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
        left, layout, taken = self._left[node], self.layouts[node], self._taken
        key = (
            self._kinds[node],
            None if left is None else self._left_to_tell(left),
            tuple(
                number if spot.local else number + _IDENTITY * self._identities[spot.id]
                for spot, number in zip(layout.spots, layout.numbers, strict=True)
                if spot.id not in taken
            ),
            frozenset(at for at, nodes in enumerate(self.allocated) if nodes is not None and node in nodes),
        )
        known = self._interned.get(key)
        if known is None:
            known = self._interned[key] = Signature(*key)
        return known

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

    def _shared_places(self) -> dict[DeviceId, list[int]]:
        """Return the nodes that see each device which is not a single node's own."""
        places: dict[DeviceId, list[int]] = {}
        for node, layout in enumerate(self.layouts):
            if not layout.fixed:
                for spot in layout.spots:
                    if not spot.local:
                        places.setdefault(spot.id, []).append(node)
        return places


def _rooms(kind: PodKind, left: Mapping[str, int]) -> int:
    """Return for how many pods of a kind that wants something there is enough."""
    return min(max(0, left[resource]) // amount for resource, amount in kind.wants.items())


_BARE = Shelf()


def _ignore(_before: Signature, _after: Signature) -> None:
    return None


def is_local(code: int) -> bool:
    """Return whether a free device in a signature is the node's own."""
    return code < _IDENTITY


def profile_of(code: int) -> int:
    """Return the profile's number of a free device in a signature."""
    return code % _IDENTITY


def count_answers(free: Sequence[int], profiles: Profiles, ask: int) -> int:
    """Return how many of the free devices do for an ask."""
    return sum(profiles.known[profile_of(code)].answers[ask] is Answer.YES for code in free)
