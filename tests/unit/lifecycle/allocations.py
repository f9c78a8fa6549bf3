"""Allocations of the gang `train`, which its tests give to claims of a snapshot, and what is observed of them."""

from dataclasses import replace

from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.snapshot import Snapshot
from admission.dra.metering import device_meters
from admission.lifecycle.transitions import ObservedAllocations
from tests.builders import CLASS


def device(index: int) -> RequestDevice:
    return RequestDevice(request="gpus", device=DeviceId(CLASS, "a", f"gpu-{index}"))


def with_allocation(snapshot: Snapshot, claim: str, *devices: RequestDevice) -> Snapshot:
    found = snapshot.claims[claim]
    allocation = Allocation(devices=tuple(AllocatedDevice(given=given) for given in devices)) if devices else None
    return replace(snapshot, claims={**snapshot.claims, claim: replace(found, allocation=allocation)})


def observed_in(snapshot: Snapshot) -> ObservedAllocations:
    return ObservedAllocations.from_snapshot(snapshot, device_meters.compile_meters(snapshot.meters.values()))
