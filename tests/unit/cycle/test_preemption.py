"""Whole gangs are evicted for others that are held, and what that frees is kept for these."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.kubernetes.jobs import Job
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Entry, Kind, Posted
from admission.api.values import names
from admission.api.values.reasons import HoldReason
from admission.errors import ClusterUnavailableError, LedgerUnavailableError
from admission.scheduling.preemption import nominations, targets
from admission.simulation import in_memory
from tests import readers
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import report
from tests.unit.cycle.jobs import SECOND, Jobs, Play

LOWER = {"withinQueue": "LowerPriority"}
ANY = {"reclaim": "Any"}


def a_queue(gpus: int = 4, quota: int = 100, **queue: Any) -> ClusterBuilder:
    return a_cluster().node("a", gpus=gpus).queue("q", gpus=quota, **{"preemption": LOWER, **queue})


def two_queues(preemption: dict[str, str], gpus: int = 4) -> ClusterBuilder:
    """Two queues under one, each of half of the devices, which the other may borrow."""
    builder = a_cluster().node("a", gpus=gpus).queue("top", gpus=0)
    for name in ("left", "right"):
        builder.queue(name, gpus=gpus // 2, parent="top", preemption=preemption)
    return builder


@pytest.mark.parametrize("quota", [4, 100], ids=["for quota", "for devices"])
async def test_a_gang_of_higher_priority_evicts_a_lower_one_as_a_whole_and_starts(quota: int) -> None:
    cluster = Jobs(a_queue(quota=quota))
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    first = report(await play.forget_changes(2), "low")
    assert cluster.running() == {"low"}

    cluster.submit("high", queue="q", pods=2, priority=10)
    await play.forget_changes()
    assert cluster.running() == set()
    assert play.evicted == [("low", "Preempted", "high")]

    await play.forget_changes(2)
    after = await play.forget_changes(2)
    assert cluster.running() == {"high"}
    assert report(after, "high").phase is Phase.RUNNING
    victim = report(after, "low")
    assert victim.phase is Phase.PENDING
    assert victim.evicted is not None
    assert victim.evicted.made_room_for == report(after, "high").key
    assert victim.queued_since == first.queued_since
    (entry,) = [entry for entry in play.ledger.entries if entry.kind is Kind.EVICT]
    assert entry.reason.startswith("Preempted: gang team/high-")
    assert "priority 10, above 0" in entry.reason
    assert {one.reason for one in cluster.notices if one.name.startswith("low-")} >= {"Admitted", "Preempted"}

    cluster.finish_job("high")
    await play.forget_changes(3)
    assert cluster.running() == {"low"}
    assert len(play.evicted) == 1


async def test_an_elastic_gang_keeps_its_place_though_its_pods_that_wait_to_join_were_made_later() -> None:
    play = Play(Jobs(a_queue(preemption={"withinQueue": "LowerOrNewerEqualPriority"})))
    play.cluster.submit("old", queue="q", pods=6, annotations={names.GANG_MIN: "2"})
    await play.forget_changes(3)
    play.cluster.submit("high", queue="q", pods=4, priority=10)
    await play.forget_changes(2)
    play.cluster.submit("new", queue="q", pods=4)
    await play.forget_changes(2)
    play.cluster.finish_job("high")

    await play.forget_changes(8)

    assert play.evicted == [("old", "Preempted", "high")]
    assert play.cluster.running() == {"old"}


async def test_no_gang_is_preempted_where_the_queue_has_no_preemption_policy() -> None:
    cluster = Jobs(a_queue(preemption={}))
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", pods=2, priority=10)

    result = await play.forget_changes(3)

    assert cluster.running() == {"low"}
    held = report(result, "high").hold
    assert held is not None
    assert held.reason is HoldReason.DEVICES_BUSY


async def test_gangs_of_equal_priority_do_not_preempt_each_other() -> None:
    cluster = Jobs(a_queue())
    play = Play(cluster)
    cluster.submit("one", queue="q", pods=4, priority=5)
    await play.forget_changes(2)
    cluster.submit("two", queue="q", pods=4, priority=5)

    await play.forget_changes(3)

    assert cluster.running() == {"one"}
    assert not play.evicted


async def test_no_gang_is_preempted_where_preemption_would_not_help() -> None:
    """The quota would do, but no node has as many devices as one pod asks for."""
    builder = a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=4, preemption=LOWER)
    cluster = Jobs(builder)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", gpus=3, priority=10)

    await play.forget_changes(3)

    assert cluster.running() == {"low"}


@pytest.mark.parametrize(
    "differing",
    [{"cpu": "128"}, {"annotations": {names.TOPOLOGY: "example.com/rack"}}],
    ids=["more of a node than there is", "a domain that no node is in"],
)
async def test_a_gang_preempts_though_a_similar_gang_cannot(differing: dict[str, Any]) -> None:
    cluster = Jobs(a_queue(quota=4))
    play = Play(cluster)
    cluster.submit("low", queue="q", gpus=4)
    await play.forget_changes(2)
    cluster.submit("vain", queue="q", gpus=4, priority=10, **differing)
    await play.forget_changes(3)
    assert not play.evicted

    cluster.submit("high", queue="q", gpus=4, priority=10)
    await play.forget_changes(5)

    assert play.evicted == [("low", "Preempted", "high")]
    assert cluster.running() == {"high"}


async def test_preemption_questions_that_no_gang_asks_any_more_are_forgotten() -> None:
    cluster = Jobs(a_queue(quota=4))
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("vain", queue="q", gpus=4, cpu="128", priority=10)
    cluster.submit("other", queue="q", gpus=4, cpu="256", priority=10)
    await play.forget_changes(3)
    assert len(play.leader.searches.failed) == 2

    cluster.delete_job("vain")
    await play.forget_changes(3)

    assert len(play.leader.searches.failed) == 1


async def test_the_fewest_are_evicted_and_of_those_the_youngest() -> None:
    cluster = Jobs(a_queue(gpus=6))
    play = Play(cluster)
    for name, pods in (("old", 2), ("small", 1), ("other", 1), ("young", 2)):
        cluster.submit(name, queue="q", pods=pods)
        await play.forget_changes()
    cluster.submit("high", queue="q", pods=2, priority=10)

    await play.forget_changes(4)

    assert play.evicted == [("young", "Preempted", "high")]
    assert cluster.running() == {"old", "small", "other", "high"}


async def test_a_queue_reclaims_what_another_has_borrowed_from_the_gang_that_ranks_lower() -> None:
    cluster = Jobs(two_queues(ANY))
    play = Play(cluster)
    cluster.submit("owned", queue="left", pods=2, priority=1)
    cluster.submit("borrowed", queue="left", pods=2, priority=50)
    await play.forget_changes(3)
    assert cluster.running() == {"owned", "borrowed"}

    cluster.submit("mine", queue="right", pods=2)
    await play.forget_changes(4)

    # Of two gangs of one size that has gone which ranks lower, whoever borrowed first.
    assert play.evicted == [("owned", "Reclaimed", "mine")]
    assert cluster.running() == {"borrowed", "mine"}
    await play.forget_changes(5)
    assert len(play.evicted) == 1, "what has its own quota is not taken back in turn"


async def test_a_gang_that_is_borrowed_only_in_part_is_reclaimed_once() -> None:
    """What one gang has of its queue's own and of a lender's at once made the lender's quota worthless."""
    cluster = Jobs(two_queues(ANY, gpus=6))
    play = Play(cluster)
    cluster.submit("large", queue="left", pods=5, priority=50)
    await play.forget_changes(3)
    assert cluster.running() == {"large"}

    cluster.submit("mine", queue="right", pods=3)
    await play.forget_changes(4)

    assert play.evicted == [("large", "Reclaimed", "mine")]
    assert cluster.running() == {"mine"}
    await play.forget_changes(5)
    assert len(play.evicted) == 1, "a gang that would borrow takes nothing back"


