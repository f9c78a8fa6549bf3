"""The use of devices: what a claim makes unavailable to others, and the claim that holds it.

That is a device, a share of one or, under admin access, nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admission.api.kubernetes.claims import Allocation, ClaimSpec
from admission.api.kubernetes.devices import Device, DeviceId, RequestDevice
from admission.api.values.references import Kind, Referent
from admission.dra.compatibility import Features
from admission.dra.inventory import counters
from admission.dra.inventory.counters import Amount
from admission.dra.metering import device_meters
from admission.dra.requests import capacity

Share = Mapping[str, Amount] | None
"""What a share consumes of each capacity; None if it does not state it."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One device of a claim. shared: whether it is a share of the device. share: what the share consumes."""

    device: DeviceId
    shared: bool = False
    share: Share = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """The holder of a device: a claim, `namespace/name`, and the gang that pays for it (empty if not known)."""

    claim: str
    gang: str = ""

    def referent(self, devices: int = 0) -> Referent:
        """Return it as what a message refers to. devices: how many of those that the message is about it holds."""
        if not self.claim:
            return Referent(kind=Kind.GANG, key=self.gang, devices=devices)
        return Referent(kind=Kind.CLAIM, key=self.claim, gang=self.gang, devices=devices)


@dataclass(frozen=True, slots=True)
class Shared:
    """A share of a device: what it consumes, and its holder."""

    share: Share
    holder: Holder


def from_allocation(allocation: Allocation, features: Features) -> Iterable[DeviceUse]:
    """Yield the device uses of an allocation, as kube-scheduler counts them (`GatherAllocatedState`)."""
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
    """Yield the device uses of planned devices. spec: of the claim; None if the claim is deleted."""
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
