"""`muster gang list` and `muster queue list`: rows for people, JSON for programs."""

import json
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from admission import cli
from admission.api.muster import status_views
from admission.cli import cluster_options, gang as cli_gang
from admission.cli.queue import list_command

QUEUE = {
    "metadata": {"name": "team"},
    "status": {
        "conditions": [
            {"type": "Active", "status": "False", "reason": "Cycle", "message": "its parents go in a circle"}
        ],
        "meters": [
            {"meter": "claims", "nominal": "10", "used": "1"},
            {"meter": "memory", "nominal": "80Gi", "reserved": "10Gi", "used": "30Gi", "pending": "1Gi"},
        ],
        "gangs": {"pending": 2, "running": 1},
    },
}


def gang(name: str, phase: str, position: int = 0, queue: str = "team") -> dict[str, Any]:
    hold = {"reason": "DevicesBusy", "message": "one is missing; here is a long story", "details": {}}
    status = {"phase": phase, "pods": 2, **({"position": position, "hold": hold} if position else {})}
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"queue": queue, "size": 2}, "status": status}


GANGS = [gang("second", "Pending", 2), gang("over", "Finished"), gang("first", "Pending", 1), gang("runs", "Running")]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer every question from the objects above."""

    async def list_objects(_self: object, kind: Any, _namespace: str = "") -> list[Any]:
        return GANGS if kind.name == "Gang" else [QUEUE]

    class Connection:
        async def __aenter__(self) -> Self:
            return self

        async def __aexit__(self, *_: object) -> None: ...

    monkeypatch.setattr(cluster_options.Cluster, "list_objects", list_objects)
    monkeypatch.setattr(cluster_options, "Connection", lambda *_, **__: Connection())


def run(*words: str) -> str:
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.usefixtures("answers")
def test_gangs_that_run_come_first_then_those_that_wait_in_their_order() -> None:
    listed = json.loads(run("gang", "list", "--format", "json"))["gangs"]

    assert [found["name"] for found in listed] == ["runs", "first", "second", "over"]


@pytest.mark.usefixtures("answers")
def test_gang_list_filters_by_queue() -> None:
    assert json.loads(run("gang", "list", "--queue", "other", "--format", "json")) == {"gangs": []}


@pytest.mark.usefixtures("answers")
def test_a_row_has_the_short_form_of_the_reason() -> None:
    row = next(line for line in run("gang", "list").splitlines() if "a/first" in line)

    assert row.endswith("DevicesBusy: one is missing")


def test_no_gangs_are_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    cli_gang.show([])

    assert capsys.readouterr().out == "Gangs: none\n"


@pytest.mark.usefixtures("answers")
def test_reserved_amounts_count_as_used_in_queue_list() -> None:
    (queue,) = json.loads(run("queue", "list", "--format", "json"))["queues"]

    assert queue["meters"]["memory"] == {
        "nominal": "80Gi",
        "used": "40Gi",
        "borrowed": "0",
        "lent": "0",
        "pending": "1Gi",
    }
    assert (queue["active"], queue["message"]) == (False, "its parents go in a circle")
    assert queue["gangs"] == {"Pending": 2, "Reserved": 0, "Admitted": 0, "Running": 1}


def test_a_queue_that_admits_nothing_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    list_command.show([status_views.queue(QUEUE)])
    written = capsys.readouterr()

    assert written.out.splitlines()[1].split() == [
        *("QUEUE", "METER", "NOMINAL", "USED", "BORROWED"),
        *("LENT", "PENDING", "WAITING", "RUNNING"),
    ]
    assert written.err == "note: queue team is not active: its parents go in a circle\n"


def test_budgets_stand_in_a_table_of_their_own_and_what_is_exhausted_is_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    budget = {"meter": "gpus", "hours": "10", "spent": "9.5", "promised": "1", "left": "-0.5", "period": "Day"}
    condition = {"type": "BudgetLeft", "status": "False", "reason": "BudgetExhausted", "message": "nothing is left"}
    obj = {"metadata": {"name": "team"}, "status": {"conditions": [condition], "budgets": [budget]}}

    list_command.show([status_views.queue(obj)])

    written = capsys.readouterr()
    assert ["team", "gpus", "Day", "10", "9.5", "1", "0", "-0.5", "-", "-"] in map(str.split, written.out.splitlines())
    assert "queue team: nothing is left" in written.err
