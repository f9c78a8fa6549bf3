"""Autoscalers that misbehave: nodes come and go, come in excess, or are too poor. Nothing stays charged."""

from typing import Any

import pytest

from admission.api.muster.ledger_entries import Kind
from admission.api.values import durations
from admission.api.values.names import NodeName
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import MINUTE, kinds, report
from tests.unit.cycle.test_node_requests import charged

JOB: dict[str, Any] = {"pods": 2, "gpus": 8}


def asks(**shape: Any) -> ClusterBuilder:
    queue: dict[str, Any] = {"provisioning": PODS, "requeue": {"base": "10m", "max": "10m"}}
    return a_cluster().queue("q", gpus=100, **queue).shape("x8", gpus=8, **shape)


async def test_nodes_that_come_and_go_in_a_circle_end_at_the_timeout_and_give_everything_back() -> None:
    play = Asking(asks(), a=JOB)
    await play.forget_changes()

    for turn in range(14):
        play.world.add(f"n{turn}", gpus=7)
        await play.forget_changes()
        play.world.without(node=f"n{turn}")
        play.world.now += MINUTE
        await play.forget_changes()
        assert charged(play) == 16
    play.world.now += 2 * MINUTE
    result = await play.forget_changes(3)

    assert charged(play) == 0
    assert play.world.bound() == {}
    hold = report(result, "a").hold
    assert hold is not None
    assert hold.reason == "PlacementFailed"
    assert hold.details["evictions"] == 1


async def test_nodes_that_always_come_short_are_bought_as_seldom_as_the_queue_lets_a_gang_wait_and_it_is_said_why() -> (
    None
):
    builder = a_cluster().queue("q", gpus=100, provisioning=PODS, requeue={"base": "1m", "max": "4h"})
    play = Asking(builder.shape("x8", gpus=8), a={"pods": 1, "gpus": 8})
    result = await play.forget_changes()
    bought = 0
    for _ in range(120):
        if play.world.towards() and not play.world._rest.nodes:
            bought += 1
            play.world.add(f"n{bought}", gpus=7)
        elif not play.world.towards() and play.world._rest.nodes:
            play.world.without(node=f"n{bought}")
        play.world.now += 5 * MINUTE
        result = await play.forget_changes()

    assert bought <= 3, "ten hours, four of which it waits at a time"
    hold = report(result, "a").hold
    assert hold is not None
    assert "nodes of shape x8 fell short of it (node n" in hold.message
    assert "7 devices of driver gpu.example.com, the shape says 8)" in hold.message


@pytest.mark.parametrize(
    ("gpus", "wait"), [(0, "10m"), (7, "4h")], ids=["no driver has published yet", "too few devices"]
)
async def test_a_node_that_comes_just_before_the_timeout_falls_short_by_what_its_drivers_publish(
    gpus: int, wait: str
) -> None:
    """It is looked at in the cycle in which the gang is taken back."""
    builder = a_cluster().queue("q", gpus=100, provisioning=PODS, requeue={"base": "10m", "max": "4h"})
    play = Asking(builder.shape("x8", gpus=8), a={"pods": 1, "gpus": 8})
    await play.forget_changes()
    play.world.now += 16 * MINUTE
    play.world.add("n1", gpus=gpus)

    await play.forget_changes(2)

    (backoff,) = play.leader.evictions.backoffs.values()
    assert backoff.wait == durations.parse(wait)
    assert ("fell short" in backoff.failure) == bool(gpus)


async def test_a_gang_that_needs_nodes_is_told_how_those_of_its_shape_fell_short_last() -> None:
    play = Asking(a_cluster().queue("q", gpus=100).shape("x8", gpus=8))
    play.world.add("n1", gpus=7)
    await play.forget_changes()
    play.world.without(node="n1")
    await play.forget_changes()
    play.world.submit("a", queue="q", pods=1, gpus=8)

    hold = report(await play.forget_changes(), "a").hold

    assert hold is not None
    assert hold.message.startswith("needs 1 more node of shape x8; nodes of shape x8 fell short of it (node n1: 7")


async def test_a_node_that_goes_with_a_pod_that_was_bound_takes_the_whole_gang_back_which_asks_anew() -> None:
    play = Asking(asks(), a=JOB)
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes(2)
    (name,) = play.world.bound()

    play.world.without(node="n1")
    uid = next(uid for uid, pod in play.world._pods.items() if pod.meta.name == name)
    play.world._release_claims([play.world._pods.pop(uid)])
    await play.forget_changes(3)

    assert play.world.bound() == {}
    assert len(play.world.towards()) == 2
    booked = kinds(play.ledger)
    assert (booked.count(Kind.RESERVE), booked.count(Kind.EVICT), booked[-1]) == (2, 1, Kind.RESERVE)
    play.world.add("n2", "n3")
    await play.forget_changes(2)
    assert len(play.world.bound()) == 2
    play.world.delete_job("a")
    await play.forget_changes(2)
    assert charged(play) == 0


@pytest.mark.parametrize("more", [1, 4])
async def test_more_nodes_than_were_asked_for_are_used_by_others_and_no_further_ones_are_asked_for(more: int) -> None:
    play = Asking(asks(most=8), a=JOB)
    await play.forget_changes()
    play.world.submit("b", queue="q", pods=1, gpus=8)

    play.world.add(*(f"n{number}" for number in range(2 + more)))
    await play.forget_changes(3)

    assert len(play.world.bound()) == 3
    assert play.world.towards() == {}
    assert charged(play) == 24


async def test_a_node_that_goes_before_it_is_used_is_no_node_for_anybody() -> None:
    play = Asking(asks(), a=JOB)
    await play.forget_changes()
    play.world.add("n1", gpus=4)
    await play.forget_changes()
    play.world.without(node="n1")
    play.world.submit("small", queue="q", pods=1, gpus=1)

    await play.forget_changes(2)

    assert NodeName("n1") not in play.world._rest.nodes
    assert "small-0" not in play.world.bound()
    play.world.add("n2", "n3")
    await play.forget_changes(3)
    assert {"a-0", "a-1"} <= play.world.bound().keys()
