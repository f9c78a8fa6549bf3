"""Name conflicts: more pods than its declared size name a gang, and several objects make them.

A launcher and its workers may be made by several objects and be one gang; then there are as many pods as declared. With
more pods, it cannot be known which belong together, and any choice of that many would start parts of several gangs.
"""

from collections import Counter
from typing import NamedTuple

from admission.api.kubernetes.pods import Pod
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.reasons import Denial, DenyReason, Detail
from admission.workloads import gang_key
from admission.workloads.gangs import Group
from admission.workloads.kinds import labels
from admission.workloads.kinds.registry import kind_of

REPLICA_SET = "ReplicaSet.apps"
HASH = "pod-template-hash"
"""The suffix that a Deployment's controller gives a ReplicaSet's name; also a label of its pods."""

MOST_MAKERS = 4
"""The most makers in a message."""


class Maker(NamedTuple):
    """The controller of pods: an object, or none."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {labels.shortened(self.name)}" if self.kind else "no controller"


def denial(group: Group, snapshot: Snapshot) -> Denial | None:
    """Refuse a gang with too many pods of several makers; once it has started, only if pods of another maker wait."""
    size, key = group.identity.size, group.identity.named_by
    if not key or not size:
        return None
    expected = _expected(group, snapshot)
    total = expected.total()
    if len(expected) < 2 or total <= size:
        return None
    if group.started and not _has_unplaced_maker(group):
        return None
    makers = sorted(expected.items(), key=lambda item: (-item[1], item[0]))
    reported = ", ".join(f"{count} of {maker}" for maker, count in makers[:MOST_MAKERS])
    more = f" and {len(makers) - MOST_MAKERS} more" if len(makers) > MOST_MAKERS else ""
    message = (
        f"{total} pods name the gang {labels.shortened(group.identity.name)} ({reported}{more}), which has {size} by"
        f" {_size_source(group)}: if these are several gangs, give each a {key} of its own; if they are one, say"
        f" that it has {total} pods"
    )
    details: dict[str, Detail] = {"pods": total, "size": size, "makers": [str(maker) for maker, _ in makers]}
    return Denial(DenyReason.POLICY_VIOLATION, message, details)


def _size_source(group: Group) -> str:
    """Return the field that states the gang's size."""
    record, grouping = group.record, group.identity.grouping
    if grouping is not None:
        return f"{grouping.size_key} of its pods"
    if record is not None and record.written_by_user and record.size:
        return f"spec.size of Gang {group.key}"
    return f"{names.GANG_SIZE} of its pods"


def _expected(group: Group, snapshot: Snapshot) -> Counter[Maker]:
    """Return the pods of each maker that exist or are still to come: a Job does not create all its pods at once."""
    found, jobs = Counter[Maker](), dict[Maker, int]()
    for pod in group.pods:
        maker = _maker(pod)
        found[maker] += 1
        job = snapshot.jobs.get(pod.meta.controller.uid) if pod.meta.controller is not None else None
        if job is not None and job.meta.namespace == pod.meta.namespace:
            jobs[maker] = gang_key.remaining_pods(job)
    return found | Counter(jobs)


def _has_unplaced_maker(group: Group) -> bool:
    """Whether a pod waits whose maker has no placed pod."""
    waiting = {pod.meta.uid for pod in group.waiting}
    placed = {_maker(pod) for pod in group.pods if pod.meta.uid not in waiting}
    return any(_maker(pod) not in placed for pod in group.waiting)


def _maker(pod: Pod) -> Maker:
    """Return the controller of a pod; for a Deployment's ReplicaSet, the Deployment."""
    owner = pod.meta.controller
    if owner is None:
        return Maker("", "")
    suffix = f"-{pod.meta.labels.get(HASH, '')}"
    if kind_of(owner) == REPLICA_SET and len(suffix) > 1 and owner.name.endswith(suffix):
        return Maker("Deployment", owner.name.removesuffix(suffix))
    return Maker(owner.kind, owner.name)
