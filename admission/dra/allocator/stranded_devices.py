"""How much of a node's free devices nobody can use, since too little CPU or memory is left there: stranded devices.

Of a node with free devices, in thousandths of a device (Q), and resources left L_r, where pods request in the mean q_r
of a resource beside each device that they take,

    stranded = max(0, Q - 1000 · min over r of L_r / q_r)

Where the next pods are as those that wait and run, so much of Q stays free for good. A node on which this grows the
least is the best one for a pod. That is the gradient of fragmentation of FGD (Weng et al., "Beware of Fragmentation",
USENIX ATC 2023, section 5) with one kind of task, the mean one, in place of all: it needs one comparison of a node
where FGD has one for each kind, and gives away as much (docs/measurements.md).

Devices of which partitions are given out are not counted: a card is listed once for every way to divide it.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from admission.dra.allocator.results import Budget, Match, StepsEndedError
from admission.dra.equivalence.device_signature import DeviceSignature
from admission.dra.equivalence.node_contents import DeviceGroup
from admission.dra.equivalence.node_signature import NodeSignature
from admission.dra.requests.requests import ParsedClaim, ParsedRequest

Claims = tuple[ParsedClaim, ...]

_NOTHING: Mapping[str, int] = MappingProxyType({})

WHOLE = 1000
"""A device, in the unit of this module."""

RANK_STEPS = 10_000
"""The bound of all searches for one pod on a node that put nodes in order once, beside the steps that each may take."""

EASY_STEPS = 100
"""What each of them may take: no number of nodes is too large whose devices are found at once."""

SERVED_STEP = 250
"""Searches take nodes for equal whose resources suffice for as many devices, but for less than that."""


@dataclass(frozen=True, slots=True)
class Consumption:
    """What a pod takes of a node's devices, in thousandths. free: what is free of all that it could use, before.

    begun: how many devices it takes a part of that were unused. rest: what the devices in use had left of which it
    takes a part. unused: devices that nobody has a part of, before.
    """

    free: int
    taken: int
    begun: int
    rest: int
    unused: int


class Unranked(Enum):
    """Why a node has no rank by what a pod consumes there."""

    UNFIT = "no pod gets devices, nor will any when less is free"
    UNFIT_NOW = "no pod gets devices, but one may once others have taken the first ones"
    REFUSED = "a device stops the search, for a reason that people have to know"
    PARTITIONS = "partitions are among the devices"
    UNKNOWN = "what a pod gets was not found in time"


class Fits(ABC):
    """What pods get on nodes of some units. One object puts nodes in order once: its searches have one bound.

    ranks_by_free: whether nodes go by their free devices where it is not known what pods consume.
    """

    ranks_by_free: ClassVar[bool]

    def __init__(self) -> None:
        self._left = RANK_STEPS
        self._uses: dict[tuple[Claims, NodeSignature], Consumption | Unranked] = {}

    def use(self, claims: Claims, node_sig: NodeSignature) -> Consumption | Unranked:
        """Return what a pod with these claims consumes on such a node."""
        key = claims, node_sig
        if key not in self._uses:
            budget = Budget(EASY_STEPS + self._left)
            try:
                self._uses[key] = self._searched(claims, node_sig, budget)
                self._left -= max(0, budget.spent - EASY_STEPS)
            except StepsEndedError:
                self._uses[key], self._left = Unranked.UNKNOWN, 0
        return self._uses[key]

    @abstractmethod
    def _searched(self, claims: Claims, node_sig: NodeSignature, budget: Budget) -> Consumption | Unranked:
        """Search for it. Raises StepsEndedError. Steps are spent again if the answer is known."""


def consumption(
    claims: Sequence[ParsedClaim],
    found: Match,
    units: Sequence[DeviceGroup],
    parsed_requests: Mapping[ParsedRequest, int],
) -> Consumption | None:
    """Return what a pod takes with these devices; None if partitions are among the devices of the node."""
    if any(unit.signature.draw is not None for unit in units):
        return None
    remaining = [left(unit) for unit in units]
    taken: dict[int, int] = {}
    for claim, picks in zip(claims, found.picks, strict=True):
        for pick in picks:
            option = claim.requests[pick.request].options[pick.option]
            if not option.admin:
                share = _share(units[pick.at].signature, parsed_requests[option.parsed])
                taken[pick.at] = min(remaining[pick.at], taken.get(pick.at, 0) + share)
    return Consumption(
        free=sum(remaining),
        taken=sum(taken.values()),
        begun=sum(remaining[at] == WHOLE for at in taken),
        rest=sum(remaining[at] for at in taken if remaining[at] < WHOLE),
        unused=remaining.count(WHOLE),
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
