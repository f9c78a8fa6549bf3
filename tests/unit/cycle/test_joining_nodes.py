"""Nodes for pods that join a gang which has started: replacements, and those beyond the minimum of an elastic gang."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.capacity.provisioning_requests import Answer
from admission.api.muster.ledger_entries import Kind
from admission.api.values.names import CONSUMED_REQUEST as CONSUMED, GANG_MIN, Uid
from admission.api.values.reasons import Hold
from admission.status import advice
from tests.builders import a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import MINUTE, kinds, report
from tests.unit.cycle.requesting import REQUEST, Requesting
from tests.unit.cycle.test_node_requests import JOB, asks, charged, reason

X8 = {"type": "x8"}


def elastic(pods: int, least: int = 1) -> dict[str, Any]:
    return {"pods": pods, "gpus": 8, "annotations": {GANG_MIN: str(least)}}


async def running(wait: str = "1m") -> Asking:
    """Return a gang of two pods that runs on two nodes that came for it. wait: its queue's first back-off."""
    play = Asking(asks(requeue={"base": wait}).shape("x8", gpus=8), a=JOB)
    await play.forget_changes()
    play.world.add("n1", "n2")
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1", "a-1": "n2"}
    return play


async def test_a_running_gang_that_loses_a_node_is_given_another_one() -> None:
    play = await running()

    play.world.lose("n2")
    await play.forget_changes(2)

    assert play.world.towards() == {"a-1": X8}
    assert (play.world.bound(), charged(play)) == ({"a-0": "n1"}, 16)
    play.world.add("n3")
    result = await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1", "a-1": "n3"}
    assert (report(result, "a").phase, report(result, "a").hold) == ("Running", None)
    assert kinds(play.ledger).count(Kind.RESERVE) == 2


@pytest.mark.parametrize("succeeded", [True, False])
async def test_where_the_other_node_does_not_come_only_the_late_pod_is_taken_back_and_asks_again(
    succeeded: bool,
) -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    if succeeded:
        await play.ledger.fence(2)
        play.succeed()

    play.world.now += 14 * MINUTE
    await play.forget_changes()
    assert charged(play) == 16
    play.world.now += 2 * MINUTE
    await play.forget_changes()
    assert (play.world.bound(), charged(play)) == ({"a-0": "n1"}, 8)
    play.world.replace_lost()
    result = await play.forget_changes(2)

    assert (play.world.bound(), play.world.towards(), charged(play)) == ({"a-0": "n1"}, {}, 8)
    hold = report(result, "a").hold
    assert isinstance(hold, Hold)
    assert hold.reason == "PlacementFailed"
    assert "nodes that were asked for (1 of shape x8) did not come within 15m" in hold.message
    play.world.now += 2 * MINUTE
    await play.forget_changes(2)
    assert play.world.towards() == {"a-1": X8}
    play.world.add("n3")
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1", "a-1": "n3"}


@pytest.mark.parametrize("succeeded", [True, False])
async def test_the_back_off_of_late_pods_lasts_while_their_controller_pauses_before_it_makes_them_again(
    succeeded: bool,
) -> None:
    play = await running(wait="10m")
    play.world.lose("n2")
    await play.forget_changes(2)
    play.world.now += 16 * MINUTE
    await play.forget_changes(3)
    if succeeded:
        await play.ledger.fence(2)
        play.succeed()
    play.world.now += MINUTE
    await play.forget_changes(3)

    play.world.replace_lost()
    result = await play.forget_changes(2)

    assert play.world.towards() == {}
    assert reason(result, "a") == ("StartTimedOut" if succeeded else "PlacementFailed")
    play.world.now += 10 * MINUTE
    await play.forget_changes(2)
    assert play.world.towards() == {"a-1": X8}


async def test_a_gang_that_goes_on_without_late_pods_is_as_if_it_had_never_backed_off_after_an_hour() -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    play.world.now += 16 * MINUTE
    result = await play.forget_changes(3)
    assert report(result, "a").evictions == 1

    play.world.now += 62 * MINUTE
    play.world.submit("b", queue="q", pods=1, gpus=1)
    result = await play.forget_changes(2)

    assert report(result, "a").evictions == 0


