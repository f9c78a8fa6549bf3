"""Rules of ClaimPolicies: texts over variables whose types nobody knows."""

from typing import Any

import pytest

from admission.dra.cel import admitting, environments, programs
from admission.dra.cel.admitting import Flaw
from admission.dra.cel.programs import Result, Rule

VARIABLES = ("object", "request", "namespaceObject", "user")
CLAIM = {
    "metadata": {"name": "train", "labels": {"team": "vision"}},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 8}}]}},
}
INPUTS: dict[str, Any] = {
    "object": CLAIM,
    "request": {"operation": "CREATE", "dryRun": False, "weight": 0.5, "huge": 2**70},
    "user": {"username": "alice", "groups": ["vision", "dev"]},
}


def compiled(text: str, result: Result = Result.BOOL) -> Rule:
    rule = programs.compile_rule(text, VARIABLES, result=result)
    assert isinstance(rule, Rule), str(rule)
    return rule


ANSWERS: dict[str, tuple[str, bool | str]] = {
    "fields are read": ("object.metadata.name == 'train'", True),
    "labels are a map": ("'team' in object.metadata.labels && object.metadata.labels['team'] == 'vision'", True),
    "lists are looped over": (
        "object.spec.devices.requests.all(r, r.exactly.count <= 8 && r.exactly.deviceClassName in ['gpu'])",
        True,
    ),
    "groups are a list": ("user.groups.exists(g, g == 'dev')", True),
    "numbers keep their kind": ("request.weight < 1 && object.spec.devices.requests[0].exactly.count == 8", True),
    "numbers beyond 64 bits are doubles": ("request.huge > 1.0e20", True),
    "a variable without a value is null": ("namespaceObject == null", True),
    "a missing field fails": ("object.metadata.annotations.x == 'y'", "no such key: annotations"),
    "a missing field can be asked for": ("has(object.metadata.annotations)", False),
    "a missing field may have a default": ("object.metadata.?annotations.?x.orValue('y') == 'y'", True),
    "another kind is no answer": (
        "object.metadata.name",
        "CEL result of type string could not be converted to bool",
    ),
    "what costs too much is stopped": (
        "lists.range(1000).all(x, lists.range(1000).all(y, true)) || true",
        "operation cancelled: actual cost limit exceeded",
    ),
}


@pytest.mark.parametrize(("text", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_answers(text: str, answer: bool | str) -> None:
    try:
        got = compiled(text).evaluate(INPUTS)
    except programs.EvaluationError as error:
        got = str(error)

    assert got == answer


def test_a_rule_may_compute_a_text() -> None:
    rule = compiled('"%s by %s".format([object.metadata.name, user.username])', Result.STRING)

    assert rule.evaluate(INPUTS) == "train by alice"


REFUSED = {
    "another result": ("1 + 1", Result.STRING, Flaw.COMPILE_ERROR),
    "an unknown variable": ("device.driver == 'a'", Result.BOOL, Flaw.COMPILE_ERROR),
    "a text of 10,241 bytes": ("true" + " " * 10_237, Result.BOOL, Flaw.TOO_LONG),
}


@pytest.mark.parametrize(("text", "result", "flaw"), REFUSED.values(), ids=REFUSED)
def test_refuses(text: str, result: Result, flaw: Flaw) -> None:
    found = admitting.rule(text, VARIABLES, result=result)

    assert found is not None
    assert found.flaw is flaw


def test_takes_a_rule_whose_cost_nobody_can_know_before() -> None:
    assert admitting.rule("object.spec.devices.requests.all(r, r.name != '')", VARIABLES) is None


def test_rules_have_the_functions_of_their_release() -> None:
    older, newer = environments.Profile(release=36), environments.Profile(release=37)

    assert isinstance(programs.compile_rule("object.`a`", ["object"], profile=older), programs.CompileError)
    assert isinstance(programs.compile_rule("object.`a`", ["object"], profile=newer), Rule)


def test_what_is_no_json_is_no_input() -> None:
    with pytest.raises(TypeError, match="no JSON: set"):
        compiled("true").evaluate({"object": {"a": {1}}})
