"""The schemas of Muster's own objects, as far as they can be judged without an API server."""

from typing import Any

import jsonschema
import pytest

from admission.api.schemas import crds
from admission.api.schemas.fields import Schema
from tests.unit.api import crds as api_crds
from tests.unit.api.crds import a_gang, a_meter, a_policy, a_queue, a_quota

EXAMPLES = api_crds.examples()
FIELDS = {f"{kind}{path}": part for kind, schema in api_crds.SCHEMAS.items() for path, part in api_crds.walk(schema)}
WITH_DEFAULT = {path: part for path, part in FIELDS.items() if "default" in part}


def test_every_field_is_described_in_sentences() -> None:
    texts = {path: part.get("description", "") for path, part in FIELDS.items()}

    assert len(texts) > 300
    assert {
        path: text
        for path, text in texts.items()
        if len(text) < 10 or not text[0].isupper() or not text.endswith((".", ")"))
    } == {}


def test_every_field_has_a_type() -> None:
    ints_or_strings = {path: bool(part.get("x-kubernetes-int-or-string")) for path, part in FIELDS.items()}

    assert [path for path, part in FIELDS.items() if ("type" in part) == ints_or_strings[path]] == []


def test_every_field_is_bounded() -> None:
    """The API server estimates the cost of CEL rules from the bounds, and takes the largest request without them."""
    assert [path for path, part in FIELDS.items() if not _is_bounded(path, part)] == []


def _is_bounded(path: str, part: Schema) -> bool:
    match part.get("type"):
        case "string":
            by_itself = "enum" in part or part.get("format") == "date-time" or path.endswith((".kind", ".apiVersion"))
            return by_itself or "maxLength" in part
        case "array":
            return "maxItems" in part
        case "object":
            return "additionalProperties" not in part or "maxProperties" in part
        case other:
            return other in ("integer", "boolean", None)


@pytest.mark.parametrize("path", WITH_DEFAULT)
def test_every_default_satisfies_its_own_schema_and_is_described(path: str) -> None:
    part = WITH_DEFAULT[path]

    jsonschema.validate(part["default"], part)
    if part["default"] != {}:
        plain = str(part["default"]).lower()
        assert f"default: {plain}" in part["description"].lower().replace('"', "")


def test_required_fields_and_keys_of_lists_exist() -> None:
    for part in FIELDS.values():
        assert set(part.get("required", ())) <= set(part.get("properties", ()))
        assert set(part.get("x-kubernetes-list-map-keys", ())) <= set(part.get("items", {}).get("required", ()))


def test_every_list_field_declares_its_list_type() -> None:
    lists = [part for part in FIELDS.values() if part.get("type") == "array"]

    assert lists
    assert {part["x-kubernetes-list-type"] for part in lists} == {"map", "set", "atomic"}


def test_the_message_of_every_validation_rule_names_the_remedy() -> None:
    rules = [rule for part in FIELDS.values() for rule in part.get("x-kubernetes-validations", ())]

    assert rules
    assert all(len(rule["message"]) > 20 and "\n" not in rule["message"] + rule["rule"] for rule in rules)


@pytest.mark.parametrize("definition", crds.all_definitions().values(), ids=crds.all_definitions())
def test_the_columns_show_fields_that_exist(definition: Schema) -> None:
    version = definition["spec"]["versions"][0]
    known = {path for path, _ in api_crds.walk(version["schema"]["openAPIV3Schema"])} | {".metadata.creationTimestamp"}

    for column in version["additionalPrinterColumns"]:
        assert column["jsonPath"].partition("[?")[0] in known
    for selectable in version.get("selectableFields", ()):
        assert selectable["jsonPath"] in known


@pytest.mark.parametrize("obj", EXAMPLES.values(), ids=EXAMPLES)
def test_the_examples_are_valid(obj: Any) -> None:
    assert api_crds.problems(obj) == []
    assert api_crds.problems(api_crds.defaulted(obj)) == []


def test_the_examples_show_every_kind() -> None:
    assert {obj["kind"] for obj in EXAMPLES.values()} == set(api_crds.SCHEMAS)


