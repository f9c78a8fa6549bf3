"""Moves of pods behind a fence to nodes that came: how many at a time, whose turn it is, and nodes that go again."""

import pytest

from admission.api.capacity.provisioning_requests import Answer
from admission.api.muster.ledger_entries import Kind
from admission.api.values.names import GANG_MIN
from admission.scheduling.capacity import seat_moves
from tests.builders import a_cluster
from tests.unit.cycle.autoscaled import PODS, AskingBehindFence
from tests.unit.cycle.fences import MINUTE, kinds, report
from tests.unit.cycle.requesting import REQUEST
from tests.unit.cycle.test_fenced_nodes import RequestingBehindFence, asking, given, refused, running
from tests.unit.cycle.test_node_requests import asks, charged

ONE = {"pods": 1, "gpus": 8}


def elastic(least: int) -> AskingBehindFence:
    job = {"pods": 3, "gpus": 8, "annotations": {GANG_MIN: str(least)}}
    return asking(job=job, requeue={"base": "1m"})


async def test_an_elastic_gang_starts_with_as_many_pods_as_fit_and_goes_on_when_the_others_are_taken_back() -> None:
    play = elastic(1)
    await play.forget_changes()

    play.world.add("n0", "n1")
    await play.forget_changes(4)
    assert sorted(play.world.bound().values()) == ["n0", "n1"]
    assert charged(play) == 24

    play.world.now += 16 * MINUTE
    result = await play.forget_changes(3)
    assert sorted(play.world.bound().values()) == ["n0", "n1"]
    assert (report(result, "a").phase, charged(play)) == ("Running", 16)


async def test_an_elastic_gang_is_given_nothing_before_as_many_pods_fit_as_it_needs_to_start() -> None:
    play = elastic(2)
    await play.forget_changes()

    play.world.add("n0")
    await play.forget_changes(4)
    assert (given(play), play.world.bound()) == ([], {})
    play.world.add("n1")
    await play.forget_changes(4)
    assert sorted(play.world.bound().values()) == ["n0", "n1"]
    play.world.add("n2")
    await play.forget_changes(4)
    assert sorted(play.world.bound().values()) == ["n0", "n1", "n2"]


async def test_pods_that_start_beside_others_on_a_node_that_is_there_are_moved_only_with_all_that_the_gang_needs() -> (
    None
):
    job = {"pods": 3, "gpus": 8, "annotations": {GANG_MIN: "3"}}
    play = AskingBehindFence(asks().node("n", gpus=8).shape("x8", gpus=8), a=job)
    await play.forget_changes(2)
    assert play.world.bound() == {"a-0": "n"}

    play.world.add("n1")
    await play.forget_changes(4)
    assert play.world.bound() == {"a-0": "n"}
    play.world.add("n2")
    await play.forget_changes(4)
    assert sorted(play.world.bound().values()) == ["n", "n1", "n2"]


async def test_pods_that_join_a_running_gang_are_given_their_nodes_one_by_one() -> None:
    play = elastic(1)
    await play.forget_changes()
    play.world.add("n0", "n1", "n2")
    await play.forget_changes(4)
    for name in ("n1", "n2"):
        play.world.lose(name)
    await play.forget_changes(3)
    assert len(play.world.towards()) == 2

    play.world.add("n5")
    result = await play.forget_changes(4)

    assert sorted(play.world.bound().values()) == ["n0", "n5"]
    hold = report(result, "a").hold
    assert hold is not None
    assert "nodes were asked for (1 of shape x8) for a pod that joins it, and have not come yet" in hold.message
    play.world.now += 16 * MINUTE
    await play.forget_changes(2)
    assert sorted(play.world.bound().values()) == ["n0", "n5"]


async def test_a_gang_whose_node_came_has_its_turn_however_many_older_ones_may_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(seat_moves, "MOST", 2)
    big = {"pods": 2, "gpus": 8}
    play = AskingBehindFence(asks().shape("x8", gpus=8, most=8), a=big, b=big, d=big, c=ONE)
    await play.forget_changes(4)
    assert len(play.world.towards()) == 7

    play.world.add("n1")
    await play.forget_changes(4)

    assert play.world.bound() == {"c-0": "n1"}


async def test_the_next_cycle_is_due_while_others_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_moves, "MOST", 1)
    big = {"pods": 2, "gpus": 8}
    play = AskingBehindFence(asks().shape("x8", gpus=8), a=big, b=big)
    await play.forget_changes(4)
    play.world.add("n1")

    due = [(await play.forget_changes()).next_try for _ in range(2)]

    first, second = (at is not None and at - play.world.now < MINUTE / 2 for at in due)
    assert (first, second) == (True, False)


async def test_gangs_of_whose_shape_no_node_has_a_free_device_take_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat_moves, "MOST", 1)
    builder = asks().shape("x8", gpus=8).shape("y2", gpus=2, price="0.1")
    play = AskingBehindFence(builder, a=ONE, b=ONE, c={"pods": 1, "gpus": 2})
    await play.forget_changes(4)
    play.world.add("y", shape="y2", gpus=2)

    await play.forget_changes(2)

    assert play.world.bound() == {"c-0": "y"}


