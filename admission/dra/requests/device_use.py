"""What a claim's devices make unavailable to others: a device, a share of one, or nothing, under admin access.

And who has it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admission.api.kubernetes.claims import Allocation, ClaimSpec
from admission.api.kubernetes.devices import Device, DeviceId, RequestDevice
from admission.dra.compatibility import Features
from admission.dra.inventory import counters
from admission.dra.inventory.counters import Amount
from admission.dra.metering import device_meters
from admission.dra.requests import capacity

Share = Mapping[str, Amount] | None
"""What a share consumes of each capacity; None where it does not say."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device of a claim. shared: whether it is a share. share: what that consumes."""

    device: DeviceId
    shared: bool = False
    share: Share = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a device: a claim, `namespace/name`, and the gang that it was planned for (empty when not known)."""

    claim: str
    gang: str = ""

    def __str__(self) -> str:
        return f"claim {self.claim}" + (f" of gang {self.gang}" if self.gang else "")


@dataclass(frozen=True, slots=True)
class Shared:
    """A share of a device: what it consumes of each capacity, if it says so, and who has it."""

    share: Share
    holder: Holder


def from_allocation(allocation: Allocation, features: Features) -> Iterable[DeviceUse]:
    """Yield what an allocation takes, as kube-scheduler counts it (`GatherAllocatedState`)."""
    for result in allocation.devices:
        if result.admin_access:
            continue
        if result.share_id and features.consumable_capacity:
            consumed = {name: counters.exact(amount) for name, amount in result.consumed.items()}
            yield DeviceUse(result.device, shared=True, share=consumed or None)
        else:
            yield DeviceUse(result.device)


def from_plan(
    given: Iterable[RequestDevice],
    spec: ClaimSpec | None,
    devices: Mapping[DeviceId, Device],
    features: Features,
) -> Iterable[DeviceUse]:
    """Yield what planned devices will take. spec: the claim's; None where the claim is gone, as are its requests."""
    options = device_meters.options_of(spec) if spec is not None else {}
    for entry in given:
        option = options.get(entry.request)
        if option is not None and option.admin_access:
            continue
        device = devices.get(entry.device)
        if device is None or not device.allows_multiple or not features.consumable_capacity:
            yield DeviceUse(entry.device)
            continue
        needs = tuple(sorted(((option.capacity if option is not None else None) or {}).items()))
        consumed = capacity.consumed(needs, device.capacity, fractional=features.fractional_ranges)
        yield DeviceUse(entry.device, shared=True, share=consumed or None if isinstance(consumed, dict) else None)
