"""Tolerations that compare numbers (`TaintTolerationComparisonOperators`, alpha in 1.36 and 1.37)."""

import pytest

from admission.api.values.selectors import Requirement, Taint, Toleration

CASES = {
    "a greater value is tolerated by Gt": ("Gt", "5", "10", True),
    "an equal one is not": ("Gt", "5", "5", False),
    "a less one is tolerated by Lt": ("Lt", "5", "-3", True),
    "a value that is no number is not": ("Gt", "5", "many", False),
    "nor a number with a sign or zeros before it": ("Gt", "5", "007", False),
    "nor one of more than 64 bits": ("Gt", "5", "9223372036854775808", False),
    "nor by a toleration without a number": ("Lt", "x", "1", False),
}


@pytest.mark.parametrize(("operator", "own", "value", "expected"), CASES.values(), ids=CASES)
def test_a_toleration_compares_numbers(operator: str, own: str, value: str, *, expected: bool) -> None:
    toleration = Toleration(key="tier", operator=operator, value=own)

    assert toleration.tolerates(Taint(key="tier", value=value, effect="NoSchedule")) is expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [("10", True), ("7", False), ("010", True), ("1_0", False), (" 10", False), ("9223372036854775808", False)],
)
def test_a_label_is_compared_as_a_number_of_64_bits_or_not_at_all(value: str, *, expected: bool) -> None:
    requirement = Requirement(key="level", operator="Gt", values=("7",))

    assert requirement.matches({"level": value}) is expected
