"""Pods that a controller makes when others run or have ended are looked at before they are there."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes import jobs
from admission.api.muster.gangs import Phase
from admission.api.values import names
from admission.api.values.names import NodeName
from admission.workloads.kinds import jobset as jobset_kind
from tests import standins
from tests.builders import a_cluster
from tests.standins import Manifest
from tests.unit.cycle.fences import report
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.test_suspended_parents import HeldParents, a_jobset, a_play, template

IN_ORDER = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}


def staged(workers: int, **order: Any) -> Manifest:
    """Return a JobSet with a driver, and so many workers that come when it is ready."""
    jobset = a_jobset()
    jobset["spec"] |= {"replicatedJobs": [entry("driver", 1), entry("workers", workers)], **(order or IN_ORDER)}
    return jobset


def entry(name: str, pods: int) -> Manifest:
    return {"name": name, "template": {"spec": {"parallelism": pods, "template": template()}}}


def a_stage(jobset: Manifest, gpus: int) -> tuple[HeldParents, Play]:
    """Return a cluster whose JobSet controller makes the driver alone."""
    cluster, play = a_play(jobset, gpus=gpus)
    cluster.make = lambda obj: [
        pod for job in map(cluster.put, standins.jobset_jobs(obj, "driver")) for pod in standins.job_pods(job)
    ]
    return cluster, play


def exclusive(pods: int) -> Manifest:
    """Return a JobSet of one Job, whose other pods follow its first one to its node."""
    jobset, driver = a_jobset(), entry("driver", pods)
    driver["template"]["metadata"] = {"annotations": {jobset_kind.EXCLUSIVE: names.HOSTNAME}}
    driver["template"]["spec"]["template"]["metadata"]["annotations"] = {jobs.INDEX: "0"}
    jobset["spec"]["replicatedJobs"] = [driver]
    return jobset


NEVER = "may start, but its workers never fit"
NO_PLACE = "NoFeasiblePlacement: pod set-workers-"


@pytest.mark.parametrize(
    ("jobset", "gpus", "said"),
    [
        (staged(7), 9, ""),
        (staged(8), 9, f"{NEVER} beside driver: {NO_PLACE}7 needs 1 device"),
        (staged(9), 9, f"{NEVER}: {NO_PLACE}8 needs 1 device"),
        (staged(2), 2, f"{NEVER} beside driver: QuotaExceeded: queue q has 2 gpus left"),
        (staged(3), 2, f"{NEVER}: QuotaExceeded: queue q has 2 gpus left"),
        (exclusive(3), 2, "may start, but its followers of driver never fit: QuotaExceeded: queue q has 2 gpus left"),
    ],
    ids=[
        "they fill the empty cluster beside those that they wait for",
        "these leave too little of it",
        "they are too many for it",
        "they are too many for the quota beside those",
        "they are too many for the quota",
        "they follow others that have all of the quota that is left",
    ],
)
async def test_later_waves_are_decided_about_in_an_empty_cluster_beside_those_that_run_on(
    jobset: Manifest, gpus: int, said: str
) -> None:
    cluster, play = a_stage(jobset, gpus)
    cluster.lost = {"set-driver-0-1", "set-driver-0-2"}
    cluster.submit("other", queue="q", pods=1)

    found = report(await play.forget_changes(2), "set")

    assert found.phase is not Phase.PENDING, "it may start"
    assert [text[: len(said)] for text in found.later] == ([said] if said else [])
    apart = "; of these 3 gpus set-driver needs 1, set-workers needs 2"
    assert [text.endswith(apart) for text in found.later] == ["beside driver: Quota" in text for text in found.later]


async def test_later_waves_are_not_said_never_to_fit_where_nodes_may_come_for_them() -> None:
    cluster, play = a_stage(staged(8), 9)
    cluster._rest = replace(cluster._rest, shapes=a_cluster().shape("x8", gpus=8).snapshot().shapes)

    found = report(await play.forget_changes(2), "set")

    assert found.phase is not Phase.PENDING
    assert found.later == ()


async def test_what_is_said_of_later_waves_follows_the_workload_at_once_and_the_cluster_within_a_minute() -> None:
    cluster, play = a_stage(staged(8), 9)
    assert report(await play.forget_changes(2), "set").later

    cluster.obj["spec"]["replicatedJobs"][1] = entry("workers", 7)
    cluster.put(cluster.obj)
    await play.forget_changes(2)
    assert play.leader.later_waves.answers == {}

    cluster._rest = replace(cluster._rest, nodes={NodeName("a"): cluster._rest.nodes[NodeName("a")]})
    await play.forget_changes(2)
    assert play.leader.later_waves.answers == {}
    await play.forget_changes(65)
    assert list(play.leader.later_waves.answers) == ["workload"]


def on_one_node() -> Manifest:
    """Return a template of pods that want to be together."""
    made = template()
    return {**made, "metadata": {**made["metadata"], "annotations": {names.TOPOLOGY: names.HOSTNAME}}}


def serving(size: int, **template_more: Any) -> Manifest:
    """Return a LeaderWorkerSet whose workers come when their leader is ready."""
    template_ = {"size": size, "workerTemplate": template(), **template_more}
    spec = {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": template_}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "set"},
        "spec": spec,
    }


@pytest.mark.parametrize(
    ("lws", "gpus", "said"),
    [
        (serving(8), 8, ""),
        (serving(9), 9, f"{NEVER}: NoFeasiblePlacement: pod set-0-8 needs 1 device"),
        (serving(3), 2, f"{NEVER}: QuotaExceeded: queue q has 2 gpus left"),
        (serving(9, leaderTemplate=template() | {"metadata": {"labels": {names.QUEUE: "other"}}}), 9, ""),
        (serving(5, workerTemplate=on_one_node()), 9, ""),
        (serving(6, workerTemplate=on_one_node()), 9, f"{NEVER}: NoFeasiblePlacement: none of 2 domains"),
    ],
    ids=[
        "they fill the empty cluster with their leader",
        "with it they are too many for the cluster",
        "with it they are too many for the quota",
        "they are in another queue than it",
        "they are on one node, and it on another",
        "they are too many for one node",
    ],
)
async def test_workers_of_a_leader_are_decided_about_beside_it(lws: Manifest, gpus: int, said: str) -> None:
    cluster, play = a_play(lws, gpus=gpus)
    cluster.create([*map(standins.grouped, standins.stateful_set_pods(cluster.put(standins.leaders(lws))))])

    found = report(await play.forget_changes(2), "set")

    assert found.size == 1
    assert [text[: len(said)] for text in found.later] == ([said] if said else [])
