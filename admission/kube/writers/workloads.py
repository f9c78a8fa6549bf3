"""Suspension and resumption of workloads: the real `ports.Workloads`.

A suspended Job deletes its active pods and counts none of them as failed (batch/v1, JobSpec.suspend). Evicted pods
count against backoffLimit, so that with the default of 6 a Job of seven evicted pods would fail at once.
"""

from typing import Any

import structlog

from admission.api.kubernetes.jobs import Job, Suspendable
from admission.api.values import names
from admission.api.values.names import Held
from admission.errors import GoneError
from admission.kube.client import paths
from admission.kube.client.connection import Connection, PatchKind

log = structlog.get_logger(__name__)


class WorkloadWriter:
    """Suspends and resumes workloads. Writes name the UID, so they never affect a later object of the same name."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def suspend(self, job: Job) -> None:
        """Suspend a Job, marked for Muster to resume. Raises GoneError, ConflictError when another has its name."""
        log.info("suspend the Job to take its pods back", job=job.meta.key, uid=job.meta.uid)
        await self._patch(job, suspend=True, mark="true")

    async def resume(self, job: Job) -> None:
        """Resume a Job and remove the mark. A no-op when it is gone."""
        log.info("resume the Job", job=job.meta.key, uid=job.meta.uid)
        try:
            await self._patch(job, suspend=False, mark=None)
        except GoneError:
            log.debug("the Job to resume is gone", job=job.meta.key)

    async def hold(self, workload: Suspendable) -> None:
        """Suspend a workload, and mark it as held. Raises GoneError, ConflictError when another has its name."""
        log.info("hold the workload", workload=workload.meta.key, kind=workload.plural, uid=workload.meta.uid)
        await self._put(workload, Held.WAITING, suspend=True)

    async def start(self, workload: Suspendable) -> None:
        """Resume a workload, and mark it as started. Raises as `hold`."""
        log.info("resume the workload", workload=workload.meta.key, kind=workload.plural, uid=workload.meta.uid)
        await self._put(workload, Held.STARTED, suspend=False)

    async def _put(self, workload: Suspendable, mark: Held, *, suspend: bool) -> None:
        """Write in the first version of the kind that the API server serves."""
        value: Any = suspend
        for name in reversed(workload.suspend):
            value = {name: value}
        meta = workload.meta
        body = {"metadata": {"uid": meta.uid, "annotations": {names.HELD: mark}}, **value}
        for number, version in enumerate(workload.versions, 1):
            path = paths.within(f"/apis/{workload.group}/{version}", meta.namespace, workload.plural, meta.name)
            try:
                await self._connection.patch(path, body, PatchKind.MERGE)
            except GoneError:
                if number == len(workload.versions):
                    raise
            else:
                return

    async def _patch(self, job: Job, *, suspend: bool, mark: str | None) -> None:
        body: dict[str, Any] = {
            "metadata": {"uid": job.meta.uid, "annotations": {names.REQUEUED: mark}},
            "spec": {"suspend": suspend},
        }
        path = paths.within("/apis/batch/v1", job.meta.namespace, "jobs", job.meta.name)
        await self._connection.patch(path, body, PatchKind.MERGE)
