"""A cluster whose Jobs have priorities and make their pods again, and whose pods take their time to end."""

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import GangUid, Uid
from admission.cycle import cycle
from admission.cycle.state.result import CycleResult
from admission.simulation import in_memory
from tests.builders import NOON, ClusterBuilder, a_cluster
from tests.unit.cycle.fences import Cluster, a_leader

SECOND = timedelta(seconds=1)


class Jobs(Cluster):
    """graceful: whether pods that are deleted stay until `end_grace` is called.

    late: how many cycles later than it could the Job controller makes the pods of a Job.
    """

    def __init__(self, builder: ClusterBuilder, *, graceful: bool = False, late: int = 0) -> None:
        super().__init__(builder)
        self.graceful = graceful
        self.delay = late
        self._left: dict[str, int] = {}
        """By Job whose pods are late, in how many cycles they come."""
        self.now = NOON
        self.made: dict[str, dict[str, Any]] = {}
        self.priorities: dict[str, int] = {}
        self.lives = 0

    def submit(self, name: str, *, priority: int = 0, at: datetime | None = None, **job: Any) -> None:
        """Create a Job, with its pods."""
        self.made[name], self.priorities[name] = job, priority
        builder = a_cluster().job(name, **job)
        self._jobs |= builder.snapshot().jobs
        self._make(name, at or self.now)

    def make_pods(self) -> None:
        """Have the Job controller make the pods of Jobs that have none."""
        owners = {pod.meta.controller.uid for pod in self._pods.values() if pod.meta.controller}
        for name in self.made:
            job = self._jobs.get(Uid(f"job-{name}"))
            if job is None or job.meta.uid in owners or job.suspended or job.finished:
                self._left.pop(name, None)
            elif self._left.setdefault(name, self.lateness()):
                self._left[name] -= 1
            else:
                del self._left[name]
                self._make(name, self.now)

    def lateness(self) -> int:
        """Return by how many cycles the next pods of a Job are late."""
        return self.delay

    def replace_lost(self) -> None:
        """Have the Job controller make pods again that running Jobs have lost."""
        for name in self.made:
            self.replace(name)

    def replace(self, name: str) -> None:
        """Have the Job controller make the pods again that a running Job has lost."""
        job, left = self._jobs.get(Uid(f"job-{name}")), self._left_of(name)
        if job is not None and left and not job.suspended and not job.finished:
            self._make(name, self.now, but=left)

    def lacks(self, name: str) -> bool:
        """Return whether a Job has lost some of its pods."""
        return 0 < len(self._left_of(name)) < int(self.made[name].get("pods", 1))

    def _left_of(self, name: str) -> set[str]:
        job = self._jobs.get(Uid(f"job-{name}"))
        return {pod.meta.name for pod in self._pods.values() if job is not None and _is_of(pod, job)}

    def _make(self, name: str, at: datetime, but: Collection[str] = ()) -> None:
        """Make the pods of a Job. but: the names of those that are there."""
        self.lives += 1
        fresh = a_cluster().job(name, **self.made[name]).snapshot()
        for uid, pod in fresh.pods.items():
            if pod.meta.name in but:
                continue
            again = Uid(f"{uid}-{self.lives}")
            meta = replace(pod.meta, uid=again, created=at)
            self._pods[again] = replace(pod, meta=meta, priority=self.priorities[name])
            for key, claim in fresh.claims.items():
                owned = [replace(owner, uid=again) for owner in claim.meta.owners if owner.uid == uid]
                if owned:
                    own = Uid(f"{claim.meta.uid}-{self.lives}")
                    meta = replace(claim.meta, uid=own, owners=tuple(owned), resource_version="1")
                    self._claims[key] = replace(claim, meta=meta)

    def delete_job(self, name: str) -> None:
        """Delete a Job with its pods."""
        job = self._jobs.pop(Uid(f"job-{name}"), None)
        del self.made[name]
        if job is not None:
            self._end([pod for pod in self._pods.values() if _is_of(pod, job)])

    def finish_job(self, name: str) -> None:
        self.finish([pod for pod in self._pods.values() if pod.meta.name.rpartition("-")[0] == name])

    async def suspend(self, job: Job) -> None:
        going = [pod for pod in self._pods.values() if _is_of(pod, job) and not pod.finished]
        self._end(going)
        left = {pod.meta.uid: self._pods.pop(pod.meta.uid) for pod in going if pod.meta.uid in self._pods}
        await super().suspend(job)
        self._pods |= left

    async def evict(self, pod: Pod, reason: str) -> None:
        del reason
        self._end([pod])

    def _end(self, pods: list[Pod]) -> None:
        for pod in pods:
            known = self._pods.get(pod.meta.uid)
            if known is None or known.meta.deleted is not None:
                continue
            if self.graceful and known.node:
                removed = replace(known.meta, deleted=self.now + timedelta(seconds=30))
                self._pods[pod.meta.uid] = replace(known, meta=removed)
            else:
                self._release_claims([self._pods.pop(pod.meta.uid)])

    def end_grace(self) -> None:
        """End the pods that are being deleted."""
        for pod in [pod for pod in self._pods.values() if pod.meta.deleted is not None]:
            self._release_claims([self._pods.pop(pod.meta.uid)])

    def running(self) -> set[str]:
        """Return the Jobs of which a pod is let in and not being deleted."""
        pods = (pod for pod in self._pods.values() if not pod.gated and not pod.finished and not pod.meta.deleted)
        return {pod.meta.name.rpartition("-")[0] for pod in pods}


def _is_of(pod: Pod, job: Job) -> bool:
    return pod.meta.controller is not None and pod.meta.controller.uid == job.meta.uid


class Play:
    """A leader at work in such a cluster, second by second."""

    def __init__(self, cluster: Jobs, ledger: in_memory.Ledger | None = None) -> None:
        self.cluster = cluster
        self.ledger = ledger or in_memory.Ledger()
        self.epoch = 1
        self.leader = a_leader(cluster, self.ledger)
        self.evicted: list[tuple[str, str, str]] = []
        """Gang, reason, and for whom, in order."""

    def succeed(self) -> None:
        """Let another leader take over, who knows nothing but what is written."""
        self.epoch += 1
        self.leader = a_leader(self.cluster, self.ledger, epoch=self.epoch)

    async def forget_changes(self, times: int = 1) -> CycleResult:
        """Run cycles, each a second after the other, and start what was let in."""
        result = CycleResult()
        for _ in range(times):
            self.cluster.now += SECOND
            self.cluster.make_pods()
            result = await cycle.run(self.leader, self.cluster.now)
            self.evicted += [
                (self.name(uid), str(one.reason), self.name_of(one.made_room_for))
                for uid, one in result.evicted.items()
            ]
            self.cluster.schedule(self.ledger.book)
        return result

    def name(self, uid: GangUid) -> str:
        return uid.removeprefix("job-")

    def name_of(self, key: str) -> str:
        """Return the Job of a gang that goes by its key."""
        return next((name for name in self.cluster.made if key.startswith(f"team/{name}-")), key)
