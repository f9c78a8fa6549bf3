"""Gangs that leave their devices idle: they are told, and what their queue says becomes of them."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

from admission.api.device_use.idle import IdleAction
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Kind, MeasuredUsage
from admission.api.values.names import GANG, GANG_SIZE
from admission.api.values.reasons import EvictionReason, HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.simulation import in_memory
from admission.status.idle_gangs import IdleGangs
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import Cluster, a_leader, report
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.test_limits import Town

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
LATE = timedelta(minutes=10)


def a_town(action: IdleAction = IdleAction.REPORT, **queue: Any) -> ClusterBuilder:
    idle = {"belowPercent": 5, "after": "2h", "action": str(action)}
    return a_cluster().node("a", gpus=4).queue("q", gpus=4, idle=idle, **queue).job("train", queue="q", pods=2)


def leading(cluster: Cluster, ledger: in_memory.Ledger, *, records: bool = True) -> Leader:
    idle = IdleGangs(records=records, measured=[CLASS], fresh=HOUR + LATE)
    return a_leader(cluster, ledger, idle=idle)


async def record(
    leader: Leader, until: datetime, *, hours: int = 3, percent: int = 0, busy: str = "", seconds: int = 3600
) -> None:
    """Have a leader read that all gangs were in such use in the hours before. busy: a gang that was in full use.

    seconds: of each hour that were measured.
    """
    placements = leader.mirror.book.placements

    async def rows() -> AsyncIterator[MeasuredUsage]:
        for hour in range(hours, 0, -1):
            for placement in placements.values():
                for holding in placement.holdings.values():
                    share = 100 if busy and busy in placement.gang else percent
                    yield MeasuredUsage(
                        queue=placement.queue,
                        gang_uid=placement.gang_uid,
                        gang=placement.gang,
                        user="",
                        claim_uid=holding.claim_uid,
                        claim=holding.claim,
                        start=until - hour * HOUR,
                        end=until - (hour - 1) * HOUR,
                        devices=len(holding.devices),
                        measured_seconds=seconds * len(holding.devices),
                        used_microseconds=seconds * len(holding.devices) * share * 10_000,
                    )

    await leader.idle.read(rows(), until, placements, replaces=True)


async def running(builder: ClusterBuilder) -> tuple[Town, in_memory.Ledger, Leader]:
    """Return a town whose gangs run since noon."""
    cluster, ledger = Town(builder), in_memory.Ledger()
    leader = leading(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.schedule(ledger.book)
    await cycle.run(leader, NOON + SECOND)
    return cluster, ledger, leader


def told(cluster: Town) -> list[str]:
    return [notice.message for notice in cluster.notices if notice.reason == "GangIdle" and notice.kind == "Gang"]


async def test_an_idle_gang_is_told_once_and_runs_on() -> None:
    cluster, _, leader = await running(a_town())
    assert report(await cycle.run(leader, NOON + HOUR)).idle is None

    await record(leader, NOON + 3 * HOUR)
    result = await cycle.run(leader, NOON + 3 * HOUR + LATE)
    found = report(result)

    assert (found.phase, found.evicted) == (Phase.RUNNING, None)
    assert found.idle is not None
    assert found.idle.message == (
        "its devices have been in use for less than 5 % of the time since 2026-11-21T12:00:00Z; spec.idle of queue q"
        " allows that for 2h, and nothing follows from it"
    )
    assert told(cluster) == [f"gang {found.key} is idle: {found.idle.message}"]
    assert [queue.idle for queue in result.queues] == [1]

    # The next hour is the same.
    await record(leader, NOON + 4 * HOUR, hours=4)
    after = report(await cycle.run(leader, NOON + 4 * HOUR + LATE))
    assert after.idle == found.idle
    assert len(told(cluster)) == 1


async def test_a_gang_is_not_idle_in_use_or_for_less_time_or_where_too_much_is_missing_or_old() -> None:
    _, _, leader = await running(a_town())
    now = NOON + 3 * HOUR
    for percent, hours, seconds in ((5, 3, 3600), (0, 1, 3600), (0, 3, 3420), (0, 3, 0)):
        await record(leader, now, percent=percent, hours=hours, seconds=seconds)
        assert report(await cycle.run(leader, now)).idle is None, (percent, hours, seconds)
    await record(leader, now, percent=4, seconds=3590)
    assert report(await cycle.run(leader, now)).idle is not None

    # Nothing is recorded any more, as while Prometheus is away.
    assert report(await cycle.run(leader, now + HOUR + LATE)).idle is not None
    assert report(await cycle.run(leader, now + HOUR + LATE + SECOND)).idle is None


async def test_a_leader_that_begins_comes_to_the_same_and_does_not_tell_it_again() -> None:
    cluster, ledger, leader = await running(a_town())
    await record(leader, NOON + 3 * HOUR)
    before = report(await cycle.run(leader, NOON + 3 * HOUR))

    successor = leading(cluster, ledger)
    await cycle.run(successor, NOON + 3 * HOUR + SECOND)
    await record(successor, NOON + 3 * HOUR)
    after = report(await cycle.run(successor, NOON + 3 * HOUR + 2 * SECOND))
    assert after.idle == before.idle
    assert len(told(cluster)) == 1


async def test_an_idle_gang_is_evicted_where_its_queue_says_so_and_begins_anew() -> None:
    builder = a_town(IdleAction.EVICT, requeue={"base": "10m"})
    cluster, ledger, leader = await running(builder)
    await record(leader, NOON + 3 * HOUR)
    now = NOON + 3 * HOUR + LATE

    await cycle.run(leader, now)
    assert cluster.let_in() == []
    (entry,) = [entry for entry in ledger.entries if entry.kind is Kind.EVICT]
    assert entry.reason.startswith("DevicesIdle: its devices have been in use for less than 5 %")
    assert cluster.notices[-1].reason == "DevicesIdle"

    await cycle.run(leader, now + SECOND)
    cluster.make_again(builder)
    held = report(await cycle.run(leader, now + 2 * SECOND))
    assert held.hold is not None
    assert held.hold.reason is HoldReason.DEVICES_IDLE
    assert held.evicted is not None
    assert held.evicted.reason is EvictionReason.DEVICES_IDLE
    assert held.idle is None

    again = now + timedelta(minutes=11)
    await cycle.run(leader, again)
    cluster.schedule(ledger.book)
    assert report(await cycle.run(leader, again + SECOND)).phase is Phase.RUNNING
    # What it did before does not count.
    await record(leader, NOON + 4 * HOUR, hours=4)
    assert report(await cycle.run(leader, NOON + 4 * HOUR)).idle is None


async def test_the_next_leader_ends_the_eviction_of_an_idle_gang() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, idle={"action": "Evict"})
    for at in range(2):
        builder.pod(f"p-{at}", labels={GANG: "g"}, annotations={GANG_SIZE: "2"})
    cluster, ledger, leader = await running(builder)
    assert cluster.let_in() == ["p-0", "p-1"]
    cluster.refused = "p-1"
    await record(leader, NOON + 3 * HOUR)
    await cycle.run(leader, NOON + 3 * HOUR)
    assert cluster.let_in() == ["p-1"]

    cluster.refused = ""
    await cycle.run(leading(cluster, ledger), NOON + 3 * HOUR + SECOND)  # and knows nothing of use yet
    assert cluster.let_in() == []


async def test_a_queue_whose_use_nobody_records_says_so() -> None:
    cluster, ledger = Town(a_town()), in_memory.Ledger()
    result = await cycle.run(leading(cluster, ledger, records=False), NOON)
    (condition,) = [one for one in result.queues[0].conditions if one.type == "UseRecorded"]
    assert condition.status == "False"
    assert "set usage.prometheus.url" in condition.message

    result = await cycle.run(leading(cluster, ledger), NOON)
    assert "UseRecorded" not in {one.type for one in result.queues[0].conditions}


async def _evicted(action: IdleAction, *, busy: str, gpus: int = 2) -> list[tuple[str, str, str]]:
    """Return who is evicted for an urgent gang, of an old and a young one and a large one, all but one of them idle."""
    idle = {"after": "2h", "action": str(action)}
    builder = a_cluster().node("a", gpus=8).queue("q", gpus=8, idle=idle, preemption={"withinQueue": "LowerPriority"})
    cluster = Jobs(builder)
    play = Play(cluster)
    play.leader = leading(cluster, play.ledger)
    for name, pods in (("large", 4), ("old", 2), ("young", 2)):
        cluster.submit(name, queue="q", pods=pods)
        await play.forget_changes(2)
    assert cluster.running() == {"old", "young", "large"}
    cluster.now += 3 * HOUR
    await record(play.leader, cluster.now, busy=busy)
    cluster.submit("urgent", queue="q", pods=gpus, priority=10)
    await play.forget_changes(2)
    return play.evicted


async def test_an_idle_gang_is_preempted_before_others() -> None:
    assert await _evicted(IdleAction.PREEMPT_FIRST, busy="young") == [("old", "Preempted", "urgent")]


async def test_idle_gangs_are_preempted_though_fewer_that_are_in_use_would_do() -> None:
    found = await _evicted(IdleAction.PREEMPT_FIRST, busy="large", gpus=4)
    assert sorted(found) == [("old", "Preempted", "urgent"), ("young", "Preempted", "urgent")]


async def test_where_idle_gangs_do_not_suffice_others_go_as_ever() -> None:
    found = await _evicted(IdleAction.PREEMPT_FIRST, busy="large", gpus=8)
    assert {gang for gang, _, _ in found} == {"old", "young", "large"}


async def test_an_idle_gang_is_not_preempted_first_unless_its_queue_says_so() -> None:
    assert await _evicted(IdleAction.REPORT, busy="young") == [("young", "Preempted", "urgent")]
