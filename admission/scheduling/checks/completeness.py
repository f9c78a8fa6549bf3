"""The completeness of a gang: all of its pods exist, and agree about queue, size and topology.

An incomplete gang waits for ever, since it cannot be known that it will never be complete. Its hold names what is
missing and where its size is declared.
"""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, DenyReason, Detail, Hold, HoldReason
from admission.podpolicy import queue_selection
from admission.workloads import gang_key, pod_replacement, topology
from admission.workloads.gang_key import LARGEST_SIZE, UNKNOWN_SIZE
from admission.workloads.gangs import Group
from admission.workloads.kinds import labels


def hold(group: Group, snapshot: Snapshot, start_timeout: timedelta) -> Hold | None:
    """Hold a gang that has not started until all of its pods exist; late pods of a started one join it.

    start_timeout: how long their controller may take to create them, until they are reported as overdue.
    """
    present, size, wanted = len(group.waiting), group.identity.needed, group.still_needed
    if group.started or (present >= wanted and size != UNKNOWN_SIZE):
        return None
    if size == UNKNOWN_SIZE:
        return Hold(HoldReason.GANG_INCOMPLETE, _unknown(group, snapshot), {"pods": present})
    due = min((pod.meta.created for pod in group.waiting), default=group.first_queued) + start_timeout
    details: dict[str, Detail] = {"pods": present, "size": wanted, "missing": wanted - present, "due": _time(due)}
    message = f"{present} of {wanted} pods exist; the gang starts with all of them"
    if group.identity.elastic:
        message = f"{present} of {group.identity.size} pods exist; the gang starts with {wanted}"
    where = _where(group)
    if size > LARGEST_SIZE:
        message = f"{where} makes it {size} pods, and a gang has at most {LARGEST_SIZE}; write a smaller number"
    elif where:
        message = f"{message} ({where} says how many)"
    if size <= LARGEST_SIZE:
        message = f"{message}; {wanted - present} missing, due by {_time(due)} (startTimeout of the queue)"
    return Hold(HoldReason.GANG_INCOMPLETE, message, details)


def denial(group: Group, queue: Queue) -> Denial | None:
    """Refuse a gang whose pods name different queues, sizes or topologies, or a priority class that there is not."""
    queues = sorted({pod.queue for pod in group.pods})
    if len(queues) > 1:
        message = f"its pods name the queues {', '.join(queues)}; give all of them the same label {names.QUEUE}"
        return Denial(DenyReason.POLICY_VIOLATION, message, {"queues": queues})
    return _name(group) or _groupings(group) or _sizes(group) or topology.denial(group) or _priority_class(group, queue)


def _priority_class(group: Group, queue: Queue) -> Denial | None:
    """Refuse what the webhook refuses of a pod; its queue may have had the class then."""
    for pod in group.pods:
        named = labels.setting(pod, names.PRIORITY_CLASS)
        denial = queue_selection.refuse_priority_class(named, queue) if named else None
        if denial is not None:
            return replace(denial, message=f"pod {pod.meta.key}: {denial.message}")
    return None


def _name(group: Group) -> Denial | None:
    """Refuse a gang with the name of a workload's gang: both would have the same Gang object."""
    record = group.record
    if group.identity.workload is not None or record is None or record.written_by_user or record.workload is None:
        return None
    owner = record.workload
    message = (
        f"{group.identity.name} is what the gang of {owner.kind} {owner.name} is called; give this one another name"
    )
    return Denial(DenyReason.POLICY_VIOLATION, message, {"gang": group.identity.name})


def _groupings(group: Group) -> Denial | None:
    """Refuse a group of another system whose pods declare different sizes."""
    grouping = group.identity.grouping
    if grouping is None:
        return None
    sizes = sorted({size for pod in group.pods if (size := grouping.size(pod))})
    if len(sizes) < 2:
        return None
    sizes_text = ", ".join(map(str, sizes))
    message = f"its pods say different sizes ({sizes_text}); give all of them the same {grouping.size_key}"
    return Denial(DenyReason.POLICY_VIOLATION, message, {"sizes": sizes_text})


def _sizes(group: Group) -> Denial | None:
    if group.record is not None and group.record.written_by_user:
        return None
    return _consistent(group, names.GANG_SIZE, "sizes") or _consistent(group, names.GANG_MIN, "least sizes")


