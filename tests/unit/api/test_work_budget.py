"""The work that one review may cause."""

import re
from pathlib import Path

import pytest

from admission.api.values import work_budget
from admission.api.values.work_budget import Work, WorkBudget
from admission.errors import TooMuchWorkError


@pytest.mark.parametrize("work", Work)
def test_what_is_said_to_be_the_most_is_the_most(work: Work) -> None:
    budget = WorkBudget()

    budget.charge(work, work.most)

    with pytest.raises(TooMuchWorkError):
        budget.charge(work)


def test_a_refusal_says_which_limit_and_what_can_be_done() -> None:
    budget = WorkBudget()
    budget.charge(Work.CHANGE, 3)

    with pytest.raises(TooMuchWorkError) as raised:
        budget.charge(Work.CONTAINER, 10_000)

    assert str(raised.value) == (
        f"the review takes more work than one may: 10,000 containers (at most {Work.CONTAINER.most:,} alone),"
        f" 3 changes to the object (at most {Work.CHANGE.most:,} alone); use fewer containers in one pod"
    )
    assert raised.value.counts == {"change": 3, "container": 10_000}


def test_the_page_says_how_much_there_may_be_of_each() -> None:
    page = (Path(__file__).parents[3] / "docs" / "webhook.md").read_text()
    section = page.partition("### Work that one request may cause")[2].partition("\n### ")[0]
    numbers = set(re.findall(r"[0-9]+(?:,[0-9]{3})*", section))

    assert f"{work_budget.UNITS:,}" in numbers
    assert [work for work in Work if work is not Work.KNOWN_REQUEST and f"{work.most:,}" not in numbers] == []


def test_different_work_adds_up() -> None:
    budget = WorkBudget()
    budget.charge(Work.CONTAINER, Work.CONTAINER.most // 2 + 1)

    with pytest.raises(TooMuchWorkError):
        budget.charge(Work.TOKEN, Work.TOKEN.most // 2 + 1)


def test_values_are_counted_wherever_they_are() -> None:
    budget = WorkBudget()

    budget.charge_values({"a": [1, 2, {"b": None}], "c": "x"})

    assert budget.spent >= 7 * Work.VALUE.units


def test_what_can_be_left_out_takes_nothing_from_the_rest() -> None:
    budget = WorkBudget()

    assert budget.affords(Work.TOKEN, work_budget.SPARE_UNITS // Work.TOKEN.units)
    assert not budget.affords(Work.TOKEN, 2)
    assert budget.spent == 0
