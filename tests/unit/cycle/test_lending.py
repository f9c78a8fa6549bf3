"""A queue keeps its own quota for a gang of it that waits, where it could not take it back, unless it always lends."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster import queues
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import HoldReason
from admission.scheduling.checks import lender_quota
from admission.workloads import gangs
from admission.workloads.gangs import Group
from tests.builders import ClusterBuilder, a_cluster, let_in
from tests.unit.cycle.fences import report
from tests.unit.cycle.jobs import Jobs, Play

NEVER: dict[str, Any] = {}
GPU = MeterName("gpus")


def two_queues(lender: dict[str, Any] = NEVER) -> ClusterBuilder:
    """Two queues under one, each of two of four devices."""
    builder = a_cluster().node("a", gpus=4).queue("top", gpus=0).queue("borrower", gpus=2, parent="top")
    return builder.queue("lender", gpus=2, parent="top", **lender)


async def borrowed(lender: dict[str, Any] = NEVER) -> tuple[Jobs, Play]:
    """Let the borrower have everything, and want more, and the lender want its own; then end one gang."""
    cluster = Jobs(two_queues(lender))
    play = Play(cluster)
    for number in range(4):
        cluster.submit(f"b{number}", queue="borrower")
    await play.forget_changes(3)
    assert cluster.running() == {"b0", "b1", "b2", "b3"}
    cluster.submit("more", queue="borrower", priority=9)
    cluster.submit("mine", queue="lender", pods=2)
    await play.forget_changes(2)
    cluster.finish_job("b0")
    return cluster, play


async def test_what_a_lender_has_left_is_kept_for_its_gang_that_waits() -> None:
    cluster, play = await borrowed()

    result = await play.forget_changes(3)
    assert cluster.running() == {"b1", "b2", "b3"}
    hold = report(result, "more").hold
    assert hold is not None
    assert hold.reason is HoldReason.QUOTA_EXCEEDED
    assert hold.message == (
        "queue borrower has 0 gpus left (nominal 2, used 3, borrowed 1), the gang needs 1;"
        " the rest may not be borrowed now: queue lender keeps its own quota for a gang of its own"
    )
    assert {queue.name: queue.starved for queue in result.queues} == {"top": 0, "borrower": 0, "lender": 1}
    assert hold.details["keptBy"] == ["lender"]

    cluster.finish_job("b1")
    await play.forget_changes(3)
    assert cluster.running() == {"b2", "b3", "mine"}

    cluster.finish_job("mine")
    await play.forget_changes(3)
    assert cluster.running() == {"b2", "b3", "more"}, "nobody waits there any more"


KEPT: dict[str, tuple[dict[str, Any], dict[MeterName, int], bool]] = {
    "by default": ({}, {GPU: 2}, True),
    "not where it always lends": ({"lending": "Always"}, {GPU: 2}, False),
    "not where it takes it back anyway": ({"preemption": {"reclaim": "Any"}}, {GPU: 2}, False),
    "also where it takes it back from some alone": ({"preemption": {"reclaim": "LowerPriority"}}, {GPU: 2}, True),
    "not for more than it has": ({}, {GPU: 3}, False),
    "not for a meter that it has nothing of": ({}, {GPU: 2, MeterName("memory"): 1}, False),
}


@pytest.mark.parametrize(("spec", "needed", "kept"), KEPT.values(), ids=KEPT)
def test_a_queue_keeps_its_own_quota(spec: dict[str, Any], needed: dict[MeterName, int], kept: bool) -> None:
    quotas = {"quotas": [{"meter": GPU, "nominal": 2}]}
    queue = queues.decode({"metadata": {"name": "lender"}, "spec": {**quotas, **spec}})

    assert lender_quota.may_keep(queue, needed) is kept


(WAITS,) = gangs.groups(two_queues().job("mine", queue="lender", pods=2).snapshot(), {})
JOINED = replace(WAITS, identity=replace(WAITS.identity, needed=1), pods=(let_in(WAITS.pods[0]), WAITS.pods[1]))

AGAIN: dict[str, tuple[Group, dict[str, Any], bool]] = {
    "while it waits": (WAITS, {}, True),
    "not when all of its pods have a place": (replace(WAITS, pods=tuple(map(let_in, WAITS.pods))), {}, False),
    "not when it runs and more pods wait to join": (JOINED, {}, False),
    "not when it has gone to another queue": (replace(WAITS, queue=QueueName("borrower")), {}, False),
    "not when the queue always lends": (WAITS, {"lending": "Always"}, False),
}


@pytest.mark.parametrize(("group", "spec", "kept"), AGAIN.values(), ids=AGAIN)
def test_quota_is_kept_again(group: Group, spec: dict[str, Any], kept: bool) -> None:
    queue = two_queues(spec).snapshot().queues[QueueName("lender")]

    assert lender_quota.keep_again(group, queue, {GPU: 2}) is kept


async def test_quota_is_kept_until_the_gang_has_its_turn_which_may_come_after_that_of_a_borrower() -> None:
    """The branch of the owner borrows, too, so that rank decides between both branches."""
    builder = a_cluster().node("a", gpus=8).queue("top", gpus=2)
    for name, gpus, parent in (("left", 0, "top"), ("right", 0, "top"), ("own", 4, "left"), ("beside", 0, "left")):
        builder.queue(name, gpus=gpus, parent=parent)
    cluster = Jobs(builder.queue("other", gpus=0, parent="right"))
    play = Play(cluster)
    cluster.submit("stays", queue="beside", gpus=2)
    cluster.submit("ends", queue="other", gpus=4)
    await play.forget_changes(3)
    cluster.submit("next", queue="other", gpus=4, priority=9)
    cluster.submit("mine", queue="own", gpus=4)
    await play.forget_changes(2)
    assert cluster.running() == {"stays", "ends"}

    cluster.finish_job("ends")
    await play.forget_changes(3)

    assert cluster.running() == {"stays", "mine"}


async def test_a_lender_that_says_always_is_passed_again_and_again() -> None:
    cluster, play = await borrowed({"lending": "Always"})

    await play.forget_changes(3)

    assert cluster.running() == {"b1", "b2", "b3", "more"}


async def test_nothing_is_kept_for_a_gang_that_its_queues_own_quota_would_never_do_for() -> None:
    cluster = Jobs(two_queues())
    play = Play(cluster)
    cluster.submit("b0", queue="borrower", pods=2)
    await play.forget_changes(3)
    cluster.submit("huge", queue="lender", pods=3)
    cluster.submit("more", queue="borrower")
    await play.forget_changes(3)

    assert cluster.running() == {"b0", "more"}


async def test_what_was_kept_for_a_gang_that_is_gone_is_lent_again() -> None:
    cluster, play = await borrowed()
    await play.forget_changes(3)
    assert cluster.running() == {"b1", "b2", "b3"}

    cluster.finish_job("mine")
    await play.forget_changes(2)

    assert cluster.running() == {"b1", "b2", "b3", "more"}


async def test_the_lenders_own_gangs_may_use_what_it_keeps() -> None:
    cluster, play = await borrowed()
    cluster.submit("small", queue="lender")

    await play.forget_changes(3)

    assert cluster.running() == {"b1", "b2", "b3", "small"}


@pytest.mark.parametrize("reclaim", ["Never", "Any"])
async def test_an_owner_starts_within_its_own_quota_whatever_another_one_keeps(reclaim: str) -> None:
    """Three of the five devices are lent, so that less is left than one owner keeps; the other one takes none of it."""
    builder = a_cluster().node("n", gpus=8).queue("top", gpus=0).queue("lender", gpus=4, parent="top")
    builder.queue("borrower", gpus=0, parent="top").queue(
        "owner", gpus=1, parent="top", preemption={"reclaim": reclaim}
    )
    cluster = Jobs(builder)
    play = Play(cluster)
    cluster.submit("loan", queue="borrower", gpus=3)
    await play.forget_changes(2)
    cluster.submit("mine", queue="lender", gpus=3)
    await play.forget_changes(3)
    cluster.submit("more", queue="borrower", priority=9)
    cluster.submit("own", queue="owner")

    result = await play.forget_changes(3)
    assert cluster.running() == {"loan", "own"}
    assert play.evicted == []
    hold = report(result, "more").hold
    assert hold is not None
    assert hold.details["keptBy"] == ["lender"]

    cluster.finish_job("loan")
    await play.forget_changes(3)
    assert cluster.running() == {"mine", "own", "more"}
