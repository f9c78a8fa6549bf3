"""Reconciliation on a real control plane: what happened behind Muster's back is found, mended, and stays right."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, teams
from tests.e2e.musters import Muster
from tests.e2e.teams import Team

REASON = "a node was lost, ticket 4711"


hardware = fixtures.hardware(fleet.demo_fleet([4, 4]))
muster = fixtures.muster(scope="function")


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    with teams.of_eight(control_plane, namespace) as team:
        yield team


def reconcile(muster: Muster, *words: str) -> Any:
    return json.loads(muster.ledger("reconcile", "--grace", "0.5", "--format", "json", *words))


def whats(answer: Any) -> list[str]:
    return sorted(one["what"] for one in answer["differences"])


def test_books_of_a_running_gang_say_what_the_cluster_shows(team: Team, muster: Muster) -> None:
    assert "say what the cluster shows" in muster.ledger("reconcile", "--grace", "0.5")
    assert reconcile(muster)["differences"] == []


def test_what_went_while_muster_was_stopped_is_found_and_mended(team: Team, muster: Muster) -> None:
    muster.end(hard=True)
    team.control_plane.client().delete(f"{team.jobs}/train?propagationPolicy=Background")
    eventually(lambda: not team.pods("train"), what="the pods are gone")
    eventually(lambda: not team.control_plane.client().items(team.namespace.claims), what="and their claims")

    found = reconcile(muster)
    again = reconcile(muster, "--fix", "--reason", REASON)

    assert whats(found) == ["ClaimGone"] * 3 + ["PodGone"] * 3
    assert not any(one["fixed"] for one in found["differences"])
    assert whats(again) == whats(found)
    assert all(one["fixed"] for one in again["differences"])
    assert [entry["kind"] for entry in again["entries"]] == ["release"]
    assert reconcile(muster)["differences"] == []
    assert "are right" in muster.ledger("verify")
    (line, *_) = [line for line in muster.statement(team.queue) if line["kind"] == "release"]
    assert line["reason"] == REASON
    assert "by " in line["actor"]


def test_a_controller_goes_on_with_what_an_operator_has_mended(team: Team, muster: Muster) -> None:
    """The running controller is not deposed, takes the entry over, and gives quota away again that was held."""
    _execute(muster, "DELETE FROM open_holdings", "UPDATE balances SET amount = '8' WHERE bucket = 'used'")

    found = reconcile(muster)
    mended = reconcile(muster, "--fix", "--reason", REASON)

    assert "BalanceDiffers" in whats(found)
    assert all(one["fixed"] for one in mended["differences"])
    assert "are right" in muster.ledger("verify")
    team.submit("more", pods=5)
    team.wait_running("more", 5)
    eventually(lambda: team.used("gpus") == (0, 8), what="all is settled")
    # On a machine that stands still for seconds it may lose its lease, and has it again.
    assert muster.log.count("this process leads") == 1 + muster.log.count("the lease is lost"), "it was not deposed"
    assert "are right" in muster.ledger("verify")
    assert reconcile(muster)["differences"] == []


def test_what_runs_and_was_never_booked_is_entered(team: Team, muster: Muster) -> None:
    """A ledger that was lost: the new one knows quotas at once, and gangs that run by reconciliation."""
    muster.end(hard=True)
    other = f"{muster.database}.new"
    muster.command("ledger", "migrate", "--database", other)
    again = ("--database", other, "--grace", "0.5", "--format", "json")

    found = json.loads(muster.command("ledger", "reconcile", *again))
    mended = json.loads(muster.command("ledger", "reconcile", *again, "--fix", "--reason", REASON))

    mine = [one for one in found["differences"] if one["queue"] == team.queue]
    assert sorted(one["what"] for one in mine) == ["NotBooked"] * 3 + ["QuotaDiffers"] * 2
    assert all(one["fixed"] for one in mended["differences"])
    assert json.loads(muster.command("ledger", "reconcile", *again))["differences"] == []
    assert "are right" in muster.command("ledger", "verify", "--database", other)


def test_fix_wants_a_reason(muster: Muster) -> None:
    assert "--reason" in muster.ledger("reconcile", "--fix")


def _execute(muster: Muster, *statements: str) -> None:
    with closing(sqlite3.connect(muster.database.partition("///")[2], timeout=10)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
