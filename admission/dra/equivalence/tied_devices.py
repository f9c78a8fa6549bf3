"""How much of a node's free devices is of no use to claims that tie their devices together by `matchAttribute`.

Such a claim wants k devices of one value of an attribute: of one PCIe root (`resource.kubernetes.io/pcieRoot`), one
NUMA node, one NVLink domain or clique. The devices of a node with one value are a group. Where f_g devices of group g
are free, a claim can use floor(f_g / k) times k of them, so of no use to it are

    waste(k) = sum over groups g of f_g mod k

and the expected waste of a node is the sum of p · waste(k) over all kinds of such claims, p being the part of all
devices asked for that pods of this kind ask for: those that wait and run. That is the expected fragmentation of FGD
(Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 4) of these kinds; `stranded_devices` has that of all
others. A pod goes where both together grow the least, and where Muster picks the devices, it gives those with which the
expected waste grows the least.

A value that devices of several nodes share, as an NVLink domain over nodes, makes a group on each of them: in which
domain a gang has to be is what its topology says, not its claims. Devices that can be shared, and partitions, are in no
group. Devices of a group that the gang itself cannot use count as well: a root of four is whole for others, though its
selectors take two of it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

from admission.api.kubernetes.devices import DeviceId
from admission.dra.equivalence.device_signature import DeviceSignatures, Layout
from admission.dra.equivalence.usage_overlay import AllocatedOverlay
from admission.dra.inventory.selectors import Texts
from admission.dra.requests import kinds_of_use
from admission.dra.requests.kinds_of_use import KindsOfUse, Tie, Ties

NO_GROUP = -1

MOST_ROWS = 64
"""The most ways to group the devices of a layout that are kept."""


Division = tuple[tuple[int, ...], ...]
"""Per tie the group of each device of a node, as its contents show them, then those of free devices that they do not
show. Empty if no device is in a group."""


class _Groups(NamedTuple):
    """The groups of the devices of a layout, in order, and of others of its node that are in one of these groups."""

    of_listed: tuple[int, ...]
    of_others: tuple[tuple[int, DeviceId], ...]


class DeviceDivisions:
    """The groups of the devices of nodes, for some ties and the layouts of one need."""

    def __init__(self, kinds: KindsOfUse, device_signatures: DeviceSignatures) -> None:
        self.ties: Ties = tuple(kind for kind in kinds if isinstance(kind, Tie))
        self._device_signatures = device_signatures
        self._known: WeakKeyDictionary[Layout, dict[tuple[str, Texts], _Groups]] = device_signatures.divisions

    def of_node(self, layout: Layout, shown: Sequence[int], usage: AllocatedOverlay) -> Division:
        """Return the division of a node. shown: the places in its layout of the devices in its contents."""
        if not self.ties:
            return ()
        rows = self._known.setdefault(layout, {})
        if len(rows) > MOST_ROWS:
            rows.clear()
        found: list[tuple[int, ...]] = []
        free: list[bool] | None = None
        for tie in self.ties:
            key = (tie.attribute, tie.texts)
            if key not in rows:
                rows[key] = self._groups(layout, tie)
            row, others = rows[key]
            if not row:
                found.append(())
                continue
            if free is None:
                free = [not usage.is_taken(layout.listed_devices[at].id) for at in shown]
            own = tuple(row[at] if is_free else NO_GROUP for at, is_free in zip(shown, free, strict=True))
            found.append(own + tuple(group for group, device in others if not usage.is_taken(device)))
        return tuple(found) if any(found) else ()

    def _groups(self, layout: Layout, tie: Tie) -> _Groups:
        """Return the groups for a tie, numbered as they come; none if no device of the layout is in one."""
        lists = self._device_signatures.need.profile.features.list_attributes
        selected = self._device_signatures.selected(tie.texts, layout.node_inventory)
        values = {
            one.id: kinds_of_use.group_of(one.device, one.id.driver, tie.attribute, lists=lists) for one in selected
        }
        numbers: dict[object, int] = {}
        row: list[int] = []
        for listed in layout.listed_devices:
            value = values.pop(listed.id, None)
            row.append(NO_GROUP if value is None else numbers.setdefault(value, len(numbers)))
        if not numbers:
            return _Groups((), ())
        # Sorted by group, so that nodes that are divided alike are equal.
        others = sorted((numbers[value], device) for device, value in values.items() if value in numbers)
        return _Groups(tuple(row), tuple(others))


def waste(ties: Ties, division: Division, without: Iterable[int] = ()) -> int:
    """Return the expected waste of a node, in thousandths of devices. without: places of devices that are taken."""
    total, taken = 0, {*without}
    for tie, row in zip(ties, division, strict=bool(division)):
        free = Counter(group for at, group in enumerate(row) if group != NO_GROUP and at not in taken)
        total += tie.weight * sum(count % tie.devices for count in free.values())
    return total


def growth(ties: Ties, division: Division, taken: Iterable[int]) -> int:
    """Return how much more is wasted once the devices at these places are taken."""
    return waste(ties, division, taken) - waste(ties, division) if division else 0
