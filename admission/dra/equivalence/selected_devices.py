"""How much more than others the devices of a node are asked for, where requests select devices by class and selectors.

Requests that name a model, by a device class or a selector of their own, can use some nodes only. Each set m of CEL
texts is a kind of use; p_m is its part of all devices that pods ask for, those that wait and run, S_m is how many
devices its texts select, and D how many any kind selects. FGD (Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 4) takes all that is free on a node for fragments of the kinds that can use none of its devices, so that it
costs

    k · sum of p_m over the kinds m that can use the node

to place k devices there, but for what is the same on all nodes. By that, whoever could use any model goes where the
fewest ask, however many devices there are of what they ask for. Here each kind counts by what it asks for of each
device that it may have:

    demand(n) = sum of p_m · D / S_m over the kinds m that can use node n

which is 1 in the mean over all devices, and on each of them where all models are named as often as there are devices of
them. What others lose with k devices of the node is k · min(1, max(0, demand(n) - 1)), in the same unit as what is
stranded and wasted there (`stranded_devices`, `tied_devices`); a pod goes where the sum grows the least. The excess is
rounded down to an eighth: what is less is chance, and would keep nodes apart that are equal. On the trace of that paper
this gives away more than p_m alone (docs/measurements.md).

The demand of a node is that of the device that is in most demand, of those that the pod could use, in use or not:
network cards of a node do not count for a pod that asks for a GPU. That follows from the slices alone. Partitions are
left out: which cards are for them is looked at first (`planner.node_order`).
"""

from weakref import WeakKeyDictionary

from admission.dra.equivalence.device_signature import DeviceSignatures, Layout
from admission.dra.inventory.selectors import Texts
from admission.dra.requests import kinds_of_use
from admission.dra.requests.kinds_of_use import KindsOfUse, Selection

EIGHTHS = 8
"""An excess that takes all of a device from others."""

MOST_TEXTS = 64
"""The most sets of texts of which it is kept which devices of a layout they select."""


class DeviceDemand:
    """By how much the devices of nodes are in more demand than others, for the layouts of one need."""

    def __init__(self, kinds: KindsOfUse, device_signatures: DeviceSignatures) -> None:
        self._selections = tuple(kind for kind in kinds if isinstance(kind, Selection))
        self._device_signatures = device_signatures
        self._known: WeakKeyDictionary[Layout, dict[Texts, int]] = device_signatures.selected_devices
        self._excesses: WeakKeyDictionary[Layout, int] = WeakKeyDictionary()

    def excess(self, layout: Layout) -> int:
        """Return what others lose with each device of a node, in eighths of a device."""
        if not self._selections:
            return 0
        excess = self._excesses.get(layout)
        if excess is None:
            above = (self._most(layout) - kinds_of_use.EVEN) * EIGHTHS // kinds_of_use.EVEN
            excess = self._excesses[layout] = min(EIGHTHS, max(0, above))
        return excess

    def _most(self, layout: Layout) -> int:
        """Return the demand of the device that is in most demand."""
        known = self._known.setdefault(layout, {})
        if len(known) > MOST_TEXTS:
            known.clear()
        for texts, _ in self._selections:
            if texts not in known:
                known[texts] = self._device_signatures.selecting(texts, layout)
        found = [(known[texts], weight) for texts, weight in self._selections if known[texts]]
        if len({places for places, _ in found}) <= 1:
            return sum(weight for _, weight in found)
        places = range(len(layout.listed_devices))
        return max(sum(weight for selected, weight in found if selected >> at & 1) for at in places)


def growth(excess: int, taken: int) -> int:
    """Return how much others lose, in thousandths of devices. taken: by a pod, in these."""
    return excess * taken // EIGHTHS
