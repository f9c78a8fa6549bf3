"""JobSet (jobset.x-k8s.io), and so TrainJob of Kubeflow Trainer, which makes its pods by way of a JobSet.

The Jobs of a JobSet are made together, unless it says otherwise: `startupPolicy` InOrder makes one ReplicatedJob after
the other, each when the one before is ready, and `dependsOn` makes one when others are ready or complete. Each of these
is a wave. With `exclusive-topology` the first pod of every Job comes first: JobSet's webhook lets the others in when it
is scheduled (`pkg/webhooks/pod_webhook.go`, ValidateCreate), so these are a wave of their own.

A restart of the whole JobSet makes all Jobs again, under the next `restart-attempt`
(`pkg/controllers/jobset_controller.go`, reconcileReplicatedJobs and constructJob, v0.12).
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from admission.api.kubernetes import active_deadline
from admission.api.kubernetes.jobs import Job, PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent, Part
from admission.api.kubernetes.pods import Pod
from admission.api.values import names
from admission.api.values.decoding import Reader
from admission.workloads.kinds.registry import Link, Member, Shape, WorkloadKind, at_a_time, wave, waves

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""Beside the former: nodes are labelled beforehand, and no pod waits for another one."""

INDEX = "batch.kubernetes.io/job-completion-index"
FOLLOWERS = ".followers"
"""Ends the role of all but the first pods of Jobs; no ReplicatedJob can be called so."""


def read(reader: Reader, meta: Meta) -> Shape:
    """Return the waves of a JobSet, each named after its first ReplicatedJob, but for the first wave."""
    found = list(_parts(reader, meta))
    pods, roles = waves((role, waits_for, part.jobs * part.pods) for role, waits_for, part in found)
    parts: dict[str, dict[str, Part]] = {name: {} for name in pods}
    for role, _, part in found:
        parts[roles[role]][role.removesuffix(FOLLOWERS)] = part
    return {name: replace(wave(count), parts=parts[name]) for name, count in pods.items()}, roles


def _parts(reader: Reader, meta: Meta) -> Iterator[tuple[str, Hashable, Part]]:
    """Yield each role, what it waits for, and its Jobs."""
    spec, done = reader.child("spec"), _done(reader)
    in_order = spec.child("startupPolicy").text("startupPolicyOrder") == "InOrder"
    for number, job in enumerate(spec.children("replicatedJobs")):
        name, waits_for = job.required("name"), number if in_order else _waits_for(job)
        first, at_once = _first(job, meta), at_a_time(_spec(job))
        jobs, ended = job.integer("replicas", 1), done.get(name, 0)
        yield name, waits_for, Part(jobs=jobs, pods=first, done=ended)
        if first < at_once:
            yield f"{name}{FOLLOWERS}", (waits_for, FOLLOWERS), Part(jobs=jobs, pods=at_once - first, done=ended)


def _first(job: Reader, meta: Meta) -> int:
    """Return how many pods of a Job come before any of it is scheduled."""
    own = job.child("template").child("metadata").pairs("annotations")
    exclusive = [annotations for annotations in (meta.annotations, own) if EXCLUSIVE in annotations]
    by_leader = exclusive and not any(NODE_SELECTOR in annotations for annotations in exclusive)
    at_once = at_a_time(_spec(job))
    return min(at_once, 1) if by_leader else at_once


def _done(reader: Reader) -> dict[str, int]:
    """Return how many Jobs have succeeded of each ReplicatedJob, in the try that goes on."""
    known = reader.child("status").children("replicatedJobsStatus")
    return {one.text("name"): one.integer("succeeded") for one in known}


def _waits_for(job: Reader) -> Hashable:
    return tuple((other.text("name"), other.text("status")) for other in job.children("dependsOn"))


def _spec(job: Reader) -> Reader:
    return job.child("template").child("spec")


def templates(reader: Reader, meta: Meta) -> Iterator[PodTemplate]:
    """Yield the templates of the first wave of a JobSet that is not done, as of its next try.

    Jobs that have succeeded are not made again when a JobSet goes on that was suspended, so they are left out.
    """
    spec, done = reader.child("spec"), _done(reader)
    restarts = reader.child("status").integer("restarts")
    _, roles = read(reader, meta)
    left = [
        (number, job, jobs)
        for number, job in enumerate(spec.children("replicatedJobs"))
        if (jobs := job.integer("replicas", 1) - done.get(job.text("name"), 0)) > 0
    ]
    first = next((roles.get(job.text("name")) for _, job, _ in left), None)
    for number, job, jobs in left:
        name, at_once = job.text("name"), _first(job, meta)
        if roles.get(name) == first:
            yield PodTemplate(
                path=("spec", "replicatedJobs", number, "template", "spec", "template"),
                body=_spec(job).object("template"),
                pods=jobs * at_once,
                name=f"{meta.name}-{name}",
                labels={REPLICATED_JOB: name, RESTARTS: str(restarts)},
                counted={JOB_INDEX: max(at_once, 1)},
            )


def join(pod: Pod, links: Sequence[Link], parent: Parent) -> Member:
    """Return who a pod is by the Job that makes it, which the JobSet's controller labels, not by its own labels.

    Only pods that are expected of a JobSet come without a Job.
    """
    job = links[-1].found if links else None
    labels = job.meta.labels if isinstance(job, Job) else {}
    if names.is_expected(pod.meta.uid):
        labels = pod.meta.labels
    attempt, part = labels.get(RESTARTS, "0"), labels.get(REPLICATED_JOB, "")
    follows = f"{part}{FOLLOWERS}" in parent.roles and not names.is_expected(pod.meta.uid)
    return Member(
        uid=parent.meta.uid,
        name=parent.meta.name,
        role=f"{part}{FOLLOWERS}" if follows and pod.meta.annotations.get(INDEX) != "0" else part,
        attempt="" if attempt == "0" else attempt,
    )


def role(job: Job) -> str:
    """Return which ReplicatedJob of a JobSet a Job is of."""
    return job.meta.labels.get(REPLICATED_JOB, "")


def job(pod: Pod) -> str:
    """Return which Job of a JobSet a pod says it is of: its ReplicatedJob, and its number in that."""
    labels = pod.meta.labels
    return "-".join(labels[key] for key in (REPLICATED_JOB, JOB_INDEX) if labels.get(key))


KINDS = (
    WorkloadKind(
        kind="JobSet",
        group="jobset.x-k8s.io",
        versions=("v1alpha2",),
        plural="jobsets",
        read=read,
        join=join,
        fields="spec.replicatedJobs",
        suspend=("spec", "suspend"),
        deadline=("spec", "replicatedJobs", "template", "spec", active_deadline.FIELD),
        templates=templates,
    ),
)
