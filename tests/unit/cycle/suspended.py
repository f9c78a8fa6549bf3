"""A cluster whose Jobs are held as a whole, as the webhook would have left them, and whose pods come when resumed."""

from dataclasses import replace
from typing import Any

from admission.api.kubernetes import claims, jobs
from admission.api.kubernetes.jobs import Job, Suspendable
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.names import Held, Uid
from admission.simulation import in_memory
from tests.builders import NAMESPACE, NOON, ClusterBuilder, claim_manifest
from tests.unit.cycle.jobs import Jobs, Play


def template(queue: str, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """The pod template that yields what the builders make."""
    spec: dict[str, Any] = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}], **more}
    if gpus:
        spec["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": f"x{gpus}"}]
    return {"metadata": {"labels": {names.QUEUE: queue}, "annotations": {names.USER: "ada"}}, "spec": spec}


class HeldJobs(Jobs):
    """writes: what was done to workloads, in order."""

    def __init__(self, builder: ClusterBuilder, *, graceful: bool = False, late: int = 0) -> None:
        super().__init__(builder, graceful=graceful, late=late)
        self.writes: list[str] = []
        made = {f"{NAMESPACE}/x{gpus}": _claim_template(gpus) for gpus in (1, 2, 4, 8)}
        self._rest = replace(self._rest, templates=made)

    def submit_held(
        self, name: str, *, queue: str, pods: int = 1, gpus: int = 1, priority: int = 0, **template_more: Any
    ) -> None:
        """Create a Job as a user whose queue holds workloads finds it: suspended, and marked."""
        self.made[name] = {"queue": queue, "pods": pods, "gpus": gpus}
        self.priorities[name] = priority
        created = {"creationTimestamp": self.now.isoformat(), "annotations": {names.HELD: Held.WAITING}}
        body = {
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"job-{name}", **created},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "suspend": True,
                "template": template(queue, gpus, priority=priority, **template_more),
            },
        }
        self._jobs[Uid(f"job-{name}")] = jobs.decode(body)

    def job(self, name: str) -> Job:
        return self._jobs[Uid(f"job-{name}")]

    def set_job(self, name: str, **changes: Any) -> None:
        self._jobs[Uid(f"job-{name}")] = replace(self.job(name), **changes)

    def pods_of(self, name: str) -> list[Pod]:
        return [pod for pod in self._pods.values() if pod.meta.name.rpartition("-")[0] == name]

    async def hold(self, workload: Suspendable) -> None:
        self.writes.append(f"hold {workload.meta.name}")
        job = self._jobs.get(workload.meta.uid)
        going = self.pods_of(job.meta.name) if job is not None else []
        self._end([pod for pod in going if not pod.finished])
        left = {pod.meta.uid: self._pods.pop(pod.meta.uid) for pod in going if pod.meta.uid in self._pods}
        await super().hold(workload)
        self._pods |= left

    async def start(self, workload: Suspendable) -> None:
        self.writes.append(f"start {workload.meta.name}")
        await super().start(workload)


def _claim_template(gpus: int) -> claims.ClaimTemplate:
    made = claim_manifest(f"x{gpus}", gpus, owner="-")
    meta = {"name": f"x{gpus}", "namespace": NAMESPACE, "uid": f"template-x{gpus}"}
    return claims.decode_template({"metadata": meta, "spec": {"spec": made["spec"]}})


def a_play(builder: ClusterBuilder, *, graceful: bool = False) -> tuple[HeldJobs, Play]:
    cluster = HeldJobs(builder, graceful=graceful)
    cluster.now = NOON
    return cluster, Play(cluster, in_memory.Ledger())
