"""The objects of earlier versions of resource.k8s.io that v1 can say as well, in the shape of v1.

The same changes as Kubernetes makes when it reads a stored object (`pkg/apis/resource/v1beta1/conversion.go`, 1.37)
and, for v1alpha3, as the types of 1.31 and 1.32 differ from those of today. Objects are changed in place, so that a
caller can tell which parts of a text they still are.
"""

import copy
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from admission.conversion.findings import Finding, Findings, Level

GROUP = "resource.k8s.io"
VERSION = f"{GROUP}/v1"

Object = MutableMapping[str, Any]

_BETA = ("v1beta1", "v1beta2")
_SINCE_2024 = ("v1alpha3", *_BETA)
VERSIONS: dict[str, tuple[str, ...]] = {
    "ResourceClaim": _SINCE_2024,
    "ResourceClaimTemplate": _SINCE_2024,
    "DeviceClass": _SINCE_2024,
    "ResourceSlice": _SINCE_2024,
    "DeviceTaintRule": ("v1alpha3", "v1beta2"),
}
"""The versions of each kind that have an equivalent in v1."""

CLASSIC = ("ResourceClass",)
"""Kinds of v1alpha2 that are other kinds today."""

EXACTLY = (
    *("deviceClassName", "selectors", "allocationMode", "count", "adminAccess", "tolerations", "capacity"),
    "derivedAttributes",
)
"""The fields of a request that stand in `exactly` since v1beta2."""

OF_DRIVERS_CONTROLLER = "was of the allocation by a driver's own controller, which Kubernetes 1.32 took away: delete it"
_GONE = {
    "ResourceClaim": ("spec.controller", "status.deallocationRequested", "status.allocation.controller"),
    "ResourceClaimTemplate": ("spec.spec.controller",),
}


def has_equivalent(api_version: str, kind: str) -> bool:
    """Return whether objects of a version and kind, other than v1 itself, are read as v1."""
    group, _, version = api_version.rpartition("/")
    return group == GROUP and version in VERSIONS.get(kind, ())


NOT_SERVED = f"no Kubernetes from 1.34 on has this kind in {GROUP}/v1alpha3: `muster convert` writes it as {VERSION}"


def is_served(obj: Mapping[str, Any]) -> bool:
    """Whether an API server of a release with a profile serves an object's version of its kind, if it is switched on.

    What has a UID was stored by an older one.
    """
    is_stored = isinstance(obj.get("metadata"), Mapping) and "uid" in obj["metadata"]
    is_old = obj.get("apiVersion") == f"{GROUP}/v1alpha3" and VERSIONS.get(str(obj.get("kind"))) == _SINCE_2024
    return is_stored or not is_old


def read(obj: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Finding, ...]]:
    """Return an object as v1, and what v1 cannot say of it; one without an equivalent, or of v1, as it is."""
    if not has_equivalent(str(obj.get("apiVersion")), str(obj.get("kind"))):
        return obj, ()
    current, findings = copy.deepcopy(dict(obj)), Findings()
    upgrade(current, findings)
    return current, tuple(one for one in findings.found if one.level is Level.LEFT)


def upgrade(obj: Object, findings: Findings) -> None:
    """Change an object of a version with an equivalent, or one that says v1 and is written as before, to v1."""
    kind = str(obj.get("kind"))
    if obj.get("apiVersion") != VERSION:
        obj["apiVersion"] = VERSION
        findings.changed("apiVersion", f"is {VERSION} today")
        if kind == "DeviceTaintRule":
            findings.check("apiVersion", "Kubernetes 1.36 has this kind in v1beta2 only, 1.35 and earlier in v1alpha3")
    match kind:
        case "ResourceClaim":
            _requests(obj.get("spec"), "spec", findings)
        case "ResourceClaimTemplate":
            _requests(_mapping(obj.get("spec")).get("spec"), "spec.spec", findings)
        case "ResourceSlice":
            for path, device in items(obj.get("spec"), "devices", "spec"):
                _device(device, path, findings)
        case _:
            pass
    for path in _GONE.get(kind, ()):
        if _is_there(obj, path):
            findings.left(path, OF_DRIVERS_CONTROLLER)


def items(value: Any, name: str, path: str) -> Iterator[tuple[str, Object]]:
    """Yield the mappings in a list that a mapping has, each with its path."""
    found = _mapping(value).get(name)
    for at, one in enumerate(found if isinstance(found, list) else ()):
        if isinstance(one, MutableMapping):
            yield f"{path}.{name}[{at}]", one


def _requests(spec: Any, path: str, findings: Findings) -> None:
    for place, request in items(_mapping(spec).get("devices"), "requests", f"{path}.devices"):
        wrap_request(request, place, findings)


def wrap_request(request: Object, path: str, findings: Findings) -> None:
    """Move the fields of a request into `exactly`, as for any of them that is set."""
    fields = [name for name in EXACTLY if request.get(name) not in (None, "", 0)]
    if not fields:
        return
    if request.get("exactly") is not None:
        for name in fields:
            findings.left(f"{path}.{name}", "stands beside `exactly`, which has the request's fields: keep one of both")
        return
    order = [name for name in request if name in EXACTLY]
    request["exactly"] = {name: request.pop(name) for name in order}
    findings.changed(
        path, f"{', '.join(order)} stand in `exactly`" if len(order) > 1 else f"{order[0]} is in `exactly`"
    )


def _device(device: Object, path: str, findings: Findings) -> None:
    """Move what `basic` has into the device itself, and write capacities as v1beta1 and later do."""
    basic = device.get("basic")
    if isinstance(basic, MutableMapping):
        twice = [name for name in basic if name in device]
        if twice:
            findings.left(f"{path}.basic", f"has {', '.join(twice)}, which the device itself has as well: keep one")
            return
        del device["basic"]
        device.update(basic)
        findings.changed(f"{path}.basic", "its fields stand in the device itself")
        path = f"{path}.basic"
    elif "basic" in device and basic is None:
        del device["basic"]
    capacity = device.get("capacity")
    for name, amount in [*_mapping(capacity).items()]:
        if isinstance(amount, str | int | float) and not isinstance(amount, bool):
            capacity[name] = {"value": amount}  # type: ignore[index]
            findings.changed(f"{path}.capacity[{name}]", "a capacity is a mapping: {value: …}")


def _mapping(value: Any) -> Object:
    return value if isinstance(value, MutableMapping) else {}


def _is_there(obj: Object, path: str) -> bool:
    value: Any = obj
    for name in path.split("."):
        value = _mapping(value).get(name)
    return value is not None
