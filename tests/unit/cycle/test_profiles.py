"""A cycle decides like the kube-scheduler that the cluster runs now, and promises nothing where that one is random."""

from dataclasses import replace

import pytest

from admission import default_ports
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.cycle.state.result import CycleResult
from admission.dra import compatibility
from admission.dra.compatibility import Release, SchedulerProfile
from admission.simulation import in_memory
from tests.builders import NAMESPACE, NOON, ClusterBuilder, a_cluster
from tests.unit.cycle import fences

OLD, NEW = compatibility.profile(Release.V1_36), compatibility.profile(Release.V1_37)


class Scheduler:
    """The port Scheduler of a cluster that is upgraded when a test says so."""

    def __init__(self, profile: SchedulerProfile | None) -> None:
        self.profile = profile


def a_leader(builder: ClusterBuilder, profile: SchedulerProfile | None) -> tuple[Leader, Scheduler]:
    cluster, scheduler = in_memory.Cluster(builder.snapshot()), Scheduler(profile)
    ports = Ports(
        view=cluster,
        pods=cluster,
        claims=cluster,
        workloads=cluster,
        reports=cluster,
        ledger=in_memory.Ledger(),
        scheduler=scheduler,
    )
    return Leader.build(ports=ports, actor="test", epoch=1), scheduler


def holds(result: CycleResult) -> dict[str, str]:
    return {g.workload.name: g.hold.reason for g in result.gangs if g.workload is not None and g.hold is not None}


async def test_where_devices_are_picked_at_random_gangs_that_need_some_wait() -> None:
    cluster = a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q").job("plain", queue="q", gpus=0)
    leader, _ = a_leader(cluster, None)

    result = await cycle.run(leader, NOON)

    assert holds(result) == {"train": HoldReason.NOT_SIMULATED}
    (hold,) = [gang.hold for gang in result.gangs if gang.hold is not None]
    assert f"claim {NAMESPACE}/train-0-gpus needs devices" in hold.message
    assert "upgrade Kubernetes, or set controller.profile" in hold.message
    assert len(result.granted) == 1


async def test_gangs_are_admitted_after_a_kubernetes_upgrade() -> None:
    leader, scheduler = a_leader(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q"), None)
    await cycle.run(leader, NOON)

    scheduler.profile = OLD
    result = await cycle.run(leader, NOON)

    assert holds(result) == {}
    assert len(result.granted) == 1


async def test_on_a_kubernetes_newer_than_all_gangs_are_pinned_and_queues_say_why() -> None:
    cluster = fences.Cluster(a_cluster().node("a", gpus=4).queue("q", gpus=4).job("train", queue="q"))
    leader = fences.a_leader(cluster, in_memory.Ledger())
    newer = compatibility.of_version("1.38")
    leader = replace(leader, ports=replace(leader.ports, scheduler=Scheduler(newer)))

    result = await cycle.run(leader, NOON)

    assert cluster.calls == ["open train-0"], "the plan is that of the newest release, and kube-scheduler allocates"
    assert isinstance(leader.ports.fences, default_ports.NoFences)
    assert leader.ports.fences.wanted == frozenset(), "the fence goes, since it binds kube-scheduler, too"
    (queue,) = result.queues
    told = {one.type: (one.status, one.reason, one.message) for one in queue.conditions}
    assert told["DevicesProtected"][:2] == ("False", "Unprotected")
    assert told["KubernetesKnown"][:2] == ("False", "TooNew")
    assert "Kubernetes 1.38 is newer than 1.37" in told["KubernetesKnown"][2]


@pytest.mark.parametrize(
    ("profile", "told"), [(None, ["Kubernetes is older than"]), (OLD, []), (NEW, [])], ids=["too old", "1.36", "1.37"]
)
async def test_queues_say_when_the_kubernetes_is_not_known(profile: SchedulerProfile | None, told: list[str]) -> None:
    leader, _ = a_leader(a_cluster().node("a", gpus=4).queue("q", gpus=4), profile)

    result = await cycle.run(leader, NOON)

    (queue,) = result.queues
    assert [one.message[:24] for one in queue.conditions if one.type == "KubernetesKnown"] == told


@pytest.mark.parametrize(("profile", "minor"), [(OLD, 36), (NEW, 37)])
async def test_cel_is_evaluated_as_the_scheduler_does(profile: SchedulerProfile, minor: int) -> None:
    leader, _ = a_leader(a_cluster().node("a", gpus=1), profile)

    await cycle.run(leader, NOON)

    assert leader.scheduling.selectors.profile.release == minor


async def test_cached_plans_of_another_release_are_forgotten() -> None:
    cluster = a_cluster().node("a", gpus=1).queue("q", gpus=4).job("large", queue="q", gpus=2)
    leader, scheduler = a_leader(cluster, OLD)
    await cycle.run(leader, NOON)
    selectors, plans, cluster_state = leader.scheduling.selectors, leader.scheduling.plans, leader.scheduling.cluster

    await cycle.run(leader, NOON)
    assert (leader.scheduling.selectors is selectors, leader.scheduling.plans is plans) == (True, True), (
        "nothing has changed"
    )

    scheduler.profile = NEW
    result = await cycle.run(leader, NOON)
    assert (
        leader.scheduling.selectors is selectors,
        leader.scheduling.plans is plans,
        leader.scheduling.cluster is cluster_state,
    ) == (
        False,
        False,
        False,
    )
    assert holds(result) == {"large": HoldReason.NO_FEASIBLE_PLACEMENT}


async def test_while_the_version_is_unknown_what_was_found_is_kept() -> None:
    leader, scheduler = a_leader(a_cluster().node("a", gpus=1), NEW)
    await cycle.run(leader, NOON)
    selectors = leader.scheduling.selectors

    scheduler.profile = None
    await cycle.run(leader, NOON)

    assert leader.scheduling.selectors is selectors
