"""The signature of a device: all that a search reads of it.

Two devices with equal signatures are interchangeable for everything that a gang requests, so the search tries one of
them. Without that, a request that is one device short would make it try every subset.
"""

from collections.abc import Container, Hashable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

from admission.api.kubernetes.devices import Device, DeviceId, NodeResource, Slice
from admission.api.values.names import MeterName
from admission.api.values.selectors import first_untolerated
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory import counters
from admission.dra.inventory.counters import Amount, Draw
from admission.dra.inventory.pools import InventoryDevice, NodeInventory, Pool
from admission.dra.inventory.selectors import Selectors, Texts
from admission.dra.metering import device_meters
from admission.dra.metering.device_meters import ChargeError, Consumed, Mark, Meters
from admission.dra.requests import capacity, constraints
from admission.dra.requests.capacity import Unfit, Unrepresentable
from admission.dra.requests.constraints import Value
from admission.dra.requests.requests import Fatal, ParsedRequest, RequestRefusal, Unpriced


class Answer(Enum):
    """Whether a device matches a request."""

    NO = "no"
    YES = "yes"
    TAINTED = "tainted"
    """Selected, but a taint is not tolerated, or it draws from counters while their gate is off: never given, though
    mode All requires it."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a device for a request, and the marks by which it makes its claim count."""

    amounts: tuple[tuple[MeterName, int], ...] = ()
    marks: frozenset[Mark] = frozenset()


FREE = Price()


@dataclass(frozen=True, slots=True)
class DeviceSignature:
    """All that a gang's search reads of a device that is not in use.

    answers: per request; a refusal stops the search that meets it. values: per compared attribute. prices: per request.
    shared: whether several claims may have shares of it. room: its consumable capacities. takes: per request, what it
    consumes of them. draw: what the device draws from its pool's counters; empty if it names a set and no counter of
    it; None if it draws nothing. evicting: the requests that match the device, but whose pods are deleted because of
    its taint. node_resources: what the device takes of its node.
    """

    answers: tuple[Answer | RequestRefusal, ...]
    values: tuple[Value | None, ...]
    prices: tuple[Price, ...]
    shared: bool = False
    room: tuple[tuple[str, Amount], ...] = ()
    takes: tuple[tuple[Amount, ...], ...] = ()
    draw: Draw | None = None
    evicting: frozenset[int] = frozenset()
    node_resources: tuple[NodeResource, ...] = ()
    inexact: bool = False
    """Whether 1.36 adds up wrongly what its shares consume."""

    def consumed(self, parsed: int) -> dict[str, Amount]:
        """Return what a share for a request consumes of each capacity; empty if the device is not shared."""
        if not self.shared or not self.takes:
            return {}
        return {name: amount for (name, _), amount in zip(self.room, self.takes[parsed], strict=True)}


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """The devices of one pool that match a gang's requests, in order; nodes that see the same share the object.

    numbers: of their signatures. local: whether no other node can see any of them.
    """

    pool: Pool
    listed_devices: tuple[InventoryDevice, ...]
    numbers: tuple[int, ...]
    local: bool


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Layout:
    """The devices of one node that match a gang's requests, in order.

    node_inventory: the one it was built from, kept so that no other object takes its id. parts: by pool, each with its
    index in `drawn`, -1 for none. drawn: the pools whose matching devices draw counters. fixed: whether no other node
    sees any of the devices, so that nothing that happens elsewhere changes them.
    """

    node_inventory: NodeInventory
    parts: tuple[tuple[Segment, int], ...] = ()
    drawn: tuple[Pool, ...] = ()
    fixed: bool = True

    @property
    def listed_devices(self) -> tuple[InventoryDevice, ...]:
        """Return the devices of all pools, in order."""
        if len(self.parts) == 1:
            return self.parts[0][0].listed_devices
        return tuple(listed for segment, _ in self.parts for listed in segment.listed_devices)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return the numbers of the devices' signatures, in the same order."""
        if len(self.parts) == 1:
            return self.parts[0][0].numbers
        return tuple(number for segment, _ in self.parts for number in segment.numbers)


@dataclass(frozen=True, slots=True)
class Need:
    """All that signatures depend on beside the devices: requests, compared attributes, meters and profile."""

    parsed_requests: tuple[ParsedRequest, ...]
    attributes: tuple[str, ...] = ()
    meters: Meters = device_meters.NONE
    profile: SchedulerProfile = SchedulerProfile()  # noqa: RUF009 - frozen


