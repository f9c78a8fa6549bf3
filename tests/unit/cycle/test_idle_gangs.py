"""Gangs that leave their devices idle: they are told, and what their queue says becomes of them."""

from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import Any

from admission.api.device_use.idle import IdleAction, IdlePolicy
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Kind, MeasuredUsage
from admission.api.values.names import GANG, GANG_SIZE
from admission.api.values.reasons import EvictionReason, HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader
from admission.simulation import in_memory
from admission.status.idle_gangs import CHECKED_FOR, IdleGangs
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import Cluster, a_leader, report
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.test_limits import Town

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
LATE = timedelta(minutes=10)


def a_town(action: IdleAction = IdleAction.REPORT, **queue: Any) -> ClusterBuilder:
    idle = {"belowPercent": 5, "after": "2h", "action": str(action)}
    return a_cluster().node("a", gpus=4).queue("q", gpus=4, idle=idle, **queue).job("train", queue="q", pods=2)


def leading(cluster: Cluster, ledger: in_memory.Ledger, *, records: bool = True) -> Leader:
    idle = IdleGangs(records=records, fresh=HOUR + LATE)
    return a_leader(cluster, ledger, idle=idle)


def did(
    leader: Leader, start: datetime, end: datetime, *, percent: int = 0, busy: str = "", missing: int = 0
) -> Iterator[MeasuredUsage]:
    """Yield rows by which all gangs were in such use in a time. busy: a gang that was in full use.

    missing: seconds of the time that were not measured.
    """
    for placement in leader.mirror.book.placements.values():
        for holding in placement.holdings.values():
            share = 100 if busy and busy in placement.gang else percent
            seconds = (round((end - start).total_seconds()) - missing) * len(holding.devices)
            yield MeasuredUsage(
                queue=placement.queue,
                gang_uid=placement.gang_uid,
                gang=placement.gang,
                user="",
                claim_uid=holding.claim_uid,
                claim=holding.claim,
                start=start,
                end=end,
                devices=len(holding.devices),
                measured_seconds=seconds,
                used_microseconds=seconds * share * 10_000,
            )


async def record(
    leader: Leader, until: datetime, *, hours: int = 3, percent: int = 0, busy: str = "", missing: int = 0
) -> None:
    """Have a leader read that all gangs were in such use in the hours before."""

    async def rows() -> AsyncIterator[MeasuredUsage]:
        for hour in range(hours, 0, -1):
            end = until - (hour - 1) * HOUR
            for row in did(leader, end - HOUR, end, percent=percent, busy=busy, missing=missing):
                yield row

    await leader.idle.read(rows(), until, leader.mirror.book.placements, replaces=True)


async def look(leader: Leader, now: datetime, *, percent: int = 0, busy: str = "") -> None:
    """Have a leader find idle gangs, and see what they did in the ten minutes before."""
    await cycle.run(leader, now)
    rows = did(leader, now - timedelta(minutes=10), now, percent=percent, busy=busy)
    suspects = leader.idle.suspects
    if suspects is not None:
        leader.idle.confirm(suspects[1], rows, leader.mirror.book.placements, now)


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
    for percent, hours, missing in ((5, 3, 0), (0, 1, 0), (0, 3, 180), (0, 3, 3600)):
        await record(leader, now, percent=percent, hours=hours, missing=missing)
        assert report(await cycle.run(leader, now)).idle is None, (percent, hours, missing)
    await record(leader, now, percent=4, missing=10)
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
    await look(leader, now)

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


async def test_an_idle_gang_is_not_evicted_for_what_it_did_an_hour_ago() -> None:
    cluster, _, leader = await running(a_town(IdleAction.EVICT))
    await record(leader, NOON + 3 * HOUR)
    now = NOON + 4 * HOUR
    assert report(await cycle.run(leader, now)).idle is not None
    assert cluster.let_in(), "nobody has looked at it since"

    await look(leader, now, percent=5)
    assert report(await cycle.run(leader, now + SECOND)).idle is not None, "the next recorded time will say it"
    assert cluster.let_in(), "it is at work again"

    await look(leader, now, percent=4)
    await cycle.run(leader, now + CHECKED_FOR + SECOND)
    assert cluster.let_in(), "that is long ago, too"

    await look(leader, now + CHECKED_FOR, percent=4)
    await cycle.run(leader, now + 2 * CHECKED_FOR)
    assert cluster.let_in() == []


