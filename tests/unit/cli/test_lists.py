"""`muster gang list` and `muster queue list`: rows for people, JSON, YAML, names and CSV for programs."""

import csv
import json
from typing import Any, Self

import pytest
import yaml
from typer.testing import CliRunner

from admission import cli
from admission.cli import cluster_options
from admission.cli.gang import reports as gang_reports
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

IDLE = {"metadata": {"name": "idle"}, "status": {"conditions": [{"type": "Active", "status": "True"}]}}


def gang(name: str, phase: str, position: int = 0, queue: str = "team") -> dict[str, Any]:
    hold = {"reason": "DevicesBusy", "message": "one is missing; here is a long story", "details": {}}
    since = {"queuedSince": f"2026-05-01T0{9 - position}:00:00Z", "position": position, "hold": hold}
    status = {"phase": phase, "pods": 2, **(since if position else {})}
    spec = {"queue": queue, "size": 2, "priority": position}
    return {"metadata": {"name": name, "namespace": "a"}, "spec": spec, "status": status}


GANGS = [gang("second", "Pending", 2), gang("over", "Finished"), gang("first", "Pending", 1), gang("runs", "Running")]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer every question from the objects above."""

    async def list_objects(_self: object, kind: Any, _namespace: str = "", *, labels: str = "") -> list[Any]:
        assert labels in {"", "of=them"}
        return GANGS if kind.name == "Gang" else [QUEUE, IDLE]

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
    gang_reports.show([])

    assert capsys.readouterr().out == "Gangs: none\n"


@pytest.mark.usefixtures("answers")
def test_reserved_amounts_count_as_used_in_queue_list() -> None:
    _, queue = json.loads(run("queue", "list", "--format", "json"))["queues"]

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
    list_command.show(list_command.with_sums([QUEUE]))
    written = capsys.readouterr()

    assert written.out.splitlines()[1].split() == [
        *("QUEUE", "METER", "NOMINAL", "USED", "BORROWED"),
        *("LENT", "PENDING", "WAITING", "STARTED"),
    ]
    assert written.err == "note: queue team is not active: its parents go in a circle\n"


def test_budgets_stand_in_a_table_of_their_own_and_what_is_exhausted_is_noted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    budget = {"meter": "gpus", "hours": "10", "spent": "9.5", "promised": "1", "left": "-0.5", "period": "Day"}
    condition = {"type": "BudgetLeft", "status": "False", "reason": "BudgetExhausted", "message": "nothing is left"}
    obj = {"metadata": {"name": "team"}, "status": {"conditions": [condition], "budgets": [budget]}}

    list_command.show(list_command.with_sums([obj]))

    written = capsys.readouterr()
    assert ["team", "gpus", "Day", "10", "9.5", "1", "0", "-0.5", "-", "-"] in map(str.split, written.out.splitlines())
    assert "queue team: nothing is left" in written.err


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize(
    ("words", "names"),
    {
        "gangs by name": ("gang list -A -n other --sort-by name", "first over runs second"),
        "gangs by priority": ("gang list --sort-by priority", "second first runs over"),
        "gangs by their wait": ("gang list -l of=them --sort-by waiting", "second first runs over"),
        "queues by name": ("queue list -l of=them", "idle team"),
        "queues by use": ("queue list --sort-by use", "team idle"),
        "queues by what waits": ("queue list --sort-by waiting", "team idle"),
    }.values(),
)
def test_lists_are_sorted_as_is_asked(words: str, names: str) -> None:
    kind = words.partition(" ")[0]

    assert run(*words.split(), "-o", "name").split() == [f"{kind}.muster.dev/{name}" for name in names.split()]


@pytest.mark.usefixtures("answers")
@pytest.mark.parametrize("kind", ["gang", "queue"])
def test_yaml_says_what_json_says_and_a_table_what_text_says(kind: str) -> None:
    assert yaml.safe_load(run(kind, "list", "-o", "yaml")) == json.loads(run(kind, "list", "-o", "json"))
    assert run(kind, "list", "-o", "table") == run(kind, "list", "-o", "text") == run(kind, "list")


@pytest.mark.usefixtures("answers")
def test_csv_has_a_row_for_each_meter_and_for_each_gang() -> None:
    by_meter = {row["meter"]: row for row in csv.DictReader(run("queue", "list", "-o", "csv").splitlines())}
    gangs = {row["name"]: row for row in csv.DictReader(run("gang", "list", "-o", "csv").splitlines())}

    assert by_meter[""] == dict.fromkeys(by_meter[""], "") | {"queue": "idle", "waiting": "0", "started": "0"}
    assert (by_meter["memory"]["used"], by_meter["memory"]["lent"], by_meter["memory"]["waiting"]) == ("40Gi", "0", "2")
    assert gangs["first"] == {
        "namespace": "a",
        "name": "first",
        "queue": "team",
        "phase": "Pending",
        "position": "1",
        "pods": "2",
        "size": "2",
        "charges": "",
        "nodes": "",
        "reason": "DevicesBusy",
        "message": "one is missing; here is a long story",
    }


@pytest.mark.usefixtures("answers")
def test_a_wide_list_has_the_whole_reason() -> None:
    assert "DevicesBusy: one is missing; here is a long story\n" in run("gang", "list", "-o", "wide")


@pytest.mark.usefixtures("answers")
def test_one_gang_is_shown_with_all_that_is_known_of_it() -> None:
    shown = run("gang", "show", "a/first").splitlines()

    assert shown[0] == "Gang a/first"
    assert {line.split("  ")[0]: line.split("  ")[-1].strip() for line in shown[2:] if line} == {
        "queue": "team",
        "phase": "Pending",
        "priority": "1",
        "pods": "2 of 2",
        "position": "1",
        "waits since": "2026-05-01T08:00:00Z",
        "why": "DevicesBusy: one is missing; here is a long story",
    }
    assert json.loads(run("gang", "show", "first", "-n", "a", "-o", "json"))["position"] == 1


@pytest.mark.usefixtures("answers")
def test_a_gang_that_does_not_exist_is_named() -> None:
    error = CliRunner().invoke(cli.app, ["gang", "show", "a/third"]).exception

    assert (
        str(error)
        == "there is no gang or workload of a gang third in namespace a; there are: first, over, runs, second"
    )
