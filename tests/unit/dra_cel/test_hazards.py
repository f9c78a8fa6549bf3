"""What would take the machine's time or memory is stopped before it is built."""

import pytest

from admission.dra.cel import budgets, programs
from tests.unit.dra_cel import asking

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
def test_stops(text: str) -> None:
    assert str(asking.ask(text)).startswith(("operation cancelled", "Muster"))


def test_an_enormous_precision_is_refused() -> None:
    assert "precision" in asking.refusal('"%.999999f".format([1.0]) == ""')
    assert "precision" in str(asking.ask('dyn("%.999999f").format([1.0]) == ""'))


def test_what_stops_an_evaluation_is_not_absorbed() -> None:
    assert asking.ask("lists.range(1000000000).size() > 0 || true") == str(budgets.exceeded())


def test_a_failed_binding_is_not_computed_again() -> None:
    text = "".join(f"cel.bind(x{n}, " + ("1 / 0 == 1" if n == 0 else f"x{n - 1} || x{n - 1}") + ", " for n in range(30))

    assert asking.ask(f"{text}x29{')' * 30}") == "division by zero"


def test_patterns_take_linear_time() -> None:
    assert asking.ask(f'"{"a" * 5000}b".matches("^(a+)+$")') is False


def test_a_program_keeps_nothing_between_evaluations() -> None:
    program = asking.program("lists.range(1000).all(x, x >= 0)")

    assert isinstance(asking.VALUE, programs.DeviceValue)
    assert {program.evaluate(asking.VALUE) for _ in range(3)} == {True}
