"""The search for the devices of one pod on one node: depth first, first fit.

Mirrors `allocateOne` and `allocateDevice` of `structured/internal/incubating/allocator_incubating.go` (v0.37.1, and
v0.36.3 by its known bugs).

Enumerated, in this order: claims, their requests, the alternatives of a request, and the devices of an alternative as
combinations in the node's order. The first full solution wins. A failure steps back into earlier requests and claims,
which try other devices and alternatives. A selector that fails ends the search, if the search meets the device.

Skipped, without losing a solution: a device equal to one that failed in the same place (`_candidates`); a request that
starts from a state in which it failed before (`_dead`); everything, where counting shows too few devices
(`_is_short`). The first two are off where the order of devices matters (`_equal`).

Bounded by the budget: at its end StepsEndedError is raised, and nothing is proved. A firm DeadEnd proves that there is
no solution.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from admission.api.kubernetes.claims import MAX_RESULTS
from admission.dra.allocator import certainty, trampoline
from admission.dra.allocator.counters import Counters
from admission.dra.allocator.results import Budget, DeadEnd, Failure, Match, Pick
from admission.dra.allocator.trampoline import Answered, Full, Step
from admission.dra.compatibility import KnownBugs, SchedulerProfile
from admission.dra.equivalence.device_signature import Answer
from admission.dra.equivalence.node_contents import DeviceGroup, NodeContents, Units
from admission.dra.inventory.counters import Amount
from admission.dra.requests import constraints
from admission.dra.requests.constraints import Running
from admission.dra.requests.requests import Fatal, Mode, Option, ParsedClaim, RequestRefusal


def search(
    claims: Sequence[ParsedClaim],
    contents: NodeContents,
    units: Units,
    profile: SchedulerProfile,
    budget: Budget,
    *,
    certain: bool = False,
) -> Match | DeadEnd | RequestRefusal:
    """Return devices for all claims of a pod, or what stopped the search. Raises StepsEndedError.

    certain: return only devices that rest on no known defect of kube-scheduler: they must be the same with all of the
    defects and with none.
    """

    def answer(known_bugs: KnownBugs) -> Match | DeadEnd | RequestRefusal:
        return Search(claims, contents, units, profile.with_known_bugs(known_bugs), budget).answer()

    found, question = answer(profile.known_bugs), certainty.CertaintyCheck(claims, contents, units, profile)
    if isinstance(found, DeadEnd) and profile.known_bugs.distinct_forgets and question.is_doubtful():
        return replace(found, firm=False)
    if not certain or not isinstance(found, Match):
        return found
    return question.uncertainty(found, answer) or found


class Search:
    """One search. A step returns True when all requests from there on are served, False when they cannot be.

    Steps are generators that yield the next step and are sent its answer (`trampoline`), so that a pod with thousands
    of devices does not need as many frames of Python's stack.
    """

    def __init__(
        self,
        claims: Sequence[ParsedClaim],
        contents: NodeContents,
        units: Units,
        profile: SchedulerProfile,
        budget: Budget,
    ) -> None:
        self.farthest = DeadEnd(0, 0, 0)
        self.picks: list[list[Pick]] = [[] for _ in claims]
        self._claims = claims
        self._end = len(claims)
        self._stops = True
        self._contents = contents
        self._known_bugs: KnownBugs = profile.known_bugs
        self._budget = budget
        self._units: list[DeviceGroup] = [units.known[number] for number in contents.units]
        parsed_requests, values = units.device_signatures.parsed_requests, units.device_signatures.attributes
        self._parsed_requests = [
            [[parsed_requests[o.parsed] for o in request.options] for request in claim.requests] for claim in claims
        ]
        self._rules: list[list[tuple[int, Running]]] = [
            [(values[rule.attribute], constraints.running(rule, profile)) for rule in claim.rules] for claim in claims
        ]
        self._taken: dict[int, frozenset[int]] = {}
        self._shares: dict[int, list[tuple[Amount, ...]]] = {}
        self._counters = Counters(contents.counter_sets, profile.known_bugs)
        self._all: dict[tuple[int, int, int], list[int]] = {}
        self._dead: dict[Hashable, bool | Full] = {}
        # `_equal`: whether an equal device can stand for another. It cannot where what fits depends on the order in
        # which devices come: with a distinctAttribute constraint that forgets, and with counters that are mixed up.
        forgets = self._known_bugs.distinct_forgets and any(r.distinct for claim in claims for r in claim.rules)
        # Nor with mode All under a constraint: whether it meets a device in use first, which is a failure, or the
        # violated constraint, which is fatal, depends on the place of the device.
        at_odds = any(claim.rules and o.mode is Mode.ALL for claim in claims for r in claim.requests for o in r.options)
        self._equal = not forgets and not at_odds and not self._counters.mixed
        self._price = 1
        self._ordinary = not contents.counter_sets and not any(u.signature.shared or u.use.shares for u in self._units)

    def answer(self) -> Match | DeadEnd | RequestRefusal:
        refusal = self._prepare()
        if refusal is not None:
            return refusal
        if self._is_short():
            return self.farthest
        answer = trampoline.run(self._claim(0))
        if answer is True:
            return Match(tuple(map(tuple, self.picks)))
        if answer is Full.FULL:
            return Fatal(f"a claim can hold no more than {MAX_RESULTS} devices")
        return self.farthest if answer is False else answer

    # Before the search.

    def _prepare(self, first: int = 0) -> RequestRefusal | None:
        """Find the devices of every request in mode All; refuse claims that need more devices than a claim can hold.

        first: the claim to begin with.
        """
        for c, claim in enumerate(self._claims[first:], first):
            least = 0
            for r, request in enumerate(claim.requests):
                counts: list[int] = []
                for o, option in enumerate(request.options):
                    if option.mode is Mode.ALL:
                        found = self._every(c, r, o, option)
                        if not isinstance(found, list):
                            return found
                        self._all[c, r, o] = found
                    counts.append(self._count(c, r, o))
                least += min(counts)
            if least > MAX_RESULTS:
                return Fatal(f"it needs {least} devices here, more than the {MAX_RESULTS} that a claim can hold", c)
        return None

    def _every(self, c: int, r: int, o: int, option: Option) -> list[int] | RequestRefusal:
        trouble = self._contents.trouble(self._known_bugs)
        if broken := trouble.incomplete or trouble.invalid:
            return Fatal(f"request {option.name} wants all devices, and {broken}", c, option.name)
        found: list[int] = []
        parsed = self._parsed_requests[c][r][o]
        for at, unit in enumerate(self._units):
            answer = unit.signature.answers[parsed]
            if not isinstance(answer, Answer):
                return _met(answer, c, option)
            if answer is not Answer.NO and (
                not self._known_bugs.all_by_what_is_left or self._has_room(at, unit, parsed)
            ):
                found.append(at)
        return found

    def _count(self, c: int, r: int, o: int) -> int:
        every = self._all.get((c, r, o))
        return self._claims[c].requests[r].options[o].count if every is None else len(every)

    def _is_short(self, first: int = 0) -> bool:
        """Return whether the free devices are too few for all requests together; note the request that lacks some.

        Without this check a request after others would make them try every subset. Each request is counted with its
        least number of devices, from any that match, so no solution is missed. The check is left out if some device
        stops the search: kube-scheduler would meet it first and give up. first: the claim to begin with.
        """
        options = [option for claim in self._claims[first:] for request in claim.requests for option in request.options]
        if not self._ordinary or not all(option.plain for option in options):
            return False
        units = enumerate(self._units)
        free = [unit.signature.answers for at, unit in units if not unit.use.taken and at not in self._taken]
        wanted = {parsed for claim in self._parsed_requests[first:] for request in claim for parsed in request}
        if self._stops and any(not isinstance(answers[parsed], Answer) for answers in free for parsed in wanted):
            return False
        left = sum(any(answers[parsed] is Answer.YES for parsed in wanted) for answers in free)
        matching: dict[frozenset[int], int] = {}
        for c, claim in enumerate(self._claims[first:], first):
            for r, request in enumerate(claim.requests):
                parsed_requests = frozenset(self._parsed_requests[c][r])
                if parsed_requests not in matching:
                    matching[parsed_requests] = sum(
                        any(answers[parsed] is Answer.YES for parsed in parsed_requests) for answers in free
                    )
                has = min(left, matching[parsed_requests])
                if has < request.least:
                    self.farthest = DeadEnd(c, r, has)
                    return True
                left -= request.least
                matching[parsed_requests] -= request.least
        return False

    # The search.

    def _claim(self, c: int) -> Step:
        if c == self._end:
            return True
        return (yield self._request(c, 0))

    def _request(self, c: int, r: int) -> Step:
        requests = self._claims[c].requests
        if r == len(requests):
            answer = yield self._claim(c + 1)
            return False if answer is Full.FULL else answer
        if self._dead:
            known = self._dead.get(self._state(c, r))
            if known is not None:
                return known
        answer = yield self._listed(c, r) if requests[r].listed else self._option(c, r, 0)
        if self._equal and (answer is False or answer is Full.FULL):
            self._dead[self._state(c, r)] = answer
        return answer

    def _listed(self, c: int, r: int) -> Step:
        """Try the alternatives of a request in order. The answer is Full only if it is for every alternative."""
        full = True
        for o in range(len(self._claims[c].requests[r].options)):
            answer = yield self._option(c, r, o)
            if answer is Full.FULL:
                continue
            if answer is not False:
                return answer
            full = False
        return Full.FULL if full else False

    def _option(self, c: int, r: int, o: int) -> Step:
        every = self._all.get((c, r, o))
        if every is None:
            return (yield self._device(c, r, o, self._claims[c].requests[r].options[o].count, 0))
        if not every:
            self._note(c, r, 0, {Failure.ALL})
            return False
        return (yield self._each(c, r, o, every, 0))

    def _device(self, c: int, r: int, o: int, missing: int, start: int) -> Step:
        """Give one more device to an option. Combinations with devices before `start` were tried already."""
        if missing <= 0:
            return (yield self._request(c, r + 1))
        if len(self.picks[c]) + missing > MAX_RESULTS:
            self._note(c, r, 0, {Failure.LIMIT})
            return Full.FULL
        reasons: set[Failure] = set()
        example: int | None = None
        for at in self._candidates(c, r, o, start):
            if isinstance(at, RequestRefusal):
                return at
            self._budget.spend(self._price)
            taken = self._take(c, r, o, at)
            if isinstance(taken, Failure):
                reasons.add(taken)
                example = at
                continue
            answer = yield self._device(c, r, o, missing - 1, at + 1)
            if answer is True:
                return True
            self._give_back(c, at, counted=taken)
            if answer is not False:
                return answer
            # From the first step back on, a step costs what it inspects: all devices to find candidates, and all
            # claims to build the key of `_dead`.
            self._price = 1 + (len(self._units) + self._end) // INSPECTIONS
        self._note(c, r, self._claims[c].requests[r].options[o].count - missing, reasons, example)
        return False

    def _each(self, c: int, r: int, o: int, every: Sequence[int], number: int) -> Step:
        """Take the next device of an option in mode All: these devices in order, and no others."""
        if number == len(every):
            return (yield self._request(c, r + 1))
        if len(self.picks[c]) + len(every) - number > MAX_RESULTS:
            self._note(c, r, number, {Failure.LIMIT})
            return Full.FULL
        at = every[number]
        if (
            not self._may_have(c, r, o, at)
            or self._units[at].signature.answers[self._parsed_requests[c][r][o]] is not Answer.YES
        ):
            self._note(c, r, number, {Failure.ALL}, at)
            return False
        self._budget.spend()
        taken = self._take(c, r, o, at)
        if taken is Failure.CONSTRAINT:
            return self._at_odds(c, r, o)
        if isinstance(taken, Failure):
            self._note(c, r, number, {taken}, at)
            return False
        forgets = o > 0 and self._known_bugs.all_forgets_alternative
        answer = yield self._resumed(c, r, number + 1) if forgets else self._each(c, r, o, every, number + 1)
        if answer is not True:
            self._give_back(c, at, counted=taken)
        return answer

    def _resumed(self, c: int, r: int, number: int) -> Step:
        """Go on with the first alternative, as if it had given that number of devices: `all_forgets_alternative`."""
        every = self._all.get((c, r, 0))
        if every is None:
            return (yield self._device(c, r, 0, self._claims[c].requests[r].options[0].count - number, 0))
        if not every:
            return False
        return (yield self._each(c, r, 0, every, min(number, len(every))))

    def _at_odds(self, c: int, r: int, o: int) -> Answered:
        """Return the answer for a request in mode All whose devices violate a constraint."""
        name = self._claims[c].requests[r].options[o].name
        return Fatal(f"request {name} wants all devices, and a constraint of its claim keeps them apart", c, name)

    def _candidates(self, c: int, r: int, o: int, start: int) -> Iterator[int | RequestRefusal]:
        """Yield the places of devices that match an option and are available, one of each sort.

        Skipping the second of a sort is sound: the first failed with all devices after it, the second has fewer.
        """
        parsed, equal = self._parsed_requests[c][r][o], self._equal
        tried: set[Hashable] = set()
        for at in range(start, len(self._units)):
            if not self._may_have(c, r, o, at):
                continue
            answer = self._units[at].signature.answers[parsed]
            if answer is Answer.YES:
                if equal:
                    sort = self._sort(at)
                    if sort in tried:
                        continue
                    tried.add(sort)
                yield at
            elif not isinstance(answer, Answer):
                yield _met(answer, c, self._claims[c].requests[r].options[o])

    def _sort(self, at: int) -> Hashable:
        """Return a key that is equal for devices that can stand for each other: their unit, and their use here."""
        number = self._contents.units[at]
        return (number, self._touch(at)) if at in self._taken or at in self._shares else number

    # One device.

    def _may_have(self, c: int, r: int, o: int, at: int) -> bool:
        """Return whether a device is available, capacity and counters aside: not in use, nor twice in one claim."""
        if self._claims[c].requests[r].options[o].admin:
            return c not in self._taken.get(at, ())
        return not self._units[at].use.taken and not self._taken.get(at)

    def _take(self, c: int, r: int, o: int, at: int) -> bool | Failure:
        """Take a device and return whether counters were drawn; or return a Failure and change nothing."""
        unit, option = self._units[at], self._claims[c].requests[r].options[o]
        parsed = self._parsed_requests[c][r][o]
        # kube-scheduler checks capacity first, but last in mode All: there a violated constraint, which is fatal, wins.
        full = not self._ordinary and not self._has_room(at, unit, parsed)
        if full and option.mode is Mode.EXACT:
            return Failure.CAPACITY
        counted = False
        if self._must_pay(at, unit, option):
            if not self._counters.draw(unit):
                return Failure.COUNTERS
            counted = True
        if self._rules[c] and not self._bind(c, r, option, unit):
            if counted:
                self._counters.put_back(unit)
            return Failure.CONSTRAINT
        if full:
            self._unbind(c, self._claims[c].requests[r].name, option, len(self._rules[c]))
            if counted:
                self._counters.put_back(unit)
            return Failure.CAPACITY
        if unit.signature.shared:
            self._shares.setdefault(at, []).append(unit.signature.takes[parsed] if unit.signature.takes else ())
        else:
            self._taken[at] = self._taken.get(at, frozenset()) | {c}
        self.picks[c].append(Pick(r, o, at))
        return counted

    def _give_back(self, c: int, at: int, *, counted: bool) -> None:
        pick = self.picks[c].pop()
        unit = self._units[at]
        if unit.signature.shared:
            self._shares[at].pop()
            if not self._shares[at]:
                del self._shares[at]
        else:
            self._taken[at] -= {c}
            if not self._taken[at]:
                del self._taken[at]
        request = self._claims[c].requests[pick.request]
        if self._rules[c]:
            self._unbind(c, request.name, request.options[pick.option], len(self._rules[c]))
        if counted:
            self._counters.put_back(unit)

    def _has_room(self, at: int, unit: DeviceGroup, parsed: int) -> bool:
        """Return whether enough of every capacity is left beside the shares of other claims and of this pod."""
        signature = unit.signature
        shares = self._shares.get(at, ())
        if not signature.room or not (shares or unit.use.amounts):
            return True
        for number, (_, total) in enumerate(signature.room):
            used = unit.use.amounts[number] if unit.use.amounts else 0
            if used + sum(share[number] for share in shares) + signature.takes[parsed][number] > total:
                return False
        return True

    def _must_pay(self, at: int, unit: DeviceGroup, option: Option) -> bool:
        """Return whether the device draws from counters. Further shares of a shared device draw nothing."""
        if unit.signature.draw is None or (option.admin and not self._known_bugs.admin_pays_counters):
            return False
        if not unit.signature.shared:
            return True
        known = unit.use.amounts is not None if self._known_bugs.unsharable_counters else unit.use.shares
        return at not in self._shares and not known

    def _bind(self, c: int, r: int, option: Option, unit: DeviceGroup) -> bool:
        """Add the device to every constraint on the option; return False and change nothing if one refuses it."""
        request = self._claims[c].requests[r].name
        for number, (value, rule) in enumerate(self._rules[c]):
            bound = self._claims[c].rules[number].binds(request, option.name)
            if bound and not rule.add(unit.signature.values[value], request):
                self._unbind(c, request, option, number)
                return False
        return True

    def _unbind(self, c: int, request: str, option: Option, first: int) -> None:
        for number in reversed(range(first)):
            if self._claims[c].rules[number].binds(request, option.name):
                self._rules[c][number][1].remove(request)

    # What is known.

    def _state(self, c: int, r: int) -> Hashable:
        """Return all that the search from the start of a request depends on.

        It has devices by unit and use, not by place: every request starts at the node's first device.
        """
        numbers = self._contents.units
        touched = Counter((numbers[at], self._touch(at)) for at in (*self._taken, *self._shares))
        bound = tuple(rule.state() for _, rule in self._rules[c])
        return (c, r, len(self.picks[c]), frozenset(touched.items()), bound, self._counters.state())

    def _touch(self, at: int) -> Hashable:
        return (self._taken.get(at), tuple(sorted(self._shares.get(at, ()))))

    def _note(self, c: int, r: int, o: int, reasons: set[Failure], at: int | None = None) -> None:
        """Keep the farthest place where the search got stuck, and every reason that was met there."""
        far, known = (c, r, o), self.farthest
        reached = (known.claim, known.request, known.found)
        if far > reached or (far == reached and not reasons <= known.reasons):
            picked = tuple(map(tuple, self.picks))
            self.farthest = known.joined(DeadEnd(c, r, o, frozenset(reasons), at, picked=picked))


INSPECTIONS = 40
"""How many devices and claims a search inspects in the time of one step."""


def _met(refusal: RequestRefusal, c: int, option: Option) -> RequestRefusal:
    """Return a refusal with the claim and the request at which the search met it."""
    return replace(refusal, claim=c, request=option.name) if isinstance(refusal, Fatal) else refusal
