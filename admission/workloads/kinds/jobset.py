"""JobSet (jobset.x-k8s.io), and with it TrainJob of Kubeflow Trainer, which makes its pods through a JobSet.

The Jobs of a JobSet are created together, with these exceptions. `startupPolicy` InOrder creates each ReplicatedJob
when the one before it is ready; `dependsOn` creates one when others are ready or complete. Each of these is a wave.
With `exclusive-topology` the first pod of every Job comes first: JobSet's webhook admits the others once it is
scheduled (`pkg/webhooks/pod_webhook.go`, ValidateCreate), so these are a wave of their own.

A restart of the whole JobSet creates all Jobs again, under the next `restart-attempt`
(`pkg/controllers/jobset_controller.go`, reconcileReplicatedJobs and constructJob, v0.12).
"""

import hashlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from typing import Any

from admission.api.kubernetes import active_deadline, jobs
from admission.api.kubernetes.jobs import INDEX, Job, PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent, Part
from admission.api.kubernetes.pods import Pod
from admission.api.scheduling import exclusive_domains, scheduling_rules
from admission.api.storage import claim_templates
from admission.api.values import names
from admission.api.values.decoding import Json, Reader
from admission.workloads.kinds import wave_templates
from admission.workloads.kinds.registry import (
    ExclusiveParts,
    Link,
    Member,
    Shape,
    WorkloadKind,
    parallel_pods,
    wave,
    waves,
)

JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_UID = "jobset.sigs.k8s.io/jobset-uid"
JOB_KEY = exclusive_domains.JOB_KEY
"""The label with the hash of a pod's Job, by which pods of one Job know each other."""

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
GLOBAL_INDEX = "jobset.sigs.k8s.io/job-global-index"
REPLICAS = "jobset.sigs.k8s.io/replicatedjob-replicas"
GLOBAL_REPLICAS = "jobset.sigs.k8s.io/global-replicas"
RESTARTS = "jobset.sigs.k8s.io/restart-attempt"
EXCLUSIVE = exclusive_domains.JOBSET_EXCLUSIVE
NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""Used together with EXCLUSIVE: nodes are labelled beforehand, and no pod waits for another one."""

NAMESPACED_JOB = "alpha.jobset.sigs.k8s.io/namespaced-job"
"""The label of such nodes, with the namespace and name of the Job whose pods they take."""

NO_SCHEDULE = "alpha.jobset.sigs.k8s.io/no-schedule"
"""The taint that such nodes may have."""

FOLLOWERS = ".followers"
"""The suffix of the role of all but the first pods of a Job; no ReplicatedJob's name can end in it."""


def read(reader: Reader, meta: Meta) -> Shape:
    """Return the waves of a JobSet; all but the first are named after their first ReplicatedJob."""
    found = list(_parts(reader, meta))
    pods, roles = waves((role, waits_for, part.jobs * part.pods) for role, waits_for, part in found)
    parts: dict[str, dict[str, Part]] = {name: {} for name in pods}
    for role, _, part in found:
        parts[roles[role]][role.removesuffix(FOLLOWERS)] = part
    return {name: replace(wave(count), parts=parts[name]) for name, count in pods.items()}, roles


def _parts(reader: Reader, meta: Meta) -> Iterator[tuple[str, Hashable, Part]]:
    """Yield each role, what it waits for, and its Jobs."""
    spec, succeeded = reader.child("spec"), _succeeded_jobs(reader)
    in_order = spec.child("startupPolicy").text("startupPolicyOrder") == "InOrder"
    for number, job in enumerate(spec.children("replicatedJobs")):
        name, waits_for = job.required("name"), number if in_order else _waits_for(job)
        (first_pods, _), parallelism = _first_pods(job, meta.annotations), parallel_pods(_spec(job))
        jobs, ended = job.integer("replicas", 1), succeeded.get(name, 0)
        yield name, waits_for, Part(jobs=jobs, pods=first_pods, done=ended)
        if first_pods < parallelism:
            yield (
                f"{name}{FOLLOWERS}",
                (waits_for, FOLLOWERS),
                Part(jobs=jobs, pods=parallelism - first_pods, done=ended),
            )


