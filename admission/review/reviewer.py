"""One admission review: read the object, look up what is known in memory, answer.

The webhook calls `mutate`, `hold` and `validate`. They write nothing, wait for nothing and have no side effects, so a
dry run needs no case of its own. They raise RetryError while no answer is possible; the webhook then answers 503, and
the configuration's failurePolicy decides. All are given the same `ReviewCaches`, which change no answer. What cannot be
read, or would take more work than `Review.work` has, is denied.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ParamSpec, cast

from admission.api.kubernetes import admission_review
from admission.api.kubernetes.admission_review import ALLOWED, Review, Verdict
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names
from admission.api.values.decoding import Json
from admission.api.values.json_patch import Patch
from admission.api.values.reasons import Denial, DenyReason
from admission.cel.syntax import parser
from admission.claimpolicy import admission
from admission.claimpolicy.admission import ClaimContext, ClaimView
from admission.claimpolicy.cel_subject import User
from admission.claimpolicy.draft import Draft
from admission.claimpolicy.match import OwnedConversion
from admission.claimpolicy.pods import claims_annotation, extended_resources, pending_templates, required_claims
from admission.errors import MalformedObjectError, RetryError, TooMuchWorkError
from admission.objectpolicy import admission as objectpolicy_admission, in_use, workloads
from admission.objectpolicy.admission import ObjectView
from admission.podpolicy import (
    admission as podpolicy_admission,
    pod_view,
    queue_selection,
    resize,
    update,
    workload_admission,
    workload_queue,
)
from admission.podpolicy.admission import Rules
from admission.podpolicy.pod_view import PodHead, PodView
from admission.podpolicy.workload_admission import WorkloadView
from admission.podpolicy.workload_queue import QueuedWorkload
from admission.ports import View
from admission.review import job_templates
from admission.review.caches import ReviewCaches
from admission.workloads import suspendable, template_labels
from admission.workloads.suspendable import Holdable
from admission.workloads.template_labels import LabelledKind

Arguments = ParamSpec("Arguments")


def _denying(judge: Callable[Arguments, Verdict]) -> Callable[Arguments, Verdict]:
    """Let a judge deny what is malformed, or too much work."""

    @functools.wraps(judge)
    def denying(*arguments: Arguments.args, **named: Arguments.kwargs) -> Verdict:
        try:
            return judge(*arguments, **named)
        except MalformedObjectError as error:
            return admission_review.refuse_malformed(error)
        except TooMuchWorkError as error:
            return admission_review.refuse_too_much(error)

    return denying


def warm_caches(snapshot: Snapshot) -> ReviewCaches:
    """Return caches filled for the first reviews. The time is mostly that of compiling all policies."""
    parser.prepare()
    caches = ReviewCaches()
    caches.defaults(snapshot)
    caches.limits(snapshot)
    caches.policies(snapshot)
    return caches


@_denying
def mutate(review: Review, view: View, *, caches: ReviewCaches) -> Verdict:
    """Answer the mutating webhook: what a new pod lacks, or who made a Job. Raises RetryError while not synced.

    Mistakes in Muster's own annotation of claims are refused here, since no patch can follow them.

    Who made a Job is written while not synced, too; what its pods lack is left to the pods then.
    """
    if _is_job(review):
        return job_templates.complete(_set_maker(review), review, view, caches)
    _ensure_synced(view)
    if _is_subresource_of_pod(review):
        return ALLOWED
    if _is_claim(review):
        return _answer_claim(admission.complete, review, view, caches)
    if not _is_pod(review) or review.operation != "CREATE":
        return _misdirected(review, "CREATE")
    try:
        new_pod = _decode_pod(review)
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)
    return _complete_pod(new_pod, review, view.snapshot(), caches)


def _decode_pod(review: Review) -> PodView:
    """Read a new pod. The fast codec has checked the types of its fields already."""
    if review.whole is not None:
        return pod_view.read(cast("PodHead", review.obj), review.namespace, review.work)
    return pod_view.decode(review.obj, review.namespace, review.work)


def _complete_pod(new_pod: PodView, review: Review, snapshot: Snapshot, caches: ReviewCaches) -> Verdict:
    """Return what a new pod lacks, with the claims of its annotation and those for its extended resources.

    The pod's queue is selected once, so that additions and conversions agree on it.
    """
    if new_pod.node:
        return ALLOWED
    queue = queue_selection.select_queue(new_pod, snapshot, caches.defaults(snapshot)).queue
    patch = podpolicy_admission.additions(new_pod, queue, username=review.username, trace=review.trace)
    text, conversions = new_pod.annotations.get(names.CLAIMS), _conversions(new_pod, queue, snapshot, caches)
    if not (text or conversions):
        return Verdict(patch=patch) if patch else ALLOWED
    draft = Draft(json_patch.apply(review.full_object(), patch), review.work)
    denial = claims_annotation.attach(draft, text) if text else None
    denial = denial or extended_resources.convert(draft, conversions)
    return Verdict(denial=denial) if denial is not None else Verdict(patch=(*patch, *draft.patch))


def _conversions(
    new_pod: PodView, queue: Queue | None, snapshot: Snapshot, caches: ReviewCaches
) -> Mapping[str, OwnedConversion]:
    """Return the conversions of the pod's extended resources to claims. Most pods request none and return at once."""
    if not new_pod.containers or not snapshot.policies:
        return {}
    policies = caches.policies(snapshot)
    if not policies.has_conversions:
        return {}
    conversions = policies.choose(new_pod.namespace, queue.name if queue is not None else "").conversions
    requested = {resource for container in new_pod.containers for resource, _ in container.requests}
    return {resource: conversions[resource] for resource in requested if resource in conversions}


