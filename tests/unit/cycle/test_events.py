"""The Events of gangs: on the Gang and its workload, once per change, and on pods only what lasts."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from admission.api.muster.gangs import GangReport, Phase, RecordedHold
from admission.api.muster.status_reports import Notice
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle.hold_log import LONG, SETTLED, HoldLog
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.test_cycle import Cluster, Ledger, a_leader, run

SECOND = timedelta(seconds=1)


async def told(builder: ClusterBuilder, *after: timedelta) -> list[Notice]:
    cluster = Cluster(builder)
    leader = a_leader(cluster, Ledger())
    for seconds in (timedelta(0), *after):
        await run(leader, NOON + seconds)
    return cluster.notices


def a_queue(gpus: int = 40) -> ClusterBuilder:
    return a_cluster().node("a", gpus=40).node("b", gpus=40).queue("q", gpus=gpus)


def kinds(notices: list[Notice]) -> Counter[tuple[str, str]]:
    return Counter((notice.kind, str(notice.reason)) for notice in notices)


@pytest.mark.parametrize("pods", [1, 20])
async def test_a_change_is_told_once_whatever_the_number_of_pods(pods: int) -> None:
    builder = a_queue(gpus=pods).job("first", queue="q", pods=pods).job("then", queue="q", pods=pods)

    notices = await told(builder, SECOND, 2 * SECOND)

    once = [(kind, reason) for reason in ("Admitted", "QuotaExceeded") for kind in ("Job", "Gang")]
    assert kinds(notices) == Counter(once)
    assert {notice.gang_uid for notice in notices} == {"job-first", "job-then"}
    assert {notice.type for notice in notices} == {"Normal"}
    (job,) = [notice for notice in notices if (notice.kind, notice.name) == ("Job", "first")]
    where = "its pod goes to node a" if pods == 1 else f"{pods} pods go to node a"
    assert (job.uid, job.message.partition("; ")[2]) == ("job-first", where)


async def test_a_gang_that_never_fits_is_warned_of() -> None:
    notices = await told(a_queue(gpus=2).job("big", queue="q", pods=3))

    assert {(notice.type, notice.reason) for notice in notices} == {("Warning", HoldReason.QUOTA_EXCEEDED)}
    assert kinds(notices) == {("Job", "QuotaExceeded"): 1, ("Gang", "QuotaExceeded"): 1, ("Pod", "QuotaExceeded"): 3}
    assert notices[0].message.partition(": ")[0].endswith("can never start as it is, in queue q")


SUBJECTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a lone pod": ({}, ["Pod lone", "Gang lone"]),
    "pods of a Job that name their gang": (
        {"labels": {names.GANG: "g"}, "owner": "job-j", "job": "j"},
        ["Job j", "Gang g"],
    ),
}


@pytest.mark.parametrize(("pod", "subjects"), SUBJECTS.values(), ids=SUBJECTS)
async def test_the_events_of_a_gang_without_a_workload_are_on_what_makes_its_pods(
    pod: dict[str, Any], subjects: list[str]
) -> None:
    annotations = {names.GANG_SIZE: "1"} if pod else {}

    notices = await told(a_queue().job("j", queue="q", made=0).pod("lone", annotations=annotations, **pod))

    found = [f"{notice.kind} {notice.name}" for notice in notices]
    assert [name.rpartition("-")[0] if name.startswith("Gang lone") else name for name in found] == subjects


async def test_that_pods_are_missing_is_told_when_that_has_lasted() -> None:
    cluster = Cluster(a_queue().job("train", queue="q", pods=3, made=1))
    leader = a_leader(cluster, in_memory.Ledger())

    result = await run(leader)
    assert cluster.notices == []
    assert result.next_try == NOON + SETTLED

    await run(leader, NOON + SETTLED)
    assert kinds(cluster.notices) == Counter([("Job", "GangIncomplete"), ("Gang", "GangIncomplete")])
    await run(leader, NOON + LONG)
    assert kinds(cluster.notices)["Pod", "GangIncomplete"] == 1


def held(reason: HoldReason, message: str) -> GangReport:
    hold = Hold(reason, message)
    return GangReport(
        uid=GangUid("g"), namespace="ns", name="g", queue=QueueName("q"), size=1, phase=Phase.PENDING, hold=hold
    )


def test_what_the_leader_before_has_told_is_not_told_again() -> None:
    recorded = RecordedHold("DevicesBusy", NOON)
    log, gangs = HoldLog(), {GangUid("g"): None}

    def due(at: timedelta, reason: HoldReason) -> list[tuple[bool, bool]]:
        found = log.due([held(reason, "why")], gangs, NOON + at, recorded_hold=lambda _: recorded)
        return [(one.is_new, one.on_pods) for one in found]

    assert due(SETTLED, HoldReason.DEVICES_BUSY) == []
    assert due(SETTLED + LONG, HoldReason.DEVICES_BUSY) == [(False, True)], "its pods are told once it has lasted"
    assert due(SETTLED + LONG, HoldReason.QUOTA_EXCEEDED) == [(True, False)]

    log = HoldLog()
    assert due(SETTLED + LONG, HoldReason.DEVICES_BUSY) == [], "as they were by the leader before"
    assert due(3 * LONG, HoldReason.DEVICES_BUSY) == []


async def test_the_next_leader_tells_nothing_that_stands_in_the_status() -> None:
    cluster, ledger = Cluster(a_queue(gpus=1).job("first", queue="q").job("then", queue="q")), Ledger()
    await run(a_leader(cluster, ledger))
    told = kinds(cluster.notices)
    assert told["Gang", "QuotaExceeded"] == 1

    await run(a_leader(cluster, ledger), NOON + SETTLED)
    assert kinds(cluster.notices) == told


def test_a_hold_is_due_once_it_has_settled_and_on_pods_once_it_has_lasted() -> None:
    log, gangs = HoldLog(), {GangUid("g"): None}

    def due(at: float, *changed: GangReport) -> list[str]:
        found = log.due(changed, gangs, NOON + timedelta(seconds=at))
        return [
            f"{one.report.hold.message}{' new' * one.is_new}{' long' * one.on_pods}" for one in found if one.report.hold
        ]

    assert due(0, held(HoldReason.GANG_INCOMPLETE, "1 of 3")) == []
    assert due(4, held(HoldReason.GANG_INCOMPLETE, "2 of 3")) == due(8) == []
    assert due(9) == ["2 of 3 new"]
    assert due(10, held(HoldReason.DEVICES_BUSY, "busy")) == ["busy new"]
    assert due(99, held(HoldReason.DEVICES_BUSY, "busy with 3.5 of 8")) == ["busy with 3.5 of 8 new"]
    assert due(100, held(HoldReason.DEVICES_BUSY, "busy with 12 of 8")) == [], "numbers alone are no news"
    assert due(101, held(HoldReason.DEVICES_BUSY, "busy still")) == ["busy still new"]
    assert due(309.9, held(HoldReason.DEVICES_BUSY, "busy still")) == []
    assert due(310) == ["busy still long"]
    assert due(900, held(HoldReason.DEVICES_BUSY, "again")) == ["again new"]
    assert log.next_new is None

    assert due(901, held(HoldReason.GANG_INCOMPLETE, "1 of 3")) == []
    gangs = {}
    assert due(2000) == []
    assert log.next_new is None
