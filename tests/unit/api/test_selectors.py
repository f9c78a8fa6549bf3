"""Numbers in labels and taints, read as Kubernetes reads them."""

import pytest

from admission.api.values.selectors import Requirement, Taint, Toleration

GREATEST = str(2**63 - 1)

LABELS = {
    "more": ("10", "Gt", "9", True),
    "less": ("-3", "Lt", "0", True),
    "equal": ("9", "Gt", "9", False),
    "zeros before it": ("007", "Lt", "8", True),
    "the greatest there is": (GREATEST, "Gt", "9", True),
    "more than there is": (str(2**63), "Gt", "9", False),
    "very long": ("9" * 5000, "Gt", "9", False),
    "a label that Python would read": ("1_0", "Gt", "9", False),
    "another base": ("0x10", "Gt", "9", False),
    "no number": ("many", "Gt", "9", False),
    "compared with no number": ("10", "Gt", "few", False),
}


@pytest.mark.parametrize(("label", "operator", "operand", "matches"), LABELS.values(), ids=LABELS)
def test_a_label_is_compared_as_a_number(label: str, operator: str, operand: str, matches: bool) -> None:
    requirement = Requirement(key="level", operator=operator, values=(operand,))

    assert requirement.matches({"level": label}) is matches


TAINTS = {
    "more": ("10", "Gt", "9", True),
    "less": ("-3", "Lt", "0", True),
    "equal": ("9", "Lt", "9", False),
    "zeros before it, which only labels may have": ("007", "Lt", "8", False),
    "more than there is": (str(2**63), "Gt", "9", False),
    "a taint without a value": ("", "Lt", "8", False),
}


@pytest.mark.parametrize(("value", "operator", "operand", "tolerates"), TAINTS.values(), ids=TAINTS)
def test_a_taint_is_compared_as_a_number(value: str, operator: str, operand: str, tolerates: bool) -> None:
    toleration = Toleration(key="level", operator=operator, value=operand)

    assert toleration.tolerates(Taint(key="level", value=value, effect="NoSchedule")) is tolerates
