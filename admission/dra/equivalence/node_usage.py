"""What one node has for a search: its layout, with the use that is made of its devices."""

from collections.abc import Iterable
from itertools import chain

from admission.dra.equivalence import node_contents
from admission.dra.equivalence.device_signature import Layout, Segment
from admission.dra.equivalence.node_contents import LeftCapacity, NodeContents, Units
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.state.cluster_state import ClusterState


def units_of(
    segment: Segment, stock: int, usage: AllocatedOverlay, units: Units, *, shows_taken: bool
) -> tuple[int, ...]:
    """Return the units of one pool's devices. stock: its place among the pools with counters, -1 for none.

    shows_taken: whether devices that somebody has for himself are among them.
    """
    if usage.has_shares:
        return _shared_units(segment, stock, usage, units, shows_taken=shows_taken)
    takers, free = usage.takers(), units.free
    found: list[int] = []
    for spot, signature in zip(segment.spots, segment.numbers, strict=True):
        for layer in takers:
            if spot.id in layer:
                if shows_taken:
                    found.append(units.number(signature, node_contents.TAKEN, stock))
                break
        else:
            found.append(free(signature, stock))
    return tuple(found)


def _shared_units(
    segment: Segment, stock: int, usage: AllocatedOverlay, units: Units, *, shows_taken: bool
) -> tuple[int, ...]:
    """Return the same where some devices are shared."""
    number, known = units.number, units.device_signatures.known
    found: list[int] = []
    for spot, signature in zip(segment.spots, segment.numbers, strict=True):
        use = usage.use_of(spot.id, known[signature])
        if use is not node_contents.TAKEN or shows_taken:
            found.append(number(signature, use, stock))
    return tuple(found)


def contents_of(
    layout: Layout,
    units: Units,
    usage: AllocatedOverlay,
    cluster: ClusterState,
    *,
    numbers: tuple[int, ...] | None = None,
) -> NodeContents:
    """Return the contents of a node. numbers: its units, where they are known; else all, those that are taken too."""
    if numbers is None:
        parts = (units_of(segment, stock, usage, units, shows_taken=True) for segment, stock in layout.parts)
        numbers = tuple(chain.from_iterable(parts))
    stocks = _stocks(layout, usage, cluster) if layout.drawn else ()
    node_inventory = layout.node_inventory
    if node_inventory.plain:
        return NodeContents(numbers, stocks)
    return NodeContents(
        numbers,
        stocks,
        node_contents.troubles(node_inventory),
        node_contents.disputed(node_inventory, units.device_signatures),
    )


def shown(layout: Layout, usage: AllocatedOverlay, *, shows_taken: bool) -> Iterable[int]:
    """Return the places in the layout of the devices that `contents_of` shows, in order."""
    if shows_taken:
        return range(len(layout.spots))
    takers = usage.takers()
    if not takers:
        return range(len(layout.spots))
    spots = layout.spots
    found: Iterable[int] = range(len(spots))
    for layer in takers:
        found = [at for at in found if spots[at].id not in layer]
    return found


def _stocks(layout: Layout, usage: AllocatedOverlay, cluster: ClusterState) -> tuple[LeftCapacity, ...]:
    first = node_contents.namesakes([pool.name for pool in layout.drawn])
    return tuple(
        LeftCapacity(
            counters=tuple(pool.stock.totals),
            available=pool.stock.available(usage.used(pool.stock.draws)),
            namesake=namesake,
            vanished=pool.id in cluster.vanished,
            inexact=pool.stock.inexact,
            draws=pool.stock.draws,
        )
        for pool, namesake in zip(layout.drawn, first, strict=True)
        if pool.stock is not None
    )
