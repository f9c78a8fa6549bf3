"""The webhook for claims and claim templates: their defaults, and their denials. `podpolicy.admission` judges pods.

The queue of a claim is the one that its label muster.dev/queue names (for a template: the label that its claims will
carry); else the default queue of its namespace; else none. A claim has no pod yet, and pods of several queues may use
it, so a claim that names no queue is refused for quota only if no queue that its namespace may enter could hold it. A
claim that Kubernetes makes for an existing pod is not judged for quota: its pod was judged already, and the pod's queue
need not be the claim's.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from admission.api.kubernetes import claims
from admission.api.kubernetes.admission_review import ALLOWED, Verdict
from admission.api.kubernetes.claims import ClaimSpec
from admission.api.muster.queues import Queue
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.reasons import Denial, DenyReason
from admission.api.values.work_budget import Work, WorkBudget
from admission.claimpolicy import cel_subject, claim_shape, defaults, draft, rules, selector_warnings
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.defaults import Completed, Requester
from admission.claimpolicy.match import Policies
from admission.device_cel.selector_findings import SelectorFindings
from admission.errors import MalformedObjectError
from admission.podpolicy import admission, queue_selection
from admission.podpolicy.known_claims import KnownClaim
from admission.podpolicy.pod_view import PodView
from admission.podpolicy.queue_limits import Limits
from admission.podpolicy.queue_selection import Defaults, QueueSelection

CLAIM_CONTROLLERS = ("system:serviceaccount:kube-system:resource-claim-controller", "system:kube-controller-manager")
"""The user names of the controller that makes claims from templates: its own account, or that of
kube-controller-manager."""

POD_CLAIM = "resource.kubernetes.io/pod-claim-name"
"""Annotation of the claims that Kubernetes makes from a pod's templates."""

SCHEDULER = "system:kube-scheduler"
"""Makes and allocates claims for extended resources in one step; nothing may change those claims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimView:
    """A ResourceClaim or, with `template`, a ResourceClaimTemplate at admission, as JSON, and its creator."""

    obj: Json
    namespace: str
    user: User
    template: bool = False

    @property
    def queue(self) -> str:
        """Return the queue that the object names, or ""."""
        inner = draft.value_at(self.obj, "spec", "metadata", "labels", names.QUEUE) if self.template else None
        return _text(inner) or _text(draft.value_at(self.obj, "metadata", "labels", names.QUEUE))

    @property
    def is_for_pod(self) -> bool:
        """Whether Kubernetes makes it for an existing pod. Offline no user is known: the annotation decides."""
        if self.user.username not in ("", *CLAIM_CONTROLLERS):
            return False
        return draft.value_at(self.obj, "metadata", "annotations", POD_CLAIM) is not None

    @property
    def label(self) -> str:
        """Return the object's kind and name for messages."""
        name, prefix = (_text(draft.value_at(self.obj, "metadata", field)) for field in ("name", "generateName"))
        noun = "ResourceClaimTemplate" if self.template else "ResourceClaim"
        return f"{noun} {name or prefix or '(unnamed)'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimContext:
    """What the webhook knows of the cluster and keeps from one review to the next; work: what is left for this one."""

    snapshot: Snapshot
    defaults: Defaults
    limits: Limits
    policies: Policies
    selectors: SelectorFindings = field(default_factory=SelectorFindings)
    work: WorkBudget = field(default_factory=WorkBudget)


def complete(claim_view: ClaimView, context: ClaimContext) -> Verdict:
    """Return the defaults for a new claim or template. Refuses only what the API server would. Raises RetryError."""
    malformed = _charge(claim_view, context)
    if malformed is not None:
        return Verdict(denial=malformed)
    completed = completion(claim_view, context)
    if not (completed.patch or completed.warnings):
        return ALLOWED
    return Verdict(patch=completed.patch, warnings=completed.warnings)


def _charge(claim_view: ClaimView, context: ClaimContext) -> Denial | None:
    """Charge the size of the object, if its shape is one that the API server takes. Raises TooMuchWorkError."""
    kind, _, name = claim_view.label.partition(" ")
    try:
        requests = claim_shape.check(claim_view.obj, kind, name, template=claim_view.template)
    except MalformedObjectError as error:
        return _malformed(claim_view, error)
    context.work.charge(Work.REQUEST, requests)
    context.work.charge_values(claim_view.obj)
    return None


def _malformed(claim_view: ClaimView, error: MalformedObjectError) -> Denial:
    return Denial(DenyReason.MALFORMED_CLAIM, str(error), {"source": claim_view.label})


