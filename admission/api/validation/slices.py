"""Validation of ResourceSlices: pool, node selection, devices, and counter sets."""

from admission.api.validation import fields, request_policies, selectors
from admission.api.values import formats
from admission.api.values.decoding import Reader

MOST_DEVICES = 128
MOST_ADVANCED_DEVICES = 64
"""Devices in a slice whose devices have taints, counters or list attributes."""
MOST_ATTRIBUTES = 32
"""Attributes and capacities of a device together."""
MOST_VALUES = 48
"""Values of all attributes of a device, counting each entry of a list."""
MOST_TAINTS = 16
MOST_CONDITIONS = 4
MOST_COUNTER_SETS = 8
MOST_COUNTERS = 32
MOST_CONSUMED_SETS = 2

_NODE_SELECTIONS = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_SCALARS = ("string", "int", "bool", "version")
_LISTS = ("strings", "ints", "bools", "versions")


def validate(spec: Reader) -> None:
    """Judge the spec of a ResourceSlice."""
    fields.text(spec, "driver", formats.driver)
    _pool(spec.child("pool"))
    _node_selection(spec, _NODE_SELECTIONS)
    if "nodeSelector" in spec and selectors.node_selector(spec.child("nodeSelector")) > 1:
        spec.problem("nodeSelector.nodeSelectorTerms", "must have exactly one term")
    if "sharedCounters" in spec and "devices" in spec:
        spec.problem("", "has both sharedCounters and devices; a slice holds one or the other")
    _counter_sets(spec)
    devices = list(spec.children("devices"))
    advanced = any(map(_is_advanced, devices))
    fields.sized(spec, "devices", len(devices), MOST_ADVANCED_DEVICES if advanced else MOST_DEVICES)
    names = [device.text("name") for device in devices]
    fields.unique(spec, names, lambda index: f"devices[{index}].name")
    per_device = spec.raw("perDeviceNodeSelection") is True
    for device in devices:
        _device(device, per_device=per_device)


def _pool(pool: Reader) -> None:
    fields.text(pool, "name", formats.pool)
    fields.integer(pool, "generation", least=0)
    if "resourceSliceCount" not in pool:
        pool.problem("resourceSliceCount", "is required: how many slices the pool has")
    fields.integer(pool, "resourceSliceCount", least=1, default=1)


def _node_selection(reader: Reader, places: tuple[str, ...]) -> None:
    """Judge the node selection of a slice or a device: exactly one of its fields must be set."""
    fields.optional(reader, "nodeName", formats.subdomain)
    for name in ("allNodes", "perDeviceNodeSelection"):
        if name in places and name in reader and not reader.flag(name, default=True):
            reader.problem(name, "must be true or left out")
    present = [name for name in places if name in reader]
    given = [name for name in present if reader.raw(name) not in (False, "")]
    if len(given) > 1 or not present:
        found = f"has {' and '.join(given)}" if given else "says nowhere on which nodes its devices are"
        reader.problem("", f"{found}; exactly one of {', '.join(places)} is required")


def _counter_sets(spec: Reader) -> None:
    sets = list(spec.children("sharedCounters"))
    fields.sized(spec, "sharedCounters", len(sets), MOST_COUNTER_SETS)
    fields.unique(
        spec, [counter_set.text("name") for counter_set in sets], lambda index: f"sharedCounters[{index}].name"
    )
    for counter_set in sets:
        fields.text(counter_set, "name", formats.label)
        _counters(counter_set)


def _counters(reader: Reader) -> None:
    fields.keys(reader, "counters", formats.label, most=MOST_COUNTERS)
    if not reader.keys("counters"):
        reader.problem("counters", "needs at least one counter")
    for _, counter in reader.entries("counters"):
        if "value" not in counter:
            counter.problem("value", "is required")
        fields.quantity(counter, "value")


def _is_advanced(device: Reader) -> bool:
    lists = (name in attribute for _, attribute in device.entries("attributes") for name in _LISTS)
    return bool(device.raw("taints")) or bool(device.raw("consumesCounters")) or any(lists)


def _device(device: Reader, *, per_device: bool) -> None:
    fields.text(device, "name", formats.label)
    _device_node_selection(device, per_device=per_device)
    _attributes(device)
    _capacities(device)
    _consumption(device)
    taints = list(device.children("taints"))
    fields.sized(device, "taints", len(taints), MOST_TAINTS)
    for taint in taints:
        selectors.taint(taint)
    _conditions(device)


