"""Two gangs under one name, and one gang of several makers."""

from dataclasses import replace
from typing import Any

import pytest

from admission.api.muster import gangs
from admission.api.values import names
from admission.api.values.names import Uid
from admission.workloads import gangs as workloads_gangs, name_conflicts
from tests import standins
from tests.builders import a_cluster, let_in
from tests.standins import Manifest, an_object
from tests.unit.cycle.test_elastic import Town
from tests.unit.workloads.kinds.herds import TEMPLATE, Herd, a_pod

KUEUE = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
KOORDINATOR = "gang.scheduling.koordinator.sh/name"
LEAST = "gang.scheduling.koordinator.sh/min-available"


def a_job(name: str, pods: int, *, gang: str = "x", size: int = 2, **annotations: str) -> Manifest:
    said = {names.GANG: gang, names.GANG_SIZE: str(size), **annotations}
    template = {**TEMPLATE, "metadata": {**TEMPLATE["metadata"], "annotations": said}}
    return an_object("batch/v1", "Job", name, parallelism=pods, completions=pods, template=template)


def refused(herd: Herd) -> str:
    found = name_conflicts.denial(herd.gang, herd.snapshot)
    return found.message if found is not None else ""


def with_jobs(*jobs: Manifest) -> Herd:
    herd = Herd()
    for job in jobs:
        herd.all(standins.job_pods(herd.put(job)))
    return herd


def test_pods_of_two_jobs_that_are_more_than_the_gang_has_are_refused() -> None:
    assert refused(with_jobs(a_job("w0", 2), a_job("w1", 2))) == (
        "4 pods name the gang x (2 of Job w0, 2 of Job w1), which has 2 by muster.dev/gang-size of its pods: if these"
        " are several gangs, give each a muster.dev/gang of its own; if they are one, say that it has 4 pods"
    )


def test_a_launcher_and_its_workers_are_one_gang() -> None:
    assert refused(with_jobs(a_job("launcher", 1, size=4), a_job("workers", 3, size=4))) == ""


def test_one_job_may_have_more_pods_than_its_gang_says() -> None:
    assert refused(with_jobs(a_job("workers", 5))) == ""


def test_the_pods_that_jobs_are_about_to_make_count() -> None:
    """Of each there is one: together as many as the gang has."""
    herd = Herd()
    for job in (a_job("w0", 2), a_job("w1", 2)):
        herd.all(standins.job_pods(herd.put(job))[:1])

    assert refused(herd).startswith("4 pods name the gang x (2 of Job w0, 2 of Job w1)")


def test_succeeded_pods_of_a_job_no_longer_count_in_a_name_conflict() -> None:
    herd = Herd()
    launcher, workers = herd.put(a_job("launcher", 1, size=3)), a_job("workers", 3, size=3)
    pods = standins.job_pods(herd.put(workers, succeeded=1))
    herd.put(pods[0], phase="Succeeded")
    herd.all([*standins.job_pods(launcher), *pods[1:]])

    assert refused(herd) == ""


def test_the_gang_object_that_says_the_size_is_named() -> None:
    herd = with_jobs(a_job("w0", 2), a_job("w1", 2))
    spec = {"queue": "q", "size": 3}
    gang = gangs.decode({"metadata": {"name": "x", "namespace": "team"}, "spec": spec})
    snapshot = replace(herd.snapshot, gangs={gang.meta.key: gang})
    (group,) = workloads_gangs.groups_of(herd.pods.values(), snapshot, {})

    found = name_conflicts.denial(group, snapshot)

    assert found is not None
    assert "which has 3 by spec.size of Gang team/x" in found.message


@pytest.mark.parametrize(("key", "size", "is_told"), [(KUEUE, TOTAL, True), (KOORDINATOR, LEAST, False)])
def test_groups_of_other_systems_conflict_above_their_total_size_but_not_above_a_least_size(
    key: str, size: str, *, is_told: bool
) -> None:
    herd = Herd()
    for job in (a_job("w0", 2), a_job("w1", 2)):
        said = {"annotations": {key: "x", size: "2"}, "labels": {names.QUEUE: "q", key: "x"}}
        job["spec"]["template"] = {**TEMPLATE, "metadata": said}
        herd.all(standins.job_pods(herd.put(job)))

    assert refused(herd).startswith("4 pods name the gang x") is is_told
    assert not is_told or f"by {TOTAL} of its pods" in refused(herd)


def replica(name: str, number: int) -> Manifest:
    """A pod of one of the ReplicaSets of Deployment `web`."""
    pod = a_pod(f"web-{name}-{number}", labels={"pod-template-hash": name}, **{names.GANG: "x", names.GANG_SIZE: "2"})
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"web-{name}", "uid": name, "controller": True}
    pod["metadata"]["ownerReferences"] = [reference]
    return pod


def test_the_replica_sets_of_a_deployment_count_as_one_maker() -> None:
    herd = Herd()
    herd.all([replica("55d4", 0), replica("55d4", 1), replica("7f9c", 0)])
    assert refused(herd) == ""

    herd.put(a_pod("alone", **{names.GANG: "x", names.GANG_SIZE: "2"}))
    assert "(3 of Deployment web, 1 of no controller)" in refused(herd)


def test_a_name_conflict_of_many_makers_gives_their_number() -> None:
    assert "1 of Job w3 and 2 more)" in refused(with_jobs(*(a_job(f"w{at}", 1) for at in range(6))))


def started(herd: Herd, *uids: str) -> str:
    herd.pods |= {Uid(uid): let_in(herd.pods[Uid(uid)]) for uid in uids}
    return refused(herd)


def uids(herd: Herd, job: str) -> list[str]:
    return [uid for uid, pod in herd.pods.items() if pod.meta.name.startswith(job)]


def test_a_started_named_gang_takes_in_pods_of_its_own_makers_only() -> None:
    herd = with_jobs(a_job("launcher", 1, size=3), a_job("workers", 4, size=3))
    assert started(herd, *uids(herd, "launcher"), *uids(herd, "workers")[:2]) == ""

    herd.all(standins.job_pods(herd.put(a_job("other", 2, size=3))))
    assert refused(herd).startswith("7 pods name the gang x (4 of Job workers, 2 of Job other, 1 of Job launcher)")


async def test_of_two_jobs_of_one_gang_name_none_starts_until_the_other_is_gone() -> None:
    builder = a_cluster().node("a", gpus=2).queue("q", gpus=8)
    said: dict[str, Any] = {"annotations": {names.GANG_SIZE: "2"}, "labels": {names.GANG: "x"}}
    town = Town(builder.job("w0", queue="q", pods=2, **said).job("w1", queue="q", pods=2, **said))

    held = await town.settle()
    assert town.runs() == []
    assert held.hold is not None
    assert held.hold.message.startswith("4 pods name the gang x (2 of Job w0, 2 of Job w1)")

    for name in ("w0-0", "w0-1"):
        town.remove_pod(name)
    await town.settle()
    assert town.runs() == ["w1-0", "w1-1"]
