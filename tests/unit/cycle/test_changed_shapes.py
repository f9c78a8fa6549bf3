"""NodeShapes that are deleted, changed or cannot be read while gangs wait for their nodes."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from admission.api.capacity import node_shapes
from admission.api.capacity.node_shapes import NodeShape
from admission.api.capacity.provisioning_requests import Answer
from admission.api.values import names
from admission.errors import FixError, MalformedObjectError, Problem
from admission.status import advice
from tests.unit.cycle.autoscaled import Asking
from tests.unit.cycle.fences import MINUTE, report
from tests.unit.cycle.requesting import Requesting, asks as asks_by_request
from tests.unit.cycle.test_node_requests import JOB, asks, charged, reason
from tests.unit.cycle.test_scale_down import Keeping


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


MALFORMED = MalformedObjectError("NodeShape", "x8", (Problem("spec.maxCount", "is odd"),))


FORBIDDEN = "list nodeshapes: forbidden (403)"


def break_shape(play: Asking, how: str = "malformed") -> Mapping[str, NodeShape]:
    """Have the shape be one that Muster cannot read, or may not; return the shapes before."""
    rest = play.world._rest
    if how == "malformed":
        play.world._rest = replace(rest, shapes={}, malformed={("NodeShape", "x8"): MALFORMED})
    else:
        play.world._rest = replace(rest, shapes={}, unwatched={node_shapes.KEY: FORBIDDEN})
    return rest.shapes


def mend_shape(play: Asking, shapes: Mapping[str, NodeShape]) -> None:
    play.world._rest = replace(play.world._rest, shapes=shapes, malformed={}, unwatched={})


@pytest.mark.parametrize("how", ["malformed", "forbidden"])
async def test_nodes_of_a_shape_that_cannot_be_read_stay_those_of_the_gang_that_asked(how: str) -> None:
    play = Asking(asks().queue("other", gpus=100).shape("x8", gpus=8), a=JOB)
    await play.forget_changes()
    break_shape(play, how)
    play.world.submit("s", queue="other", pods=1, gpus=1)
    bind, play.world.schedule = play.world.schedule, lambda _: ()  # type: ignore[method-assign, assignment]
    play.world.add("n1", "n2")
    play.world.add("n3", shape="y8")

    await play.forget_changes(2)
    play.world.schedule = bind  # type: ignore[method-assign]
    await play.forget_changes(2)

    assert play.world.bound() == {"a-0": "n1", "a-1": "n2", "s-0": "n3"}
    assert play.leader.evictions.backoffs == {}


async def test_no_gang_is_planned_on_a_shape_that_cannot_be_read_and_its_hold_says_why() -> None:
    play = Asking(asks().shape("x8", gpus=8), a=JOB)
    shapes = break_shape(play)

    result = await play.forget_changes(2)

    assert (charged(play), play.world.towards()) == (0, {})
    hold = report(result, "a").hold
    assert hold is not None
    assert "not counted, since it cannot be read: NodeShape x8: spec.maxCount: is odd; mend it" in hold.message
    (ready,) = [one.conditions[0] for one in result.conditions if one.plural == "nodeshapes"]
    assert (ready.status, ready.reason, ready.message) == ("False", "Malformed", str(MALFORMED))
    mend_shape(play, shapes)
    await play.forget_changes()
    assert len(play.world.towards()) == 2


@pytest.mark.parametrize(
    ("how", "why"), [("malformed", str(MALFORMED)), ("forbidden", f"NodeShapes cannot be read: {FORBIDDEN}")]
)
@pytest.mark.parametrize("is_made", [True, False])
async def test_a_gang_behind_its_gates_waits_for_a_shape_that_cannot_be_read_to_be_mended(
    is_made: bool, how: str, why: str
) -> None:
    play = Requesting(asks_by_request(), a=JOB)
    play.requests.fails = None if is_made else FixError("not now")
    await play.forget_changes()
    shapes = break_shape(play, how)
    play.requests.fails = None
    if is_made:
        play.requests.answer(Answer.PROVISIONED)

    result = await play.forget_changes(3)

    assert (charged(play), play.world.towards(), play.leader.evictions.backoffs) == (16, {}, {})
    assert len(play.requests.made) == is_made, "none is made for nodes of which nobody knows the labels"
    found = report(result, "a")
    assert found.hold is not None
    assert (found.phase, found.hold.reason) == ("Reserved", "NodesNeeded")
    assert f"2 of shape x8), but {why}; mend it" in found.hold.message
    assert advice.advice(found).startswith("NodeShape x8 has to be mended")
    mend_shape(play, shapes)
    await play.forget_changes()
    if not is_made:
        play.requests.answer(Answer.PROVISIONED)
        await play.forget_changes()
    assert len(play.world.towards()) == 2
    assert len(play.requests.made) == 1


async def test_a_gang_whose_shape_is_not_mended_gives_everything_back_at_the_timeout() -> None:
    play = Requesting(asks_by_request(), a=JOB)
    await play.forget_changes()
    break_shape(play)

    play.world.now += 16 * MINUTE
    await play.forget_changes(3)

    assert (charged(play), play.requests.there) == (0, [])


async def test_pods_that_join_a_gang_wait_for_their_shape_to_be_mended_and_the_gang_goes_on() -> None:
    play = Requesting(asks_by_request(), a=JOB)
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(3)
    play.world.lose("n2")
    await play.forget_changes(2)
    late = next(one for one in play.requests.there if not one.answers)
    shapes = break_shape(play)
    play.requests.answer(Answer.PROVISIONED, of=late.meta.name)

    result = await play.forget_changes(3)

    assert (play.world.bound(), play.world.towards(), charged(play)) == ({"a-0": "n1"}, {}, 16)
    hold = report(result, "a").hold
    assert hold is not None
    assert "NodeShape x8: spec.maxCount: is odd; mend it" in hold.message
    mend_shape(play, shapes)
    await play.forget_changes()
    assert play.world.towards().keys() == {"a-1"}


async def test_nodes_are_kept_from_scale_down_while_their_shape_cannot_be_read() -> None:
    play = Keeping(asks().shape("x8", gpus=8), a=JOB)
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes()
    kept = play.kept()
    assert kept.keys() == {"n1"}

    break_shape(play)
    await play.forget_changes(2)

    assert play.kept() == kept


def change(play: Requesting, labels: dict[str, str] | None = None, **spec: int) -> None:
    """Have somebody edit the shape."""
    (shape,) = play.world._rest.shapes.values()
    edited = replace(shape, matches=labels or shape.matches, labels=labels or shape.labels)
    edited = replace(edited, max_count=spec.get("maxCount", shape.max_count))
    play.world._rest = replace(play.world._rest, shapes={shape.name: edited})
