"""The shared counters of a node while a pod's devices are being chosen.

Mirrors `checkAvailableCounters` of `structured/internal/incubating/allocator_incubating.go` (v0.37.1, and v0.36.3 by
its known bugs): a device may be taken only while no counter of its pool is overdrawn, also one that it does not draw
from.
"""

from collections.abc import Hashable, Sequence

from admission.dra.compatibility import KnownBugs
from admission.dra.equivalence.node_contents import DeviceGroup, LeftCapacity
from admission.dra.inventory.counters import Amount, CounterId


class Counters:
    """What is available in every pool, and what the devices chosen so far draw.

    mixed: whether kube-scheduler confuses pools of the same name, so that the order of devices matters.
    """

    def __init__(self, counter_sets: Sequence[LeftCapacity], known_bugs: KnownBugs) -> None:
        self._counter_sets = counter_sets
        self._known_bugs = known_bugs
        self._available: dict[int, dict[CounterId, Amount] | None] = {}
        self._drawn: dict[int, dict[CounterId, Amount]] = {}
        self.mixed = known_bugs.counters_by_pool_name and any(
            left.same_named != at for at, left in enumerate(counter_sets)
        )

    def draw(self, unit: DeviceGroup) -> bool:
        """Draw what a device needs; return False and change nothing if there is not enough."""
        place = self._place(unit)
        if place not in self._available:
            # Where pools are confused, all pools of one name use the counters of the one drawn from first.
            self._available[place] = self._counted(self._counter_sets[unit.counter_set])
            self._drawn[place] = {}
        available, drawn = self._available[place], self._drawn[place]
        if available is None:
            return False
        draw = unit.signature.draw or ()
        for counter, amount in draw:
            if counter in available and available[counter] < drawn.get(counter, 0) + amount:
                return False
        for counter, amount in draw:
            drawn[counter] = drawn.get(counter, 0) + amount
        return True

    def put_back(self, unit: DeviceGroup) -> None:
        """Give back what a device drew."""
        drawn = self._drawn[self._place(unit)]
        for counter, amount in unit.signature.draw or ():
            drawn[counter] -= amount

    def state(self) -> Hashable:
        """Return what is drawn."""
        return frozenset(
            (place, counter, amount)
            for place, counters in self._drawn.items()
            for counter, amount in counters.items()
            if amount
        )

    def _counted(self, left: LeftCapacity) -> dict[CounterId, Amount] | None:
        """Return what is available of every counter; None if the pool is overdrawn or a device of it vanished."""
        if any(amount < 0 for amount in left.available) or (left.vanished and not self._known_bugs.vanished_are_free):
            return None
        return dict(zip(left.counters, left.available, strict=True))

    def _place(self, unit: DeviceGroup) -> int:
        return (
            self._counter_sets[unit.counter_set].same_named
            if self._known_bugs.counters_by_pool_name
            else unit.counter_set
        )
