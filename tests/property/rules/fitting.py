"""Whether a device can be given to a request, as if that were the only one."""

from collections.abc import Iterator, Sequence

from tests.property.rules import pools, selecting
from tests.property.rules.reading import World
from tests.property.rules.records import Json, Use


def unfit(cluster_state: World, uses: Sequence[Use]) -> Iterator[str]:
    """Judge each device for its request, as if it were the only one."""
    for use in uses:
        device, pool = use.device, cluster_state.pools[use.device.driver, use.device.pool]
        about = f"{use.ask.name}: {device}"
        if pool.wrong:
            yield f"{about}: {pool.wrong}"
        if device.slice["spec"].get("perDeviceNodeSelection") and not pools.is_for(device.obj, cluster_state.node):
            yield f"{about} is not for this node"
        if reason := selecting.unselected(cluster_state, use.ask, device):
            yield f"{about} {reason}"
        if taint := _untolerated(cluster_state, use):
            yield f"{about} has the taint {taint}, which is not tolerated"
        if device.obj.get("bindingConditions") and not cluster_state.features["DeviceBindingAndStatus"]:
            yield f"{about} has binding conditions, and the feature is off"
        if device.obj.get("consumesCounters") and not cluster_state.features["PartitionableDevices"]:
            yield f"{about} consumes counters, and the feature is off"
        if device.key in cluster_state.taken and not use.ask.is_admin:
            yield f"{about} is in use"


def _untolerated(cluster_state: World, use: Use) -> Json | None:
    if not cluster_state.features["DeviceTaints"]:
        return None
    for taint in use.device.obj.get("taints") or ():
        blocks = taint["effect"] in ("NoSchedule", "NoExecute")
        if blocks and not any(_tolerates(each, taint) for each in use.ask.spec.get("tolerations") or ()):
            return dict(taint)
    return None


def _tolerates(toleration: Json, taint: Json) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "") in ("", "Equal"):
        return bool(toleration.get("value", "") == taint.get("value", ""))
    return bool(toleration["operator"] == "Exists")
