"""Rules at admission of pods: the claims and templates that a new pod refers to are judged again.

They may be older than the policy, and only now is there a pod for rules to read. A rule that reads neither the pod nor
its user has the same result for every pod of a template, so the result is cached until policies, namespaces or the
template change: a Job's thousandth pod costs little more than a look-up.
"""

import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from admission.api.kubernetes.claims import Claim, ClaimTemplate
from admission.api.kubernetes.pods import PodClaim
from admission.api.muster.policy_rules import Action
from admission.api.snapshot import Snapshot
from admission.api.values.decoding import Json
from admission.cel.expressions import Budget
from admission.claimpolicy import cel_subject, claim_documents, rules
from admission.claimpolicy.cel_subject import Subject, User
from admission.claimpolicy.match import MatchedPolicies, Policies
from admission.claimpolicy.rules import Compiled, Rulebook, Ruling
from admission.podpolicy.pod_view import PodView

MOST = 4_096
"""The most claims and templates with a cached ruling, for each namespace and queue."""

_OF_POD = frozenset({"pod", "user"})

Asked = Claim | ClaimTemplate


@dataclass(slots=True)
class _Place:
    """The rules of a namespace and queue, and cached rulings on each claim.

    settled: the rules that read neither pod nor user. others: all that do. of_pod: those of the others that need no
    user. early: the rules that deny and could not be evaluated for a claim that is created after its pod. said: by
    claim, the ruling of the settled rules.
    """

    chosen: MatchedPolicies
    settled: tuple[Rulebook, ...]
    of_pod: tuple[Rulebook, ...]
    others: tuple[Rulebook, ...]
    early: tuple[Rulebook, ...]
    said: dict[str, tuple[Asked, Subject, Ruling]] = field(default_factory=dict)
    together: dict[tuple[PodClaim, ...], tuple[tuple[Asked | None, ...], Ruling]] = field(default_factory=dict)
    """By the claims of a pod: the objects that these were, and the settled rules' ruling on all of them."""


class Rulings:
    """The cached rulings of the process; not shared between threads."""

    def __init__(self) -> None:
        self._policies: Policies | None = None
        self._places: dict[tuple[str, str], _Place] = {}

    def evaluate(
        self, new_pod: PodView, snapshot: Snapshot, policies: Policies, *, pod: Callable[[], Json], user: User
    ) -> Ruling:
        """Return the ruling on the claims of a new pod; pod: its whole JSON. Raises RetryError."""
        place = self._place(new_pod, policies)
        if not place.chosen.rules:
            return rules.NOTHING
        person = cel_subject.person(user)
        open_ = place.of_pod if person is None else place.others
        if not open_ and not (place.early and any(_missing(new_pod, snapshot))):
            return _together(place, new_pod, snapshot)
        budget = Budget(cost=rules.COST, steps=rules.STEPS)
        found = []
        for label, asked in _asked(new_pod, snapshot):
            subject, settled = _settled(place, asked, label, new_pod, snapshot, budget)
            found.append(settled)
            if open_:
                found.append(rules.judge(open_, [subject.used(pod=pod, user=person)], budget=budget))
        if place.early:
            absent = ("user",) if person is None else ()
            found += [rules.unasked(place.early, label, absent=absent) for label in _missing(new_pod, snapshot)]
        return rules.merged(found)

    def _place(self, new_pod: PodView, policies: Policies) -> _Place:
        if self._policies is not policies:
            self._policies, self._places = policies, {}
        key = new_pod.namespace, new_pod.queue
        place = self._places.get(key)
        if place is None:
            chosen = policies.choose(*key)
            place = _Place(
                chosen=chosen,
                settled=_part(chosen, lambda rule: not rule.reads & _OF_POD),
                of_pod=_part(chosen, lambda rule: bool(rule.reads & _OF_POD) and "user" not in rule.needs),
                others=_part(chosen, lambda rule: bool(rule.reads & _OF_POD)),
                early=_early(chosen),
            )
            self._places[key] = place
        return place


