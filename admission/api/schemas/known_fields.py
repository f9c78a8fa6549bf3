"""The names of the fields that objects may have, of Kubernetes' kinds and of Muster's own.

Kubernetes' names come from its OpenAPI (`kubernetes_fields.json`, written by tests/conformance/kubernetes_fields.py for
1.36 and 1.37), those of Muster's kinds from their schemas, those of workloads from the CRDs of their projects
(`workload_fields.json`, written by tests/conformance/workload_fields.py, without status). Where a
schema of Muster's keeps what it does not describe, the part is one of Kubernetes' types (`KEPT`).

A type is a name in `fields_of`. The type of a field's value is written as in the file: `core.v1.PodSpec`, or one of
SCALARS, with `[]` in front for a list of them, `{}` for a mapping of keys that an author chooses, and "" where any
value is allowed, or none is judged here. `{}` alone is an object of any fields.
"""

import json
from collections.abc import Collection, Mapping
from functools import cache
from importlib import resources
from typing import Any

from admission.api.schemas import crds
from admission.api.schemas.fields import Schema
from admission.api.values import names

POD_TEMPLATE = "core.v1.PodTemplateSpec"
POD_SPEC = "core.v1.PodSpec"
META = "meta.v1.ObjectMeta"
ANY = ""

LIST, MAPPING = "[]", "{}"

SCALARS = frozenset({"string", "bool", "int32", "int64", "number", "Quantity", "IntOrString", "Time"})
"""Types of values that are no objects, named as in Go, but for `number`, which may be a fraction."""

KEPT: Mapping[str, str] = {
    "ClaimPolicy.spec.templates.spec": "resource.v1.ResourceClaimSpec",
    "ClaimPolicy.spec.defaults.tolerations": "[]resource.v1.DeviceToleration",
    "ClaimPolicy.spec.defaults.config": "[]resource.v1.DeviceClaimConfiguration",
    "NodeShape.spec.resourceSlices.devices": "[]resource.v1.Device",
    "NodeShape.spec.resourceSlices.sharedCounters": "[]resource.v1.CounterSet",
}
"""Parts of Muster's objects that are kept as written, with the type of Kubernetes' that they are."""


def type_of(api_version: str, kind: str) -> str:
    """Return the type of a kind's objects; ANY for a kind whose fields are not known."""
    if api_version == names.API_VERSION:
        return kind if kind in _own_types() else ANY
    found: str = _kubernetes()["kinds"].get(f"{api_version}/{kind}", ANY)
    return found


def type_of_workload(api_version: str, kind: str) -> str:
    """Return the type of a kind of workload of another project; ANY for other kinds."""
    found: str = _workloads()["kinds"].get(f"{api_version}/{kind}", ANY)
    return found


def release_of_workload(api_version: str, kind: str) -> str:
    """Return the project and release that the fields of a kind of workload are those of."""
    found: str = _workloads()["releases"][f"{api_version}/{kind}"]
    return found


def fields_of(name: str) -> Mapping[str, str]:
    """Return the fields of a type in any release, each with the type of its value."""
    for types in (_own_types(), _kubernetes()["types"]):
        if name in types:
            found: Mapping[str, str] = types[name]
            return found
    of_workloads: Mapping[str, Mapping[str, str]] = _workloads()["types"]
    return of_workloads[name]


def object_type(kind: str) -> str:
    """Return the type of the objects in a field's value, below its marks; ANY where nobody lists their fields."""
    name = kind.lstrip("[]{}")
    return ANY if name in SCALARS else name


def absent(name: str, release: str) -> Collection[str]:
    """Return the fields of a type that a release of Kubernetes does not have and another one has."""
    found: Collection[str] = _kubernetes().get(f"absent {release}", {}).get(name, ())
    return found


@cache
def _kubernetes() -> dict[str, Any]:
    return _read("kubernetes_fields.json")


@cache
def _workloads() -> dict[str, Any]:
    return _read("workload_fields.json")


def _read(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(resources.files(__package__).joinpath(file).read_text("utf-8"))
    return found


@cache
def _own_types() -> Mapping[str, Mapping[str, str]]:
    """Return the types of Muster's objects, each by its path from its kind: `Queue.spec.quotas`."""
    found: dict[str, dict[str, str]] = {}
    for definition in crds.all_definitions().values():
        kind: str = definition["spec"]["names"]["kind"]
        _collect(crds.schema_of(definition), kind, found)
        found[kind]["metadata"] = META
    return found


def _collect(schema: Schema, path: str, found: dict[str, dict[str, str]]) -> str:
    """Add the types of a schema; return that of its own value."""
    if path in KEPT:
        return KEPT[path]
    for key, mark in (("items", LIST), ("additionalProperties", MAPPING)):
        if key in schema:
            inner = _collect(schema[key], path, found)
            return f"{mark}{inner}" if inner else ANY
    if schema.get("type") != "object" or schema.get("x-kubernetes-preserve-unknown-fields"):
        return ANY
    properties = schema.get("properties", {})
    found[path] = {name: _collect(inner, f"{path}.{name}", found) for name, inner in properties.items()}
    return path
