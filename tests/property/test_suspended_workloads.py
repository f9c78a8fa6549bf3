"""Random steps of Jobs that are held as a whole: no device twice, no charge twice, and nothing left at the end."""

import asyncio
from collections import Counter
from random import Random

import pytest

from admission.accounting.books import Book
from admission.api.kubernetes.jobs import Suspendable
from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values.names import Held, MeterName, Uid
from admission.cycle.state.pending_pods import PendingPods
from admission.workloads import suspendable
from tests.builders import a_cluster
from tests.property.mortal_jobs import MortalJobs, step
from tests.unit.cycle.jobs import Play
from tests.unit.cycle.suspended import HeldJobs

GPUS = 6
STEPS = 250


class Mortal(MortalJobs, HeldJobs):
    """Its controller dies beside writes now and then, users do as they like, and pods come late, and not together."""

    def __init__(self, random: Random) -> None:
        builder = a_cluster().node("a", gpus=4).node("b", gpus=2)
        builder.queue("q", gpus=GPUS, startTimeout="6s", preemption={"withinQueue": "LowerPriority"})
        super().__init__(builder, graceful=True)
        self.random = random
        self.number = 0
        self.late: dict[Uid, Pod] = {}

    async def hold(self, workload: Suspendable) -> None:
        self._count()
        await super().hold(workload)
        self._count()

    async def start(self, workload: Suspendable) -> None:
        self._count()
        await super().start(workload)
        self._count()

    def make_pods(self) -> None:
        """Have the Job controller make pods, some of which come a step later."""
        late, self.late = self.late, {}
        self._pods |= {uid: pod for uid, pod in late.items() if self._runs(pod)}
        before = set(self._pods)
        super().make_pods()
        for uid in sorted(self._pods.keys() - before):
            if self.random.random() < 0.3:
                self.late[uid] = self._pods.pop(uid)

    def _runs(self, pod: Pod) -> bool:
        job = self._jobs.get(pod.meta.controller.uid) if pod.meta.controller else None
        return job is not None and not job.suspended

    def happen(self) -> None:
        """Let one thing happen."""
        acts = {"arrive": 5, "end": 3, "delete": 1, "grace": 5, "die": 2, "suspend": 1, "resume": 1, "nothing": 4}
        what = self.random.choices([*acts], weights=[*acts.values()])[0]
        names = sorted(self.made)
        if what == "arrive" and len(names) < 7:
            self.number += 1
            pods, gpus = self.random.choice(((1, 1), (2, 1), (3, 1), (1, 2), (2, 2)))
            priority = self.random.choice((0, 0, 1, 2))
            self.submit_held(f"j{self.number}", queue="q", pods=pods, gpus=gpus, priority=priority)
        elif what == "end" and (running := sorted(self.running())):
            self.forget(self.random.choice(running))
        elif what == "delete" and names:
            self.forget(self.random.choice(names))
        elif what == "grace":
            self.end_grace()
        elif what == "die":
            self.lives_left = self.random.randint(0, 5)
        elif what in ("suspend", "resume") and names:
            self._by_its_user(self.random.choice(names), suspend=what == "suspend")

    def _by_its_user(self, name: str, *, suspend: bool) -> None:
        """Suspend a Job that was started, or have one of these held again, as the webhook does with who resumes it."""
        job = self.job(name)
        is_started = suspendable.held(job.meta) is Held.STARTED
        if suspend and is_started and not job.suspended:
            self.set_job(name, suspended=True)
            self._end([pod for pod in self.pods_of(name) if not pod.finished])
        elif not suspend and is_started and job.suspended:
            self._held(suspendable.JOB.suspendable(job.meta), Held.WAITING, suspended=True)

    def forget(self, name: str) -> None:
        self.delete_job(name)
        self.late = {uid: pod for uid, pod in self.late.items() if not pod.meta.name.startswith(f"{name}-")}
        self._gangs = {key: gang for key, gang in self._gangs.items() if not key.startswith(f"team/{name}-")}


def check(play: Play) -> None:
    """Nobody has a device twice, no gang is charged for more than it asks for, and each runs whole or not at all."""
    cluster, book = play.cluster, play.ledger.book
    given = Counter(device for devices in cluster.devices().values() for device in devices)
    assert max(given.values(), default=0) <= 1
    booked = Counter(
        str(one.device) for held in book.placements.values() for h in held.holdings.values() for one in h.devices
    )
    assert max(booked.values(), default=0) <= 1, "the books give nothing twice"
    assert (
        sum(use.reserved + use.used for meters in book.usage().values() for m, use in meters.items() if m == "gpus")
        <= GPUS
    )
    for placement in book.placements.values():
        job = cluster.made.get(str(placement.gang_uid).removeprefix("job-"))
        charged = sum(holding.charge.get(MeterName("gpus"), 0) for holding in placement.holdings.values())
        assert job is None or charged <= job["pods"] * job["gpus"], "charged once"
    for name, job in cluster.made.items():
        running = [
            pod
            for pod in cluster._pods.values()
            if pod.meta.name.rpartition("-")[0] == name and pod.phase == "Running" and pod.meta.deleted is None
        ]
        assert len(running) in {0, job["pods"]}, f"{name} runs in part"


def check_expected(pending: PendingPods, snapshot: Snapshot, book: Book) -> None:
    """Expected pods that are followed from step to step are those that are found anew."""
    found, new = pending.add_to(snapshot, book), PendingPods()
    anew = new.add_to(snapshot, book)
    assert found.pods == anew.pods
    assert found.claims == anew.claims
    assert pending.problems == new.problems
    assert {one.meta.uid for one in pending.loose} == {one.meta.uid for one in new.loose}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(3))
def test_random_steps_charge_nothing_twice_and_leave_nothing(seed: int) -> None:
    async def live() -> tuple[int, int]:
        cluster = Mortal(Random(seed))  # noqa: S311 - not for secrets
        play, pending = Play(cluster), PendingPods()
        ran = 0
        for _ in range(STEPS):
            cluster.happen()
            await step(play)
            check(play)
            check_expected(pending, cluster.snapshot(), play.ledger.book)
            ran += len(cluster.running())
        for name in sorted(cluster.made):
            cluster.forget(name)
        for _ in range(4):
            cluster.end_grace()
            await step(play)
        assert play.ledger.book.placements == {}
        return ran, sum("hold" in write for write in cluster.writes)

    ran, held = asyncio.run(live())
    assert ran > 100, "it is about gangs that run"
    assert held > 0, "and some that are held again"
