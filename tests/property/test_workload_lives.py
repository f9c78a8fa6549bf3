"""Whatever Jobs go through, what is left of them runs in the end: done in part, taken back, scaled, under new leaders.

Their controller makes pods as that of Kubernetes does (`pkg/controller/job`, manageJob): by what is left, and none any
more after the first success of a Job without completions.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from tests.builders import ClusterBuilder, a_cluster
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.suspended import HeldJobs

DEVICES = 8
STEPS = 40


class Town(HeldJobs):
    """Jobs that are held as a whole or not, by name."""

    def __init__(self, builder: ClusterBuilder, lot: random.Random) -> None:
        super().__init__(builder)
        self.lot = lot

    def add(self, name: str, *, pods: int, completions: int | None, is_held: bool, **said: Any) -> None:
        self.submit_held(name, queue="q", pods=pods)
        job, self.made[name] = self.job(name), {"queue": "q", **said}
        data = {part: {**job.template["metadata"][part], **said.get(part, {})} for part in ("labels", "annotations")}
        job = replace(job, template={**job.template, "metadata": data}, completions=completions)
        if not is_held:
            job = replace(job, suspended=False, meta=replace(job.meta, annotations={}))
        self._jobs[job.meta.uid] = job

    def pods_of(self, name: str) -> list[Pod]:
        owned = (pod for pod in self._pods.values() if pod.meta.controller)
        return [pod for pod in owned if pod.meta.controller and pod.meta.controller.uid == f"job-{name}"]

    def alive(self, name: str) -> list[Pod]:
        return [pod for pod in self.pods_of(name) if not pod.finished and pod.meta.deleted is None]

    def up(self, name: str) -> list[Pod]:
        return [pod for pod in self.alive(name) if pod.phase == "Running"]

    def make_pods(self) -> None:
        for name in self.made:
            alive = self.alive(name)
            job = replace(self.job(name), active=len(alive))
            is_done = job.succeeded > 0 if job.completions is None else job.succeeded + job.failed >= job.completions
            job = self._jobs[job.meta.uid] = replace(job, finished=is_done and not alive)
            if job.finished or job.suspended:
                continue
            self._end(alive[max(job.remaining_pods, 0) :])
            for _ in range(job.remaining_pods - len(alive)):
                self._make_one(name, job)
            self.set_job(name, active=len(self.alive(name)))

    def _make_one(self, name: str, job: Job) -> None:
        self.lives += 1
        fresh = a_cluster().job(f"{name}{self.lives}", **self.made[name]).snapshot()
        for uid, pod in fresh.pods.items():
            owners = tuple(replace(owner, uid=job.meta.uid, name=name) for owner in pod.meta.owners)
            meta = replace(pod.meta, created=self.now, owners=owners)
            self._pods[uid] = replace(pod, meta=meta, priority=self.priorities[name])
        for key, claim in fresh.claims.items():
            self._claims[key] = replace(claim, meta=replace(claim.meta, resource_version="1"))

    def end_well(self, name: str, pod: Pod) -> None:
        """Let a pod succeed. It may soon be gone, with its node for one."""
        self._release_claims([pod])
        self._pods[pod.meta.uid] = replace(pod, phase="Succeeded", ready=False)
        self.set_job(name, succeeded=self.job(name).succeeded + 1)
        if self.lot.random() < 0.4:
            del self._pods[pod.meta.uid]

    def fail(self, name: str, pod: Pod) -> None:
        """Let a pod fail, and now and then its index for good."""
        self._release_claims([pod])
        self._pods[pod.meta.uid] = replace(pod, phase="Failed", ready=False)
        if self.job(name).completions is not None and self.lot.random() < 0.3:
            self.set_job(name, failed=self.job(name).failed + 1)


def a_town(lot: random.Random) -> tuple[Town, Play]:
    more: dict[str, Any] = {"startTimeout": "4s", "requeue": {"base": "1s", "max": "2s"}}
    builder = a_cluster().queue("q", gpus=DEVICES, preemption={"withinQueue": "LowerPriority"}, **more)
    town = Town(builder.node("a", gpus=4).node("b", gpus=4), lot)
    for name in "abc"[: lot.randint(1, 3)]:
        pods = lot.randint(1, 4)
        said: dict[str, Any] = {}
        shape = lot.choice(["plain", "sized", "named", "elastic"])
        if shape == "sized":
            said["annotations"] = {names.GANG_SIZE: str(lot.randint(1, pods))}
        elif shape == "named":
            said |= {"labels": {names.GANG: f"of-{name}"}, "annotations": {names.GANG_SIZE: str(pods)}}
        elif shape == "elastic":
            said["annotations"] = {names.GANG_MIN: str(lot.randint(1, pods))}
        completions = lot.choice([pods, None, pods + lot.randint(0, 5)])
        town.add(name, pods=pods, completions=completions, is_held=lot.random() < 0.5, **said)
    return town, Play(town)


async def live(town: Town, play: Play, lot: random.Random) -> None:
    """Let something happen to one of the Jobs, or to all."""
    name = lot.choice([name for name in town.made if name != "high"])
    running, act = town.up(name), lot.choice(["succeed", "succeed", "fail", "delete", "oust", "back", "scale", "lead"])
    if act in {"succeed", "fail", "delete"} and running:
        pod = lot.choice(running)
        if act == "succeed":
            town.end_well(name, pod)
        elif act == "fail":
            town.fail(name, pod)
        else:
            town._end([pod])
    elif act == "oust" and "high" not in town.made:
        pods = lot.randint(4, DEVICES)
        town.add("high", pods=pods, completions=pods, is_held=False)
        town.priorities["high"] = 5
    elif act == "back" and "high" in town.made:
        town.delete_job("high")
    elif act == "scale" and "annotations" not in town.made[name]:
        town.set_job(name, parallelism=lot.randint(1, 4))
    elif act == "lead":
        play.succeed()
    await play.forget_changes(lot.randint(1, 3))


@pytest.mark.parametrize("seed", range(12))
async def test_the_remaining_pods_of_interrupted_jobs_run_in_the_end(seed: int) -> None:
    lot = random.Random(seed)  # noqa: S311 - not for secrets
    town, play = a_town(lot)
    for _ in range(STEPS):
        await live(town, play, lot)
    if "high" in town.made:
        town.delete_job("high")
    await play.forget_changes(40)

    waiting = {name: len(town.alive(name)) - len(town.up(name)) for name in town.made if not town.job(name).finished}
    room = DEVICES - sum(len(town.up(name)) for name in town.made)
    dead_end = [name for name, count in waiting.items() if (count and count <= room) or not town.alive(name)]
    lacking = [name for name in dead_end if town.alive(name) or town.job(name).remaining_pods <= room]
    assert lacking == []
