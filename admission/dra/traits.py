"""What the search knows of a device: its trait.

Two devices with equal traits are interchangeable for all that a gang asks, so the search tries one of them. That, and
not their names or serial numbers, is what keeps a request that is one device short from trying every subset.
"""

from collections.abc import Container, Iterable
from dataclasses import dataclass
from enum import Enum

from admission.api.devices import Device, DeviceId
from admission.api.names import MeterName
from admission.api.selectors import first_untolerated
from admission.dra import capacities, metering, rules, stocks
from admission.dra.asking import Ask, Fatal, Refusal, Unpriced
from admission.dra.capacities import Unfit, Unrepresentable
from admission.dra.metering import ChargeError, Consumed, Mark, Meters
from admission.dra.pools import Pool, Shelf, Spot
from admission.dra.releases import Profile, Release
from admission.dra.rules import Value
from admission.dra.selecting import Selectors
from admission.dra.stocks import Amount, Draw


class Answer(Enum):
    """Whether a device does for an ask, where that can be told."""

    NO = "no"
    YES = "yes"
    TAINTED = "tainted"
    """Selected, but a taint is not tolerated, or it draws from counters while their gate is off: never given, but
    mode All wants it all the same."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a device costs for an ask, and the rules by which it makes its claim count."""

    amounts: tuple[tuple[MeterName, int], ...] = ()
    marks: frozenset[Mark] = frozenset()


FREE = Price()


@dataclass(frozen=True, slots=True)
class Trait:
    """All that a gang's search knows of a device that is not in use.

    answers: for each ask; a refusal stops the search that meets it. values: for each compared attribute. prices: for
    each ask. shared: whether several claims may have it. room: its capacities, where they can be shared. takes: for
    each ask, what it consumes of them. draw: what the device draws from its pool's counters.
    """

    answers: tuple[Answer | Refusal, ...]
    values: tuple[Value | None, ...]
    prices: tuple[Price, ...]
    shared: bool = False
    room: tuple[tuple[str, Amount], ...] = ()
    takes: tuple[tuple[Amount, ...], ...] = ()
    draw: Draw = ()


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The devices of one pool that matter to a gang, in order. numbers: their traits."""

    pool: Pool
    spots: tuple[Spot, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The devices of one node that matter to a gang, in order.

    numbers: their traits. stocks: the place of each one's pool among the pools with counters that matter, -1 for none.
    drawn: these pools. fixed: whether all devices are the node's own, so that nothing that happens elsewhere changes
    them.
    """

    spots: tuple[Spot, ...] = ()
    numbers: tuple[int, ...] = ()
    stocks: tuple[int, ...] = ()
    drawn: tuple[Pool, ...] = ()
    fixed: bool = True


@dataclass(frozen=True, slots=True)
class Need:
    """All that traits depend on beside the devices and the meters."""

    asks: tuple[Ask, ...]
    attributes: tuple[str, ...] = ()
    meters: Meters = metering.NONE
    profile: Profile = Profile()  # noqa: RUF009 - frozen


