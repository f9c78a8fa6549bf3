"""Gangs placed by Count: admitted by quota alone, and settled for what kube-scheduler has given them."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import claims
from admission.api.muster.ledger_entries import Kind
from admission.api.values.names import HOSTNAME, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import CLASS, NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.unit.cycle.fences import GPUS, MINUTE, Cluster, Q, a_gang, a_leader, kinds, report


def a_counted_gang(*, quota: int = 4) -> ClusterBuilder:
    """A gang of two pods of one GPU each, in a cluster that has one."""
    return a_cluster().node("a", gpus=1).queue("q", gpus=quota, placement="Count").job("train", queue="q", pods=2)


async def test_a_counted_gang_within_quota_is_admitted_without_a_plan() -> None:
    """Whether and where both pods find a device is kube-scheduler's business."""
    cluster, ledger = Cluster(a_counted_gang()), in_memory.Ledger()

    result = await cycle.run(a_leader(cluster, ledger, barriers=Barriers()), NOON)

    assert cluster.let_in() == ["train-0", "train-1"]
    assert not any(HOSTNAME in cluster.pod(name).node_selector for name in cluster.let_in())
    assert cluster.done("allocate") == []
    assert ledger.book.usage()[Q][GPUS] == (2, 0)
    assert report(result).placement == "Count"
    assert any("kube-scheduler chooses the nodes of 2 pods" in notice.message for notice in cluster.notices)


async def test_a_counted_gang_over_its_quota_is_held() -> None:
    cluster, ledger = Cluster(a_counted_gang(quota=1)), in_memory.Ledger()

    hold = report(await cycle.run(a_leader(cluster, ledger, barriers=Barriers()), NOON)).hold

    assert hold is not None
    assert hold.reason is HoldReason.QUOTA_EXCEEDED
    assert kinds(ledger) == []


async def test_a_counted_gang_is_settled_to_its_allocated_claims_and_the_rest_stays_reserved() -> None:
    cluster, ledger = Cluster(a_counted_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger, barriers=Barriers())
    await cycle.run(leader, NOON)

    given = {"request": "gpus", "driver": CLASS, "pool": "a", "device": "gpu-0"}
    allocation = claims.decode_allocation({"devices": {"results": [given]}})
    cluster.change_claim("train-1-gpus", allocation=allocation, reserved_for=("pod-train-1",))
    await cycle.run(leader, NOON + MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE]
    assert ledger.book.usage()[Q][GPUS] == (1, 1)


async def test_a_counted_gang_that_does_not_start_in_time_is_evicted_as_any_other() -> None:
    cluster, ledger = Cluster(a_counted_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger, barriers=Barriers())
    await cycle.run(leader, NOON)

    await cycle.run(leader, NOON + 5 * MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]
    assert ledger.book.usage() == {}


async def test_a_counted_gang_that_only_fenced_devices_suit_is_held_with_that_reason() -> None:
    cluster, ledger = Cluster(a_gang(placement="Count")), in_memory.Ledger()

    hold = report(await cycle.run(a_leader(cluster, ledger), NOON)).hold

    assert hold is not None
    assert hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT
    assert hold.message == (
        "claim team/train-0-gpus: only devices of driver gpu.example.com match request gpus, and these are fenced:"
        " kube-scheduler gives them to nobody, and under placement Count Muster gives none; choose placement Auto or"
        " Allocate, or take the driver from the setting `fence`"
    )
    assert cluster.let_in() == []


OPEN: dict[str, dict[str, Any]] = {
    "another driver has one as well": {"driver": "other.example.com"},
    "the claim tolerates the fence": {"tolerations": [{"operator": "Exists"}], "adminAccess": True},
    "nothing is like it": {"selectors": [{"cel": {"expression": "false"}}]},
}


@pytest.mark.parametrize("case", OPEN.values(), ids=OPEN)
async def test_a_counted_gang_is_admitted_where_the_fence_does_not_block_its_devices(
    case: dict[str, Any],
) -> None:
    cluster, ledger = Cluster(a_gang(pods=1, placement="Count", unmeteredClasses="Allow")), in_memory.Ledger()
    manifest = claim_manifest("train-0-gpus", 1, owner="pod-train-0")
    asked = {name: value for name, value in case.items() if name != "driver"}
    manifest["spec"]["devices"]["requests"][0]["exactly"] |= asked
    cluster._claims["team/train-0-gpus"] = claims.decode(manifest)
    if "driver" in case:
        piece = next(iter(cluster._rest.slices.values()))
        other = replace(piece, driver=case["driver"], meta=replace(piece.meta, name="other", uid=Uid("other")))
        cluster._rest = replace(cluster._rest, slices={**cluster._rest.slices, "other": other})

    await cycle.run(a_leader(cluster, ledger), NOON)

    assert cluster.let_in() == ["train-0"]