def _set_maker(review: Review) -> Verdict:
    """Answer for a Job that is created or changed: its template names the Job's maker and no other user."""
    try:
        job = pod_view.decode_job(review.obj)
        if review.operation == "CREATE":
            return Verdict(patch=podpolicy_admission.job_additions(job, review.username))
        return Verdict(patch=podpolicy_admission.job_restorations(pod_view.decode_job(review.old), job))
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)


@_denying
def hold(review: Review, view: View, *, caches: ReviewCaches) -> Verdict:
    """Answer the webhook for workloads that name a queue, or that their queue holds as a whole.

    A new Job gets its maker as well, so that one call is enough. Raises RetryError while not synced.
    """
    _ensure_synced(view)
    kind = _workload_kind(review)
    if kind is None:
        return _misdirected(review, "CREATE and UPDATE of workloads")
    snapshot, holdable = view.snapshot(), suspendable.BY_RESOURCE.get((review.group, review.resource))
    defaults = caches.defaults(snapshot)
    try:
        if holdable is None:
            queued_before, queued = _queued_workloads(review, kind)
            patch = workload_queue.additions(queued, snapshot, defaults, before=queued_before)
        else:
            old, new = _workloads(review, holdable)
            lines = caches.lines(snapshot)
            patch = workload_admission.additions(
                new, snapshot, defaults, username=review.username, lines=lines, before=old
            )
            patch = (*patch, *_maker_of_job(review, patch))
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)
    if _is_job(review):
        return job_templates.complete(Verdict(patch=patch), review, view, caches)
    return Verdict(patch=patch) if patch else ALLOWED


def _maker_of_job(review: Review, patch: Patch) -> Patch:
    """Return the patch that writes its maker into a new Job, beside another patch; empty for anything else."""
    if not _is_job(review) or review.operation != "CREATE":
        return ()
    job = pod_view.decode_job(json_patch.apply(review.obj, patch))
    return podpolicy_admission.maker_additions(job, review.username)


def _judge_workload(
    review: Review, kind: LabelledKind, snapshot: Snapshot, rules: Rules, caches: ReviewCaches
) -> Verdict:
    if review.username == rules.controller and review.operation == "UPDATE":
        return ALLOWED  # Muster suspends and resumes workloads; whoever runs it as themselves makes them as others do
    defaults, holdable = caches.defaults(snapshot), suspendable.BY_RESOURCE.get((review.group, review.resource))
    try:
        before, queued = _queued_workloads(review, kind)
        refusal = workload_queue.judge(queued, snapshot, defaults, before=before)
        denial = None if refusal is None else refusal.denial
        if denial is None and holdable is not None:
            old, new = _workloads(review, holdable)
            denial = workload_admission.judge(
                new, snapshot, defaults, rules=rules, username=review.username, before=old
            )
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)
    if denial is not None:
        return Verdict(denial=denial)
    found = (
        *workloads.unknown_fields(queued, review.work),
        *(() if before is not None else workloads.unknown_priority_classes(queued, snapshot, defaults)),
    )
    unknown = tuple(f"muster: {finding}" for finding in found)
    return Verdict(warnings=unknown) if unknown else ALLOWED


