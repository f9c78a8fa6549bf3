"""`muster why` finds the gang that is meant, and says what is known of it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from admission.api.muster import status_views
from admission.api.muster.gangs import GangReport
from admission.api.values.decoding import Json
from admission.api.values.reasons import Hold, HoldReason
from admission.cli import cluster_options
from admission.cli.why import command
from admission.errors import FixError
from admission.kube.cache.watched_resources import GANGS, PODS as PODS_KIND, Kind

NOW = datetime(2026, 5, 1, 12, 3, tzinfo=UTC)
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-1"}
HOLD = {
    "reason": "QuotaExceeded",
    "message": "queue team has 1 gpus left, the gang needs 6",
    "details": {"meter": "gpus", "left": "1", "needed": "6", "names": ["a", "b", "c", "d", "e"]},
}
WAITING = {
    "metadata": {"name": "train-ab12c", "namespace": "a"},
    "spec": {"queue": "team", "size": 2, "workload": JOB},
    "status": {"phase": "Pending", "pods": 2, "position": 1, "queuedSince": "2026-05-01T12:00:00Z", "hold": HOLD},
}
RUNNING = {
    "metadata": {"name": "named", "namespace": "a"},
    "spec": {"queue": "team", "size": 1},
    "status": {"phase": "Running", "pods": 1, "plan": [{"pod": "one", "node": "n"}], "charges": {"gpus": "2"}},
}


def pod(name: str, *, owner: str = "", **labels: str) -> dict[str, Any]:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": owner, "controller": True}]
    meta = {"name": name, "namespace": "a", "uid": name, "labels": {f"muster.dev/{k}": v for k, v in labels.items()}}
    return {"metadata": meta | ({"ownerReferences": owners} if owner else {}), "spec": {}}


PODS = {
    "train-0-x": pod("train-0-x", owner="u-1", queue="team"),
    "one": pod("one", queue="team", gang="named"),
    "stray": pod("stray", queue="team"),
    "free": pod("free"),
}


class FakeCluster(cluster_options.Cluster):
    """A namespace `a` with two gangs and four pods."""

    def __init__(self) -> None: ...

    async def list_objects(self, kind: Kind, namespace: str = "", *, labels: str = "") -> list[Json]:
        assert (kind, namespace, labels) == (GANGS, "a", "")
        return [WAITING, RUNNING]

    async def get_object(self, kind: Kind, name: str, namespace: str = "") -> Json | None:
        assert namespace == "a"
        return PODS.get(name) if kind == PODS_KIND else None


def found(name: str) -> Any:
    return asyncio.run(command._find(FakeCluster(), "a", name))


@pytest.mark.parametrize(
    ("name", "gang"),
    {
        "train-ab12c": "train-ab12c",
        "train": "train-ab12c",
        "train-0-x": "train-ab12c",
        "named": "named",
        "one": "named",
    }.items(),
    ids=["a gang", "its Job", "a pod of its Job", "another gang", "a pod by its label"],
)
def test_why_finds_a_gang_by_each_of_its_names(name: str, gang: str) -> None:
    report = found(name)

    assert isinstance(report, GangReport)
    assert report.name == gang


def test_why_finds_a_pod_outside_queues() -> None:
    assert found("free").meta.name == "free"


@pytest.mark.parametrize(
    ("name", "message"), [("gone", "there is no gang, workload of a gang, or pod gone"), ("stray", "is Muster running")]
)
def test_why_says_that_an_object_has_no_gang(name: str, message: str) -> None:
    with pytest.raises(FixError, match=message):
        found(name)


def test_a_gang_that_waits_is_shown_with_its_numbers_and_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    command.show(status_views.gang(WAITING), now=NOW)
    text = capsys.readouterr().out

    assert text.startswith(
        "Gang a/train-ab12c (2 pods) waits in queue team, place 1, for 3m now.\nQuotaExceeded: queue team"
    )
    assert "names   a, b, c, d and 1 more" in text
    assert "What would have to change: 5 more gpus have to become free" in text


def test_a_gang_that_waits_for_nodes_is_shown_with_where_its_pods_would_go(capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["nodeshape/x8/1: train-0, train-1 and 6 more", "node-1: train-8"]
    details = {"nodes": 1, "shapes": ["1 of shape x8"], "plan": plan}
    hold = {"reason": "NodesNeeded", "message": "needs 1 more node of shape x8", "details": details}
    command.show(status_views.gang({**WAITING, "status": {"phase": "Pending", "hold": hold}}), now=NOW)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    at = lines.index(["Where", "its", "pods", "would", "go"])
    assert lines[at + 1 : at + 4] == [
        ["NODE", "PODS"],
        ["nodeshape/x8/1", *["train-0,", "train-1", "and", "6", "more"]],
        ["node-1", "train-8"],
    ]
    assert not any(line[:1] == ["plan"] for line in lines)


def test_a_gang_that_runs_while_pods_that_join_it_wait_is_said_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    details = {"nodes": 1, "shapes": ["1 of shape x8"]}
    hold = {"reason": "NodesNeeded", "message": "it runs; nodes were asked for", "details": details}
    command.show(status_views.gang({**WAITING, "status": {"phase": "Running", "pods": 2, "hold": hold}}), now=NOW)

    text = capsys.readouterr().out
    assert text.startswith("Gang a/train-ab12c (2 pods) of queue team: Running; pods that join it wait.\nNodesNeeded:")
    assert "an autoscaler has to start them: 1 of shape x8" in text


def test_a_gang_that_never_fits_is_not_said_to_wait(capsys: pytest.CaptureFixture[str]) -> None:
    hold = Hold(HoldReason.NO_FEASIBLE_PLACEMENT, "no node has 9")
    command.show(replace(status_views.gang(WAITING), hold=hold), now=NOW)

    text = capsys.readouterr().out
    assert text.startswith("Gang a/train-ab12c (2 pods) can never start as it is; it is in queue team, place 1, for 3m")


@pytest.mark.parametrize(
    ("topology", "sentence"),
    [
        ({"required": "rack", "domains": ["r1"]}, "Its pods have to be in one domain of rack; they are in r1."),
        ({"required": "rack"}, "Its pods have to be in one domain of rack."),
        (
            {"preferred": "rack", "domains": ["r1", "r2"]},
            "Its pods would rather be in one domain of rack; they are in r1, r2.",
        ),
        (
            {"required": "zone", "preferred": "rack", "domains": ["z"], "preferredDomains": ["r1", "r2"]},
            "Its pods have to be in one domain of zone, and would rather be in one of rack; they are in z (r1, r2).",
        ),
        (
            {"subgroups": [{"name": "w-0", "required": "rack", "domains": ["r2"]}]},
            "Those of subgroup w-0 have to be in one domain of rack; they are in r2.",
        ),
        (
            {"subgroups": [{"name": f"w-{at}", "required": "rack"} for at in range(40)]},
            "So with 24 more subgroups; see status.topology of the Gang.",
        ),
    ],
)
def test_a_gang_that_stays_together_is_shown_with_its_domain(
    topology: Json, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command.show(status_views.gang(RUNNING | {"status": {"phase": "Running", "topology": topology}}), now=NOW)

    assert sentence in capsys.readouterr().out.splitlines()


def test_a_gang_that_runs_is_shown_with_its_plan_and_charge(capsys: pytest.CaptureFixture[str]) -> None:
    command.show(status_views.gang(RUNNING), now=NOW)
    text = capsys.readouterr().out

    assert text.startswith("Gang a/named (1 pod) of queue team: Running.")
    assert "one  n     -" in text
    assert "Charged to queue team: gpus 2." in text