def _consistent(group: Group, key: str, what: str) -> Denial | None:
    """Refuse pods with different numbers under a key, or with something that is no number."""
    for pod in group.pods:
        value = labels.setting(pod, key)
        if value and not gang_key.size_in(value):
            shown = labels.shortened(value, LONGEST_SHOWN)
            message = f"pod {pod.meta.name}: {key} is {shown!r}; write a whole number from 1 to {LARGEST_SIZE}"
            return Denial(DenyReason.MALFORMED_REQUEST, message, {"pod": pod.meta.name})
    sizes = sorted({gang_key.size_in(labels.setting(pod, key)) for pod in group.pods})
    if len(sizes) > 1:
        sizes_text = ", ".join(str(size) if size else "none" for size in sizes)
        message = f"its pods say different {what} ({sizes_text}); give all of them the same {key}"
        return Denial(DenyReason.POLICY_VIOLATION, message, {"sizes": sizes_text})
    return None


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


LONGEST_SHOWN = 40
"""The most characters shown of a text that should be a number."""


def _unknown(group: Group, snapshot: Snapshot) -> str:
    if group.identity.unknown:
        return group.identity.unknown
    owner = group.identity.workload
    if owner is None:
        unread = snapshot.malformed.get(("Gang", group.key))
        if unread is not None:
            return f"nobody can say how large gang {group.identity.name} is: {unread}; mend it"
        return (
            f"nobody has said how large gang {group.identity.name} is; annotate its pods with {names.GANG_SIZE}, "
            "or write a Gang of that name with spec.size"
        )
    unread = snapshot.malformed.get((owner.kind, f"{group.identity.namespace}/{owner.name}"))
    if unread is not None:
        return f"nobody can say how large the gang is: {unread}; mend it"
    return f"{owner.kind} {owner.name}, which makes the pods, is not seen yet"


def _where(group: Group) -> str:
    """Return which field of which object declares the gang's size; empty for a single pod."""
    identity, record = group.identity, group.record
    if identity.size_source:
        return identity.size_source if identity.needed > 1 else ""
    if identity.workload is None:
        if record is not None and record.written_by_user and record.size:
            return f"spec.size of Gang {group.key}"
        return f"{names.GANG_SIZE} of its pods"
    if any(gang_key.declared_size(pod) for pod in group.pods):
        return f"{names.GANG_SIZE} of its pods"
    return f"spec.parallelism of {identity.workload.kind} {identity.workload.name}" if identity.needed > 1 else ""


def entered(group: Group, snapshot: Snapshot) -> Queue | Hold | Denial:
    """Return the gang's queue if it exists and is open to the namespace of every pending pod.

    The webhook checks that as well, but labels of namespaces and queues may change, and while Muster is down a pod is
    admitted with any queue.
    """
    queue = snapshot.queues.get(group.queue)
    if queue is None:
        return _no_queue(group.queue, snapshot)
    namespaces = dict.fromkeys(pod.meta.namespace for pod in group.waiting)
    denials = (queue_selection.refuse_namespace(queue, namespace, snapshot) for namespace in namespaces)
    return next((denial for denial in denials if denial is not None), queue)


def _no_queue(queue: QueueName, snapshot: Snapshot) -> Hold:
    """Return the hold for gangs of a queue that does not exist or cannot be read."""
    malformed = snapshot.malformed.get(("Queue", queue))
    if malformed is not None:
        return Hold(HoldReason.QUEUE_INACTIVE, str(malformed), {"queue": queue})
    message = f"queue {queue} does not exist any more; create it, or delete the pods and name another"
    return Hold(HoldReason.QUEUE_INACTIVE, message, {"queue": queue})


def not_replaced(group: Group) -> Hold | None:
    """Hold the pods of a resumed workload until all that were expected exist; their places are kept."""
    kept = len(pod_replacement.expected(group))
    if not kept:
        return None
    present = len(group.waiting)
    message = (
        f"{present} of {kept} pods and their claims exist since their workload was resumed;"
        " their places are kept for them"
    )
    return Hold(HoldReason.GANG_INCOMPLETE, message, {"pods": present, "size": kept})


def gated(group: Group) -> Hold | None:
    """Hold the gang for the first pod with a scheduling gate of others.

    Pods that do not exist yet are not held for it: nobody can open their gates before.
    """
    for pod in group.waiting:
        if pod.other_gates and not names.is_expected(pod.meta.uid):
            gate = pod.other_gates[0]
            message = (
                f"pod {pod.meta.name} has the scheduling gate {gate}, which Muster does not open: whoever set it has to"
            )
            return Hold(HoldReason.SCHEDULING_GATED, message, {"pod": pod.meta.name, "gate": gate})
    return None