def _queued_workloads(review: Review, kind: LabelledKind) -> tuple[QueuedWorkload | None, QueuedWorkload]:
    """Read the names of queues in a workload as it was, for an update, and as it will be stored."""
    new = workload_queue.decode(kind, review.obj, review.namespace, review.work)
    if review.operation != "UPDATE":
        return None, new
    return workload_queue.decode(kind, review.old, review.namespace, review.work), new


def _workloads(review: Review, kind: Holdable) -> tuple[WorkloadView | None, WorkloadView]:
    """Read a workload as it was, for an update, and as it will be stored."""
    new = workload_admission.decode(kind, review.obj, review.namespace, review.work)
    return (
        workload_admission.decode(kind, review.old, review.namespace, review.work)
        if review.operation == "UPDATE"
        else None
    ), new


def _workload_kind(review: Review) -> LabelledKind | None:
    """Return the kind of a created or changed workload that makes pods."""
    if review.subresource or review.operation not in ("CREATE", "UPDATE"):
        return None
    return template_labels.BY_RESOURCE.get((review.group, review.resource))


@_denying
def validate(review: Review, view: View, *, rules: Rules, caches: ReviewCaches) -> Verdict:
    """Answer the validating webhook. Raises RetryError while the view is not synced."""
    _ensure_synced(view)
    if _is_subresource_of_pod(review) and not _is_change_by_status(review):
        return _judge_resize(review, view.snapshot(), caches) if _is_resize(review) else ALLOWED
    if _is_claim(review):
        # The API server refuses every change of a claim's spec.
        return _answer_claim(admission.judge, review, view, caches) if review.operation == "CREATE" else ALLOWED
    if _is_muster_object(review):
        return _judge_object(review, view, caches)
    kind = _workload_kind(review)
    if kind is not None:
        return _judge_workload(review, kind, view.snapshot(), rules, caches)
    if not _is_pod(review) or review.operation not in ("CREATE", "UPDATE"):
        return _misdirected(review, "CREATE and UPDATE")
    return _judge_pod(review, view, rules, caches)


def _judge_pod(review: Review, view: View, rules: Rules, caches: ReviewCaches) -> Verdict:
    try:
        if review.operation == "CREATE":
            new_pod = _decode_pod(review)
            snapshot = _with_pending_templates(new_pod, review, view, caches)
            podpolicy_admission.charge_claims(new_pod, snapshot, review.work)
            verdict = podpolicy_admission.judge_creation(
                new_pod,
                snapshot,
                rules=rules,
                defaults=caches.defaults(snapshot),
                limits=caches.limits(snapshot),
                passed=caches.passed(snapshot),
                username=review.username,
            )
            whole_pod: Json | None = None
            if verdict.denial is None and required_claims.may_matter(new_pod):
                whole_pod = review.full_object()
                verdict = replace(verdict, denial=required_claims.denial(new_pod, whole_pod, review.work))
            return _judge_rules(verdict, new_pod, review, snapshot, caches, whole_pod=whole_pod)
        old, new = (pod_view.decode(obj, review.namespace, review.work) for obj in (review.old, review.obj))
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)
    denial = update.judge(old, new, username=review.username, rules=rules, queues=view.snapshot().queues)
    return ALLOWED if denial is None else Verdict(denial=denial)


def _judge_resize(review: Review, snapshot: Snapshot, caches: ReviewCaches) -> Verdict:
    old, new = (pod_view.decode(obj, review.namespace, review.work) for obj in (review.old, review.obj))
    denial = resize.judge(
        old, new, snapshot, limits=caches.limits(snapshot), usage=lambda: in_use.amounts(snapshot.gangs.values())
    )
    return ALLOWED if denial is None else Verdict(denial=denial)


def _judge_rules(
    verdict: Verdict,
    new_pod: PodView,
    review: Review,
    snapshot: Snapshot,
    caches: ReviewCaches,
    *,
    whole_pod: Json | None,
) -> Verdict:
    """Return the verdict on a new pod, with the ruling of the ClaimPolicies on its claims.

    whole_pod: its whole JSON; None if it has not been read.
    """
    if verdict.denial is not None or not new_pod.claims or not snapshot.policies:
        return verdict
    policies = caches.policies(snapshot)
    pod = review.full_object if whole_pod is None else lambda: whole_pod
    ruling = caches.rulings.evaluate(new_pod, snapshot, policies, pod=pod, user=_user(review), work=review.work)
    if not ruling.findings:
        return verdict
    return Verdict(
        denial=ruling.denial,
        warnings=(*verdict.warnings, *ruling.warnings),
        annotations={**verdict.annotations, **ruling.annotations},
    )