async def test_a_leader_goes_by_the_status_for_longer_than_it_reads_back() -> None:
    cluster, ledger, leader = await running(a_town())
    now = NOON + 50 * HOUR
    await record(leader, now, hours=50)
    before = report(await cycle.run(leader, now)).idle
    assert before is not None
    assert before.since == NOON

    successor = leading(cluster, ledger)
    await cycle.run(successor, now)
    await record(successor, now, hours=3)
    assert report(await cycle.run(successor, now + SECOND)).idle == before
    assert len(told(cluster)) == 1

    # By another policy it is idle since what is read back.
    cluster.change_queue("q", idle=IdlePolicy(below_percent=6))
    await cycle.run(successor, now + 2 * SECOND)
    after = report(await cycle.run(successor, now + 3 * SECOND)).idle
    assert after is not None
    assert after.since == now - 3 * HOUR


async def test_a_gang_that_was_let_in_within_a_second_is_idle_since_a_whole_one_and_told_once() -> None:
    cluster, ledger = Town(a_town()), in_memory.Ledger()
    leader = leading(cluster, ledger)
    start = NOON + timedelta(microseconds=300)
    await cycle.run(leader, start)
    cluster.schedule(ledger.book)
    await cycle.run(leader, start + SECOND)
    await record(leader, NOON + 3 * HOUR, hours=4)
    found = report(await cycle.run(leader, NOON + 4 * HOUR)).idle
    assert found is not None
    assert found.since == NOON + SECOND


async def test_the_next_leader_ends_the_eviction_of_an_idle_gang() -> None:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, idle={"action": "Evict"})
    for at in range(2):
        builder.pod(f"p-{at}", labels={GANG: "g"}, annotations={GANG_SIZE: "2"})
    cluster, ledger, leader = await running(builder)
    assert cluster.let_in() == ["p-0", "p-1"]
    cluster.refused = "p-1"
    await record(leader, NOON + 3 * HOUR)
    await look(leader, NOON + 3 * HOUR)
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


async def _evicted(action: IdleAction, *, busy: str, gpus: int = 2, at_work: str = "") -> list[tuple[str, str, str]]:
    """Return who is evicted for an urgent gang, of an old and a young one and a large one, all but one of them idle.

    at_work: one of those that is in use again.
    """
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
    await look(play.leader, cluster.now, busy=at_work or busy)
    cluster.submit("urgent", queue="q", pods=gpus, priority=10)
    await play.forget_changes(2)
    return play.evicted


async def test_an_idle_gang_is_preempted_before_others() -> None:
    assert await _evicted(IdleAction.PREEMPT_FIRST, busy="young") == [("old", "Preempted", "urgent")]


async def test_an_idle_gang_that_is_at_work_again_is_not_preempted_before_others() -> None:
    assert await _evicted(IdleAction.PREEMPT_FIRST, busy="young", at_work="old") == [("large", "Preempted", "urgent")]


async def test_idle_gangs_are_preempted_though_fewer_that_are_in_use_would_do() -> None:
    found = await _evicted(IdleAction.PREEMPT_FIRST, busy="large", gpus=4)
    assert sorted(found) == [("old", "Preempted", "urgent"), ("young", "Preempted", "urgent")]


async def test_where_idle_gangs_do_not_suffice_others_go_as_ever() -> None:
    found = await _evicted(IdleAction.PREEMPT_FIRST, busy="large", gpus=8)
    assert {gang for gang, _, _ in found} == {"old", "young", "large"}


async def test_an_idle_gang_is_not_preempted_first_unless_its_queue_says_so() -> None:
    assert await _evicted(IdleAction.REPORT, busy="young") == [("young", "Preempted", "urgent")]
