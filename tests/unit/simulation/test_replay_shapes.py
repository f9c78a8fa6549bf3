"""Traces played with NodeShapes: nodes that come late, go when they are idle, and what they cost."""

from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest

from admission.simulation.replay import figures, player
from admission.simulation.replay.autoscaler import Delays
from admission.simulation.replay.cluster import ReplayCluster
from admission.simulation.replay.player import Policy, ReplayResult
from tests.unit.simulation.simulated import node, teams
from tests.unit.simulation.test_replay import row, starts, strict, town, trace, why
from tests.unit.simulation.test_shapes import shape

DELAYS = Delays(startup=timedelta(seconds=100), idle=timedelta(seconds=50))


def play(
    place: ReplayCluster, *rows: dict[str, Any], delays: Delays | None = DELAYS, policy: Policy = Policy.MUSTER
) -> ReplayResult:
    return player.replay(place, trace(rows), policy, delays=delays)


def lives(found: ReplayResult) -> list[tuple[str, float, float, float]]:
    """Return of each node its name, and when it was asked for, came and went."""
    never = timedelta(days=-1)
    seconds = timedelta.total_seconds
    return [
        (str(one.name), seconds(one.asked_at), seconds(one.up_at), seconds(one.gone_at or never)) for one in found.nodes
    ]


@pytest.mark.parametrize("policy", Policy)
def test_a_job_starts_when_its_node_has_come_and_the_node_goes_when_it_is_idle(policy: Policy) -> None:
    found = play(town(teams(), shape("x8", 8)), row("a", 10, 1000), policy=policy)

    assert starts(found) == {"a": 110}
    assert lives(found) == [("x8.new-1", 10, 110, 1160)]


def test_without_delays_no_node_comes() -> None:
    found = play(town(teams(), shape("x8", 8)), row("a", 10, 1000), delays=None)

    assert starts(found) == {"a": None}
    assert found.nodes == ()


def test_what_is_there_is_used_first_and_a_gang_starts_with_all_of_its_pods() -> None:
    place = town(teams(16), node("one", 2), shape("x2", 2))

    found = play(place, row("fits", 0, 500, gpus=2), row("gang", 10, 100, pods=2, gpus=2), row("small", 20, 30))

    assert starts(found) == {"fits": 0, "gang": 110, "small": 120}
    assert [life[0] for life in lives(found)] == ["x2.new-1", "x2.new-2", "x2.new-3"]


def test_room_on_a_node_that_is_starting_goes_to_the_next_that_needs_a_node() -> None:
    found = play(town(teams(16), shape("x8", 8)), row("a", 0, 1000, gpus=4), row("b", 50, 10, gpus=4))

    assert starts(found) == {"a": 100, "b": 100}
    assert len(found.nodes) == 1


def test_a_gang_on_an_old_and_a_new_node_keeps_its_place_on_the_old_one() -> None:
    rows = row("gang", 0, 100, pods=2, gpus=2), row("takes", 50, 10, gpus=2)

    found = play(town(teams(16), node("one", 2), shape("x2", 2, 1)), *rows)

    assert starts(found) == {"gang": 100, "takes": 200}


def test_an_idle_node_is_used_again_and_one_in_use_stays() -> None:
    rows = row("a", 0, 10), row("b", 150, 10), row("c", 300, 10)

    found = play(town(teams(), shape("x8", 8)), *rows)

    assert starts(found) == {"a": 100, "b": 150, "c": 400}
    assert lives(found) == [("x8.new-1", 0, 100, 210), ("x8.new-1", 300, 400, 460)]


def test_no_more_nodes_come_than_the_shape_allows_beside_those_that_are_there() -> None:
    here = node("one", 2)
    here[0]["metadata"]["labels"] = {"type": "x2"}

    found = play(town(teams(64), here, shape("x2", 2, 2)), *(row(f"j{at}", at, 1000, gpus=2) for at in range(3)))

    assert starts(found) == {"j0": 0, "j1": 101, "j2": 1000}
    assert len(found.nodes) == 1


def test_a_node_comes_in_place_of_an_idle_one_of_another_job() -> None:
    rows = row("small", 0, 10, gpus=2), row("large", 20, 10, gpus=8)

    found = play(town(teams(16), shape("x2", 2, 1), shape("x8", 8, 1)), *rows)

    assert starts(found) == {"small": 100, "large": 120}


def test_no_node_comes_for_a_job_over_quota_until_quota_is_free() -> None:
    found = play(town(teams(2), shape("x2", 2)), row("a", 0, 1000, gpus=2), row("b", 1, 10, gpus=2))

    # The node of the first one is idle, and takes the second.
    assert starts(found) == {"a": 100, "b": 1100}
    assert len(found.nodes) == 1


def test_a_job_that_no_shape_has_room_for_never_starts_and_buys_nothing() -> None:
    found = play(town(teams(64), node("one", 1), shape("x8", 8)), row("a", 0, 10, gpus=9))

    assert starts(found) == {"a": None}
    assert why(found, "a")[0] == "NoFeasiblePlacement"
    assert found.nodes == ()


def test_in_a_strict_queue_jobs_wait_behind_one_that_no_node_may_come_for() -> None:
    found = play(town(strict(), shape("x2", 2, 1)), row("large", 0, 10, gpus=3), row("small", 1, 10))

    assert starts(found) == {"large": None, "small": None}
    assert found.nodes == ()


def test_the_figures_have_the_hours_use_and_exact_price_of_the_nodes() -> None:
    place = town(teams(64), shape("x8", 8, price="31.50"), shape("free", 1))

    found = figures.figures(play(place, row("a", 0, 3600, pods=2, gpus=8)))

    (use,) = found.nodes
    assert (use.shape, use.count, use.most) == ("x8", 2, 2)
    assert use.time == 2 * timedelta(seconds=100 + 3600 + 50)
    assert use.busy == 2 * timedelta(hours=1)
    assert use.cost == Fraction("31.50") * 2 * Fraction(3750, 3600)
    # Of the devices that were there.
    assert found.overall == {"gpu.example.com": 1.0}


def test_the_cheapest_shape_is_bought() -> None:
    place = town(teams(64), shape("dear", 8, price="9"), shape("cheap", 8, price="1"))

    assert [one.shape for one in play(place, row("a", 0, 10, gpus=8)).nodes] == ["cheap"]
