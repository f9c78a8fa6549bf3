"""Converts manifests of earlier releases to `resource.k8s.io/v1`, in place, and says what the reader should check.

For `muster convert`. Several objects are converted together, since one may tell what another leaves open: the class of
a claim says whose attributes its selectors look up.
"""

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from admission.conversion import attributes, claims, classic, domains, equivalents, pods
from admission.conversion.domains import Domains
from admission.conversion.equivalents import GROUP, Object, items
from admission.conversion.findings import Finding, Findings


@dataclass(frozen=True, slots=True)
class Conversion:
    """The conversion of one object. findings: in the order of its fields as read. added: objects that it now needs."""

    findings: tuple[Finding, ...]
    added: tuple[Object, ...] = ()


def convert(objects: Sequence[Object]) -> list[Conversion]:
    """Change objects in place. Each must have an apiVersion and a kind; of other groups, their pods are converted."""
    known = domains.of_input(objects)
    return [_convert(obj, known) for obj in objects]


def _convert(obj: Object, known: Domains) -> Conversion:
    findings = Findings()
    group, _, version = str(obj.get("apiVersion")).rpartition("/")
    if group != GROUP:
        added = pods.upgrade(obj, findings)
        for template in added:
            inner = Findings()
            _device_object(template.body, known, inner, is_old=True)
            findings.found += [replace(one, field=_in_pod(one.field, template.path)) for one in inner.found]
        return Conversion(tuple(findings.found), tuple(template.body for template in added))
    kind = str(obj.get("kind"))
    if version in classic.VERSIONS:
        classic.upgrade(obj, findings)
    elif not (version == "v1" or equivalents.has_equivalent(f"{group}/{version}", kind)):
        classic.gone(kind, findings)
        return Conversion(tuple(findings.found))
    if obj.get("kind") in equivalents.VERSIONS:
        _device_object(obj, known, findings, is_old=version != "v1")
        classic.leftovers(obj, findings, was_class=kind == "ResourceClass")
    return Conversion(tuple(findings.found))


def _in_pod(field: str, path: str) -> str:
    """Return the path of a field of a template in the pod that the template was taken from."""
    return path + field.removeprefix("spec.spec") if field.startswith("spec.spec") else path


def _device_object(obj: Object, known: Domains, findings: Findings, *, is_old: bool) -> None:
    """Convert an object of resource.k8s.io. is_old: whether its selectors have never met an API server of today."""
    spec: Any = obj.get("spec")
    inner = spec.get("spec") if isinstance(spec, MutableMapping) else None
    flat = claims.flat_requests(spec if obj.get("kind") == "ResourceClaim" else inner)
    basic = [isinstance(one.get("basic"), MutableMapping) for _, one in items(obj.get("spec"), "devices", "spec")]
    equivalents.upgrade(obj, findings)
    match obj.get("kind"):
        case "DeviceClass" if isinstance(spec, MutableMapping):
            claims.convert_in(spec, "spec", known, findings, compiles=is_old)
        case "ResourceClaim":
            claims.constraints_to_selectors(spec, "spec", findings)
            claims.convert_selectors(spec, "spec", flat, known, findings, compiles=is_old)
        case "ResourceClaimTemplate":
            claims.constraints_to_selectors(inner, "spec.spec", findings)
            claims.convert_selectors(inner, "spec.spec", flat, known, findings, compiles=is_old)
        case "ResourceSlice":
            for (path, device), is_basic in zip(items(spec, "devices", "spec"), basic, strict=False):
                attributes.upgrade(device, f"{path}.basic" if is_basic else path, findings)
            if isinstance(spec, MutableMapping) and not spec.get("driver"):
                findings.left("spec", "has no driver: name the one that publishes the devices, as in device.driver")
        case _:
            pass
