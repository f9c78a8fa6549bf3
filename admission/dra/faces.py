"""What one node has for a search: its layout, with the use that is made of its devices."""

from collections.abc import Iterable

from admission.dra import contents
from admission.dra.contents import Contents, Left, Units
from admission.dra.pools import Shelf
from admission.dra.traits import Layout
from admission.dra.usage import Usage
from admission.dra.worlds import World


def contents_of(  # noqa: PLR0913 - what a node is made of
    layout: Layout, shelf: Shelf, usage: Usage, world: World, units: Units, *, shows_taken: bool
) -> Contents:
    """Return the contents of a node. shows_taken: whether devices that somebody has for himself are among its units."""
    number, known = units.number, units.traits.known
    found: list[int] = []
    for spot, trait, stock in zip(layout.spots, layout.numbers, layout.stocks, strict=True):
        use = usage.use_of(spot.id, known[trait])
        if use is not contents.TAKEN or shows_taken:
            found.append(number(trait, use, stock))
    stocks = _stocks(layout, usage, world) if layout.drawn else ()
    if shelf.plain:
        return Contents(tuple(found), stocks)
    troubles, disputed = contents.troubles(shelf), contents.disputed(shelf, units.traits)
    return Contents(tuple(found), stocks, troubles, disputed)


def shown(layout: Layout, usage: Usage, *, shows_taken: bool) -> Iterable[int]:
    """Return the places in the layout of the devices that `contents_of` shows, in order."""
    if shows_taken:
        return range(len(layout.spots))
    return [at for at, spot in enumerate(layout.spots) if not usage.is_taken(spot.id)]


def _stocks(layout: Layout, usage: Usage, world: World) -> tuple[Left, ...]:
    first = contents.namesakes([pool.name for pool in layout.drawn])
    return tuple(
        Left(
            counters=tuple(pool.stock.totals),
            available=pool.stock.available(filter(usage.is_used, pool.stock.draws)),
            namesake=namesake,
            vanished=pool.id in world.vanished,
        )
        for pool, namesake in zip(layout.drawn, first, strict=True)
        if pool.stock is not None
    )
