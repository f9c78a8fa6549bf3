"""The attributes by which exporters know devices, from the ResourceSlices, also for a while after those are gone."""

from collections.abc import Mapping

from admission.api.kubernetes.devices import Device, DeviceId
from admission.api.snapshot import Snapshot, changed

UUID = "uuid"
"""The attribute that identifies a device to exporters, for drivers of which the settings name no other."""

MOST = 1_000_000
"""The most devices that are kept; of further ones nothing is known."""


def uuid_of(driver: str, device: Device, attributes: Mapping[str, str]) -> str:
    """Return the identifying attribute of a device; empty if it has none. attributes: its name, by driver."""
    name = attributes.get(driver, UUID)
    value = device.attributes.get(name, device.attributes.get(f"{driver}/{name}"))
    is_plain = isinstance(value, str | int) and not isinstance(value, bool)
    return str(value) if is_plain else ""


class DeviceUuids:
    """The UUIDs of the devices of successive snapshots. Only slices that changed are looked at again.

    Rule: `update` and `forget_gone` alone change it. A device that is gone is kept until `forget_gone`, so that what it
    did before can still be asked for.
    """

    def __init__(self, attributes: Mapping[str, str] | None = None) -> None:
        self._attributes = attributes or {}
        self._snapshot = Snapshot()
        self.by_device: dict[DeviceId, str] = {}

    def update(self, snapshot: Snapshot) -> None:
        """Take over the devices of a snapshot."""
        before, self._snapshot = self._snapshot, snapshot
        for key in changed(before.slices, snapshot.slices):
            if (slice_ := snapshot.slices.get(key)) is None:
                continue
            for device in slice_.devices:
                identity = DeviceId(slice_.driver, slice_.pool, device.name)
                uuid = uuid_of(slice_.driver, device, self._attributes)
                if uuid and (identity in self.by_device or len(self.by_device) < MOST):
                    self.by_device[identity] = uuid

    def forget_gone(self) -> None:
        """Forget the devices that no slice of the latest snapshot has."""
        present = {
            DeviceId(slice_.driver, slice_.pool, device.name)
            for slice_ in self._snapshot.slices.values()
            for device in slice_.devices
        }
        self.by_device = {device: uuid for device, uuid in self.by_device.items() if device in present}
