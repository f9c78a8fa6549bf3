"""The allocator's search for one pod on one node: depth first, first fit, over profiles.

Mirrors `allocateOne` of `structured/internal/incubating/allocator_incubating.go` (v0.37.1) for ExactCount requests: the
first full solution wins; devices of one request are tried as ordered combinations; a later failure makes earlier
requests and claims try other devices. Selectors are asked only where the search comes, so a failing one matters only
there. Branches that cannot differ from one that failed are not tried: a device whose profile failed in the same place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from admission.dra.asking import ClaimAsk, NotSimulated, Refusal
from admission.dra.profiles import LISTS, Answer, Profile, Profiles, Value


@dataclass(frozen=True, slots=True)
class Found:
    """Per claim the positions of its devices among the free ones, with the request's number, in the order taken."""

    picks: tuple[tuple[tuple[int, int], ...], ...]


@dataclass(frozen=True, slots=True, order=True)
class Stuck:
    """The farthest request that could not be served: its claim and place, how many devices it had by then.

    constrained: whether a constraint of the claim turned devices away.
    """

    claim: int
    request: int
    had: int
    constrained: bool = False


class StepsEndedError(Exception):
    """Raised inside the planner only: the budget is spent."""


class Budget:
    """Steps that a search may still take; a step is one device tried or one pod placed."""

    __slots__ = ("left", "total")

    def __init__(self, steps: int) -> None:
        self.total = steps
        self.left = steps

    @property
    def spent(self) -> int:
        return self.total - max(0, self.left)

    def spend(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise StepsEndedError


def search(
    claims: Sequence[ClaimAsk], free: Sequence[int], profiles: Profiles, budget: Budget
) -> Found | Stuck | Refusal:
    """Return devices for all claims of a pod, or what stopped the search. free: profile numbers, in order.

    Raises StepsEndedError.
    """
    run = _Search(claims, free, profiles, budget)
    if run.is_short():
        return run.farthest
    answer = run.claim(0)
    if answer is True:
        return Found(tuple(map(tuple, run.picks)))
    return run.farthest if answer is False else answer


class _Search:
    """One search. Its methods return True when everything from there on is served, False when it cannot be."""

    def __init__(self, claims: Sequence[ClaimAsk], free: Sequence[int], profiles: Profiles, budget: Budget) -> None:
        self.claims = claims
        self.picks: list[list[tuple[int, int]]] = [[] for _ in claims]
        self.farthest = Stuck(0, 0, 0)
        self._budget = budget
        self._free = free
        self._known: Sequence[Profile] = [profiles.known[number] for number in free]
        self._used = [False] * len(free)
        asks = {ask: at for at, ask in enumerate(profiles.need.asks)}
        self._asks = [[asks[request.ask] for request in claim.requests] for claim in claims]
        self._values: list[list[list[Value]]] = [[[] for _ in claim.rules] for claim in claims]
        self._places = {name: at for at, name in enumerate(profiles.need.attributes)}

    def is_short(self) -> bool:
        """Return whether the devices are too few for all requests together, and note the request that lacks some.

        Without this a request that comes after others would make them try every subset. It is sound only if no device
        stops the search: kube-scheduler would meet it on its way and give up.
        """
        asks = {ask for claim in self._asks for ask in claim}
        answers = [[profile.answers[ask] for ask in asks] for profile in self._known]
        if any(not isinstance(answer, Answer) for row in answers for answer in row):
            return False
        left = sum(Answer.YES in row for row in answers)
        matching = {ask: sum(profile.answers[ask] is Answer.YES for profile in self._known) for ask in asks}
        for at, claim in enumerate(self.claims):
            for number, request in enumerate(claim.requests):
                ask = self._asks[at][number]
                has = min(left, matching[ask])
                if has < request.count:
                    self.farthest = Stuck(at, number, has)
                    return True
                left -= request.count
                matching[ask] -= request.count
        return False

    def claim(self, claim: int) -> bool | Refusal:
        return True if claim == len(self.claims) else self._request(claim, 0)

    def _request(self, claim: int, request: int) -> bool | Refusal:
        requests = self.claims[claim].requests
        if request == len(requests):
            return self.claim(claim + 1)
        return self._device(claim, request, requests[request].count, 0)

    def _device(self, claim: int, request: int, missing: int, start: int) -> bool | Refusal:
        """Give one more device to a request. Devices before `start` were tried in its earlier places."""
        if missing <= 0:
            return self._request(claim, request + 1)
        constrained = False
        for at in self._candidates(self._asks[claim][request], start):
            if isinstance(at, Refusal):
                return at
            fits = self._bind(claim, request, at)
            if fits is not True:
                if fits is not False:
                    return fits
                constrained = True
                continue
            answer = self._with(claim, request, at, missing)
            if answer is not False:
                return answer
        had = self.claims[claim].requests[request].count - missing
        self.farthest = max(self.farthest, Stuck(claim, request, had, constrained))
        return False

    def _candidates(self, ask: int, start: int) -> Iterator[int | Refusal]:
        """Yield free devices that do for an ask, one of each profile: where it failed, an equal one fails too."""
        tried = set()
        for at in range(start, len(self._free)):
            number = self._free[at]
            if self._used[at] or number in tried:
                continue
            answer = self._known[at].answers[ask]
            if answer is Answer.YES:
                tried.add(number)
                yield at
            elif not isinstance(answer, Answer):
                yield answer

    def _with(self, claim: int, request: int, at: int, missing: int) -> bool | Refusal:
        """Go on with a device taken; give it back when that leads nowhere."""
        self._budget.spend()
        self._used[at] = True
        self.picks[claim].append((request, at))
        answer = self._device(claim, request, missing - 1, at + 1)
        if answer is False:
            self.picks[claim].pop()
            self._used[at] = False
            self._unbind(claim, request)
        return answer

    def _bind(self, claim: int, request: int, at: int) -> bool | Refusal:
        """Note the device's values for every constraint on the request, or nothing where one is not satisfied."""
        rules = self._bound(claim, request)
        for rule in rules:
            described = self.claims[claim].rules[rule]
            value = self._known[at].values[self._places[described.attribute]]
            if value is not None and value[0] == LISTS:
                return NotSimulated(f"list attribute {described.attribute} under a constraint", f"claim {claim}")
            if value is None or not _agrees(value, self._values[claim][rule], distinct=described.distinct):
                return False
        for rule in rules:
            value = self._known[at].values[self._places[self.claims[claim].rules[rule].attribute]]
            if value is not None:
                self._values[claim][rule].append(value)
        return True

    def _unbind(self, claim: int, request: int) -> None:
        for rule in self._bound(claim, request):
            self._values[claim][rule].pop()

    def _bound(self, claim: int, request: int) -> list[int]:
        name = self.claims[claim].requests[request].name
        return [at for at, rule in enumerate(self.claims[claim].rules) if rule.binds(name)]


def _agrees(value: Value, before: Sequence[Value], *, distinct: bool) -> bool:
    """Judge a value against those of the devices taken so far; values of different types are different."""
    return value not in before if distinct else not before or value == before[0]
