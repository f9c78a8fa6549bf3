"""The answer for a new Job: the mark that its pods lack nothing but the gate, and so need not be shown to the webhook.

A pod is complete, and not shown, if it would be let in as it is (`podpolicy.job_pods`). Whatever stands in the way
leaves the template without the mark, whoever wrote it there: its pods are shown and judged as before.
"""

from dataclasses import replace

from admission.api.kubernetes.admission_review import Review, Verdict
from admission.api.values import json_patch
from admission.api.values.decoding import Json, Reader
from admission.errors import MalformedObjectError, RetryError, TooMuchWorkError
from admission.podpolicy import admission, job_pods, pod_view, queue_selection
from admission.podpolicy.admission import Rules
from admission.ports import View
from admission.review.caches import ReviewCaches

_MAKER = min(admission.JOB_CONTROLLERS)
"""The user name of reviews for pods of a Job."""

_NO_RULES = Rules(controller="")
"""Warnings about schedulers, which they decide, reach nobody who makes a Job."""


def complete(verdict: Verdict, review: Review, view: View, caches: ReviewCaches) -> Verdict:
    """Return the answer for a new Job with the mark if its pods are complete, else without a mark of its author's.

    verdict: with the maker, and as a held one has it. Raises MalformedObjectError.
    """
    if verdict.denial is not None or review.operation != "CREATE":
        return verdict
    obj = json_patch.apply(review.obj, verdict.patch)
    try:
        is_complete = _is_complete(obj, review, view, caches)
    except (MalformedObjectError, RetryError, TooMuchWorkError):
        is_complete = False
    job = pod_view.decode_job(obj)
    return replace(verdict, patch=(*verdict.patch, *(job_pods.mark(job) if is_complete else job_pods.unmark(job))))


def _is_complete(obj: Json, review: Review, view: View, caches: ReviewCaches) -> bool:
    """Return whether a Job's pods would be let in as they are but for the gate.

    Only of a queue that it names, or that holds it: the pods of others enter the default queue of the time when they
    are made. With traces none are: that of a gang begins with the review of a pod. Raises MalformedObjectError,
    RetryError or TooMuchWorkError.
    """
    if review.trace or not view.synced or view.snapshot().policies or "template" not in Reader(obj).child("spec"):
        return False
    snapshot, body = view.snapshot(), job_pods.body(obj, review.namespace)
    new_pod = pod_view.decode(body, review.namespace, review.work)
    if not new_pod.queue:
        return False
    admission.charge_claims(new_pod, snapshot, review.work)
    defaults = caches.defaults(snapshot)
    queue = queue_selection.select_queue(new_pod, snapshot, defaults).queue
    additions = admission.additions(new_pod, queue, username=_MAKER)
    completed = job_pods.marked(pod_view.decode(json_patch.apply(body, additions), review.namespace))
    if not job_pods.is_complete(completed):
        return False
    judged = admission.judge_creation(
        completed,
        snapshot,
        rules=_NO_RULES,
        defaults=defaults,
        limits=caches.limits(snapshot),
        passed=caches.passed(snapshot),
        username=_MAKER,
    )
    return judged.denial is None
