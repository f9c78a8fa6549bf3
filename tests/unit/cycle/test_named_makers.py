"""Gangs that their pods name, and what makes these pods: it is suspended and resumed as that of any other gang."""

import pytest

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.jobs import Jobs, Play
from tests.unit.cycle.suspended import HeldJobs, a_play

LOWER = {"withinQueue": "LowerPriority"}


def said(size: int) -> dict[str, str]:
    return {names.GANG_SIZE: str(size)}


def submit_held(cluster: HeldJobs, name: str, *, pods: int, size: int) -> None:
    """Create a Job that is held as a whole, and whose pods name the gang `g`."""
    cluster.submit_held(name, queue="q", pods=pods)
    template = cluster.job(name).template
    labels = {**template["metadata"]["labels"], names.GANG: "g"}
    annotations = {**template["metadata"]["annotations"], **said(size)}
    cluster.set_job(name, template={**template, "metadata": {"labels": labels, "annotations": annotations}})
    cluster.made[name] |= {"labels": {names.GANG: "g"}, "annotations": said(size)}


@pytest.mark.parametrize("jobs", [["one"], ["one", "two"]])
async def test_all_jobs_of_a_named_gang_are_resumed_at_its_grant_and_suspended_at_its_eviction(jobs: list[str]) -> None:
    count = 2 * len(jobs)
    cluster, play = a_play(a_cluster().node("a", gpus=count).queue("q", gpus=count, preemption=LOWER))
    for name in jobs:
        submit_held(cluster, name, pods=2, size=count)

    await play.forget_changes(5)
    assert cluster.running() == set(jobs)
    assert sorted(cluster.writes) == [f"start {name}" for name in jobs]

    cluster.submit("high", queue="q", pods=count, priority=5)
    await play.forget_changes(5)
    assert cluster.running() == {"high"}
    assert sorted(cluster.writes) == sorted(f"{what} {name}" for name in jobs for what in ("hold", "start"))

    cluster.delete_job("high")
    await play.forget_changes(8)
    assert cluster.running() == set(jobs)
    assert [len(one.seats) for one in play.ledger.book.placements.values()] == [count]


async def test_pods_that_come_as_another_gang_than_planned_give_the_reservation_back() -> None:
    """As where another webhook, or the controller of another system, names their gang."""
    cluster, play = a_play(a_cluster().node("a", gpus=2).queue("q", gpus=2, startTimeout="6s"))
    cluster.submit_held("train", queue="q", pods=2)
    cluster.made["train"] |= {"labels": {names.GANG: "g"}, "annotations": said(2)}

    await play.forget_changes(12)

    assert cluster.running() == {"train"}
    assert cluster.writes == ["start train"]
    assert any("the gang that it names differs" in notice.message for notice in cluster.notices)


class Witness(Jobs):
    """Notes what is evicted, what is suspended, and whose gates are closed."""

    def __init__(self, builder: ClusterBuilder) -> None:
        super().__init__(builder)
        self.removed: list[str] = []

    async def suspend(self, job: Job) -> None:
        self.removed.append(f"Job {job.meta.name}")
        await super().suspend(job)

    async def evict(self, pod: Pod, reason: str) -> None:
        self.removed.append(f"Pod {pod.meta.name}")
        await super().evict(pod, reason)

    async def close_gate(self, pod: Pod) -> bool:
        self.removed.append(f"gate of {pod.meta.name}")
        return await super().close_gate(pod)


async def test_an_evicted_named_gang_has_its_jobs_suspended_and_its_other_pods_evicted() -> None:
    """Pods of a Job that are evicted count against its `backoffLimit`: after a few the Job would have failed."""
    builder = a_cluster().node("a", gpus=3).queue("q", gpus=3, preemption=LOWER)
    builder.pod("driver", labels={names.GANG: "g"}, annotations=said(3))
    cluster = Witness(builder)
    play = Play(cluster)
    cluster.submit("work", queue="q", pods=2, labels={names.GANG: "g"}, annotations=said(3))
    await play.forget_changes(4)
    assert cluster.running() == {"work", ""}

    cluster.submit("high", queue="q", pods=3, priority=5)
    await play.forget_changes(4)

    assert cluster.removed == ["Job work", "Pod driver"]
    assert cluster.running() == {"high"}
