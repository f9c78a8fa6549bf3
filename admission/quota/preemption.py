"""The choice of preemption targets: the smallest set of whole gangs to evict so that another gang fits.

Nothing is evicted here. The caller's `fits` returns whether its plan, on quota and devices, is feasible without certain
gangs. It must be monotone: a gang that fits without some gangs fits without more of them. `preemption_rules` has
the rules of who may be evicted. They are asked first with a lower bound on the charge, and of each set that helps once
more by `permits`, with the charge of the plan without it; that need not be monotone.

The best set takes the fewest gangs of the own queue, since what others have borrowed goes first, as in Kueue. Of those
sets one is better that takes nothing but loans, then that which takes least of what is no loan, then that of the fewest
gangs; of those, its least preferred victim is the most preferred, then the next one, and so on (kube-scheduler picks a
node alike: the lowest highest victim, `pkg/scheduler/framework/preemption`). Gangs go by their rank in `victim_order`,
those of the own queue last, and a set is an integer with a bit per gang, so that of two sets of one size the smaller
integer is the better.

The search: first greedily as Kueue, which removes candidates in order until the gang fits and puts back what it can;
here with bisection, since `fits` is expensive, and again with the largest gangs first. Then all sets are enumerated,
better ones first: by the number of own gangs, first those of loans alone and then the others, by size and, within a
size, in ascending order, until the best known one is reached.

Skipped, without losing a better set: sets that give back too little of a short meter, sets within one that is known to
fail, sets of which a queue no longer borrows before a gang goes, and sets that take more of what is no loan than the
best known one; each holds for all sets below the branch (`_may_help`).

Bounded by `Bounds`: at the end the best set so far is returned with `fewest=False`, or NoVictims with `proved=False`.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, product
from typing import NamedTuple

from admission.api.muster.queues import WithinQueue
from admission.api.values.names import GangUid, MeterName
from admission.quota import victim_order
from admission.quota.headroom import QueueUsage
from admission.quota.preemption_rules import BY_SHARES, Candidate, Incoming, Rules
from admission.quota.tree import Tree

Fits = Callable[[frozenset[GangUid]], bool]


MOST_CHOICES = 4
"""How often victims are chosen for one gang: each time without those that would be replaced by others."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most calls of `fits`, and the most sets that are checked by quota."""

    fits: int = 128
    sets: int = 5_000


@dataclass(frozen=True, slots=True)
class Victims:
    """Gangs to evict, the most preferred first; all of them are needed.

    fewest: whether it is proved that no better set helps; otherwise a bound was reached.
    """

    gangs: tuple[GangUid, ...]
    fewest: bool


@dataclass(frozen=True, slots=True)
class NoVictims:
    """No set of gangs was found. proved: whether none helps; otherwise a bound was reached."""

    proved: bool


def choose(
    queue_usage: QueueUsage,
    incoming: Incoming,
    candidates: Iterable[Candidate],
    fits: Fits,
    bounds: Bounds = Bounds(),
    *,
    permits: Fits = lambda _: True,
) -> Victims | NoVictims:
    """Return which gangs to evict for the incoming one.

    queue_usage: with the usage of the candidates; it is changed and restored. permits: whether the rules also allow the
    eviction of a set that fits for what the gang is charged without it. Raises ValueError if a queue uses less than the
    candidates in it.
    """
    rules = Rules(queue_usage, incoming)
    ranked = victim_order.in_order(candidates, rules)
    search = _Search(rules, ranked, _CachedFits(fits, permits, ranked, bounds))
    best: _Found | None = None
    try:
        if not search.cached_fits.fits(search.all):
            return NoVictims(proved=True)
        for found in search.greedy():
            best = found if best is None else min(best, found)
        best = search.best(best)
    except _BoundEndedError:
        return NoVictims(proved=False) if best is None else Victims(search.gangs(best.victims), fewest=False)
    return NoVictims(proved=True) if best is None else Victims(search.gangs(best.victims), fewest=True)