def _with_pending_templates(new_pod: PodView, review: Review, view: View, caches: ReviewCaches) -> Snapshot:
    """Return the snapshot, with the pod's missing templates that policies will provide."""
    snapshot = view.snapshot()
    if not new_pod.claims or not snapshot.policies or not caches.policies(snapshot).needs_templates:
        return snapshot
    return pending_templates.with_pending(new_pod, _claim_context(review, view, caches))


def _ensure_synced(view: View) -> None:
    if not view.synced:
        raise RetryError("the cluster's objects are not all read yet; nothing is decided before")


def _is_pod(review: Review) -> bool:
    return (review.group, review.version, review.resource) == ("", "v1", "pods")


CLAIMS = ("resourceclaims", "resourceclaimtemplates")


def _is_claim(review: Review) -> bool:
    """Whether this creates or updates a claim or a template."""
    kind = (review.group, review.subresource)
    return kind == ("resource.k8s.io", "") and review.resource in CLAIMS and review.operation in ("CREATE", "UPDATE")


def _answer_claim(
    answer: Callable[[ClaimView, ClaimContext], Verdict], review: Review, view: View, caches: ReviewCaches
) -> Verdict:
    try:
        return answer(_claim(review), _claim_context(review, view, caches))
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)


def _claim(review: Review) -> ClaimView:
    return ClaimView(
        obj=review.obj or {},
        namespace=review.namespace,
        user=_user(review),
        template=review.resource == "resourceclaimtemplates",
    )


def _user(review: Review) -> User:
    return User(username=review.username, uid=review.user_uid, groups=review.groups, extra=review.extra)


def _claim_context(review: Review, view: View, caches: ReviewCaches) -> ClaimContext:
    snapshot = view.snapshot()
    return ClaimContext(
        snapshot=snapshot,
        defaults=caches.defaults(snapshot),
        limits=caches.limits(snapshot),
        policies=caches.policies(snapshot),
        selectors=caches.selectors,
        work=review.work,
    )


def _is_muster_object(review: Review) -> bool:
    """Whether this creates, updates or deletes one of Muster's own objects."""
    kind = (review.group, review.version, review.subresource)
    is_watched = review.resource in objectpolicy_admission.WRITE_CHECKS and review.operation in (
        "CREATE",
        "UPDATE",
        "DELETE",
    )
    return is_watched and kind == (names.GROUP, names.VERSION, "")


def _judge_object(review: Review, view: View, caches: ReviewCaches) -> Verdict:
    snapshot = view.snapshot()
    deleted = review.operation == "DELETE"
    object_view = ObjectView(
        plural=review.resource,
        namespace=review.namespace,
        obj=None if deleted else review.obj or {},
        old=None if review.operation == "CREATE" else review.old or {},
        username=review.username,
    )
    context = objectpolicy_admission.ObjectContext(
        snapshot=snapshot, policies=caches.policies(snapshot), work=review.work
    )
    try:
        return objectpolicy_admission.judge(object_view, context)
    except MalformedObjectError as error:
        return admission_review.refuse_malformed(error)


def _is_job(review: Review) -> bool:
    kind = (review.group, review.version, review.resource, review.subresource)
    return kind == ("batch", "v1", "jobs", "") and review.operation in ("CREATE", "UPDATE")


def _is_subresource_of_pod(review: Review) -> bool:
    """Whether this is a status, a binding, an eviction or the like: none of them can open a gate."""
    return bool(review.subresource) and _is_pod(review)


def _is_change_by_status(review: Review) -> bool:
    """Whether this writes a pod's status, and so may change its labels and annotations."""
    return review.subresource == "status" and review.operation == "UPDATE" and _is_pod(review)


def _is_resize(review: Review) -> bool:
    """Whether this changes what a pod requests, while it runs or before."""
    return review.subresource == "resize" and review.operation == "UPDATE" and _is_pod(review)


def _misdirected(review: Review, operations: str) -> Verdict:
    group_version = f"{review.group}/{review.version}".lstrip("/")
    message = (
        f"this webhook answers {operations} of pods (v1) and claims (v1), and was sent {review.operation} of"
        f" {review.resource} ({group_version}); correct the rules of the webhook configuration"
    )
    return Verdict(denial=Denial(DenyReason.MALFORMED_REQUEST, message))
