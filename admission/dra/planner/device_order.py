"""The order in which a free-choice search tries the devices of a node, and which of them are interchangeable.

Devices that draw on the same counters form a partitionable device, as the partitions of one GPU do. Partitionable
devices that are equal but for the names of their counters are interchangeable, so the search tries one of them. The
order packs tightly: first devices with shares in use, those with the least left first, then partitionable devices that
are in part used, those with the fewest takeable partitions first, and of one the partition that blocks the least; then
the rest.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from admission.dra.allocator import stranded_devices
from admission.dra.equivalence.device_signature import Answer
from admission.dra.equivalence.node_contents import DeviceGroup, LeftCapacity, NodeContents, Units
from admission.dra.inventory import counters
from admission.dra.inventory.counters import Amount, Draw
from admission.dra.requests.requests import ParsedClaim, ParsedRequest

Marks = Sequence[Hashable]
"""Per device of a node, what tells it from others of the same unit: which other nodes see it."""

Renamed = tuple[tuple[str, str, Amount], ...]
"""What a device draws: counter set, empty if there is only one; counter; and amount."""

Needs = Mapping[str, Amount]
"""Amounts by family of counters, whose names differ only in a number at the end, and by capacity of shared devices,
with `SHARED` before its name."""

SHARED = "shared:"


@dataclass(frozen=True, slots=True, eq=False)
class DeviceOrder:
    """The devices of one node in order.

    contents: with the devices in this order. places: the place of each in the node's own order. partitions: per device
    the number of its partitionable device, -1 for none. sorts: equal for interchangeable devices, given equal use of
    their partitionable devices. live: whether the device is not taken and the counters left suffice for it. takeable:
    how many devices are live, each considered alone. left: of counters, and of the capacity of shared devices.
    """

    contents: NodeContents
    units: tuple[DeviceGroup, ...]
    places: tuple[int, ...]
    partitions: tuple[int, ...]
    sorts: tuple[Hashable, ...]
    live: tuple[bool, ...]
    takeable: int
    left: Needs = field(default_factory=dict)
    _least: dict[int, Needs] = field(default_factory=dict, init=False)

    def least(self, parsed: int) -> Needs:
        """Return the least that any live device for a request draws of every family."""
        known = self._least.get(parsed)
        if known is None:
            live = (unit for unit, alive in zip(self.units, self.live, strict=True) if alive)
            known = self._least[parsed] = least_of(live, parsed)
        return known


@dataclass(frozen=True, slots=True)
class _Partitionable:
    """What equal partitionable devices have in common. shapes: per shape, whether it is live, and what it blocks."""

    number: int
    shapes: Mapping[int, tuple[bool, float]]
    takeable: int
    is_used: bool


class DeviceOrders:
    """Builds device orders for one set of units, and keeps what equal partitionable devices have in common."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self._known: dict[NodeContents, DeviceOrder] = {}
        self._plain: dict[int, int] = {}
        """By unit, a number for all of it but what it draws."""
        self._shapes: dict[Hashable, int] = {}
        self._partitions: dict[Hashable, _Partitionable] = {}

    def of_contents(self, contents: NodeContents) -> DeviceOrder:
        """Return the device order of a node whose devices no other node sees."""
        known = self._known.get(contents)
        if known is None:
            known = self._known[contents] = self.marked(contents, ())
        return known

    def marked(self, contents: NodeContents, marks: Marks) -> DeviceOrder:
        """Return the device order of a node with devices that other nodes may see. marks: per device, or empty."""
        units = [self._units.known[number] for number in contents.units]
        marks_of_units = marks or (None,) * len(units)
        sorts: list[Hashable] = [
            number if mark is None else (number, mark)
            for number, mark in zip(contents.units, marks_of_units, strict=True)
        ]
        partitions = [-1] * len(units)
        live = [not unit.use.taken for unit in units]
        order: list[tuple[bool, bool, int, int, float, int]] = [
            (not alive, not unit.use.shares, stranded_devices.left(unit), at, 0.0, at)
            for at, (unit, alive) in enumerate(zip(units, live, strict=True))
        ]
        for number, members in enumerate(_together(units)):
            plainly = _plainly(units, members)
            partition = self._partition(contents, members, marks_of_units, plainly=plainly)
            for at in members:
                shape = self._shape(contents.units[at], marks_of_units[at], plainly=plainly)
                partitions[at], sorts[at] = number, (partition.number, shape)
                alive, blocked = partition.shapes[shape]
                live[at] = live[at] and alive
                order[at] = (not live[at], not partition.is_used, partition.takeable, members[0], blocked, at)
        places = tuple(key[-1] for key in sorted(order))
        return DeviceOrder(
            contents=replace(contents, units=tuple(contents.units[at] for at in places)),
            units=tuple(units[at] for at in places),
            places=places,
            partitions=tuple(partitions[at] for at in places),
            sorts=tuple(sorts[at] for at in places),
            live=tuple(live[at] for at in places),
            takeable=sum(live),
            left=left_of(contents.counter_sets, units),
        )

    def _partition(
        self, contents: NodeContents, members: Sequence[int], marks_of_units: Marks, *, plainly: bool
    ) -> _Partitionable:
        units = [self._units.known[contents.units[at]] for at in members]
        left = _available(contents.counter_sets[units[0].counter_set], units, plainly=plainly)
        shapes = [self._shape(contents.units[at], marks_of_units[at], plainly=plainly) for at in members]
        key = (tuple(sorted(shapes)), None if left is None else tuple(sorted(left.items())))
        known = self._partitions.get(key)
        if known is None:
            draws = {
                shape: None if _is_free(unit) else _renamed(unit.signature.draw or (), plainly=plainly)
                for shape, unit in zip(shapes, units, strict=True)
            }
            alive = {shape: draw is None or _is_enough(left, draw) for shape, draw in draws.items()}
            others = _others(contents.counter_sets[units[0].counter_set], units, left, plainly=plainly)
            takeable = sum(alive[shape] and not unit.use.taken for shape, unit in zip(shapes, units, strict=True))
            known = self._partitions[key] = _Partitionable(
                number=len(self._partitions),
                shapes={shape: (alive[shape], _blocked(draw, others, left or {})) for shape, draw in draws.items()},
                takeable=takeable,
                is_used=takeable < len(units),
            )
        return known

    def _shape(self, number: int, mark: Hashable, *, plainly: bool) -> int:
        """Return the number of a partition's shape: all of it but the name of its counter set."""
        unit = self._units.known[number]
        if number not in self._plain:
            rest = (replace(unit.signature, draw=None), unit.use)
            self._plain[number] = self._shapes.setdefault(rest, len(self._shapes))
        key = (self._plain[number], _renamed(unit.signature.draw or (), plainly=plainly), mark)
        return self._shapes.setdefault(key, len(self._shapes))


