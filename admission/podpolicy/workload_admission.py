"""The webhook for workloads of queues with `holdAt: Workload`: it suspends them at creation and keeps them suspended.

A workload that its author creates there unsuspended, or resumes after suspending it himself, is held: it is suspended
and marked, and the controller resumes it when its gang may start. What an author suspended himself, he may resume. Only
Muster resumes what it holds, or writes the mark, just as only Muster opens a gate; the gates remain behind all this.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from admission.api.kubernetes import meta
from admission.api.kubernetes.jobs import PodTemplate
from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.owners import UNSERVED
from admission.api.muster.queues import HoldAt, Queue
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names
from admission.api.values.decoding import Json, Reader
from admission.api.values.json_patch import Operation, Patch
from admission.api.values.names import Held
from admission.api.values.reasons import Denial, DenyReason
from admission.podpolicy import admission, queue_selection
from admission.podpolicy.admission import Rules
from admission.podpolicy.pod_view import PodView
from admission.podpolicy.queue_selection import Defaults
from admission.workloads import suspendable
from admission.workloads.kinds import registry
from admission.workloads.suspendable import Holdable


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """A workload at admission. obj: its whole JSON; meta: with the namespace of the request.

    may_suspend: whether its controller supports suspending it.
    """

    kind: Holdable
    obj: Json
    meta: Meta
    namespace: str
    suspended: bool
    templates: tuple[PodTemplate, ...]
    may_suspend: bool = True

    @property
    def held(self) -> Held | None:
        return suspendable.held(self.meta)

    @property
    def is_waiting(self) -> bool:
        """Whether Muster holds it."""
        return self.suspended and self.held is Held.WAITING


def decode(kind: Holdable, obj: Json | None, namespace: str) -> WorkloadView:
    """Read a workload. Raises MalformedObjectError."""
    reader = Reader(obj)
    workload_meta = meta.decode(reader)
    suspended, may_suspend = registry.is_suspended(reader, kind.suspend), kind.may_suspend(reader)
    reader.finish(kind.kind, workload_meta.key)
    return WorkloadView(
        kind=kind,
        obj=obj or {},
        meta=workload_meta,
        namespace=namespace,
        suspended=suspended,
        templates=kind.templates(obj or {}),
        may_suspend=may_suspend,
    )


def additions(
    workload_view: WorkloadView,
    snapshot: Snapshot,
    defaults: Defaults,
    *,
    username: str,
    before: WorkloadView | None = None,
) -> Patch:
    """Return the patch that holds a workload which is created, or which its author resumes. Raises RetryError.

    before: the stored workload, for an update.
    """
    if not suspendable.is_free(workload_view.meta.controller):
        return ()
    queue = queue_of(workload_view, snapshot, defaults)
    if before is not None:
        is_resumed = before.suspended and not workload_view.suspended and not before.is_waiting
        held_again = is_resumed and _is_held(workload_view, queue, snapshot)
        return (*_suspend(workload_view), *_annotate(workload_view, _HELD)) if held_again else ()
    if queue is None or not _is_held(workload_view, queue, snapshot):
        return tuple(_remove_mark(workload_view))
    # The template of a batch Job has its maker already.
    maker = {names.USER: username} if username and workload_view.kind is not suspendable.JOB else {}
    labels = tuple(_add_labels(workload_view, queue))
    if workload_view.is_waiting:
        return (*labels, *_annotate(workload_view, maker))  # marked already, by an earlier call of the webhook
    if workload_view.suspended:
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
        missed = not workload_view.suspended and _is_held(
            workload_view, queue_of(workload_view, snapshot, defaults), snapshot
        )
        return _not_suspended(workload_view) if missed else None
    if before.is_waiting and not workload_view.suspended and _is_seen(workload_view, snapshot):
        return _resumed(workload_view, username)
    is_held_again = workload_view.is_waiting and not before.is_waiting
    if before.meta.annotations.get(names.HELD) != workload_view.meta.annotations.get(names.HELD) and not is_held_again:
        return _mark_changed(workload_view, username)
    return None


def queue_of(workload_view: WorkloadView, snapshot: Snapshot, defaults: Defaults) -> Queue | None:
    """Return the queue that the pods of a workload will enter, by its first template; None if they will enter none."""
    data = next((Reader(template.body).child("metadata") for template in workload_view.templates), Reader(None))
    pod = PodView(namespace=workload_view.namespace, labels=data.pairs("labels"), annotations=data.pairs("annotations"))
    return queue_selection.select_queue(pod, snapshot, defaults).queue


def _is_held(workload_view: WorkloadView, queue: Queue | None, snapshot: Snapshot) -> bool:
    """Whether a workload is held as a whole. If Muster may not read its kind, Muster could not resume it."""
    is_configured = queue is not None and queue.hold_at is HoldAt.WORKLOAD and workload_view.may_suspend
    return is_configured and _is_seen(workload_view, snapshot)


def _is_seen(workload_view: WorkloadView, snapshot: Snapshot) -> bool:
    """Whether Muster reads objects of this kind. A kind that was not served at start, but is now, will be read soon."""
    return snapshot.unwatched.get(workload_view.kind.key, UNSERVED) == UNSERVED


def _label(template: PodTemplate) -> str:
    return Reader(template.body).child("metadata").pairs("labels").get(names.QUEUE, "")


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


def _add_labels(workload_view: WorkloadView, queue: Queue) -> Iterator[Operation]:
    """Yield the operations that write the queue into the templates, since a pod's queue is fixed at its creation."""
    for template in workload_view.templates:
        if _label(template):
            continue
        path, body = json_patch.pointer(*template.path), Reader(template.body)
        if "metadata" not in body:
            yield json_patch.add(f"{path}/metadata", {"labels": {names.QUEUE: queue.name}})
            continue
        labels = body.child("metadata").pairs("labels") if "labels" in body.child("metadata") else None
        yield from json_patch.set_pairs(f"{path}/metadata/labels", labels, {names.QUEUE: queue.name})


# Denials.


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
