"""Gangs of which only a plan says what they are charged evict others by that charge, not by what is certain without."""

from typing import Any

import pytest

from admission.api.values.names import GANG_MIN, MeterName
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.test_node_resources import a_meter

CYCLES = 12
"""Enough for several rounds, if two gangs evict each other in turn."""


CORES: dict[str, Any] = {"name": "cpu"}


def two_queues(
    nominal: int, root: int, *counted: dict[str, Any], meter: str = "gpus", price: str = "", **spec: Any
) -> ClusterBuilder:
    """Queues `a` and `b` with the same quota of a meter. price: of a device in credits, beside what is counted."""
    builder = a_cluster().node("n", gpus=8)
    builder._meters.append(a_meter(*(counted or (CORES,) * (not price)), price=price))
    below: dict[str, Any] = {"parent": "top", **spec}
    for name, amount in {"top": root, "a": nominal, "b": nominal}.items():
        amounts = {"claims": 100, "gpus": 100, "credits": 100, meter: amount}
        quotas = [{"meter": one, "nominal": str(number)} for one, number in amounts.items()]
        builder.queue(name, quotas=quotas, **(below if name != "top" else {}))
    return builder


def elastic(least: int, most: int) -> dict[str, Any]:
    return {"pods": most, "annotations": {GANG_MIN: str(least)}}


def used(play: Play) -> dict[str, int]:
    """Return how many GPUs each queue uses."""
    found = {queue: meters[MeterName("gpus")] for queue, meters in play.ledger.book.usage().items()}
    return {queue: use.reserved + use.used for queue, use in found.items()}


ANY: dict[str, Any] = {"preemption": {"reclaim": "Any"}}
INITIAL: dict[str, Any] = {
    "preemption": {"reclaim": "Any", "byShares": "LessThanInitialShare"},
    "fairSharing": {"weight": "1"},
}
PRICED: dict[str, Any] = {"meter": "credits", "price": "4"}


@pytest.mark.parametrize(
    ("queues", "first", "second", "evicted", "gpus"),
    [
        (two_queues(2, 2, **ANY), elastic(2, 6), elastic(2, 6), ["first"], {"a": 4, "b": 2}),
        (two_queues(3, 0, **ANY), elastic(2, 6), elastic(2, 6), ["first"], {"a": 3, "b": 3}),
        (two_queues(2, 0, **ANY), {"gpus": (4, 2)}, {"gpus": (4, 2)}, ["first"], {"a": 2, "b": 2}),
        (two_queues(1, 3, CORES, **PRICED, **ANY), {}, {}, [], {"a": 1}),
    ],
    ids=["elastic", "elastic, nothing shared", "firstAvailable", "a price"],
)
async def test_a_gang_evicts_others_for_no_plan_with_which_its_queue_would_borrow(
    queues: ClusterBuilder, first: dict[str, Any], second: dict[str, Any], evicted: list[str], gpus: dict[str, int]
) -> None:
    play = Play(Jobs(queues))
    play.cluster.submit("first", queue="a", **first)
    await play.forget_changes(3)
    play.cluster.submit("second", queue="b", **second)

    await play.forget_changes(CYCLES)

    assert [gang for gang, _, _ in play.evicted] == evicted
    assert used(play) == gpus


async def test_the_next_leader_plans_no_loan_for_whom_others_were_evicted_to_take_back_the_own() -> None:
    play = Play(Jobs(two_queues(3, 0, **ANY), graceful=True))
    play.cluster.submit("first", queue="a", **elastic(2, 6))
    await play.forget_changes(3)
    play.cluster.submit("second", queue="b", **elastic(2, 6))
    await play.forget_changes(2)
    assert [gang for gang, _, _ in play.evicted] == ["first"]
    play.succeed()
    await play.forget_changes(2)

    for _ in range(CYCLES):
        play.cluster.end_grace()
        await play.forget_changes(1)

    assert [gang for gang, _, _ in play.evicted] == ["first"]
    assert used(play) == {"a": 3, "b": 3}


@pytest.mark.parametrize(
    ("strategy", "first", "least", "running"),
    [
        ("LessThanInitialShare", 8, 1, ["second"]),
        ("LessThanInitialShare", 8, 8, ["first"]),
        ("LessThanOrEqualToFinalShare", 5, 1, ["second", "stays"]),
        ("LessThanOrEqualToFinalShare", 5, 4, ["first", "stays"]),
    ],
)
async def test_an_elastic_gang_evicts_others_by_the_share_that_it_has_with_fewer_pods(
    strategy: str, first: int, least: int, running: list[str]
) -> None:
    """As with partial admission in Kueue: with 7 of 8 of what is lent, or with 3 beside one of 3 that stays."""
    preemption = {"reclaim": "LowerPriority", "byShares": strategy}
    play = Play(Jobs(two_queues(0, 8, preemption=preemption, fairSharing={"weight": "1"})))
    play.cluster.submit("first", queue="a", gpus=first)
    if first < 8:
        play.cluster.submit("stays", queue="a", gpus=8 - first, priority=9)
    await play.forget_changes(3)
    play.cluster.submit("second", queue="b", priority=1, **elastic(least, 8))

    await play.forget_changes(CYCLES)

    assert sorted(play.cluster.running()) == running


