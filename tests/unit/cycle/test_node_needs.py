"""A held gang is told which nodes of the shapes it needs, and nothing is decided otherwise for it."""

from datetime import timedelta
from typing import Any

import pytest

from admission.api.muster.gangs import GangReport
from admission.api.values import names
from admission.api.values.reasons import Hold
from admission.cycle.state.result import CycleResult
from admission.dra.state.nodes_to_come import NodesToCome
from admission.scheduling.capacity.node_needs import Bounds
from admission.scheduling.checks.faults import During
from admission.status import advice
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.fences import kinds, report
from tests.unit.cycle.jobs import Jobs, Play


def a_queue() -> ClusterBuilder:
    return a_cluster().queue("q", gpus=100)


def a_play(builder: ClusterBuilder, **jobs: dict[str, Any]) -> Play:
    """Return a leader that looks in every cycle, and Jobs in order, each of 2 pods of 4 GPUs where nothing is said."""
    cluster = Jobs(builder)
    play = Play(cluster)
    play.leader.settings.node_needs = Bounds(pace=timedelta(0))
    for name, job in jobs.items():
        cluster.submit(name, **{"queue": "q", "pods": 2, "gpus": 4, **job})
    return play


def held(result: CycleResult, name: str) -> Hold:
    hold = report(result, name).hold
    assert isinstance(hold, Hold)
    return hold


def needs(result: CycleResult, *jobs: str) -> list[object]:
    """Return the shapes that gangs need nodes of; the reason of gangs that are held for another."""
    holds = [held(result, name) for name in jobs]
    return [hold.details.get("shapes", str(hold.reason)) for hold in holds]


ONE: dict[str, dict[str, Any]] = {"a": {}}
BOTH: dict[str, dict[str, Any]] = {"a": {}, "b": {}}

CASES: dict[str, tuple[ClusterBuilder, dict[str, dict[str, Any]], list[object]]] = {
    "an empty cluster": (a_queue().shape("x8", gpus=8), ONE, [["1 of shape x8"]]),
    "as few as do beside what is there": (
        a_queue().node("n", gpus=4).shape("x4", gpus=4),
        ONE,
        [["1 of shape x4"]],
    ),
    "the cheapest of those that do": (
        a_queue()
        .shape("dear", gpus=8, price="9.50")
        .shape("small", gpus=4, price="4.80")
        .shape("x", gpus=8, price="9.60"),
        ONE,
        [["1 of shape dear"]],
    ),
    "several small ones where they cost less": (
        a_queue().shape("large", gpus=8, price="9.50").shape("small", gpus=4, price="4.70"),
        ONE,
        [["2 of shape small"]],
    ),
    "one with a price before one without": (
        a_queue().shape("gift", gpus=8).shape("known", gpus=4, price="100"),
        ONE,
        [["2 of shape known"]],
    ),
    "of two shapes where one alone has too few": (
        a_queue().shape("x4", gpus=4, most=1).shape("y4", gpus=4, most=1),
        ONE,
        [["1 of shape x4", "1 of shape y4"]],
    ),
    "none where those that may come are too few": (
        a_queue().shape("x4", gpus=4, most=1),
        ONE,
        ["NoFeasiblePlacement"],
    ),
    "none where those that exist are all that there may be": (
        a_queue().node("n", gpus=4, labels={"type": "x4"}).shape("x4", gpus=4, most=1),
        ONE,
        ["NoFeasiblePlacement"],
    ),
    "none that has no such devices": (a_queue().node("n", gpus=1).shape("cpu"), ONE, ["NoFeasiblePlacement"]),
    "each gang its own nodes": (
        a_queue().shape("x8", gpus=8, most=3),
        {"a": {"pods": 1}, "b": {"pods": 1}, "c": {"pods": 2}, "d": {"pods": 1}},
        [["1 of shape x8"], ["1 of shape x8"], ["1 of shape x8"], "NoFeasiblePlacement"],
    ),
    "what is free on nodes that are there for one gang alone": (
        a_queue().node("n", gpus=4).shape("x4", gpus=4),
        BOTH,
        [["1 of shape x4"], ["2 of shape x4"]],
    ),
    "what the queue has quota for, in order": (
        a_cluster().queue("q", gpus=16).shape("x8", gpus=8),
        {"a": {}, "b": {"gpus": 8}, "c": {}},
        [["1 of shape x8"], "NoFeasiblePlacement", ["1 of shape x8"]],
    ),
    "as many as an elastic gang needs to start": (
        a_queue().shape("x8", gpus=8),
        {"a": {"pods": 4, "annotations": {names.GANG_MIN: "2"}}},
        [["1 of shape x8"]],
    ),
}


@pytest.mark.parametrize(("builder", "jobs", "needed"), CASES.values(), ids=CASES)
async def test_a_held_gang_needs(
    builder: ClusterBuilder, jobs: dict[str, dict[str, Any]], needed: list[object]
) -> None:
    play = a_play(builder, **jobs)

    result = await play.forget_changes()

    assert needs(result, *jobs) == needed
    assert not result.granted


