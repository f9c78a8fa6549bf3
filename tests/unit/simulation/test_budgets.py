"""`muster simulate` honours budgets: nothing was spent before, and gangs that run are promised their time."""

from typing import Any

from admission.api.muster.status_reports import BudgetUse
from admission.api.values.reasons import HoldReason
from admission.simulation.offline import Outcome
from tests.unit.simulation.simulated import Objects, fates, job, node, simulate, teams


def budgeted(hours: str) -> Objects:
    found: Objects = teams()
    budget: dict[str, Any] = {"meter": "gpus", "hours": hours, "period": "Day"}
    found[0]["spec"] |= {"budgets": [budget], "maxRuntime": "1h"}
    return found


def use_of(outcome: Outcome) -> BudgetUse:
    (use,) = outcome.queues[0].budgets
    return use


def test_a_gang_that_the_budget_cannot_pay_for_is_held() -> None:
    outcome = simulate(budgeted("3"), node("a", 8), job("first", pods=2), job("second", pods=2))

    assert fates(outcome) == {"first": "Admitted", "second": HoldReason.BUDGET_EXHAUSTED}
    assert use_of(outcome).left < 2 * 3600


def test_unused_budget_of_an_ended_gang_pays_for_the_next_gang() -> None:
    outcome = simulate(budgeted("3"), node("a", 8), job("first", pods=2), job("second", pods=2), until_empty=True)

    assert fates(outcome) == {"first": "Admitted", "second": "Admitted"}
    assert use_of(outcome).spent <= 60
