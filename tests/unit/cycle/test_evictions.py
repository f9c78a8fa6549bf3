"""Evictions that succeed for some pods of a gang only: what is left of it is not to run without the others.

The gangs are of pods that no Job makes, so that each is evicted on its own and nobody makes it again.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Kind
from admission.api.values.names import GANG, GANG_SIZE, Uid
from admission.cycle import cycle
from admission.errors import DeposedError, RetryError
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster, running
from tests.unit.cycle.fences import Cluster, KilledError, a_gang, a_leader, kinds

SECOND = timedelta(seconds=1)
LATE = NOON + timedelta(minutes=2)


class Budgeted(Cluster):
    """A disruption budget refuses to have some pods evicted; the controller dies when it has evicted `dies_after`."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.refused: set[str] = set()
        self.dies_after = ""

    async def evict(self, pod: Pod, reason: str) -> None:
        if pod.meta.name in self.refused:
            raise RetryError("disruption budget")
        await super().evict(pod, reason)
        if pod.meta.name == self.dies_after:
            raise KilledError

    def starts(self, *names: str) -> None:
        for name in names:
            self._pods[Uid(f"pod-{name}")] = running(self.pod(name), "a")


def three(**queue: Any) -> ClusterBuilder:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, startTimeout="1m", **queue)
    for at in range(3):
        builder.pod(f"p-{at}", labels={GANG: "g"}, annotations={GANG_SIZE: "3"})
    return builder


async def test_a_gang_that_lost_a_pod_is_requeued_though_its_first_eviction_was_refused() -> None:
    cluster, ledger = Budgeted(three()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.remove_pod("p-0")
    cluster.refused = {"p-1", "p-2"}
    await cycle.run(leader, NOON + SECOND)
    assert cluster.let_in() == ["p-1", "p-2"]

    cluster.refused = set()
    await cycle.run(leader, NOON + 2 * SECOND)

    assert cluster.let_in() == []
    assert kinds(ledger).count(Kind.EVICT) == 1
    await cycle.run(leader, NOON + 3 * SECOND)
    assert not ledger.book.placements


@pytest.mark.parametrize("starts", [(), ("p-2",)], ids=["the late pod stays late", "the late pod runs after all"])
async def test_pods_kept_by_a_disruption_budget_do_not_run_on_without_their_gang(starts: tuple[str, ...]) -> None:
    cluster, ledger = Budgeted(three()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.starts("p-0", "p-1")
    cluster.refused = {"p-1"}
    result = await cycle.run(leader, LATE)
    assert cluster.let_in() == ["p-1", "p-2"], "the pod that is late tells every leader that the gang has not started"
    cluster.starts(*starts)
    await cycle.run(leader, LATE + SECOND)

    cluster.refused = set()
    result = await cycle.run(leader, LATE + 2 * SECOND)

    assert cluster.let_in() == []
    assert kinds(ledger).count(Kind.EVICT) == 1
    assert not result.granted


async def test_the_next_leader_goes_on_with_an_eviction_that_was_begun() -> None:
    cluster, ledger = Budgeted(three()), in_memory.Ledger()
    await cycle.run(a_leader(cluster, ledger), NOON)
    cluster.starts("p-0", "p-1")
    cluster.refused, cluster.dies_after = {"p-1"}, "p-0"
    with pytest.raises(ExceptionGroup):
        await cycle.run(a_leader(cluster, ledger), LATE)
    assert cluster.let_in() == ["p-1", "p-2"]

    cluster.refused, cluster.dies_after = set(), ""
    await cycle.run(a_leader(cluster, ledger, epoch=2), LATE + SECOND)

    assert cluster.let_in() == []


async def test_a_half_evicted_gang_that_was_granted_again_is_not_evicted_further() -> None:
    cluster, ledger = Budgeted(three(requeue={"base": "1s"})), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.starts("p-0", "p-1")
    cluster.refused = {"p-1"}
    await cycle.run(leader, LATE)
    for name in ("p-1", "p-2"):
        cluster.remove_pod(name)
    await cycle.run(leader, LATE + SECOND)

    again = three().snapshot()
    cluster._pods |= {uid: replace(pod, meta=replace(pod.meta, created=LATE)) for uid, pod in again.pods.items()}
    cluster._claims |= again.claims
    for at in range(5, 9):
        await cycle.run(leader, LATE + at * SECOND)

    assert cluster.let_in() == ["p-0", "p-1", "p-2"]


class Overtaken(Budgeted):
    """A successor fences this leader out between the writing of a back-off and the eviction."""

    def __init__(self, builder: ClusterBuilder, ledger: in_memory.Ledger) -> None:
        super().__init__(builder)
        self.ledger = ledger
        self.overtaken = False

    async def flush(self) -> None:
        await super().flush()
        if self.overtaken:
            await self.ledger.fence(2)


async def test_a_deposed_leader_evicts_no_gang() -> None:
    """A pod that is late for this leader may have started under its successor, and nothing refuses an eviction."""
    ledger = in_memory.Ledger()
    cluster = Overtaken(three(), ledger)
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.starts("p-0", "p-1")
    cluster.overtaken = True

    with pytest.raises(DeposedError):
        await cycle.run(leader, LATE)

    assert cluster.let_in() == ["p-0", "p-1", "p-2"]


async def test_a_leader_that_was_overtaken_takes_no_devices_from_claims() -> None:
    """What nobody waits for in its book may be granted in its successor's."""
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    given = {claim.meta.uid: claim.allocation for claim in cluster.snapshot().claims.values()}
    assert all(given.values())
    leader.mirror._book = replace(leader.mirror.book, placements={})
    await ledger.fence(2)

    with pytest.raises(DeposedError):
        await cycle.run(leader, NOON + SECOND)

    assert {claim.meta.uid: claim.allocation for claim in cluster.snapshot().claims.values()} == given
