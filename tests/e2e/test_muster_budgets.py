"""Budgets and an outage of the database on a real control plane."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually, holds_for
from tests.e2e import fixtures, musters
from tests.e2e.musters import Muster
from tests.e2e.teams import GROUP, Team, found_team
from tests.postgres import Server

hardware = fixtures.hardware(fleet.demo_fleet([4]))
muster = fixtures.muster(scope="function")


@pytest.fixture
def on_postgres(control_plane: ControlPlane, hardware: None, durable_postgres: Server) -> Iterator[Muster]:
    url = durable_postgres.database()
    with musters.running(control_plane, database=url) as muster:
        yield muster
    durable_postgres.drop(url)


def test_a_gang_that_the_budget_cannot_pay_for_starts_once_it_is_raised(
    control_plane: ControlPlane, muster: Muster, namespace: Namespace
) -> None:
    team = found_team(control_plane, namespace, gpus=4, budgets=[a_budget("1")], maxRuntime="1h")
    team.submit("pair", pods=2)

    hold = team.wait_held("pair", "BudgetExhausted")
    assert (hold["details"]["left"], hold["details"]["needed"]) == ("1", "2")
    holds_for(2, lambda: len(team.gated("pair")) == 2, what="no pod of it starts")
    assert "the whole budget of queue" in muster.command("why", f"{namespace.name}/pair")
    control_plane.client().merge_patch(f"{GROUP}/queues/{team.queue}", {"spec": {"budgets": [a_budget("2.5")]}})

    team.wait_running("pair", 2)
    eventually(lambda: float(budget_of(team)["promised"]) > 1.9, what="what it may use is promised to it")
    budget = budget_of(team)
    assert (budget["hours"], budget["period"]) == ("2.5", "Month")
    # As of the last full minute, which may have passed since it began.
    assert float(budget["spent"]) < 0.1
    assert abs(float(budget["left"]) - 0.5) < 0.05
    assert "Month" in muster.command("queue", "list")
    team.disband()


def test_a_job_that_ends_while_the_database_is_down_is_released_with_the_true_time(
    control_plane: ControlPlane, on_postgres: Muster, durable_postgres: Server, namespace: Namespace
) -> None:
    team = found_team(control_plane, namespace, gpus=4)
    team.submit("train", pods=1)
    team.wait_running("train", 1)
    eventually(lambda: team.used("gpus") == (0, 1), what="its GPU is settled as used")

    durable_postgres.stop()
    team.submit("next", pods=1)
    team.wait_held("next", "LedgerUnavailable")
    ended = datetime.now(UTC)
    team.finish("train")
    eventually(lambda: team.used("gpus") == (0, 0), what="the book in memory goes on")
    freed = datetime.now(UTC)
    holds_for(5, lambda: len(team.gated("next")) == 1, what="nothing is granted")
    durable_postgres.start()

    team.wait_running("next", 1)
    released = [
        line for line in on_postgres.statement(team.queue) if line["kind"] == "release" and line["meter"] == "gpus"
    ]
    at = datetime.fromisoformat(released[0]["at"])
    assert ended <= at <= freed, "the controllers of Kubernetes free the claim in between, and the database comes later"
    assert "are right" in on_postgres.ledger("verify")
    team.disband()


def a_budget(hours: str) -> dict[str, Any]:
    return {"meter": "gpus", "hours": hours, "period": "Month"}


def budget_of(team: Team) -> Any:
    (budget,) = team.control_plane.client().get(f"{GROUP}/queues/{team.queue}")["status"]["budgets"]
    return budget