def _device_node_selection(device: Reader, *, per_device: bool) -> None:
    places = _NODE_SELECTIONS[:3]
    if per_device:
        _node_selection(device, places)
    for name in places:
        if not per_device and name in device:
            device.problem(name, "is only allowed where the slice sets perDeviceNodeSelection: true")
    if per_device and "nodeSelector" in device:
        selectors.node_selector(device.child("nodeSelector"))


def _attributes(device: Reader) -> None:
    fields.keys(device, "attributes", formats.qualified)
    values = sum(_attribute(attribute) for _, attribute in device.entries("attributes"))
    fields.sized(device, "attributes", values, MOST_VALUES)
    named = len(device.keys("attributes")) + len(device.keys("capacity"))
    if named > MOST_ATTRIBUTES:
        device.problem("", f"has {named} attributes and capacities, at most {MOST_ATTRIBUTES} are allowed together")


def _attribute(attribute: Reader) -> int:
    """Judge an attribute, and return its number of values."""
    given = [name for name in (*_SCALARS, *_LISTS) if name in attribute]
    if len(given) != 1:
        found = f"has {' and '.join(given)}" if given else "has no value"
        attribute.problem("", f"{found}; exactly one of {', '.join((*_SCALARS, *_LISTS))} is required")
    _scalars(attribute)
    listed = [name for name in _LISTS if name in attribute]
    return sum(_list_values(attribute, name) for name in listed) or 1


def _scalars(attribute: Reader) -> None:
    attribute.flag("bool")
    fields.integer(attribute, "int")
    for name, rule in (("string", formats.attribute), ("version", formats.version)):
        if name in attribute and (message := rule(attribute.text(name))):
            attribute.problem(name, message)


def _list_values(attribute: Reader, name: str) -> int:
    """Judge each entry of a list like a scalar, and return their number."""
    entries = attribute.raw(name)
    if not isinstance(entries, list):
        attribute.problem(name, "must be a list")
        return 0
    if not entries:
        attribute.problem(name, "must not be empty")
    for index, entry in enumerate(entries):
        place = f"{name}[{index}]"
        _scalar(attribute, place, name.removesuffix("s"), entry)
    return len(entries)


def _scalar(attribute: Reader, place: str, kind: str, entry: object) -> None:
    reader = attribute.element(place, entry)
    match kind:
        case "bool":
            reader.flag("")
        case "int":
            fields.integer(reader, "")
        case _:
            rule = formats.version if kind == "version" else formats.attribute
            if message := rule(reader.text("")):
                reader.problem("", message)


def _capacities(device: Reader) -> None:
    fields.keys(device, "capacity", formats.qualified)
    shared = device.raw("allowMultipleAllocations") is True
    device.flag("allowMultipleAllocations")
    for _, capacity in device.entries("capacity"):
        if "value" not in capacity:
            capacity.problem("value", "is required")
        value = fields.quantity(capacity, "value")
        if "requestPolicy" not in capacity:
            continue
        if shared:
            request_policies.validate(capacity.child("requestPolicy"), value)
        else:
            capacity.problem("requestPolicy", "is only allowed where the device sets allowMultipleAllocations: true")


def _consumption(device: Reader) -> None:
    uses = list(device.children("consumesCounters"))
    fields.sized(device, "consumesCounters", len(uses), MOST_CONSUMED_SETS)
    sets = [use.text("counterSet") for use in uses]
    fields.unique(device, sets, lambda index: f"consumesCounters[{index}].counterSet")
    for use in uses:
        fields.text(use, "counterSet", formats.label)
        _counters(use)


def _conditions(device: Reader) -> None:
    conditions = fields.texts(device, "bindingConditions", formats.key, most=MOST_CONDITIONS)
    failures = fields.texts(device, "bindingFailureConditions", formats.key, most=MOST_CONDITIONS)
    for index, condition in enumerate(failures):
        if condition in conditions:
            device.problem(f"bindingFailureConditions[{index}]", f"{condition!r} is one of bindingConditions too")
    if bool(conditions) != bool(failures):
        missing = "bindingFailureConditions" if conditions else "bindingConditions"
        device.problem(missing, "is required: bindingConditions and bindingFailureConditions are used together")
