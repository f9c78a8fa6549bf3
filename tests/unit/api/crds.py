"""The CRDs as a validator, and small objects to validate.

Does what the API server does with an object, less the CEL rules: those are judged by tests/e2e/test_crds.py.
"""

import copy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from admission.api.schemas import crds
from admission.api.schemas.fields import Schema
from admission.api.values import names

EXAMPLES = Path(__file__).parents[3] / "config" / "examples"

SCHEMAS = {
    definition["spec"]["names"]["kind"]: crds.schema_of(definition) for definition in crds.all_definitions().values()
}


def examples() -> dict[str, Any]:
    """Return the example objects of Muster's own kinds, by `Kind name`."""
    found = (obj for path in sorted(EXAMPLES.rglob("*.yaml")) for obj in yaml.safe_load_all(path.read_text()))
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in found if obj["apiVersion"] == names.API_VERSION}


FORMATS = jsonschema.FormatChecker(formats=())
"""The formats that the API server checks."""


@FORMATS.checks("int32")
def _is_int32(value: object) -> bool:
    return not isinstance(value, int) or -(2**31) <= value < 2**31


def problems(obj: Any) -> list[str]:
    """Return what the schema of the object's kind has against it, each with its path; unknown fields are flaws."""
    return [f"{error.json_path}: {error.message}" for error in _validator(obj["kind"]).iter_errors(obj)]


@cache
def _validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(closed(SCHEMAS[kind]), format_checker=FORMATS)


def defaulted(obj: Any) -> Any:
    """Return the object with the schema's defaults filled in, as the API server stores it."""
    return _fill(copy.deepcopy(obj), SCHEMAS[obj["kind"]])


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield every schema of ours inside a whole one, with its path: `[]` stands for items, `{}` for values of a map."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        if (path, name) != ("", "metadata"):
            yield from walk(part, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if "additionalProperties" in schema:
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def a_queue(**spec: Any) -> dict[str, Any]:
    return _an("Queue", "q", spec)


def a_meter(**source: Any) -> dict[str, Any]:
    """Return a meter of one source."""
    return _an("Meter", "m", {"sources": [{"deviceClasses": ["gpu.example.com"], **source}]})


def a_policy(**spec: Any) -> dict[str, Any]:
    return _an("ClaimPolicy", "p", spec)


def a_shape(**spec: Any) -> dict[str, Any]:
    """Return a shape of nodes without devices; what is None is left out."""
    given = {"maxCount": 4, "matchLabels": {"type": "gpu-8"}, "allocatable": {"cpu": 96}, **spec}
    return _an("NodeShape", "s", {name: value for name, value in given.items() if value is not None})


def a_gang(**spec: Any) -> dict[str, Any]:
    return _an("Gang", "g", {"queue": "q", "size": 1, **spec})


def a_quota(**fields: Any) -> dict[str, Any]:
    """Return a queue of one quota."""
    return a_queue(quotas=[{"meter": "gpus", "nominal": 1, **fields}])


def a_budget(**fields: Any) -> dict[str, Any]:
    """Return a queue of one budget."""
    return a_queue(budgets=[{"meter": "gpus", "hours": 1, **fields}])


def _an(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": names.API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def closed(schema: Schema, *, root: bool = True) -> Schema:
    """Turn a structural schema into a JSON schema that refuses the fields that the API server would drop."""
    found = dict(schema)
    if "properties" in schema:
        found["properties"] = {name: closed(part, root=False) for name, part in schema["properties"].items()}
        if root:
            found["properties"]["metadata"] = {"type": "object"}
    if "items" in schema:
        found["items"] = closed(schema["items"], root=False)
    if "additionalProperties" in schema:
        found["additionalProperties"] = closed(schema["additionalProperties"], root=False)
    elif schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    return found


def _fill(value: Any, schema: Schema) -> Any:
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
            if name in value:
                value[name] = _fill(value[name], part)
    if isinstance(value, list) and "items" in schema:
        return [_fill(item, schema["items"]) for item in value]
    return value
