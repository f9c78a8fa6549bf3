"""Rules at the door for pods: the claims and templates that a new pod refers to are judged once more.

They may be older than the policy, and only now is there a pod that rules can read. What a rule says that reads neither
the pod nor its user is the same for every pod of a template, so it is remembered for as long as policies, namespaces
and the template stay what they are: a Job's thousandth pod costs little more than a look-up.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from admission.api.claims import Claim, ClaimTemplate
from admission.api.reading import Json
from admission.api.snapshot import Snapshot
from admission.dra.cel.expressions import Budget
from admission.policy.arrivals import Arrival
from admission.policy.claims import documents, ruling, subjects
from admission.policy.claims.ruling import Rulebook, Ruling
from admission.policy.claims.selecting import Chosen, Policies
from admission.policy.claims.subjects import Subject, User

MOST = 4_096
"""Claims and templates of which the ruling is remembered, for each namespace and queue."""

_OF_POD = frozenset({"pod", "user"})

Asked = Claim | ClaimTemplate


@dataclass(slots=True)
class _Place:
    """A namespace and a queue: its rules, those that no pod matters to before the others, and what they said."""

    chosen: Chosen
    settled: tuple[Rulebook, ...]
    others: tuple[Rulebook, ...]
    said: dict[str, tuple[Asked, Ruling]] = field(default_factory=dict)


class Rulings:
    """One for the process; not shared between threads."""

    def __init__(self) -> None:
        self._policies: Policies | None = None
        self._places: dict[tuple[str, str], _Place] = {}

    def of(
        self, arrival: Arrival, snapshot: Snapshot, policies: Policies, *, pod: Callable[[], Json], user: User
    ) -> Ruling:
        """Return what the rules say of the claims of a new pod; pod: the whole of it. Raises RetryError."""
        place = self._place(arrival, policies)
        if not place.chosen.rules:
            return ruling.NOTHING
        namespace = subjects.namespace(arrival.namespace, snapshot.namespaces.get(arrival.namespace))
        budget = Budget(cost=ruling.COST, steps=ruling.STEPS)
        found = []
        for label, asked in _asked(arrival, snapshot):
            subject = _Lazy(asked, namespace=namespace, queue=arrival.queue, label=label, pod=pod, user=user)
            found.append(_settled(place, asked, subject, budget))
            if place.others:
                found.append(ruling.judge(place.others, [subject.get()], budget=budget))
        return ruling.merged(found)

    def _place(self, arrival: Arrival, policies: Policies) -> _Place:
        if self._policies is not policies:
            self._policies, self._places = policies, {}
        key = arrival.namespace, arrival.queue
        place = self._places.get(key)
        if place is None:
            chosen = policies.choose(*key)
            settled = (book.only(lambda rule: not rule.reads & _OF_POD) for book in chosen.rules)
            others = (book.only(lambda rule: bool(rule.reads & _OF_POD)) for book in chosen.rules)
            place = _Place(chosen, _with_rules(settled), _with_rules(others))
            self._places[key] = place
        return place


class _Lazy:
    """The subject for one claim, made when somebody asks for it."""

    def __init__(  # noqa: PLR0913 - as many things as expressions may read
        self, asked: Asked, *, namespace: Json, queue: str, label: str, pod: Callable[[], Json], user: User
    ) -> None:
        self._asked = asked
        self._namespace, self._queue, self._label, self._pod, self._user = namespace, queue, label, pod, user
        self._subject: Subject | None = None

    def get(self) -> Subject:
        if self._subject is None:
            asked = self._asked
            self._subject = Subject(
                documents.of_claim(asked) if isinstance(asked, Claim) else documents.of_template(asked),
                namespace=self._namespace,
                pod=self._pod,
                user=subjects.person(self._user),
                queue=self._queue,
                label=self._label,
            )
        return self._subject


def _settled(place: _Place, asked: Asked, subject: _Lazy, budget: Budget) -> Ruling:
    """Return what the rules say that no pod matters to, from memory where the claim is the same."""
    if not place.settled:
        return ruling.NOTHING
    key = f"{type(asked).__name__} {asked.meta.key}"
    known = place.said.get(key)
    if known is not None and known[0] is asked:
        return known[1]
    said = ruling.judge(place.settled, [subject.get()], budget=budget)
    # What ran out of its budget may fare better on another day.
    if budget.cost > 0 and budget.steps > 0:
        if len(place.said) >= MOST:
            place.said.clear()
        place.said[key] = asked, said
    return said


def _asked(arrival: Arrival, snapshot: Snapshot) -> Iterator[tuple[str, Asked]]:
    """Yield the claims and templates that a pod refers to, each once; those that are not there yet come later."""
    for name in dict.fromkeys(claim.template for claim in arrival.claims if claim.template):
        template = snapshot.templates.get(f"{arrival.namespace}/{name}")
        if template is not None:
            yield f"ResourceClaimTemplate {name}", template
    for name in dict.fromkeys(claim.claim for claim in arrival.claims if claim.claim):
        found = snapshot.claims.get(f"{arrival.namespace}/{name}")
        if found is not None:
            yield f"ResourceClaim {name}", found


def _with_rules(books: Iterator[Rulebook]) -> tuple[Rulebook, ...]:
    return tuple(book for book in books if book.rules)