def completion(claim_view: ClaimView, context: ClaimContext) -> Completed:
    """Return a new claim or template with its defaults. Raises RetryError."""
    if claim_view.user.username == SCHEDULER:
        return Completed(obj=claim_view.obj)
    queue = claim_view.queue or _name(_selection(claim_view, context))
    matched = context.policies.choose(claim_view.namespace, queue)
    if not matched.defaults:
        return Completed(obj=claim_view.obj)
    namespace = cel_subject.namespace(claim_view.namespace, context.snapshot.namespaces.get(claim_view.namespace))
    requester = Requester(namespace=namespace, queue=queue, user=cel_subject.requesting_user(claim_view.user))
    return defaults.complete(
        matched.defaults, claim_view.obj, requester, template=claim_view.template, work=context.work
    )


def judge(claim_view: ClaimView, context: ClaimContext) -> Verdict:
    """Judge a new claim or template as it will be stored. Raises RetryError."""
    if claim_view.user.username == SCHEDULER:
        return ALLOWED
    malformed = _charge(claim_view, context)
    if malformed is not None:
        return Verdict(denial=malformed)
    selection = _selection(claim_view, context)
    if selection.denial is not None:
        return Verdict(denial=selection.denial)
    try:
        spec = _spec(claim_view)
    except MalformedObjectError as error:
        return Verdict(denial=_malformed(claim_view, error))
    claim = KnownClaim(source=claim_view.label, spec=spec)
    denial = (
        admission.too_large(claim)
        or _uncompilable_selector(claim, context)
        or _exceeds_every_limit(claim_view, claim, selection, context)
    )
    if denial is not None:
        return Verdict(denial=denial)
    verdict = _judge_rules(claim_view, claim_view.queue or _name(selection), context)
    warnings = (
        () if claim_view.is_for_pod else selector_warnings.warnings(claim, context.snapshot.classes, context.selectors)
    )
    return replace(verdict, warnings=(*verdict.warnings, *warnings)) if warnings else verdict


def _judge_rules(claim_view: ClaimView, queue: str, context: ClaimContext) -> Verdict:
    """Return the verdict of the policies' rules. queue: empty for a claim without one."""
    matched = context.policies.choose(claim_view.namespace, queue)
    if not matched.rules:
        return ALLOWED
    obj = claim_view.obj
    claim = (
        cel_subject.claim_from_template(obj.get("metadata") or {}, obj.get("spec") or {})
        if claim_view.template
        else obj
    )
    namespace = cel_subject.namespace(claim_view.namespace, context.snapshot.namespaces.get(claim_view.namespace))
    user = cel_subject.requesting_user(claim_view.user)
    subject = Subject(claim, namespace=namespace, user=user, queue=queue)
    ruling = rules.judge(matched.rules, [subject], work=context.work)
    return Verdict(denial=ruling.denial, warnings=ruling.warnings, annotations=ruling.annotations)


def _name(selection: QueueSelection) -> str:
    return "" if selection.queue is None else selection.queue.name


def _selection(claim_view: ClaimView, context: ClaimContext) -> QueueSelection:
    labels = {names.QUEUE: claim_view.queue}
    return queue_selection.select_queue(
        PodView(namespace=claim_view.namespace, labels=labels), context.snapshot, context.defaults
    )


def _spec(claim_view: ClaimView) -> ClaimSpec:
    obj = claims.upgraded(claim_view.obj)
    return claims.decode_template(obj).spec if claim_view.template else claims.decode(obj).spec


def _uncompilable_selector(claim: KnownClaim, context: ClaimContext) -> Denial | None:
    """Refuse a selector that does not compile on any supported API server. Each text is looked at once."""
    seen = set[str]()
    for request in claim.spec.requests:
        for alternative in request.alternatives:
            name = f"{request.name}/{alternative.name}" if request.first_available else request.name
            for index, text in enumerate(alternative.selectors):
                if text in seen:
                    continue
                seen.add(text)
                refusal = context.selectors.find(text, context.work).refusal
                if refusal is not None:
                    return Denial(
                        DenyReason.MALFORMED_CLAIM,
                        f"{claim.source}, request {name}, selectors[{index}]: {refusal}; correct the expression",
                        {"source": claim.source, "request": name},
                    )
    return None


def _exceeds_every_limit(
    claim_view: ClaimView, claim: KnownClaim, selection: QueueSelection, context: ClaimContext
) -> Denial | None:
    """Refuse a claim that the named queue, or every queue that the claim's pods could enter, refuses for every pod."""
    if selection.queue is None or claim_view.is_for_pod:
        return None
    first = _limit_denial(claim, selection.queue, context)
    if first is None or claim_view.queue:
        return first
    open_queues = queue_selection.open_to(claim_view.namespace, context.snapshot)
    if any(_limit_denial(claim, queue, context) is None for queue in open_queues):
        return None
    suffix = (
        f"; nor can any other queue that is open to namespace {claim_view.namespace}" if len(open_queues) > 1 else ""
    )
    return replace(first, message=f"{first.message}{suffix}")


def _limit_denial(claim: KnownClaim, queue: Queue, context: ClaimContext) -> Denial | None:
    unmetered = admission.unmetered(claim, queue, context.snapshot)
    return unmetered or context.limits(queue, [claim], noun=claim.source)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
