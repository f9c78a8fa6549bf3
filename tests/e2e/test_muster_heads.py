"""Signed heads on a real control plane: they are published, and books that were changed do not pass through them."""

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from admission.ledger.sql_ledger import SqlLedger
from tests.controlplane import ControlPlane, fleet
from tests.controlplane.namespaces import Namespace
from tests.controlplane.observing import eventually
from tests.e2e import fixtures, teams
from tests.e2e.musters import HEADS, Muster
from tests.e2e.teams import Team

CLUSTER = "default"
EVENTS = "/apis/events.k8s.io/v1/namespaces/muster-system/events"


hardware = fixtures.hardware(fleet.demo_fleet([4, 4]))
# It signs every second in which it has written.
muster = fixtures.muster(scope="function", heads={"interval": 1.0}, roles=["controller", "webhook"])


@pytest.fixture
def team(control_plane: ControlPlane, muster: Muster, namespace: Namespace) -> Iterator[Team]:
    """A team with a gang of three that runs, and a head of all that was booked for it."""
    with teams.of_eight(control_plane, namespace) as team:
        eventually(lambda: heads(team)[-1]["sequence"] == written(muster), what="what was booked is signed")
        yield team


def heads(team: Team) -> list[dict[str, Any]]:
    found = team.control_plane.client().find(HEADS)
    lines = found["data"]["heads.jsonl"].splitlines() if found else []
    return [json.loads(line) for line in lines] or [{"sequence": -1}]


def written(muster: Muster) -> int:
    return int(muster.rows("SELECT sequence FROM clusters")[0][0])


def verified(muster: Muster, *words: str) -> Any:
    return json.loads(muster.ledger("verify", "--format", "json", *words))


def told(team: Team, reason: str) -> list[str]:
    return [event["note"] for event in team.control_plane.client().items(EVENTS) if event["reason"] == reason]


def test_heads_are_published_and_the_books_pass_through_them(team: Team, muster: Muster, tmp_path: Any) -> None:
    kept = heads(team)
    assert [head["foreign"] for head in kept] == [[]] * len(kept), "the leader has written all of it"

    assert "the chain passes through" in muster.ledger("verify", "--heads", "cluster")
    document = muster.command("ledger", "heads", "--format", "json")
    file = tmp_path / "heads.json"
    file.write_text(document)
    by_file = verified(muster, "--heads", str(file))
    last = kept[-1]
    expected = verified(muster, "--expect", f"{last['sequence']}:{last['digest']}")

    assert (by_file["ok"], by_file["heads"]["compared"]) == (True, len(json.loads(document)["heads"]))
    assert (expected["ok"], expected["heads"]["compared"]) == (True, 1)
    assert len(re.findall("the head of the books is signed", muster.log)) >= len(kept)
    assert any("the books end at transaction 0, digest 000000" in note for note in told(team, "HeadSigned"))
    assert "right, key" in muster.command("ledger", "heads")


def test_while_heads_cannot_be_published_gangs_are_let_in(team: Team, muster: Muster) -> None:
    with muster.deprived("configmaps"):
        signed = heads(team)[-1]["sequence"]
        team.submit("next", pods=2)
        team.wait_running("next", 2)
        eventually(lambda: "a head of the books is not published" in muster.log, what="the log tells")
        assert heads(team)[-1]["sequence"] == signed

    eventually(lambda: heads(team)[-1]["sequence"] == written(muster), what="it is published after all", within=120)
    assert verified(muster, "--heads", "cluster")["ok"]


def test_a_correction_of_an_operator_is_named_and_can_be_accepted(team: Team, muster: Muster) -> None:
    with closing(sqlite3.connect(muster.database.partition("///")[2], timeout=10)) as connection, connection:
        connection.execute("UPDATE balances SET amount = '8' WHERE bucket = 'used'")
    muster.ledger("reconcile", "--grace", "0.5", "--fix", "--reason", "ticket 4711")

    eventually(lambda: any(head["foreign"] for head in heads(team)), what="the correction is signed as foreign")

    foreign = [one for head in heads(team) for one in head["foreign"]]
    found = verified(muster, "--heads", "cluster")
    assert found["finding"]["what"] == "not written by a leader"
    assert found["finding"]["sequence"] == foreign[0][0]
    accepted = [word for first, last in foreign for word in ("--accept", f"{first}-{last}")]
    assert verified(muster, "--heads", "cluster", *accepted)["ok"]
    eventually(lambda: told(team, "ForeignEntries"), what="an Event tells of it")


def test_books_that_were_written_anew_are_found_by_the_heads_in_the_cluster(team: Team, muster: Muster) -> None:
    before = heads(team)
    muster.end()
    changed = asyncio.run(rewritten(muster.database))

    assert "are right" in muster.ledger("verify"), "without heads they are believed"
    found = verified(muster, "--heads", "cluster")
    muster.start()
    eventually(lambda: told(team, "HeadNotPassed"), what="the leader tells")

    first = min(head["sequence"] for head in before if head["sequence"] >= changed)
    assert (found["finding"]["what"], found["finding"]["sequence"]) == ("head is not passed through", first)
    [digest] = {head["digest"] for head in before if head["sequence"] == first}
    assert digest in found["finding"]["detail"]
    assert "the books are not those that were signed" in muster.log
    assert heads(team) == before, "no further head is signed"
    assert team.used("gpus") == (0, 3), "what runs goes on"


async def rewritten(url: str) -> int:
    """Write the books anew with another reason in an entry, as their owner could with Muster's own code."""
    async with SqlLedger.open(url, CLUSTER) as ledger:
        entries = [entry for _, entry in await ledger.entries(1, (await ledger.end()).sequence)]
        epochs = [int(row[0]) for row in rows(url, "SELECT epoch FROM transactions ORDER BY sequence")]
        last = rows(url, "SELECT epoch FROM clusters")[0][0]
        tables = ("postings", "transactions", "balances", "open_seats", "open_holdings", "open_gangs")
        triggers = rows(url, "SELECT name FROM sqlite_master WHERE type = 'trigger'")
        rows(url, *(f"DROP TRIGGER {name}" for (name,) in triggers), *(f"DELETE FROM {table}" for table in tables))  # noqa: S608
        rows(url, "DELETE FROM clusters")
        changed = next(number for number, entry in enumerate(entries) if entry.kind == "reserve")
        entries[changed] = replace(entries[changed], reason="it was always so")
        for entry, epoch in zip(entries, epochs, strict=True):
            await ledger.post(entry, epoch=epoch)
        await ledger.fence(last)
    return changed + 1


def rows(url: str, *statements: str) -> list[Any]:
    """Run statements in the file of a ledger; return what the last one reads."""
    with closing(sqlite3.connect(url.partition("///")[2], timeout=10)) as connection, connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def test_an_epoch_that_was_raised_is_told_and_set_right(team: Team, muster: Muster) -> None:
    rows(muster.database, "UPDATE clusters SET epoch = 2000000000")

    team.submit("next", pods=1)
    eventually(lambda: told(team, "EpochRaised"), what="the controller tells that every leader is deposed")
    found = verified(muster, "--heads", "cluster")
    assert found["finding"]["what"] == "epoch differs"
    statement = re.search(r"UPDATE clusters SET epoch = \d+ WHERE cluster = 'default';", found["finding"]["detail"])
    assert statement is not None
    epoch = heads(team)[-1]["epoch"]

    rows(muster.database, statement[0])

    eventually(lambda: heads(team)[-1]["epoch"] > epoch, what="another leader begins and signs")
    assert verified(muster, "--heads", "cluster")["ok"]
    team.wait_running("next", 1)
