"""The webhook for workloads that queues hold as a whole: it suspends them at creation and keeps them suspended.

A workload that its author creates there unsuspended, or resumes after suspending it himself, is held: it is suspended
and marked, and the controller resumes it when its gang may start. What an author suspended himself, he may resume. Only
Muster resumes what it holds, or writes the mark, just as only Muster opens a gate; the gates remain behind all this.

A queue with `holdAt: Auto` holds what would most likely wait. What starts at once costs fewer requests with gates, and
what waits costs fewer as a whole. The queue of such a workload is fixed when it is created, held or not.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.api.kubernetes import meta
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import UNSERVED
from admission.api.muster.gangs import Gang, Phase
from admission.api.muster.queues import HoldAt, Queue, StopPolicy
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names, reasons
from admission.api.values.decoding import Json, Reader
from admission.api.values.json_patch import Operation, Patch
from admission.api.values.names import Held, QueueName
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import WorkBudget
from admission.podpolicy import admission, workload_queue
from admission.podpolicy.admission import Rules
from admission.podpolicy.queue_selection import Defaults
from admission.podpolicy.workload_queue import QueuedWorkload
from admission.workloads import suspendable, template_labels
from admission.workloads.kinds import registry
from admission.workloads.suspendable import Holdable


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """A workload at admission. obj: its whole JSON; meta: with the namespace of the request.

    queued: the queues that it names. may_suspend: whether its controller supports suspending it.
    """

    kind: Holdable
    obj: Json
    meta: Meta
    namespace: str
    suspended: bool
    queued: QueuedWorkload
    may_suspend: bool = True

    @property
    def held(self) -> Held | None:
        return suspendable.held(self.meta)

    @property
    def is_waiting(self) -> bool:
        """Whether Muster holds it."""
        return self.suspended and self.held is Held.WAITING


def decode(kind: Holdable, obj: Json | None, namespace: str, work: WorkBudget | None = None) -> WorkloadView:
    """Read a workload. work: is charged; None offline. Raises MalformedObjectError or TooMuchWorkError."""
    reader = Reader(obj)
    if "metadata" not in reader:
        reader.problem("metadata", "is required")
    queued = workload_queue.decode(template_labels.BY_RESOURCE[kind.group, kind.plural], obj, namespace, work)
    workload_meta = meta.decode(reader)
    suspended, may_suspend = registry.is_suspended(reader, kind.suspend), kind.may_suspend(reader)
    reader.finish(kind.kind, workload_meta.key)
    return WorkloadView(
        kind=kind,
        obj=obj or {},
        meta=workload_meta,
        namespace=namespace,
        suspended=suspended,
        queued=queued,
        may_suspend=may_suspend,
    )


def additions(
    workload_view: WorkloadView,
    snapshot: Snapshot,
    defaults: Defaults,
    *,
    username: str,
    lines: Container[QueueName] = frozenset(),
    before: WorkloadView | None = None,
) -> Patch:
    """Return the patch that holds a workload which is created, or which its author resumes. Raises RetryError.

    It also writes the queue that the workload names into its templates. lines: the queues in which gangs wait for their
    turn (`line_of`). before: the stored workload, for an update.
    """
    stored = None if before is None else before.queued
    named = workload_queue.additions(workload_view.queued, snapshot, defaults, before=stored)
    if not suspendable.is_free(workload_view.meta.controller):
        return named
    queue = queue_of(workload_view, snapshot, defaults)
    if before is not None:
        is_resumed = before.suspended and not workload_view.suspended and not before.is_waiting
        held_again = is_resumed and _is_held(workload_view, queue, snapshot, lines)
        return (*named, *_suspend(workload_view), *_annotate(workload_view, _HELD)) if held_again else named
    if queue is None or not _may_be_held(workload_view, queue, snapshot):
        return (*named, *_remove_mark(workload_view))
    # The template of a batch Job has its maker already.
    maker = {names.USER: username} if username and workload_view.kind is not suspendable.JOB else {}
    labels = workload_queue.label_templates(workload_view.queued, queue)  # a pod's queue is fixed at its creation
    if workload_view.is_waiting:
        return (*labels, *_annotate(workload_view, maker))  # marked already, by an earlier call of the webhook
    if workload_view.suspended or not _is_held(workload_view, queue, snapshot, lines):
        return (*labels, *_annotate(workload_view, maker), *_remove_mark(workload_view))
    return (*labels, *_suspend(workload_view), *_annotate(workload_view, {**maker, **_HELD}))


def judge(
    workload_view: WorkloadView,
    snapshot: Snapshot,
    defaults: Defaults,
    *,
    rules: Rules,
    username: str,
    before: WorkloadView | None = None,
) -> Denial | None:
    """Refuse to resume a held workload, and marks that are not Muster's. Raises RetryError."""
    if username == rules.controller or not suspendable.is_free(workload_view.meta.controller):
        return None
    if before is None:
        return None if workload_view.suspended else _missed(workload_view, snapshot, defaults)
    if before.is_waiting and not workload_view.suspended and _is_seen(workload_view, snapshot):
        return _resumed(workload_view, username)
    is_held_again = workload_view.is_waiting and not before.is_waiting
    if before.meta.annotations.get(names.HELD) != workload_view.meta.annotations.get(names.HELD) and not is_held_again:
        return _mark_changed(workload_view, username)
    return None


