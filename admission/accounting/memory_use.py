"""Which gangs use more memory of shared devices than was asked for, by what was recorded beside the books.

A claim asks for memory where its allocation consumes a capacity of that name (`consumedCapacity`). What is measured is
the device, whose memory all of its claims use: it is compared with what they asked for together. A device that another
claim had as well, of which it is not known what it asked for, is not judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from admission.api.device_use.memory import MemoryExceeded
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.ledger_entries import Allocation, MeasuredUsage
from admission.api.values.names import GangUid, Uid

MEMORY = "memory"
"""The name of the capacity, with or without a domain before it."""

Asked = Mapping[Uid, Mapping[DeviceId, int | None]]
"""By allocated claim, in a queue or not, the memory of each of its devices that it asked for, in bytes; None if that is
not known."""


def asked(claims: Iterable[Claim]) -> Asked:
    """Return what claims have asked for."""
    found: dict[Uid, dict[DeviceId, int | None]] = {}
    for claim in claims:
        for one in claim.allocation.devices if claim.allocation is not None else ():
            of_claim = found.setdefault(claim.meta.uid, {})
            of_claim.setdefault(one.device, None)
            for name, amount in one.consumed.items():
                if name.rpartition("/")[2] == MEMORY:
                    before = of_claim[one.device] or 0
                    of_claim[one.device] = before + -(-amount.numerator // amount.denominator)
    return found


def exceeding(
    rows: Iterable[MeasuredUsage], allocations: Iterable[Allocation], known: Asked
) -> dict[GangUid, MemoryExceeded]:
    """Return the gangs of which more was in use than was asked for in a recorded time: of each the worst claim.

    rows, allocations: of this time. Claims that have a device now share it as well, also those of no queue.
    """
    sharers: dict[DeviceId, list[Uid]] = {}
    devices: dict[tuple[Uid, datetime], Sequence[DeviceId]] = {}
    for allocation in allocations:
        devices[allocation.claim_uid, allocation.start] = allocation.devices
        for device in allocation.devices:
            of_device = sharers.setdefault(device, [])
            if allocation.claim_uid not in of_device:
                of_device.append(allocation.claim_uid)
    for uid, of_claim in known.items():
        for device in of_claim.keys() & sharers.keys():
            if uid not in sharers[device]:
                sharers[device].append(uid)
    found: dict[GangUid, MemoryExceeded] = {}
    for row in rows:
        one = _exceeded(row, devices.get((row.claim_uid, row.start), ()), sharers, known)
        before = found.get(row.gang_uid)
        if one is not None and (before is None or before.peak - before.asked < one.peak - one.asked):
            found[row.gang_uid] = one
    return found


def _exceeded(
    row: MeasuredUsage, devices: Sequence[DeviceId], sharers: Mapping[DeviceId, Sequence[Uid]], known: Asked
) -> MemoryExceeded | None:
    """Return whether the peak of a row, which is on one of the devices, is more than was asked for of each of them."""
    if row.memory_peak is None or not devices or row.claim_uid not in known:
        return None
    together: list[tuple[int, int]] = []
    for device in devices:
        amounts = [known.get(claim, {}).get(device) for claim in sharers[device]]
        sure = [amount for amount in amounts if amount is not None]
        if len(sure) < len(amounts):
            return None
        together.append((sum(sure), len(sure)))
    most, count = max(together)
    if row.memory_peak <= most:
        return None
    return MemoryExceeded(
        claim=row.claim.rpartition("/")[2],
        sharers=count,
        asked=most,
        peak=row.memory_peak,
        start=row.start,
        end=row.end,
    )


class MemoryUse:
    """The gangs that use more than was asked for, as of the last recorded time. One per leader.

    Rule: `note` alone changes it, once a recorded time is read.
    """

    def __init__(self) -> None:
        self._gangs: Mapping[GangUid, MemoryExceeded] = {}
        self._until: datetime | None = None

    def note(self, gangs: Mapping[GangUid, MemoryExceeded], until: datetime) -> None:
        """Take over the gangs of a recorded time that ends at `until`."""
        self._gangs, self._until = gangs, until

    @property
    def is_known(self) -> bool:
        """Return whether a recorded time was read."""
        return self._until is not None

    def exceeding(self, since: datetime) -> Mapping[GangUid, MemoryExceeded]:
        """Return the gangs, if the last recorded time ends at `since` or later."""
        return self._gangs if self._until is not None and self._until >= since else {}
