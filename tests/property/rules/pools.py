"""What a node sees of the pools: of the newest generation, complete and valid, or nothing."""

from collections.abc import Sequence

from tests.property.rules import amounts
from tests.property.rules.records import Device, Json, Pool, Setting


def of(setting: Setting, slices: Sequence[Json]) -> dict[tuple[str, str], Pool]:
    """Return every pool as the node sees it, by driver and name."""
    found = sorted({(each["spec"]["driver"], each["spec"]["pool"]["name"]) for each in slices})
    return {pool_id: _pool(setting, slices, *pool_id) for pool_id in found}


def is_for(where: Json, node: Json) -> bool:
    """Whether what a slice, or a device of it, says about nodes names this one."""
    if where.get("nodeName"):
        return bool(where["nodeName"] == node["metadata"]["name"])
    return bool(where.get("allNodes")) or (
        where.get("nodeSelector") is not None
        and any(_term_matches(term, node) for term in where["nodeSelector"].get("nodeSelectorTerms") or ())
    )


def _pool(setting: Setting, slices: Sequence[Json], driver: str, name: str) -> Pool:
    ours = [s for s in slices if (s["spec"]["driver"], s["spec"]["pool"]["name"]) == (driver, name)]
    visible = _newest([each for each in ours if _is_visible(setting, each)])
    if not visible:
        return Pool()
    generation, count = (visible[0]["spec"]["pool"].get(key, 0) for key in ("generation", "resourceSliceCount"))
    whole = visible
    if len(visible) != count:
        whole = [each for each in ours if each["spec"]["pool"].get("generation", 0) == generation]
        if any(each["spec"]["pool"].get("generation", 0) > generation for each in ours):
            return Pool()
        if len([each for each in whole if not _is_grouped(setting, each)]) != count:
            return Pool(wrong=f"{driver}/{name} is incomplete")
    devices_here = _devices(visible)
    sets = (
        _counter_sets(visible if setting.release <= 36 else whole) if setting.features["PartitionableDevices"] else []
    )
    everywhere = devices_here + _devices([each for each in whole if each not in visible])
    wrong = _invalid(setting, devices_here, everywhere, sets)
    counters = {
        (each["name"], name): amounts.read(c["value"])
        for each in sets
        for name, c in (each.get("counters") or {}).items()
    }
    return Pool(devices_here, everywhere, counters, wrong and f"{driver}/{name} is invalid: {wrong}")


def _newest(slices: Sequence[Json]) -> list[Json]:
    newest = max((each["spec"]["pool"].get("generation", 0) for each in slices), default=0)
    kept = [each for each in slices if each["spec"]["pool"].get("generation", 0) == newest]
    # The first one's count is taken, should they differ: a node's own slices come before all others.
    return sorted(kept, key=lambda each: not each["spec"].get("nodeName"))


def _is_visible(setting: Setting, obj: Json) -> bool:
    spec = obj["spec"]
    has_counters = bool(spec.get("sharedCounters"))
    if not setting.features["PartitionableDevices"] and (
        spec.get("perDeviceNodeSelection") is not None or has_counters
    ):
        return False
    if _is_grouped(setting, obj):
        return False
    if setting.release <= 36 and has_counters:
        return True
    if spec.get("nodeName") or spec.get("allNodes") or spec.get("nodeSelector") is not None:
        return is_for(spec, setting.node)
    return bool(spec.get("perDeviceNodeSelection")) and any(
        is_for(each, setting.node) for each in spec.get("devices", ())
    )


def _is_grouped(setting: Setting, obj: Json) -> bool:
    """Whether 1.37 ignores the slice, because a gate that is off by default would be needed to understand it."""
    used = [use for device in obj["spec"].get("devices") or () for use in device.get("consumesCounters", ())]
    return setting.release >= 37 and any(each.get("compatibilityGroups") for each in used)


def _term_matches(term: Json, node: Json) -> bool:
    labels, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    return bool(labels or fields) and (
        all(_label_matches(each, node["metadata"].get("labels", {}).get(each["key"])) for each in labels)
        and all(_label_matches(each, node["metadata"]["name"]) for each in fields)
    )


def _label_matches(requirement: Json, value: str | None) -> bool:
    wanted = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as comparison:
            if value is None or not value.lstrip("-").isdigit():
                return False
            return int(value) > int(wanted[0]) if comparison == "Gt" else int(value) < int(wanted[0])
        case unknown:
            raise ValueError(unknown)


def _devices(slices: Sequence[Json]) -> list[Device]:
    return [
        Device(each["spec"]["driver"], each["spec"]["pool"]["name"], device, each)
        for each in sorted(slices, key=lambda each: each["metadata"]["name"])
        for device in each["spec"].get("devices") or ()
    ]


def _counter_sets(slices: Sequence[Json]) -> list[Json]:
    return [counters for each in slices for counters in each["spec"].get("sharedCounters") or ()]


def _invalid(setting: Setting, here: Sequence[Device], everywhere: Sequence[Device], sets: Sequence[Json]) -> str:
    if len({device.key for device in here}) < len(here):
        return "two devices of one name"
    if not setting.features["PartitionableDevices"]:
        return ""
    if len({each["name"] for each in sets}) < len(sets):
        return "two counter sets of one name"
    known = {each["name"]: each.get("counters") or {} for each in sets}
    for device in everywhere:
        for use in device.obj.get("consumesCounters", ()):
            if (
                not set(use.get("counters") or ()) <= set(known.get(use["counterSet"], ()))
                or use["counterSet"] not in known
            ):
                return f"{device} consumes counters that are not there"
    return ""
