"""From samples of devices to what the devices of allocations did: sums of whole numbers, without rounding.

A sample is the mean, or the most, over a step that ends at its time. It counts for an allocation that held the device
during the whole step. In a step within which a device changes hands, whose work it did is not known.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from admission.api.kubernetes.devices import DeviceId
from admission.api.muster.ledger_entries import Allocation, MeasuredUsage
from admission.api.values.names import Uid


class Quantity(StrEnum):
    """What is measured of a device."""

    UTILIZATION = "utilization"
    """The share of the time in which it was in use; in samples, in millionths."""
    MEMORY = "memory"
    """In use, in bytes."""
    POWER = "power"
    """In samples, in milliwatts."""


ASKED = 2000
"""Devices whose samples are in memory at a time."""

Samples = Sequence[tuple[int, int]]
"""Pairs of the end of a step, in Unix seconds, and an amount."""


class _Sums:
    """What was measured of the devices of one allocation."""

    __slots__ = ("energy", "measured", "peak", "powered", "used")

    def __init__(self) -> None:
        self.measured = self.used = self.powered = self.energy = 0
        self.peak: int | None = None


class UsageTally:
    """Adds up samples, device after device. step: the seconds of each sample.

    uuids: of the devices of the allocations, as far as they are known. Only `add` changes it.
    """

    def __init__(self, allocations: Sequence[Allocation], uuids: Mapping[DeviceId, str], *, step: int) -> None:
        self._step = step
        self._allocations = allocations
        self._sums = [_Sums() for _ in allocations]
        self._holders: dict[tuple[str, str], list[int]] = {}
        """By driver and UUID, the allocations that held the device."""
        for number, allocation in enumerate(allocations):
            for device in allocation.devices:
                if uuid := uuids.get(device):
                    self._holders.setdefault((device.driver, uuid), []).append(number)

    def devices(self) -> Iterator[Mapping[str, Sequence[str]]]:
        """Yield the devices to ask for, the UUIDs by driver, some at a time, in a fixed order."""
        devices = sorted(self._holders)
        for start in range(0, len(devices), ASKED):
            some = itertools.groupby(devices[start : start + ASKED], lambda device: device[0])
            yield {driver: [uuid for _, uuid in of_driver] for driver, of_driver in some}

    def add(self, quantity: Quantity, samples: Mapping[tuple[str, str], Samples]) -> None:
        """Add samples by driver and UUID; of devices that nobody held they are ignored."""
        for key, of_device in samples.items():
            for number in self._holders.get(key, ()):
                allocation, sums = self._allocations[number], self._sums[number]
                first, last = int(allocation.start.timestamp()) + self._step, int(allocation.end.timestamp())
                amounts = [amount for end, amount in of_device if first <= end <= last]
                self._count(sums, quantity, amounts)

    def _count(self, sums: _Sums, quantity: Quantity, amounts: Sequence[int]) -> None:
        if not amounts:
            return
        match quantity:
            case Quantity.UTILIZATION:
                sums.measured += len(amounts) * self._step
                sums.used += sum(amounts) * self._step
            case Quantity.MEMORY:
                sums.peak = max(sums.peak or 0, *amounts)
            case Quantity.POWER:
                sums.powered += len(amounts) * self._step
                sums.energy += sum(amounts) * self._step

    def usage(self) -> list[MeasuredUsage]:
        """Return what each allocation did, in their order."""
        return [
            MeasuredUsage(
                queue=allocation.queue,
                gang_uid=allocation.gang_uid,
                gang=allocation.gang,
                user=allocation.user,
                claim_uid=allocation.claim_uid,
                claim=allocation.claim,
                start=allocation.start,
                end=allocation.end,
                devices=len(allocation.devices),
                measured_seconds=sums.measured,
                used_microseconds=sums.used if sums.measured else None,
                memory_peak=sums.peak,
                powered_seconds=sums.powered,
                energy=sums.energy if sums.powered else None,
            )
            for allocation, sums in zip(self._allocations, self._sums, strict=True)
        ]


class BusiestSteps:
    """Finds how busy the devices of allocations were together in the busiest of some steps, by what is known of each.

    Unlike `UsageTally`, it says nothing of what is missing: samples of the latest minutes may still come.
    after: Unix time; of the steps that end later. Only `add` changes it.
    """

    def __init__(self, allocations: Sequence[Allocation], uuids: Mapping[DeviceId, str], *, after: int) -> None:
        self._after = after
        self._steps: dict[tuple[Uid, int], tuple[int, int]] = {}
        """By claim and end of a step, the number and the sum of the samples."""
        self._claims: dict[tuple[str, str], list[Uid]] = {}
        for allocation in allocations:
            for device in allocation.devices:
                if uuid := uuids.get(device):
                    self._claims.setdefault((device.driver, uuid), []).append(allocation.claim_uid)

    def add(self, samples: Mapping[tuple[str, str], Samples]) -> None:
        """Add samples of the utilization by driver and UUID."""
        for key, of_device in samples.items():
            for claim in self._claims.get(key, ()):
                for end, amount in of_device:
                    if end > self._after:
                        count, total = self._steps.get((claim, end), (0, 0))
                        self._steps[claim, end] = count + 1, total + amount

    def percent(self) -> Mapping[Uid, int]:
        """Return for each claim of which a step is known the percentage in use, rounded down, in its busiest step."""
        found: dict[Uid, int] = {}
        for (claim, _), (count, total) in self._steps.items():
            found[claim] = max(found.get(claim, 0), total * 100 // (count * 1_000_000))
        return found
