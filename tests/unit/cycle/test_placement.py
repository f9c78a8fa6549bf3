"""Gangs whose devices Muster gives itself: all of them before the first gate, or none."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from admission import default_ports
from admission.api.kubernetes import claims
from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster.gangs import Phase
from admission.api.muster.ledger_entries import BudgetShare, Kind, Posted
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.errors import ConflictError, ForbiddenError, GoneError, RetryError
from admission.scheduling.placement.protection import Barriers
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster, claim_manifest
from tests.unit.cycle.fences import (
    GPUS,
    MINUTE,
    SECOND,
    Cluster,
    Q,
    a_gang,
    a_leader,
    cycles,
    everything_runs,
    fence,
    kinds,
    report,
)


async def test_every_claim_has_its_devices_before_the_first_gate_opens() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()

    result = await cycle.run(a_leader(cluster, ledger), NOON)

    assert [call.split()[0] for call in cluster.calls] == ["allocate"] * 3 + ["open"] * 3
    planned = {claim.claim.removeprefix("team/"): claim for pod in report(result).plan for claim in pod.claims}
    assert cluster.devices() == {
        name: [f"{one.device.pool}/{one.device.device}" for one in claim.devices] for name, claim in planned.items()
    }
    assert report(result).placement == "Allocate"
    everything_runs(cluster, ledger, 3)


async def test_an_allocation_is_complete_as_kube_scheduler_writes_it() -> None:
    class Noting(Cluster):
        async def allocate(self, claim: Claim, allocation: Json) -> Claim:
            self.written = allocation
            return await super().allocate(claim, allocation)

    cluster = Noting(a_gang(pods=1))
    await cycle.run(a_leader(cluster, in_memory.Ledger()), NOON)

    (result,) = cluster.written["devices"]["results"]
    node = result["pool"]
    assert cluster.written["allocationTimestamp"] == "2026-11-21T12:00:00Z"
    assert cluster.written["nodeSelector"] == {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    }
    assert (result["request"], result["driver"]) == ("gpus", "gpu.example.com")


async def test_claims_that_muster_allocates_are_settled_and_released() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)

    await cycle.run(leader, NOON)
    await cycle.run(leader, NOON + MINUTE)
    assert ledger.book.usage()[Q][GPUS] == (0, 3)
    started = cluster.schedule(ledger.book)
    cluster.finish(started)
    await cycle.run(leader, NOON + 2 * MINUTE)

    assert kinds(ledger) == [Kind.RESERVE, Kind.SETTLE, Kind.RELEASE]
    assert ledger.book.usage() == {}


async def test_without_protection_kube_scheduler_picks_the_devices() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()

    result = await cycle.run(a_leader(cluster, ledger, barriers=fence(None)), NOON)

    assert cluster.done("allocate") == []
    assert report(result).hold is not None, "the fence is about to stand"


async def test_a_changed_claim_requeues_its_gang_whole_and_the_gang_is_placed_again() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = ConflictError("it has changed")
    leader = a_leader(cluster, ledger)

    result = await cycle.run(leader, NOON)

    assert cluster.done("open") == []
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    hold = report(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.PLACEMENT_FAILED
    assert "it has changed" in hold.message
    assert kinds(ledger) == [Kind.RESERVE, Kind.EVICT]

    cluster.fails.clear()
    await cycle.run(leader, NOON + SECOND)
    everything_runs(cluster, ledger, 3)
    assert report(result).evictions == 0, "it was nobody's fault"


async def test_a_gang_whose_allocation_the_api_server_refuses_is_tried_again_after_a_while() -> None:
    cluster, ledger = Cluster(a_gang(requeue={"base": "1m"})), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = ForbiddenError("grant verb patch on resource resourceclaims/binding")
    leader = a_leader(cluster, ledger)

    await cycle.run(leader, NOON)
    result = await cycle.run(leader, NOON + SECOND)

    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    assert cluster.done("allocate") == ["train-0-gpus"], "nobody writes on in vain"
    assert report(result).evictions == 1

    cluster.fails.clear()
    await cycle.run(leader, NOON + MINUTE)
    everything_runs(cluster, ledger, 3)


async def test_a_write_whose_outcome_is_not_known_is_made_again_and_nothing_is_reserved_twice() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = RetryError("the API server does not answer")
    leader = a_leader(cluster, ledger)

    result = await cycle.run(leader, NOON)
    assert cluster.let_in() == []
    assert report(result).phase is Phase.RESERVED

    cluster.fails.clear()
    await cycle.run(leader, NOON)
    everything_runs(cluster, ledger, 3)
    assert kinds(ledger).count(Kind.RESERVE) == 1


async def test_an_api_server_that_stays_away_does_not_keep_a_gang_for_ever() -> None:
    cluster, ledger = Cluster(a_gang(startTimeout="1m")), in_memory.Ledger()
    cluster.fails["allocate train-1-gpus"] = RetryError("the API server does not answer")
    leader = a_leader(cluster, ledger)

    await cycle.run(leader, NOON)
    await cycle.run(leader, NOON + MINUTE)
    await cycle.run(leader, NOON + MINUTE)

    assert ledger.book.usage() == {}
    assert cluster.devices() == {}


async def test_pods_deleted_before_their_gang_runs_leave_no_devices_taken() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)

    for name in cluster.let_in():
        cluster.remove_pod(name)
    await cycles(leader, 3)

    assert cluster.devices() == {}
    assert ledger.book.usage() == {}


def with_named_claim(builder: ClusterBuilder, *pods: str) -> Cluster:
    """Let pods share one claim S, which goes with none of them."""
    cluster = Cluster(builder)
    for name in pods:
        pod = cluster.pod(name)
        cluster._pods[pod.meta.uid] = replace(pod, claims=(PodClaim(name="s", claim="S"),))
    shared = claims.decode(claim_manifest("S", 1, owner="-"))
    cluster._claims["team/S"] = replace(shared, meta=replace(shared.meta, owners=()))
    return cluster


async def test_a_named_claim_that_no_pod_ever_used_is_freed_when_its_pods_are_gone() -> None:
    """Kubernetes takes a claim's devices back only when a pod has used them."""
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=8).pod("one", gpus=0).pod("two", gpus=0)
    cluster, ledger = with_named_claim(builder, "one", "two"), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    assert cluster.devices() == {"S": ["a/gpu-0"]}
    assert cluster.done("allocate") == ["S"], "it is allocated once"

    cluster.remove_pod("one")
    await cycle.run(leader, NOON)
    assert cluster.devices() == {"S": ["a/gpu-0"]}
    cluster.remove_pod("two")
    await cycles(leader, 2)

    assert cluster.devices() == {}
    assert ledger.book.usage() == {}