@pytest.mark.parametrize("slow", [False, True], ids=["made again at once", "made again a cycle later"])
async def test_the_back_off_of_late_pods_grows_and_the_next_leader_keeps_it(slow: bool) -> None:
    play = await running()
    play.world.slow = slow
    play.world.lose("n2")
    tries = 0
    for _ in range(120):
        await play.forget_changes()
        tries += any(pod.meta.name == "a-1" and not pod.gated for pod in play.world._pods.values())
        play.world.replace_lost()
        play.world.now += MINUTE
    (entry_count,) = [kinds(play.ledger).count(Kind.RESERVE)]
    await play.ledger.fence(2)
    play.succeed()
    result = await play.forget_changes()

    assert play.world.bound() == {"a-0": "n1"}
    assert tries
    # Each try takes 15 minutes, and the waits between are 1, 2, 4, 8, 16 minutes.
    assert entry_count <= 8
    assert report(result, "a").evictions >= 4


@pytest.mark.parametrize("slow", [False, True], ids=["made again at once", "made again a cycle later"])
async def test_late_pods_are_asked_for_as_often_as_the_queue_allows(slow: bool) -> None:
    play = Asking(asks(requeue={"limit": 1}).shape("x8", gpus=8, most=4), a=elastic(2))
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes(2)
    play.world.slow = slow

    for _ in range(90):
        await play.forget_changes()
        play.world.replace_lost()
        play.world.now += MINUTE
    result = await play.forget_changes()

    assert kinds(play.ledger).count(Kind.RESERVE) == 2
    assert "the queue allows 1 new tries" in str(report(result, "a").hold)
    play.world.add("n2")
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1"}


async def test_a_node_that_is_lost_again_and_again_takes_nothing_from_the_pods_that_run() -> None:
    play = await running()
    for number in range(3, 8):
        play.world.lose(f"n{number - 1}")
        await play.forget_changes(2)
        play.world.add(f"n{number}")
        await play.forget_changes(2)

        assert play.world.bound() == {"a-0": "n1", "a-1": f"n{number}"}
    assert kinds(play.ledger).count(Kind.EVICT) == 0
    assert charged(play) == 16


async def test_an_elastic_gang_is_asked_for_all_its_pods_and_what_does_not_come_is_taken_back_alone() -> None:
    play = Asking(asks().shape("x8", gpus=8, most=4), a=elastic(3))
    await play.forget_changes()
    assert play.world.towards().keys() == {"a-0", "a-1", "a-2"}
    assert charged(play) == 24

    play.world.add("n1")
    await play.forget_changes(2)
    play.world.now += 16 * MINUTE
    await play.forget_changes()

    assert (play.world.bound(), charged(play)) == ({"a-0": "n1"}, 8)
    play.world.replace_lost()
    await play.forget_changes()
    play.world.now += 2 * MINUTE
    await play.forget_changes(2)
    assert len(play.world.towards()) == 1, "after a try that failed, one"
    play.world.add("n2")
    await play.forget_changes(4)
    assert len(play.world.bound()) == 2
    assert len(play.world.towards()) == 1, "and then the others"
    play.world.add("n3")
    await play.forget_changes(2)
    assert len(play.world.bound()) == 3


async def test_an_elastic_gang_is_asked_for_as_many_pods_as_its_quota_pays_for() -> None:
    play = Asking(asks(gpus=17).shape("x8", gpus=8, most=4), a=elastic(3))

    await play.forget_changes()

    assert play.world.towards().keys() == {"a-0", "a-1"}
    assert charged(play) == 16


async def test_pods_that_join_count_on_no_node_that_came_for_others() -> None:
    play = Asking(asks().queue("other", gpus=100).shape("x8", gpus=8, most=4), a=elastic(3))
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes(2)
    play.world.add("n2", gpus=7)
    play.world.submit("small", queue="other", pods=1, gpus=1)

    await play.forget_changes(2)

    assert play.world.bound() == {"a-0": "n1"}
    play.world.add("n3", gpus=7)
    play.world.add("n4", gpus=7)
    await play.forget_changes(2)
    assert play.world.bound() == {"a-0": "n1", "small-0": "n4"}


