"""The shared counters of a pool: their totals, and what each device draws.

Mirrors the counters of `allocator_incubating.go` and their checks in `pools_incubating.go` (v0.37.1). A counter is
identified by its set and its name. Amounts are exact: integers where they are whole.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from admission.api.kubernetes.devices import Device, DeviceId, Slice

Amount = int | Fraction
CounterId = tuple[str, str]
"""Counter set and counter."""

Draw = tuple[tuple[CounterId, Amount], ...]
"""What one device draws, in order of counters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedCounters:
    """The counters of one complete pool.

    totals: of every counter, in order. draws: by device; a name that is in several slices draws for each of them.
    devices: all of the pool. inexact: whether 1.36 adds up an amount of it wrongly.
    """

    totals: Mapping[CounterId, Amount]
    draws: Mapping[DeviceId, Draw]
    devices: frozenset[DeviceId]
    inexact: bool = False

    def available(self, in_use: Iterable[DeviceId]) -> tuple[Amount, ...]:
        """Return what is left of every counter, in order; negative if it is overdrawn."""
        left = dict(self.totals)
        for device in in_use:
            for counter, amount in self.draws.get(device, ()):
                left[counter] -= amount
        return tuple(left.values())


def build(slices: Sequence[Slice]) -> SharedCounters | str | None:
    """Return the counters of a complete pool; None if it has none, or a message about what is wrong with them."""
    totals: dict[CounterId, Amount] = {}
    sets: set[str] = set()
    for slice_ in slices:
        for name, counters in slice_.counters.items():
            if name in sets:
                return f"counter set {name} is there twice"
            sets.add(name)
            totals.update({(name, counter): exact(amount) for counter, amount in counters.items()})
    draws: dict[DeviceId, Draw] = {}
    for slice_ in slices:
        if slice_.counters:
            continue
        for device in slice_.devices:
            if problem := _unknown(device, sets, totals):
                return problem
            if device.consumes:
                known = DeviceId(slice_.driver, slice_.pool, device.name)
                draws[known] = _sum((*draws.get(known, ()), *drawn(device)))
    if not sets:
        return None
    return SharedCounters(
        totals=dict(sorted(totals.items())),
        draws=draws,
        devices=frozenset(DeviceId(s.driver, s.pool, device.name) for s in slices for device in s.devices),
        inexact=any(slice_.inexact for slice_ in slices),
    )


def drawn(device: Device) -> Draw:
    """Return what a device draws; entries for one counter are added up."""
    return _sum(
        ((use.counter_set, counter), exact(amount))
        for use in device.consumes
        for counter, amount in use.counters.items()
    )


def by_family(draw: Draw) -> dict[str, Amount]:
    """Return the amount drawn from every family of counters: those whose names differ only in a number at the end."""
    total: dict[str, Amount] = {}
    for (_, name), amount in draw:
        family = name.rstrip("0123456789")
        total[family] = total.get(family, 0) + amount
    return total


def part(draw: Draw, totals: Draw) -> Fraction:
    """Return which part of a partitionable device is drawn: of the family of counters of which it is the most.

    totals: of its counters.
    """
    whole, drawn_by_family = by_family(totals), by_family(draw)
    parts = (Fraction(amount) / whole[name] for name, amount in drawn_by_family.items() if whole.get(name))
    return max(parts, default=Fraction(0))


def exact(amount: Fraction) -> Amount:
    """Return a whole amount as an integer, which is equal and compares faster."""
    return amount.numerator if amount.denominator == 1 else amount


def _sum(parts: Iterable[tuple[CounterId, Amount]]) -> Draw:
    total: dict[CounterId, Amount] = {}
    for counter, amount in parts:
        total[counter] = total.get(counter, 0) + amount
    return tuple(sorted(total.items()))


def _unknown(device: Device, sets: set[str], totals: Mapping[CounterId, Amount]) -> str | None:
    for use in device.consumes:
        if use.counter_set not in sets:
            return f"device {device.name} draws from counter set {use.counter_set}, which is not there"
        for counter in use.counters:
            if (use.counter_set, counter) not in totals:
                return f"device {device.name} draws from counter {use.counter_set}/{counter}, which is not there"
    return None
