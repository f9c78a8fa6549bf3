"""NodeShapes that are deleted or changed while gangs wait for their nodes."""

from dataclasses import replace

import pytest

from admission.errors import MalformedObjectError
from tests.unit.cycle.autoscaled import Asking
from tests.unit.cycle.test_node_requests import JOB, asks, charged, reason


@pytest.mark.parametrize("succeeded", [False, True])
async def test_a_gang_that_is_shown_to_the_autoscaler_is_taken_back_at_once_when_the_shape_is_deleted(
    succeeded: bool,
) -> None:
    play = Asking(asks().queue("other", gpus=100).shape("x8", gpus=8), a=JOB)
    await play.forget_changes()
    assert len(play.world.towards()) == 2
    if succeeded:
        await play.ledger.fence(2)
        play.succeed()
    play.world._rest = replace(play.world._rest, shapes={})

    await play.forget_changes()

    assert (charged(play), play.world.towards(), play.leader.evictions.backoffs) == (0, {}, {})
    play.world.submit("s", queue="other", pods=1, gpus=1)
    play.world.add("n1", "n2")
    result = await play.forget_changes(3)
    assert play.world.bound().keys() >= {"s-0"}
    assert reason(result, "a") != "PlacementFailed"


@pytest.mark.parametrize("how", ["its nodes have come", "it cannot be read"])
async def test_a_gang_keeps_what_it_asked_for_when_the_shape_is_gone_but(how: str) -> None:
    play = Asking(asks().shape("x8", gpus=8), a=JOB)
    await play.forget_changes()
    rest = replace(play.world._rest, shapes={})
    if how == "it cannot be read":
        rest = replace(rest, malformed={("NodeShape", "x8"): MalformedObjectError("NodeShape", "x8", ())})
    play.world._rest = rest
    if how == "its nodes have come":
        # They are there and not bound to yet.
        play.world.schedule = lambda _: ()  # type: ignore[method-assign, assignment]
        play.world.add("n1", "n2")

    await play.forget_changes(2)

    assert charged(play) == 16
    assert len(play.world.towards()) == 2


async def test_only_pods_that_join_a_gang_are_taken_back_when_the_shape_is_deleted_that_they_wait_for() -> None:
    play = Asking(asks().shape("x8", gpus=8), a=JOB)
    await play.forget_changes()
    play.world.add("n1", "n2")
    await play.forget_changes(3)
    play.world.lose("n2")
    await play.forget_changes(2)
    assert len(play.world.towards()) == 1
    play.world._rest = replace(play.world._rest, shapes={})

    await play.forget_changes(2)

    assert (play.world.bound(), charged(play)) == ({"a-0": "n1"}, 8)
    assert play.leader.evictions.backoffs == {}