@pytest.mark.parametrize(
    ("spec", "second"),
    [
        (ANY, elastic(2, 8)),
        (INITIAL, elastic(2, 8)),
        (INITIAL, elastic(2, 5)),
        (INITIAL, {"gpus": (6, 4)}),
        (INITIAL, {"gpus": 4}),
    ],
)
async def test_a_queue_takes_back_its_own_whatever_its_gangs_may_have_by_their_share(
    spec: dict[str, Any], second: dict[str, Any]
) -> None:
    play = Play(Jobs(two_queues(4, 0, **spec)))
    play.cluster.submit("first", queue="a", gpus=8)
    await play.forget_changes(3)
    play.cluster.submit("second", queue="b", **second)

    await play.forget_changes(CYCLES)

    assert [gang for gang, _, _ in play.evicted] == ["first"]
    assert play.cluster.running() == {"second"}


async def test_one_gang_goes_where_it_is_enough_for_a_queue_to_take_back_its_own() -> None:
    play = Play(Jobs(two_queues(4, 0, **INITIAL)))
    for name, gpus in (("one", 5), ("two", 3)):
        play.cluster.submit(name, queue="a", gpus=gpus)
        await play.forget_changes(3)
    play.cluster.submit("second", queue="b", priority=1, **elastic(4, 8))

    await play.forget_changes(CYCLES)

    assert len(play.evicted) == 1


async def test_the_next_leader_plans_by_the_share_for_which_others_were_evicted() -> None:
    preemption = {"reclaim": "LowerPriority", "byShares": "LessThanInitialShare"}
    play = Play(Jobs(two_queues(0, 8, preemption=preemption, fairSharing={"weight": "1"}), graceful=True))
    play.cluster.submit("first", queue="a", gpus=8)
    await play.forget_changes(3)
    play.cluster.submit("second", queue="b", priority=1, **elastic(1, 8))
    await play.forget_changes(2)
    assert [gang for gang, _, _ in play.evicted] == ["first"]
    play.succeed()
    await play.forget_changes(2)
    play.cluster.end_grace()

    await play.forget_changes(1)

    assert used(play).get("b") == 7


async def test_a_queue_takes_back_quota_of_which_only_a_plan_says_how_much_is_needed() -> None:
    play = Play(Jobs(two_queues(4, 0, **PRICED, **ANY)))
    for name in ("own", "loan"):
        play.cluster.submit(name, queue="a")
        await play.forget_changes(3)
    assert play.cluster.running() == {"own", "loan"}
    play.cluster.submit("back", queue="b")

    await play.forget_changes(CYCLES)

    assert play.evicted == [("loan", "Reclaimed", "back")]
    assert play.cluster.running() == {"own", "back"}


BY_SHARES: dict[str, Any] = {
    "preemption": {"reclaim": "Any", "byShares": "LessThanOrEqualToFinalShare"},
    "fairSharing": {"weight": "1"},
}


@pytest.mark.parametrize("second", [elastic(1, 4), {"gpus": (4, 1)}], ids=["elastic", "firstAvailable"])
@pytest.mark.parametrize(("spec", "nominal", "root"), [(ANY, 16, 0), (BY_SHARES, 0, 16), (INITIAL, 0, 16)])
async def test_no_more_gangs_go_by_a_price_than_for_the_fewest_pods_and_the_smallest_devices(
    spec: dict[str, Any], nominal: int, root: int, second: dict[str, Any]
) -> None:
    """As where the charge is certain; a price is known with a plan alone."""
    play = Play(Jobs(two_queues(nominal, root, **PRICED, **spec)))
    for number in range(4 + nominal // 4):
        play.cluster.submit(f"loan{number}", queue="a", gpus=1)
        await play.forget_changes(2)
    play.cluster.submit("back", queue="b", **second)

    await play.forget_changes(CYCLES)

    assert len(play.evicted) == 1
    assert "back" in play.cluster.running()


async def test_nobody_is_evicted_in_vain_where_who_has_less_gets_what_another_gang_leaves() -> None:
    """An older gang of the other queue was planned there, and one that runs evicted by shares to make room for both."""
    play = Play(Jobs(two_queues(0, 4, **BY_SHARES), graceful=True))
    for name, queue in (("one", "a"), ("two", "a"), ("first", "b")):
        play.cluster.submit(name, queue=queue, gpus=2)
        await play.forget_changes(3)
        play.cluster.end_grace()
    await play.forget_changes(3)
    assert play.cluster.running() == {"one", "first"}
    play.cluster.submit("second", queue="b", gpus=2)
    await play.forget_changes(3)
    evicted = len(play.evicted)

    play.cluster.delete_job("first")
    await play.forget_changes(2)
    play.cluster.end_grace()
    await play.forget_changes(3)

    assert play.cluster.running() == {"one", "second"}
    assert len(play.evicted) == evicted