GOOD = {
    "a root queue": a_queue(),
    "amounts as numbers": a_quota(nominal=8, borrowingLimit=0),
    "amounts as text": a_quota(nominal="8", borrowingLimit="0"),
    "bytes": a_quota(nominal="640Gi", lendingLimit="1.5Ti"),
    "an amount with an exponent": a_quota(nominal="5e3"),
    "the largest amount": a_quota(nominal="1" + "0" * 27),
    "a duration of several parts": a_queue(startTimeout="1h30m"),
    "a duration with decimals": a_queue(startTimeout="1.5h"),
    "a weight below one": a_queue(fairSharing={"weight": "0.5"}),
    "a weight as a number": a_queue(fairSharing={"weight": 2}),
    "the capacity of a domain": a_meter(capacity={"name": "gpu.example.com/memory"}),
    "a counter of any set": a_meter(counter={"name": "memory"}),
    "fields of a claim that are newer than Muster": a_policy(
        templates=[{"name": "t", "spec": {"devices": {"requests": [{"name": "r", "some": {"new": 1}}], "more": []}}}]
    ),
    "the details of a hold": a_gang()
    | {"status": {"hold": {"reason": "QuotaExceeded", "message": "m", "details": {"left": "2", "who": ["a", "b"]}}}},
}


@pytest.mark.parametrize("obj", GOOD.values(), ids=GOOD)
def test_a_valid_object_is_accepted_by_the_schema(obj: Any) -> None:
    assert api_crds.problems(obj) == []


BAD = {
    "no spec": ({"kind": "Queue"}, "'spec' is a required property"),
    "a field that does not exist": (a_queue(quota=[]), "'quota' was unexpected"),
    "a strategy that does not exist": (a_queue(queueingStrategy="FIFO"), "'FIFO' is not one of"),
    "a parent that is no name": (a_queue(parent="Team A"), "'Team A' does not match"),
    "a quota without an amount": (a_queue(quotas=[{"meter": "gpus"}]), "'nominal' is a required property"),
    "an amount of millis": (a_quota(nominal="500m"), "'500m' does not match"),
    "an amount that is not whole": (a_quota(nominal="1.5"), "'1.5' does not match"),
    "an amount as a fraction": (a_quota(nominal=1.5), "1.5 is not valid under any"),
    "an amount that is no number": (a_quota(nominal="eight"), "'eight' does not match"),
    "an amount with a space": (a_quota(nominal="8 Gi"), "'8 Gi' does not match"),
    "an amount as true": (a_quota(nominal=True), "True is not valid under any"),
    "a number without a unit as a duration": (a_queue(startTimeout="300"), "'300' does not match"),
    "a duration in days": (a_queue(maxRuntime="3d"), "'3d' does not match"),
    "a negative weight": (a_queue(fairSharing={"weight": -1}), "-1 is less than the minimum"),
    "a negative limit of tries": (a_queue(requeue={"limit": -1}), "-1 is less than the minimum"),
    "a meter of no classes": (a_meter(deviceClasses=[], count={}), "should be non-empty"),
    "a rate of nothing": (
        a_meter() | {"spec": {"resources": [{"name": "cpu", "factor": 0}]}},
        "0 is less than the minimum of 1",
    ),
    "a rate for a part of a core in decimals": (
        a_meter() | {"spec": {"resources": [{"name": "cpu", "per": "0.5"}]}},
        "'0.5' does not match",
    ),
    "a capacity without a name": (a_meter(capacity={}), "'name' is a required property"),
    "an expression that is not CEL in an object": (a_meter(expression="1"), "'1' is not of type 'object'"),
    "33 devices by default": (a_policy(defaults=[{"count": 33}]), "33 is greater than the maximum"),
    "a rule without a message": (a_policy(rules=[{"cel": "true"}]), "'message' is a required property"),
    "an action that does not exist": (
        a_policy(rules=[{"cel": "true", "message": "m", "action": "Ignore"}]),
        "'Ignore' is not one of",
    ),
    "a gang of nobody": (a_gang(size=0), "0 is less than the minimum"),
    "a gang without a queue": (a_gang() | {"spec": {"size": 1}}, "'queue' is a required property"),
    "a phase that does not exist": (a_gang() | {"status": {"phase": "Waiting"}}, "'Waiting' is not one of"),
}


@pytest.mark.parametrize(("obj", "problem"), BAD.values(), ids=BAD)
def test_an_invalid_object_is_refused_by_the_schema(obj: Any, problem: str) -> None:
    assert any(problem in found for found in api_crds.problems(obj)), api_crds.problems(obj)
