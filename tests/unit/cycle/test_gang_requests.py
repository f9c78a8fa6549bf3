"""What users ask of a gang: that it is taken back, tried again at once, or ranked anew while it waits."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from admission.api.muster import gangs
from admission.api.muster.gang_requests import Action, AnsweredRequest, GangRequest
from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import Kind
from admission.api.values.names import GangUid, QueueName
from admission.api.values.reasons import EvictionReason, HoldReason
from admission.cycle import cycle
from admission.kube.writers import status_encoding
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import a_leader, report
from tests.unit.cycle.test_limits import SECOND, Town

MINUTE = timedelta(minutes=1)
CLASSES = [{"name": "low", "value": 1}, {"name": "urgent", "value": 100}]


class Asking(Town):
    """A leader at work in a cluster where users ask. late: whether the leader sees statuses of Gangs later."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.ledger = in_memory.Ledger()
        self.leader = a_leader(self, self.ledger)
        self.epoch = 1

    def ask(self, action: Action, name: str = "train", *, number: int = 1, **fields: str) -> None:
        request = GangRequest(id=f"r-{number}", action=action, by="ann", **fields)
        key = next(key for key, gang in self._gangs.items() if gang.workload and gang.workload.name == name)
        self._gangs[key] = replace(self._gangs[key], request=request)

    async def see(self, at: datetime, name: str = "train") -> GangReport:
        return report(await cycle.run(self.leader, at), name)

    def succeed(self) -> None:
        self.epoch += 1
        self.leader = a_leader(self, self.ledger, epoch=self.epoch)

    def told(self) -> list[str]:
        return [f"{notice.reason}: {notice.message}" for notice in self.notices if notice.kind == "Gang"]


def a_pair() -> ClusterBuilder:
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=2, requeue={"base": "10m"})
    return builder.job("train", queue="q", pods=2)


async def running() -> Asking:
    cluster = Asking(a_pair())
    await cluster.see(NOON)
    cluster.schedule(cluster.ledger.book)
    await cluster.see(NOON + SECOND)
    return cluster


async def evicted() -> Asking:
    """The gang was taken back by request, and its pods are made again."""
    cluster = await running()
    cluster.ask(Action.EVICT, reason="node a is repaired")
    await cycle.run(cluster.leader, NOON + MINUTE)
    await cycle.run(cluster.leader, NOON + MINUTE + SECOND)
    cluster.make_again(a_pair())
    return cluster


async def test_a_gang_is_taken_back_whole_by_request_and_waits_again_with_a_back_off() -> None:
    cluster = await evicted()
    assert cluster.let_in() == []

    (entry,) = [entry for entry in cluster.ledger.entries if entry.kind is Kind.EVICT]
    assert entry.reason == "EvictionRequested: ann asked for it: node a is repaired"
    assert "EvictionRequested: gang team/train-" in cluster.told()[-1]
    assert cluster.told()[-1].endswith("was evicted as a whole: ann asked for it: node a is repaired")

    waits = await cluster.see(NOON + 2 * MINUTE)
    assert waits.hold is not None
    assert waits.hold.reason is HoldReason.EVICTION_REQUESTED
    assert waits.hold.details == {"evictions": 1, "nextTry": "2026-11-21T12:11:00Z"}
    assert waits.evicted is not None
    assert (waits.evicted.reason, waits.evicted.message) == (
        EvictionReason.EVICTION_REQUESTED,
        "ann asked for it: node a is repaired",
    )
    assert waits.answered == AnsweredRequest(
        id="r-1",
        action=Action.EVICT,
        by="ann",
        reason="node a is repaired",
        outcome="it is taken back, and tried again after a back-off",
        at=NOON + MINUTE,
    )

    await cycle.run(cluster.leader, NOON + 12 * MINUTE)
    assert len(cluster.let_in()) == 2, "a request is answered once"


@pytest.mark.parametrize("is_new", [False, True], ids=["the same leader", "the next leader"])
async def test_a_request_that_is_answered_is_not_answered_again(*, is_new: bool) -> None:
    cluster = await evicted()
    if is_new:
        cluster.succeed()
        waits = await cluster.see(NOON + 2 * MINUTE)
        assert waits.hold is not None
        assert waits.hold.reason is HoldReason.EVICTION_REQUESTED

    for minutes in (12, 13):
        await cycle.run(cluster.leader, NOON + minutes * MINUTE)

    assert len(cluster.let_in()) == 2
    assert len([entry for entry in cluster.ledger.entries if entry.kind is Kind.EVICT]) == 1


