"""Which of interchangeable devices a node's pods get: those that leave the most to claims that tie devices together.

A free choice finds devices without a look at the groups of `tied_devices`: to the gang equal ones are all the same. So
each claim may have others in their place: of the same unit; or, if it ties all of its devices itself, of a unit that
differs only in the values of attributes. Small claims then go to groups that are begun, and whole groups stay whole.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from admission.dra.allocator.results import Match, Pick
from admission.dra.equivalence import tied_devices
from admission.dra.equivalence.node_contents import DeviceGroup
from admission.dra.equivalence.tied_devices import NO_GROUP, Division
from admission.dra.requests.constraints import UNREADABLE
from admission.dra.requests.device_ties import Ties
from admission.dra.requests.requests import ParsedClaim

Places = tuple[int, ...]


def chosen(
    ties: Ties, division: Division, claims: Sequence[ParsedClaim], found: Match, units: Sequence[DeviceGroup]
) -> Match:
    """Return devices for the claims with which the expected waste grows the least, claim by claim.

    found: devices that they may have. units: all devices of the node; equal ones are one object.
    """
    if not division:
        return found
    movable = [_movable(claim, picks, units) for claim, picks in zip(claims, found.picks, strict=True)]
    needed = Counter(units[at] for places in movable for at in places)
    taken = {pick.at for picks in found.picks for pick in picks}.difference(*movable)
    given: list[tuple[Pick, ...]] = []
    for claim, picks, own in zip(claims, found.picks, movable, strict=True):
        by_unit = Counter(units[at] for at in own)
        needed.subtract(by_unit)
        instead: dict[int, int] = {}
        for unit, count in by_unit.items():
            free = _free(unit, units, taken, needed, count, others=_is_tied(claim) and len(by_unit) == 1)
            sets = [places for one in free for places in _sets(division, one, count)]
            new = _best(ties, division, sets, taken)
            taken.update(new)
            instead |= zip((at for at in own if units[at] is unit), new, strict=True)
        moved = (replace(pick, at=instead.get(pick.at, pick.at)) for pick in picks)
        given.append(tuple(sorted(moved, key=lambda pick: (pick.request, pick.at))))
    return Match(tuple(given))


def _movable(claim: ParsedClaim, picks: Sequence[Pick], units: Sequence[DeviceGroup]) -> Places:
    """Return the devices in place of which a claim may have others: such as are in groups."""
    if any(claim.requests[pick.request].options[pick.option].admin for pick in picks):
        return ()
    places = sorted(pick.at for pick in picks)
    return tuple(at for at in places if units[at].signature.draw is None and not units[at].signature.shared)


def _is_tied(claim: ParsedClaim) -> bool:
    return bool(claim.rules) and not any(rule.distinct for rule in claim.rules)


def _free(
    unit: DeviceGroup,
    units: Sequence[DeviceGroup],
    taken: Container[int],
    needed: Mapping[DeviceGroup, int],
    count: int,
    *,
    others: bool,
) -> Iterator[Places]:
    """Yield the free devices of a unit, and those of others that are as good, where enough stay for claims to come.

    others: whether those of other units will do.
    """
    for one in dict.fromkeys(units):
        if one is unit or (others and _is_as_good(one, unit)):
            free = tuple(at for at, other in enumerate(units) if other is one and at not in taken)
            if len(free) >= count + needed[one]:
                yield free


def _best(ties: Ties, division: Division, sets: Sequence[Places], others: set[int]) -> Places:
    """Return the set with the least waste, beside the devices of others; of equal ones that which leaves the least."""

    def rank(places: Places) -> tuple[int, int, Places]:
        gone = others.union(places)
        return tied_devices.waste(ties, division, gone), _left(division, places, gone), places

    return min(sets, key=rank)


def _is_as_good(one: DeviceGroup, unit: DeviceGroup) -> bool:
    """Return whether a claim that ties all of its devices may have them of one unit if it may of another."""
    values = zip(one.signature.values, unit.signature.values, strict=True)
    return (
        one.use == unit.use
        and one.counter_set == unit.counter_set
        and replace(one.signature, values=unit.signature.values) == unit.signature
        and all((a is None) == (b is None) and UNREADABLE not in {a, b} for a, b in values)
    )


def _sets(division: Division, places: Sequence[int], count: int) -> Iterator[Places]:
    """Yield sets of so many devices: of each group that has as many, and those of the smallest, or largest, groups."""
    if len(places) < count:
        return
    groups: defaultdict[Places, list[int]] = defaultdict(list)
    for at in places:
        groups[tuple(row[at] for row in division if row)].append(at)
    for group in groups.values():
        if len(group) >= count:
            yield tuple(group[:count])
    by_size = sorted(groups.values(), key=len)
    for order in (by_size, by_size[::-1]):
        yield tuple(sorted([at for group in order for at in group][:count]))


def _left(division: Division, places: Places, gone: Container[int]) -> int:
    """Return how many devices are left in the groups that have these, without some."""
    groups = ({row[at] for at in places} - {NO_GROUP} if row else frozenset[int]() for row in division)
    return sum(
        group in of_row and at not in gone
        for row, of_row in zip(division, groups, strict=True)
        for at, group in enumerate(row)
    )