def _first_pods(job: Reader, of_set: Mapping[str, str]) -> tuple[int, str]:
    """Return how many pods of a Job are created before any of it is scheduled, and the label of its exclusive domain.

    Without a label it is not exclusive, or by labels that nodes were given beforehand. of_set: the set's annotations.
    """
    exclusive, parallelism = _exclusive(job, of_set), parallel_pods(_spec(job))
    by_leader = exclusive and not _has_own_nodes(job, of_set)
    return (min(parallelism, 1), exclusive[0][EXCLUSIVE]) if by_leader else (parallelism, "")


def _exclusive(job: Reader, of_set: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Return the annotations, of the Job and of its set, that make it exclusive."""
    of_job = job.child("template").child("metadata").pairs("annotations")
    return [annotations for annotations in (of_job, of_set) if EXCLUSIVE in annotations]


def _has_own_nodes(job: Reader, of_set: Mapping[str, str]) -> bool:
    """Return whether the pods of a Job ask for nodes that were labelled for it."""
    return any(NODE_SELECTOR in annotations for annotations in _exclusive(job, of_set))


def on_own_nodes(spec: Json, namespace: str, job: str) -> dict[str, Any]:
    """Return a pod's spec with what JobSet adds for nodes of its Job's own (addNodeSelector, addTaintToleration)."""
    toleration = {"key": NO_SCHEDULE, "operator": "Exists", "effect": "NoSchedule"}
    return {
        **spec,
        "nodeSelector": {**Reader(spec).object("nodeSelector"), NAMESPACED_JOB: f"{namespace}_{job}"},
        "tolerations": [*Reader(spec).objects("tolerations"), toleration],
    }


def exclusive_affinity(topology: str, key: str) -> dict[str, Any]:
    """Return the affinity that JobSet's webhook gives to the first pod of an exclusive Job (setExclusiveAffinities).

    topology: the label of nodes. key: the value of JOB_KEY for the Job.
    """
    own, others = ({"key": JOB_KEY, "operator": operator, "values": [key]} for operator in ("In", "NotIn"))
    any_job = {"key": JOB_KEY, "operator": "Exists"}

    def term(*expressions: dict[str, Any]) -> dict[str, Any]:
        selector = {"matchExpressions": list(expressions)}
        required = {"topologyKey": topology, "namespaceSelector": {}, "labelSelector": selector}
        return {scheduling_rules.REQUIRED: [required]}

    return {"podAffinity": term(own), "podAntiAffinity": term(any_job, others)}


def job_key(namespace: str, job: str) -> str:
    """Return the value of JOB_KEY for a Job (jobHashKey)."""
    return hashlib.sha1(f"{namespace}/{job}".encode(), usedforsecurity=False).hexdigest()


def job_labels(namespace: str, job: str) -> dict[str, str]:
    """Return the labels of a Job's pods that name it. It does not exist yet, so its UID is not known."""
    key = job_key(namespace, job)
    return {JOB_KEY: key, **jobs.pod_labels(job, names.unknown_label(key))}


def _succeeded_jobs(reader: Reader) -> dict[str, int]:
    """Return how many Jobs of each ReplicatedJob have succeeded in the present attempt."""
    statuses = reader.child("status").children("replicatedJobsStatus")
    return {one.text("name"): one.integer("succeeded") for one in statuses}


def _waits_for(job: Reader) -> tuple[tuple[str, str], ...]:
    return tuple((other.text("name"), other.text("status")) for other in job.children("dependsOn"))


def _spec(job: Reader) -> Reader:
    return job.child("template").child("spec")


def _is_indexed(job: Reader) -> bool:
    """Whether the Jobs of a ReplicatedJob are Indexed, as JobSet's webhook sets them where they do not say."""
    return _spec(job).text("completionMode", "Indexed") == "Indexed"


def templates(reader: Reader, meta: Meta) -> Iterator[PodTemplate]:
    """Yield the templates of the first unfinished wave of a JobSet, for its next attempt.

    A suspended JobSet does not create its succeeded Jobs again when it is resumed, so they are left out.
    """
    spec, succeeded = reader.child("spec"), _succeeded_jobs(reader)
    restarts = reader.child("status").integer("restarts")
    _, roles = read(reader, meta)
    claims = {claim_templates.name(one): name for name, one in volume_claims(reader, meta)}
    replicas = [job.integer("replicas", 1) for job in spec.children("replicatedJobs")]
    unfinished = [
        (number, job, left)
        for number, job in enumerate(spec.children("replicatedJobs"))
        if (left := replicas[number] - succeeded.get(job.text("name"), 0)) > 0
    ]
    first = next((roles.get(job.text("name")) for _, job, _ in unfinished), None)
    for number, job, left in unfinished:
        name, (first_pods, topology) = job.text("name"), _first_pods(job, meta.annotations)
        if roles.get(name) == first:
            per_job = max(first_pods, 1)
            yield PodTemplate(
                path=("spec", "replicatedJobs", number, "template", "spec", "template"),
                body=claim_templates.with_mounted(_spec(job).object("template"), claims),
                pods=left * first_pods,
                name=f"{meta.name}-{name}",
                labels={
                    JOBSET_NAME: meta.name,
                    JOBSET_UID: meta.uid,
                    REPLICATED_JOB: name,
                    RESTARTS: str(restarts),
                    REPLICAS: str(replicas[number]),
                    GLOBAL_REPLICAS: str(sum(replicas)),
                },
                part_labels={JOB_INDEX: per_job, GLOBAL_INDEX: per_job},
                first_parts={GLOBAL_INDEX: sum(replicas[:number])},
                index_labels={INDEX: per_job} if _is_indexed(job) else {},
                exclusive=topology,
                has_own_nodes=_has_own_nodes(job, meta.annotations),
            )


def volume_claims(reader: Reader, meta: Meta) -> Iterator[tuple[str, Json]]:
    """Yield the name and template of each PersistentVolumeClaim that a JobSet makes, suspended or not.

    All pods share it that mount it (`pkg/controllers/volume_claim_policy.go`, v0.12; since v0.11).
    """
    for policy in islice(reader.child("spec").children("volumeClaimPolicies"), claim_templates.MOST):
        for template in claim_templates.listed(policy, "templates"):
            yield f"{claim_templates.name(template)}-{meta.name}", template


def alone(obj: Json, roles: frozenset[str], running_roles: frozenset[str]) -> Json | None:
    """Return a JobSet with some of its ReplicatedJobs, which wait for nothing; None once all of the roles have ended.

    If the roles are of followers, all pods of these Jobs come at once, and may go anywhere: where they go is planned
    with the first pods. None as well where roles that are otherwise in different waves would be two gangs.
    """
    own, succeeded = {role.removesuffix(FOLLOWERS) for role in roles}, _succeeded_jobs(Reader(obj))
    jobs = [job for job in obj["spec"]["replicatedJobs"] if job.get("name") in own | running_roles]
    if not any(job["name"] in own and job.get("replicas", 1) > succeeded.get(job["name"], 0) for job in jobs):
        return None
    metadata, with_followers = obj["metadata"], any(role.endswith(FOLLOWERS) for role in roles)
    if running_roles or with_followers:
        if not wave_templates.are_of_one_gang(_spec(Reader(job)).object("template") for job in jobs):
            return None
        annotations = Reader(obj).child("metadata").pairs("annotations")
        jobs = [_beside_others(job, annotations, with_followers=with_followers) for job in jobs]
        metadata = _at_once(metadata) if with_followers else metadata
    jobs = [{name: part for name, part in job.items() if name != "dependsOn"} for job in jobs]
    spec = {name: part for name, part in obj["spec"].items() if name != "startupPolicy"}
    return {**obj, "metadata": metadata, "spec": {**spec, "replicatedJobs": jobs}}


def _beside_others(job: Json, of_set: Mapping[str, str], *, with_followers: bool) -> dict[str, Any]:
    """Return a ReplicatedJob whose pods may be in a gang with those of other waves."""
    reader = Reader(job)
    is_exclusive = bool(_first_pods(reader, of_set)[1])
    template, spec = dict(reader.object("template")), _spec(reader).value
    pods = wave_templates.as_part(_spec(reader).object("template"), "" if is_exclusive else reader.text("name"))
    if with_followers:
        template["metadata"] = _at_once(Reader(template).object("metadata"))
    return {**job, "template": {**template, "spec": {**spec, "template": pods}}}


def _at_once(metadata: Json) -> dict[str, Any]:
    """Return the metadata of a JobSet or its Jobs as it is where no pods follow others."""
    annotations = Reader(metadata).pairs("annotations")
    return {**metadata, "annotations": {key: text for key, text in annotations.items() if key != EXCLUSIVE}}


def running_roles(obj: Json, roles: Sequence[str]) -> tuple[str, ...]:
    """Return the ReplicatedJobs that run on beside a wave, since it waits for them to be ready and not to end."""
    spec = Reader(obj).child("spec")
    jobs = {job.text("name"): job for job in spec.children("replicatedJobs")}
    wave_jobs = {role.removesuffix(FOLLOWERS) for role in roles}
    if spec.child("startupPolicy").text("startupPolicyOrder") == "InOrder":
        return tuple(takewhile(lambda name: name not in wave_jobs, jobs))
    found, due = set[str](), [*wave_jobs]
    while due:
        waits_for = _waits_for(jobs[due.pop()])
        ready = {name for name, status in waits_for if status == "Ready" and name in jobs} - found
        found |= ready
        due += ready
    return tuple(name for name in jobs if name in found - wave_jobs)


def join(pod: Pod, links: Sequence[Link], parent: Parent) -> Member:
    """Return a pod's role by the labels of its Job, which the JobSet's controller writes, not by the pod's own.

    Only expected pods, which do not exist yet, have no Job.
    """
    job = links[-1].obj if links else None
    labels = job.meta.labels if isinstance(job, Job) else {}
    if names.is_expected(pod.meta.uid):
        labels = pod.meta.labels
    attempt, replicated_job = labels.get(RESTARTS, "0"), labels.get(REPLICATED_JOB, "")
    is_follower = f"{replicated_job}{FOLLOWERS}" in parent.roles and not names.is_expected(pod.meta.uid)
    return Member(
        uid=parent.meta.uid,
        name=parent.meta.name,
        role=f"{replicated_job}{FOLLOWERS}"
        if is_follower and pod.meta.annotations.get(INDEX) != "0"
        else replicated_job,
        attempt="" if attempt == "0" else attempt,
    )


def leads_others(pod: Pod, parent: Parent) -> bool:
    """Return whether a pod is the first one of an exclusive Job, whose others are made when it is scheduled."""
    followers = f"{pod.meta.labels.get(REPLICATED_JOB, '')}{FOLLOWERS}"
    return followers in parent.roles and pod.meta.annotations.get(INDEX) == "0"


def followers(parent: Parent, wave: str, _pod: Pod) -> dict[str, int]:
    """Return how many pods each Job makes once its first one is scheduled, by the ReplicatedJobs of a wave."""
    found: dict[str, int] = {}
    for name, other in parent.roles.items():
        first = name.removesuffix(FOLLOWERS)
        if name.endswith(FOLLOWERS) and parent.wave_of(first) == wave:
            found[first] = parent.waves[other].parts[first].pods
    return found


def role(job: Job) -> str:
    """Return the ReplicatedJob that a Job belongs to."""
    return job.meta.labels.get(REPLICATED_JOB, "")


def job(pod: Pod) -> str:
    """Return the Job that a pod's labels name: its ReplicatedJob, and its index there."""
    labels = pod.meta.labels
    return "-".join(labels[key] for key in (REPLICATED_JOB, JOB_INDEX) if labels.get(key))


EXCLUSIVE_JOBS = ExclusiveParts(
    label=JOB_KEY, index=INDEX, role=lambda pod: pod.meta.labels.get(REPLICATED_JOB, ""), name=job
)

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
        alone=alone,
        running_roles=running_roles,
        followers=followers,
        exclusive=EXCLUSIVE_JOBS,
    ),
)
