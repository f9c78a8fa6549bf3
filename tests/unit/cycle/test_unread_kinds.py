"""Workloads of a kind that Muster may not read: what is told while it may not, and what is left of it afterwards."""

from dataclasses import replace
from typing import Any

from admission.api.muster.gangs import GangReport, Phase
from admission.api.values.reasons import HoldReason
from tests import standins
from tests.builders import NAMESPACE, NOON, a_cluster
from tests.standins import Manifest
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.test_suspended_parents import HeldParents, template

KIND = "LeaderWorkerSet.leaderworkerset.x-k8s.io"
FORBIDDEN = "list leaderworkersets: forbidden (403); grant verb list on resource leaderworkersets"


class Narrowed(HeldParents):
    """A LeaderWorkerSet whose leaders are the whole groups, under roles that may leave its kind out."""

    def __init__(self) -> None:
        spec = {"replicas": 2, "leaderWorkerTemplate": {"size": 1, "workerTemplate": template()}}
        lws: Manifest = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "spec": spec}
        builder = a_cluster().queue("q", gpus=4).node("a", gpus=4, cpu="64")
        super().__init__(builder, lws | {"metadata": {"name": "serve"}}, lambda _: [])
        self.now = NOON

    def lead(self) -> None:
        """Have its controllers make the leaders."""
        leaders = standins.leaders(self.obj)
        leaders["metadata"]["namespace"] = NAMESPACE
        self.create([standins.grouped(pod) for pod in standins.stateful_set_pods(self.put(leaders))])

    def end_pods(self) -> None:
        self._end([*self._pods.values()])

    def deny(self) -> None:
        others = {kind: found for kind, found in self._rest.parents.items() if kind != KIND}
        self._rest = replace(self._rest, parents=others, unwatched={KIND: FORBIDDEN})

    def allow(self) -> None:
        self._rest = replace(self._rest, unwatched={})
        self.put(self.obj)


def told(result: Any) -> list[GangReport]:
    return [report for report in result.gangs if not report.over]


async def test_pods_of_a_kind_that_muster_may_not_read_wait_as_one_gang_until_the_kind_is_readable() -> None:
    cluster = Narrowed()
    play = Play(cluster)
    cluster.deny()
    cluster.lead()

    (blind,) = told(await play.forget_changes())
    assert blind.hold is not None
    assert blind.hold.reason is HoldReason.GANG_INCOMPLETE
    assert FORBIDDEN in blind.hold.message
    assert blind.workload is not None
    assert (blind.workload.kind, blind.workload.name) == ("LeaderWorkerSet", "serve")
    assert blind.key in cluster.gangs

    cluster.allow()
    groups = told(await play.forget_changes(3))
    assert [(group.phase, group.pods) for group in groups] == [(Phase.RUNNING, 1)] * 2
    assert set(cluster.gangs) == {group.key for group in groups}, "nothing is said of the gang that nobody is in"


async def test_a_running_gang_stays_its_gang_when_the_right_to_read_its_kind_is_revoked() -> None:
    cluster = Narrowed()
    play = Play(cluster)
    cluster.lead()
    before = {group.key for group in told(await play.forget_changes(3))}

    cluster.deny()
    after = told(await play.forget_changes(2))

    assert {group.key for group in after} == before
    assert {group.phase for group in after} == {Phase.RUNNING}