class DeviceSignatures:
    """The device signatures of one need, by number, and the layouts of nodes."""

    def __init__(self, need: Need, selectors: Selectors) -> None:
        self.need = need
        self.known: list[DeviceSignature] = []
        self.parsed_requests = {parsed: at for at, parsed in enumerate(need.parsed_requests)}
        self.attributes = {name: at for at, name in enumerate(need.attributes)}
        self._selectors = selectors
        self._numbers: dict[DeviceSignature, int] = {}
        self._sorted: dict[Hashable, int | None] = {}
        self._failing: set[DeviceId] = set()
        self._by_device = any(
            not need.meters.certain(name, parsed.device_class)
            for name in need.meters.meters
            for parsed in need.parsed_requests
        )
        self._segments: dict[int, Segment] = {}
        self._layouts: dict[int, Layout] = {}
        self._interned: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.signature_caches: dict[Any, Any] = {}
        """The `NodeSignatureCache`s of this need. Rule: only `node_signature.build` writes it."""
        self.candidate_nodes: dict[Any, Any] = {}
        """The `CandidateNodes` of this need. Rule: only `candidate_nodes.count` writes it, and bounds its size."""
        self.divisions: WeakKeyDictionary[Layout, Any] = WeakKeyDictionary()
        """The groups of the devices of layouts. Rule: only `tied_devices` writes it, and bounds its size."""
        self.selected_devices: WeakKeyDictionary[Layout, Any] = WeakKeyDictionary()
        """Which devices of layouts texts select. Rule: only `selected_devices` writes it, and bounds its size."""

    def layout(self, node_inventory: NodeInventory) -> Layout:
        """Return the devices that a node sees, without those that match no request."""
        known = self._layouts.get(id(node_inventory))
        if known is None:
            known = self._layouts[id(node_inventory)] = self._build_layout(node_inventory)
        return known

    @property
    def is_full(self) -> bool:
        """Return whether too many sorts of devices are kept, so that a new object is better."""
        return len(self._sorted) > MOST_SORTS

    def may_serve(self, pool: Pool) -> bool:
        """Return whether a pool may have a matching device: one matches, or none is known."""
        return not pool.listed_devices or bool(self._segment(pool).listed_devices)

    def selected(self, texts: Texts, node_inventory: NodeInventory) -> list[InventoryDevice]:
        """Return the devices that a node sees and texts select, in order; for explanations, of texts of no request."""
        return [
            listed
            for pool in node_inventory.seen(self.need.profile.known_bugs)
            if pool.serves
            for slice_, listed_devices in _by_slice(pool.listed_devices)
            for column in (self._selectors.column(texts, slice_),)
            for listed in listed_devices
            if column.yes >> listed.at & 1 and listed.reachable
        ]

    def selecting(self, texts: Texts, layout: Layout) -> int:
        """Return which devices of a layout texts select, as a bitset of their places; partitions are left out."""
        return sum(
            (self._selectors.column(texts, one.slice).yes >> one.at & 1) << place
            for place, one in enumerate(layout.listed_devices)
            if one.reachable and not one.device.consumes
        )

    def keep(self, node_inventories: Container[int]) -> None:
        """Forget the layouts of all but these node inventories, by identity."""
        self._layouts = {key: known for key, known in self._layouts.items() if key in node_inventories}
        known_bugs = self.need.profile.known_bugs
        alive = {id(pool) for layout in self._layouts.values() for pool in layout.node_inventory.seen(known_bugs)}
        self._segments = {key: known for key, known in self._segments.items() if key in alive}

    def _build_layout(self, node_inventory: NodeInventory) -> Layout:
        pools = [pool for pool in node_inventory.seen(self.need.profile.known_bugs) if pool.serves]
        segments = [found for pool in pools if (found := self._segment(pool)).listed_devices]
        drawn = [segment.pool for segment in segments if self._draws(segment)]
        places = {id(pool): at for at, pool in enumerate(drawn)}
        return Layout(
            node_inventory=node_inventory,
            parts=tuple((segment, places.get(id(segment.pool), -1)) for segment in segments),
            drawn=tuple(drawn),
            fixed=all(segment.local for segment in segments),
        )

    def _draws(self, segment: Segment) -> bool:
        return segment.pool.counter_set is not None and any(self.known[n].draw is not None for n in segment.numbers)

    def _segment(self, pool: Pool) -> Segment:
        known = self._segments.get(id(pool))
        if known is None:
            numbered = [
                pair
                for slice_, listed_devices in _by_slice(pool.listed_devices)
                for pair in self._numbered(slice_, listed_devices)
            ]
            listed_devices, numbers = tuple(listed for listed, _ in numbered), tuple(number for _, number in numbered)
            known = Segment(
                pool=pool,
                listed_devices=pool.listed_devices
                if len(listed_devices) == len(pool.listed_devices)
                else listed_devices,
                # Equal tuples are one object, which saves memory.
                numbers=self._interned.setdefault(numbers, numbers),
                local=all(listed.local for listed in pool.listed_devices),
            )
            if not known.local:
                # Other nodes see the same pool.
                self._segments[id(pool)] = known
        return known

    def _numbered(
        self, slice_: Slice, listed_devices: Sequence[InventoryDevice]
    ) -> Iterator[tuple[InventoryDevice, int]]:
        """Yield the devices of one slice that match some request, with their signatures' numbers."""
        columns = [self._selectors.column(parsed.texts, slice_) for parsed in self.need.parsed_requests]
        wanted = 0
        for column in columns:
            wanted |= column.yes | column.bad
        everyone = (1 << len(slice_.devices)) - 1
        # Mostly selectors give the same answer for all devices of a slice.
        uniform = all(not column.bad and column.yes in (0, everyone) for column in columns)
        equal = tuple(1 if column.yes else 0 for column in columns) if uniform else None
        for listed in listed_devices:
            if not wanted >> listed.at & 1:
                continue
            bits = equal or tuple((c.yes >> listed.at & 1) | (c.bad >> listed.at & 1) << 1 for c in columns)
            number = self._number(listed, bits)
            if number is not None:
                yield listed, number

    def _number(self, listed: InventoryDevice, bits: tuple[int, ...]) -> int | None:
        """Return the number of a signature; None if it matches no request. bits: per request, 1: yes, 2: error."""
        key: Hashable = (bits, listed.reachable, self._sort(listed))
        if max(bits) > 1 and len(self._failing) < MOST_NAMED:
            # An error names its device: the first ones their own, others one that fails in the same way.
            self._failing.add(listed.id)
            key = (key, listed.id)
        if key not in self._sorted:
            self._sorted[key] = self._signature_from_bits(listed, bits)
        return self._sorted[key]

    def _sort(self, listed: InventoryDevice) -> Hashable:
        """Return all that a signature depends on beside selectors; the device itself if meters evaluate each device."""
        device = listed.device
        if self._by_device:
            return listed.id
        if not (
            self.need.attributes
            or device.capacity
            or device.consumes
            or device.taints
            or device.binding_conditions
            or device.allows_multiple
            or device.node_resources
        ):
            return None
        values = tuple(constraints.attribute_of(device, listed.id.driver, name) for name in self.need.attributes)
        capacity = tuple((name, one.text, one.policy, one.inexact) for name, one in device.capacity.items())
        draw = counters.drawn(device) if device.consumes else None
        conditions = bool(device.binding_conditions)
        return (values, capacity, draw, device.taints, conditions, device.allows_multiple, device.node_resources)

    def _signature_from_bits(self, listed: InventoryDevice, bits: tuple[int, ...]) -> int | None:
        answers = [
            self._selected(parsed, listed, bit) for parsed, bit in zip(self.need.parsed_requests, bits, strict=True)
        ]
        if all(answer is Answer.NO for answer in answers):
            return None
        signature = self._signature(answers, listed)
        number = self._numbers.get(signature)
        if number is None:
            number = self._numbers[signature] = len(self.known)
            self.known.append(signature)
        return number

    def _selected(self, parsed: ParsedRequest, listed: InventoryDevice, bit: int) -> Answer | RequestRefusal:
        """Return the answer by selectors and by the device's node, checked in kube-scheduler's order."""
        if listed.device.binding_conditions and not self.need.profile.features.binding_conditions:
            return Answer.NO
        if bit > 1:
            return Fatal(self._selectors.error(parsed.texts, listed.slice, listed.at), device=str(listed.id))
        return Answer.YES if bit and listed.reachable else Answer.NO

    def _signature(self, answers: list[Answer | RequestRefusal], listed: InventoryDevice) -> DeviceSignature:
        device, features = listed.device, self.need.profile.features
        prices = [FREE] * len(answers)
        taken: list[dict[str, Amount]] = [{}] * len(answers)
        for at, parsed in enumerate(self.need.parsed_requests):
            if answers[at] is Answer.YES:
                answers[at], taken[at] = self._consumption(parsed, listed)
            if answers[at] is Answer.YES and self._barred(parsed, device):
                answers[at] = Answer.TAINTED
            elif answers[at] is Answer.YES:
                answers[at], prices[at] = self._priced(parsed, listed, taken[at] if device.allows_multiple else None)
        names = sorted(device.capacity) if features.consumable_capacity else []
        return DeviceSignature(
            answers=tuple(answers),
            values=tuple(
                constraints.value_of(device, listed.id.driver, name, lists=features.list_attributes)
                for name in self.need.attributes
            ),
            prices=tuple(prices),
            shared=device.allows_multiple and features.consumable_capacity,
            room=tuple((name, counters.exact(device.capacity[name].value)) for name in names),
            takes=tuple(tuple(amounts.get(name, 0) for name in names) for amounts in taken) if names else (),
            draw=counters.drawn(device) if device.consumes else None,
            evicting=frozenset(
                at
                for at, parsed in enumerate(self.need.parsed_requests)
                if features.taints and _is_evicted(parsed, device)
            ),
            node_resources=device.node_resources,
            inexact=device.allows_multiple and any(capacity.inexact for capacity in device.capacity.values()),
        )

    def _consumption(
        self, parsed: ParsedRequest, listed: InventoryDevice
    ) -> tuple[Answer | RequestRefusal, dict[str, Amount]]:
        """Return the answer by capacity, as if nothing of the device were in use, and what would be consumed."""
        features = self.need.profile.features
        if not features.consumable_capacity or not listed.device.capacity:
            return (Answer.YES if not parsed.needs else Answer.NO), {}
        amounts = capacity.consumed(parsed.needs, listed.device.capacity, fractional=features.fractional_ranges)
        if isinstance(amounts, Unrepresentable):
            if self.need.profile.release.before_1_37:
                return Answer.NO, {}
            error = f"class {parsed.device_class} on device {listed.id}: {amounts.message}"
            return Fatal(error, device=str(listed.id)), {}
        if isinstance(amounts, Unfit):
            return Answer.NO, {}
        return Answer.YES, amounts

    def _barred(self, parsed: ParsedRequest, device: Device) -> bool:
        features = self.need.profile.features
        if device.consumes and not features.partitionable:
            return True
        return features.taints and first_untolerated(device.taints, parsed.tolerations) is not None

    def _priced(
        self, parsed: ParsedRequest, listed: InventoryDevice, consumed: Consumed
    ) -> tuple[Answer | RequestRefusal, Price]:
        amounts = device_meters.price(self.need.meters, parsed.device_class, listed.id, listed.device, consumed)
        if isinstance(amounts, ChargeError):
            return Unpriced(amounts.meter, amounts.message), FREE
        marks = device_meters.marks(self.need.meters, parsed.device_class, listed.id, listed.device)
        if isinstance(marks, ChargeError):
            return Unpriced(marks.meter, marks.message), FREE
        return Answer.YES, Price(tuple(sorted(amounts.items())), marks)


