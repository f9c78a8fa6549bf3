"""Write admission/api/schemas/kubernetes_fields.json from the OpenAPI that Kubernetes' own repository has.

`python -m tests.conformance.kubernetes_fields`, for a new release or another kind. tests/e2e/test_validation.py holds
the file against what a running API server publishes. The file has a line for each type:

    kinds   `group/version/Kind` -> type
    types   type -> field -> the type of its value, after `[]` of its elements, after `{}` of its keys' values: a name
            in types, one of SCALARS, or "" for any value, such as an object of another API
    absent  release -> type -> fields that another release has and it has not
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.controlplane import building, modules

FILE = Path(__file__).parents[2] / "admission" / "api" / "schemas" / "kubernetes_fields.json"

Definitions = Mapping[str, Any]
Types = dict[str, dict[str, str]]

DRA = ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "DeviceTaintRule")
STORAGE = ("StorageClass", "CSINode", "CSIDriver", "CSIStorageCapacity", "VolumeAttachment")
KINDS = frozenset(
    {
        *(("", "v1", kind) for kind in ("Pod", "Node", "Namespace", "LimitRange", "ReplicationController")),
        *(("", "v1", kind) for kind in ("PersistentVolume", "PersistentVolumeClaim")),
        *(("storage.k8s.io", "v1", kind) for kind in STORAGE),
        *(("apps", "v1", kind) for kind in ("Deployment", "ReplicaSet", "DaemonSet", "StatefulSet")),
        *(("batch", "v1", kind) for kind in ("Job", "CronJob")),
        ("scheduling.k8s.io", "v1", "PriorityClass"),
        ("node.k8s.io", "v1", "RuntimeClass"),
        *(("scheduling.k8s.io", version, "PodGroup") for version in ("v1alpha2", "v1alpha3", "v1beta1")),
        *(("resource.k8s.io", version, kind) for version in ("v1", "v1beta2", "v1beta1") for kind in DRA),
        ("resource.k8s.io", "v1alpha3", "DeviceTaintRule"),
    }
)
"""Group, version and kind of what `muster simulate` reads, and of what makes pods."""

BESIDE = ("io.k8s.api.core.v1.PodTemplateSpec",)
"""Types of parts of objects that other APIs define."""

ANY = frozenset({"io.k8s.apimachinery.pkg.runtime.RawExtension", "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1"})
"""Types of values that are kept as written; others without properties are objects without fields."""

SCALARS: Mapping[tuple[str, str], str] = {
    ("string", ""): "string",
    ("boolean", ""): "bool",
    ("integer", "int32"): "int32",
    ("integer", "int64"): "int64",
    ("string", "date-time"): "Time",
    ("string", "int-or-string"): "IntOrString",
}
"""By type and format, what OpenAPI calls a scalar in the file, named as in Go."""

QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"

SHORT = re.compile(r"^io\.k8s\.(api\.|apimachinery\.pkg\.apis\.)?")


def main() -> None:
    """Write the file for every release that can be built."""
    FILE.write_text(text({version: published(version) for version in (*building.VERSIONS, *building.ON_DEMAND)}))
    print(f"{FILE}: {FILE.stat().st_size} bytes")


def published(version: str) -> Definitions:
    """Return the definitions of the OpenAPI in the source of the release that the control plane is built from."""
    requirement = (building.HERE / f"k8s-{version}" / "go.mod").read_text()
    patch = re.search(r"k8s\.io/kubernetes (v\S+)", requirement)
    assert patch is not None, version
    swagger = modules.source("k8s.io/kubernetes", patch[1]) / "api" / "openapi-spec" / "swagger.json"
    definitions: Definitions = json.loads(swagger.read_text())["definitions"]
    return definitions


def text(releases: Mapping[str, Definitions]) -> str:
    """Return the file for releases: `1.37` -> definitions."""
    found = {release: read(definitions) for release, definitions in releases.items()}
    kinds: dict[str, str] = {}
    types: Types = {}
    for own_kinds, own_types in found.values():
        kinds |= own_kinds
        for name, fields in own_types.items():
            types[name] = types.get(name, {}) | fields
    absent = {
        release: {name: missing for name in own if (missing := sorted(types[name].keys() - own[name].keys()))}
        for release, (_, own) in found.items()
    }
    parts: dict[str, Mapping[str, Any]] = {
        "kinds": kinds,
        "types": types,
        **{f"absent {release}": absent[release] for release in sorted(absent)},
    }
    return "{\n" + ",\n".join(f'"{name}": {{\n{_lines(part)}\n}}' for name, part in parts.items()) + "\n}\n"


def _lines(part: Mapping[str, Any]) -> str:
    return ",\n".join(f"{_compact(name)}:{_compact(part[name])}" for name in sorted(part))


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def read(definitions: Definitions) -> tuple[dict[str, str], Types]:
    """Return the kinds of one release, and every type that they are made of."""
    kinds = {
        "/".join(filter(None, one)): name
        for name, definition in definitions.items()
        for one in _kinds_of(definition)
        if one in KINDS
    }
    types: Types = {}
    waiting = [*kinds.values(), *BESIDE]
    while waiting:
        name = waiting.pop()
        if SHORT.sub("", name) not in types:
            properties = definitions[name].get("properties", {})
            references = {field: _reference(schema, definitions) for field, schema in properties.items()}
            types[SHORT.sub("", name)] = {
                field: mark + SHORT.sub("", kind) for field, (mark, kind) in references.items()
            }
            waiting += [kind for _, kind in references.values() if kind in definitions]
    return {key: SHORT.sub("", name) for key, name in kinds.items()}, types


def _kinds_of(definition: Any) -> Iterator[tuple[str, str, str]]:
    for one in definition.get("x-kubernetes-group-version-kind", ()):
        yield one["group"], one["version"], one["kind"]


def _reference(schema: Any, definitions: Definitions) -> tuple[str, str]:
    """Return what a field holds: the mark of a list or mapping, and the definition or the scalar of its values."""
    if "items" in schema or "additionalProperties" in schema:
        mark, inner = ("[]", schema["items"]) if "items" in schema else ("{}", schema["additionalProperties"])
        deeper, kind = _reference(inner, definitions)
        return (mark + deeper, kind) if kind else ("", "")
    name = schema.get("$ref", "").rpartition("/")[2]
    if name == QUANTITY:
        return "", "Quantity"
    if name in ANY:
        return "", ""
    if name and definitions[name]["type"] == "object":
        return "", name
    scalar = definitions[name] if name else schema
    return "", SCALARS[scalar["type"], scalar.get("format", "")]


if __name__ == "__main__":
    main()