def _together(place: _Place, new_pod: PodView, snapshot: Snapshot) -> Ruling:
    """Return the settled rules' ruling on all claims of a pod; cached while the claims are the same objects."""
    asked = tuple([_look_up(claim, new_pod.namespace, snapshot) for claim in new_pod.claims])
    known = place.together.get(new_pod.claims)
    if known is not None and all(map(operator.is_, known[0], asked)):
        return known[1]
    budget = Budget(cost=rules.COST, steps=rules.STEPS)
    found = [_settled(place, one, label, new_pod, snapshot, budget)[1] for label, one in _asked(new_pod, snapshot)]
    said = rules.merged(found)
    if budget.cost > 0 and budget.steps > 0:
        if len(place.together) >= MOST:
            place.together.clear()
        place.together[new_pod.claims] = asked, said
    return said


def _look_up(claim: PodClaim, namespace: str, snapshot: Snapshot) -> Asked | None:
    if claim.template:
        return snapshot.templates.get(f"{namespace}/{claim.template}")
    return snapshot.claims.get(f"{namespace}/{claim.claim}")


def _settled(  # noqa: PLR0917 - what an answer depends on
    place: _Place, asked: Asked, label: str, new_pod: PodView, snapshot: Snapshot, budget: Budget
) -> tuple[Subject, Ruling]:
    """Return a claim as a subject, and the settled rules' ruling on it; cached while the claim is the same object."""
    key = f"{type(asked).__name__} {asked.meta.key}"
    known = place.said.get(key)
    if known is not None and known[0] is asked:
        return known[1], known[2]
    subject = Subject(
        claim_documents.of_claim(asked) if isinstance(asked, Claim) else claim_documents.of_template(asked),
        namespace=cel_subject.namespace(new_pod.namespace, snapshot.namespaces.get(new_pod.namespace)),
        queue=new_pod.queue,
        label=label,
    )
    said = rules.judge(place.settled, [subject], budget=budget)
    # A ruling that ran out of its budget may end differently in a review with more left.
    if budget.cost > 0 and budget.steps > 0:
        if len(place.said) >= MOST:
            place.said.clear()
        place.said[key] = asked, subject, said
    return subject, said


def _asked(new_pod: PodView, snapshot: Snapshot) -> Iterator[tuple[str, Asked]]:
    """Yield the claims and templates that a pod refers to and that exist, with their names for messages."""
    for label, found in _referred(new_pod, snapshot):
        if found is not None:
            yield label, found


def _missing(new_pod: PodView, snapshot: Snapshot) -> Iterator[str]:
    """Yield the names for messages of the claims and templates that a pod refers to and that do not exist yet."""
    return (label for label, found in _referred(new_pod, snapshot) if found is None)


def _referred(new_pod: PodView, snapshot: Snapshot) -> Iterator[tuple[str, Asked | None]]:
    """Yield each claim and template that a pod refers to once."""
    for name in dict.fromkeys(claim.template for claim in new_pod.claims if claim.template):
        yield f"ResourceClaimTemplate {name}", snapshot.templates.get(f"{new_pod.namespace}/{name}")
    for name in dict.fromkeys(claim.claim for claim in new_pod.claims if claim.claim):
        yield f"ResourceClaim {name}", snapshot.claims.get(f"{new_pod.namespace}/{name}")


def _early(chosen: MatchedPolicies) -> tuple[Rulebook, ...]:
    """Return the denying rules that read the pod, or are of a policy for some queues: a claim may name another."""
    of_queues = {policy.name for policy in chosen.policies if policy.queues}
    denying = _part(chosen, lambda rule: rule.rule.action is Action.DENY)
    books = (book if book.policy in of_queues else book.only(lambda rule: "pod" in rule.needs) for book in denying)
    return tuple(book for book in books if book.rules)


def _part(chosen: MatchedPolicies, wanted: Callable[[Compiled], bool]) -> tuple[Rulebook, ...]:
    books = (book.only(wanted) for book in chosen.rules)
    return tuple(book for book in books if book.rules)