async def lost_before_binding(play: AskingBehindFence, gone: str, *, is_written: bool) -> None:
    """Have a node go whose devices were booked for pods, or also given to them, before these are bound."""
    schedule = play.world.schedule
    if is_written:
        play.world.schedule = lambda _: ()  # type: ignore[method-assign, assignment]
    else:
        play.world.fails = refused(play)
    await play.forget_changes(2)
    assert bool(given(play)) == is_written or play.world.bound()
    play.world.without(node=gone)
    play.world.fails = {}
    play.world.schedule = schedule  # type: ignore[method-assign]


@pytest.mark.parametrize("is_written", [True, False], ids=["after the claims", "before the claims"])
@pytest.mark.parametrize("succeeded", [True, False])
async def test_pods_of_a_start_whose_node_goes_before_they_are_bound_are_given_the_next_one(
    is_written: bool, succeeded: bool
) -> None:
    play = asking()
    await play.forget_changes()
    play.world.add("n1", "n2")
    await lost_before_binding(play, "n1", is_written=is_written)
    if succeeded:
        await play.ledger.fence(2)
        play.succeed()

    await play.forget_changes(4)
    assert sorted(play.world.bound().values()) == ["n2", "n2"]
    assert charged(play) == 16
    play.world.add("n3")
    await play.forget_changes(4)

    assert sorted(play.world.bound().values()) == ["n2", "n2", "n3", "n3"]
    assert (charged(play), len(set(given(play)))) == (16, 16)
    assert Kind.EVICT not in kinds(play.ledger)
    play.world.delete_job("a")
    await play.forget_changes(3)
    assert (charged(play), play.ledger.book.placements) == (0, {})


@pytest.mark.parametrize("is_written", [True, False], ids=["after the claim", "before the claim"])
async def test_a_pod_that_joins_a_gang_and_whose_node_goes_before_it_is_bound_is_given_the_next_one(
    is_written: bool,
) -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    (late,) = play.world.towards()
    play.world.add("n3")
    await lost_before_binding(play, "n3", is_written=is_written)

    result = await play.forget_changes(2)
    hold = report(result, "a").hold
    assert hold is not None
    assert "nodes were asked for (1 of shape x8) for a pod that joins it, and have not come yet" in hold.message
    play.world.add("n4")
    await play.forget_changes(4)

    assert play.world.bound()[late] == "n4"
    assert (charged(play), len(set(given(play)))) == (16, 16)


async def test_a_node_that_comes_in_place_of_one_that_went_is_no_other_gangs() -> None:
    play = AskingBehindFence(asks().queue("p", gpus=100).shape("x8", gpus=8), a={})
    await play.forget_changes()
    play.world.add("n1", "n2")
    await lost_before_binding(play, "n1", is_written=False)
    await play.forget_changes(2)
    play.world.submit("b", queue="p", pods=1, gpus=4)

    play.world.add("n3", gpus=4)
    await play.forget_changes(4)

    assert sorted(play.world.bound().values()) == ["n2", "n2"]


async def test_a_late_pod_that_was_given_devices_and_does_not_run_says_what_keeps_it() -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    play.world.fails = refused(play)
    play.world.add("n3")

    result = await play.forget_changes(2)

    hold = report(result, "a").hold
    assert hold is not None
    assert "not now" in hold.message


async def test_the_reason_for_which_a_late_pod_is_taken_back_names_the_nodes_that_came_for_it() -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    play.world.fails = refused(play)
    play.world.add("n3")
    await play.forget_changes(2)

    play.world.now += 31 * MINUTE
    await play.forget_changes(2)

    reasons = [entry.reason for entry in play.ledger.entries if entry.kind is Kind.RELEASE]
    expected = "nodes that were asked for (1 of shape x8) came, and its pods did not run there within 15m"
    assert any(reason.startswith(expected) for reason in reasons), reasons


async def test_the_reason_for_which_a_start_is_taken_back_names_the_nodes_that_came_for_it() -> None:
    play = asking()
    await play.forget_changes()
    play.world.fails = refused(play)
    play.world.add("n1", "n2")
    await play.forget_changes(2)

    play.world.now += 31 * MINUTE
    await play.forget_changes(2)

    (reason,) = (entry.reason for entry in play.ledger.entries if entry.kind is Kind.EVICT)
    assert "(2 of shape x8) came, and its pods did not run there within 15m" in reason


async def test_a_node_that_came_for_a_gang_behind_its_gates_is_given_to_no_younger_one() -> None:
    builder = a_cluster().queue("q", gpus=100, provisioning=REQUEST).queue("p", gpus=100, provisioning=PODS)
    play = RequestingBehindFence(builder.shape("x8", gpus=8), a=ONE)
    await play.forget_changes()
    play.world.submit("b", queue="p", pods=1, gpus=8)
    await play.forget_changes(2)
    assert play.world.towards().keys() == {"b-0"}

    play.world.add("n1")
    await play.forget_changes(3)
    assert play.world.bound() == {}
    play.requests.answer(Answer.PROVISIONED)
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1"}
    play.world.add("n2")
    await play.forget_changes(3)

    assert play.world.bound() == {"a-0": "n1", "b-0": "n2"}
