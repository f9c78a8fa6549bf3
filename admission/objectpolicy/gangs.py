"""Checks of a Gang that a user creates, and of what a user asks of one. Its pods are judged when they are created."""

from collections.abc import Iterator

from admission.api.muster.gang_requests import Action
from admission.api.muster.gangs import Gang
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.reasons import DenyReason
from admission.objectpolicy.findings import ObjectFinding
from admission.podpolicy import annotations, queue_selection
from admission.podpolicy.pod_view import PodView
from admission.podpolicy.queue_selection import Defaults
from admission.workloads.kinds import labels


def check_request(gang: Gang, before: Gang | None, snapshot: Snapshot, username: str) -> Iterator[ObjectFinding]:
    """Yield the findings about a new request (`spec.request`): its author, and a priority class of the queue.

    before: the stored gang, for an update. username: who writes.
    """
    request = gang.request
    if request is None or (before is not None and before.request == request):
        return
    if request.by != username:
        shown = labels.shortened(request.by)
        message = f"is {shown!r}, but {username or 'an unknown user'} asks; write the name of who asks"
        yield ObjectFinding(field="spec.request.by", message=message, denied=DenyReason.POLICY_VIOLATION)
    queue = snapshot.queues.get(gang.queue)
    if request.action is Action.PRIORITIZE and queue is not None:
        denial = queue_selection.refuse_priority_class(request.priority_class, queue, "it")
        if denial is not None:
            yield ObjectFinding(field="spec.request.priorityClass", message=denial.message, denied=denial.reason)


def check_write(gang: Gang, snapshot: Snapshot, namespace: str) -> Iterator[ObjectFinding]:
    """Yield the findings about a new gang. Raises RetryError for a namespace that has not been seen yet."""
    if len(gang.meta.name) > annotations.LONGEST_GANG:
        message = (
            f"has more than {annotations.LONGEST_GANG} characters, so no pod can name it in the label {names.GANG}"
        )
        yield ObjectFinding(field="metadata.name", message=message, denied=DenyReason.MALFORMED_REQUEST)
    pod_view = PodView(namespace=namespace, labels={names.QUEUE: gang.queue})
    selection = queue_selection.select_queue(pod_view, snapshot, Defaults((), snapshot.namespaces))
    if selection.denial is not None:
        unknown = selection.denial.reason is DenyReason.UNKNOWN_QUEUE
        denied = None if unknown else selection.denial.reason
        yield ObjectFinding(field="spec.queue", message=selection.denial.message, denied=denied)
    elif selection.queue is not None and selection.queue.meta.deleted is not None:
        message = f"queue {gang.queue} is being deleted and takes no new gangs; name another one"
        yield ObjectFinding(field="spec.queue", message=message)
