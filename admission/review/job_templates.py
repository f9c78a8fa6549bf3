"""The answer for a new Job: who made it, and all that its pods lack, so that the API server need not show them.

A pod is complete, and not shown, if it would be let in as it is (`podpolicy.job_pods`). Whatever stands in the way
leaves the template alone: its pods are shown and judged as before.
"""

from dataclasses import replace

from admission.api.kubernetes import meta
from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.values import json_patch
from admission.api.values.decoding import Json, Reader
from admission.errors import MalformedObjectError, RetryError
from admission.podpolicy import admission, job_pods, pod_view, queue_selection
from admission.podpolicy.admission import Rules
from admission.ports import View
from admission.review.caches import ReviewCaches
from admission.workloads.kinds import foreign_queues

_MAKER = min(admission.JOB_CONTROLLERS)
"""The user name of reviews for pods of a Job."""

_NO_RULES = Rules(controller="")
"""Warnings about schedulers, which they decide, reach nobody who makes a Job."""


def complete(verdict: Verdict, review: Review, view: View, caches: ReviewCaches) -> Verdict:
    """Return the answer for a new Job with what its pods lack. verdict: with the maker, and as a held one has it.

    One whose own labels name a queue is complete once `hold` has written that into its template. With traces none is:
    that of a gang begins with the review of a pod.
    """
    if verdict.denial is not None or review.operation != "CREATE" or review.trace:
        return verdict
    if not view.synced or view.snapshot().policies:
        return verdict
    obj = json_patch.apply(review.obj, verdict.patch)
    try:
        patch = _patch(obj, review, view, caches)
    except (MalformedObjectError, RetryError):
        return verdict
    return replace(verdict, patch=(*verdict.patch, *patch))


def _patch(obj: Json, review: Review, view: View, caches: ReviewCaches) -> json_patch.Patch:
    """Return what is written into a Job's template. Raises MalformedObjectError or RetryError."""
    reader, snapshot = Reader(obj), view.snapshot()
    if "template" not in reader.child("spec"):
        return ()
    body = job_pods.body(obj, review.namespace)
    new_pod = pod_view.decode(body, review.namespace, review.work)
    if not new_pod.queue and foreign_queues.of_owner(meta.decode(reader).labels) is not None:
        return ()
    defaults = caches.defaults(snapshot)
    queue = queue_selection.select_queue(new_pod, snapshot, defaults).queue
    if queue is None:
        return ()
    additions = admission.additions(new_pod, queue, username=_MAKER)
    completed = pod_view.decode(json_patch.apply(body, additions), review.namespace)
    if not job_pods.is_complete(completed):
        return ()
    judged = admission.judge_creation(
        completed,
        snapshot,
        rules=_NO_RULES,
        defaults=defaults,
        limits=caches.limits(snapshot),
        passed=caches.passed(snapshot),
        username=_MAKER,
    )
    return job_pods.additions(new_pod, queue) if judged.denial is None else ()
