"""The webhook for new pods: what it adds to a pod, and which pods it refuses; `update` judges changes of pods.

`review.reviewer` calls it with one review and one snapshot. Two rules:

- The mutating half only adds what is missing and refuses nothing: another webhook may still change the pod after it,
  and the API server may call it again. The validating half comes last and judges the pod as it will be stored.
- What can never work is refused here; what may work later (a claim that does not exist yet, a stopped queue, quota in
  use) is admitted and waits behind the gate.

A pod with another schedulerName is admitted with a warning. Its gate holds all the same, since the API server refuses
every binding of a gated pod (`pkg/registry/core/pod/storage`, "has non-empty .spec.schedulingGates"), and second
profiles of kube-scheduler are common. Only a scheduler with rules of its own may deviate from the plan; such a gang is
evicted by the queue's startTimeout, which is what the warning says.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from admission.api import suggestions
from admission.api.kubernetes import devices
from admission.api.kubernetes.admission_review import ALLOWED, Verdict
from admission.api.kubernetes.claims import MAX_RESULTS, ClaimSpec
from admission.api.kubernetes.nodes import Resources
from admission.api.kubernetes.pods import DEFAULT_SCHEDULER
from admission.api.muster.queues import Queue, UnmeteredClasses
from admission.api.snapshot import Snapshot
from admission.api.values import json_patch, names
from admission.api.values.json_patch import Patch
from admission.api.values.reasons import Denial, DenyReason, Detail
from admission.api.values.work_budget import Work, WorkBudget
from admission.dra.metering import holdings
from admission.dra.requests import extended_resources
from admission.podpolicy import annotations, known_claims, outside_queues, queue_selection
from admission.podpolicy.known_claims import KnownClaim
from admission.podpolicy.pod_view import JobView, PodView
from admission.podpolicy.queue_selection import Defaults
from admission.workloads.kinds import foreign_queues

JOB_CONTROLLERS = frozenset({"system:serviceaccount:kube-system:job-controller", "system:kube-controller-manager"})
"""The user names that make the pods of Jobs: the Job controller's own account, or that of kube-controller-manager."""

_ANNOTATIONS = json_patch.pointer("spec", "template", "metadata", "annotations")

TRY_AGAIN = "create the pod again; if this persists, another webhook takes away what Muster's mutating webhook adds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requested:
    """What a pod requests of nodes and some meter counts.

    offered: extended resources that devices may serve instead; claim: the claim that these would need.
    """

    resources: Resources = field(default_factory=dict)
    offered: tuple[str, ...] = ()
    claim: ClaimSpec | None = None


NOTHING_REQUESTED = Requested()


class Limits(Protocol):
    """Refuses what the queue could not hold even if nothing were in use (`queue_limits.Limits`)."""

    @property
    def counted(self) -> Collection[str]:
        """The resources of nodes that some meter counts."""
        ...

    def __call__(
        self, queue: Queue, claims: Sequence[KnownClaim], requested: Requested = NOTHING_REQUESTED, /
    ) -> Denial | None: ...


@dataclass(frozen=True, slots=True)
class NoLimits:
    """Refuses nothing, and counts nothing."""

    counted: Collection[str] = ()

    def __call__(
        self, _queue: Queue, _claims: Sequence[KnownClaim], _requested: Requested = NOTHING_REQUESTED, /
    ) -> Denial | None:
        return None


NO_LIMITS = NoLimits()


PassedClaims = dict[tuple[str | int, ...], tuple[ClaimSpec, ...]]
"""Claims that passed their checks, by queue, the ids of their specs, and what the pod requests beside. The specs are
kept, so that no id is reused."""

MOST_PASSED = 10_000

