"""What the API server adds to the containers of a new pod by the LimitRanges of its namespace.

Mirrors `plugin/pkg/admission/limitranger/admission.go` (v1.37.1): mergePodResourceRequirements, after SetDefaults_Pod
and SetDefaults_LimitRangeItem. Whether a pod keeps to minimum, maximum and ratio is not looked at.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.values import quantities
from admission.api.values.decoding import Json, Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitRange:
    """A LimitRange. requests, limits: of containers that name none, by resource, as written."""

    meta: Meta
    requests: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, Any] = field(default_factory=dict)


def decode(obj: Json) -> LimitRange:
    """Decode a LimitRange. Raises MalformedObjectError."""
    reader = Reader(obj)
    requests: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    for item in reader.child("spec").children("limits"):
        if item.text("type") == "Container":
            amounts = {name: _amounts(item, name) for name in ("min", "max", "default", "defaultRequest")}
            own = {**amounts["max"], **amounts["default"]}
            limits |= own
            requests |= {**amounts["min"], **own, **amounts["defaultRequest"]}
    result = LimitRange(meta=meta.decode(reader), requests=requests, limits=limits)
    reader.finish("LimitRange", result.meta.key)
    return result


def completed(spec: Json, ranges: Sequence[LimitRange]) -> tuple[Json, frozenset[str]]:
    """Return the spec of a new pod with what LimitRanges add, and of which resources its containers then request more.

    Of several that name a resource, the first by name counts; which one does in the API server is not certain.
    """
    ranges, added = sorted(ranges, key=lambda one: one.meta.name), set[str]()
    found: dict[str, Any] = {}
    for name in ("containers", "initContainers"):
        containers = spec.get(name) or []
        found[name] = [_completed(container, ranges) for container in containers]
        for before, after in zip(containers, found[name], strict=True):
            added |= _requests(after).keys() - _requests(before).keys()
    return ({**spec, **found}, frozenset(added)) if added else (spec, frozenset())


def _completed(container: Json, ranges: Iterable[LimitRange]) -> Json:
    resources = container.get("resources") or {}
    limits, requests = dict(resources.get("limits") or {}), _requests(container)
    for one in ranges:
        limits = {**one.limits, **limits}
        requests = {**one.requests, **requests}
    return {**container, "resources": {**resources, "limits": limits, "requests": requests}}


def _requests(container: Json) -> dict[str, Any]:
    """Return what a container requests; a limit without a request counts as the request."""
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _amounts(reader: Reader, name: str) -> Json:
    values = reader.child(name)
    for key in reader.keys(name):
        values.parsed(key, quantities.measure, None)
    return reader.object(name)