def _together(units: Sequence[DeviceGroup]) -> list[list[int]]:
    """Return the devices of each partitionable device: those connected by common counter sets."""
    of_set: dict[tuple[int, str], list[int]] = {}
    for at, unit in enumerate(units):
        if unit.counter_set < 0 or not unit.signature.draw:
            continue
        sets = {(unit.counter_set, counter_set) for (counter_set, _), _ in unit.signature.draw}
        joined = [at]
        for members in {id(of_set[one]): of_set[one] for one in sets if one in of_set}.values():
            joined = [*members, *joined] if len(members) > len(joined) else [*joined, *members]
            sets |= {one for one, known in of_set.items() if known is members}
        of_set |= dict.fromkeys(sets, joined)
    return sorted({id(members): sorted(members) for members in of_set.values()}.values())


def _plainly(units: Sequence[DeviceGroup], members: Iterable[int]) -> bool:
    """Return whether all partitions draw on one counter set, so that its name does not matter."""
    return len({counter_set for at in members for (counter_set, _), _ in units[at].signature.draw or ()}) == 1


def _renamed(draw: Draw, *, plainly: bool) -> Renamed:
    return tuple(("" if plainly else counter_set, name, amount) for (counter_set, name), amount in draw)


def _available(
    counted: LeftCapacity, units: Sequence[DeviceGroup], *, plainly: bool
) -> dict[tuple[str, str], Amount] | None:
    """Return what is left of a partitionable device's counters; None if its pool is overdrawn or a device vanished."""
    if counted.vanished or any(amount < 0 for amount in counted.available):
        return None
    sets = {counter_set for unit in units for (counter_set, _), _ in unit.signature.draw or ()}
    return {
        ("" if plainly else counter_set, name): amount
        for (counter_set, name), amount in zip(counted.counters, counted.available, strict=True)
        if counter_set in sets
    }


