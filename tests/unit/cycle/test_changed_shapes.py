"""NodeShapes that are deleted or changed while gangs wait for their nodes."""

from dataclasses import replace

import pytest

from admission.api.capacity.provisioning_requests import Answer
from admission.api.values import names
from admission.errors import MalformedObjectError
from tests.unit.cycle.autoscaled import Asking
from tests.unit.cycle.test_capacity_requests import Requesting, asks as asks_by_request
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


async def test_a_gang_asks_anew_at_once_when_the_labels_of_its_shape_change_before_the_request_is_answered() -> None:
    play = Requesting(asks_by_request(), a=JOB)
    await play.forget_changes(2)
    (first,) = play.requests.made
    change(play, maxCount=2)
    await play.forget_changes(2)
    assert play.requests.made == [first]

    change(play, labels={"type": "other"})
    await play.forget_changes(3)

    assert play.leader.evictions.backoffs == {}
    assert play.requests.gone == [first.key]
    assert [one.labels for one in play.requests.made[-1].pod_sets] == [{"type": "other"}]
    play.requests.answer(Answer.PROVISIONED)
    await play.forget_changes(2)
    assert set(map(str, play.world.towards().values())) == {str({"type": "other"})}


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "[]", '{"x8": 5, "": {}}', '{"gone": {}}'])
async def test_labels_that_somebody_has_written_on_a_request_end_at_worst_that_request(text: str) -> None:
    play = Requesting(asks_by_request(), a=JOB)
    await play.forget_changes()
    (asked,) = play.requests.there
    annotations = {**asked.meta.annotations, names.MATCHED_LABELS: text}
    play.requests.put(replace(asked, meta=replace(asked.meta, annotations=annotations)))

    await play.forget_changes(4)

    assert len(play.requests.there) == 1
    assert charged(play) == 16


def change(play: Requesting, labels: dict[str, str] | None = None, **spec: int) -> None:
    """Have somebody edit the shape."""
    (shape,) = play.world._rest.shapes.values()
    edited = replace(shape, matches=labels or shape.matches, labels=labels or shape.labels)
    edited = replace(edited, max_count=spec.get("maxCount", shape.max_count))
    play.world._rest = replace(play.world._rest, shapes={shape.name: edited})