FEW_CLAIMS = 8
"""The claims of one pod whose requests, at most 32 each, take no time to speak of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What an installation decides about the admission of pods."""

    controller: str
    """User name of Muster's controller, as the API server authenticates it; it alone may open gates."""
    schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER})
    """Scheduler names that follow kube-scheduler's rules; a pod with any other gets a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """What a check may read: the pod, the queue that it enters, its claims, and what it requests that is counted.

    missing: names of claims not known yet.
    """

    new_pod: PodView
    queue: Queue
    snapshot: Snapshot
    claims: tuple[KnownClaim, ...] = ()
    missing: tuple[str, ...] = ()
    requested: Resources = field(default_factory=dict)
    limits: Limits = NO_LIMITS
    passed: PassedClaims = field(default_factory=dict)
    username: str = ""


def additions(new_pod: PodView, queue: Queue | None, *, username: str = "", trace: str = "") -> Patch:
    """Return what a new pod lacks: the gate, the label of the queue that it enters by default, and its maker.

    Also a priority class of the queue that it names in Kueue's label alone.

    queue: the one that the pod enters. username: of its creator; if empty, no maker is set. trace: the parent of the
    pod's trace; may be empty.
    """
    if new_pod.node or queue is None:
        return ()
    notes = {names.USER: maker(new_pod, username)} if username else {}
    if trace:
        notes[names.TRACE] = trace
    return (
        *_gate(new_pod),
        *json_patch.set_pairs("/metadata/labels", new_pod.labels, {names.QUEUE: queue.name, **_class(new_pod, queue)}),
        *json_patch.set_pairs("/metadata/annotations", new_pod.annotations or None, notes),
    )


def _class(new_pod: PodView, queue: Queue) -> dict[str, str]:
    named = foreign_queues.priority_class(new_pod.labels or {})
    if named is None or new_pod.settings(names.PRIORITY_CLASS) or not queue.has_priority_class(named.name):
        return {}
    return {names.PRIORITY_CLASS: named.name}


def maker(new_pod: PodView, username: str) -> str:
    """Return the user who made a pod, or the Job that it belongs to.

    The template of a Job states the Job's maker; only this webhook can write it there. It is believed for pods that the
    Job controller creates; for all other pods the maker is the user that the API server authenticated.
    """
    if username in JOB_CONTROLLERS and new_pod.is_of_job:
        return new_pod.annotations.get(names.USER) or username
    return username


def job_additions(job: JobView, username: str) -> Patch:
    """Return the patch that writes a new Job's maker into its template, replacing whatever its author wrote there.

    Some systems take the queue from a label of the Job alone. Its pods get that name in an annotation, which counts
    only if it is an alias of a queue.
    """
    alias = foreign_queues.of_job(job.labels)
    values = {names.USER: username} | ({names.QUEUE_ALIAS: alias} if alias else {})
    return _annotate_template(job, values)


def maker_additions(job: JobView, username: str) -> Patch:
    """Return the part of `job_additions` that a Job needs whose queue is written into its template as well."""
    return _annotate_template(job, {names.USER: username})


def _annotate_template(job: JobView, values: dict[str, str]) -> Patch:
    if not values or not job.has_template:
        return ()
    if not job.has_meta:
        return (json_patch.add("/spec/template/metadata", {"annotations": values}),)
    return tuple(json_patch.set_pairs(_ANNOTATIONS, job.annotations, values))


def job_restorations(old: JobView, new: JobView) -> Patch:
    """Return the patch that restores the maker, and the mark of complete pods, in the template of a changed Job."""
    before, after = (job.annotations or {} for job in (old, new))
    changed = [key for key in (names.USER, names.COMPLETE) if before.get(key) != after.get(key)]
    values = {key: before[key] for key in changed if key in before}
    added = [json_patch.remove(_ANNOTATIONS + json_patch.pointer(key)) for key in changed if key not in before]
    return (*added, *_annotate_template(new, values), *_queue_again(old, new)) if changed else ()


def _queue_again(old: JobView, new: JobView) -> Iterable[json_patch.Operation]:
    """Return the steps that restore the queue of a marked template, which cannot change once its Job has started."""
    queue, pod_labels = (old.pod_labels or {}).get(names.QUEUE, ""), new.pod_labels if new.has_meta else None
    if not (old.annotations or {}).get(names.COMPLETE) or not queue or (pod_labels or {}).get(names.QUEUE):
        return ()
    return json_patch.set_pairs("/spec/template/metadata/labels", pod_labels, {names.QUEUE: queue})


def judge_creation(
    new_pod: PodView,
    snapshot: Snapshot,
    *,
    rules: Rules,
    defaults: Defaults,
    limits: Limits = NO_LIMITS,
    passed: PassedClaims | None = None,
    username: str = "",
) -> Verdict:
    """Judge a new pod as it will be stored. username: its creator; empty if unknown. Raises RetryError.

    passed: caches claims that passed, while queues and meters stay the same.
    """
    if new_pod.is_mirror:
        return ALLOWED
    selection = queue_selection.select_queue(new_pod, snapshot, defaults)
    if selection.denial is not None:
        return Verdict(denial=selection.denial)
    if selection.queue is None:
        return _without_queue(new_pod, selection.warning, snapshot)
    claims, missing = known_claims.look_up(new_pod, snapshot)
    inputs = Inputs(
        new_pod=new_pod,
        queue=selection.queue,
        snapshot=snapshot,
        claims=claims,
        missing=missing,
        requested=_counted(new_pod, limits),
        limits=limits,
        passed={} if passed is None else passed,
        username=username,
    )
    for check in CHECKS:
        denial = check(inputs)
        if denial is not None:
            return Verdict(denial=denial)
    return Verdict(warnings=tuple(_warnings(inputs, rules)), annotations={"queue": selection.queue.name})


def charge_claims(new_pod: PodView, snapshot: Snapshot, work: WorkBudget) -> None:
    """Charge what the claims of a pod ask for, if they are many. Raises TooMuchWorkError."""
    if len(new_pod.claims) > FEW_CLAIMS:
        work.charge(
            Work.KNOWN_REQUEST, sum(len(claim.spec.requests) for claim in known_claims.look_up(new_pod, snapshot)[0])
        )


def _gate(new_pod: PodView) -> Iterator[json_patch.Operation]:
    if new_pod.gates is None:
        yield json_patch.add("/spec/schedulingGates", [{"name": names.GATE}])
    elif not new_pod.gated:
        yield json_patch.add("/spec/schedulingGates/-", {"name": names.GATE})


def _without_queue(new_pod: PodView, warning: str, snapshot: Snapshot) -> Verdict:
    warnings, annotations_ = [warning] if warning else [], {}
    if new_pod.claims or new_pod.containers:
        asked = outside_queues.asked(new_pod, snapshot)
        denial = outside_queues.denial(asked, new_pod.namespace, snapshot)
        if denial is not None:
            return Verdict(denial=denial)
        metered = asked.metered(snapshot.meters.values())
        if metered:
            warnings += outside_queues.warnings(asked, new_pod.namespace, snapshot)
            annotations_ = {outside_queues.NOTE: ", ".join(metered)}
    if new_pod.gated:
        warnings.append(
            f"muster: the pod has scheduling gate {names.GATE} but enters no queue, so nothing will ever open it;"
            f" name a queue in label {names.QUEUE} or leave the gate out"
        )
    return Verdict(warnings=warnings, annotations=annotations_) if warnings else ALLOWED


def _scheduler_is_not_bypassed(inputs: Inputs) -> Denial | None:
    node = inputs.new_pod.node
    if not node:
        return None
    return Denial(
        DenyReason.POLICY_VIOLATION,
        f"spec.nodeName is set to {node}: that bypasses the scheduler and so the gate of queue {inputs.queue.name};"
        " leave it out, and use spec.nodeSelector or node affinity to choose a node",
        {"node": node, "queue": inputs.queue.name},
    )


def _gate_is_there(inputs: Inputs) -> Denial | None:
    new_pod, queue = inputs.new_pod, inputs.queue.name
    if not new_pod.gated:
        return Denial(
            DenyReason.GATE_TAMPERING,
            f"the pod enters queue {queue} without scheduling gate {names.GATE}; {TRY_AGAIN}",
            {"queue": queue},
        )
    if new_pod.queue != queue:
        return Denial(
            DenyReason.GATE_TAMPERING,
            f"the pod enters queue {queue}, the default of namespace {new_pod.namespace},"
            f" without label {names.QUEUE}; {TRY_AGAIN}",
            {"queue": queue},
        )
    return None


def _job_creates_it(inputs: Inputs) -> Denial | None:
    """Refuse a pod that would count as a Job's pod, since its gang is identified by the Job's UID."""
    new_pod, username = inputs.new_pod, inputs.username
    if not new_pod.is_of_job or not username or username in JOB_CONTROLLERS:
        return None
    name = new_pod.controller.name if new_pod.controller is not None else ""
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"metadata.ownerReferences say that Job {name} controls the pod, and {username} makes it: only the Job"
        " controller makes pods of Jobs; leave the reference out, or its field controller",
        {"user": username, "job": name},
    )


def _maker_is_named(inputs: Inputs) -> Denial | None:
    value = inputs.new_pod.annotations.get(names.USER)
    if not inputs.username or value == maker(inputs.new_pod, inputs.username):
        return None
    return Denial(
        DenyReason.GATE_TAMPERING,
        f"annotation {names.USER} is {value!r}, and the pod is made by {inputs.username}; {TRY_AGAIN}",
        {"user": inputs.username},
    )


def _annotations_are_valid(inputs: Inputs) -> Denial | None:
    return annotations.judge(inputs.new_pod)


def _gang_name_is_free(inputs: Inputs) -> Denial | None:
    """Refuse the name of a gang that belongs to a workload: both gangs would have the same Gang object."""
    for where, text in inputs.new_pod.settings(names.GANG).items():
        gang = inputs.snapshot.gangs.get(f"{inputs.new_pod.namespace}/{text}")
        if gang is not None and gang.workload is not None and not gang.written_by_user:
            owner = f"{gang.workload.kind} {gang.workload.name}"
            return Denial(
                DenyReason.POLICY_VIOLATION,
                f"{where} {names.GANG} is {text}, the gang of {owner}, which no other pod can join; write another name",
                {"key": names.GANG, "gang": text},
            )
    return None


def _priority_class_is_known(inputs: Inputs) -> Denial | None:
    for where, name in inputs.new_pod.settings(names.PRIORITY_CLASS).items():
        denial = queue_selection.refuse_priority_class(name, inputs.queue)
        if denial is not None:
            return replace(denial, message=f"{where} {denial.message}")
    return None


def _claims_are_admissible(inputs: Inputs) -> Denial | None:
    """Check the claims and what is requested beside; cached, since the pods of a Job share their templates."""
    if inputs.new_pod.containers:
        return _first_denial(inputs)
    key: tuple[str | int, ...] = (inputs.queue.name,)
    key += tuple([id(claim.spec) * (-1 if claim.allocated else 1) for claim in inputs.claims])
    key += tuple([part for pair in inputs.requested.items() for part in pair])
    if key in inputs.passed:
        return None
    denial = _first_denial(inputs)
    if denial is None:
        if len(inputs.passed) >= MOST_PASSED:
            inputs.passed.clear()
        inputs.passed[key] = tuple(claim.spec for claim in inputs.claims)
    return denial


def _first_denial(inputs: Inputs) -> Denial | None:
    return next((denial for check in CLAIM_CHECKS if (denial := check(inputs)) is not None), None)


def _claims_are_small_enough(inputs: Inputs) -> Denial | None:
    return next((denial for claim in inputs.claims if (denial := too_large(claim)) is not None), None)


def too_large(claim: KnownClaim) -> Denial | None:
    """Refuse a claim with more devices than the allocator's limit; the API server does not check the sum.

    As in the allocator, a `firstAvailable` request counts as its smallest alternative, and `All`, whose count is not
    known before, as nothing (`dynamic-resource-allocation/structured`, AllocationResultsMaxSize, v0.37.1).
    """
    count = sum(
        min((alternative.count for alternative in request.alternatives), default=0) for request in claim.spec.requests
    )
    if count <= MAX_RESULTS:
        return None
    return Denial(
        DenyReason.CLAIM_TOO_LARGE,
        f"{claim.source} asks for {count} devices; Kubernetes allocates at most {MAX_RESULTS} in one claim;"
        " spread them over several claims or pods",
        {"count": count, "limit": MAX_RESULTS},
    )


def _classes_are_metered(inputs: Inputs) -> Denial | None:
    denials = (unmetered(claim, inputs.queue, inputs.snapshot) for claim in inputs.claims)
    return next((denial for denial in denials if denial is not None), None)


def unmetered(claim: KnownClaim, queue: Queue, snapshot: Snapshot) -> Denial | None:
    """Refuse a claim with a request for a class that no meter counts, unless the queue allows it."""
    if queue.unmetered is UnmeteredClasses.ALLOW:
        return None
    found = [
        (alternative.device_class, f"{request.name}/{alternative.name}" if request.first_available else request.name)
        for request in claim.spec.requests
        for alternative in request.alternatives
        if not _is_metered(alternative.device_class, snapshot)
    ]
    # A class that does not exist first: no Meter would help.
    device_class, name = min(found, key=lambda one: one[0] in snapshot.classes, default=("", ""))
    return _unmetered(device_class, claim.source, name, queue, snapshot) if found else None


def _fits_queue_limits(inputs: Inputs) -> Denial | None:
    new_pod, classes = inputs.new_pod, inputs.snapshot.classes
    if not new_pod.containers:
        return inputs.limits(inputs.queue, inputs.claims, Requested(resources=inputs.requested))
    requested = Requested(
        resources=inputs.requested,
        offered=extended_resources.resources_of(new_pod.containers, classes),
        claim=extended_resources.spec_of(new_pod.containers, classes),
    )
    return inputs.limits(inputs.queue, inputs.claims, requested)


def _counted(new_pod: PodView, limits: Limits) -> Resources:
    """Return what the pod requests of nodes and some meter counts; most often nothing is counted."""
    if not limits.counted:
        return {}
    requests = holdings.of_node(new_pod.requests())
    return {name: amount for name, amount in sorted(requests.items()) if name in limits.counted}


Check = Callable[[Inputs], Denial | None]

CLAIM_CHECKS: tuple[Check, ...] = (_claims_are_small_enough, _classes_are_metered, _fits_queue_limits)

CHECKS: tuple[Check, ...] = (
    _scheduler_is_not_bypassed,
    _gate_is_there,
    _job_creates_it,
    _maker_is_named,
    _annotations_are_valid,
    _gang_name_is_free,
    _priority_class_is_known,
    _claims_are_admissible,
)
"""Checks of a new pod that enters a queue, in order; the first denial is the answer."""


def _is_metered(device_class: str, snapshot: Snapshot) -> bool:
    return any(device_class in source.classes for meter in snapshot.meters.values() for source in meter.sources)


def _unmetered(device_class: str, source: str, request: str, queue: Queue, snapshot: Snapshot) -> Denial:
    asked = f"{source} asks in request {request} for device class {device_class or '(none)'}"
    details: dict[str, Detail] = {"class": device_class, "request": request, "source": source, "queue": queue.name}
    if device_class and snapshot.classes and device_class not in snapshot.classes:
        why = devices.absent_class(device_class, snapshot.classes, uncounted=True)
        return Denial(DenyReason.UNMETERED_CLASS, f"{asked}, {why}", details)
    metered = {name for meter in snapshot.meters.values() for name in meter.classes}
    counted = f" (counted: {suggestions.listed(device_class, metered)})" if metered else ""
    return Denial(
        DenyReason.UNMETERED_CLASS,
        f"{asked}, which no Meter counts{counted}, and queue {queue.name} refuses what is not counted; add the class to"
        " a Meter's sources, use another class, or set unmeteredClasses: Allow on the queue",
        details,
    )


def _warnings(inputs: Inputs, rules: Rules) -> Iterator[str]:
    namespace = inputs.new_pod.namespace
    for source in inputs.missing:
        existing = known_claims.existing(source, namespace, inputs.snapshot)
        there = f" (there are: {existing})" if existing else ""
        yield f"muster: {source} is not there in namespace {namespace}{there}; the pod waits until it exists"
    scheduler = inputs.new_pod.scheduler
    if scheduler and scheduler not in rules.schedulers:
        yield (
            f"muster: schedulerName {scheduler}: the gate holds the pod, but the plan follows kube-scheduler's rules;"
            " if this scheduler places the pod elsewhere, its gang is evicted when the queue's startTimeout is over"
        )
