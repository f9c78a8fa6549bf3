"""The five CustomResourceDefinitions of Muster, as plain mappings ready to be written as YAML or sent to the API."""

from admission.api.schemas import claim_policy, fields, gang, meter, node_shape, queue
from admission.api.schemas.fields import Schema
from admission.api.values import names

CATEGORY = "muster"
"""`kubectl get muster` lists the objects of all five kinds."""


def all_definitions() -> dict[str, Schema]:
    """Return every CustomResourceDefinition by its plural name."""
    return {
        "queues": _definition("Queue", "queues", "mq", queue.schema(), queue.COLUMNS, selectable=queue.SELECTABLE),
        "meters": _definition("Meter", "meters", "mm", meter.schema(), meter.COLUMNS),
        "claimpolicies": _definition(
            "ClaimPolicy", "claimpolicies", "mcp", claim_policy.schema(), claim_policy.COLUMNS
        ),
        "nodeshapes": _definition("NodeShape", "nodeshapes", "mns", node_shape.schema(), node_shape.COLUMNS),
        "gangs": _definition(
            "Gang", "gangs", "mg", gang.schema(), gang.COLUMNS, scope="Namespaced", selectable=gang.SELECTABLE
        ),
    }


def schema_of(definition: Schema) -> Schema:
    """Return the schema of the only version of a CustomResourceDefinition."""
    schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _definition(
    kind: str,
    plural: str,
    short: str,
    schema: Schema,
    columns: tuple[Schema, ...],
    *,
    scope: str = "Cluster",
    selectable: tuple[str, ...] = (),
) -> Schema:
    version: Schema = {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": list(columns),
        "schema": {"openAPIV3Schema": _with_common_fields(kind, schema)},
    }
    if selectable:
        version["selectableFields"] = [{"jsonPath": path} for path in selectable]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{names.GROUP}",
            "labels": {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "crds"},
        },
        "spec": {
            "group": names.GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": [CATEGORY],
            },
            "scope": scope,
            "versions": [version],
        },
    }


def _with_common_fields(kind: str, schema: Schema) -> Schema:
    """Return the schema of one kind with the fields that every object has."""
    common = {
        "apiVersion": fields.text(f"The version of the object's schema: {names.API_VERSION}."),
        "kind": fields.text(f"The kind of the object: {kind}."),
        # The API server has its own schema of metadata, and refuses any other, even a description.
        "metadata": {"type": "object"},
    }
    return schema | {"properties": common | schema["properties"]}
