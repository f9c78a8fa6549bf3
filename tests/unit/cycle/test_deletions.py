"""Pods that are deleted at any moment: nothing stays taken, no gang runs in part, and the next one gets it all."""

from dataclasses import replace

import pytest

from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder
from tests.unit.cycle.fences import MINUTE, SECOND, Cluster, a_gang, a_leader, everything_runs, fence

MODES = {"Allocate": fence(), "Pin": Barriers()}


class Deleting(Cluster):
    """Somebody deletes pods right before the n-th write; 0: before the cycle."""

    def __init__(self, builder: ClusterBuilder, *, moment: int, pods: tuple[str, ...]) -> None:
        super().__init__(builder)
        self.moment = moment
        self.doomed = pods

    def _call(self, what: str, name: str) -> None:
        super()._call(what, name)
        if len(self.calls) == self.moment:
            self.delete()

    def delete(self) -> None:
        """Delete the pods, unless that was done before."""
        for name in self.doomed:
            if f"pod-{name}" in self._pods:
                self.remove_pod(name)

    def next_gang(self) -> None:
        """Submit another gang that needs as much."""
        more = Cluster(a_gang().job("next", queue="q", pods=3))
        self._pods |= {uid: pod for uid, pod in more._pods.items() if "next" in uid}
        self._claims |= {key: claim for key, claim in more._claims.items() if "next" in key}
        self._jobs |= {uid: job for uid, job in more._jobs.items() if "next" in uid}


WHOLE, ONE = ("train-0", "train-1", "train-2"), ("train-1",)


@pytest.mark.parametrize("moment", range(7))
@pytest.mark.parametrize("barriers", MODES.values(), ids=MODES)
async def test_a_gang_that_is_deleted_leaves_nothing_taken(barriers: Barriers, moment: int) -> None:
    """While it waits, is allocated in part or whole, has some of its gates open or all of them."""
    cluster, ledger = Deleting(a_gang(), moment=moment, pods=WHOLE), in_memory.Ledger()
    if not moment:
        cluster.delete()
    leader = a_leader(cluster, ledger, barriers=barriers)
    await cycle.run(leader, NOON)
    cluster.delete()

    for seconds in range(3):
        await cycle.run(leader, NOON + seconds * SECOND)
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    cluster.next_gang()
    await cycle.run(leader, NOON + MINUTE)
    everything_runs(cluster, ledger, 3)


@pytest.mark.parametrize("moment", range(7))
@pytest.mark.parametrize("barriers", MODES.values(), ids=MODES)
async def test_a_gang_that_loses_a_pod_before_running_is_requeued_whole(barriers: Barriers, moment: int) -> None:
    cluster, ledger = Deleting(a_gang(), moment=moment, pods=ONE), in_memory.Ledger()
    leader = a_leader(cluster, ledger, barriers=barriers)
    if not moment:
        cluster.delete()
    await cycle.run(leader, NOON)
    cluster.delete()

    for seconds in range(3):
        await cycle.run(leader, NOON + seconds * SECOND)

    assert cluster.let_in() == []
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    result = await cycle.run(leader, NOON + MINUTE)
    assert {one.hold.reason for one in result.gangs if one.hold is not None} <= {HoldReason.GANG_INCOMPLETE}
    assert result.granted == ()


async def test_a_gang_that_is_deleted_while_it_runs_gives_its_devices_back_with_its_pods() -> None:
    cluster, ledger = Deleting(a_gang(), moment=0, pods=WHOLE), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    everything_runs(cluster, ledger, 3)
    for name in WHOLE:
        pod = cluster.pod(name)
        cluster._pods[pod.meta.uid] = replace(pod, meta=replace(pod.meta, deleted=NOON + SECOND))
    await cycle.run(leader, NOON + SECOND)
    assert sum(map(len, cluster.devices().values())) == 3, "they run until they are gone"
    assert ledger.book.usage() != {}

    cluster.delete()
    await cycle.run(leader, NOON + MINUTE)

    assert cluster.devices() == {}
    assert ledger.book.usage() == {}


async def test_a_running_gang_that_loses_a_pod_keeps_running() -> None:
    """Its Job makes another one, which joins it."""
    cluster, ledger = Deleting(a_gang(), moment=0, pods=ONE), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    everything_runs(cluster, ledger, 3)
    await cycle.run(leader, NOON + SECOND)
    cluster.delete()

    await cycle.run(leader, NOON + MINUTE)

    assert sorted(pod.phase for pod in cluster.snapshot().pods.values()) == ["Running"] * 2
    assert sum(map(len, cluster.devices().values())) == 2
