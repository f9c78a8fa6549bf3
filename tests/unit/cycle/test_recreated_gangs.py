"""Gangs whose pods go: what the next ones of a controller inherit, and when the object of a gang goes as well."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport, Phase
from admission.api.values import names
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import HoldReason
from admission.cycle import cycle
from admission.cycle.state.leader import Leader, Ports
from admission.simulation import in_memory
from tests.builders import NOON, a_cluster, pod_of, running
from tests.unit.cycle.fences import MINUTE, SECOND

HOUR = 60 * MINUTE

WEB = Owner(api_version="apps/v1", kind="StatefulSet", name="web", uid=Uid("web"), controller=True)
JOB = Owner(api_version="argoproj.io/v1alpha1", kind="Workflow", name="web", uid=Uid("web"), controller=True)


class Cluster(in_memory.Cluster):
    """A cluster where a controller makes a pod anew."""

    def own(self, owner: Owner) -> None:
        self._pods = {uid: _owned(pod, owner) for uid, pod in self._pods.items()}

    def updated(self, name: str, uid: str, owner: Owner) -> None:
        found = a_cluster().pod(name, gpus=1, created=(NOON + 2 * MINUTE).isoformat()).snapshot()
        pod = _owned(pod_of(found, name), owner)
        self._pods = {Uid(uid): replace(pod, meta=replace(pod.meta, uid=Uid(uid)))}
        self._claims = {
            key: replace(
                claim, meta=replace(claim.meta, owners=tuple(replace(o, uid=Uid(uid)) for o in claim.meta.owners))
            )
            for key, claim in found.claims.items()
        }

    def empty(self) -> None:
        self._pods, self._claims = {}, {}

    def run(self) -> None:
        self._pods = {uid: running(pod, "a") for uid, pod in self._pods.items()}


def _owned(pod: Pod, owner: Owner) -> Pod:
    return replace(pod, meta=replace(pod.meta, owners=(owner,)))


def a_pod(owner: Owner) -> Cluster:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=8, startTimeout="1m", requeue={"base": "10m"})
    cluster = Cluster(builder.pod("web-0", gpus=1).snapshot())
    cluster.own(owner)
    return cluster


def a_leader(cluster: Cluster) -> Leader:
    ledger = in_memory.Ledger()
    ports = Ports(view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=ledger)
    return Leader.build(ports=ports, actor="test", epoch=1)


async def report_at(leader: Leader, moment: datetime) -> GangReport:
    (report,) = [one for one in (await cycle.run(leader, moment)).gangs if one.pods]
    return report


async def late(cluster: Cluster, owner: Owner, *, name: str = "web-0") -> tuple[Leader, GangReport]:
    """Let the pod be late and be taken back, and its controller make another one; return what is said of that."""
    leader = a_leader(cluster)
    for wait in (timedelta(0), MINUTE, MINUTE + SECOND):
        await cycle.run(leader, NOON + wait)
    cluster.updated(name, "another", owner)
    await cycle.run(leader, NOON + 2 * MINUTE)
    return leader, await report_at(leader, NOON + 2 * MINUTE + SECOND)


def named(**spec: Any) -> Cluster:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=8, startTimeout="1m", **spec)
    labels = {names.GANG: "pair", names.GANG_SIZE: "1"}
    return Cluster(builder.pod("one", gpus=1, labels=labels).snapshot())


async def test_the_gang_object_of_a_named_gang_is_removed_with_its_pods() -> None:
    cluster = named()
    leader = a_leader(cluster)
    await cycle.run(leader, NOON)
    assert [*cluster.gangs] == ["team/pair"]

    cluster.empty()
    for wait in range(1, 4):
        await cycle.run(leader, NOON + wait * SECOND)

    assert [*cluster.gangs] == []


async def test_the_gang_object_of_an_evicted_gang_stays_until_its_back_off_ends() -> None:
    cluster = named(requeue={"base": "10m"})
    leader = a_leader(cluster)
    for wait in (timedelta(0), MINUTE, MINUTE + SECOND, 2 * MINUTE):
        await cycle.run(leader, NOON + wait)
    cluster.empty()
    await cycle.run(leader, NOON + 3 * MINUTE)
    assert cluster.gangs["team/pair"].phase is Phase.EVICTED

    await cycle.run(leader, NOON + 12 * MINUTE)

    assert [*cluster.gangs] == []


async def test_the_next_pod_of_a_stateful_set_waits_out_the_back_off_of_the_pod_before() -> None:
    _, report = await late(a_pod(WEB), WEB)

    assert report.hold is not None
    assert report.hold.reason is HoldReason.START_TIMED_OUT
    assert report.hold.message == "did not start in time (once so far); it is tried again at 2026-11-21T12:11:00Z"
    assert report.evictions == 1


async def test_the_back_off_of_successive_pods_of_a_stateful_set_doubles_and_ends_when_a_pod_runs() -> None:
    cluster = a_pod(WEB)
    leader, _ = await late(cluster, WEB)
    again = NOON + 11 * MINUTE
    for wait in (timedelta(0), MINUTE + SECOND, MINUTE + 2 * SECOND):
        await cycle.run(leader, again + wait)
    cluster.updated("web-0", "third", WEB)
    await cycle.run(leader, again + 2 * MINUTE)
    third = await report_at(leader, again + 2 * MINUTE + SECOND)
    assert third.evictions == 2

    await cycle.run(leader, again + 30 * MINUTE)
    cluster.run()
    await cycle.run(leader, again + 30 * MINUTE + SECOND)

    assert leader.evictions._workload_backoffs == {}
    assert GangUid("third") not in leader.evictions.backoffs


@pytest.mark.parametrize(("owner", "name"), [(WEB, "web-1"), (JOB, "web-0")], ids=["another pod", "another maker"])
async def test_a_pod_that_replaces_no_evicted_pod_starts_at_once(owner: Owner, name: str) -> None:
    _, report = await late(a_pod(owner), owner, name=name)

    assert report.hold is None
    assert report.evictions == 0


async def test_the_next_pod_of_a_stateful_set_has_the_queue_position_of_the_preempted_pod() -> None:
    """It does not wait behind those that came while the one before it ran."""
    lower = {"withinQueue": "LowerPriority"}
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=1, preemption=lower).pod("web-0", gpus=1)
    cluster = Cluster(builder.snapshot())
    cluster.own(WEB)
    leader = a_leader(cluster)
    first = await report_at(leader, NOON)
    await cycle.run(leader, NOON + SECOND)
    cluster.run()
    await cycle.run(leader, NOON + 2 * SECOND)
    other = a_cluster().pod("urgent", gpus=1, created=(NOON + MINUTE).isoformat()).snapshot()
    cluster._pods |= {uid: replace(pod, priority=10) for uid, pod in other.pods.items()}
    cluster._claims |= other.claims
    await cycle.run(leader, NOON + MINUTE)
    assert [one.reason for one in leader.evictions.evicted.values()] == ["Preempted"]

    cluster.updated("web-0", "another", WEB)
    await cycle.run(leader, NOON + 2 * MINUTE)
    again = await report_at(leader, NOON + 2 * MINUTE + SECOND)

    assert (again.uid, again.queued_since) == ("another", first.queued_since)
    for wait in range(2, 6):
        cluster.run()
        await cycle.run(leader, NOON + 2 * MINUTE + wait * SECOND)
    assert leader.gangs.positions == {}, "whoever runs has had the place"


async def test_an_evicted_pod_without_a_successor_gives_up_its_queue_position() -> None:
    leader, report = await late(a_pod(JOB), JOB, name="web-other")

    assert report.queued_since == NOON + 2 * MINUTE
    assert leader.gangs.positions == {}


async def test_a_place_is_not_kept_for_ever() -> None:
    cluster = a_pod(WEB)
    leader, report = await late(cluster, WEB)
    assert report.queued_since == NOON
    cluster.empty()

    await cycle.run(leader, NOON + 2 * HOUR)

    assert leader.gangs.positions == {}
