"""What the search knows of a device: its profile.

Two devices with equal profiles are interchangeable for all that a gang asks, so the search tries one of them. That, and
not their names or serial numbers, is what keeps a request that is one device short from trying every subset.
"""

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum

from admission.api.devices import Device, DeviceId, Version
from admission.api.names import MeterName
from admission.api.selectors import first_untolerated
from admission.dra import metering
from admission.dra.asking import Ask, Fatal, NotSimulated, Refusal, Unpriced
from admission.dra.metering import ChargeError, Mark, Meters
from admission.dra.pools import Pool, Shelf, Spot
from admission.dra.selecting import Selectors


class Answer(Enum):
    """Whether a device does for an ask, where that can be told."""

    NO = "no"
    YES = "yes"
    TAINTED = "tainted"
    """Selected, but a taint is not tolerated."""


Value = tuple[str, object]
"""Type and value of an attribute that a constraint compares."""

LISTS = "list"


@dataclass(frozen=True, slots=True)
class Price:
    """What a device costs for an ask, and the rules by which it makes its claim count."""

    amounts: tuple[tuple[MeterName, int], ...] = ()
    marks: frozenset[Mark] = frozenset()


FREE = Price()


@dataclass(frozen=True, slots=True)
class Profile:
    """answers: per ask; a refusal stops the search that meets it. values: per compared attribute. prices: per ask."""

    answers: tuple[Answer | Refusal, ...]
    values: tuple[Value | None, ...]
    prices: tuple[Price, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The devices of one node that matter to a gang, in order. numbers: their profiles.

    fixed: whether all of them are the node's own, so that nothing that happens elsewhere changes them.
    """

    spots: tuple[Spot, ...]
    numbers: tuple[int, ...]
    fixed: bool


class Profiles:
    """Numbers profiles and lays out nodes, for one set of asks, compared attributes, meters and shared devices."""

    def __init__(self, need: "Need", selectors: Selectors) -> None:
        self.need = need
        self.known: list[Profile] = []
        self._selectors = selectors
        self._numbers: dict[Profile, int] = {}
        self._layouts: dict[int, tuple[Shelf, Layout]] = {}

    def layout(self, shelf: Shelf) -> Layout:
        """Return the devices that a node sees, without those that nobody asks for."""
        known = self._layouts.get(id(shelf))
        if known is None:
            # The shelf is kept beside its layout, so that its identity stays its own.
            known = self._layouts[id(shelf)] = (shelf, self._laid_out(shelf))
        return known[1]

    def may_serve(self, pool: Pool) -> bool:
        """Return whether a pool might have what is needed: one of its devices does, or it shows none."""
        return not pool.spots or any(self._number(spot) is not None for spot in pool.spots)

    def keep(self, shelves: Container[int]) -> None:
        """Forget the layouts of all but these shelves, by identity."""
        self._layouts = {key: known for key, known in self._layouts.items() if key in shelves}

    def _laid_out(self, shelf: Shelf) -> Layout:
        numbered = [(spot, number) for spot in shelf.spots if (number := self._number(spot)) is not None]
        return Layout(
            spots=tuple(spot for spot, _ in numbered),
            numbers=tuple(number for _, number in numbered),
            fixed=all(spot.local for spot, _ in numbered),
        )

    def _number(self, spot: Spot) -> int | None:
        answers = [self._answer(ask, spot) for ask in self.need.asks]
        if all(answer is Answer.NO for answer in answers):
            return None
        profile = self._profile(answers, spot)
        number = self._numbers.get(profile)
        if number is None:
            number = self._numbers[profile] = len(self.known)
            self.known.append(profile)
        return number

    def _profile(self, answers: list[Answer | Refusal], spot: Spot) -> Profile:
        prices = [FREE] * len(answers)
        for at, ask in enumerate(self.need.asks):
            if answers[at] is Answer.YES:
                price = self._price(ask, spot)
                if isinstance(price, ChargeError):
                    answers[at] = Unpriced(price.meter, price.message)
                else:
                    prices[at] = price
        values = tuple(value_of(spot.device, spot.id.driver, name) for name in self.need.attributes)
        return Profile(tuple(answers), values, tuple(prices))

    def _answer(self, ask: Ask, spot: Spot) -> Answer | Refusal:
        """Judge in kube-scheduler's order: selectors, node of the device, capacity and counters, taints."""
        selected = self._selectors.answer(ask.texts, spot)
        if isinstance(selected, str):
            return Fatal(selected)
        if not selected or not spot.reachable:
            return Answer.NO
        if what := _not_simulated(spot, shared=spot.id in self.need.shared):
            return NotSimulated(what, f"device {spot.id} of class {ask.device_class}")
        if spot.device.taints and first_untolerated(spot.device.taints, ask.tolerations) is not None:
            return Answer.TAINTED
        return Answer.YES

    def _price(self, ask: Ask, spot: Spot) -> Price | ChargeError:
        amounts = metering.price(self.need.meters, ask.device_class, spot.id, spot.device)
        if isinstance(amounts, ChargeError):
            return amounts
        marks = metering.marks(self.need.meters, ask.device_class, spot.id, spot.device)
        if isinstance(marks, ChargeError):
            return marks
        return Price(tuple(sorted(amounts.items())), marks)


@dataclass(frozen=True, slots=True)
class Need:
    """All that profiles depend on beside the devices."""

    asks: tuple[Ask, ...]
    attributes: tuple[str, ...] = ()
    meters: Meters = metering.NONE
    shared: frozenset[DeviceId] = frozenset()


MOST_REMEMBERED = 64
"""Needs for which a `Selectors` remembers profiles; gangs of one shape have the same."""


def of(need: Need, selectors: Selectors) -> Profiles:
    """Return the profiles of a need: those made before, where there are any."""
    known = selectors.memory.pop(need, None) or Profiles(need, selectors)
    selectors.memory[need] = known
    if len(selectors.memory) > MOST_REMEMBERED:
        del selectors.memory[next(iter(selectors.memory))]
    return known


def _not_simulated(spot: Spot, *, shared: bool) -> str | None:
    if spot.device.consumes:
        return "shared counters (partitionable devices)"
    if spot.device.allows_multiple:
        return "allowMultipleAllocations"
    return "shares of a device" if shared else None


def value_of(device: Device, driver: str, attribute: str) -> Value | None:
    """Return an attribute with its type; None when the device does not have it.

    A name is looked up as written; without its domain too, where the domain is the driver's (`lookupAttribute`).
    """
    domain, _, name = attribute.partition("/")
    value = device.attributes.get(attribute)
    if value is None and domain == driver:
        value = device.attributes.get(name)
    if value is None:
        return None
    if isinstance(value, tuple):
        return (LISTS, value)
    return ("version" if isinstance(value, Version) else type(value).__name__, value)
