"""Capacity by DeviceClass: how many of its devices are used, free and closed, and held outside queues.

What a class selects is decided by its CEL selectors, as kube-scheduler does; it is kept from view to view, and only
slices that have changed are evaluated again.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Set as AbstractSet
from dataclasses import dataclass, field
from fractions import Fraction

from admission.api.kubernetes.devices import DeviceClass, DeviceId, Slice
from admission.api.kubernetes.nodes import Node
from admission.api.values.names import NodeName
from admission.dashboard.devices.inventory import SHARED, Holders, Inventory, Unit
from admission.dra.inventory.selectors import Selectors

MOST_CLASSES = 64
"""The most classes that are evaluated: those that a Meter counts, then the first of the others by name."""

UNUSABLE = "node.kubernetes.io/"
"""The domain of the taints by which Kubernetes says that a node is of no use now: not-ready, unreachable and others.
Other taints keep most pods off, and not those for which the devices are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCapacity:
    """The devices of one class. used: held, promised, or of a physical device of which a part is held that they need.

    closed: not used, and no pod can get them now. outside: held by pods outside every queue, which are among the used.
    """

    name: str
    devices: int
    used: int
    closed: int
    outside: int

    @property
    def free(self) -> int:
        return self.devices - self.used - self.closed


SliceMembers = Mapping[str, frozenset[DeviceId]]
"""By class, the devices of one slice that it selects."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassMembers:
    """The devices of the inventory that each class selects. slices: by name, each slice with its members."""

    selectors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slices: Mapping[str, tuple[Slice, SliceMembers]] = field(default_factory=dict)
    devices: Mapping[str, AbstractSet[DeviceId]] = field(default_factory=dict)

    def updated(
        self,
        classes: Mapping[str, DeviceClass],
        slices: Mapping[str, Slice],
        inventory: Inventory,
        counted: Collection[str] = (),
    ) -> "ClassMembers":
        """Return the members now; this object if nothing has changed.

        inventory: of these slices. counted: the classes that Meters know.
        """
        names = sorted(classes, key=lambda name: (name not in counted, name))[:MOST_CLASSES]
        selectors = {name: classes[name].selectors for name in names}
        same = selectors == self.selectors
        known = self.slices if same else {}
        missing = [name for name, one in slices.items() if name not in known or known[name][0] is not one]
        if same and not missing and known.keys() == slices.keys():
            return self
        evaluator = Selectors()
        found = {name: known[name] for name in slices if name in known}
        for name in missing:
            found[name] = (slices[name], _members(evaluator, selectors, slices[name]))
        here = inventory.places.keys()
        devices = {
            name: here & frozenset[DeviceId]().union(*(members[name] for _, members in found.values()))
            for name in names
        }
        return ClassMembers(selectors=selectors, slices=found, devices=devices)


def _members(evaluator: Selectors, selectors: Mapping[str, tuple[str, ...]], slice_: Slice) -> SliceMembers:
    found: dict[str, frozenset[DeviceId]] = {}
    for name, texts in selectors.items():
        selected = evaluator.column(texts, slice_).yes
        found[name] = frozenset(
            DeviceId(slice_.driver, slice_.pool, device.name)
            for at, device in enumerate(slice_.devices)
            if selected >> at & 1
        )
    return found


def capacity(
    members: ClassMembers,
    inventory: Inventory,
    holders: Holders,
    nodes: Mapping[NodeName, Node],
    outside: Mapping[str, int],
) -> list[ClassCapacity]:
    """Return the capacity of each class that has devices, the largest first. outside: by class."""
    used = set(holders)
    if inventory.partitioned:
        used.update(_blocked(inventory, holders))
    closed = closed_devices(inventory, nodes) - used
    found = [
        ClassCapacity(
            name=name,
            devices=len(devices),
            used=len(devices & used),
            closed=len(devices & closed),
            outside=outside.get(name, 0),
        )
        for name, devices in members.devices.items()
    ]
    return sorted((one for one in found if one.devices or one.outside), key=lambda one: (-one.devices, one.name))


def _blocked(inventory: Inventory, holders: Holders) -> Iterator[DeviceId]:
    """Yield the devices that cannot be allocated since of their unit less is left than they take."""
    begun = {id(unit): unit for device in holders if (unit := inventory.partitioned.get(device)) is not None}
    for unit in begun.values():
        left = 1 - _taken(unit, holders)
        yield from (part.id for part in unit.parts if part.share > left)


def _taken(unit: Unit, holders: Holders) -> Fraction:
    return sum((part.share for part in unit.parts if part.id in holders), Fraction(0))


def closed_devices(inventory: Inventory, nodes: Mapping[NodeName, Node]) -> set[DeviceId]:
    """Return the devices that no pod can get now: they are tainted, or their node is gone, cordoned or not ready."""
    found = set(inventory.tainted)
    for node in inventory.nodes:
        if node != SHARED and node_is_closed(nodes.get(NodeName(node))):
            found.update(_ids(inventory.nodes[node]))
    return found


def node_is_closed(node: Node | None) -> bool:
    """Return whether no pod can start on a node, as far as Kubernetes itself says so."""
    if node is None or node.unschedulable or node.leaving:
        return True
    return any(taint.blocks and taint.key.startswith(UNUSABLE) for taint in node.taints)


def _ids(units: Iterable[Unit]) -> Iterator[DeviceId]:
    return (part.id for unit in units for part in unit.parts)
