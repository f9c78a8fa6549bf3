"""Fair shares: what a queue borrows of what its parent could lend, divided by its weight; or what it uses and has used.

The share of a queue is its dominant share, as in *Dominant Resource Fairness* (Ghodsi et al., NSDI 2011): the largest
part of any one meter. By default it is of what the queue borrows, as in Kueue (KEP 1714, `pkg/cache/scheduler/
fair_sharing.go`, 2026), so that a queue within its quota has no share of anything:

    share(q) = max over meters m of max(0, usage(q, m) - subtree(q, m)) / potential(parent of q, m) / weight(q),

where the subtree quota and the usage are those of `borrowing`, and the potential is what the parent could take if
nothing were used. A root does not borrow. Weight 0 makes the share infinite as soon as anything is borrowed; so does
a loan of a meter of which nothing can be lent, which Kueue leaves out. Infinite shares are compared by the largest part
of the other meters, without the weight.

By history it is of all that the queue and those under it use and have used, past usage with decreasing weight, as in
Kueue's admission fair sharing (KEP 4136):

    share(q)         = max over meters m of effective(q, m) / capacity(parent of q, m) / weight(q),
    decayed(q, m)    = sum over intervals of average use x (2^-((now - end) / h) - 2^-((now - start) / h)),
    effective(q, m)  = (decayed(q, m) + present(q, m)) / 2, or present(q, m) without a half-life h:

decayed is the mean of all usage until now, each moment weighted by its age; effective is what decayed will be one
half-life later if present usage stays. The capacity is the potential, and at least the sum of the quotas under the
parent, since quota kept by a lending limit is used as well; for the roots it is the sum of all quotas.

Present usage, reserved and used, makes the order follow each grant at once.

Shares matter between the children of a parent, and between the roots, as soon as one of them declares `fairSharing`;
those that do not have weight 1 then. They are by history as soon as one of them declares a half-life, the longest of
which is that of those that declare no `fairSharing`.

The members of one queue, namespaces or users, have shares of what they use of what the queue can have, as the
LocalQueues of one ClusterQueue in Kueue's admission fair sharing:

    share(member) = max over meters m of usage(member, m) / potential(queue, m) / weight(member),

with a half-life of the effective usage, as above, in place of the present one. Weight 0 makes the share
infinite, also of a member that uses nothing, as in Kueue.

All amounts are exact but past usage, since 2^-(age / half-life) is irrational for almost all ages: it is a float. The
weights are computed by integers and sums are rounded once, so it depends neither on the machine nor on the order in
which usage is listed. It depends, in its last digits, on the times at which it was summed up: a leader that adds
interval after interval and one that reads them all at once may rank two queues apart whose shares differ by less than
a part in 10^12. Each ranks them as one that decides alone; nothing is compared between leaders.
"""

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from typing import TypeVar

from admission.api.muster.gangs import Charge
from admission.api.muster.ledger_entries import MemberUsageInterval, UsageInterval
from admission.api.muster.queues import FairSharing
from admission.api.values.names import MeterName, QueueName
from admission.quota.headroom import QueueUsage, Usage
from admission.quota.tree import Tree

NONE = timedelta(0)
"""The half-life of a queue for which only present usage counts."""

HALF_LIVES = 30
"""Usage older than this many half-lives weighs less than a billionth, and is not read."""

