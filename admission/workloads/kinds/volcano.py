"""Job of Volcano (batch.volcano.sh): its tasks are created together, and it starts with `minAvailable` of its pods.

A task that `dependsOn` others is created when these run, and is a wave of its own
(`pkg/controllers/job/job_controller_actions.go`, v1.12).
"""

from collections.abc import Sequence

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import Parent
from admission.api.kubernetes.pods import Pod
from admission.api.values.decoding import Reader
from admission.workloads.kinds.registry import Link, Member, Shape, WorkloadKind, wave, waves

TASK = "volcano.sh/task-spec"


def read(reader: Reader, _meta: Meta) -> Shape:
    """Return the waves of a Job; all but the first are named after their first task."""
    spec = reader.child("spec")
    pods, roles = waves(
        (task.required("name"), task.child("dependsOn").texts("name"), task.integer("replicas", 1))
        for task in spec.children("tasks")
    )
    if len(pods) == 1 and "minAvailable" in spec:
        return {name: wave(count, min(spec.integer("minAvailable"), count)) for name, count in pods.items()}, roles
    return {name: wave(count) for name, count in pods.items()}, roles


def join(pod: Pod, _links: Sequence[Link], parent: Parent) -> Member:
    """Return a pod's role: the task in its annotation."""
    return Member(uid=parent.meta.uid, name=parent.meta.name, role=pod.meta.annotations.get(TASK, ""))


KINDS = (
    WorkloadKind(
        kind="Job",
        group="batch.volcano.sh",
        versions=("v1alpha1",),
        plural="jobs",
        read=read,
        join=join,
        fields="spec.tasks",
    ),
)
