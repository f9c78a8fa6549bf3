"""How much of a node's free devices nobody can use, since too little CPU or memory is left there: stranded devices.

Of a node with free devices, in thousandths of a device (Q), and resources left L_r, where pods request in the mean q_r
of a resource beside each device that they take,

    stranded = max(0, Q - 1000 · min over r of L_r / q_r)

Where the next pods are as those that wait and run, so much of Q stays free for good. A node on which this grows the
least is the best one for a pod. That is the gradient of fragmentation of FGD (Weng et al., "Beware of Fragmentation",
USENIX ATC 2023, section 5) with one kind of task, the mean one, in place of all: it needs one comparison of a node
where FGD has one for each kind, and gives away as much (docs/measurements.md).

Of a partitionable device, as a card in MIG mode, what is left is its free part of the family of counters of which the
least is free (compute, slices of memory), and a partition takes the part of which it draws the most.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from types import MappingProxyType
from typing import ClassVar

from admission.dra.allocator.results import Budget, Match, StepsEndedError
from admission.dra.equivalence import tied_devices
from admission.dra.equivalence.device_signature import DeviceSignature
from admission.dra.equivalence.node_contents import DeviceGroup, LeftCapacity, NodeContents
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.equivalence.tied_devices import Division
from admission.dra.inventory import counters
from admission.dra.inventory.counters import Draw
from admission.dra.requests.kinds_of_use import Ties
from admission.dra.requests.requests import ParsedClaim, ParsedRequest

Claims = tuple[ParsedClaim, ...]

_NOTHING: Mapping[str, int] = MappingProxyType({})

WHOLE = 1000
"""A device, in the unit of this module."""

RANK_STEPS = 100
"""The bound of a search for one pod on one node that puts nodes in order, beside a step for each of its devices.

