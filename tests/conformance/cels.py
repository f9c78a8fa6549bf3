"""The comparison of Muster's answer for a selector with the recorded answer of Kubernetes.

These must agree: whether it compiles, its value or that it fails, whether it exceeds the cost limit, whether the API
server admits it, its static and its runtime cost. The wording of errors may differ, but not the class of an evaluation
error, see KINDS.
"""

from typing import Any

from admission.api.kubernetes import devices
from admission.cel.core import values
from admission.cel.library import quantities
from admission.device_cel import environment, limits, programs

Record = dict[str, Any]

COST_LIMIT = "actual cost limit exceeded"
KINDS = (
    COST_LIMIT,
    "internal error",
    "no such key",
    "no such overload",
    "division by zero",
    "modulus by zero",
    "integer overflow",
    "optional.none() dereference",
    "index out of bounds",
)
"""Classes of evaluation errors; all others are one class."""


def difference(record: Record, release: str) -> str | None:
    """Return the differences between the record and our answer, None if there are none. release: `1.36` or `1.37`."""
    expectation, got = expected(record, release), answer(record, release)
    differing = [name for name in expectation if expectation[name] != got[name]]
    if not differing:
        return None
    return "; ".join(f"{name}: expected {expectation[name]}, got {got[name]}" for name in differing)


def expected(record: Record, release: str) -> dict[str, Any]:
    """Return the compared parts of the recorded answer."""
    newer = record.get("expect137") if release == "1.37" else None
    recorded = newer or record["expect"]
    result = {"compile": recorded["compile"], "result": recorded["result"], "error": _kind(recorded)}
    if newer is None and release == "1.37":
        # The record says that 1.37 answers alike; its costs it does not repeat.
        return result
    if record["mode"] == "new":
        result["admission"] = recorded["admission"]
    result["maxCost"] = recorded["maxCost"]
    if recorded["cost"] is not None and result["error"] != COST_LIMIT:
        result["cost"] = recorded["cost"]
    return result


def answer(record: Record, release: str) -> dict[str, Any]:
    """Return the same parts of our answer."""
    profile = profile_of(record, release)
    text = record["expression"]
    result = dict.fromkeys(("compile", "result", "error", "maxCost", "cost"))
    inadmissible = limits.check(text, profile=profile)
    result["admission"] = inadmissible.problem.value if inadmissible else "ok"
    program = programs.compile_device(text, profile=profile, always_tracks_cost=True)
    if isinstance(program, programs.CompileError):
        return result | {"compile": "error", "error": None}
    cost = programs.static_cost(text, profile=profile)
    result |= {"compile": "ok", "maxCost": None if isinstance(cost, programs.CompileError) else cost}
    found, result["cost"] = program.measure(device(record, lists=profile.reads_lists))
    if isinstance(found, programs.EvaluationError):
        return result | {"error": _kind_of(str(found))}
    return result | {"result": found}


def profile_of(record: Record, release: str) -> environment.Profile:
    """Return the profile of the compiler that made the record. The gate of lists came with 1.36."""
    gates, minor = record["features"], int(release.removeprefix("1."))
    return environment.Profile(
        release=minor,
        stored=record["mode"] == "stored",
        lists=gates["listTypeAttributes"] and minor >= 36,
        consumable=gates["consumableCapacity"],
    )


def plain_device(record: Record) -> devices.Device:
    """Return the record's device, in the form of a ResourceSlice."""
    data = record["device"]
    return devices.Device(
        name="device",
        attributes={name: _attribute(given) for name, given in data["attributes"].items()},
        allows_multiple=bool(data.get("allowMultipleAllocations")),
    )


def device(record: Record, *, lists: bool) -> programs.DeviceValue | programs.UnreadableDevice:
    """Build the record's device. Capacities keep their text, on which `isInteger` depends."""
    data = record["device"]
    value = programs.device_value(data["driver"], plain_device(record), lists=lists)
    if isinstance(value, programs.DeviceValue):
        for name, amount in data["capacity"].items():
            domain, _, plain = name.rpartition("/")
            inner = value.device["capacity"].setdefault(domain or data["driver"], values.StringMap())
            inner[plain] = quantities.parse(amount["value"])
    return value


def _attribute(given: Record) -> devices.AttributeValue | None:
    """Return the value that Kubernetes reads when several are set."""
    for name in ("int", "bool", "string"):
        if name in given:
            return given[name]  # type: ignore[no-any-return]
    if "version" in given:
        return devices.Version(given["version"])
    if "versions" in given:
        return tuple(map(devices.Version, given["versions"]))
    return next((tuple(elements) for elements in given.values()), None)


def _kind(recorded: Record) -> str | None:
    if recorded["runtimeError"] is None:
        return None
    return _kind_of(recorded["runtimeError"])


def _kind_of(text: str) -> str:
    return next((kind for kind in KINDS if kind in text), "another error")
