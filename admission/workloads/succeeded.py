"""How many pods of a gang have succeeded and will not be replaced: these are not waited for.

A batch Job reports that itself: its ended pods may be gone, with their nodes for one, and an index that has failed for
good has no pod any more. For other makers, succeeded pods are counted. Pods that are being deleted as well only ended
on their way out: they are replaced, as after a suspension.
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


def over(identity: Identity, alive: Sequence[Pod], ended: Sequence[Pod], jobs: Mapping[Uid, Job]) -> int:
    """Return how many of the pods that a gang needs are done. alive: those that have not ended.

    Of a gang that names alone make, Jobs of which no pod is alive may be of an earlier one of that name. The gang of a
    batch Job needs no more than that has left.
    """
    is_named = bool(identity.named_by) or identity.grouping is not None
    if identity.needed == UNKNOWN_SIZE or not (identity.counts_ended or is_named):
        return 0
    succeeded = Counter(_maker(pod) for pod in ended if pod.phase == "Succeeded")
    makers = dict.fromkeys(map(_maker, (*alive, *ended) if identity.counts_ended else alive))
    known = {uid: job for uid in makers if (job := jobs.get(uid)) and job.meta.namespace == identity.namespace}
    done = sum(_done(job, succeeded[uid], identity.parts.get(jobset.role(job))) for uid, job in known.items())
    if not identity.counts_ended:
        return done
    lonely = sum(pod.phase == "Succeeded" and not pod.meta.deleted for pod in ended if _maker(pod) not in known)
    return done + lonely + _unseen(identity, known.values())


def _maker(pod: Pod) -> Uid:
    return pod.meta.controller.uid if pod.meta.controller is not None else Uid("")


def _done(job: Job, seen: int, part: Part | None) -> int:
    """Return how many fewer pods a Job runs than at first. seen: pods that have succeeded; it may not count all yet.

    Without completions none of these has another in its stead, and what the Job says is left fits its own count alone.
    Where other pods of the Job are of another gang, it does not say which are done. part: what is of this one.
    """
    if part is not None and part.pods < job.together:
        return part.pods if job.finished else min(seen, part.pods)
    if job.completions is None:
        return min(max(job.together - job.left, seen), job.together)
    return job.together - max(replace(job, succeeded=max(job.succeeded, seen)).left, 0)


def _unseen(identity: Identity, known: Iterable[Job]) -> int:
    """Return the pods of Jobs that have succeeded, and of which no pod is there."""
    seen, done = Counter[str](), Counter[str]()
    for job in known:
        role = jobset.role(job)
        seen[role] += 1
        done[role] += job.finished
    return sum(
        part.pods * max(min(part.done - done[role], part.jobs - seen[role]), 0) for role, part in identity.parts.items()
    )
