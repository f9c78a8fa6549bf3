"""Rules at admission of pods: the claims and templates that a new pod refers to are judged again.

They may be older than the policy, and only now is there a pod for rules to read. A rule that reads neither the pod nor
its user has the same result for every pod of a template, so the result is cached until policies, namespaces or the
template change: a Job's thousandth pod costs little more than a look-up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster.policy_rules import Action
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.api.values.work_budget import Work, WorkBudget
from admission.cel.expressions import Budget
from admission.claimpolicy import cel_subject, claim_documents, rules
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.match import MatchedPolicies, Policies
from admission.claimpolicy.rules import CompiledRule, Rulebook, Ruling
from admission.incremental import Memo, are_same
from admission.podpolicy.admission import FEW_CLAIMS
from admission.podpolicy.pod_view import PodView

MAX_CACHED = 4_096
"""The most claims and templates with a cached ruling, for each namespace and queue."""

_POD_VARIABLES = frozenset({"pod", "user"})

ReferredObject = Claim | ClaimTemplate


@dataclass(slots=True)
class _RuleCache:
    """The rules of a namespace and queue, and cached rulings on each claim.

    pod_independent: the rules that read neither pod nor user. pod_dependent: all that do. user_independent: those of
    these that need no user. claim_required: the rules that deny and could not be evaluated for a claim that is created
    after its pod. rulings: by claim, the ruling of the pod-independent rules.

    A ruling is derived from the objects that are kept with it. It is not kept over `admission.incremental`, since one
    that ran out of its budget must not be kept, and the number of rulings is bounded.
    """

    matched: MatchedPolicies
    pod_independent: tuple[Rulebook, ...]
    user_independent: tuple[Rulebook, ...]
    pod_dependent: tuple[Rulebook, ...]
    claim_required: tuple[Rulebook, ...]
    rulings: dict[str, tuple[ReferredObject, Subject, Ruling]] = field(default_factory=dict)
    rulings_by_pod: dict[tuple[PodClaim, ...], tuple[tuple[ReferredObject | None, ...], Ruling]] = field(
        default_factory=dict
    )
    """By the claims of a pod: the objects that these were, and the pod-independent rules' ruling on all of them."""


class Rulings:
    """The cached rulings of the process; not shared between threads."""

    def __init__(self) -> None:
        self._caches = Memo[None, dict[tuple[str, str], _RuleCache]]()

    def evaluate(
        self,
        new_pod: PodView,
        snapshot: Snapshot,
        policies: Policies,
        *,
        pod: Callable[[], Json],
        user: User,
        work: WorkBudget | None = None,
    ) -> Ruling:
        """Return the ruling on the claims of a new pod; pod: its whole JSON. Raises RetryError, TooMuchWorkError."""
        work = work if work is not None else WorkBudget()
        cache = self._cache_for(new_pod, policies)
        if not cache.matched.rules:
            return rules.NO_FINDINGS
        requesting_user = cel_subject.requesting_user(user)
        uncached = cache.user_independent if requesting_user is None else cache.pod_dependent
        if not uncached and not (cache.claim_required and any(_missing(new_pod, snapshot))):
            return _cached_pod_ruling(cache, new_pod, snapshot, work)
        budget = rules.new_budget(work)
        found = []
        pod = _charged(pod, work)
        for label, referred in _existing(new_pod, snapshot):
            subject, ruling = _cached_ruling(cache, referred, label, new_pod, snapshot, budget, work)
            found.append(ruling)
            if uncached:
                with_pod = subject.with_pod(pod=pod, user=requesting_user)
                found.append(rules.judge(uncached, [with_pod], budget=budget, work=work))
        if cache.claim_required:
            absent = ("user",) if requesting_user is None else ()
            found += [
                rules.unevaluated(cache.claim_required, label, absent=absent) for label in _missing(new_pod, snapshot)
            ]
        return rules.merged(found)

    def _cache_for(self, new_pod: PodView, policies: Policies) -> _RuleCache:
        caches = self._caches.get(None, (policies,), dict)
        key = new_pod.namespace, new_pod.queue
        cache = caches.get(key)
        if cache is None:
            matched = policies.choose(*key)
            cache = _RuleCache(
                matched=matched,
                pod_independent=_filtered(matched, lambda rule: not rule.reads & _POD_VARIABLES),
                user_independent=_filtered(
                    matched, lambda rule: bool(rule.reads & _POD_VARIABLES) and "user" not in rule.needs
                ),
                pod_dependent=_filtered(matched, lambda rule: bool(rule.reads & _POD_VARIABLES)),
                claim_required=_claim_required(matched),
            )
            caches[key] = cache
        return cache


def _charged(pod: Callable[[], Json], work: WorkBudget) -> Callable[[], Json]:
    """Return a function that charges the size of the pod when an expression first reads it."""

    def charged() -> Json:
        obj = pod()
        work.charge_values(obj)
        return obj

    return charged