class Traits:
    """Numbers traits and lays out nodes, for one need."""

    def __init__(self, need: Need, selectors: Selectors) -> None:
        self.need = need
        self.known: list[Trait] = []
        self._selectors = selectors
        self._numbers: dict[Trait, int] = {}
        self._segments: dict[int, Segment] = {}
        self._layouts: dict[int, tuple[Shelf, Layout]] = {}

    def layout(self, shelf: Shelf) -> Layout:
        """Return the devices that a node sees, without those that nobody asks for."""
        known = self._layouts.get(id(shelf))
        if known is None:
            # The shelf is kept beside its layout, so that its identity stays its own.
            known = self._layouts[id(shelf)] = (shelf, self._laid_out(shelf.seen(self.need.profile.quirks)))
        return known[1]

    def may_serve(self, pool: Pool) -> bool:
        """Return whether a pool might have what is needed: one of its devices does, or it shows none."""
        return not pool.spots or bool(self._segment(pool).spots)

    def keep(self, shelves: Container[int]) -> None:
        """Forget the layouts of all but these shelves, by identity."""
        self._layouts = {key: known for key, known in self._layouts.items() if key in shelves}
        quirks = self.need.profile.quirks
        alive = {id(pool) for shelf, _ in self._layouts.values() for pool in shelf.seen(quirks)}
        self._segments = {key: known for key, known in self._segments.items() if key in alive}

    def _laid_out(self, pools: Iterable[Pool]) -> Layout:
        segments = [found for pool in pools if pool.sound and (found := self._segment(pool)).spots]
        if len(segments) == 1 and not self._draws(segments[0]):
            only = segments[0]
            return Layout(only.spots, only.numbers, (-1,) * len(only.spots), (), all(spot.local for spot in only.spots))
        drawn = [segment.pool for segment in segments if self._draws(segment)]
        places = {id(pool): at for at, pool in enumerate(drawn)}
        spots = tuple(spot for segment in segments for spot in segment.spots)
        return Layout(
            spots=spots,
            numbers=tuple(number for segment in segments for number in segment.numbers),
            stocks=tuple(places.get(id(segment.pool), -1) for segment in segments for _ in segment.spots),
            drawn=tuple(drawn),
            fixed=all(spot.local for spot in spots),
        )

    def _draws(self, segment: Segment) -> bool:
        return segment.pool.stock is not None and any(self.known[number].draw for number in segment.numbers)

    def _segment(self, pool: Pool) -> Segment:
        known = self._segments.get(id(pool))
        if known is None:
            numbered = [(spot, number) for spot in pool.spots if (number := self._number(spot)) is not None]
            spots, numbers = tuple(spot for spot, _ in numbered), tuple(number for _, number in numbered)
            known = self._segments[id(pool)] = Segment(pool, spots, numbers)
        return known

    def _number(self, spot: Spot) -> int | None:
        answers = [self._selected(ask, spot) for ask in self.need.asks]
        if all(answer is Answer.NO for answer in answers):
            return None
        trait = self._trait(answers, spot)
        number = self._numbers.get(trait)
        if number is None:
            number = self._numbers[trait] = len(self.known)
            self.known.append(trait)
        return number

    def _selected(self, ask: Ask, spot: Spot) -> Answer | Refusal:
        """Judge by selectors and by the node that the device is for, in kube-scheduler's order."""
        if spot.device.binding_conditions and not self.need.profile.features.binding_conditions:
            return Answer.NO
        selected = self._selectors.answer(ask.texts, spot)
        if isinstance(selected, str):
            return Fatal(selected)
        return Answer.YES if selected and spot.reachable else Answer.NO

    def _trait(self, answers: list[Answer | Refusal], spot: Spot) -> Trait:
        device, features = spot.device, self.need.profile.features
        prices = [FREE] * len(answers)
        taken: list[dict[str, Amount]] = [{}] * len(answers)
        for at, ask in enumerate(self.need.asks):
            if answers[at] is Answer.YES:
                answers[at], taken[at] = self._consumption(ask, spot)
            if answers[at] is Answer.YES and self._barred(ask, device):
                answers[at] = Answer.TAINTED
            elif answers[at] is Answer.YES:
                answers[at], prices[at] = self._priced(ask, spot, taken[at] if device.allows_multiple else None)
        names = sorted(device.capacity) if features.consumable_capacity else []
        return Trait(
            answers=tuple(answers),
            values=tuple(
                rules.value_of(device, spot.id.driver, name, lists=features.list_attributes)
                for name in self.need.attributes
            ),
            prices=tuple(prices),
            shared=device.allows_multiple and features.consumable_capacity,
            room=tuple((name, stocks.exact(device.capacity[name].value)) for name in names),
            takes=tuple(tuple(amounts.get(name, 0) for name in names) for amounts in taken) if names else (),
            draw=stocks.drawn(device),
        )

    def _consumption(self, ask: Ask, spot: Spot) -> tuple[Answer | Refusal, dict[str, Amount]]:
        """Judge by capacity, as if nothing of the device were in use."""
        features = self.need.profile.features
        if not features.consumable_capacity or not spot.device.capacity:
            return (Answer.YES if not ask.needs else Answer.NO), {}
        amounts = capacities.consumed(ask.needs, spot.device.capacity, fractional=features.fractional_ranges)
        if isinstance(amounts, Unrepresentable):
            if self.need.profile.release is Release.V1_36:
                return Answer.NO, {}
            return Fatal(f"class {ask.device_class} on device {spot.id}: {amounts.message}"), {}
        if isinstance(amounts, Unfit):
            return Answer.NO, {}
        return Answer.YES, amounts

    def _barred(self, ask: Ask, device: Device) -> bool:
        features = self.need.profile.features
        if device.consumes and not features.partitionable:
            return True
        return features.taints and first_untolerated(device.taints, ask.tolerations) is not None

    def _priced(self, ask: Ask, spot: Spot, consumed: Consumed) -> tuple[Answer | Refusal, Price]:
        amounts = metering.price(self.need.meters, ask.device_class, spot.id, spot.device, consumed)
        if isinstance(amounts, ChargeError):
            return Unpriced(amounts.meter, amounts.message), FREE
        marks = metering.marks(self.need.meters, ask.device_class, spot.id, spot.device)
        if isinstance(marks, ChargeError):
            return Unpriced(marks.meter, marks.message), FREE
        return Answer.YES, Price(tuple(sorted(amounts.items())), marks)


MOST_REMEMBERED = 64
"""Needs for which a `Selectors` remembers traits; gangs of one shape have the same."""


def of(need: Need, selectors: Selectors) -> Traits:
    """Return the traits of a need: those made before, where there are any."""
    known = selectors.memory.pop(need, None) or Traits(need, selectors)
    selectors.memory[need] = known
    if len(selectors.memory) > MOST_REMEMBERED:
        del selectors.memory[next(iter(selectors.memory))]
    return known


def device_of(layout: Layout, at: int) -> DeviceId:
    """Return the device at a place of a layout."""
    return layout.spots[at].id
