"""Expressions that would exhaust time or memory are stopped before they build values."""

from collections.abc import Callable

import pytest

from admission.cel.core import budget
from admission.cel.cost import static_cost
from admission.device_cel import programs
from tests.unit.device_cel import sample_device

GREEDY = {
    "a long range": "lists.range(1000000000).size() > 0",
    "loops in loops": "lists.range(1000).all(x, lists.range(1000).all(y, true))",
    "strings that double": "".join(f"cel.bind(s{n + 1}, s{n} + s{n}, " for n in range(30)).join(
        ('cel.bind(s0, "0123456789", ', "s30.size() > 0" + ")" * 31)
    ),
    "many long strings": "cel.bind(s, lists.range(1000).map(x, 'abcdefghij').join(), "
    "lists.range(100000).map(x, s + s).size() > 0)",
    "replacing nothing by much": "cel.bind(s, lists.range(100000).map(x, 'a').join(), s.replace('', s).size() > 0)",
    "a product of sets": "cel.bind(r, lists.range(5000), sets.contains(r, r))",
    "distinct elements of a long list": "lists.range(5000).distinct().size() > 0",
    "an enormous exponent": 'quantity("1e999999999") == quantity("1")',
}


@pytest.mark.parametrize("text", GREEDY.values(), ids=GREEDY)
def test_a_selector_that_uses_too_much_is_stopped_with_an_error(text: str) -> None:
    assert str(sample_device.evaluate(text)).startswith(("operation cancelled", "Muster"))


def test_an_enormous_precision_is_refused() -> None:
    assert "precision" in sample_device.compile_error('"%.999999f".format([1.0]) == ""')
    assert "precision" in str(sample_device.evaluate('dyn("%.999999f").format([1.0]) == ""'))


def test_an_aborted_evaluation_is_not_absorbed() -> None:
    assert sample_device.evaluate("lists.range(1000000000).size() > 0 || true") == str(budget.exceeded())


def test_a_failed_binding_is_not_computed_again() -> None:
    text = "".join(f"cel.bind(x{n}, " + ("1 / 0 == 1" if n == 0 else f"x{n - 1} || x{n - 1}") + ", " for n in range(30))

    assert sample_device.evaluate(f"{text}x29{')' * 30}") == "division by zero"


def test_patterns_take_linear_time() -> None:
    assert sample_device.evaluate(f'"{"a" * 5000}b".matches("^(a+)+$")') is False


def binds(count: int, value: Callable[[str], str], end: Callable[[str], str], first: str = "[1]") -> str:
    """Return nested bindings, each of which uses the one before."""
    opened = "".join(f"cel.bind(x{n + 1}, {value(f'x{n}')}, " for n in range(count))
    return f"cel.bind(x0, {first}, {opened}{end(f'x{count}')}{')' * (count + 1)}"


TWICE: dict[str, Callable[[str], str]] = {
    "comparing": lambda x: f"{x} == {x}",
    "comparing for inequality": lambda x: f"{x} != {x}",
    "asking a list": lambda x: f"{x} in [{x}]",
    "finding a place": lambda x: f"[{x}].indexOf({x}) == 0",
    "asking a scalar's function": lambda x: f"{x}.includes({x})",
    "leaving out equal ones": lambda x: f"[{x}, {x}].distinct().size() == 1",
    "comparing sets": lambda x: f"sets.contains([{x}], [{x}])",
    "writing": lambda x: f'"%s".format([{x}]) == ""',
    "flattening": lambda x: f"{x}.flatten(100).size() == 1",
    "converting to JSON": lambda x: f"google.protobuf.ListValue{{values: {x}}}.size() == 1",
    "adding up": lambda x: f"{x}.sum() == 1",
    "comparing in a loop": lambda x: f"lists.range(50000).all(i, {x} == {x})",
}