async def test_no_more_nodes_are_asked_for_before_those_have_come_that_were() -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)
    play.world.lose("n1")

    result = await play.forget_changes(2)

    assert play.world.towards() == {"a-1": X8}
    hold = report(result, "a").hold
    assert isinstance(hold, Hold)
    assert "no more nodes are asked for before the pods are bound" in hold.message
    play.world.add("n3")
    await play.forget_changes(3)
    assert play.world.towards() == {"a-0": X8}
    play.world.add("n4")
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n4", "a-1": "n3"}


async def test_a_job_that_may_lose_no_pod_is_not_asked_for_nodes_of_late_pods_and_is_told_why() -> None:
    play = await running()
    play.world.lose("n2")
    job = play.world._jobs[Uid("job-a")]
    play.world._jobs[job.meta.uid] = replace(job, lost=5)

    hold = report(await play.forget_changes(2), "a").hold

    assert play.world.towards() == {}
    assert isinstance(hold, Hold)
    assert hold.reason == "NodesNeeded"
    assert "their Job would fail (spec.backoffLimit)" in hold.message
    play.world._jobs[job.meta.uid] = replace(job, most_lost=None)
    await play.forget_changes(2)
    assert play.world.towards() == {"a-1": X8}


async def test_a_gang_over_quota_is_not_asked_for_another_node() -> None:
    play = await running()
    play.world.submit("b", queue="q", pods=1, gpus=8)
    (queue,) = play.world._rest.queues.values()
    small = a_cluster().queue("q", gpus=16, provisioning=PODS).snapshot().queues[queue.name]
    play.world._rest = replace(play.world._rest, queues={queue.name: small})
    play.world.lose("n2")
    await play.forget_changes(4)

    assert len(play.world.towards()) == 1
    assert charged(play) == 16


# By a ProvisioningRequest.


async def requested(**job: Any) -> Requesting:
    play = Requesting(a_cluster().queue("q", gpus=100, provisioning=REQUEST).shape("x8", gpus=8), a={**JOB, **job})
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1", "a-1": "n2"}
    play.world.lose("n2")
    await play.forget_changes(2)
    return play


async def test_a_lost_node_is_asked_for_by_a_request_of_its_own_while_the_others_run() -> None:
    play = await requested()
    first, second = play.requests.made
    assert first.name != second.name
    assert [(one.count, one.labels) for one in second.pod_sets] == [(1, X8)]
    assert (play.world.bound(), play.world.towards(), charged(play)) == ({"a-0": "n1"}, {}, 16)
    result = await play.forget_changes()
    assert "is not answered yet" in str(report(result, "a").hold)

    play.requests.answer(Answer.PROVISIONED, of=second.name)
    play.world.add("n3")
    await play.forget_changes(3)

    assert play.world.bound() == {"a-0": "n1", "a-1": "n3"}
    consuming = {pod.meta.name: pod.meta.annotations[CONSUMED] for pod in play.world._pods.values()}
    assert consuming == {"a-0": first.name, "a-1": second.name}
    assert play.requests.gone == []
    play.world.delete_job("a")
    await play.forget_changes(2)
    assert sorted(play.requests.gone) == sorted([first.key, second.key])
    assert charged(play) == 0


async def test_a_request_for_late_pods_that_fails_deletes_no_pod_and_is_made_anew_after_the_back_off() -> None:
    play = await requested()
    (_, second) = play.requests.made
    late = {uid for uid, pod in play.world._pods.items() if pod.gated}

    play.requests.answer(Answer.FAILED, of=second.name)
    result = await play.forget_changes(2)

    assert {uid for uid, pod in play.world._pods.items() if pod.gated} == late
    assert (play.world.bound(), charged(play)) == ({"a-0": "n1"}, 8)
    assert reason(result, "a") == "PlacementFailed"
    assert play.requests.gone == [second.key]
    play.world.now += 2 * MINUTE
    await play.forget_changes(2)
    assert len(play.requests.made) == 3