def choose_fewest(
    queue_usage: QueueUsage,
    incoming: Incoming,
    candidates: Sequence[Candidate],
    fits: Fits,
    bounds: Bounds = Bounds(),
    *,
    permits: Fits = lambda _: True,
) -> Victims | NoVictims:
    """Return whom to evict as `choose` does, or others where fewer gangs go in all; idle gangs alone where they do.

    A victim may have a gang of its own queue evicted in turn, by what that queue says (`_is_replaced`). Then both go,
    where that one alone may be enough, though it is more than a loan. Kueue evicts lower priority first, so it is not
    asked there.
    """
    idle = [one for one in candidates if one.is_idle]
    if idle and len(idle) < len(candidates):
        found = choose_fewest(queue_usage, incoming, idle, fits, bounds, permits=permits)
        if isinstance(found, Victims):
            return found
    known = {one.uid: one for one in candidates}
    best = found = choose(queue_usage, incoming, candidates, fits, bounds, permits=permits)
    least, left = None, candidates
    for _ in range(MOST_CHOICES):
        if not isinstance(found, Victims):
            break
        again = {uid for uid in found.gangs if _is_replaced(known[uid], found.gangs, candidates, queue_usage.tree)}
        own = sum(known[uid].queue == incoming.queue for uid in found.gangs)
        if least is None or (own, len(found.gangs) + len(again)) < least:
            best, least = found, (own, len(found.gangs) + len(again))
        if not again:
            break
        left = [one for one in left if one.uid not in again]
        found = choose(queue_usage, incoming, left, fits, bounds, permits=permits)
    return best


def _is_replaced(victim: Candidate, victims: Collection[GangUid], candidates: Iterable[Candidate], tree: Tree) -> bool:
    """Return whether a gang of the victim's queue that stays may be evicted for it, and gives back as much."""
    queue = tree.queues.get(victim.queue)
    within = queue.preemption.within_queue if queue is not None else WithinQueue.NEVER
    if within is WithinQueue.NEVER:
        return False
    is_newer_enough = within is WithinQueue.LOWER_OR_NEWER_EQUAL_PRIORITY

    def may_go(one: Candidate) -> bool:
        is_newer = one.priority == victim.priority and one.queued_since > victim.queued_since
        return one.priority < victim.priority or (is_newer and is_newer_enough)

    return any(
        one.queue == victim.queue
        and one.uid not in victims
        and may_go(one)
        and all(one.charge.get(meter, 0) >= amount for meter, amount in victim.charge.items())
        for one in candidates
    )


class _Found(NamedTuple):
    """A set of victims that helps, by what makes it better than another.

    own: how many are of the incoming gang's queue. is_partial: whether it takes more than loans. beyond: how much more.
    """

    own: int
    is_partial: bool
    beyond: Fraction
    size: int
    victims: int


@dataclass(slots=True)
class _Stage:
    """The sets with so many own gangs, of loans alone (`is_partial` false) or not. best: the best set known so far."""

    own: int
    is_partial: bool
    best: _Found | None

    def may_be_better(self, beyond: Fraction, size: int) -> bool:
        """Return whether a set of a size that takes at least so much beyond loans may be better than the best one."""
        best = self.best
        return best is None or (self.own, self.is_partial, beyond, size) <= best[:4]


class _BoundEndedError(Exception):
    """Raised in this module only: a bound is reached."""


class _CachedFits:
    """Calls `fits`, counts the calls, and answers from earlier calls: equal sets, and sets within a failed one."""

    def __init__(self, fits: Fits, permits: Fits, ranked: Sequence[Candidate], bounds: Bounds) -> None:
        self._fits = fits
        self._permits = permits
        self._permitted: dict[int, bool] = {}
        self._uids = [candidate.uid for candidate in ranked]
        self._most_fits = bounds.fits
        self._most_sets = bounds.sets
        self._fitting: set[int] = set()
        self._failing: list[int] = []

    def fits(self, victims: int) -> bool:
        if victims in self._fitting:
            return True
        if self.fails(victims):
            return False
        self._most_fits = _decrement(self._most_fits)
        found = self._fits(self._gangs(victims))
        if found:
            self._fitting.add(victims)
        else:
            self._failing.append(victims)
        return found

    def permits(self, victims: int) -> bool:
        if victims not in self._permitted:
            self._permitted[victims] = self._permits(self._gangs(victims))
        return self._permitted[victims]

    def fails(self, victims: int) -> bool:
        """Return whether the gang is known not to fit, since it does not even without more gangs."""
        return any(victims & ~failing == 0 for failing in self._failing)

    def count_set(self) -> None:
        """Count a set that is checked by quota."""
        self._most_sets = _decrement(self._most_sets)

    def _gangs(self, victims: int) -> frozenset[GangUid]:
        return frozenset(self._uids[rank] for rank in _ranks(victims))


