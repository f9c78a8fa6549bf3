"""Expressions over variables of their caller's: their answers, their names, their budget."""

from typing import Any

import pytest

from admission.cel import environment as cel_environment, expressions
from admission.cel.core import types, values
from admission.cel.core.errors import EvaluationError
from admission.cel.environment import Environment
from admission.cel.expressions import Budget, Expression
from admission.cel.limits import Inadmissible, Problem
from admission.cel.programs import Result

VARIABLES = ("object", "request", "namespaceObject", "user")
ENVIRONMENT = cel_environment.for_variables(dict.fromkeys(VARIABLES, types.DYN), {})
CLAIM = {
    "metadata": {"name": "train", "labels": {"team": "vision"}},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": 8}}]}},
}
INPUTS: dict[str, Any] = {
    "object": CLAIM,
    "request": {"operation": "CREATE", "dryRun": False, "weight": 0.5, "huge": 2**70},
    "user": {"username": "alice", "groups": ["vision", "dev"]},
}
VALUES = [values.from_json(INPUTS.get(name)) for name in VARIABLES]


def compiled(text: str, result: Result | None = Result.BOOL, environment: Environment = ENVIRONMENT) -> Expression:
    found = expressions.compile_text(text, environment, result=result)
    assert isinstance(found, Expression), str(found)
    return found


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
    "what costs too much is stopped": (
        "lists.range(1000).all(x, lists.range(1000).all(y, true)) || true",
        "operation cancelled: actual cost limit exceeded",
    ),
}


@pytest.mark.parametrize(("text", "answer"), ANSWERS.values(), ids=ANSWERS)
def test_a_policy_expression_evaluates_to_the_expected_value_or_error(text: str, answer: bool | str) -> None:
    try:
        got = compiled(text).evaluate(VALUES, Budget())
    except EvaluationError as error:
        got = str(error)

    assert got == answer


def test_an_expression_may_compute_a_text() -> None:
    rule = compiled('"%s by %s".format([object.metadata.name, user.username])', Result.STRING)

    assert rule.evaluate(VALUES, Budget()) == "train by alice"


def test_an_expression_may_compute_anything() -> None:
    found = compiled("object.metadata.labels.map(k, k)", None)

    assert found.evaluate(VALUES, Budget()) == ("team",)
    assert str(found.result_type) == "list(dyn)"


REFUSED = {
    "another result": ("1 + 1", Result.STRING, Problem.COMPILE_ERROR),
    "an unknown variable": ("device.driver == 'a'", Result.BOOL, Problem.COMPILE_ERROR),
    "a text of 10,241 bytes": ("true" + " " * 10_237, Result.BOOL, Problem.TOO_LONG),
}


@pytest.mark.parametrize(("text", "result", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_policy_expression_that_may_not_be_used_is_refused_with_the_kind_of_problem(
    text: str, result: Result, problem: Problem
) -> None:
    found = expressions.compile_text(text, ENVIRONMENT, result=result)

    assert isinstance(found, Inadmissible)
    assert found.problem is problem


def test_expressions_have_the_functions_of_their_release() -> None:
    older, newer = (
        cel_environment.for_variables({"object": types.DYN}, {}, profile=cel_environment.Profile(release=release))
        for release in (36, 37)
    )

    assert isinstance(expressions.compile_text("object.`a`", older), Inadmissible)
    assert isinstance(expressions.compile_text("object.`a`", newer), Expression)


NAMES = {
    "a field of a name": ("object.metadata.name == 'x'", {"object.metadata"}),
    "a name alone": ("object == request", {"object", "request"}),
    "the test for a field": ("has(user.groups)", {"user.groups"}),
    "an index": ("object['metadata'] != null", {"object"}),
    "a loop's variable is none": ("user.groups.all(object, object == 'a')", {"user.groups"}),
    "what a loop reads besides its variable is": ("user.groups.all(g, g == object)", {"user.groups", "object"}),
    "the range of a loop is read outside of it": ("object.all(object, object)", {"object"}),
    "a binding's variable is none": ("cel.bind(request, user.username, request == 'a')", {"user.username"}),
}


@pytest.mark.parametrize(("text", "names"), NAMES.values(), ids=NAMES)
def test_a_compiled_expression_lists_the_variables_that_it_reads(text: str, names: set[str]) -> None:
    assert compiled(text).names == names


def test_evaluations_share_a_budget() -> None:
    dear, budget = compiled("lists.range(1000).all(x, x >= 0)"), Budget(cost=12_000)

    assert dear.evaluate(VALUES, budget) is True
    assert 0 < budget.cost < 8_000
    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        [dear.evaluate(VALUES, budget) for _ in range(2)]


def test_cheap_texts_are_charged_their_bound() -> None:
    cheap, budget = compiled("object.metadata.name == 'train'"), Budget(cost=20)

    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        [cheap.evaluate(VALUES, budget) for _ in range(20)]


def test_turns_of_loops_are_shared_too() -> None:
    budget = Budget(steps=1_500)

    assert compiled("lists.range(1000).all(x, x >= 0)").evaluate(VALUES, budget) is True
    with pytest.raises(EvaluationError, match="cost limit exceeded"):
        compiled("lists.range(1000).all(x, x >= 0)").evaluate(VALUES, budget)


def test_a_lazy_map_computes_a_value_once_when_the_value_is_read() -> None:
    asked: list[str] = []

    def compute(name: str) -> int:
        asked.append(name)
        if name == "bad":
            raise EvaluationError("it is bad")
        return 7

    environment = cel_environment.for_variables({"variables": types.DYN}, {})
    given = [values.LazyMap(("a", "b", "bad"), compute)]

    both = compiled("variables.a + variables.a == 14 && has(variables.b)", environment=environment)
    assert both.evaluate(given, Budget()) is True
    assert asked == ["a"]
    for _ in range(2):
        with pytest.raises(EvaluationError, match="it is bad"):
            compiled("variables.bad == 1", environment=environment).evaluate(given, Budget())
    with pytest.raises(EvaluationError, match="no such key: c"):
        compiled("variables.c == 1", environment=environment).evaluate(given, Budget())
    assert asked == ["a", "bad"]


def test_a_python_object_that_is_not_json_is_no_cel_value() -> None:
    with pytest.raises(TypeError, match="no JSON: set"):
        values.from_json({"a": {1}})