_EARLIEST = datetime(2, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The sharing rules of a tree. weights and half_lives: of the queues whose share matters."""

    weights: Mapping[QueueName, Fraction]
    half_lives: Mapping[QueueName, timedelta]
    by_history: frozenset[QueueName] = frozenset()
    """The queues whose share is of what they use and have used; that of the others is of what they borrow."""
    counted_half_lives: Mapping[QueueName, frozenset[timedelta]]
    """By queue, the half-lives by which its own usage counts: its own, and those of the queues above it."""

    @classmethod
    def from_tree(cls, tree: Tree) -> "Rules":
        """Return the rules of a tree; empty if no queue declares fair sharing."""
        weights: dict[QueueName, Fraction] = {}
        half_lives: dict[QueueName, timedelta] = {}
        by_history: set[QueueName] = set()
        for children in _sibling_groups(tree):
            declared = [sharing for name in children if (sharing := tree.queues[name].fair_sharing) is not None]
            if declared:
                default = FairSharing(half_life=max(sharing.half_life for sharing in declared))
                by_history.update(children if default.half_life else ())
                for name in children:
                    sharing = tree.queues[name].fair_sharing or default
                    weights[name], half_lives[name] = sharing.weight, sharing.half_life
        counted_half_lives: dict[QueueName, frozenset[timedelta]] = {}
        for name in tree.order:
            above = counted_half_lives.get(tree.parents[name], frozenset()) if name in tree.parents else frozenset()
            counted_half_lives[name] = above | ({half_lives[name]} - {NONE} if name in half_lives else frozenset())
        return cls(
            weights=weights,
            half_lives=half_lives,
            by_history=frozenset(by_history),
            counted_half_lives=counted_half_lives,
        )

    def since(self, now: datetime) -> datetime:
        """Return from when usage has to be read from the ledger to begin a `UsageHistory`."""
        longest = max(self.half_lives.values(), default=NONE)
        seconds = HALF_LIVES * longest.total_seconds()
        return now - timedelta(seconds=min(seconds, (now - _EARLIEST).total_seconds()))


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageHistory:
    """The decayed usage of every queue without those under it, by meter and half-life, in base units, at a time."""

    at: datetime
    use: Mapping[tuple[QueueName, MeterName, timedelta], float] = field(default_factory=dict)
    kept: Mapping[QueueName, frozenset[timedelta]] = field(default_factory=dict)

    def covers(self, rules: Rules) -> bool:
        """Return whether it has all half-lives that the rules need; if not, begin again from the ledger."""
        return all(
            counted_half_lives <= self.kept.get(queue, frozenset())
            for queue, counted_half_lives in rules.counted_half_lives.items()
        )

    def after(self, intervals: Iterable[UsageInterval], now: datetime) -> "UsageHistory":
        """Return the history at a later time, with the usage since. If the clock went back, ages stay as they are.

        Keep the history of usage that the ledger has marked; usage accrued since is added for one cycle only.
        """
        now = max(now, self.at)
        weights = {half_life: _weight(now - self.at, half_life) for half_life in {key[2] for key in self.use}}
        before = ((key, amount * weights[key[2]]) for key, amount in self.use.items())
        since = (
            ((interval.queue, interval.meter, half_life), _decayed_seconds(interval, half_life, now))
            for interval in intervals
            for half_life in self.kept.get(interval.queue, ())
        )
        return UsageHistory(at=now, use=sums(chain(before, since)), kept=self.kept)


def start_history(rules: Rules, intervals: Iterable[UsageInterval], now: datetime) -> UsageHistory:
    """Return the history of these intervals at a time."""
    return UsageHistory(at=now, kept=rules.counted_half_lives).after(intervals, now)


_Part = tuple[float, int]
"""What is used or borrowed of a meter, in base units, and what there is of it."""

Share = tuple[float, float]
"""A share and, if it is infinite, the largest part of what can be lent, without the weight. The smaller is first."""

Place = tuple[bool, float, float]
"""Where a queue stands among its siblings; the smallest is first. See `Shares.place`."""

_FIRST: Place = (False, 0.0, 0.0)


class Shares:
    """The shares of all queues in one cycle, kept up to date with every grant.

    Building it costs a step per queue and meter, and per level above each past usage; a grant a step per level; the
    first query after a grant a step per meter.
    """

    def __init__(
        self, queue_usage: QueueUsage, usage: Usage, rules: Rules, history: UsageHistory | None = None
    ) -> None:
        """usage: the one from which the queue usage was built. The queue usage is copied, without what queues keep."""
        self.tree = queue_usage.tree
        self._queue_usage = queue_usage.copy()
        # Shares are of what is used alone.
        self._queue_usage.release_all()
        self._rules = rules
        self._meters = {meter for amounts in (*self.tree.quotas.values(), *usage.values()) for meter in amounts}
        self._present: defaultdict[QueueName, defaultdict[MeterName, int]] = defaultdict(lambda: defaultdict(int))
        self._decayed: defaultdict[QueueName, defaultdict[MeterName, float]] = defaultdict(lambda: defaultdict(float))
        self._totals: defaultdict[QueueName | None, defaultdict[MeterName, int]] = defaultdict(lambda: defaultdict(int))
        self._capacities: dict[tuple[QueueName | None, MeterName], int] = {}
        self._places: defaultdict[QueueName, dict[Hashable, Place]] = defaultdict(dict)
        if rules.by_history:
            self._add(usage, history)

    def matter(self, queue: QueueName) -> bool:
        """Return whether the queue is ranked by its share among its siblings."""
        return queue in self._rules.weights

    def share(self, queue: QueueName) -> float:
        """Return the share of a queue; 0 if it is inactive, or is not ranked by its share."""
        return self._share(queue, {}, self._borrowed(queue, queue, {}))[0]

    def place(self, name: QueueName, queue: QueueName, charge: Charge) -> Place:
        """Return where a queue stands among its siblings if a gang of it, or of a queue under it, starts.

        queue, charge: of the gang. In order: whether the queue then borrows from its parent what the gang is charged,
        its share with the gang, and what is compared of infinite shares (`Share`). The first comes before the
        second, so that no queue within its quota ever comes after one that borrows, as Kueue's
        `FairSharingPrioritizeNonBorrowing` and its classical order do. Where shares do not matter, it borrows only if
        the gang's queue and all between borrow that, too: as in the classical order a gang within the quota of its
        queue is no borrower, whatever others of its branch have borrowed.
        """
        has_parent = name in self.tree.parents
        if not has_parent and name not in self._rules.by_history:
            return _FIRST
        known, key = self._places[name], (queue, tuple(charge.items()))
        if key not in known:
            user = next(iter(self.tree.bearing(queue)), queue)
            borrowed = self._borrowed(name, user, charge)
            lent = [meter for meter in borrowed if charge.get(meter)]
            borrows = bool(lent) and (self.matter(name) or self._borrow_below(name, user, lent, charge))
            known[key] = borrows, *self._share(name, charge, borrowed)
        return known[key]

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a charge as used."""
        self._note(queue, charge)
        self._move(queue, charge, 1)

    def give_back(self, queue: QueueName, charge: Charge) -> None:
        """Undo `charge`."""
        self._note(queue, charge)
        self._move(queue, charge, -1)

    def _borrowed(self, queue: QueueName, user: QueueName, charge: Charge) -> dict[MeterName, int]:
        """Return what the queue would borrow; of the meters of the charge, and of all where its share is of that.

        user: the queue or one under it, which is charged so much more.
        """
        if queue not in self.tree.parents:
            return {}
        is_by_loans = queue in self._rules.weights and queue not in self._rules.by_history
        meters = self._meters | charge.keys() if is_by_loans else charge
        return self._queue_usage.borrowed_with(queue, meters, user, charge)

    def _borrow_below(self, name: QueueName, user: QueueName, meters: Iterable[MeterName], charge: Charge) -> bool:
        """Return whether all queues from that of a gang up to one borrow the same one of these meters with it."""
        path = self.tree.path(user)
        below, borrowed_with = path[: path.index(name)], self._queue_usage.borrowed_with
        return any(all(borrowed_with(one, (meter,), user, charge) for one in below) for meter in meters)

    def _share(self, queue: QueueName, charge: Charge, borrowed: Charge) -> Share:
        """Return the share, with a charge more.

        borrowed: what the queue then borrows.
        """
        weight = self._rules.weights.get(queue)
        if weight is None or not self.tree.active(queue):
            return 0.0, 0.0
        if queue not in self._rules.by_history:
            return share_of_loans(self._queue_usage, queue, borrowed, weight)
        return _weighted(self._parts_used(queue, charge), weight)

    def _parts_used(self, queue: QueueName, charge: Charge) -> Iterator[_Part]:
        for meter in self._present[queue].keys() | self._decayed[queue].keys() | charge.keys():
            effective: float = self._present[queue].get(meter, 0) + charge.get(meter, 0)
            if self._rules.half_lives[queue]:
                effective = (effective + self._decayed[queue].get(meter, 0.0)) / 2
            if effective > 0:
                yield effective, self._capacity(self.tree.parents.get(queue), meter)

    def _capacity(self, parent: QueueName | None, meter: MeterName) -> int:
        key = (parent, meter)
        if key not in self._capacities:
            potential = 0 if parent is None else self._queue_usage.potential(parent, meter)
            self._capacities[key] = max(potential, self._totals[parent].get(meter, 0))
        return self._capacities[key]

    def _note(self, queue: QueueName, charge: Charge) -> None:
        """Forget the places that a change of usage changes."""
        self._meters.update(charge)
        for name in self.tree.bearing(queue):
            self._places.pop(name, None)

    def _move(self, queue: QueueName, charge: Charge, sign: int) -> None:
        bearers = self.tree.bearing(queue)
        if not bearers:
            return
        if sign > 0:
            self._queue_usage.charge(bearers[0], charge)
        else:
            self._queue_usage.give_back(bearers[0], charge)
        for name in bearers if self._rules.by_history else ():
            for meter, amount in charge.items():
                self._present[name][meter] += sign * amount

    def _add(self, usage: Usage, history: UsageHistory | None) -> None:
        for queue, amounts in usage.items():
            for name in self.tree.bearing(queue):
                for meter, amount in amounts.items():
                    self._present[name][meter] += amount
        past = (
            ((name, meter), decayed)
            for (queue, meter, half_life), decayed in (history.use if history else {}).items()
            for name in self.tree.bearing(queue)
            if self._rules.half_lives.get(name) == half_life
        )
        for (name, meter), decayed in sums(past).items():
            self._decayed[name][meter] = decayed
        for queue in self.tree.order:
            above: tuple[QueueName | None, ...] = (*self.tree.path(queue), None)
            for parent in above:
                for meter, quota in self.tree.quotas[queue].items():
                    self._totals[parent][meter] += quota.nominal


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberShares:
    """What the members of a queue use, and are entitled to. potential: what the queue can have of each meter.

    weights: of the members that have another one than 1. decayed: the past usage; None if it does not count.
    """

    used: Mapping[str, Charge]
    potential: Mapping[MeterName, int]
    weights: Mapping[str, Fraction]
    decayed: Mapping[str, Mapping[MeterName, float]] | None = None

    def share(self, member: str, used: Charge) -> Share:
        """Return the share of a member that uses so much; with weight 0 it is infinite also of nothing."""
        effective: Mapping[MeterName, float] = used
        if self.decayed is not None:
            past = self.decayed.get(member, {})
            effective = {meter: (used.get(meter, 0) + past.get(meter, 0.0)) / 2 for meter in used.keys() | past.keys()}
        parts = ((amount, self.potential.get(meter, 0)) for meter, amount in effective.items() if amount > 0)
        weight = self.weights.get(member, Fraction(1))
        share = _weighted(parts, weight)
        return share if weight else (math.inf, share[1])


MemberUse = tuple[QueueName, str, str, MeterName]
"""A queue, a namespace, the creator of a gang, and a meter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHistory:
    """The decayed usage of queues by namespace and creator, in base units, at a time. half_lives: by queue."""

    at: datetime
    half_lives: Mapping[QueueName, timedelta]
    use: Mapping[MemberUse, float] = field(default_factory=dict)

    def after(self, intervals: Iterable[MemberUsageInterval], now: datetime) -> "MemberHistory":
        """Return the history at a later time, with the usage since. If the clock went back, ages stay as they are."""
        now, half_lives = max(now, self.at), self.half_lives
        weights = {half_life: _weight(now - self.at, half_life) for half_life in {*half_lives.values()}}
        before = ((key, amount * weights[half_lives[key[0]]]) for key, amount in self.use.items())
        since = (
            ((one.queue, one.namespace, one.user, one.meter), _decayed_seconds(one, half_lives[one.queue], now))
            for one in intervals
            if one.queue in half_lives
        )
        return MemberHistory(at=now, half_lives=half_lives, use=sums(chain(before, since)))

    def going_on(self, held: Mapping[QueueName, Mapping[tuple[str, str], Charge]], now: datetime) -> "MemberHistory":
        """Return the history at a later time, if so much has been used since. held: by queue, namespace and creator."""
        found = self.after((), now)
        use = dict(found.use)
        for queue, people in held.items():
            grown = 1 - _weight(found.at - self.at, self.half_lives[queue]) if queue in self.half_lives else 0.0
            for (namespace, user), amounts in people.items() if grown else ():
                for meter, amount in amounts.items():
                    key = queue, namespace, user, meter
                    use[key] = use.get(key, 0.0) + amount * grown
        return MemberHistory(at=found.at, half_lives=self.half_lives, use=use)


def share_of_loans(queue_usage: QueueUsage, queue: QueueName, borrowed: Charge, weight: Fraction) -> Share:
    """Return the share of a queue that borrows so much of each meter of its parent; a root borrows nothing."""
    potential, parents = queue_usage.potential, queue_usage.tree.parents
    return _weighted(((amount, potential(parents[queue], meter)) for meter, amount in borrowed.items()), weight)


def _weighted(parts: Iterable[_Part], weight: Fraction) -> Share:
    """Return the share of which these are the parts, each more than 0: the largest, by weight."""
    parts, up, down = [*parts], weight.denominator, weight.numerator
    # One division of exact integers, which Python rounds correctly, so that shares that are equal are equal numbers.
    share = max(
        (amount * up / (total * down) if total and down else math.inf for amount, total in parts),
        default=0.0,
    )
    if share != math.inf:
        return share, 0.0
    return math.inf, max((amount / total for amount, total in parts if total), default=0.0)


def member_half_lives(tree: Tree) -> dict[QueueName, timedelta]:
    """Return the half-lives of the past usage of members, of the queues where that counts."""
    found = ((name, queue.fair_sharing) for name, queue in tree.queues.items())
    return {name: one.within.half_life for name, one in found if one and one.within and one.within.half_life}


def _sibling_groups(tree: Tree) -> list[tuple[QueueName, ...]]:
    """Return the groups of siblings: the roots, and the children of every parent."""
    return [tuple(name for name in tree.order if name not in tree.parents), *tree.children.values()]


K = TypeVar("K", bound=Hashable)


def sums(parts: Iterable[tuple[K, float]]) -> dict[K, float]:
    """Return the sum of the parts of each key, if more than 0, rounded once, so that their order does not matter."""
    found: dict[K, list[float]] = {}
    for key, part in parts:
        found.setdefault(key, []).append(part)
    return {key: total for key, some in found.items() if (total := math.fsum(some)) > 0}


def _decayed_seconds(interval: UsageInterval, half_life: timedelta, now: datetime) -> float:
    """Return what an interval adds to decayed usage: its average usage, weighted by its age."""
    seconds = (interval.end - interval.start).total_seconds()
    if seconds <= 0:
        return 0.0
    weight = _weight(now - interval.end, half_life) - _weight(now - interval.start, half_life)
    return interval.seconds / seconds * weight


_ONE = 1 << 64
_ROOTS = [_ONE // 2]
"""2^-1, 2^-(1/2), 2^-(1/4), … in parts of `_ONE`, each the root of the one before."""
for _ in range(64):
    _ROOTS.append(math.isqrt(_ROOTS[-1] * _ONE))


@lru_cache(1024)  # What is asked in one cycle is of the same few ages.
def _weight(age: timedelta, half_life: timedelta) -> float:
    """Return 2^-(age / half-life), to at least 50 bits; 1 for a time that is not past.

    By integers, bit by bit of the fraction, since libraries of C round their power functions each in its own way.
    """
    half = half_life // timedelta.resolution
    halved, rest = divmod(max(age, NONE) // timedelta.resolution, half)
    weight = _ONE
    for root in _ROOTS[1:]:
        bit, rest = divmod(2 * rest, half)
        weight = weight * root // _ONE if bit else weight
    return math.ldexp(weight, -64 - halved)