@pytest.mark.parametrize("end", TWICE.values(), ids=TWICE)
def test_a_list_of_2_to_the_30_leaves_is_not_traversed(
    end: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound is far below 2^30 as it is; a tenth of it is met in a tenth of the time."""
    monkeypatch.setattr(budget, "MAX_SIZE", 100_000)
    text = binds(30, lambda x: f"dyn([dyn({x}), dyn({x})])", end)

    assert sample_device.evaluate(text) == str(budget.exceeded())


def test_comparing_many_nested_elements_is_charged_for_each_pair() -> None:
    """cel-go charges the elements of the list alone."""
    text = "cel.bind(l, lists.range({}).map(x, [[[x]]]), l.indexOf([[[3]]]) == 3)"

    assert sample_device.evaluate(text.format(10)) is True
    assert sample_device.evaluate(text.format(900)) == str(budget.exceeded())


def test_nested_empty_lists_are_not_flattened_without_bound() -> None:
    text = binds(30, lambda x: f"dyn([dyn({x}), dyn({x})])", lambda x: f"{x}.flatten(100).size() == 0", first="dyn([])")

    assert sample_device.evaluate(text) == str(budget.exceeded())


def test_a_type_of_2_to_the_30_parts_is_rejected() -> None:
    assert "more than 1000 parts" in sample_device.compile_error(
        binds(30, lambda x: f"{{{x}: {x}}}", lambda x: f"{x}.size() == 1")
    )


LONG: dict[str, tuple[str, str]] = {
    "an int of 5,000 digits": ("9" * 5_000 + " == 1", "invalid int literal"),
    "a uint of 5,000 digits": ("9" * 5_000 + "u == 1u", "invalid uint literal"),
    "a quantity of 5,000 digits": (f'quantity("{"1" * 5_000}") == quantity("1")', "more than 4000 digits"),
    "a version of 5,000 digits": (f'semver("{"1" * 5_000}.0.0") == semver("1.0.0")', "number out of range"),
    "a pre-release of 5,000 digits": (f'semver("1.0.0-{"1" * 5_000}") == semver("1.0.0")', "number out of range"),
    "a duration of 5,000 digits": (f'duration("{"1" * 5_000}s") > duration("1s")', "invalid duration argument"),
    "a duration of letters": (f'duration("{"s" * 5_000}") > duration("1s")', "invalid duration argument"),
    "an exponent of 5,000 digits": (f'quantity("1e{"9" * 5_000}") == quantity("1")', "exponents"),
    "5,000 parentheses": ("(" * 5_000 + "1" + ")" * 5_000, "recursion"),
    "5,000 fields": ("device" + ".a" * 5_000, "recursion"),
    "1,400 methods": ('""' + ".trim()" * 1_400 + ' == ""', "recursion"),
    "5,000 terms": ("+".join(["1"] * 5_000) + " == 1", "recursion"),
    "700 conditions": ("true ? true : " * 700 + "true", "recursion"),
    "a pattern of 60,000 instructions": (f'"a".matches("{"(a?){50}" * 1_200}")', "pattern too large"),
    "a pattern of a million repeats": ('"a".matches("((a{100}){100}){100}")', "error parsing regexp"),
}


@pytest.mark.parametrize(("text", "message"), LONG.values(), ids=LONG)
def test_long_expressions_get_a_clear_error(text: str, message: str) -> None:
    compiled = programs.compile_device(text)
    said = str(compiled) if isinstance(compiled, programs.CompileError) else sample_device.evaluate(text)

    assert message in str(said)


READ = {
    "a duration of 3,000 parts": f'duration("{"1h" * 3_000}") == duration("3000h")',
    "a quantity of 4,000 digits": f'isQuantity("1.{"1" * 3_999}")',
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_a_long_text_is_read(text: str) -> None:
    assert sample_device.evaluate(text) is True


NESTED = {
    "sixty loops": "[1].all(x, " * 60 + "true" + ")" * 60,
    "a hundred lists": "[1].map(x, " * 100 + "1" + ")" * 100 + ".size() > 0",
    "two hundred bindings": "cel.bind(x, 1, " * 200 + "true" + ")" * 200,
    "a hundred optionals": "optional.of(1).optMap(x, " * 100 + "1" + ")" * 100 + ".hasValue()",
    "240 parentheses around chains": "(true && " * 240 + "true" + ")" * 240,
    "5,000 elements": f"[{', '.join('1' * 3_000)}].size() == 3000",
    "10,000 signs": "!" * 10_000 + "true",
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_valid_nesting_is_evaluated_at_low_cost(text: str) -> None:
    program = programs.compile_device(text, always_tracks_cost=True)
    assert isinstance(program, programs.Program), str(program)

    answer, cost = program.measure(sample_device.VALUE)

    assert answer is True
    assert cost < static_cost.LIMIT / 100


def test_a_call_that_costs_too_much_does_not_begin() -> None:
    """A sort of 400,000 numbers is charged all pairs."""
    assert sample_device.evaluate("lists.range(400000).sort().size() > 0 || true") == str(budget.exceeded())
    assert sample_device.evaluate("dyn(lists.range(400000)).sort().size() > 0 || true") == str(budget.exceeded())


def test_a_program_keeps_nothing_between_evaluations() -> None:
    program = sample_device.program("lists.range(1000).all(x, x >= 0)")

    assert isinstance(sample_device.VALUE, programs.DeviceValue)
    assert {program.evaluate(sample_device.VALUE) for _ in range(3)} == {True}
