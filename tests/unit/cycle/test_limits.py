"""Gangs that may run no longer: of queues that are drained, and those that ran for as long as their queue allows."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import Kind
from admission.api.muster.queues import StopPolicy
from admission.api.values.names import GANG, GANG_SIZE, QueueName
from admission.api.values.reasons import EvictionReason, HoldReason
from admission.cycle import cycle
from admission.errors import RetryError
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import Cluster, KilledError, a_leader, kinds, report

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


class Town(Cluster):
    """A cluster whose queues can be changed, and whose controller dies when it has evicted `dies_after`."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.dies_after = ""
        self.refused = ""

    def change_queue(self, name: str, **changes: Any) -> None:
        changed = replace(self._rest.queues[QueueName(name)], **changes)
        self._rest = replace(self._rest, queues={**self._rest.queues, changed.name: changed})

    async def evict(self, pod: Pod, reason: str) -> None:
        if pod.meta.name == self.refused:
            raise RetryError("disruption budget")
        await super().evict(pod, reason)
        if pod.meta.name == self.dies_after:
            raise KilledError

    def make_again(self, builder: ClusterBuilder) -> None:
        """Let Jobs make their pods again, an hour later and with claims of their own."""
        again = builder.snapshot()
        late = {uid: replace(pod, meta=replace(pod.meta, created=NOON + HOUR)) for uid, pod in again.pods.items()}
        self._pods |= late
        self._claims |= again.claims


def a_pair(**queue: Any) -> ClusterBuilder:
    return a_cluster().node("a", gpus=4).queue("q", gpus=4, **queue).job("train", queue="q", pods=2)


def pods_of_nobody() -> ClusterBuilder:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4)
    for at in range(3):
        builder.pod(f"p-{at}", labels={GANG: "g"}, annotations={GANG_SIZE: "3"})
    return builder


async def test_a_drained_queue_evicts_what_runs_and_its_gangs_keep_their_place() -> None:
    cluster, ledger = Town(a_pair()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    first = report(await cycle.run(leader, NOON))
    cluster.schedule(ledger.book)
    await cycle.run(leader, NOON + SECOND)

    cluster.change_queue("q", stop_policy=StopPolicy.HOLD_AND_DRAIN)
    await cycle.run(leader, NOON + 2 * SECOND)

    assert cluster.let_in() == []
    (entry,) = [entry for entry in ledger.entries if entry.kind is Kind.EVICT]
    assert entry.reason == "QueueDrained: queue q is stopped by HoldAndDrain"
    assert cluster.notices[-1].reason == "QueueDrained"
    assert cluster.gangs[first.key].phase is Phase.EVICTED

    await cycle.run(leader, NOON + 3 * SECOND)
    cluster.make_again(a_pair())
    after = report(await cycle.run(leader, NOON + 4 * SECOND))
    assert after.hold is not None
    assert after.hold.reason is HoldReason.QUEUE_STOPPED
    assert after.evicted is not None
    assert after.evicted.reason is EvictionReason.QUEUE_DRAINED
    assert after.queued_since == first.queued_since, "its pods are an hour younger, its place is not"
    assert not ledger.book.placements
    assert kinds(ledger).count(Kind.EVICT) == 1

    cluster.change_queue("q", stop_policy=StopPolicy.NONE)
    await cycle.run(leader, NOON + 5 * SECOND)
    cluster.schedule(ledger.book)
    again = report(await cycle.run(leader, NOON + 6 * SECOND))
    assert (again.phase, again.evicted) == (Phase.RUNNING, None)


async def test_a_queue_above_drains_those_below() -> None:
    builder = a_cluster().node("a", gpus=4).queue("top", gpus=4).queue("q", gpus=0, parent="top")
    cluster, ledger = Town(builder.job("train", queue="q", pods=2)), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    assert len(cluster.let_in()) == 2

    cluster.change_queue("top", stop_policy=StopPolicy.HOLD_AND_DRAIN)
    await cycle.run(leader, NOON + SECOND)

    assert cluster.let_in() == []


async def test_a_running_gang_keeps_running_when_its_queue_is_stopped_with_hold() -> None:
    cluster, ledger = Town(a_pair()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)

    cluster.change_queue("q", stop_policy=StopPolicy.HOLD)
    await cycle.run(leader, NOON + SECOND)

    assert len(cluster.let_in()) == 2


async def test_a_gang_that_runs_for_too_long_is_evicted_in_time_and_backs_off() -> None:
    cluster, ledger = Town(a_pair(maxRuntime="1h", requeue={"base": "10m"})), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.schedule(ledger.book)
    soon = await cycle.run(leader, NOON + HOUR - SECOND)
    assert len(cluster.let_in()) == 2
    assert soon.next_try == NOON + HOUR

    await cycle.run(leader, NOON + HOUR)
    assert cluster.let_in() == []
    await cycle.run(leader, NOON + HOUR)
    cluster.make_again(a_pair())

    after = report(await cycle.run(leader, NOON + HOUR + SECOND))
    assert after.hold is not None
    assert after.hold.reason is HoldReason.RUNTIME_EXCEEDED
    assert after.hold.details["nextTry"] == "2026-11-21T13:10:00Z"
    assert after.evictions == 1
    await cycle.run(leader, NOON + HOUR + timedelta(minutes=10))
    assert len(cluster.let_in()) == 2


async def test_a_recreated_gang_reports_why_it_backs_off() -> None:
    cluster, ledger = Town(a_pair(maxRuntime="1h", requeue={"base": "10m"})), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.schedule(ledger.book)
    await cycle.run(leader, NOON + HOUR)
    cluster.make_again(a_pair())

    after = report(await cycle.run(a_leader(cluster, ledger, epoch=2), NOON + HOUR + SECOND))

    assert after.hold is not None
    assert after.hold.reason is HoldReason.RUNTIME_EXCEEDED


@pytest.mark.parametrize("is_new", [True, False], ids=["the next leader", "the same leader"])
async def test_the_running_pods_of_a_half_evicted_gang_are_evicted(is_new: bool) -> None:
    """Its queue takes gangs again by then: what was begun is ended all the same."""
    cluster, ledger = Town(pods_of_nobody()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.schedule(ledger.book)
    await cycle.run(leader, NOON + SECOND)
    cluster.change_queue("q", stop_policy=StopPolicy.HOLD_AND_DRAIN)
    if is_new:
        cluster.refused, cluster.dies_after = "p-1", "p-2"
        with pytest.raises(ExceptionGroup):
            await cycle.run(leader, NOON + 2 * SECOND)
        leader = a_leader(cluster, ledger, epoch=2)
    else:
        cluster.refused = "p-1"
        await cycle.run(leader, NOON + 2 * SECOND)
    assert cluster.let_in() == ["p-1"]

    cluster.change_queue("q", stop_policy=StopPolicy.NONE)
    cluster.refused = cluster.dies_after = ""
    await cycle.run(leader, NOON + 3 * SECOND)

    assert cluster.let_in() == []
    assert kinds(ledger).count(Kind.EVICT) == 1
    (entry,) = [entry for entry in ledger.entries if entry.kind is Kind.EVICT]
    assert entry.reason.startswith("QueueDrained: ")
