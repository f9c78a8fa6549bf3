"""Whether a device is what a request asks for: its class, and the selectors of both."""

from admission.api.kubernetes import devices
from admission.cel.core import values
from admission.cel.library import quantities
from admission.device_cel import environment, programs
from tests.property.rules.reading import World
from tests.property.rules.records import Ask, Device, Json


def unselected(cluster_state: World, parsed: Ask, device: Device) -> str:
    """Say why the request's or its class' selectors do not take the device; empty if they do."""
    if (parsed, device) not in cluster_state.unselected:
        cluster_state.unselected[parsed, device] = _unselected(cluster_state, parsed, device)
    return cluster_state.unselected[parsed, device]


def _unselected(cluster_state: World, parsed: Ask, device: Device) -> str:
    class_name = parsed.spec["deviceClassName"]
    if class_name not in cluster_state.classes:
        return f"is asked for by the class {class_name}, which is not there"
    texts = [
        *(cluster_state.classes[class_name].get("spec", {}).get("selectors") or ()),
        *(parsed.spec.get("selectors") or ()),
    ]
    value = _as_expressions_see_it(cluster_state, device)
    for selector in texts:
        text = selector["cel"]["expression"]
        program = programs.compile_device(text, profile=_profile(cluster_state))
        if isinstance(program, programs.CompileError):
            return f"is asked for by a selector that does not compile: {text}"
        try:
            if not program.evaluate(value):
                return f"is not what the selector asks for: {text}"
        except programs.EvaluationError as error:
            return f"makes a selector fail: {text}: {error}"
    return ""


def _profile(cluster_state: World) -> environment.Profile:
    features = cluster_state.features
    return environment.Profile(
        release=cluster_state.release,
        stored=True,
        lists=features["ListTypeAttributes"],
        consumable=features["ConsumableCapacity"],
    )


def _as_expressions_see_it(cluster_state: World, device: Device) -> programs.DeviceValue | programs.UnreadableDevice:
    value = programs.device_value(
        device.driver,
        devices.Device(
            name=device.obj["name"],
            attributes={name: _attribute(given) for name, given in device.obj.get("attributes", {}).items()},
            allows_multiple=device.is_shared,
        ),
        lists=cluster_state.release >= 37 or cluster_state.features["ListTypeAttributes"],
    )
    if isinstance(value, programs.DeviceValue):
        for name, amount in device.obj.get("capacity", {}).items():
            domain, _, plain = name.rpartition("/")
            inner = value.device["capacity"].setdefault(domain or device.driver, values.StringMap())
            inner[plain] = quantities.parse(str(amount["value"]))
    return value


def _attribute(given: Json) -> devices.AttributeValue | None:
    kind, value = next(iter(given.items()), (None, None))
    if kind == "version":
        return devices.Version(value)
    if kind == "versions":
        return tuple(map(devices.Version, value or ()))
    return tuple(value) if isinstance(value, list) else value
