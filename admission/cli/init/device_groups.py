"""The devices that DeviceClasses select, in groups that one Meter can count.

Classes that select devices of the same driver are one group, since the same hardware may be requested by each of them:
whole GPUs by one class and their partitions by another.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from admission.api.kubernetes.devices import Device, DeviceClass, Slice
from admission.api.kubernetes.nodes import Node
from admission.api.snapshot import Snapshot
from admission.api.values.names import NodeName
from admission.dra.inventory.selectors import Selectors

PARTITION_COUNTER = "memory"
"""The shared counter by which partitions are counted where every device of the group draws from it."""

ACCELERATORS = ("gpu", "tpu", "npu", "hpu", "neuron", "gaudi", "accelerator", "mig")
"""Parts of class names, the likeliest class for a first Job first."""

Listed = tuple[Slice, Device]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassDevices:
    """A DeviceClass, and the devices that it selects."""

    name: str
    listed: tuple[Listed, ...]

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset(slice_.driver for slice_, _ in self.listed)

    @property
    def preference(self) -> tuple[int, bool, int, str]:
        """Return the sort key of the class for the sample Job: accelerators, whole devices, many devices first."""
        words = [at for at, word in enumerate(ACCELERATORS) if word in self.name.lower()]
        partitions = any(device.consumes for _, device in self.listed)
        return (min(words, default=len(ACCELERATORS)), partitions, -len(self.listed), self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """Classes that select devices of the same drivers. counter: the shared counter that measures them, if any.

    amount: of all their devices, in units of the counter, else their number.
    """

    classes: tuple[ClassDevices, ...]
    counter: str
    amount: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.classes)

    @property
    def drivers(self) -> frozenset[str]:
        return frozenset().union(*(one.drivers for one in self.classes))


def newest(slices: Iterable[Slice]) -> list[Slice]:
    """Return the slices of each pool's newest generation."""
    found = list(slices)
    generations: dict[tuple[str, str], int] = {}
    for one in found:
        pool = (one.driver, one.pool)
        generations[pool] = max(one.generation, generations.get(pool, 0))
    return [one for one in found if one.generation == generations[one.driver, one.pool]]


def classes_with_devices(
    classes: Mapping[str, DeviceClass], slices: Sequence[Slice], selectors: Selectors
) -> list[ClassDevices]:
    """Return the classes that select a device, by name. slices: those of the newest generations."""
    found = []
    for name, device_class in sorted(classes.items()):
        listed = [
            (slice_, device)
            for slice_ in slices
            for at, device in enumerate(slice_.devices)
            if selectors.column(device_class.selectors, slice_).yes >> at & 1
        ]
        if listed:
            found.append(ClassDevices(name=name, listed=tuple(listed)))
    return found


def groups(classes: Iterable[ClassDevices], slices: Sequence[Slice]) -> list[DeviceGroup]:
    """Return the classes in groups without a driver in common."""
    found: list[list[ClassDevices]] = []
    for one in classes:
        touching = [group for group in found if any(other.drivers & one.drivers for other in group)]
        found = [group for group in found if group not in touching]
        found.append([*(other for group in touching for other in group), one])
    return [_group(members, slices) for members in found]


def _group(members: Sequence[ClassDevices], slices: Sequence[Slice]) -> DeviceGroup:
    devices = {(slice_.driver, slice_.pool, device.name): device for one in members for slice_, device in one.listed}
    pools = {(driver, pool) for driver, pool, _ in devices}
    totals = [
        counters.get(PARTITION_COUNTER, Fraction(0))
        for slice_ in slices
        if (slice_.driver, slice_.pool) in pools
        for counters in slice_.counters.values()
    ]
    total = sum(totals, Fraction(0))
    is_partitioned = all(
        any(PARTITION_COUNTER in use.counters for use in device.consumes) for device in devices.values()
    )
    by_counter = is_partitioned and total >= 1
    return DeviceGroup(
        classes=tuple(sorted(members, key=lambda one: one.name)),
        counter=PARTITION_COUNTER if by_counter else "",
        amount=int(total) if by_counter else len(devices),
    )


def shared_taints(one: ClassDevices, nodes: Mapping[NodeName, Node]) -> list[tuple[str, str]]:
    """Return key and effect of the taints that every node with a device of the class has.

    Taints of Kubernetes itself, such as that of a cordoned node, pass or are meant, and are left out. None for devices
    that nodes reach over a network.
    """
    homes = [nodes.get(slice_.node_name or device.node_name) for slice_, device in one.listed]
    if not homes or None in homes:
        return []
    shared = [
        {(taint.key, taint.effect) for taint in node.taints if taint.blocks} for node in homes if node is not None
    ]
    return sorted(pair for pair in set.intersection(*shared) if not pair[0].startswith("node.kubernetes.io/"))


def unselected_drivers(snapshot: Snapshot, classes: Iterable[ClassDevices]) -> list[str]:
    """Return the drivers with devices of which no class selects any."""
    selected = frozenset[str]().union(*(one.drivers for one in classes))
    return sorted({one.driver for one in snapshot.slices.values() if one.devices} - selected)
