"""Tolerations that compare numbers (`TaintTolerationComparisonOperators`, alpha in 1.36 and 1.37)."""

import pytest

from admission.api.values.selectors import Taint, Toleration

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
