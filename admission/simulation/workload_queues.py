"""Workloads from manifests as the webhook would store them: with the queue that they name in their templates.

For `muster simulate` and `muster lint`, for all kinds whose templates the webhook labels, also those whose pods are not
simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from admission.api.kubernetes import meta
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch
from admission.api.values.decoding import Json
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial
from admission.errors import MalformedObjectError
from admission.podpolicy import workload_queue
from admission.podpolicy.queue_selection import Defaults
from admission.simulation import manifests
from admission.simulation.manifests import Store
from admission.workloads import template_labels
from admission.workloads.template_labels import LabelledKind


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedWorkload:
    """A workload that the webhook would refuse. source: `Kind namespace/name`; queue: that of its labels, or ""."""

    source: str
    queue: QueueName
    field: str
    denial: Denial


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The objects of the input, and those that TrainJobs make, with their queues. refused: by place in the input."""

    objects: list[Json]
    made: dict[int, Json]
    refused: dict[int, RefusedWorkload]

    def changes(self, objects: Sequence[Json], store: Store) -> bool:
        """Return whether any object has got a queue."""
        before, after = (*objects, *store.made.values()), (*self.objects, *self.made.values())
        return any(new is not old for new, old in zip(after, before, strict=True))


def completed(objects: Sequence[Json], store: Store) -> Completed:
    """Return the objects, new workloads with their queues. Objects with a UID exist already and are left as they are.

    store: the decoded objects.
    """
    snapshot = manifests.snapshot(store)
    malformed = {index for index, _ in store.problems}
    found: list[Json] = []
    refused: dict[int, RefusedWorkload] = {}
    defaults = Defaults(snapshot.queues.values(), snapshot.namespaces)
    for index, obj in (*enumerate(objects), *store.made.items()):
        kind = _kind(obj)
        if kind is None or index in malformed:
            found.append(obj)
            continue
        namespace = str(obj["metadata"].get("namespace") or store.namespace)
        if namespace not in snapshot.namespaces:
            snapshot = manifests.with_namespace(snapshot, namespace)
            defaults = Defaults(snapshot.queues.values(), snapshot.namespaces)
        labelled, refusal = _completed(kind, obj, namespace, snapshot, defaults)
        found.append(labelled)
        if refusal is not None:
            refused[index] = refusal
    made = dict(zip(store.made, found[len(objects) :], strict=True))
    return Completed(objects=found[: len(objects)], made=made, refused=refused)


def _kind(obj: Json) -> LabelledKind | None:
    """Return the kind of a new workload."""
    group, _, version = str(obj["apiVersion"]).rpartition("/")
    kind = template_labels.BY_GROUP.get((group, str(obj["kind"])))
    metadata = obj.get("metadata")
    is_new = isinstance(metadata, Mapping) and not metadata.get("uid")
    return kind if kind is not None and version in kind.versions and is_new else None


def _completed(
    kind: LabelledKind, obj: Json, namespace: str, snapshot: Snapshot, defaults: Defaults
) -> tuple[Json, RefusedWorkload | None]:
    try:
        workload = workload_queue.decode(kind, obj, namespace)
        if not any(workload.names.values()):
            return obj, None
        labelled = json_patch.apply(obj, workload_queue.additions(workload, snapshot, defaults))
        stored = workload_queue.decode(kind, labelled, namespace)
    except MalformedObjectError:
        return obj, None  # of a kind that is not simulated; others are known as malformed
    refusal = workload_queue.judge(stored, snapshot, defaults)
    if refusal is None:
        return labelled, None
    return obj, RefusedWorkload(
        source=f"{kind.kind} {namespace}/{meta.name_in(obj).rpartition('/')[2]}",
        queue=QueueName("" if workload.named is None else workload.named.name),
        field=refusal.field,
        denial=refusal.denial,
    )
