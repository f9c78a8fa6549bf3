"""Checks of a workload that makes pods, for problems that are no reason to refuse it."""

from collections.abc import Iterator

from admission.api.muster.queues import HoldAt
from admission.api.snapshot import Snapshot
from admission.api.validation.openapi import unknown_fields as validation
from admission.api.values.decoding import Json, Reader
from admission.api.values.names import QueueName
from admission.api.values.work_budget import Work, WorkBudget, values_in
from admission.objectpolicy import findings
from admission.objectpolicy.findings import ObjectFinding
from admission.podpolicy import workload_admission, workload_queue
from admission.podpolicy.queue_selection import Defaults
from admission.podpolicy.workload_queue import QueuedWorkload
from admission.workloads import suspendable, template_labels
from admission.workloads.kinds import registry
from admission.workloads.suspendable import Holdable


def check_write(
    kind: Holdable, obj: Json, *, namespace: str, snapshot: Snapshot, defaults: Defaults
) -> Iterator[ObjectFinding]:
    """Yield the findings about a workload. Raises MalformedObjectError and RetryError."""
    workload_view = workload_admission.decode(kind, obj, namespace)
    queue = workload_admission.queue_of(workload_view, snapshot, defaults)
    if queue is None or not any(registry.deadlines_at(Reader(obj), kind.deadline)):
        return
    if not suspendable.is_free(workload_view.meta.controller):
        return
    may_suspend = workload_view.may_suspend
    if may_suspend and queue.hold_at is HoldAt.WORKLOAD:
        return
    yield _deadline_runs_while_gated(kind, queue.name, may_suspend=may_suspend)


def unknown_fields(workload: QueuedWorkload, work: WorkBudget) -> Iterator[ObjectFinding]:
    """Yield the fields of pod templates that no Kubernetes has; none where reading them would take too much work.

    The API server has dropped such fields from objects of its own kinds, and from those of a CustomResourceDefinition
    that describes pods. What another one keeps as written is dropped when its controller makes the pods.
    """
    if workload.kind.is_native:
        return
    for place, _ in workload.places:
        body = place.reader.value
        if place.path.is_pod_template and work.affords(Work.VALUE, values_in(body)):
            path = template_labels.field_of(place.base)
            yield from findings.uncertain(validation.of_pod_template(body, path))


def unknown_priority_classes(
    workload: QueuedWorkload, snapshot: Snapshot, defaults: Defaults
) -> Iterator[ObjectFinding]:
    """Yield warnings of labels that name a priority class which the queue does not have. Raises RetryError."""
    for field, message in workload_queue.unknown_classes(workload, snapshot, defaults):
        yield ObjectFinding(field=field, message=message)


def _deadline_runs_while_gated(kind: Holdable, queue: QueueName, *, may_suspend: bool) -> ObjectFinding:
    """Return a warning: the workload's deadline counts while its pods are gated (`pkg/controller/job`, v1.37)."""
    field = ".".join(kind.deadline)
    alternative = f"have queue {queue} hold workloads as a whole (holdAt: Workload), or " if may_suspend else ""
    message = (
        f"counts from when the {kind.kind} starts, and after that its pods wait at their gates in queue {queue}:"
        f" waiting alone may end it; {alternative}write the deadline on the pods, where it counts from when they run"
    )
    return ObjectFinding(field=field, message=message)
