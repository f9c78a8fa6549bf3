"""Which of interchangeable devices a node's pods get: those that leave the most to claims that tie devices together.

A free choice finds devices without a look at the groups of `tied_devices`: to the gang equal ones are all the same. So
each claim may have others in their place: of the same unit; or, if it ties all of its devices itself, of a unit that
differs only in the values of attributes. Small claims then go to groups that are begun, and whole groups stay whole.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace

from admission.dra.allocator.results import Match, Pick
from admission.dra.equivalence.node_contents import DeviceGroup
from admission.dra.equivalence.tied_devices import NO_GROUP, Division
from admission.dra.requests.constraints import UNREADABLE
from admission.dra.requests.kinds_of_use import Ties
from admission.dra.requests.requests import ParsedClaim

MOST_CHOICES = 512
"""The most claims, times devices of their node, for which others are looked for. Beyond it claims have what was found,
all of them: what one gets in place of its own may be another's."""

Places = tuple[int, ...]


def chosen(
    ties: Ties, division: Division, claims: Sequence[ParsedClaim], found: Match, units: Sequence[DeviceGroup]
) -> Match:
    """Return devices for the claims with which the expected waste grows the least, claim by claim.

    found: devices that they may have. units: all devices of the node; equal ones are one object.
    """
    if not division or len(claims) * len(units) > MOST_CHOICES:
        return found
    movable = [_movable(claim, picks, units) for claim, picks in zip(claims, found.picks, strict=True)]
    needed = Counter(units[at] for places in movable for at in places)
    others = {pick.at for picks in found.picks for pick in picks}.difference(*movable)
    left = _DevicesLeft(ties, division, units, others)
    given: list[tuple[Pick, ...]] = []
    for claim, picks, own in zip(claims, found.picks, movable, strict=True):
        by_unit = Counter(units[at] for at in own)
        needed.subtract(by_unit)
        instead: dict[int, int] = {}
        for unit, count in by_unit.items():
            among = left.equivalents(unit) if _is_tied(claim) and len(by_unit) == 1 else (unit,)
            new = left.take(among, count, needed)
            instead |= zip((at for at in own if units[at] is unit), new, strict=True)
        moved = (replace(pick, at=instead.get(pick.at, pick.at)) for pick in picks)
        given.append(tuple(sorted(moved, key=lambda pick: (pick.request, pick.at))))
    return Match(tuple(given))


class _DevicesLeft:
    """The devices of a node that no claim has, and how many of them are in each group. Only `take` changes it."""

    def __init__(self, ties: Ties, division: Division, units: Sequence[DeviceGroup], others: Container[int]) -> None:
        """others: the devices that claims have for good."""
        self._ties = ties
        self._division = division
        self._places: dict[DeviceGroup, list[int]] = {unit: [] for unit in units}
        for at, unit in enumerate(units):
            if at not in others:
                self._places[unit].append(at)
        self._equivalents: defaultdict[Hashable, list[DeviceGroup]] = defaultdict(list)
        self._in_groups = [
            Counter(group for at, group in enumerate(row) if group != NO_GROUP and at not in others) for row in division
        ]

    def equivalents(self, unit: DeviceGroup) -> Sequence[DeviceGroup]:
        """Return the units of which a claim that ties all of its devices may have them if it may of this one."""
        if not self._equivalents:
            for one in self._places:
                self._equivalents[_but_for_values(one)].append(one)
        return self._equivalents[_but_for_values(unit)]

    def take(self, units: Sequence[DeviceGroup], count: int, needed: Mapping[DeviceGroup, int]) -> Places:
        """Take devices of one unit: those with the least waste, then those that leave the least in their groups.

        needed: how many of each unit have to stay for claims to come.
        """
        enough = [unit for unit in units if len(self._places[unit]) >= count + needed[unit]]
        sets = {places: unit for unit in enough for places in _sets(self._division, self._places[unit], count)}
        best = min(sets, key=self._rank)
        unit = sets[best]
        self._places[unit] = [at for at in self._places[unit] if at not in best]
        for row, counts in zip(self._division, self._in_groups, strict=True):
            counts.subtract(_groups(row, best))
        return best

    def _rank(self, places: Places) -> tuple[int, int, Places]:
        """Return how much more is wasted without these devices, and how many are left in their groups."""
        growth = left = 0
        for tie, row, counts in zip(self._ties, self._division, self._in_groups, strict=True):
            for group, count in Counter(_groups(row, places)).items():
                free = counts[group]
                growth += tie.weight * ((free - count) % tie.devices - free % tie.devices)
                left += free - count
        return growth, left, places


def _movable(claim: ParsedClaim, picks: Sequence[Pick], units: Sequence[DeviceGroup]) -> Places:
    """Return the devices in place of which a claim may have others: such as are in groups."""
    if any(claim.requests[pick.request].options[pick.option].admin for pick in picks):
        return ()
    places = sorted(pick.at for pick in picks)
    return tuple(at for at in places if units[at].signature.draw is None and not units[at].signature.shared)


def _is_tied(claim: ParsedClaim) -> bool:
    return bool(claim.rules) and not any(rule.distinct for rule in claim.rules)


def _but_for_values(unit: DeviceGroup) -> Hashable:
    """Return what tells a unit from others, beside the values of its attributes; the unit, if one is unreadable."""
    values = unit.signature.values
    if UNREADABLE in values:
        return unit
    return unit.use, unit.counter_set, replace(unit.signature, values=()), tuple(value is None for value in values)


def _groups(row: Sequence[int], places: Places) -> list[int]:
    """Return the groups of devices, for one tie."""
    return [row[at] for at in places if row[at] != NO_GROUP] if row else []


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