def _is_evicted(parsed: ParsedRequest, device: Device) -> bool:
    """Return whether a pod with the device is deleted because of a taint, though its claim tolerates the taint.

    The eviction controller (pkg/controller/devicetainteviction, 1.36 and 1.37) respects only tolerations that name the
    effect NoExecute, and those with tolerationSeconds only for that long.
    """
    for taint in device.taints:
        if taint.effect == "NoExecute":
            heeded = (t for t in parsed.tolerations if t.effect == "NoExecute" and t.tolerates(taint))
            if not any(toleration.seconds is None for toleration in heeded):
                return True
    return False


def _by_slice(listed_devices: Sequence[InventoryDevice]) -> Iterator[tuple[Slice, list[InventoryDevice]]]:
    """Yield the devices of each slice, in order."""
    for _, found in groupby(listed_devices, key=lambda listed: id(listed.slice)):
        group = list(found)
        yield group[0].slice, group


MOST_NAMED = 64
"""The most devices with a failing selector whose own name is in the error; each is a sort of its own."""

MOST_SORTS = 200_000
"""The most sorts of devices that one need keeps, deleted devices included."""

MOST_REMEMBERED = 48
"""The most needs for which a `Selectors` keeps signatures; gangs of one shape have the same need."""


def build(need: Need, selectors: Selectors) -> DeviceSignatures:
    """Return the signatures of a need, those made before if there are any."""
    known: DeviceSignatures | None = selectors.signatures.pop(need, None)
    if known is None or known.is_full:
        known = DeviceSignatures(need, selectors)
    selectors.signatures[need] = known
    if len(selectors.signatures) > MOST_REMEMBERED:
        del selectors.signatures[next(iter(selectors.signatures))]
    return known