def _is_free(unit: DeviceGroup) -> bool:
    """Return whether taking the device draws no counters: claims have shares of it, which drew them."""
    return unit.signature.shared and unit.use.shares


def _is_enough(left: Mapping[tuple[str, str], Amount] | None, draw: Renamed) -> bool:
    return left is not None and all(left.get((set_, name), amount) >= amount for set_, name, amount in draw)


def _others(
    counted: LeftCapacity, units: Sequence[DeviceGroup], left: Mapping[tuple[str, str], Amount] | None, *, plainly: bool
) -> set[Renamed]:
    """Return the draws of all partitions that could be taken now, also of those that match no request."""
    sets = {counter_set for unit in units for (counter_set, _), _ in unit.signature.draw or ()}
    draws = (draw for draw in counted.draws.values() if any(counter_set in sets for (counter_set, _), _ in draw))
    return {draw for draw in (_renamed(draw, plainly=plainly) for draw in draws) if _is_enough(left, draw)}


def _blocked(mine: Renamed | None, others: Iterable[Renamed], left: Mapping[tuple[str, str], Amount]) -> float:
    """Return the total size of the partitions that can no longer be taken once this one is."""
    if mine is None or not _is_enough(left, mine):
        return 0.0
    after = {**left, **{(set_, name): left[set_, name] - amount for set_, name, amount in mine if (set_, name) in left}}
    return sum(_size(draw, left) for draw in others if not _is_enough(after, draw))


def _size(draw: Renamed, left: Mapping[tuple[str, str], Amount]) -> float:
    return sum(float(amount / left[set_, name]) for set_, name, amount in draw if left.get((set_, name)))


def least_of(units: Iterable[DeviceGroup], parsed: int) -> Needs:
    """Return the least that any of these devices takes of every counter family or capacity for a request."""
    rows = [
        _shared_of(unit, parsed)
        if unit.signature.shared
        else counters.by_family(unit.signature.draw or ())
        if unit.counter_set >= 0
        else {}
        for unit in units
        if unit.signature.answers[parsed] is Answer.YES
    ]
    shape_groups = set.intersection(*(set(row) for row in rows)) if rows else set()
    return {name: min(row[name] for row in rows) for name in sorted(shape_groups)}


def needs_of(claims: Iterable[ParsedClaim], least: Callable[[ParsedRequest], Needs]) -> dict[str, Amount]:
    """Return a lower bound on what claims take together, whatever they get. least: per device of a request."""
    total: dict[str, Amount] = {}
    for request in (request for claim in claims for request in claim.requests):
        ways = [
            {name: amount * option.count for name, amount in least(option.parsed).items()}
            for option in request.options
            if option.plain
        ]
        if len(ways) == len(request.options):
            for name in set.intersection(*map(set, ways)):
                total[name] = total.get(name, 0) + min(way[name] for way in ways)
    return total


def _shared_of(unit: DeviceGroup, parsed: int) -> Needs:
    takes = unit.signature.takes[parsed] if unit.signature.takes else ()
    return {SHARED + name: amount for (name, _), amount in zip(unit.signature.room, takes, strict=bool(takes))}


def left_of(counter_sets: Iterable[LeftCapacity], units: Iterable[DeviceGroup]) -> Needs:
    """Return what is left of the counters of all pools, by family, and of the capacity of shared devices."""
    total: dict[str, Amount] = {}
    for unit in units:
        if unit.signature.shared:
            used = unit.use.amounts or (0,) * len(unit.signature.room)
            for (name, room), amount in zip(unit.signature.room, used, strict=True):
                total[SHARED + name] = total.get(SHARED + name, 0) + room - amount
    for counted in counter_sets:
        if not counted.vanished and all(amount >= 0 for amount in counted.available):
            pairs = tuple(zip(counted.counters, counted.available, strict=True))
            for name, amount in counters.by_family(pairs).items():
                total[name] = total.get(name, 0) + amount
    return total
