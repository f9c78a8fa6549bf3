"""Which devices the mode All stands for."""

from tests.property.rules import amounts, capacities, pools, selecting
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Device, Use


def blocked(cluster_state: World) -> str:
    """Say which pool keeps the mode All from being served; empty if none does."""
    return next((pool.wrong for pool in cluster_state.pools.values() if pool.wrong), "")


def wanted(cluster_state: World, ask: Ask) -> list[Device]:
    """List what mode All means: every device that matches, in use or not.

    A shared device that cannot hold such a request does not match; 1.36 also leaves out one that is too full for it.
    """
    return [
        device
        for device in cluster_state.candidates()
        if not selecting.unselected(cluster_state, ask, device)
        and not (
            device.slice["spec"].get("perDeviceNodeSelection") and not pools.is_for(device.obj, cluster_state.node)
        )
        and not (device.obj.get("bindingConditions") and not cluster_state.features["DeviceBindingAndStatus"])
        and not _cannot_hold(cluster_state, Use(ask, device))
    ]


def _cannot_hold(cluster_state: World, use: Use) -> bool:
    if not cluster_state.features["ConsumableCapacity"]:
        return False
    if cluster_state.release <= 36:
        return any(capacities.exceeded(cluster_state, [use]))
    offered = use.device.obj.get("capacity", {})
    return bool(capacities.refusal(use.ask, use.device)) or any(
        capacities.consumption(use.ask, name, each) > amounts.read(each["value"]) for name, each in offered.items()
    )
