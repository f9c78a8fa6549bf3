"""ResourceQuotas of namespaces as Muster's: a Queue for each namespace, and Meters of what its quotas limit.

A ResourceQuota refuses the pod or claim that is over it; a Queue holds the gang until it fits. What Muster does not
count (objects, limits, storage) stays in the ResourceQuota, and is reported.
"""

import copy
import re
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from admission.api.values import quantities
from admission.conversion import equivalents
from admission.conversion.equivalents import Object
from admission.conversion.findings import Findings
from admission.conversion.queues import fields, meters
from admission.conversion.queues.fields import Converted
from admission.errors import AmountError

_DEVICES = re.compile(r"(?P<device_class>.+)\.deviceclass\.resource\.k8s\.io/devices")
_EXTENDED = "deviceclass.resource.kubernetes.io/"
"""The extended resource by which pods without a claim ask for devices of a class."""

_OF_NODES = re.compile(
    r"(requests\.)?(?P<name>cpu|memory|ephemeral-storage|hugepages-.+)|(?P<pods>pods)|requests\.(?P<extended>[^/]+/.+)"
)
_CLAIMS = "count/resourceclaims.resource.k8s.io"

_REQUIRED = ("cpu", "requests.cpu", "memory", "requests.memory")
"""Where a ResourceQuota limits these, it refuses pods that request none (`pkg/quota/v1/evaluator/core/pods.go`)."""

_UNLIMITED = 10**18
"""The quota of what the ResourceQuotas of a namespace do not limit: more than any cluster has. Without one it is 0."""

_CLAIM_SPECS = {"ResourceClaim": "spec", "ResourceClaimTemplate": "spec.spec"}


def convert(objects: Sequence[Mapping[str, Any]]) -> Converted:
    """Return the Meters and Queues that ResourceQuotas describe. Objects of other kinds are left out.

    Where several quotas of a namespace limit one thing, the smallest counts, as it does in Kubernetes.
    """
    found = [(copy.deepcopy(dict(one)), Findings()) for one in objects]
    counted: dict[str, Object] = {}
    nominal: dict[str, dict[str, int]] = {}
    device_classes = sorted({str(fields.name(obj)) for obj, _ in found if obj.get("kind") == "DeviceClass"})
    for obj, findings in found:
        if obj.get("kind") == "ResourceQuota" and obj.get("apiVersion") == "v1":
            _read(obj, findings, device_classes, counted, nominal)
    for obj, findings in found:
        kind, limits = str(obj.get("kind")), nominal.get(fields.name(obj, "namespace") or "default", {})
        if kind in _CLAIM_SPECS and any("sources" in counted[meter]["spec"] for meter in limits):
            _compare_worst_case(obj, _CLAIM_SPECS[kind], findings)
    queues = [_queue(namespace, limits, counted) for namespace, limits in sorted(nominal.items())]
    return Converted((*counted.values(), *queues), tuple(findings for _, findings in found))


def _read(
    obj: Object,
    findings: Findings,
    device_classes: Sequence[str],
    counted: dict[str, Object],
    nominal: dict[str, dict[str, int]],
) -> None:
    """Add what a ResourceQuota limits. counted: Meters, by name. nominal: by namespace and meter."""
    spec, namespace = obj.get("spec"), fields.name(obj, "namespace") or "default"
    given = spec if isinstance(spec, MutableMapping) else {}
    hard = given.get("hard")
    for scope in ("scopes", "scopeSelector"):
        if given.get(scope):
            findings.left(f"spec.{scope}", "limits some pods alone: a Queue that they name by muster.dev/queue does so")
            return
    limits = nominal.setdefault(namespace, {})
    for key, value in hard.items() if isinstance(hard, Mapping) else ():
        path = f"spec.hard[{key}]"
        meter = _meter(str(key), device_classes, findings, path)
        if meter is None:
            continue
        name = meter["metadata"]["name"]
        resource = meter["spec"].get("resources", [{"name": ""}])[0]["name"]
        try:
            amount = meters.quota_amount(value, resource)
        except AmountError as error:
            findings.left(path, str(error))
            continue
        counted.setdefault(name, meter)
        limits[name] = min(amount, limits.get(name, amount))
        findings.changed(path, f"is the quota of Meter {name}; take it out of the ResourceQuota, which refuses pods")
        if key in _REQUIRED:
            findings.check(path, f"a ResourceQuota refuses pods that request no {resource}; here they are free of it")


def _compare_worst_case(obj: Object, spec: str, findings: Findings) -> None:
    """Tell of a claim's requests that a ResourceQuota counts at the most that they may get, and a Meter otherwise.

    `pkg/quota/v1/evaluator/core/resource_claims.go` (v1.34.4 and later): deviceUsage.
    """
    devices: Any = equivalents.read(obj)[0]
    for part in (*spec.split("."), "devices"):
        devices = devices.get(part) if isinstance(devices, Mapping) else None
    for path, request in equivalents.items(devices, "requests", f"{spec}.devices"):
        alternatives = [one for _, one in equivalents.items(request, "firstAvailable", path)]
        exactly = request.get("exactly")
        options: list[Mapping[str, Any]] = [*alternatives, *([exactly] if isinstance(exactly, Mapping) else [])]
        if alternatives:
            findings.check(path, "a ResourceQuota counts every alternative, a Meter the devices that are given")
        if any(one.get("allocationMode") == "All" for one in options):
            findings.check(path, "a ResourceQuota counts All as 32 devices, a Meter those that are given")
        if any(one.get("adminAccess") is True for one in options):
            findings.check(path, "a ResourceQuota counts admin access, a Meter only where it says adminAccess: Charge")


def _meter(key: str, device_classes: Sequence[str], findings: Findings, path: str) -> Object | None:
    """Return the Meter of a key of a ResourceQuota, or None after a finding."""
    if key.removeprefix("requests.").startswith(_EXTENDED):
        device_class = key.rpartition("/")[2]
        findings.changed(path, "counts with the devices of the class: claims that are made for pods count as others do")
        return meters.for_devices(device_class, [device_class])
    if found := _DEVICES.fullmatch(key):
        return meters.for_devices(found["device_class"], [found["device_class"]])
    if key == _CLAIMS:
        if device_classes:
            return meters.for_claims("claims", device_classes)
        findings.left(path, "a Meter counts claims of the classes that it names: give the DeviceClasses as input, too")
        return None
    if found := _OF_NODES.fullmatch(key):
        return meters.for_node_resource(found["name"] or found["pods"] or found["extended"])
    findings.left(path, "is not counted by Muster: it may stay in the ResourceQuota")
    return None


def _queue(namespace: str, limits: Mapping[str, int], counted: Iterable[str]) -> Object:
    """Return a Queue that limits what `limits` says, by meter, and nothing else of what the Meters count."""
    amounts = {**limits, **{meter: _UNLIMITED for meter in counted if meter not in limits}}
    quotas = [{"meter": meter, "nominal": quantities.render(amount)} for meter, amount in amounts.items()]
    selector = {"matchLabels": {fields.NAMESPACE: namespace}}
    spec: Object = {"namespaceSelector": selector, "default": True, "unmeteredClasses": "Allow"}
    return fields.new_object("Queue", namespace, {**spec, **({"quotas": quotas} if quotas else {})})
