"""Gangs placed by Count: admitted by quota alone, and settled for what kube-scheduler has given them."""

from admission.api import claims
from admission.api.entries import Kind
from admission.api.names import HOSTNAME
from admission.api.reasons import HoldReason
from admission.flow import cycle, memory
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster
from tests.unit.flow.fences import GPUS, MINUTE, Cluster, Q, a_desk, kinds, report


def a_counted_gang(*, quota: int = 4) -> ClusterBuilder:
    """A gang of two pods of one GPU each, in a cluster that has one."""
    return a_cluster().node("a", gpus=1).queue("q", gpus=quota, placement="Count").job("train", queue="q", pods=2)


async def test_a_gang_inside_its_quota_is_let_in_wherever_there_is_room_for_it() -> None:
    """Whether and where both pods find a device is kube-scheduler's business."""
    cluster, ledger = Cluster(a_counted_gang()), memory.Ledger()

    result = await cycle.run(a_desk(cluster, ledger), NOON)

    assert cluster.let_in() == ["train-0", "train-1"]
    assert not any(HOSTNAME in cluster.pod(name).node_selector for name in cluster.let_in())
    assert cluster.done("allocate") == []
    assert ledger.book.usage()[Q][GPUS] == (2, 0)
    assert report(result).placement == "Count"
    assert any("kube-scheduler chooses this pod's node" in notice.message for notice in cluster.notices)


async def test_a_gang_over_its_quota_waits() -> None:
    cluster, ledger = Cluster(a_counted_gang(quota=1)), memory.Ledger()

    hold = report(await cycle.run(a_desk(cluster, ledger), NOON)).hold

    assert hold is not None
    assert hold.reason is HoldReason.QUOTA_EXCEEDED
    assert kinds(ledger) == []


async def test_what_kube_scheduler_has_given_is_settled_and_the_rest_stays_reserved() -> None:
    cluster, ledger = Cluster(a_counted_gang()), memory.Ledger()
    desk = a_desk(cluster, ledger)
    await cycle.run(desk, NOON)

    given = {"request": "gpus", "driver": CLASS, "pool": "a", "device": "gpu-0"}
    allocation = claims.decode_allocation({"devices": {"results": [given]}})
    cluster.change_claim("train-1-gpus", allocation=allocation, reserved_for=("pod-train-1",))
    await cycle.run(desk, NOON + MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE]
    assert ledger.book.usage()[Q][GPUS] == (1, 1)


async def test_a_counted_gang_that_does_not_start_in_time_is_evicted_as_any_other() -> None:
    cluster, ledger = Cluster(a_counted_gang()), memory.Ledger()
    desk = a_desk(cluster, ledger)
    await cycle.run(desk, NOON)

    await cycle.run(desk, NOON + 5 * MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]
    assert ledger.book.usage() == {}