@pytest.mark.parametrize("is_new", [False, True], ids=["the same leader", "the next leader"])
async def test_a_gang_that_backs_off_is_tried_at_once_by_request(*, is_new: bool) -> None:
    cluster = await evicted()
    await cluster.see(NOON + 2 * MINUTE)
    if is_new:
        cluster.succeed()
    cluster.ask(Action.REQUEUE, number=2)

    granted = await cluster.see(NOON + 3 * MINUTE)

    assert len(cluster.let_in()) == 2
    assert (granted.evictions, granted.next_try) == (0, None)
    assert granted.answered is not None
    assert granted.answered.outcome == "its back-off is forgotten, and it is tried again now"
    assert any(
        told.startswith("RequestAnswered: Requeue of gang team/train-") and ": ann asked for it; its back-off" in told
        for told in cluster.told()
    )


async def test_a_status_that_is_seen_late_brings_no_back_off_back() -> None:
    cluster = await evicted()
    await cluster.see(NOON + 2 * MINUTE)
    cluster.ask(Action.REQUEUE, number=2)
    old = dict(cluster._gangs)
    await cluster.see(NOON + 3 * MINUTE)
    for pod in cluster.let_in():
        cluster.remove_pod(pod)
    await cycle.run(cluster.leader, NOON + 4 * MINUTE)
    cluster._gangs = old
    cluster.make_again(a_pair())

    assert (await cluster.see(NOON + 5 * MINUTE)).evictions == 0


def two_that_wait() -> ClusterBuilder:
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=1, priorityClasses=CLASSES)
    return builder.job("first", queue="q").job("second", queue="q").job("third", queue="q")


async def test_a_gang_that_waits_is_ranked_anew_by_request_and_keeps_that() -> None:
    cluster = Asking(two_that_wait())
    await cluster.see(NOON, "third")
    assert (await cluster.see(NOON + SECOND, "third")).position == 2
    cluster.ask(Action.PRIORITIZE, "third", priority_class="urgent")
    await cluster.see(NOON + MINUTE, "third")

    ranked = await cluster.see(NOON + MINUTE + SECOND, "third")

    assert (ranked.position, ranked.priority) == (1, 100)
    assert ranked.answered is not None
    assert ranked.answered.outcome == "it waits with priority class urgent"

    cluster.ask(Action.REQUEUE, "third", number=2)
    cluster.succeed()
    await cluster.see(NOON + 2 * MINUTE, "third")
    assert (await cluster.see(NOON + 2 * MINUTE + SECOND, "third")).priority == 100


def test_an_answer_is_read_as_it_was_written() -> None:
    answered = AnsweredRequest(
        id="r-1", action=Action.PRIORITIZE, by="ann", reason="why", outcome="so", at=NOON, priority_class="urgent"
    )
    reported = GangReport(
        uid=GangUid("u"),
        namespace="team",
        name="g",
        queue=QueueName("q"),
        size=1,
        phase=Phase.PENDING,
        answered=answered,
    )

    status = status_encoding.gang_status(reported, {}, now=NOON)

    spec = {"queue": "q", "size": 1}
    assert gangs.decode({"metadata": {"name": "g"}, "spec": spec, "status": status}).answered == answered


REFUSED = {
    "a gang that waits holds nothing": (
        ("second", Action.EVICT, ""),
        "nothing is done: it waits, and holds nothing",
    ),
    "a gang that was let in has no back-off": (("first", Action.REQUEUE, ""), "nothing is done: it does not wait"),
    "none escapes preemption": (
        ("first", Action.PRIORITIZE, "urgent"),
        "nothing is done: it keeps the priority that it started by",
    ),
    "a class that the queue does not have": (
        ("second", Action.PRIORITIZE, "urgnt"),
        "nothing is done: queue q has no priority class urgnt; it has urgent, low",
    ),
}


@pytest.mark.parametrize(("asked", "outcome"), REFUSED.values(), ids=REFUSED)
async def test_of_a_request_that_changes_nothing_it_is_said_why(asked: tuple[str, Action, str], outcome: str) -> None:
    cluster, (name, action, priority_class) = Asking(two_that_wait()), asked
    await cluster.see(NOON, name)
    before = await cluster.see(NOON + SECOND, name)
    cluster.ask(action, name, priority_class=priority_class)

    after = await cluster.see(NOON + 2 * SECOND, name)

    assert after.answered is not None
    assert after.answered.outcome == outcome
    assert (after.priority, after.phase, after.position) == (before.priority, before.phase, before.position)
    assert any(outcome in told and told.startswith("RequestAnswered: ") for told in cluster.told())
