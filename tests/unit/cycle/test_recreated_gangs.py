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
from admission.cycle.state.leader import LeaderState, Ports
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

    def anew(self, name: str, uid: str, owner: Owner) -> None:
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


def a_desk(cluster: Cluster) -> LeaderState:
    ledger = in_memory.Ledger()
    ports = Ports(view=cluster, pods=cluster, claims=cluster, workloads=cluster, reports=cluster, ledger=ledger)
    return LeaderState(ports=ports, actor="test", epoch=1)


async def report_at(desk: LeaderState, moment: datetime) -> GangReport:
    (report,) = [one for one in (await cycle.run(desk, moment)).gangs if one.pods]
    return report


async def late(cluster: Cluster, owner: Owner, *, name: str = "web-0") -> tuple[LeaderState, GangReport]:
    """Let the pod be late and be taken back, and its controller make another one; return what is said of that."""
    desk = a_desk(cluster)
    for wait in (timedelta(0), MINUTE, MINUTE + SECOND):
        await cycle.run(desk, NOON + wait)
    cluster.anew(name, "another", owner)
    await cycle.run(desk, NOON + 2 * MINUTE)
    return desk, await report_at(desk, NOON + 2 * MINUTE + SECOND)


def named(**spec: Any) -> Cluster:
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=8, startTimeout="1m", **spec)
    labels = {names.GANG: "pair", names.GANG_SIZE: "1"}
    return Cluster(builder.pod("one", gpus=1, labels=labels).snapshot())


async def test_the_gang_of_pods_that_name_it_goes_with_them() -> None:
    cluster = named()
    desk = a_desk(cluster)
    await cycle.run(desk, NOON)
    assert [*cluster.gangs] == ["team/pair"]

    cluster.empty()
    for wait in range(1, 4):
        await cycle.run(desk, NOON + wait * SECOND)

    assert [*cluster.gangs] == []


async def test_one_that_was_taken_back_stays_until_it_may_be_tried_again() -> None:
    cluster = named(requeue={"base": "10m"})
    desk = a_desk(cluster)
    for wait in (timedelta(0), MINUTE, MINUTE + SECOND, 2 * MINUTE):
        await cycle.run(desk, NOON + wait)
    cluster.empty()
    await cycle.run(desk, NOON + 3 * MINUTE)
    assert cluster.gangs["team/pair"].phase is Phase.EVICTED

    await cycle.run(desk, NOON + 12 * MINUTE)

    assert [*cluster.gangs] == []


async def test_the_next_pod_of_a_stateful_set_waits_until_the_last_one_would_have_been_tried_again() -> None:
    _, report = await late(a_pod(WEB), WEB)

    assert report.hold is not None
    assert report.hold.reason is HoldReason.START_TIMED_OUT
    assert report.hold.message == "did not start in time (1 so far); it is tried again at 2026-11-21T12:11:00Z"
    assert report.evictions == 1


async def test_the_back_off_of_a_line_doubles_and_ends_when_one_of_it_runs() -> None:
    cluster = a_pod(WEB)
    desk, _ = await late(cluster, WEB)
    again = NOON + 11 * MINUTE
    for wait in (timedelta(0), MINUTE + SECOND, MINUTE + 2 * SECOND):
        await cycle.run(desk, again + wait)
    cluster.anew("web-0", "third", WEB)
    await cycle.run(desk, again + 2 * MINUTE)
    third = await report_at(desk, again + 2 * MINUTE + SECOND)
    assert third.evictions == 2

    await cycle.run(desk, again + 30 * MINUTE)
    cluster.run()
    await cycle.run(desk, again + 30 * MINUTE + SECOND)

    assert desk.lines == {}
    assert GangUid("third") not in desk.backoffs


@pytest.mark.parametrize(("owner", "name"), [(WEB, "web-1"), (JOB, "web-0")], ids=["another pod", "another maker"])
async def test_who_takes_nobodys_place_starts_at_once(owner: Owner, name: str) -> None:
    _, report = await late(a_pod(owner), owner, name=name)

    assert report.hold is None
    assert report.evictions == 0


async def test_the_next_pod_of_a_stateful_set_has_the_place_of_one_that_was_preempted() -> None:
    """It does not wait behind those that came while the one before it ran."""
    lower = {"withinQueue": "LowerPriority"}
    builder = a_cluster().node("a", gpus=4).queue("q", gpus=1, preemption=lower).pod("web-0", gpus=1)
    cluster = Cluster(builder.snapshot())
    cluster.own(WEB)
    desk = a_desk(cluster)
    first = await report_at(desk, NOON)
    await cycle.run(desk, NOON + SECOND)
    cluster.run()
    await cycle.run(desk, NOON + 2 * SECOND)
    other = a_cluster().pod("urgent", gpus=1, created=(NOON + MINUTE).isoformat()).snapshot()
    cluster._pods |= {uid: replace(pod, priority=10) for uid, pod in other.pods.items()}
    cluster._claims |= other.claims
    await cycle.run(desk, NOON + MINUTE)
    assert [one.reason for one in desk.evicted.values()] == ["Preempted"]

    cluster.anew("web-0", "another", WEB)
    await cycle.run(desk, NOON + 2 * MINUTE)
    again = await report_at(desk, NOON + 2 * MINUTE + SECOND)

    assert (again.uid, again.queued_since) == ("another", first.queued_since)
    for wait in range(2, 6):
        cluster.run()
        await cycle.run(desk, NOON + 2 * MINUTE + wait * SECOND)
    assert desk.census.places == {}, "whoever runs has had the place"


async def test_a_pod_that_nobody_succeeds_leaves_its_place() -> None:
    desk, report = await late(a_pod(JOB), JOB, name="web-other")

    assert report.queued_since == NOON + 2 * MINUTE
    assert desk.census.places == {}


async def test_a_place_is_not_kept_for_ever() -> None:
    cluster = a_pod(WEB)
    desk, report = await late(cluster, WEB)
    assert report.queued_since == NOON
    cluster.empty()

    await cycle.run(desk, NOON + 2 * HOUR)

    assert desk.census.places == {}
