"""Pods of Jobs that are complete from their creation, so that the API server shows them to nobody.

A new Job is shown to the webhook anyway, which marks its pod template if its pods lack nothing but the gate. A policy
adds that to what the Job controller makes of it (`webhook_config.gate_policy`), and
`webhook_config.match_conditions.COMPLETE` leaves it out then: the gate holds it, and the controller looks at all that
the webhook looks at before it opens the gate. Pods without gate or mark, others, and those that would be refused are
shown as before. Nobody but the webhook can write the mark into a template that names a maker, as that has from it too.
"""

from dataclasses import replace

from admission.api.values import json_patch, names
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Patch
from admission.podpolicy import annotations
from admission.podpolicy.pod_view import JobView, PodView
from admission.workloads.kinds import foreign_queues

OTHER_KEYS = sorted(
    key
    for key in {*annotations.KEYS, *(one.key for one in foreign_queues.QUEUE_KEYS), *foreign_queues.PRIORITY_LABELS}
    if not key.startswith(f"{names.GROUP}/")
)
"""Labels and annotations of other systems by which the webhook decides about a new pod."""

_ANNOTATIONS = json_patch.pointer("spec", "template", "metadata", "annotations")


def body(job: Json, namespace: str) -> Json:
    """Return a pod of a Job's template, as the Job controller would create it. The Job may have no name or UID yet."""
    template = job["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "-", "uid": "-", "controller": True}
    metadata = {**(template.get("metadata") or {}), "namespace": namespace, "ownerReferences": [owner]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec") or {}}


def is_complete(new_pod: PodView) -> bool:
    """Return whether a pod that the Job controller makes is left out, as by `match_conditions.COMPLETE`."""
    noted = new_pod.annotations.get(names.USER) and new_pod.annotations.get(names.COMPLETE)
    has_all = new_pod.gated and new_pod.queue and noted and new_pod.is_of_job
    others = (*({*(new_pod.labels or {})} - {names.QUEUE}), *({*new_pod.annotations} - {names.USER, names.COMPLETE}))
    return bool(has_all) and not new_pod.node and not any(map(_is_read, others))


def marked(new_pod: PodView) -> PodView:
    """Return a pod as of a template with the mark."""
    return replace(new_pod, annotations={**new_pod.annotations, names.COMPLETE: "true"})


def mark(job: JobView) -> Patch:
    """Return the patch that writes the mark into the template of a Job with complete pods."""
    return tuple(json_patch.set_pairs(_ANNOTATIONS, job.annotations, {names.COMPLETE: "true"}))


def unmark(job: JobView) -> Patch:
    """Return the patch that takes the mark from the template of any other new Job."""
    is_marked = names.COMPLETE in (job.annotations or {})
    return (json_patch.remove(_ANNOTATIONS + json_patch.pointer(names.COMPLETE)),) if is_marked else ()


def _is_read(key: str) -> bool:
    return key.startswith(f"{names.GROUP}/") or key in OTHER_KEYS