async def test_a_request_for_late_pods_that_nobody_answers_ends_at_the_timeout() -> None:
    play = await requested()

    play.world.now += 16 * MINUTE
    await play.forget_changes(2)

    assert (play.world.bound(), charged(play)) == ({"a-0": "n1"}, 8)
    assert play.requests.gone == [play.requests.made[1].key]


async def test_capacity_of_late_pods_that_is_revoked_takes_only_these_back() -> None:
    play = await requested()
    second = play.requests.made[1]
    play.requests.answer(Answer.PROVISIONED, of=second.name)
    await play.forget_changes()
    assert play.world.towards() == {"a-1": X8}

    play.requests.answer(Answer.CAPACITY_REVOKED, of=second.name)
    await play.forget_changes(2)

    assert (play.world.bound(), play.world.towards(), charged(play)) == ({"a-0": "n1"}, {}, 8)


async def test_another_place_that_a_gang_is_given_meanwhile_changes_no_request() -> None:
    play = Requesting(a_cluster().queue("q", gpus=100, provisioning=REQUEST).shape("x8", gpus=8, most=2), a=elastic(3))
    await play.forget_changes()
    play.requests.answer(Answer.PROVISIONED)
    play.world.add("n1", "n2")
    await play.forget_changes(3)
    play.world.lose("n2")
    await play.forget_changes(2)
    made = len(play.requests.made)

    play.world.add("own", labels={"type": "own"})
    await play.forget_changes(3)

    assert "own" in play.world.bound().values()
    assert len(play.requests.made) == made
    play.requests.answer(Answer.PROVISIONED, of=play.requests.made[-1].name)
    await play.forget_changes(2)
    assert len(play.world.towards()) == 1


@pytest.mark.parametrize("succeeded", [True, False])
async def test_pods_that_join_on_nodes_that_are_there_give_those_that_wait_for_nodes_no_more_time(
    succeeded: bool,
) -> None:
    play = Asking(asks(requeue={"base": "1h"}).shape("x8", gpus=8, most=2), a=elastic(3))
    await play.forget_changes()
    play.world.add("n1")
    await play.forget_changes(3)
    assert (play.world.bound(), play.world.towards()) == ({"a-0": "n1"}, {"a-1": X8})
    play.world.now += 10 * MINUTE
    play.world.add("own", shape="other")
    await play.forget_changes(3)
    assert play.world.bound() == {"a-0": "n1", "a-2": "own"}
    if succeeded:
        await play.ledger.fence(2)
        play.succeed()

    play.world.now += 6 * MINUTE
    await play.forget_changes(2)

    assert play.world.towards() == {}
    assert (play.world.bound(), charged(play)) == ({"a-0": "n1", "a-2": "own"}, 16)


async def test_a_gang_runs_while_pods_that_join_it_wait_for_nodes_and_its_hold_says_what_they_wait_for() -> None:
    play = await running()
    play.world.lose("n2")
    await play.forget_changes(2)

    found = report(await play.forget_changes(), "a")

    assert found.phase == "Running"
    assert found.hold is not None
    assert (found.hold.reason, found.hold.message) == (
        "NodesNeeded",
        "it runs; nodes were asked for (1 of shape x8) for a pod that joins it, and have not come yet",
    )
    assert "an autoscaler has to start them: 1 of shape x8" in advice.advice(found)
    play.world.add("n3")
    found = report(await play.forget_changes(3), "a")
    assert (found.phase, found.hold) == ("Running", None)


async def test_a_gang_runs_while_pods_that_join_it_wait_behind_their_gates_for_their_request() -> None:
    play = await requested()

    found = report(await play.forget_changes(), "a")

    assert found.phase == "Running"
    assert found.hold is not None
    assert found.hold.reason == "NodesNeeded"
    assert str(found.hold.details["provisioningRequest"]) in found.hold.message


async def test_a_gang_that_has_lost_all_pods_but_those_that_wait_for_nodes_does_not_run() -> None:
    play = await requested()
    play.world.lose("n1")

    found = report(await play.forget_changes(2), "a")

    assert found.phase in {"Reserved", "Pending"}