def queue_of(workload_view: WorkloadView, snapshot: Snapshot, defaults: Defaults) -> Queue | None:
    """Return the queue that the pods of a workload will enter, by its first template; None if they will enter none."""
    return workload_queue.first_queue(workload_view.queued, snapshot, defaults)


def _may_be_held(workload_view: WorkloadView, queue: Queue | None, snapshot: Snapshot) -> bool:
    """Whether a queue holds such workloads as a whole. If Muster may not read the kind, Muster could not resume it."""
    is_configured = queue is not None and queue.hold_at is not HoldAt.POD and workload_view.may_suspend
    return is_configured and _is_seen(workload_view, snapshot)


def _is_held(workload_view: WorkloadView, queue: Queue | None, snapshot: Snapshot, lines: Container[QueueName]) -> bool:
    """Whether a workload that comes now is held as a whole."""
    if queue is None or not _may_be_held(workload_view, queue, snapshot):
        return False
    would_wait = queue.stop_policy is not StopPolicy.NONE or queue.name in lines
    return queue.hold_at is HoldAt.WORKLOAD or would_wait


def line_of(gang: Gang) -> Iterator[tuple[QueueName, None]]:
    """Yield the queue in which a gang waits for what those who come later most likely wait for as well, if it does."""
    hold = gang.recorded_hold
    if gang.phase is Phase.PENDING and hold is not None and hold.reason in reasons.IN_LINE:
        yield gang.queue, None


def _is_seen(workload_view: WorkloadView, snapshot: Snapshot) -> bool:
    """Whether Muster reads objects of this kind. A kind that was not served at start, but is now, will be read soon."""
    return snapshot.unwatched.get(workload_view.kind.key, UNSERVED) == UNSERVED


# Additions.


_HELD = {names.HELD: Held.WAITING.value}


def _annotate(workload_view: WorkloadView, annotations: Mapping[str, str]) -> Iterable[Operation]:
    """Return the operations that annotate a workload."""
    return json_patch.set_pairs("/metadata/annotations", workload_view.meta.annotations or None, annotations)


def _suspend(workload_view: WorkloadView) -> Iterator[Operation]:
    """Yield the operations that suspend a workload."""
    *parents, _ = path = workload_view.kind.suspend
    reader = Reader(workload_view.obj)
    for depth, name in enumerate(parents, 1):
        if name not in reader:
            yield json_patch.add(json_patch.pointer(*path[:depth]), {})
        reader = reader.child(name)
    yield json_patch.add(json_patch.pointer(*path), value=True)


def _remove_mark(workload_view: WorkloadView) -> Iterator[Operation]:
    """Yield the operation that removes a mark written by the author."""
    if names.HELD in workload_view.meta.annotations:
        yield json_patch.remove(json_patch.pointer("metadata", "annotations", names.HELD))


# Denials.


def _missed(workload_view: WorkloadView, snapshot: Snapshot, defaults: Defaults) -> Denial | None:
    """Refuse a new workload that is not suspended though its queue holds all such. Raises RetryError.

    Where the queue holds some (`holdAt: Auto`), gangs may have come to wait since the mutating half was asked.
    """
    queue = queue_of(workload_view, snapshot, defaults)
    is_whole = queue is not None and queue.hold_at is HoldAt.WORKLOAD
    return _not_suspended(workload_view) if is_whole and _may_be_held(workload_view, queue, snapshot) else None


def _not_suspended(workload_view: WorkloadView) -> Denial:
    where = ".".join(workload_view.kind.suspend)
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"the workload enters a queue with holdAt: Workload and {where} is not true; {admission.TRY_AGAIN}",
        {"field": where},
    )


def _resumed(workload_view: WorkloadView, username: str) -> Denial:
    where = ".".join(workload_view.kind.suspend)
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"{where} is set to false by {username or 'an unknown user'}; Muster holds the workload as a whole and resumes"
        " it when its gang is admitted (`muster why` says what it waits for); delete it if it shall not wait",
        {"user": username, "field": where},
    )


def _mark_changed(workload_view: WorkloadView, username: str) -> Denial:
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"annotation {names.HELD} of {workload_view.kind.kind} {workload_view.meta.name} is changed by"
        f" {username or 'an unknown user'}; only Muster writes it",
        {"user": username, "key": names.HELD},
    )
