"""Backfill learns from how long nodes took to come when a gang will start whose nodes were asked for."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from admission.api.muster.ledger_entries import Placement
from admission.api.values import names
from admission.api.values.names import GangUid, NodeName, QueueName
from admission.scheduling.capacity.arrival_times import MOST, ArrivalTimes
from admission.workloads.gangs import Group
from tests.builders import NOON, a_cluster
from tests.unit.cycle.autoscaled import PODS, Asking
from tests.unit.cycle.fences import MINUTE, report

RUNS: dict[str, Any] = {"pods": 1, "gpus": 8, "annotations": {names.RUNTIME: "10m"}}


async def waiting(play: Asking, minutes: int) -> None:
    """Let nodes come for `first` so many minutes after it asked; then `second` asks, and `third` waits for quota."""
    await play.forget_changes()
    play.world.now += minutes * MINUTE
    play.world.add("n1")
    await play.forget_changes(2)
    assert play.world.bound() == {"first-0": "n1"}
    play.world.submit("second", queue="q", **RUNS)
    await play.forget_changes()
    assert list(play.world.towards()) == ["second-0"]
    play.world.submit("third", queue="q", pods=1, gpus=4)


def is_about(estimate: datetime | None, expected: datetime) -> bool:
    """Return whether an estimate is right but for the seconds that cycles take."""
    return estimate is not None and abs(estimate - expected) < timedelta(seconds=6)


def a_play() -> Asking:
    """Return a leader with four GPUs on a node, nodes of eight that may come, and quota for sixteen."""
    builder = a_cluster().queue("q", gpus=16, provisioning=PODS).node("n", gpus=4).shape("x8", gpus=8)
    return Asking(builder, first={**RUNS, "annotations": {names.RUNTIME: "10h"}})


@pytest.mark.parametrize("minutes", [0, 7])
async def test_a_head_is_expected_when_the_nodes_of_the_gang_before_it_will_have_come_and_it_has_run(
    minutes: int,
) -> None:
    play = a_play()
    await waiting(play, minutes)
    asked = play.world.now

    found = report(await play.forget_changes(2), "third")

    assert found.hold is not None
    assert found.hold.reason == "QuotaExceeded"
    assert is_about(found.start_estimate, asked + (minutes + 10) * MINUTE)


async def test_the_next_leader_expects_the_same_from_the_gangs_that_run() -> None:
    play = a_play()
    await waiting(play, 7)
    asked = play.world.now
    await play.forget_changes(2)
    await play.ledger.fence(play.epoch + 1)
    play.succeed()

    assert is_about(report(await play.forget_changes(2), "third").start_estimate, asked + 17 * MINUTE)


async def test_once_its_nodes_have_come_a_gang_runs_from_then() -> None:
    play = a_play()
    await waiting(play, 7)
    play.world.now += 2 * MINUTE
    play.world.add("n2")
    started = play.world.now
    await play.forget_changes(2)
    play.world.now += timedelta(seconds=20)

    assert is_about(report(await play.forget_changes(2), "third").start_estimate, started + 10 * MINUTE)


def a_gang(number: int, minutes: float, *, queue: str = "q", pods: int = 1, started: int = 1) -> Group:
    """Return a gang that asked so many minutes after noon as its number says, whose nodes came minutes later."""
    asked = NOON + number * MINUTE
    seat = SimpleNamespace(as_asked=names.node_to_come("x8", 1))
    seats = {f"pod-{at}": seat for at in range(pods)} | {"here": SimpleNamespace(as_asked=NodeName("n"))}
    placement = cast("Placement", SimpleNamespace(queue=QueueName(queue), held_since=asked, seats=seats))
    at = asked + minutes * MINUTE
    made = [SimpleNamespace(meta=SimpleNamespace(uid=f"pod-{one}"), started=at) for one in range(started)]
    return cast("Group", SimpleNamespace(placement=placement, pods=made))


def medians(*groups: Group, state: ArrivalTimes | None = None) -> dict[str, timedelta]:
    given = {GangUid(str(number)): group for number, group in enumerate(groups)}
    return {str(name): one for name, one in (state or ArrivalTimes()).update(given, [QueueName("q")]).items()}


def test_the_median_of_a_queue_is_that_of_its_gangs_whose_pods_have_all_started() -> None:
    waits = (3, 50, 4, 5)
    groups = [a_gang(number, wait) for number, wait in enumerate(waits)]

    assert medians(*groups[:3]) == {"q": 4 * MINUTE}
    assert medians(*groups, a_gang(9, 90, pods=2, started=1), a_gang(9, 90, queue="gone")) == {"q": 5 * MINUTE}
    assert medians(a_gang(1, -1)) == {"q": timedelta(0)}
    assert medians() == {}


def test_of_pods_that_join_a_gang_it_counts_when_their_nodes_were_asked_for() -> None:
    gang = a_gang(1, 3)
    later = NOON + 90 * MINUTE
    seat = SimpleNamespace(as_asked=names.node_to_come("x8", 1, later))
    cast("Any", gang.placement).seats["joins"] = seat
    late = SimpleNamespace(meta=SimpleNamespace(uid="joins"), started=None)
    cast("Any", gang).pods.append(late)
    assert medians(gang) == {}

    late.started = later + 7 * MINUTE

    assert medians(gang) == {"q": 7 * MINUTE}


def test_what_a_gang_asks_for_when_pods_join_it_counts_beside_what_it_asked_for_at_its_start() -> None:
    gang, state = a_gang(1, 3), ArrivalTimes()
    medians(gang, state=state)
    later = NOON + 90 * MINUTE
    joins = SimpleNamespace(meta=SimpleNamespace(uid="joins"), started=later + 7 * MINUTE)
    seats = {**cast("Any", gang.placement).seats, "joins": SimpleNamespace(as_asked=names.node_to_come("x8", 1, later))}
    placement = cast("Placement", SimpleNamespace(queue=QueueName("q"), held_since=NOON, seats=seats))
    grown = cast("Group", SimpleNamespace(placement=placement, pods=[*gang.pods, joins]))

    assert medians(grown, a_gang(2, 5), state=state) == {"q": 5 * MINUTE}


def test_nodes_of_a_start_were_asked_for_when_the_books_say_so_whenever_the_gang_was_charged() -> None:
    gang = a_gang(30, 3)
    node = names.node_to_come("x8", 1, asked_at=NOON)
    cast("Any", gang.placement).seats["pod-0"] = SimpleNamespace(as_asked=node)

    assert medians(gang) == {"q": 33 * MINUTE}
    assert names.for_people(node) == "nodeshape/x8/1"
    assert (names.shape_of(node), names.joined_at(node), names.asked_at(node)) == ("x8", None, NOON)


def test_a_gang_whose_pods_started_long_before_its_known_reservation_says_nothing() -> None:
    assert medians(a_gang(10, -5)) == {}


def test_gangs_that_have_ended_count_on_and_the_last_that_asked_alone() -> None:
    state = ArrivalTimes()
    early = medians(*(a_gang(number, 60) for number in range(3 * MOST)), state=state)
    kept = state.medians

    assert early == {"q": 60 * MINUTE}
    assert medians(state=state) == early
    assert state.medians is kept, "nothing that follows from it is computed again"
    assert medians(*(a_gang(1000 + number, 1) for number in range(MOST)), state=state) == {"q": MINUTE}
    assert {len(known) for known in state._known.values()} == {MOST}
    state.update({}, [])
    assert state.medians == {}
