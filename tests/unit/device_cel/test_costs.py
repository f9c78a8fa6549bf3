"""Costs in cel-go's units: the static cost, by types and sizes, and the runtime cost of an evaluation.

The numbers were given by k8s.io/dynamic-resource-allocation/cel v0.36.3.
"""

import pytest

from admission.cel.core import size_estimate
from admission.cel.cost import static_cost
from admission.cel.limits import Problem
from admission.device_cel import limits, programs
from tests.unit.device_cel import sample_device
from tests.unit.device_cel.sample_device import D

STATIC = {
    "a literal is free": ("true", 0),
    "a field costs 1 beside its variable": ("device.allowMultipleAllocations", 2),
    "an attribute is a variable, a field, an index and a field": (f"{D}.ecc", 4),
    "texts are compared by the shorter": (f'{D}.model == "A100"', 5),
    "has costs what it asks": (f"has({D}.model)", 3),
    "the dearer branch counts": (f'{D}.ecc ? {D}.model == "A100" : false', 9),
    "a list costs 10 and its size when asked": (f'{D}.model in ["a", "b"]', 16),
    "a pattern is read for each part of a text": (f'{D}.model.matches("^A[0-9]+$")', 25),
    "all costs 3 a turn": ("device.attributes.all(d, true)", 99),
    "exists costs 4 a turn": ("device.attributes.exists(d, false)", 131),
    "map builds a list each turn": ("device.attributes.map(d, 1).size() > 0", 399),
    "a binding costs an empty list": ("cel.bind(x, device.driver, x == 'a')", 14),
    "a quantity is read": ('device.capacity["gpu.example.com"].memory.compareTo(quantity("80Gi")) >= 0', 7),
    "what has no bound costs the most there is": ("lists.range(int(device.driver)).all(x, true)", size_estimate.MAX),
}


@pytest.mark.parametrize(("text", "cost"), STATIC.values(), ids=STATIC)
def test_the_static_cost_of_a_selector_is_that_of_the_api_server(text: str, cost: int) -> None:
    assert programs.static_cost(text) == cost


RUNTIME = {
    "what is not evaluated is free": (f"false && {D}.ecc", 0),
    "constants are free": ("[1, 2, 3] == [1, 2, 3]", 1),
    "a set of literals is free": (f'{D}.model in ["a", "A100"]', 4),
    "a branch that is an attribute costs 1 less": (f"(true ? {D}.index : 2) == 3", 4),
    "a binding costs when it is first read": ("cel.bind(x, device.driver, x == 'a' || x == 'b')", 6),
    "a failed qualifier costs too": (f"{D}.nosuch == 1", 5),
    "what is behind a failed qualifier does not": ("has(device.attributes.a.b.c)", 3),
    "all stops early, and asks once more": ("[1, 2, 3].all(x, x > 1)", 8),
    "arguments are evaluated after an error": (f"{D}.nosuch == {D}.index || true", 9),
    "but not where the overload is chosen late": (f"{D}.nosuch.compareTo({D}.driverVersion) == 1 || true", 5),
}


@pytest.mark.parametrize(("text", "cost"), RUNTIME.values(), ids=RUNTIME)
def test_the_runtime_cost_of_a_selector_is_that_of_cel_go(text: str, cost: int) -> None:
    program = programs.compile_device(text, always_tracks_cost=True)

    assert isinstance(program, programs.Program)
    assert program.measure(sample_device.VALUE)[1] == cost


def test_a_list_that_is_flattened_costs_its_length_for_every_level() -> None:
    costs = []
    for depth in (1, 3):
        program = programs.compile_device(f"[[[1]], [[2]]].flatten({depth}).size() == 2", always_tracks_cost=True)
        assert isinstance(program, programs.Program)
        costs.append(program.measure(sample_device.VALUE)[1])

    assert costs[1] - costs[0] == 2 * 2


def test_an_evaluation_beyond_the_limit_is_not_absorbed() -> None:
    text = "lists.range(1000).all(x, lists.range(1000).all(y, true)) || true"
    program = sample_device.program(text)
    assert isinstance(sample_device.VALUE, programs.DeviceValue)

    answer, cost = program.measure(sample_device.VALUE)

    assert str(answer) == "operation cancelled: actual cost limit exceeded"
    assert static_cost.LIMIT < cost < 2 * static_cost.LIMIT


def test_only_expressions_that_may_be_costly_are_tracked() -> None:
    plain = sample_device.program(f'{D}.model == "A100" && {D}.driverVersion.isGreaterThan(semver("1.0.0"))')
    looping = sample_device.program("lists.range(1000).all(x, lists.range(1000).all(y, x >= 0))")

    assert [plain.tracks_cost, looping.tracks_cost] == [False, True]


@pytest.mark.parametrize("text", [text for text, _ in RUNTIME.values()], ids=RUNTIME)
def test_tracking_changes_no_value(text: str) -> None:
    tracked = programs.compile_device(text, always_tracks_cost=True)
    assert isinstance(tracked, programs.Program)

    answer, _ = tracked.measure(sample_device.VALUE)

    assert (str(answer) if isinstance(answer, Exception) else answer) == sample_device.evaluate(text)


ADMITTED: dict[str, tuple[str, Problem | None]] = {
    "a selector": (f'{D}.model == "A100"', None),
    "10,240 bytes": ("true" + " " * 10_236, None),
    "10,241 bytes": ("true" + " " * 10_237, Problem.TOO_LONG),
    "fewer characters than bytes": (f'"{"日" * 3_412}" == "a"', Problem.TOO_LONG),
    "no program": ("1 +", Problem.COMPILE_ERROR),
    "a loop of loops": (
        "device.attributes.all(a, device.attributes.all(b, device.attributes.all(c, device.attributes.all(d, true))))",
        Problem.TOO_COSTLY,
    ),
}


@pytest.mark.parametrize(("text", "problem"), ADMITTED.values(), ids=ADMITTED)
def test_admission_by_the_api_server(text: str, problem: Problem | None) -> None:
    found = limits.check(text)

    assert (found and found.problem) == problem


def test_the_message_of_a_too_costly_expression_has_both_numbers() -> None:
    found = limits.check("lists.range(2000000).size() > 0")

    assert str(found) == "too costly: evaluating it may cost 2,000,013, the limit is 1,000,000; loop over less"
