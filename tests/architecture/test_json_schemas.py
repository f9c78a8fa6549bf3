"""`config/schemas` has the CRDs as JSON schemas, for editors and kubeconform. `make crds` rewrites them.

They refuse what the API server refuses, less the CEL rules; and unknown fields, which it drops with a warning. Names
are those that kubeconform looks for: `{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json`.
"""

import json
import os
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import referencing
from referencing.jsonschema import DRAFT7

from admission.api.schemas.fields import Schema
from admission.api.values import names
from tests.unit.api import crds

FOLDER = Path(__file__).parents[2] / "config" / "schemas"
DRAFT = "http://json-schema.org/draft-07/schema#"
"""The latest that the YAML language server of editors knows in full."""

ANY = f"{names.GROUP}.json"
"""The schema of a file that may have objects of all kinds, those of others as well."""


def _schemas() -> dict[str, Schema]:
    """Return the schemas by file."""
    files = {kind: f"{names.GROUP}/{kind.lower()}_{names.VERSION}.json" for kind in crds.SCHEMAS}
    any_kind = [
        {
            "if": {
                "required": ["apiVersion", "kind"],
                "properties": {"apiVersion": {"const": names.API_VERSION}, "kind": {"const": kind}},
            },
            "then": {"$ref": file},
        }
        for kind, file in files.items()
    ]
    described = "An object of Kubernetes: those of Muster are checked, all others pass."
    return {file: _of_kind(kind) for kind, file in files.items()} | {
        ANY: {"$schema": DRAFT, "title": "Muster", "description": described, "type": "object", "allOf": any_kind}
    }


def _of_kind(kind: str) -> Schema:
    schema = _plain(crds.closed(crds.SCHEMAS[kind]))
    schema["properties"]["apiVersion"]["enum"] = [names.API_VERSION]
    schema["properties"]["kind"]["enum"] = [kind]
    required = ["apiVersion", "kind", "metadata", *schema.get("required", ())]
    return {"$schema": DRAFT, "title": kind, **schema, "required": required}


def _plain(part: Any) -> Any:
    """Return a copy without the keywords of Kubernetes, which JSON Schema does not know."""
    if isinstance(part, dict):
        return {key: _plain(value) for key, value in part.items() if not key.startswith("x-kubernetes-")}
    return [_plain(value) for value in part] if isinstance(part, list) else part


SCHEMAS = _schemas()
REGISTRY: referencing.Registry[Any] = (
    referencing.Registry()
    .with_resources((file, DRAFT7.create_resource(schema)) for file, schema in SCHEMAS.items())
    .crawl()
)
EXAMPLES = crds.examples()


@pytest.mark.parametrize("file", SCHEMAS)
def test_a_json_schema_is_what_the_crd_says(file: str) -> None:
    path, wanted = FOLDER / file, json.dumps(SCHEMAS[file], indent=2, ensure_ascii=False) + "\n"
    if os.environ.get("MUSTER_REGENERATE") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted)

    assert path.exists(), f"{path} is missing: run `make crds`"
    assert path.read_text() == wanted, f"{path} differs from its CRD: run `make crds`"
    jsonschema.Draft7Validator.check_schema(SCHEMAS[file])


def test_there_is_no_json_schema_without_a_crd() -> None:
    assert {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.json")} == SCHEMAS.keys()


def _problems(obj: Any, file: str) -> list[str]:
    validator = jsonschema.Draft7Validator(SCHEMAS[file], registry=REGISTRY)
    return [error.message for error in validator.iter_errors(obj)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_pass_the_json_schema_of_their_kind_and_no_other(name: str) -> None:
    obj = EXAMPLES[name]
    passed = {file for file in SCHEMAS if not _problems(obj, file)}

    assert passed == {ANY, f"{names.GROUP}/{obj['kind'].lower()}_{names.VERSION}.json"}


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ({"quota": []}, "quota"),
        ({"quotas": [{"meter": "gpus", "nominal": 1, "borowingLimit": 1}]}, "borowingLimit"),
        ({"quotas": [{"meter": "gpus", "nominal": "eight"}]}, "eight"),
        ({"quotas": [{"nominal": 1}]}, "meter"),
        ({"stopPolicy": "Stop"}, "Stop"),
    ],
)
def test_a_json_schema_refuses_what_the_api_server_does(spec: dict[str, Any], word: str) -> None:
    queue = crds.a_queue(**spec)

    for file in (ANY, f"{names.GROUP}/queue_{names.VERSION}.json"):
        [problem] = _problems(queue, file)
        assert re.search(rf"'{word}'", problem)


def test_objects_of_others_pass_the_schema_of_any() -> None:
    assert _problems({"apiVersion": "v1", "kind": "Queue", "data": {}}, ANY) == []