async def test_late_allocations_of_a_deposed_leader_are_deallocated_before_the_gang_is_planned() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    claim = cluster.snapshot().claims["team/train-0-gpus"]
    given = {"request": "gpus", "driver": "gpu.example.com", "pool": "b", "device": "gpu-1"}
    await cluster.allocate(claim, {"devices": {"results": [given]}})
    cluster.calls.clear()

    await cycle.run(a_leader(cluster, ledger, epoch=2), NOON)

    assert cluster.done("deallocate") == ["train-0-gpus"]
    everything_runs(cluster, ledger, 3)
    assert ledger.book.usage()[Q][GPUS] == (3, 0), "all of them are charged"


async def test_a_gang_is_not_planned_while_its_late_allocations_cannot_be_deallocated() -> None:
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    claim = cluster.snapshot().claims["team/train-0-gpus"]
    given = {"request": "gpus", "driver": "gpu.example.com", "pool": "b", "device": "gpu-1"}
    await cluster.allocate(claim, {"devices": {"results": [given]}})
    cluster.fails["deallocate train-0-gpus"] = RetryError("busy")

    result = await cycle.run(a_leader(cluster, ledger, epoch=2), NOON)

    hold = report(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.WAITING_FOR_CLAIMS
    assert kinds(ledger) == []


async def test_a_deposed_leader_writes_nothing_into_a_requeued_gang() -> None:
    """It wakes up in the middle of its writes, with its view of before."""
    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    seen = cluster.snapshot()
    cluster.fails["allocate train-1-gpus"] = ConflictError("it has changed")
    await cycle.run(a_leader(cluster, ledger), NOON)
    assert cluster.devices() == {}
    cluster.fails.clear()

    given = {"request": "gpus", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    for n in range(3):
        with pytest.raises(ConflictError):
            await cluster.allocate(seen.claims[f"team/train-{n}-gpus"], {"devices": {"results": [given]}})
        with pytest.raises(ConflictError):
            await cluster.open_gate(seen.pods[Uid(f"pod-train-{n}")], names.NodeName("a"))

    assert cluster.devices() == {}
    assert cluster.let_in() == []


class Late(Cluster):
    """Its view shows claims as they were when a test said so."""

    shown: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        now = super().snapshot()
        return now if self.shown is None else replace(now, claims=self.shown.claims)


async def test_devices_allocated_but_not_yet_seen_are_given_to_no_other_gang() -> None:
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=8).pod("one").pod("two")
    cluster, ledger = Late(builder), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    cluster.shown = cluster.snapshot()
    await cycle.run(leader, NOON)

    await cycle.run(leader, NOON)
    first = cluster.let_in()
    for name in first:
        cluster.remove_pod(name)
    await cycle.run(leader, NOON)
    assert cluster.devices() == {}
    cluster.shown = None
    await cycles(leader, 2)

    assert len(first) == 1
    assert len(cluster.devices()) == 1
    assert cluster.done("allocate") != []


async def test_a_late_allocation_write_fails_after_its_claim_was_released() -> None:
    """A leader died while it wrote; the pods went away, the claim did not; then the write arrives."""
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=8).pod("one", gpus=0)
    cluster, ledger = with_named_claim(builder, "one"), in_memory.Ledger()
    seen = cluster.snapshot().claims["team/S"]
    cluster.fails["allocate S"] = RetryError("the answer never came")
    await cycle.run(a_leader(cluster, ledger), NOON)
    cluster.remove_pod("one")

    cluster.fails.clear()
    await ledger.fence(2)
    await cycle.run(a_leader(cluster, ledger, epoch=2), NOON + SECOND)

    assert ledger.book.usage() == {}
    given = {"request": "gpus", "driver": "gpu.example.com", "pool": "a", "device": "gpu-0"}
    with pytest.raises(ConflictError):
        await cluster.allocate(seen, {"devices": {"results": [given]}})


