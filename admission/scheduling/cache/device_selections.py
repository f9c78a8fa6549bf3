"""How much each set of selectors asks for beside what it may have: weights for `dra.equivalence.selected_devices`.

It follows the slices: only those that changed are read again, unless the sets of selectors are others. Partitions are
left out, as there. Drivers are looked at one by one, since nobody asks for a network card in place of a GPU: a set of
selectors belongs to the driver of which it selects the most devices.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from admission.api.kubernetes.devices import Slice
from admission.api.snapshot import changed
from admission.dra.inventory.selectors import Selectors, Texts
from admission.dra.requests import kinds_of_use
from admission.dra.requests.kinds_of_use import Selection


class _Selected(NamedTuple):
    """How many devices of a slice some sets of texts select, each, and any of them."""

    driver: str
    each: tuple[int, ...]
    any: int


class DeviceSelections:
    """The counts of one cluster. Only `weights` changes it."""

    def __init__(self) -> None:
        self._texts: tuple[Texts, ...] = ()
        self._slices: Mapping[str, Slice] = {}
        self._by_slice: dict[str, _Selected] = {}
        self._each: Counter[tuple[str, int]] = Counter()
        """By driver and place of a set of texts."""
        self._any: Counter[str] = Counter()

    def weights(
        self, asked: Mapping[Texts, Fraction], slices: Mapping[str, Slice], selectors: Selectors
    ) -> tuple[Selection, ...]:
        """Return the sets of texts that ask for the most, with their weights; empty if none makes a difference.

        asked: for how many devices each asks.
        """
        most = sorted(asked, key=lambda texts: (-asked[texts], texts))[: kinds_of_use.MOST_SELECTIONS]
        if len(most) <= 1:
            # All ask for the same devices.
            return ()
        self._read(tuple(sorted(most)), slices, selectors)
        drivers = {at: self._driver(at) for at in range(len(self._texts)) if self._supply(at)}
        sums: defaultdict[str, Fraction] = defaultdict(Fraction)
        for at, driver in drivers.items():
            sums[driver] += asked[self._texts[at]]
        found: list[Selection] = []
        for at, driver in drivers.items():
            texts = self._texts[at]
            weight = round(kinds_of_use.EVEN * asked[texts] * self._any[driver] / (sums[driver] * self._supply(at)))
            if weight:
                found.append(Selection(texts, weight))
        # Where they add up to no more, no device of a driver is in more demand than others.
        return tuple(found) if sum(one.weight for one in found) > kinds_of_use.EVEN * len(sums) else ()

    def _supply(self, at: int) -> int:
        """Return how many devices a set of texts selects."""
        return sum(self._each[driver, at] for driver in self._any)

    def _driver(self, at: int) -> str:
        """Return the driver of which a set of texts selects the most devices."""
        return max(sorted(self._any), key=lambda driver: self._each[driver, at], default="")

    def _read(self, texts: tuple[Texts, ...], slices: Mapping[str, Slice], selectors: Selectors) -> None:
        if texts != self._texts:
            self._texts, self._slices, self._by_slice = texts, {}, {}
            self._each, self._any = Counter(), Counter()
        for key in changed(self._slices, slices):
            one = slices.get(key)
            before, after = self._by_slice.pop(key, None), None if one is None else self._selected(one, selectors)
            for found, sign in ((before, -1), (after, 1)):
                if found is not None:
                    self._any[found.driver] += sign * found.any
                    for at, count in enumerate(found.each):
                        self._each[found.driver, at] += sign * count
            if after is not None:
                self._by_slice[key] = after
        self._slices = slices

    def _selected(self, slice_: Slice, selectors: Selectors) -> _Selected:
        whole = sum(1 << at for at, device in enumerate(slice_.devices) if not device.consumes)
        columns = [selectors.column(texts, slice_).yes & whole for texts in self._texts]
        together = 0
        for column in columns:
            together |= column
        return _Selected(slice_.driver, tuple(column.bit_count() for column in columns), together.bit_count())
