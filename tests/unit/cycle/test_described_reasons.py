"""Every reason as `kubectl describe` of a workload, its Gang and its pods tells it.

All reasons of each enum are walked through, so a new one is told from the start, of the right type, on the right
objects, once.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from admission.api.device_use.idle import IdleDevices, IdlePolicy
from admission.api.device_use.memory import MemoryExceeded
from admission.api.muster.gang_requests import Action, GangRequest
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.queues import PlacementMode
from admission.api.muster.status_reports import EventType, Notice
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason, EventReason, EvictionReason, Hold, HoldReason
from admission.cycle import events
from admission.cycle.hold_log import LONG, SETTLED, DueHold, HoldLog
from admission.dra.requests.gang_request import Plan
from admission.errors import RetryError
from admission.kube.writers import status_encoding
from admission.lifecycle.eviction import Eviction
from admission.lifecycle.gang_requests import Answer
from admission.scheduling.checks.chain import Grant
from admission.scheduling.placement.mode import Chosen
from admission.simulation import in_memory
from admission.workloads import gangs
from admission.workloads.gangs import Group
from tests.builders import NOON, a_cluster

PODS = 9
WHY = "this is what has to change"

NEVER = {HoldReason.NO_FEASIBLE_PLACEMENT}
"""Holds of which waiting does not help, whatever their details say. QuotaExceeded is one if it is over the potential:
`tests/unit/status/test_gang.py`."""

ELSEWHERE = {
    EventReason.DEVICES_PROTECTED: "Queue: tests/unit/cycle/test_protection_status.py",
    EventReason.PROTECTION_LOST: "Queue: tests/unit/cycle/test_protection_status.py",
    EventReason.FINALIZER_KEPT: "Queue: tests/unit/cycle/test_deleted_queues.py",
    EventReason.HEAD_SIGNED: "ConfigMap: tests/unit/controller",
    EventReason.HEAD_NOT_PASSED: "ConfigMap: tests/unit/controller",
    EventReason.FOREIGN_ENTRIES: "ConfigMap: tests/unit/controller",
    EventReason.EPOCH_RAISED: "ConfigMap: tests/unit/controller",
}
"""Reasons of Events that are about no gang, and where they are tested."""


@pytest.fixture
def cluster() -> in_memory.Cluster:
    return in_memory.Cluster(a_cluster().queue("q", gpus=1).job("train", queue="q", pods=PODS).snapshot())


@pytest.fixture
def group() -> Group:
    (found,) = gangs.groups(a_cluster().queue("q", gpus=1).job("train", queue="q", pods=PODS).snapshot(), {})
    return found


def held(group: Group, reason: HoldReason | DenyReason) -> GangReport:
    hold = Hold(reason, WHY) if isinstance(reason, HoldReason) else Denial(reason, WHY)
    return GangReport(
        uid=group.uid,
        namespace=group.identity.namespace,
        name=group.identity.name,
        queue=QueueName("q"),
        size=PODS,
        pods=PODS,
        phase=Phase.PENDING,
        hold=hold,
    )


def using(group: Group) -> GangReport:
    """Return the status of a gang whose devices are idle, with more memory in use than it asked for."""
    memory = MemoryExceeded(claim="c", sharers=1, asked=2**30, peak=2**31, start=NOON, end=NOON)
    idle = IdleDevices(since=NOON, queue=QueueName("q"), policy=IdlePolicy())
    return replace(held(group, HoldReason.DEVICES_BUSY), phase=Phase.RUNNING, hold=None, idle=idle, memory=memory)


def kinds(notices: list[Notice]) -> Counter[str]:
    return Counter(notice.kind for notice in notices)


@pytest.mark.parametrize("reason", [*HoldReason, *DenyReason])
async def test_a_hold_is_told_once_on_the_workload_and_the_gang_and_on_pods_once_it_lasts(
    cluster: in_memory.Cluster, group: Group, reason: HoldReason | DenyReason
) -> None:
    log, report, by_uid = HoldLog(), held(group, reason), {group.uid: group}
    never = isinstance(reason, DenyReason) or reason in NEVER

    async def told(after: timedelta) -> list[Notice]:
        due: list[DueHold] = log.due([report], by_uid, NOON + after)
        before = len(cluster.notices)
        await events.gangs_held(cluster, by_uid, due)
        return cluster.notices[before:]

    first = [*await told(timedelta(0)), *await told(SETTLED)]
    later = [*await told(LONG), *await told(2 * LONG)]

    on_pods = {"Pod": events.MOST}
    assert kinds(first) == {"Job": 1, "Gang": 1, **(on_pods if never else {})}
    assert kinds(later) == ({} if never else on_pods), "a Job and its Gang are told once"
    assert {notice.type for notice in (*first, *later)} == {EventType.WARNING if never else EventType.NORMAL}
    what = "can never start as it is, in queue q" if never else "waits in queue q"
    assert {(notice.reason, notice.message) for notice in (*first, *later)} == {
        (reason, f"gang {report.key} {what}: {WHY}")
    }


@pytest.mark.parametrize("reason", [*HoldReason, *DenyReason])
def test_the_conditions_of_a_gang_say_its_hold_once_and_its_column_in_one_word(
    group: Group, reason: HoldReason | DenyReason
) -> None:
    status = status_encoding.gang_status(held(group, reason), {}, now=NOON)

    by_type = {one["type"]: one for one in status["conditions"]}
    never = reason in NEVER
    assert [one["message"] for one in status["conditions"]].count(WHY) == 1
    speaking = by_type["NeverFits" if never else "Admitted"]
    assert (speaking["reason"], speaking["message"]) == (reason, WHY)
    assert by_type["Admitted"]["status"] == "False"
    assert ("NeverFits" in by_type) == never
    assert status["summary"]["reason"] == ("NeverFits" if never else reason)
    assert status["phase"] == "Pending"


@pytest.mark.parametrize("phase", Phase)
def test_no_condition_of_a_gang_says_what_another_one_says(group: Group, phase: Phase) -> None:
    report = replace(held(group, HoldReason.DEVICES_BUSY), phase=phase, hold=None)

    told = {one["type"]: one["message"] for one in status_encoding.gang_status(report, {}, now=NOON)["conditions"]}

    assert len({*told.values()}) == len(told), told


@pytest.mark.parametrize("cause", [*EvictionReason, None])
async def test_an_eviction_warns_on_the_workload_and_the_gang(
    cluster: in_memory.Cluster, group: Group, cause: EvictionReason | None
) -> None:
    eviction = Eviction(group=group, pods=group.pods, reason=WHY, timed_out=False, cause=cause)

    await events.gang_evicted(cluster, eviction)

    assert kinds(cluster.notices) == {"Job": 1, "Gang": 1}
    told = (EventType.WARNING, cause or EventReason.EVICTED, f"gang {group.key} was evicted as a whole: {WHY}")
    assert {(one.type, one.reason, one.message) for one in cluster.notices} == {told}


Emit = Callable[[in_memory.Cluster, Group], Awaitable[None]]


def _grant(*, apart: str = "") -> Grant:
    return Grant(plan=Plan(pods=(), apart=apart), claims={}, chosen=Chosen(mode=PlacementMode.PIN, reason=""))


def _answer(*, is_granted: bool) -> Answer:
    request = GangRequest(id="1", action=Action.REQUEUE, by="ada")
    return Answer(request=request, outcome=WHY, is_granted=is_granted)


EMITTED: dict[tuple[EventReason, EventType, str], Emit] = {
    (EventReason.ADMITTED, EventType.NORMAL, ""): lambda cluster, group: events.gang_admitted(cluster, group, _grant()),
    (EventReason.NOT_TOGETHER, EventType.NORMAL, WHY): lambda cluster, group: events.gang_admitted(
        cluster, group, _grant(apart=WHY)
    ),
    (EventReason.FELL_BACK, EventType.WARNING, WHY): lambda cluster, group: events.placed_differently(
        cluster, [group], {group.uid: Chosen(mode=PlacementMode.PIN, reason=WHY, fell_back=True)}
    ),
    (EventReason.EVICTED, EventType.WARNING, WHY): lambda cluster, group: events.gang_evicted(
        cluster, Eviction(group=group, pods=group.pods, reason=WHY, timed_out=True)
    ),
    (EventReason.REPLANNED, EventType.NORMAL, WHY): lambda cluster, group: events.gang_returned(cluster, group, WHY),
    (EventReason.REQUEST_ANSWERED, EventType.NORMAL, WHY): lambda cluster, group: events.request_answered(
        cluster, group, _answer(is_granted=True)
    ),
    (EventReason.REQUEST_ANSWERED, EventType.WARNING, WHY): lambda cluster, group: events.request_answered(
        cluster, group, _answer(is_granted=False)
    ),
    (EventReason.GANG_IDLE, EventType.WARNING, "and nothing follows from it"): lambda cluster, group: events.device_use(
        cluster, {group.uid: group}, [using(group)]
    ),
    (EventReason.MEMORY_EXCEEDED, EventType.WARNING, "asked for 1024 MiB of it"): lambda cluster, group: (
        events.device_use(cluster, {group.uid: group}, [using(group)])
    ),
    (EventReason.WRITE_FAILED, EventType.WARNING, "it is tried again"): lambda cluster, group: events.pod_failed(
        cluster, group.pods[0], RetryError(WHY)
    ),
}
"""By reason, type and what the message ends with: how an Event about a gang is emitted."""


@pytest.mark.parametrize(("told", "emit"), EMITTED.items(), ids=lambda one: one[0] if isinstance(one, tuple) else "")
async def test_what_else_happens_to_a_gang_is_told_once_on_each_object(
    cluster: in_memory.Cluster, group: Group, told: tuple[EventReason, EventType, str], emit: Emit
) -> None:
    reason, kind, ending = told

    await emit(cluster, group)

    found = [notice for notice in cluster.notices if notice.reason is reason]
    assert kinds(found) == ({"Pod": 1} if reason is EventReason.WRITE_FAILED else {"Job": 1, "Gang": 1})
    assert {notice.type for notice in found} == {kind}
    assert all(notice.message.endswith(ending) for notice in found)
    assert len({notice.message for notice in found}) == 1


def test_of_every_reason_of_events_it_is_known_what_it_is_told_on() -> None:
    about_gangs = {reason for reason, _, _ in EMITTED}

    assert about_gangs | ELSEWHERE.keys() == set(EventReason)
    assert not about_gangs & ELSEWHERE.keys()