Each sort of nodes has its own: with one for all, which of them have a rank would depend on which were searched before.
"""

SERVED_STEP = 250
"""Searches take nodes for equal whose resources suffice for as many devices, but for less than that."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a pod takes of a node's devices, in thousandths. free: what is free of all that it could use, before.

    begun: how many devices it takes a part of that were unused. rest: what the devices in use had left of which it
    takes a part. unused: devices that nobody has a part of, before. begun_partitionable: how many of those
    begun can be given out in partitions. found: the devices.
    """

    free: int
    taken: int
    begun: int
    rest: int
    unused: int
    begun_partitionable: int = 0
    found: Match = field(default=Match(()), compare=False, repr=False)


class Unranked(Enum):
    """Why a node has no rank by what a pod consumes there."""

    UNFIT = "no pod gets devices, nor will any when less is free"
    UNFIT_NOW = "no pod gets devices, but one may once others have taken the first ones"
    REFUSED = "a device stops the search, for a reason that people have to know"
    PARTITIONS = "partitions of several devices at once, or of unknown ones, are among the devices"
    UNKNOWN = "what a pod gets was not found in time"


class Fits(ABC):
    """What pods get on nodes, which follows from their claims and the nodes' signatures alone.

    ranks_by_free: whether nodes go by their free devices where it is not known what pods consume. uses: what is known;
    the answers are added.
    """

    ranks_by_free: ClassVar[bool]

    def __init__(self, uses: dict[tuple[Claims, NodeSignature], Consumption | Unranked]) -> None:
        self._uses = uses

    def use(self, claims: Claims, node_sig: NodeSignature) -> Consumption | Unranked:
        """Return what a pod with these claims consumes on such a node."""
        key = claims, node_sig
        if key not in self._uses:
            try:
                self._uses[key] = self._searched(claims, node_sig, Budget(RANK_STEPS + node_sig.free))
            except StepsEndedError:
                self._uses[key] = Unranked.UNKNOWN
        return self._uses[key]

    def wasted(self, claims: Claims, node_sig: NodeSignature, found: Match, ties: Ties, division: Division) -> int:  # noqa: ARG002 - the same for all
        """Return how much more of a node is of no use to claims that tie devices once a pod has what was found."""
        return tied_devices.growth(ties, division, (pick.at for picks in found.picks for pick in picks))

    @abstractmethod
    def _searched(self, claims: Claims, node_sig: NodeSignature, budget: Budget) -> Consumption | Unranked:
        """Search for it. Raises StepsEndedError."""


_Whole = tuple[int, str]
"""A device that is given out as a whole or in shares, by its place, or one of which partitions are, by its pool's index
and its counter set."""


def consumption(
    claims: Sequence[ParsedClaim],
    found: Match,
    units: Sequence[DeviceGroup],
    parsed_requests: Mapping[ParsedRequest, int],
    contents: NodeContents,
) -> Consumption | None:
    """Return what a pod takes with these devices; None if it is not known of which devices they are partitions.

    units: the devices of the contents, to which the places of what is found refer.
    """
    wholes = [_whole(at, unit) for at, unit in enumerate(units)]
    if None in wholes or any(one.vanished for one in contents.counter_sets):
        return None
    remaining = {(at, ""): left(unit) for at, unit in enumerate(units) if unit.signature.draw is None}
    totals: dict[_Whole | None, Draw] = {}
    for number, counted in enumerate(contents.counter_sets):
        for name, used, total in _by_set(counted):
            totals[number, name] = total
            remaining[number, name] = max(0, math.floor((1 - counters.part(used, total)) * WHOLE))
    taken: dict[_Whole, int] = {}
    for claim, picks in zip(claims, found.picks, strict=True):
        for pick in picks:
            option, signature = claim.requests[pick.request].options[pick.option], units[pick.at].signature
            whole = wholes[pick.at]
            if whole is not None and not option.admin:
                share = (
                    _share(signature, parsed_requests[option.parsed])
                    if signature.draw is None
                    else math.ceil(counters.part(signature.draw, totals[whole]) * WHOLE)
                )
                taken[whole] = min(remaining[whole], taken.get(whole, 0) + share)
    return Consumption(
        free=sum(remaining.values()),
        taken=sum(taken.values()),
        begun=sum(remaining[whole] == WHOLE for whole in taken),
        rest=sum(remaining[whole] for whole in taken if remaining[whole] < WHOLE),
        unused=[*remaining.values()].count(WHOLE),
        begun_partitionable=sum(remaining[whole] == WHOLE for whole in taken if whole[1]),
        found=found,
    )


def _whole(at: int, unit: DeviceGroup) -> _Whole | None:
    """Return the device that a unit is, or of which it is a partition; None if that is not one device."""
    if unit.signature.draw is None:
        return at, ""
    sets = {name for (name, _), _ in unit.signature.draw}
    is_one = len(sets) == 1 and unit.counter_set >= 0 and not unit.signature.shared
    return (unit.counter_set, sets.pop()) if is_one else None


def _by_set(counted: LeftCapacity) -> Iterator[tuple[str, Draw, Draw]]:
    """Yield the counter sets of a pool, each with what is used of its counters, and their totals."""
    rows = zip(counted.counters, counted.totals, counted.available, strict=True)
    for name, of_set in groupby(rows, key=lambda row: row[0][0]):
        one = [*of_set]
        yield (
            name,
            tuple((counter, total - rest) for counter, total, rest in one),
            tuple((counter, total) for counter, total, _ in one),
        )


def left(unit: DeviceGroup) -> int:
    """Return what is left of a device, in thousandths: of the scarcest of its capacities."""
    if unit.use.taken:
        return 0
    if not unit.use.shares or unit.use.amounts is None:
        return WHOLE
    pairs = zip(unit.signature.room, unit.use.amounts, strict=True)
    return min((int((room - used) * WHOLE / room) for (_, room), used in pairs if room), default=WHOLE)


def growth(consumption: Consumption, before: int | None, after: int | None) -> int:
    """Return how much more is stranded with a pod.

    before, after: for how many thousandths of devices resources suffice, without the pod and with it; None: no limit.
    """
    if before is None or after is None:
        return 0
    return max(0, consumption.free - consumption.taken - after) - max(0, consumption.free - before)


def served(
    left: Mapping[str, int] | None,
    beside: Mapping[str, int],
    wants: Mapping[str, int] = _NOTHING,
    *,
    known: Mapping[str, int] = _NOTHING,
) -> int | None:
    """Return for how many thousandths of devices resources suffice once a pod has what it wants; None for no limit.

    beside: what pods request beside each device, in the mean. known: what goes before `left`, of some resources.
    """
    if left is None or not beside:
        return None
    return min(
        max(0, known.get(name, left.get(name, 0)) - wants.get(name, 0)) * WHOLE // amount
        for name, amount in beside.items()
    )


def _share(signature: DeviceSignature, parsed: int) -> int:
    """Return what a request takes of a device: the most of any capacity."""
    if not signature.shared or not signature.takes:
        return WHOLE
    pairs = zip(signature.room, signature.takes[parsed], strict=True)
    return max((int(amount * WHOLE / room) for (_, room), amount in pairs if room), default=WHOLE)
