"""The pods of a gang that have succeeded and will not be replaced, so that the gang does not wait for them.

A batch Job reports their number itself: ended pods may have been deleted, with their nodes for example, and an index
that has failed for good has no pod any more. For other owners, succeeded pods are counted. Pods that are also being
deleted ended because of that: they are replaced, as after a suspension.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from admission.api.kubernetes.jobs import Job
from admission.api.kubernetes.owners import Part
from admission.api.kubernetes.pods import Pod
from admission.api.values.names import Uid
from admission.workloads.gang_key import UNKNOWN_SIZE, Identity
from admission.workloads.kinds import jobset


def done_count(identity: Identity, alive: Sequence[Pod], ended: Sequence[Pod], jobs: Mapping[Uid, Job]) -> int:
    """Return how many of the pods that a gang needs are done. alive: its unfinished pods.

    In a gang formed by names alone, Jobs without a living pod may belong to an earlier gang of that name, so they do
    not count. A batch Job's gang has its remaining number as `needed` already.
    """
    is_named = bool(identity.named_by) or identity.grouping is not None
    if identity.needed == UNKNOWN_SIZE or not (identity.counts_ended or is_named):
        return 0
    succeeded = Counter(_maker(pod) for pod in ended if pod.phase == "Succeeded")
    makers = dict.fromkeys(map(_maker, (*alive, *ended) if identity.counts_ended else alive))
    jobs_by_uid = {uid: job for uid in makers if (job := jobs.get(uid)) and job.meta.namespace == identity.namespace}
    done = sum(
        _done_of_job(job, succeeded[uid], identity.parts.get(jobset.role(job))) for uid, job in jobs_by_uid.items()
    )
    if not identity.counts_ended:
        return done
    without_job = sum(
        pod.phase == "Succeeded" and not pod.meta.deleted for pod in ended if _maker(pod) not in jobs_by_uid
    )
    return done + without_job + _done_without_pods(identity, jobs_by_uid.values())


def _maker(pod: Pod) -> Uid:
    return pod.meta.controller.uid if pod.meta.controller is not None else Uid("")


def _done_of_job(job: Job, seen: int, part: Part | None) -> int:
    """Return how many fewer pods a Job runs than at first. seen: its succeeded pods; its status may count fewer.

    Without completions, succeeded pods are not replaced, and the Job's remaining number is consistent with its own
    count only. If other pods of the Job are in another gang, its status does not tell which are done. part: the Job's
    pods in this gang.
    """
    if part is not None and part.pods < job.initial_pods:
        return part.pods if job.finished else min(seen, part.pods)
    if job.completions is None:
        return min(max(job.initial_pods - job.remaining_pods, seen), job.initial_pods)
    return job.initial_pods - replace(job, succeeded=max(job.succeeded, seen)).remaining_pods


def _done_without_pods(identity: Identity, seen_jobs: Iterable[Job]) -> int:
    """Return the number of pods of succeeded Jobs that have no pod left."""
    seen, done = Counter[str](), Counter[str]()
    for job in seen_jobs:
        role = jobset.role(job)
        seen[role] += 1
        done[role] += job.finished
    return sum(
        part.pods * max(min(part.done - done[role], part.jobs - seen[role]), 0) for role, part in identity.parts.items()
    )
