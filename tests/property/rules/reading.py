"""A record, read: what of it decides which devices a request may have."""

from tests.property.rules import amounts, pools, records
from tests.property.rules.records import Ask, Device, Json, Setting


class World:
    """A record, read for one release of Kubernetes: 36 or 37."""

    def __init__(self, record: Json, release: int) -> None:
        self.record = record
        self.setting = Setting(release, record["features"], record["node"])
        self.release = release
        self.features = self.setting.features
        self.node = self.setting.node
        self.classes = {each["metadata"]["name"]: each for each in record["classes"]}
        self.taken = {records.key(each) for each in record["allocated"]}
        self.with_shares = {records.key(each) for each in record["sharedDevices"]}
        self.consumed = {records.key(each): amounts.read_all(each["capacity"]) for each in record["consumedCapacity"]}
        self.pools = pools.of(self.setting, record["slices"])
        self.parsed_requests = [_asks(at, claim) for at, claim in enumerate(record["claims"])]
        self.unselected: dict[tuple[Ask, Device], str] = {}
        """Why a request's or its class' selectors do not take a device, as far as `selecting` was asked."""

    def candidates(self) -> list[Device]:
        """List the devices of which some might be taken."""
        return [device for pool in self.pools.values() if not pool.wrong for device in pool.devices]

    def may_be_shared(self, device: Device) -> bool:
        """Whether several claims may have the device."""
        return device.is_shared and self.features["ConsumableCapacity"]


def _asks(claim: int, obj: Json) -> list[list[Ask]]:
    """List the alternatives of each request: one, or those of firstAvailable."""
    found = []
    for request in obj["spec"].get("devices", {}).get("requests") or ():
        name = request["name"]
        choices = request.get("firstAvailable") or ()
        found.append(
            [Ask(claim, name, f"{name}/{each['name']}", each) for each in choices]
            or [Ask(claim, name, name, request["exactly"])]
        )
    return found
