"""The choice of domains for a gang's subgroups, each of which has to be in one.

First the gang is searched for without domains: what proves that it has no place proves it here, though of subgroups
that have to be alone the domains say why. Then domains are given to one subgroup after the other, with steps back.

Enumerated: subgroups, those with the fewest domains first, then the larger ones; the domains of each, those with the
fewest free devices first. Every complete choice is searched with all pods of the gang, so that what the domains share
is counted once.

Skipped, without losing a plan:
- a domain that cannot take the subgroup alone, or together with those that have it already, with devices chosen freely
  and without quota (`_takes`, `_fits`);
- permutations of equal subgroups: they get their domains in ascending order (`_ways`);
- an empty domain equal to one passed over for the same subgroup, if all subgroups have the same label (`_ways`);
- a choice that leaves equal subgroups fewer places than there are of them (`_is_crowded`), or subgroups with exclusive
  domains no such domain for each (`distinct_domains`).

Bounded by the budget: a judgement of one domain has a sixteenth of it, the search of one choice a fourth. A domain
that is not judged in time may take the subgroup. If the budget ends, or any search in it ended without an answer and no
plan was found, the answer is STEPS_ENDED, and nothing is proved.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from admission.dra.allocator.results import StepsEndedError
from admission.dra.equivalence.device_signature import DeviceSignatures
from admission.dra.planner import pod_groups
from admission.dra.planner.no_plan import Kind, NoPlan
from admission.dra.planner.pod_groups import Gang
from admission.dra.requests.gang_request import Plan
from admission.dra.state.cluster_state import ClusterState
from admission.dra.topology import distinct_domains, domains
from admission.dra.topology.domains import Domain, Scope, Search

CHEAP, WHOLE = 16, 4
"""Divisors of the budget: for judging one domain, and for searching one choice of domains with all pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searches:
    """The searches for a gang's nodes within domains.

    full: with the gang's choice of devices and its quota. relaxed: with a free choice and no quota; where it has no
    plan, `full` has none. device_signatures: those of both.
    """

    full: Search
    relaxed: Search
    device_signatures: tuple[DeviceSignatures, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """A subgroup. likeness: equal for interchangeable subgroups. domains: those that may take it alone."""

    scope: Scope
    gang: Gang
    likeness: Hashable
    domains: tuple[Domain, ...]

    @property
    def name(self) -> str:
        return self.scope.subgroup


def arrange(
    scopes: Sequence[Scope],
    gang: Gang,
    cluster: ClusterState,
    known: DeviceSignatures,
    *,
    steps: int,
    searches: Searches,
) -> Plan | NoPlan:
    """Place every subgroup in a domain of its own label, and all pods together, or return why there is no plan."""
    return _Arrangement(gang, cluster, known, steps, searches).run(scopes)


class _Arrangement:
    """One search."""

    def __init__(
        self, gang: Gang, cluster: ClusterState, known: DeviceSignatures, steps: int, searches: Searches
    ) -> None:
        self._gang = gang
        self._cluster = cluster
        self._known = known
        self._steps = steps
        self._searches = searches
        self._spent = 0
        self._is_unsure = False
        self._nodes = domains.candidate_nodes(gang, cluster, *searches.device_signatures)
        self._parts: list[_Part] = []
        self._like: dict[Hashable, list[_Part]] = {}
        self._sorts: list[int] = []
        self._is_symmetric = False
        self._fitting: dict[Hashable, bool] = {}
        self._domains: dict[Hashable, list[Domain]] = {}
        self._bounds: dict[int, list[int]] = {}
        self._whole: dict[str, Hashable] = {}
        """By value, the likeness of each domain with all of its nodes, also those that only other subgroups may use."""
        self._of_value: dict[int, dict[str, Domain]] = {}
        """By sort, the domains of its subgroups by their values."""

    def run(self, scopes: Sequence[Scope]) -> Plan | NoPlan:
        try:
            nowhere = self._anywhere()
            if nowhere is not None:
                answer: Plan | NoPlan = self._nearer(nowhere, scopes)
            else:
                answer = self._found(scopes) or self._short() or self._searched()
        except StepsEndedError:
            answer = self._ended()
        return replace(answer, steps=self._spent)

    def _anywhere(self) -> NoPlan | None:
        """Return why the gang has no plan even without domains; None if it may have one."""
        answer = self._searches.full(self._gang, self._share(WHOLE, self._gang))
        self._spend(answer.steps)
        return answer if isinstance(answer, NoPlan) and answer.kind is not Kind.STEPS_ENDED else None

    def _nearer(self, nowhere: NoPlan, scopes: Sequence[Scope]) -> NoPlan:
        """Return why parts that have to be alone in domains find none; the answer for anywhere if they do.

        Pods that follow others into a domain are never anywhere, so where they would be without it misleads.
        """
        is_exclusive = any(scope.is_exclusive for scope in scopes)
        if nowhere.kind is not Kind.INFEASIBLE or not nowhere.placed or not is_exclusive:
            return nowhere
        try:
            found = self._found(scopes) or self._short()
        except StepsEndedError:
            return nowhere
        return found if found is not None and found.kind in {Kind.INFEASIBLE, Kind.NO_DOMAIN} else nowhere

    # The domains of each subgroup alone.

    def _found(self, scopes: Sequence[Scope]) -> NoPlan | None:
        """Find the domains of every subgroup; return why one of them has none."""
        parts = []
        for scope in scopes:
            part = self._part(scope)
            if isinstance(part, NoPlan):
                return part
            parts.append(part)
        for part in parts:
            self._like.setdefault(part.likeness, []).append(part)
        sorts = {likeness: number for number, likeness in enumerate(self._like)}
        parts.sort(key=lambda part: (len(part.domains), -part.gang.size, sorts[part.likeness]))
        self._parts, self._sorts = parts, [sorts[part.likeness] for part in parts]
        # An exclusive domain of several labels keeps others from all domains of the first one.
        self._is_symmetric = len({part.scope.labels for part in parts}) == 1 and not any(
            part.scope.is_exclusive and len(part.scope.labels) > 1 for part in parts
        )
        if self._is_symmetric:
            whole = domains.build(Scope(labels=parts[0].scope.labels), self._nodes, self._cluster)
            self._whole = {domain.value: domain.likeness for domain in whole}
        return None

    def _part(self, scope: Scope) -> _Part | NoPlan:
        kinds = [(at, kind) for at, kind in enumerate(self._gang.kinds) if kind.subgroup == scope.subgroup]
        part_gang = replace(self._gang, kinds=tuple(kind for _, kind in kinds))
        shares_claims = any(number is not None for _, kind in kinds for number in kind.shared)
        # A subgroup that shares a claim depends on other pods, so no other subgroup can stand for it.
        equal = (
            scope.subgroup
            if shares_claims
            else domains.multiset((kind.likeness, len(kind.members)) for _, kind in kinds)
        )
        numbers = frozenset(at for at, _ in kinds)
        found = self._domains.get((equal, scope.labels))
        if found is None:
            found = domains.build(
                scope, (node for node in self._nodes if node.signature.kinds & numbers), self._cluster
            )
            self._domains[equal, scope.labels] = found
        answer = domains.no_domain(scope, part_gang, found, self._cluster)
        if answer is not None:
            return answer
        open_ = tuple(domains.colocated(scope, found, self._cluster))
        left = tuple(domain for domain in open_ if self._takes(domain, equal, part_gang))
        if not left:
            share = self._share(WHOLE, part_gang)
            reported = domains.search_in_one(
                scope, part_gang, self._cluster, self._known, steps=share, search=self._searches.full
            )
            self._spend(reported.steps)
            if isinstance(reported, NoPlan):
                return reported
            left = open_
        return _Part(scope=scope, gang=part_gang, likeness=(equal, left), domains=left)

    def _takes(self, domain: Domain, equal: Hashable, gang: Gang) -> bool:
        """Return whether a domain may take a subgroup that is alone in it; searched once for equal ones."""
        key = domain.likeness, equal
        if key not in self._fitting:
            self._fitting[key] = self._is_possible(domains.within(gang, domain.nodes))
        return self._fitting[key]

    def _is_possible(self, gang: Gang) -> bool:
        """Return whether pods may have a plan: one was found, or the steps ended before there was a proof."""
        if not all(kind.nodes for kind in gang.kinds):
            return False
        answer = self._searches.relaxed(gang, self._share(CHEAP, gang))
        self._spend(answer.steps)
        has_ended = isinstance(answer, NoPlan) and answer.kind is Kind.STEPS_ENDED
        self._is_unsure = self._is_unsure or has_ended
        return isinstance(answer, Plan) or has_ended

    # The domains of equal subgroups together.

    def _short(self) -> NoPlan | None:
        """Return why the domains have too few places for equal subgroups together; None if they may have enough."""
        for parts in self._like.values():
            first, sort = parts[0], self._sorts[self._parts.index(parts[0])]
            if len(parts) == 1:
                continue
            bounds = self._bounds[sort] = [self._most(domain, sort, parts) for domain in first.domains]
            if sum(bounds) < len(parts):
                message = (
                    f"the domains of {first.scope.label} have places for {sum(bounds)} of {len(parts)} subgroups like"
                    f" {first.name} ({first.gang.size} pods), each of which has to be {_in_one(first.scope)}"
                )
                return self._no_plan(message, placed=sum(bounds) * first.gang.size)
        alone = [part for part in self._parts if part.scope.is_exclusive]
        short = distinct_domains.shortage([{one.outermost for one in part.domains} for part in alone])
        if short is None:
            return None
        numbers, own = short
        return self._no_plan(_too_few([alone[number].scope for number in numbers], own))

    @staticmethod
    def _have_exclusive_domains(parts: Iterable[_Part], taken: Collection[Hashable]) -> bool:
        """Return whether the subgroups that have to be alone find a domain each, beside those taken."""
        alone = (part for part in parts if part.scope.is_exclusive)
        return distinct_domains.exist([{one.outermost for one in part.domains} - {*taken} for part in alone])

    def _most(self, domain: Domain, sort: int, parts: Sequence[_Part]) -> int:
        """Return the most subgroups of a sort that a domain takes."""
        if parts[0].scope.is_exclusive:
            return 1
        count = 1
        while count < len(parts) and self._fits(domain, (sort,) * (count + 1)):
            count += 1
        return count

    def _fits(self, domain: Domain, sorts: tuple[int, ...]) -> bool:
        """Return whether a domain may take one subgroup of each of these sorts together.

        Of the same domain subgroups of different sorts may use different nodes.
        """
        own = {number: self._own_domain(number, domain) for number in sorts}
        key = tuple(own[number].likeness for number in sorts), sorts
        if key not in self._fitting:
            left = {number: iter(self._of_sort(number)) for number in own}
            pairs = ((number, kind) for number in sorts for kind in next(left[number]).gang.kinds)
            kinds = tuple(replace(kind, nodes=kind.nodes & own[number].nodes) for number, kind in pairs)
            self._fitting[key] = self._is_possible(replace(self._gang, kinds=kinds))
        return self._fitting[key]

    def _own_domain(self, sort: int, domain: Domain) -> Domain:
        """Return a domain as subgroups of a sort that have to be in one of its labels see it."""
        if sort not in self._of_value:
            self._of_value[sort] = {one.value: one for one in next(self._of_sort(sort)).domains}
        return self._of_value[sort].get(domain.value, domain)

    def _of_sort(self, number: int) -> Iterator[_Part]:
        return (part for part, sort in zip(self._parts, self._sorts, strict=True) if sort == number)

    # All subgroups.

    def _searched(self) -> Plan | NoPlan:
        """Search with all pods under every choice of domains; the first plan wins."""
        refused: NoPlan | None = None
        for chosen in self._choices():
            by_name = {part.name: domain for part, domain in zip(self._parts, chosen, strict=True)}
            gang = placed_in(self._gang, by_name)
            answer = self._searches.full(gang, self._share(WHOLE, gang))
            self._spend(answer.steps)
            if isinstance(answer, Plan):
                return answer
            if answer.kind is Kind.STEPS_ENDED:
                self._is_unsure = True
            elif refused is None or answer.placed > refused.placed:
                refused = answer
        if self._is_unsure:
            return self._ended()
        if refused is None:
            return self._no_plan(f"{self._subgroups_text} do not all find a domain beside each other")
        if refused.kind is Kind.OVER_QUOTA:
            return refused
        where = "domain its subgroup is" if len(self._parts) == 1 else f"domains {self._subgroups_text} are"
        lead = f"whichever {where} in, not all pods of the gang find a place"
        return replace(refused, message=f"{lead}: {refused.message}", details={**refused.details, **self._details})

    def _choices(self) -> Iterator[list[Domain]]:
        """Yield every choice of domains that is not skipped, depth first: a domain for each subgroup."""
        chosen: list[int] = []
        stack = [self._ways(chosen)]
        while stack:
            at = next(stack[-1], None)
            if at is None:
                stack.pop()
                if chosen:
                    chosen.pop()
                continue
            self._spend(1)
            chosen.append(at)
            if len(chosen) < len(self._parts):
                stack.append(self._ways(chosen))
                continue
            yield [part.domains[number] for part, number in zip(self._parts, chosen, strict=True)]
            chosen.pop()

    def _ways(self, chosen: Sequence[int]) -> Iterator[int]:
        """Yield the domains for the next subgroup. chosen: the domains of those before it.

        Subgroups of one sort follow each other; each starts at the domain of the one before, so that of the
        permutations of their domains only the ascending one is tried.
        """
        position = len(chosen)
        part, sort = self._parts[position], self._sorts[position]
        is_next = position > 0 and self._sorts[position - 1] == sort
        first = chosen[-1] if is_next else 0
        sorts_in_domain: dict[str, list[int]] = {}
        taken: set[Hashable] = set()
        for number, chosen_domain in enumerate(chosen):
            domain = self._parts[number].domains[chosen_domain]
            if domain.labels == part.scope.labels:
                sorts_in_domain.setdefault(domain.value, []).append(self._sorts[number])
            if part.scope.is_exclusive and self._parts[number].scope.is_exclusive:
                taken.add(domain.outermost)
        tried: set[Hashable] = set()
        for at in range(first, len(part.domains)):
            domain = part.domains[at]
            if part.scope.is_exclusive and not self._may_be_alone(domain, taken, position):
                continue
            neighbours = sorts_in_domain.get(domain.value, [])
            # Two equal domains in which no subgroup is yet can be swapped in every choice below, so one is enough; not
            # if other subgroups have other labels, whose domains may overlap these.
            if not neighbours and self._is_symmetric:
                likeness = domain.likeness, self._whole[domain.value]
                if likeness in tried:
                    continue
                tried.add(likeness)
            # Later domains have even fewer places together, so the loop ends.
            if self._is_crowded(position, at, neighbours.count(sort)):
                return
            if not neighbours or self._fits(domain, tuple(sorted([*neighbours, sort]))):
                yield at

    def _may_be_alone(self, domain: Domain, taken: Collection[Hashable], position: int) -> bool:
        """Return whether a domain is free for a subgroup that has to be alone, and enough are left for those after."""
        return domain.outermost not in taken and self._have_exclusive_domains(
            self._parts[position + 1 :], {*taken, domain.outermost}
        )

    def _is_crowded(self, position: int, at: int, neighbours: int) -> bool:
        """Return whether the domains from this one on have too few places for the subgroups of a sort that are left."""
        sort = self._sorts[position]
        bounds = self._bounds.get(sort)
        remaining = sum(other == sort for other in self._sorts[position:])
        return bounds is not None and sum(bounds[at:]) - neighbours < remaining

    # Steps and messages.

    def _share(self, part: int, gang: Gang) -> int:
        return min(max(2 * gang.size, self._steps // part), max(self._steps - self._spent, 1))

    def _spend(self, steps: int) -> None:
        self._spent += max(steps, 1)
        if self._spent > self._steps:
            raise StepsEndedError

    @property
    def _subgroups_text(self) -> str:
        return f"its {len(self._parts)} subgroups"

    @property
    def _details(self) -> Mapping[str, int | str]:
        labels = dict.fromkeys(part.scope.label for part in self._parts)
        return {"topology": ", ".join(labels), "subgroups": len(self._parts), "pods": self._gang.size}

    def _no_plan(self, message: str, placed: int = 0) -> NoPlan:
        return NoPlan(kind=Kind.INFEASIBLE, message=message, details=self._details, placed=placed)

    def _ended(self) -> NoPlan:
        message = (
            "neither domains in which every subgroup has a place nor a proof that there are none were found in"
            f" {self._steps} steps"
        )
        return NoPlan(kind=Kind.STEPS_ENDED, message=message, details={**self._details, "steps": self._steps})


def _in_one(scope: Scope) -> str:
    return f"alone in one{_asked(scope)}" if scope.is_exclusive else "in one"


def _too_few(scopes: Sequence[Scope], found: Sequence[tuple[str, str]]) -> str:
    """Return that subgroups need more domains than there are. found: the label and value of all that take any."""
    label = " and ".join(dict.fromkeys(scope.labels[0] for scope in scopes))
    names, values = (_some([scope.subgroup for scope in scopes]), _some([value for _, value in found]))
    take = "domain takes" if len(found) == 1 else "domains take"
    return (
        f"{len(scopes)} of its subgroups ({names}) have to be alone in a domain of {label} each{_asked(scopes[0])},"
        f" and only {len(found)} {take} any of them ({values})"
    )


def _some(names: Iterable[str]) -> str:
    found = sorted(names, key=pod_groups.natural)
    return ", ".join([*found[:SHOWN], *(["…"] if len(found) > SHOWN else [])])


SHOWN = 3
"""The most subgroups or domains that are named."""


def _asked(scope: Scope) -> str:
    return f" (annotation {scope.annotation})" if scope.annotation else ""


def placed_in(gang: Gang, chosen: Mapping[str, Domain]) -> Gang:
    """Return the gang with each subgroup limited to its domain."""
    return replace(
        gang,
        kinds=tuple(
            replace(kind, nodes=kind.nodes & chosen[kind.subgroup].nodes) if kind.subgroup in chosen else kind
            for kind in gang.kinds
        ),
    )
