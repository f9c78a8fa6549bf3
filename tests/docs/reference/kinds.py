"""Writes the reference of a custom resource from its schema: every field, and what the API server refuses."""

from collections.abc import Iterator
from typing import Any

from admission.api.schemas import crds
from admission.api.schemas.fields import Schema
from admission.api.values import names
from tests.docs.reference.tables import code, plain, table

KINDS = {definition["spec"]["names"]["kind"]: definition for definition in crds.all_definitions().values()}

HEADER = "<!-- Written from admission/api/schemas; change it there and run `make reference`. -->"
LIMITS = {
    "minimum": "≥ {}",
    "maximum": "≤ {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} entries",
    "maxItems": "at most {} entries",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "format": "{}",
    "default": "default `{}`",
}
PLAIN_FORMATS = ("int32", "int64")
LONGEST_TEXT = 253
"""What texts may have at most where nothing else is said."""


def page(kind: str) -> str:
    """Return the page of one kind."""
    definition = KINDS[kind]
    schema = crds.schema_of(definition)
    properties = schema["properties"]
    lines = [f"# {kind}", "", HEADER, "", plain(schema["description"]), "", *_head(definition), ""]
    for part in ("spec", "status"):
        if part in properties:
            lines += [f"## {part}", "", plain(properties[part]["description"]), ""]
            lines += [*table(("field", "type", "meaning"), _rows(properties[part], part)), ""]
    lines += _refusals(schema)
    lines += ["## Columns", "", f"What `kubectl get {definition['spec']['names']['plural']}` shows.", ""]
    lines += [*table(("column", "shown", "meaning"), _columns(definition)), ""]
    return "\n".join(lines)


def _head(definition: Schema) -> list[str]:
    called = definition["spec"]["names"]
    scope = "of the cluster" if definition["spec"]["scope"] == "Cluster" else "in a namespace"
    return table(
        ("", ""),
        (
            ("apiVersion", code(f"{names.GROUP}/{names.VERSION}")),
            ("kind", code(called["kind"])),
            ("stands", scope),
            ("kubectl", ", ".join(code(name) for name in (called["plural"], *called.get("shortNames", ())))),
        ),
    )


def _rows(schema: Schema, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield a row for each field below a schema, in the order of the schema."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        below = f"{path}.{name}"
        words = [code(below), *(["**required**"] if name in required else [])]
        yield " ".join(words), _type(field), " ".join([plain(field.get("description", "")), *_limits(field)]).strip()
        yield from _rows(*_inner(field, below))


def _inner(field: Schema, path: str) -> tuple[Schema, str]:
    """Return what a field holds, and how that is called: itself, or the items of a list, or the values of a map."""
    if "items" in field:
        return _inner(field["items"], f"{path}[]")
    if "additionalProperties" in field:
        return _inner(field["additionalProperties"], f"{path}.*")
    return field, path


def _type(field: Schema) -> str:
    if "enum" in field:
        return " or ".join(code(str(member)) for member in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "number or text"
    if "items" in field:
        return f"list of {_type(field['items'])}"
    if "additionalProperties" in field:
        return f"map of {_type(field['additionalProperties'])}"
    return str(field.get("type", "anything"))


def _limits(field: Schema) -> list[str]:
    """Say within which bounds a value has to be, as one sentence."""
    told = [words.format(_value(field[limit])) for limit, words in LIMITS.items() if _is_told(limit, field)]
    return [f"({'; '.join(told)})"] if told else []


def _is_told(limit: str, field: Schema) -> bool:
    value = field.get(limit)
    usual = {"maxLength": LONGEST_TEXT, "minLength": 1}.get(limit)
    said = limit == "default" and "default" in field.get("description", "").lower()
    return value is not None and value not in (usual, *PLAIN_FORMATS) and not said


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refusals(schema: Schema) -> list[str]:
    found = dict.fromkeys(_rules(schema, ""))
    listed = table(("field", "rule"), ((code(path), plain(message)) for path, message in found))
    introduction = "Besides types and bounds, the API server holds an object to these rules."
    return ["## Rules", "", introduction, "", *listed, ""] if listed else []


def _rules(schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    for rule in schema.get("x-kubernetes-validations", ()):
        yield path or "metadata", rule.get("message", rule["rule"])
    inner, below = _inner(schema, path)
    if inner is not schema:
        yield from _rules(inner, below)
        return
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{path}.{name}".lstrip("."))


def _columns(definition: Schema) -> Iterator[tuple[str, str, str]]:
    for column in definition["spec"]["versions"][0]["additionalPrinterColumns"]:
        yield column["name"], "with `-o wide`" if column.get("priority") else "always", plain(column["description"])
