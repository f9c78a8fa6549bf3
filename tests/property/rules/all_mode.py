"""Which devices the mode All stands for."""

from tests.property.rules import amounts, capacities, pools, selecting
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Device, Use


def blocked(world: World) -> str:
    """Say which pool keeps the mode All from being served; empty if none does."""
    return next((pool.wrong for pool in world.pools.values() if pool.wrong), "")


def wanted(world: World, ask: Ask) -> list[Device]:
    """List what mode All means: every device that matches, in use or not.

    A shared device that cannot hold such a request does not match; 1.36 also leaves out one that is too full for it.
    """
    return [
        device
        for device in world.candidates()
        if not selecting.unselected(world, ask, device)
        and not (device.slice["spec"].get("perDeviceNodeSelection") and not pools.is_for(device.obj, world.node))
        and not (device.obj.get("bindingConditions") and not world.features["DeviceBindingAndStatus"])
        and not _cannot_hold(world, Use(ask, device))
    ]


def _cannot_hold(world: World, use: Use) -> bool:
    if not world.features["ConsumableCapacity"]:
        return False
    if world.release <= 36:
        return any(capacities.exceeded(world, [use]))
    offered = use.device.obj.get("capacity", {})
    return bool(capacities.refusal(use.ask, use.device)) or any(
        capacities.consumption(use.ask, name, each) > amounts.read(each["value"]) for name, each in offered.items()
    )