async def test_a_gang_of_lower_priority_is_evicted_for_one_that_borrows_where_the_queue_says_so() -> None:
    borrowing = {"reclaim": "Any", "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 1}}
    builder = a_cluster().node("a", gpus=4).queue("top", gpus=4)
    for name in ("left", "right"):
        builder.queue(name, gpus=0, parent="top", preemption=borrowing)
    cluster = Jobs(builder)
    play = Play(cluster)
    for name, priority in (("low", 1), ("high", 2)):
        cluster.submit(name, queue="left", pods=2, priority=priority)
    await play.forget_changes(3)
    cluster.submit("mine", queue="right", pods=2, priority=5)
    cluster.submit("more", queue="right", pods=2, priority=4)

    await play.forget_changes(5)

    assert play.evicted == [("low", "Reclaimed", "mine")], "high is above the threshold"
    assert cluster.running() == {"high", "mine"}
    (entry,) = [entry for entry in play.ledger.entries if entry.kind is Kind.EVICT]
    assert "borrows what queue left has borrowed (priority 5, above 1)" in entry.reason


async def test_a_gang_of_a_queue_that_borrows_less_evicts_one_of_a_queue_that_borrows_more_once() -> None:
    builder = a_cluster().node("a", gpus=4).queue("top", gpus=4)
    for name in ("left", "right"):
        spec = {"reclaim": "Any", "byShares": "LessThanInitialShare"}
        builder.queue(name, gpus=0, parent="top", preemption=spec, fairSharing={"weight": "1"})
    cluster = Jobs(builder)
    play = Play(cluster)
    for name in ("big", "late"):
        cluster.submit(name, queue="left", gpus=2)
        await play.forget_changes(2)
    assert cluster.running() == {"big", "late"}

    cluster.submit("small", queue="right", gpus=2)
    await play.forget_changes(6)

    assert cluster.running() == {"big", "small"}
    assert play.evicted == [("late", "Reclaimed", "small")], "once, and not in turn"
    (entry,) = [entry for entry in play.ledger.entries if entry.kind is Kind.EVICT]
    assert entry.reason.endswith("is of a queue with a smaller share of what is lent than left")


async def test_a_gang_that_was_queued_earlier_evicts_a_later_one_where_the_queue_says_so() -> None:
    cluster = Jobs(a_queue(preemption={"withinQueue": "LowerOrNewerEqualPriority"}))
    play = Play(cluster)
    cluster.submit("first", queue="q", pods=2, at=NOON - 3 * SECOND)
    cluster.submit("early", queue="q", pods=4, at=NOON - 2 * SECOND)
    cluster.submit("late", queue="q", pods=2, at=NOON - SECOND)
    await play.forget_changes(4)
    assert cluster.running() == {"first", "late"}
    assert not play.evicted, "first was there before"

    cluster.finish_job("first")
    await play.forget_changes(6)

    assert play.evicted == [("late", "Preempted", "early")]
    assert cluster.running() == {"early"}
    (entry,) = [entry for entry in play.ledger.entries if entry.kind is Kind.EVICT]
    assert "priority 0, the same, and queued earlier" in entry.reason


async def test_freed_devices_are_kept_for_the_nominated_gang() -> None:
    cluster = Jobs(a_queue(gpus=5), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", pods=5, priority=10)
    result = await play.forget_changes(2)
    assert play.evicted == [("low", "Preempted", "high")]
    held = readers.report_in_full(report(result, "high")).hold
    assert held is not None
    assert "gang team/low-" in held.message
    assert "is evicted for it" in held.message
    assert held.details["evicted"] == [report(result, "low").key]

    # One device is free, and four are about to be.
    cluster.submit("thief", queue="q", pods=1, priority=10)
    await play.forget_changes(3)
    assert cluster.running() == set()

    cluster.end_grace()
    await play.forget_changes(2)
    assert cluster.running() == {"high"}
    assert [gang for gang, _, _ in play.evicted] == ["low"]


async def test_a_victim_that_ran_before_it_was_booked_is_waited_for_by_its_booking() -> None:
    cluster = Jobs(a_queue(), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    for uid, pod in cluster._pods.items():
        cluster._pods[uid] = replace(pod, started=NOON - timedelta(hours=1))
    cluster.submit("high", queue="q", pods=4, priority=10)

    await play.forget_changes(2)

    (nomination,) = play.leader.nominations.by_gang.values()
    placements = play.ledger.book.placements
    assert {uid: placements[uid].reserved_at for uid in nomination.victims} == nomination.victims


async def test_a_gang_that_could_preempt_the_nominated_gang_takes_over_the_nomination() -> None:
    cluster = Jobs(a_queue(), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("middle", queue="q", pods=4, priority=10)
    first = report(await play.forget_changes(2), "middle")
    assert first.hold is not None
    assert "evicted" in first.hold.details

    cluster.submit("high", queue="q", pods=3, priority=20)
    result = await play.forget_changes(2)

    held = readers.report_in_full(report(result, "high")).hold
    assert held is not None
    assert held.details["evicted"] == [report(result, "low").key]
    waits = report(result, "middle")
    assert waits.hold is not None
    assert "evicted" not in waits.hold.details
    assert "is evicted for it" not in waits.hold.message
    cluster.end_grace()
    await play.forget_changes(2)
    assert cluster.running() == {"high"}
    assert play.evicted == [("low", "Preempted", "middle")], "nobody has started only to be evicted"

    cluster.finish_job("high")
    after = await play.forget_changes(3)
    assert cluster.running() == {"middle"}
    assert report(after, "middle").queued_since == first.queued_since
    assert report(after, "low").queued_since is not None
    cluster.finish_job("middle")
    await play.forget_changes(3)
    assert cluster.running() == {"low"}


@pytest.mark.parametrize("priority", [10, 5])
async def test_a_gang_that_could_not_preempt_the_nominated_gang_takes_over_no_nomination(priority: int) -> None:
    cluster = Jobs(a_queue(), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("middle", queue="q", pods=4, priority=10)
    await play.forget_changes(2)

    cluster.submit("other", queue="q", pods=2, priority=priority)
    await play.forget_changes(2)
    cluster.end_grace()
    await play.forget_changes(2)

    assert cluster.running() == {"middle"}


async def test_a_running_gang_is_evicted_before_a_nominated_gang_of_higher_priority_loses_its_nomination() -> None:
    cluster = Jobs(a_queue(), graceful=True)
    play = Play(cluster)
    for name in ("one", "two"):
        cluster.submit(name, queue="q", pods=2)
    await play.forget_changes(2)
    cluster.submit("middle", queue="q", pods=2, priority=10)
    await play.forget_changes(2)

    cluster.submit("high", queue="q", pods=2, priority=20)
    await play.forget_changes(2)
    cluster.end_grace()
    await play.forget_changes(2)

    assert cluster.running() == {"middle", "high"}
    assert sorted(play.evicted) == [("one", "Preempted", "middle"), ("two", "Preempted", "high")]


async def test_a_nomination_renewed_by_another_leader_is_taken_over_again() -> None:
    cluster = Jobs(a_queue(), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("middle", queue="q", pods=4, priority=10)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", pods=3, priority=20)
    await play.forget_changes(2)

    play.succeed()
    await play.forget_changes(2)
    cluster.end_grace()
    await play.forget_changes(2)

    assert cluster.running() == {"high"}
    assert [gang for gang, _, _ in play.evicted] == ["low"]


@pytest.mark.parametrize("victims", [1, 2])
async def test_the_next_leader_evicts_no_further_gang_for_a_nomination(victims: int) -> None:
    cluster = Jobs(a_queue(gpus=5), graceful=True)
    play = Play(cluster)
    for at in range(victims):
        cluster.submit(f"low{at}", queue="q", pods=4 // victims)
    cluster.submit("spare", queue="q", pods=1)
    await play.forget_changes(3)
    cluster.submit("high", queue="q", pods=4, priority=10)
    await play.forget_changes()
    cluster.finish_job("spare")
    evicted = len(play.evicted)
    assert evicted == victims

    play.succeed()
    cluster.submit("thief", queue="q", pods=1)
    cluster.submit("thieves", queue="q", pods=2)
    await play.forget_changes(2)
    assert cluster.running() == {"thief"}, "one device is nobody's; the others are promised, whoever leads"
    cluster.end_grace()
    await play.forget_changes(2)

    assert "high" in cluster.running()
    assert len(play.evicted) == evicted


async def test_a_preemptor_waits_for_a_gang_that_is_being_deleted_and_evicts_none() -> None:
    """Nobody is evicted for what a gang gives back that is being deleted."""
    cluster = Jobs(a_queue(gpus=4), graceful=True)
    play = Play(cluster)
    cluster.submit("leaves", queue="q", pods=2, priority=20)
    cluster.submit("low", queue="q", pods=2)
    await play.forget_changes(3)
    cluster.delete_job("leaves")
    cluster.submit("high", queue="q", pods=2, priority=10)

    await play.forget_changes(3)
    assert not play.evicted
    cluster.end_grace()
    await play.forget_changes(2)
    assert cluster.running() == {"low", "high"}


@pytest.mark.parametrize(("waited", "evicted"), [(SECOND, 1), (nominations.LONGEST + SECOND, 2)])
async def test_an_eviction_that_the_api_server_refuses_is_waited_for_only_so_long(
    waited: timedelta, evicted: int
) -> None:
    class Refusing(Jobs):
        async def suspend(self, job: Job) -> None:
            refused.add(job.meta.name)
            raise ClusterUnavailableError

    refused: set[str] = set()
    cluster = Refusing(a_queue(gpus=4))
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=2)
    cluster.submit("other", queue="q", pods=2)
    await play.forget_changes(3)
    cluster.submit("high", queue="q", pods=2, priority=10)
    await play.forget_changes(2)
    cluster.delete_job("high")
    await play.forget_changes()
    assert len(refused) == 1

    cluster.now += waited
    cluster.submit("next", queue="q", pods=2, priority=10)
    await play.forget_changes(3)

    assert len(refused) == evicted


@pytest.mark.parametrize(("deleted", "left"), [("high", "low"), ("low", "high")], ids=["its gang", "its victim"])
async def test_a_nomination_ends_where_a_gang_is_deleted(deleted: str, left: str) -> None:
    cluster = Jobs(a_queue(gpus=4), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", pods=4, priority=10)
    await play.forget_changes(2)
    cluster.delete_job(deleted)
    cluster.end_grace()

    await play.forget_changes(4)

    assert cluster.running() == {left}
    assert not play.leader.nominations.by_gang


async def test_a_promise_ends_that_cannot_be_kept_when_its_victims_have_gone() -> None:
    cluster = Jobs(a_queue(gpus=4, quota=4), graceful=True)
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", pods=4, priority=10)
    await play.forget_changes(2)
    assert len(play.leader.nominations.by_gang) == 1

    other = a_cluster().node("b", gpus=2).snapshot()
    cluster._rest = replace(cluster._rest, nodes=other.nodes, slices=other.slices)
    cluster.delete_job("low")
    cluster.end_grace()
    cluster.submit("next", queue="q", pods=1)
    await play.forget_changes(4)

    assert not play.leader.nominations.by_gang
    assert cluster.running() == {"next"}


async def test_nothing_is_planned_again_while_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Jobs(a_cluster().node("a", gpus=2).node("b", gpus=2).queue("q", gpus=4, preemption=LOWER))
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", gpus=3, priority=10)
    await play.forget_changes(4)
    asked: list[str] = []
    choose = targets.choose

    def noted(*arguments: Any, **more: Any) -> Any:
        asked.append(arguments[0].key)
        return choose(*arguments, **more)

    monkeypatch.setattr(targets, "choose", noted)
    leader, now = play.leader, cluster.now
    snapshot = cluster.snapshot()
    monkeypatch.setattr(cluster, "snapshot", lambda: snapshot)
    for _ in range(3):
        await play.forget_changes()
    assert len(asked) <= 1
    assert (leader.searches.has_more, now < cluster.now) == (False, True)


def lasting(runtime: str) -> dict[str, str]:
    return {names.RUNTIME: runtime}


def a_head(*, nodes: int = 1, graceful: bool = False) -> tuple[Jobs, Play]:
    """Two queues of which one preempts; the head of the other one waits for a gang of 10 minutes that has node a."""
    builder = a_cluster().queue("top", gpus=0).queue("x", gpus=100, parent="top")
    builder.queue("y", gpus=100, parent="top", preemption=LOWER)
    for name in ("a", "b")[:nodes]:
        builder.node(name, gpus=4)
    cluster = Jobs(builder, graceful=graceful)
    return cluster, Play(cluster)


async def wait_for(cluster: Jobs, play: Play) -> Any:
    cluster.submit("first", queue="y", gpus=4, annotations=lasting("10m"))
    await play.forget_changes(2)
    cluster.submit("head", queue="x", gpus=4, priority=10, annotations=lasting("10m"))
    result = await play.forget_changes(2)
    return report(result, "head").start_estimate


async def test_before_the_view_catches_up_no_gang_is_preempted() -> None:
    """Devices may be free that look taken, since what has ended is not seen yet."""
    cluster = Jobs(a_queue())
    play = Play(cluster)
    cluster.submit("low", queue="q", pods=4)
    await play.forget_changes(2)
    cluster.submit("high", queue="q", pods=2, priority=10)
    play.succeed()
    play.leader.term.await_confirmation()

    await play.forget_changes(2)
    assert play.evicted == []

    play.leader.term.confirm()
    await play.forget_changes(2)
    assert play.evicted == [("low", "Preempted", "high")]


async def test_no_gang_is_preempted_for_a_gang_that_would_delay_the_head() -> None:
    cluster, play = a_head()
    start = await wait_for(cluster, play)
    assert start is not None
    cluster.submit("long", queue="y", gpus=4, priority=5, annotations=lasting("100h"))

    result = await play.forget_changes(6)

    assert cluster.running() == {"first"}
    assert not play.evicted
    assert report(result, "head").start_estimate == start


async def test_a_gang_that_ends_before_the_head_starts_may_preempt_and_does_not_delay_the_head() -> None:
    cluster, play = a_head(graceful=True)
    start = await wait_for(cluster, play)
    cluster.now += 11 * SECOND  # what is reserved stands for ten seconds at least, though somebody ends sooner
    cluster.submit("short", queue="y", gpus=4, priority=5, annotations=lasting("5m"))
    result = await play.forget_changes(2)
    assert play.evicted == [("first", "Preempted", "short")]
    assert report(result, "head").start_estimate <= start  # who is promised something counts as one that has it
    cluster.end_grace()

    result = await play.forget_changes(4)
    assert cluster.running() == {"short"}
    assert report(result, "head").start_estimate < start

    cluster.finish_job("short")
    await play.forget_changes(3)
    assert cluster.running() == {"head"}


async def test_a_nomination_survives_the_grace_period_of_its_victims() -> None:
    """It would have ended before the head is to start, if its victims had gone at once."""
    cluster, play = a_head(graceful=True)
    await wait_for(cluster, play)
    cluster.submit("short", queue="y", gpus=4, priority=5, annotations=lasting("9m55s"))
    await play.forget_changes(2)
    assert play.evicted == [("first", "Preempted", "short")]
    await play.forget_changes(30)
    cluster.end_grace()

    await play.forget_changes(3)

    assert cluster.running() == {"short"}


async def test_a_gang_that_needs_no_reserved_device_may_preempt() -> None:
    cluster, play = a_head(nodes=2)
    cluster.submit("endless", queue="y", gpus=4, annotations=lasting("1000h"))
    await play.forget_changes(2)
    start = await wait_for(cluster, play)
    assert cluster.running() == {"endless", "first"}
    cluster.submit("long", queue="y", gpus=4, priority=5, annotations=lasting("100h"))

    result = await play.forget_changes(6)

    assert play.evicted == [("endless", "Preempted", "long")]
    assert cluster.running() == {"first", "long"}
    assert report(result, "head").start_estimate == start


async def test_preemption_leaves_quota_reserved_for_the_head_alone() -> None:
    """There are devices for both, and quota for one of them at a time."""
    builder = a_cluster().node("a", gpus=4).node("b", gpus=4)
    builder.queue("top", gpus=4).queue("x", gpus=0, parent="top")
    builder.queue("y", gpus=0, parent="top", preemption=LOWER)
    cluster = Jobs(builder)
    play = Play(cluster)
    start = await wait_for(cluster, play)
    assert start is not None
    cluster.submit("long", queue="y", gpus=4, priority=5, annotations=lasting("100h"))

    result = await play.forget_changes(6)

    assert not play.evicted
    assert report(result, "head").start_estimate == start


async def test_the_start_estimate_of_the_head_moves_when_a_gang_ahead_takes_its_reservation() -> None:
    cluster, play = a_head()
    start = await wait_for(cluster, play)
    cluster.submit("urgent", queue="y", gpus=4, priority=20, annotations=lasting("2h"))

    result = await play.forget_changes(6)

    assert cluster.running() == {"urgent"}
    moved = report(result, "head").start_estimate
    assert moved is not None
    assert moved - start > timedelta(minutes=100)


async def test_no_gang_is_evicted_while_the_database_is_down_and_each_is_once_it_answers_again() -> None:
    """It fails when the cycle that has chosen them posts its grant."""

    class Failing(in_memory.Ledger):
        is_away = False

        async def post_all(self, entries: Sequence[Entry], **options: Any) -> list[Posted]:
            if self.is_away:
                raise LedgerUnavailableError("away")
            return await super().post_all(entries, **options)

    builder = a_cluster()
    for name in ("left", "right", "free"):
        builder.node(name, gpus=4).queue(name, gpus=4, preemption=LOWER)
    cluster, ledger = Jobs(builder), Failing()
    play = Play(cluster, ledger)
    for name in ("left", "right"):
        cluster.submit(f"low-{name}", queue=name, pods=4)
    await play.forget_changes(3)
    assert cluster.running() == {"low-left", "low-right"}

    ledger.is_away = True
    for name in ("left", "right"):
        cluster.submit(f"high-{name}", queue=name, pods=4, priority=10)
    cluster.submit("starts", queue="free", pods=4)
    await play.forget_changes()
    assert play.leader.nominations.by_gang == {}
    assert play.evicted == []

    ledger.is_away = False
    await play.forget_changes(5)
    assert sorted(gang for gang, _, _ in play.evicted) == ["low-left", "low-right"]
    assert cluster.running() == {"high-left", "high-right", "starts"}


async def test_the_hold_of_further_pods_says_that_nobody_is_evicted_for_them() -> None:
    cluster = Jobs(two_queues(ANY))
    play = Play(cluster)
    for number in range(4):
        cluster.submit(f"loan-{number}", queue="left", priority=9)
    await play.forget_changes(2)
    cluster.submit("mine", queue="right", pods=3, annotations={names.GANG_MIN: "1"})
    before = report(await play.forget_changes(1), "mine").hold
    result = await play.forget_changes(4)

    assert [victim for victim, _, _ in play.evicted] == ["loan-0"]
    hold = report(result, "mine").hold
    assert before is not None
    assert hold is not None
    assert "gangs that borrow are evicted for the gang" in before.message
    assert hold.message == (
        "queue right has 0 gpus left (nominal 2, used 1), the gang needs at least 1; 1 of the 2 of queue right are lent"
        " to left; nobody is evicted for further pods of a gang that has started"
    )
    assert "reclaim" not in hold.details