def _cached_pod_ruling(cache: _RuleCache, new_pod: PodView, snapshot: Snapshot, work: WorkBudget) -> Ruling:
    """Return the pod-independent rules' ruling on all claims of a pod; cached while the claims are the same objects."""
    referred = tuple([_look_up(claim, new_pod.namespace, snapshot) for claim in new_pod.claims])
    known = cache.rulings_by_pod.get(new_pod.claims)
    if known is not None and are_same(known[0], referred):
        return known[1]
    budget = rules.new_budget(work)
    found = [
        _cached_ruling(cache, one, label, new_pod, snapshot, budget, work)[1]
        for label, one in _existing(new_pod, snapshot)
    ]
    ruling = rules.merged(found)
    if budget.cost > 0 and budget.steps > 0:
        if len(cache.rulings_by_pod) >= MAX_CACHED:
            cache.rulings_by_pod.clear()
        cache.rulings_by_pod[new_pod.claims] = referred, ruling
    return ruling


def _look_up(claim: PodClaim, namespace: str, snapshot: Snapshot) -> ReferredObject | None:
    if claim.template:
        return snapshot.templates.get(f"{namespace}/{claim.template}")
    return snapshot.claims.get(f"{namespace}/{claim.claim}")


def _cached_ruling(  # noqa: PLR0917 - what an answer depends on
    cache: _RuleCache,
    referred: ReferredObject,
    label: str,
    new_pod: PodView,
    snapshot: Snapshot,
    budget: Budget,
    work: WorkBudget,
) -> tuple[Subject, Ruling]:
    """Return a claim as a subject, and the cached ruling on it; cached while the claim is the same object.

    Where there are many, the work is charged for a cached ruling, too, so that the answer does not depend on what was
    asked before.
    """
    if len(new_pod.claims) > FEW_CLAIMS:
        work.charge(Work.REQUEST, len(referred.spec.requests))
    key = f"{type(referred).__name__} {referred.meta.key}"
    known = cache.rulings.get(key)
    if known is not None and known[0] is referred:
        return known[1], known[2]
    subject = Subject(
        claim_documents.encode_claim(referred)
        if isinstance(referred, Claim)
        else claim_documents.encode_template(referred),
        namespace=cel_subject.namespace(new_pod.namespace, snapshot.namespaces.get(new_pod.namespace)),
        queue=new_pod.queue,
        label=label,
    )
    ruling = rules.judge(cache.pod_independent, [subject], budget=budget)
    # A ruling that ran out of its budget may end differently in a review with more left.
    if budget.cost > 0 and budget.steps > 0:
        if len(cache.rulings) >= MAX_CACHED:
            cache.rulings.clear()
        cache.rulings[key] = referred, subject, ruling
    return subject, ruling


def _existing(new_pod: PodView, snapshot: Snapshot) -> Iterator[tuple[str, ReferredObject]]:
    """Yield the claims and templates that a pod refers to and that exist, with their names for messages."""
    for label, found in _referred(new_pod, snapshot):
        if found is not None:
            yield label, found


def _missing(new_pod: PodView, snapshot: Snapshot) -> Iterator[str]:
    """Yield the names for messages of the claims and templates that a pod refers to and that do not exist yet."""
    return (label for label, found in _referred(new_pod, snapshot) if found is None)


def _referred(new_pod: PodView, snapshot: Snapshot) -> Iterator[tuple[str, ReferredObject | None]]:
    """Yield each claim and template that a pod refers to once."""
    for name in dict.fromkeys(claim.template for claim in new_pod.claims if claim.template):
        yield f"ResourceClaimTemplate {name}", snapshot.templates.get(f"{new_pod.namespace}/{name}")
    for name in dict.fromkeys(claim.claim for claim in new_pod.claims if claim.claim):
        yield f"ResourceClaim {name}", snapshot.claims.get(f"{new_pod.namespace}/{name}")


def _claim_required(matched: MatchedPolicies) -> tuple[Rulebook, ...]:
    """Return the denying rules that read the pod, or are of a policy for some queues: a claim may name another."""
    of_queues = {policy.name for policy in matched.policies if policy.queues}
    denying = _filtered(matched, lambda rule: rule.rule.action is Action.DENY)
    rulebooks = (
        rulebook if rulebook.policy in of_queues else rulebook.filtered(lambda rule: "pod" in rule.needs)
        for rulebook in denying
    )
    return tuple(rulebook for rulebook in rulebooks if rulebook.rules)


def _filtered(matched: MatchedPolicies, wanted: Callable[[CompiledRule], bool]) -> tuple[Rulebook, ...]:
    rulebooks = (rulebook.filtered(wanted) for rulebook in matched.rules)
    return tuple(rulebook for rulebook in rulebooks if rulebook.rules)
