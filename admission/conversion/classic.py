"""The DRA of Kubernetes 1.26 to 1.30 (v1alpha1, v1alpha2): classes of drivers' resources, allocated by their drivers.

What a class and a claim say by themselves is written as a DeviceClass and a request for one device. Parameters are
objects of the driver, whose meaning is not known here: they stay where they are, and the API server refuses them there,
so that none is lost unseen.
"""

from collections.abc import MutableMapping
from typing import Any

from admission.conversion.equivalents import VERSION, Object, items
from admission.conversion.findings import Findings

VERSIONS = frozenset({"v1alpha1", "v1alpha2"})

REQUEST = "devices"
"""The name of the request that a claim becomes."""

PARAMETERS = "parametersRef"
NODES = "suitableNodes"
_PARAMETERS_MEND = (
    "was for the driver, and what it meant is not known here: write selectors for which devices, and config (opaque,"
    " with the driver's parameters) for how they are set up; then delete it"
)
_NOTHING = {
    "PodScheduling": "the scheduler made it for itself, and does not any more: delete it",
    "PodSchedulingContext": "the scheduler made it for itself, and does not any more: delete it",
    "ResourceClaimParameters": "write its requests into the claims that name it: selectors, and config for the driver",
    "ResourceClassParameters": "write its filters into the classes that name it: selectors, and config for the driver",
}


def upgrade(obj: Object, findings: Findings) -> None:
    """Change an object of v1alpha1 or v1alpha2 to v1, as far as it can be said there."""
    kind = str(obj.get("kind"))
    if kind in _NOTHING:
        gone(kind, findings)
        return
    match kind:
        case "ResourceClass":
            _class(obj, findings)
        case "ResourceClaim":
            _claim(obj.get("spec"), "spec", findings)
            _drop_status(obj, findings)
        case "ResourceClaimTemplate":
            spec = obj.get("spec")
            _claim(spec.get("spec") if isinstance(spec, MutableMapping) else None, "spec.spec", findings)
        case "ResourceSlice":
            _slice(obj, findings)
        case _:
            return
    obj["apiVersion"] = VERSION
    findings.changed("apiVersion", f"is {VERSION} today")


def gone(kind: str, findings: Findings) -> None:
    """Tell a kind that is no more. Kinds of resource.k8s.io that have no v1 yet are left in their version."""
    if kind in _NOTHING:
        findings.left("kind", f"{kind} has no counterpart: {_NOTHING[kind]}")


def leftovers(obj: Object, findings: Findings, *, was_class: bool = False) -> None:
    """Tell the fields of a class or a claim that only its driver understood, until they are deleted.

    was_class: whether it was read as a ResourceClass, which has no spec.
    """
    for path in ("spec", "spec.spec"):
        spec: Any = obj
        for name in path.split("."):
            spec = spec.get(name) if isinstance(spec, MutableMapping) else None
        if not isinstance(spec, MutableMapping):
            return
        prefix = "" if was_class else f"{path}."
        if spec.get(PARAMETERS) is not None:
            findings.left(f"{prefix}{PARAMETERS}", f"{_reference(spec[PARAMETERS])} {_PARAMETERS_MEND}")
        if spec.get(NODES) is not None:
            findings.left(
                f"{prefix}{NODES}", "classes say nothing of nodes: give the pods a nodeSelector, and delete it"
            )


def _reference(value: Any) -> str:
    if not isinstance(value, MutableMapping):
        return "it"
    return f"{value.get('kind')} {value.get('name')}"


def _class(obj: Object, findings: Findings) -> None:
    driver = obj.pop("driverName", None)
    obj["kind"] = "DeviceClass"
    findings.changed("kind", "is DeviceClass today")
    spec: Object = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]} if driver else {}
    if driver:
        findings.changed("driverName", f"is a selector: {spec['selectors'][0]['cel']['expression']}")
    else:
        findings.left("kind", "has no driverName: select its devices in spec.selectors")
    if obj.pop("structuredParameters", None) is not None:
        findings.changed("structuredParameters", "are always structured today")
    for name in (PARAMETERS, NODES):
        if name in obj:
            spec[name] = obj.pop(name)
    obj["spec"] = spec


def _claim(spec: Any, path: str, findings: Findings) -> None:
    if not isinstance(spec, MutableMapping):
        return
    name = spec.pop("resourceClassName", None)
    mode = spec.pop("allocationMode", None)
    if mode == "Immediate":
        findings.check(
            f"{path}.allocationMode", "claims are allocated when a pod that uses them is scheduled, never before"
        )
    elif mode is not None:
        findings.changed(f"{path}.allocationMode", "every claim waits for its first consumer")
    if name is None:
        findings.left(path, "has no resourceClassName: write devices.requests with a deviceClassName")
        return
    request = {"name": REQUEST, "exactly": {"deviceClassName": name}}
    parameters = spec.pop(PARAMETERS, None)
    spec["devices"] = {"requests": [request]}
    if parameters is not None:
        spec[PARAMETERS] = parameters
    findings.changed(f"{path}.resourceClassName", f"is a request for one device: exactly: {{deviceClassName: {name}}}")


def _drop_status(obj: Object, findings: Findings) -> None:
    if obj.pop("status", None) is not None:
        findings.check("status", "is left out: it was written by a driver that allocated, and nobody applies it")


def _slice(obj: Object, findings: Findings) -> None:
    model = obj.get("namedResources")
    instances = [one for _, one in items(model, "instances", "")]
    node, driver = obj.pop("nodeName", None), obj.pop("driverName", None)
    obj.pop("namedResources", None)
    devices = [_device(one) for one in instances]
    obj["spec"] = {
        **({"driver": driver} if driver else {}),
        "pool": {"name": node or driver, "generation": 1, "resourceSliceCount": 1},
        **({"nodeName": node} if node else {"allNodes": True}),
        "devices": devices,
    }
    findings.changed(
        "namedResources", f"its {len(devices)} instances are devices of spec, in a pool of the node's name"
    )


def _device(instance: Object) -> Object:
    attributes: dict[str, Any] = {}
    for _, one in items(instance, "attributes", ""):
        attributes[str(one.get("name"))] = {name: value for name, value in one.items() if name != "name"}
    return {"name": instance.get("name"), **({"attributes": attributes} if attributes else {})}