async def test_the_hold_says_what_is_needed_what_it_costs_and_why_it_does_not_start_now() -> None:
    builder = a_queue().node("n", gpus=4).shape("x4", gpus=4, price="4.80")
    play = a_play(builder, a={"pods": 3})

    hold = held(await play.forget_changes(), "a")

    assert hold.reason == "NodesNeeded"
    assert hold.message.startswith(
        "needs 2 more nodes of shape x4 (9.60 per hour); on the nodes that are there: pod a-1 needs 4 device"
    )
    assert hold.details["nodes"] == 2
    assert hold.details["pricePerHour"] == "9.60"
    assert hold.details["plan"] == ["nodeshape/x4/1: a-1", "nodeshape/x4/2: a-2", "n: a-0"]
    assert hold.details["instead"] == "NoFeasiblePlacement"
    assert advice.for_hold(hold, "q").startswith("nodes have to come: 2 of shape x4; the queue has quota")
    assert "NodesNeeded" in {notice.reason for notice in play.cluster.notices}


async def test_the_plan_of_a_large_gang_names_few_nodes_and_pods_and_counts_the_rest() -> None:
    play = a_play(a_queue().shape("x2", gpus=2, most=20), many={"pods": 18, "gpus": 2})
    crowded = a_play(a_queue().shape("x16", gpus=16), crowded={"pods": 10, "gpus": 1})

    lines = held(await play.forget_changes(), "many").details["plan"]
    crowd = held(await crowded.forget_changes(), "crowded").details["plan"]

    assert isinstance(lines, list)
    assert (len(lines), lines[-1]) == (17, "2 more nodes: 2 pods")
    assert isinstance(crowd, list)
    (line,) = crowd
    assert line.startswith("nodeshape/x16/1: crowded-0, crowded-1, ")
    assert line.endswith(" and 2 more")


async def test_a_gang_that_needs_nodes_holds_no_other_up() -> None:
    builder = a_queue().node("n", gpus=4).shape("x8", gpus=8)
    play = a_play(builder, large={}, small={"pods": 1})

    await play.forget_changes()
    result = await play.forget_changes()

    assert play.cluster.running() == {"small"}
    assert needs(result, "large") == [["1 of shape x8"]]


async def test_a_gang_starts_on_nodes_that_came_and_on_none_that_did_not() -> None:
    play = a_play(a_queue().shape("x8", gpus=8), a={}, b={})
    await play.forget_changes(3)
    assert play.cluster.running() == set()
    assert kinds(play.ledger) == []

    node = a_cluster().node("real", gpus=8, labels={"type": "x8"}).snapshot()
    play.cluster.add_nodes(node.nodes.values(), node.slices.values())
    await play.forget_changes()
    result = await play.forget_changes()

    assert play.cluster.running() == {"a"}
    assert needs(result, "b") == [["1 of shape x8"]]


async def test_what_a_gang_waits_for_stays_contended_beside_nodes_that_it_needs() -> None:
    builder = a_queue().node("n", gpus=8).shape("x8", gpus=8)
    play = a_play(builder, runs={})
    await play.forget_changes()
    play.cluster.submit("waits", queue="q", pods=2, gpus=4)

    hold = held(await play.forget_changes(), "waits")

    assert (hold.reason, hold.details["instead"]) == ("NodesNeeded", "DevicesBusy")
    assert "or other gangs have to end" in advice.for_hold(hold, "q")
    tally = play.leader.statuses._gangs.tally
    assert sum(sum(one.values()) for one in tally.contended.values()) == 1


async def test_needs_are_looked_for_at_most_once_in_a_while_and_a_cycle_is_due_then() -> None:
    play = a_play(a_queue().shape("x8", gpus=8), a={})
    play.leader.settings.node_needs = Bounds()
    await play.forget_changes()
    play.cluster.submit("b", queue="q", pods=2, gpus=4)

    result = await play.forget_changes()

    assert needs(result, "a", "b") == [["1 of shape x8"], "NoFeasiblePlacement"]
    assert result.next_try is not None
    play.cluster.now = result.next_try
    assert needs(await play.forget_changes(), "a", "b") == [["1 of shape x8"], ["1 of shape x8"]]


async def test_without_shapes_nothing_is_looked_for() -> None:
    play = a_play(a_queue().node("n", gpus=1), a={})

    found: GangReport = report(await play.forget_changes(), "a")

    assert found.hold is not None
    assert found.hold.reason == "NoFeasiblePlacement"
    assert play.leader.node_needs.next is None


async def test_where_the_look_at_shapes_fails_gangs_are_told_what_they_were_told_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    play = a_play(a_queue().shape("x8", gpus=8), a={})
    monkeypatch.setattr(NodesToCome, "build", fail)

    result = await play.forget_changes()

    assert needs(result, "a") == ["NoFeasiblePlacement"]
    assert [(defect.during, defect.text) for defect in result.defects] == [(During.PLANNING, "ZeroDivisionError: ")]
