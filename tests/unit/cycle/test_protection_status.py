"""What a cycle tells of the protection of devices, and of gangs that are placed otherwise than they asked for."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from admission import default_ports
from admission.api.kubernetes.claims import AllocatedDevice, Allocation
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import BudgetShare, Entry, Kind, Posted
from admission.api.muster.status_reports import EventType
from admission.api.snapshot import Snapshot
from admission.cycle import cycle
from admission.cycle.steps import report as cycle_report
from admission.errors import ClusterUnavailableError
from admission.scheduling.placement.protection import Barriers, Means, Webhooks
from admission.simulation import in_memory
from tests import readers
from tests.builders import CLASS, NOON, a_cluster
from tests.unit.cycle.fences import Cluster, a_leader, fence


async def test_losing_a_fence_is_an_event_and_a_condition_and_gangs_are_pinned() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader = a_leader(cluster, in_memory.Ledger())
    fences = leader.ports.fences
    assert isinstance(fences, default_ports.NoFences)

    await cycle.run(leader, NOON)
    assert fences.wanted == {CLASS}
    assert next(iter(cluster.gangs.values())).placement == "Allocate"
    assert next(iter(cluster.gangs.values())).placement_reason == f"driver {CLASS}: its devices are fenced"
    fences.barriers = replace(fence(), rules={}, served=False)
    await cycle.run(leader, NOON + timedelta(seconds=1))
    await cycle.run(leader, NOON + timedelta(seconds=2))

    told = [notice for notice in cluster.notices if notice.kind == "Queue"]
    assert [(one.type, one.reason) for one in told] == [
        (EventType.NORMAL, "DevicesProtected"),
        (EventType.WARNING, "ProtectionLost"),
    ]
    assert "upgrade to Kubernetes 1.37" in told[1].message
    (condition,) = [one for one in cluster.queues[next(iter(cluster.queues))].conditions if "Protected" in one.type]
    assert (condition.status, condition.reason) == ("False", "Unprotected")


async def test_a_fence_that_falls_between_deciding_and_placing_is_noticed() -> None:
    class Falling(default_ports.NoFences):
        """A fence that is there when it is asked for first, and not a second time."""

        def observe(self) -> Barriers:
            before, self.barriers = self.barriers, replace(fence(), rules={})
            return before

    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader = a_leader(cluster, in_memory.Ledger())
    leader = replace(leader, ports=replace(leader.ports, fences=Falling(fence())))

    await cycle.run(leader, NOON)

    assert not cluster.done("allocate")


async def test_a_fence_that_falls_while_the_ledger_commits_is_noticed_before_claims_are_written() -> None:
    class Slow(in_memory.Ledger):
        """The fence falls while a reservation is committed."""

        async def post_all(
            self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
        ) -> list[Posted]:
            if any(entry.kind is Kind.RESERVE for entry in entries):
                fences.barriers = replace(fence(), rules={}, served=False)
            return await super().post_all(entries, epoch=epoch, shares=shares)

    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader, fences = a_leader(cluster, Slow()), default_ports.NoFences(fence())
    leader = replace(leader, ports=replace(leader.ports, fences=fences))

    result = await cycle.run(leader, NOON)

    assert not cluster.calls
    (told,) = result.gangs
    assert told.hold is not None
    assert told.hold.message.startswith("its devices are not safe from kube-scheduler any more: driver gpu.example.com")
    await cycle.run(leader, NOON + timedelta(seconds=1))
    assert cluster.calls == ["open one-0"], "it is pinned, since kube-scheduler comes to the same devices"


async def test_placement_waits_for_a_fence_recreated_while_the_ledger_commits() -> None:
    class Slow(in_memory.Ledger):
        """The fence is put up anew while a reservation is committed, and counts soon."""

        async def post_all(
            self, entries: Sequence[Entry], *, epoch: int, shares: Sequence[BudgetShare] = ()
        ) -> list[Posted]:
            fences.barriers = replace(fence(), rules={CLASS: NOON})
            return await super().post_all(entries, epoch=epoch, shares=shares)

    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader, fences = a_leader(cluster, Slow()), default_ports.NoFences(fence())
    leader = replace(leader, ports=replace(leader.ports, fences=fences))

    (told,) = (await cycle.run(leader, NOON)).gangs

    assert cluster.calls == []
    assert told.hold is not None
    assert told.hold.message.startswith("it is about to be safe to allocate devices of driver gpu.example.com")


async def test_a_gang_with_all_its_devices_is_admitted_though_the_fence_was_recreated() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader = a_leader(cluster, in_memory.Ledger())
    assert isinstance(leader.ports.fences, default_ports.NoFences)
    cluster.fails = {"open one-0": ClusterUnavailableError()}
    await cycle.run(leader, NOON)
    assert cluster.calls == ["allocate one-0-gpus"]

    cluster.fails = {}
    leader.ports.fences.barriers = replace(fence(), rules={CLASS: NOON})
    await cycle.run(leader, NOON + timedelta(seconds=1))

    assert cluster.let_in() == ["one-0"]


async def test_a_pinned_pod_is_waited_for_under_coverage_from_the_moment_its_gate_is_opened() -> None:
    class Late(Cluster):
        """Its view shows every pod as it was at first."""

        def snapshot(self) -> Snapshot:
            return replace(super().snapshot(), pods=before)

    spec: dict[str, Any] = {"default": True, "namespaceSelector": {}}
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=4, placement="Pin", **spec).job("one", queue="q")
    before = builder.snapshot().pods
    cluster = Late(builder)
    long_ago = NOON - timedelta(hours=1)
    covered = Barriers(webhooks=Webhooks(since=long_ago, exempt=("kube-system",), kept_out=long_ago))
    leader = a_leader(cluster, in_memory.Ledger(), barriers=covered)

    await cycle.run(leader, NOON)
    at_first = leader.fences.protections.rest
    assert cluster.calls == ["open one-0"]
    await cycle.run(leader, NOON + timedelta(seconds=1))

    assert at_first.by is Means.COVERAGE
    assert leader.fences.protections.rest.by is None
    assert "since Muster has pinned it" in leader.fences.protections.rest.why


async def test_a_gang_of_placement_allocate_that_is_pinned_gets_an_event_with_the_reason() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4, placement="Allocate").job("one", queue="q"))
    leader = a_leader(cluster, in_memory.Ledger(), barriers=replace(fence(None), served=False))

    result = await cycle.run(leader, NOON)

    assert len(result.granted) == 1
    assert next(iter(cluster.gangs.values())).placement == "Pin"
    (told, _) = [notice for notice in cluster.notices if notice.reason == "FellBack"]
    assert "asked for placement Allocate and is placed by Pin: driver gpu.example.com: the API server" in told.message


async def test_a_fence_that_is_about_to_count_has_the_next_cycle_start_soon() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader = a_leader(cluster, in_memory.Ledger(), barriers=replace(fence(), rules={CLASS: NOON}))

    result = await cycle.run(leader, NOON)

    assert not result.granted
    assert result.next_try is not None
    assert result.next_try <= NOON + cycle_report.POLL
    assert (await cycle.run(leader, NOON + timedelta(seconds=10))).granted


async def test_the_placement_modes_of_gangs_are_forgotten_when_the_gangs_end() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("one", queue="q"))
    leader = a_leader(cluster, in_memory.Ledger())
    await cycle.run(leader, NOON)
    started = cluster.schedule(leader.mirror.book)
    await cycle.run(leader, NOON + timedelta(seconds=1))
    assert len(leader.in_flight.modes) == 1

    cluster.finish(started)
    await cycle.run(leader, NOON + timedelta(seconds=2))

    assert not leader.in_flight.modes


async def test_a_fence_that_kube_scheduler_does_not_heed_is_found_out() -> None:
    cluster = Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).pod("outsider", queue=""))
    leader = a_leader(cluster, in_memory.Ledger())
    fences = leader.ports.fences
    assert isinstance(fences, default_ports.NoFences)
    await cycle.run(leader, NOON)
    assert fences.wanted == {CLASS}

    device = RequestDevice(request="gpus", device=DeviceId(CLASS, "a", "gpu-0"))
    cluster.change_claim("outsider-gpus", allocation=Allocation(devices=(AllocatedDevice(given=device),)))
    await cycle.run(leader, NOON + timedelta(seconds=1))

    assert not fences.wanted
    told = readers.why_in_full(leader.fences.protections.of_driver(CLASS))
    assert "claim team/outsider-gpus has device" in told
