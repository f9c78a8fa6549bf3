"""What claims asked for of the memory of the devices that they had, by a meter of it, against what was in use.

The meter charges a claim for the memory that it asked for (`capacity`), in bytes. What is measured is a device, whose
memory all claims use that have it at that time. So the most in use is compared with what these asked for together. A
claim of several devices says only how much it asked for of all of them; their devices are not judged.

Claims outside queues are not in the books. Where one had a device as well, its memory counts as that of the others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncConnection

from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.ledger_entries import MeasuredUsage
from admission.api.values.names import MeterName, Uid
from admission.ledger.journal.base import Window
from admission.ledger.reports import allocation_intervals
from admission.ledger.reports.allocation_intervals import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """That a claim had a device for a time. asked: of its memory, in bytes; None if that is not known."""

    claim: Uid
    start: datetime
    end: datetime | None
    asked: int | None

    def meets(self, row: MeasuredUsage) -> bool:
        return self.start < row.end and (self.end is None or self.end > row.start)


class MemoryAsked:
    """What was asked for of the memory of each device in a time."""

    def __init__(self, shares: Mapping[DeviceId, Sequence[_Share]], devices: Mapping[Uid, DeviceId]) -> None:
        self._shares = shares
        self._devices = devices
        """By claim, its only device."""

    def over(self, row: MeasuredUsage) -> int | None:
        """Return by how many bytes the most in use exceeds what was asked for; 0 if it does not, None if not known."""
        device = self._devices.get(row.claim_uid)
        if row.memory_peak is None or device is None:
            return None
        asked = {share.claim: share.asked for share in self._shares[device] if share.meets(row)}
        known = [amount for amount in asked.values() if amount is not None]
        return max(0, row.memory_peak - sum(known)) if len(known) == len(asked) else None


async def read(
    connection: AsyncConnection, cluster: str, meter: MeterName, window: Window, progress: Progress
) -> MemoryAsked:
    """Return what was asked for in a time of whole seconds, by a meter. Raises as `allocation_intervals.between`."""
    shares: dict[DeviceId, list[_Share]] = {}
    devices: dict[Uid, DeviceId] = {}
    async for interval in allocation_intervals.between(connection, cluster, window, progress):
        holding = interval.holding
        given = {one.device for one in holding.devices}
        asked = holding.charge.get(meter) if len(given) == 1 else None
        for device in given:
            share = _Share(claim=holding.claim_uid, start=interval.start, end=interval.end, asked=asked)
            shares.setdefault(device, []).append(share)
            if asked is not None:
                devices[holding.claim_uid] = device
    return MemoryAsked(shares, devices)