async def test_nothing_is_given_back_that_could_still_be_written() -> None:
    builder = a_cluster().node("a", gpus=1).queue("q", gpus=8).pod("one", gpus=0)
    cluster, ledger = with_named_claim(builder, "one"), in_memory.Ledger()
    cluster.fails = {f"{what} S": RetryError("busy") for what in ("allocate", "deallocate")}
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.remove_pod("one")

    await cycle.run(leader, NOON + SECOND)
    assert ledger.book.usage()[Q][GPUS] == (1, 0)
    cluster.fails.clear()
    await cycle.run(leader, NOON + MINUTE)
    assert ledger.book.usage() == {}


async def test_a_gang_planned_with_any_devices_is_not_reserved_once_its_fence_has_fallen() -> None:
    class Falling(default_ports.NoFences):
        """A fence that is there when it is asked for first, and not a second time."""

        def observe(self) -> Barriers:
            before, self.barriers = self.barriers, Barriers()
            return before

    cluster, ledger = Cluster(a_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    leader = replace(leader, ports=replace(leader.ports, fences=Falling(fence())))

    hold = report(await cycle.run(leader, NOON)).hold
    assert hold is not None
    assert "planned anew" in hold.message
    assert kinds(ledger) == []

    assert report(await cycle.run(leader, NOON + SECOND)).placement == "Pin"
    everything_runs(cluster, ledger, 3)


async def test_late_pods_of_a_running_gang_are_requeued_without_the_gang() -> None:
    cluster, ledger = Cluster(a_gang(pods=2)), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    await cycle.run(leader, NOON)
    cluster.schedule(ledger.book)
    await cycle.run(leader, NOON)
    late = a_cluster().pod("late", owner="job-train", job="train").snapshot()
    cluster._pods |= late.pods
    cluster._claims |= late.claims
    cluster.fails["allocate late-gpus"] = ConflictError("it has changed")

    await cycle.run(leader, NOON)

    assert ledger.book.usage()[Q][GPUS] == (0, 2)
    assert len(ledger.book.placements[GangUid("job-train")].seats) == 2
    cluster.fails.clear()
    await cycle.run(leader, NOON + SECOND)
    cluster.schedule(ledger.book)
    assert cluster.pod("late").phase == "Running"


async def test_a_pod_that_goes_away_while_claims_are_written_takes_its_gang_back() -> None:
    class Losing(Cluster):
        async def allocate(self, claim: Claim, allocation: Json) -> Claim:
            if claim.meta.name == "train-2-gpus" and Uid("pod-train-2") in self._pods:
                self.remove_pod("train-2")
                raise GoneError("gone")
            return await super().allocate(claim, allocation)

    cluster, ledger = Losing(a_gang()), in_memory.Ledger()
    leader = a_leader(cluster, ledger)
    result = await cycles(leader, 3)

    assert cluster.let_in() == []
    assert cluster.devices() == {}
    assert ledger.book.usage() == {}
    hold = report(result).hold
    assert hold is not None
    assert hold.reason is HoldReason.GANG_INCOMPLETE


async def test_a_gang_whose_claims_cannot_be_written_stops_no_other_gang() -> None:
    builder = a_gang(pods=1).job("other", queue="q", pods=2)
    cluster, ledger = Cluster(builder), in_memory.Ledger()
    cluster.fails["allocate train-0-gpus"] = ForbiddenError("no")

    await cycle.run(a_leader(cluster, ledger), NOON)

    assert cluster.let_in() == ["other-0", "other-1"]


async def test_a_gang_whose_devices_muster_allocates_is_booked_on_a_budget_of_several_clusters() -> None:
    class Asked(in_memory.Ledger):
        async def post_all(self, entries: Any, *, shares: Sequence[BudgetShare] = (), **options: Any) -> list[Posted]:
            asked.extend(share.seconds for share in shares if entries[0].kind is Kind.RESERVE)
            return await super().post_all(entries, shares=shares, **options)

    asked: list[int] = []
    budget = {"meter": "gpus", "hours": "100", "period": "Day", "scope": "Global"}

    await cycle.run(a_leader(Cluster(a_gang(budgets=[budget])), Asked()), NOON)

    assert asked == [3 * 3600, 0], "an hour of three devices today, and nothing tomorrow"
