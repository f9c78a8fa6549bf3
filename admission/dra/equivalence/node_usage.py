"""The contents of one node for a search, from its layout and the devices in use."""

from collections.abc import Iterable
from itertools import chain

from admission.dra.equivalence import node_contents
from admission.dra.equivalence.device_signature import Layout, Segment
from admission.dra.equivalence.node_contents import LeftCapacity, NodeContents, Units
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.state.cluster_state import ClusterState


def units_of(
    segment: Segment, counter_set: int, usage: AllocatedOverlay, units: Units, *, includes_taken: bool
) -> tuple[int, ...]:
    """Return the units of one pool's devices. counter_set: its index among the pools with counters, -1 for none.

    includes_taken: whether devices that a claim has exclusively are among them.
    """
    if usage.has_shares:
        return _shared_units(segment, counter_set, usage, units, includes_taken=includes_taken)
    takers, free = usage.takers(), units.free
    found: list[int] = []
    for listed, signature in zip(segment.listed_devices, segment.numbers, strict=True):
        for layer in takers:
            if listed.id in layer:
                if includes_taken:
                    found.append(units.number(signature, node_contents.TAKEN, counter_set))
                break
        else:
            found.append(free(signature, counter_set))
    return tuple(found)


def _shared_units(
    segment: Segment, counter_set: int, usage: AllocatedOverlay, units: Units, *, includes_taken: bool
) -> tuple[int, ...]:
    """Return the units of one pool's devices if some devices are shared."""
    number, known = units.number, units.device_signatures.known
    found: list[int] = []
    for listed, signature in zip(segment.listed_devices, segment.numbers, strict=True):
        use = usage.use_of(listed.id, known[signature])
        if use is not node_contents.TAKEN or includes_taken:
            found.append(number(signature, use, counter_set))
    return tuple(found)


def contents_of(
    layout: Layout,
    units: Units,
    usage: AllocatedOverlay,
    cluster: ClusterState,
    *,
    numbers: tuple[int, ...] | None = None,
) -> NodeContents:
    """Return the contents of a node. numbers: its units; None for those of all devices, taken ones included."""
    if numbers is None:
        parts = (
            units_of(segment, counter_set, usage, units, includes_taken=True) for segment, counter_set in layout.parts
        )
        numbers = tuple(chain.from_iterable(parts))
    counter_sets = _counter_sets(layout, usage, cluster) if layout.drawn else ()
    node_inventory = layout.node_inventory
    unordered = units.device_signatures.need.profile.known_bugs.unordered
    slices = _slices(layout, usage, includes_taken=len(numbers) == len(layout.numbers)) if unordered else ()
    if node_inventory.plain:
        return NodeContents(numbers, counter_sets, slices=slices)
    return NodeContents(
        numbers,
        counter_sets,
        node_contents.troubles(node_inventory),
        node_contents.disputed(node_inventory, units.device_signatures),
        slices,
    )


def shown(layout: Layout, usage: AllocatedOverlay, *, includes_taken: bool) -> Iterable[int]:
    """Return the places in the layout of the devices that its contents include, in order."""
    if includes_taken:
        return range(len(layout.listed_devices))
    takers = usage.takers()
    if not takers:
        return range(len(layout.listed_devices))
    listed_devices = layout.listed_devices
    found: Iterable[int] = range(len(listed_devices))
    for layer in takers:
        found = [at for at in found if listed_devices[at].id not in layer]
    return found


def _slices(layout: Layout, usage: AllocatedOverlay, *, includes_taken: bool) -> tuple[int, ...]:
    """Return the number of the slice of each device that is shown."""
    listed_devices, found = layout.listed_devices, dict[int, int]()
    places = shown(layout, usage, includes_taken=includes_taken)
    return tuple(found.setdefault(id(listed_devices[at].slice), len(found)) for at in places)


def _counter_sets(layout: Layout, usage: AllocatedOverlay, cluster: ClusterState) -> tuple[LeftCapacity, ...]:
    first = node_contents.all_same_named([pool.name for pool in layout.drawn])
    return tuple(
        LeftCapacity(
            counters=tuple(pool.counter_set.totals),
            available=pool.counter_set.available(usage.used(pool.counter_set.draws)),
            same_named=same_named,
            vanished=pool.id in cluster.vanished,
            inexact=pool.counter_set.inexact,
            totals=tuple(pool.counter_set.totals.values()),
            draws=pool.counter_set.draws,
        )
        for pool, same_named in zip(layout.drawn, first, strict=True)
        if pool.counter_set is not None
    )