def _decrement(left: int) -> int:
    if left <= 0:
        raise _BoundEndedError
    return left - 1


class _Search:
    """Searches for victims among the ranked candidates. Sets are integers with a bit per rank."""

    def __init__(self, rules: Rules, ranked: Sequence[Candidate], cached_fits: _CachedFits) -> None:
        self.cached_fits = cached_fits
        self.all = (1 << len(ranked)) - 1
        self._rules = rules
        self._ranked = ranked
        self._levels = [rules.level(candidate) for candidate in ranked]
        self._first_own = sum(not rules.is_own(candidate) for candidate in ranked)
        self._max_reliefs: dict[tuple[MeterName, int], list[int]] = {}

    def gangs(self, victims: int) -> tuple[GangUid, ...]:
        return tuple(self._ranked[rank].uid for rank in _ranks(victims))

    def greedy(self) -> Iterator[_Found]:
        """Yield sets that help and have no needless gang.

        One for every level from which quota may be reclaimed, of loans alone and of gangs that are borrowed in part as
        well, and one of the own queue's gangs alone; each with gangs in the order of preference, and in that of how
        much they give back of what is short, since that may need fewer.
        """
        orders: list[Sequence[int]] = [range(len(self._ranked))]
        if self._rules.missing:
            orders.append(sorted(orders[0], key=self._relief, reverse=True))
        levels = sorted({level for level in self._levels if level is not None})
        by_shares = [BY_SHARES] if self._rules.is_by_shares else []
        tried: set[tuple[int | None, tuple[int, ...]]] = set()
        for level, whole, order in product([*levels, None, *by_shares], (True, False), orders):
            ranks = self._loans([rank for rank in order if self._is_within(rank, level)], whole=whole)
            if (level, tuple(ranks)) in tried:
                continue
            tried.add((level, tuple(ranks)))
            found = self._minimal_set(ranks, level)
            if found is not None and self._helps(found):
                yield self._found(self._without_redundant(found))

    def best(self, best: _Found | None) -> _Found | None:
        """Return the best set that helps: every better one than `best` is tried. best: a set that helps, if known."""
        for own, is_partial in product(range(len(self._ranked) - self._first_own + 1), (False, True)):
            if best is not None and (own, is_partial) > best[:2]:
                break
            stage = _Stage(own=own, is_partial=is_partial, best=best)
            self._search_stage(stage)
            best = stage.best
        return best

    def _search_stage(self, stage: _Stage) -> None:
        """Replace the best known set by the best one of the stage, if that is better."""
        for size in range(stage.own, self._first_own + stage.own + 1):
            for victims in self._sets(size, stage):
                found = self._found(victims)
                if stage.best is not None and found >= stage.best:
                    if not stage.is_partial:
                        return
                elif found.is_partial is stage.is_partial and self._helps(victims):
                    stage.best = found
                    if not stage.is_partial:
                        return

    def _found(self, victims: int) -> _Found:
        candidates = self._candidates(victims)
        is_partial = not self._rules.takes_only_loans(candidates)
        return _Found(
            own=(victims >> self._first_own).bit_count(),
            is_partial=is_partial,
            beyond=self._rules.beyond_loans(candidates) if is_partial else Fraction(),
            size=victims.bit_count(),
            victims=victims,
        )

    def _is_within(self, rank: int, level: int | None) -> bool:
        own_level = self._levels[rank]
        return own_level is None or (level is not None and own_level >= level)

    def _relief(self, rank: int) -> Fraction:
        """Return how much of what is short the gang gives back: the sum of its fractions over all meters."""
        charge, missing = self._ranked[rank].charge, self._rules.missing
        return sum(
            (Fraction(min(charge.get(meter, 0), needed), needed) for meter, needed in missing.items()), Fraction()
        )

    def _loans(self, ranks: Sequence[int], *, whole: bool) -> list[int]:
        """Return the ranks that, taken in order, are loans (`Rules.loans`); so is any subset of them."""
        known = {self._ranked[rank].uid: rank for rank in ranks}
        loans = self._rules.loans((self._ranked[rank] for rank in ranks), whole=whole)
        return [known[candidate.uid] for candidate in loans]

    def _minimal_set(self, ranks: Sequence[int], level: int | None) -> int | None:
        """Return the gangs that are needed: the gang would not fit if only those before them in `ranks` were evicted.

        The last of them is found first by bisection; with it evicted, the last but one is searched for before it.
        """
        chosen, count = 0, len(ranks)

        def reaches(first: int) -> bool:
            return self._reaches(sum((1 << rank for rank in ranks[:first]), chosen), level)

        def suffices(first: int) -> bool:
            return reaches(first) and self.cached_fits.fits(sum((1 << rank for rank in ranks[:first]), chosen))

        if not suffices(count):
            return None
        while count := _smallest_sufficient(count, reaches, suffices):
            count -= 1
            chosen |= 1 << ranks[count]
        return chosen

    def _without_redundant(self, victims: int) -> int:
        """Remove needless gangs from a set, the least preferred first, until every gang is needed."""
        ranks = [*_ranks(victims)]
        while (
            redundant := next((rank for rank in reversed(ranks) if self._helps(victims ^ 1 << rank)), None)
        ) is not None:
            victims ^= 1 << redundant
            ranks.remove(redundant)
        return victims

    def _sets(self, size: int, stage: _Stage) -> Iterator[int]:
        """Yield the sets of a size with so many own gangs, the better ones first, without those that cannot help."""
        stack = [(0, len(self._ranked), size)]
        while stack:
            victims, below, remaining = stack.pop()
            if not self._may_help(victims, below, remaining, stage):
                continue
            if remaining:
                # The own gangs have the highest ranks, so they are chosen first.
                own_left = max(0, stage.own - (size - remaining))
                least = self._first_own + own_left - 1 if own_left else remaining - 1
                most = below if own_left else min(below, self._first_own)
                stack.extend((victims | 1 << rank, rank, remaining - 1) for rank in reversed(range(least, most)))
            else:
                yield victims

    def _may_help(self, victims: int, below: int, remaining: int, stage: _Stage) -> bool:
        """Return whether these victims and `remaining` gangs of rank below `below` may help together.

        False only if no such set does: by an upper bound on what they give back of a short meter, since even all gangs
        below are known to fail, or since these victims are no loans already, or take too much of what is no loan.
        """
        self.cached_fits.count_set()
        candidates = self._candidates(victims)
        for meter, missing in self._rules.missing.items():
            relief = sum(candidate.charge.get(meter, 0) for candidate in candidates)
            if relief + self._max_relief(meter, below)[remaining] < missing:
                return False
        if self.cached_fits.fails(victims | ((1 << below) - 1 if remaining else 0)):
            return False
        if not stage.is_partial:
            return self._rules.takes_only_loans(candidates)
        return self._rules.takes_loans(candidates) and stage.may_be_better(
            self._rules.beyond_loans(candidates), len(candidates) + remaining
        )

    def _max_relief(self, meter: MeterName, below: int) -> list[int]:
        """Return the most that 0, 1, 2, … gangs of rank below `below` give back of a meter."""
        key = meter, below
        if key not in self._max_reliefs:
            reliefs = sorted((candidate.charge.get(meter, 0) for candidate in self._ranked[:below]), reverse=True)
            self._max_reliefs[key] = list(accumulate(reliefs, initial=0))
        return self._max_reliefs[key]

    def _helps(self, victims: int) -> bool:
        self.cached_fits.count_set()
        if not self._rules.allow(self._candidates(victims)) or not self.cached_fits.fits(victims):
            return False
        return self.cached_fits.permits(victims)

    def _reaches(self, victims: int, level: int | None) -> bool:
        self.cached_fits.count_set()
        return self._rules.takes_back(self._candidates(victims), level)

    def _candidates(self, victims: int) -> list[Candidate]:
        return [self._ranked[rank] for rank in _ranks(victims)]


def _smallest_sufficient(count: int, reaches: Callable[[int], bool], suffices: Callable[[int], bool]) -> int:
    """Return the smallest number that is enough; `count` is.

    It calls `suffices` rarely: needed gangs are often next to each other, and often what reaches by quota is enough.
    """
    if not count or not suffices(count - 1):
        return count
    least = bisect_left(range(count), True, key=reaches)  # noqa: FBT003 - the value that is looked for
    if suffices(least):
        return least
    return least + 1 + bisect_left(range(least + 1, count - 1), True, key=suffices)  # noqa: FBT003 - as above


def _ranks(victims: int) -> Iterator[int]:
    """Yield the ranks in a set, the lowest first."""
    while victims:
        lowest = victims & -victims
        yield lowest.bit_length() - 1
        victims ^= lowest
