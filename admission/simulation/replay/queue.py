"""Which waiting job starts next in a replay: by Muster's decisions, or by those of a queue that only counts quota.

Jobs with the same requests in one queue differ only in rank, so if the first of them cannot start, none can. They form
one line, and only heads of lines are decided about; in a strict queue all jobs are one line. A held head is decided
about again only when the reason of its hold may have changed: while jobs only start, resources only shrink, so a hold
remains valid. Jobs held by a reservation also differ in runtime: then other jobs of the line are tried which would
conflict with fewer reservations.
"""

import bisect
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter
from typing import Protocol

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import Queue, QueueingStrategy
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, Hold
from admission.quota import queue_order
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Rank, Tournament
from admission.quota.shortage import Shortage
from admission.scheduling.backfill import policy
from admission.scheduling.cache.plan_cache import InfeasibilityProof
from admission.scheduling.cache.verdict_cache import PROOF, QUOTA, RESERVED, STEADY, Verdict
from admission.scheduling.checks.chain import Grant
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock, Running

Refused = tuple[Waiting, Denial]


class Decider(Protocol):
    """Decides which jobs start.

    refused and evicted: jobs since the last call of `settle` that will never start, and jobs that wait again.
    """

    refused: list[Refused]
    evicted: list[Running]

    def arrive(self, waiting: Waiting) -> None:
        """Add a waiting job."""

    def settle(self, *, freed: bool) -> list[Running]:
        """Start the jobs that can start now; return them in order. freed: whether jobs have ended."""

    def waiting(self) -> Iterator[tuple[Waiting, Hold]]:
        """Yield the waiting jobs, each with its hold, or with that of the first job with the same requests."""


@dataclass(slots=True, eq=False)
class ReplayQueue:
    """Jobs of one queue, by rank, of which only the first may start, unless a reservation holds it.

    held: the verdict on the first job, or None. passed: the verdicts on later jobs, which conflict with fewer
    reservations.
    """

    queue: Queue
    jobs: list[Waiting] = field(default_factory=list)
    held: Verdict | None = None
    passed: list[Verdict] = field(default_factory=list)
    _by_runtime: list[tuple[timedelta, Rank, Waiting]] = field(default_factory=list)
    """The same jobs, those with the shortest expected runtime first."""

    @property
    def head(self) -> Waiting:
        return self.jobs[0]

    @property
    def found(self) -> list[Verdict]:
        """Return all verdicts that hold jobs of the line."""
        return [self.held, *self.passed] if self.held is not None else []

    @property
    def is_reserved(self) -> bool:
        """Whether a reservation holds the first job."""
        return self.held is not None and bool(self.held.bound)

    def add(self, waiting: Waiting) -> bool:
        """Insert a job by rank; return whether it is the first now."""
        jobs, rank = self.jobs, queue_order.rank(waiting)
        bisect.insort(self._by_runtime, self._entry(waiting))
        if not jobs or queue_order.rank(jobs[-1]) < rank:
            jobs.append(waiting)
            return len(jobs) == 1
        at = bisect.bisect(jobs, rank, key=queue_order.rank)
        jobs.insert(at, waiting)
        return at == 0

    def reexamine(self) -> None:
        """Forget the verdicts, so that the first job is decided again."""
        self.held = None
        self.passed.clear()

    def hold(self, waiting: Waiting, found: Verdict) -> None:
        """Record the verdict that holds a job."""
        if waiting is self.head:
            self.held = found
        else:
            self.passed.append(found)

    def pop(self, waiting: Waiting | None = None) -> Waiting:
        """Remove a job, by default the first one. After the first one, the next is to be decided."""
        if waiting is None or waiting is self.head:
            self.reexamine()
            waiting = self.jobs.pop(0)
        else:
            del self.jobs[bisect.bisect_left(self.jobs, queue_order.rank(waiting), key=queue_order.rank)]
        del self._by_runtime[bisect.bisect_left(self._by_runtime, self._entry(waiting))]
        return waiting

    def after(self, waiting: Waiting, shorter: timedelta | None) -> Waiting | None:
        """Return the first job behind another with a shorter expected runtime than this; None for any runtime."""
        rank = queue_order.rank(waiting)
        if shorter is None:
            at = bisect.bisect(self.jobs, rank, key=queue_order.rank)
            return self.jobs[at] if at < len(self.jobs) else None
        short = self._by_runtime[: bisect.bisect_left(self._by_runtime, shorter, key=itemgetter(0))]
        return min((entry[1:] for entry in short if entry[1] > rank), default=(None, None))[1]

    def _entry(self, waiting: Waiting) -> tuple[timedelta, Rank, Waiting]:
        return arrivals.expected(waiting.arrival, self.queue) or timedelta.max, queue_order.rank(waiting), waiting


class Muster:
    """Decides as the controller does."""

    def __init__(self, stage: Clock) -> None:
        self.refused: list[Refused] = []
        self.evicted: list[Running] = []
        self._stage = stage
        self._lines: dict[Hashable, ReplayQueue] = {}
        self._of_queue: dict[QueueName, set[Hashable]] = {}
        """The lines of each queue."""

    def arrive(self, waiting: Waiting) -> None:
        key = self._line_of(waiting)
        if key not in self._lines:
            self._lines[key] = ReplayQueue(self._stage.replayed.queue(waiting))
            self._of_queue.setdefault(waiting.queue, set()).add(key)
        line = self._lines[key]
        if line.add(waiting) or line.is_reserved:
            line.reexamine()

    def settle(self, *, freed: bool) -> list[Running]:
        stage = self._stage
        if stage.reserve.advance(stage.time) or freed:
            self._forget_what_fell()
        contest = _Contest(stage, (line for line in self._lines.values() if line.held is None))
        started: list[Running] = []
        for waiting, line in contest:
            before = stage.reserve.revision
            found = stage.backfill(waiting)
            if isinstance(found.outcome, Hold):
                line.hold(waiting, found)
            else:
                self._remove(line, waiting)
                if isinstance(found.outcome, Grant):
                    plan = found.outcome.plan
                    stage.charge(waiting, plan.charge)
                    contest.charge(waiting.queue, plan.charge)
                    started.append(stage.start(waiting, plan, plan.charge))
                else:
                    self.refused.append((waiting, found.outcome))
            self._continue(line, waiting, contest)
            if stage.reserve.revision != before:
                self._reexamine_reserved(contest)
            self._promote(waiting.queue, contest)
        return started

    def waiting(self) -> Iterator[tuple[Waiting, Hold]]:
        for line in self._lines.values():
            why = self._stage.explain(line.head).outcome
            yield from ((job, why) for job in line.jobs)

    def _line_of(self, waiting: Waiting) -> Hashable:
        if self._is_strict(waiting):
            return waiting.queue
        return waiting.queue, waiting.arrival.pod_requests, waiting.pods, waiting.priority

    def _is_strict(self, waiting: Waiting) -> bool:
        return self._stage.replayed.queue(waiting).strategy is QueueingStrategy.STRICT_FIFO

    def _remove(self, line: ReplayQueue, waiting: Waiting) -> None:
        """Remove a job from its line, and the line if it becomes empty."""
        line.pop(waiting)
        if not line.jobs:
            key = self._line_of(waiting)
            del self._lines[key]
            self._of_queue[waiting.queue].discard(key)

    def _continue(self, line: ReplayQueue, waiting: Waiting, contest: "_Contest") -> None:
        """Enter the next job of a line that may start."""
        if line.jobs and line.held is None:
            contest.enter(line.head, line)
        elif line.is_reserved and not self._is_strict(waiting):
            bounds = [found.bound for found in line.found]
            job = line.after(waiting, self._stage.shorter(waiting, bounds)) if all(bounds) else None
            if job is not None:
                contest.enter(job, line)

    def _reexamine_reserved(self, contest: "_Contest") -> None:
        """Enter the heads of lines whose conflicting reservations no longer exist."""
        inputs = Unchanged(self._stage)
        for line in self._lines.values():
            if line.is_reserved and not inputs.all_stand(line):
                line.reexamine()
                contest.enter(line.head, line)

    def _promote(self, queue: QueueName, contest: "_Contest") -> None:
        """If a queue has no head for backfill, enter its next gang, which may become the head."""
        if self._stage.reserve.has_head(queue):
            return
        lines = [self._lines[key] for key in self._of_queue.get(queue, ())]
        held = [line for line in lines if line.held is not None and policy.waits(line.held)]
        left = [line for line in held if line.held and not self._stage.reserve.never_fits(line.held.group)]
        if left:
            line = min(left, key=lambda one: queue_order.rank(one.head))
            line.reexamine()
            contest.enter(line.head, line)

    def _forget_what_fell(self) -> None:
        """Forget the verdicts whose reasons have changed."""
        inputs = Unchanged(self._stage)
        for line in self._lines.values():
            if line.held is not None and not inputs.all_stand(line):
                line.reexamine()


class _Contest:
    """The jobs to be decided, in order, each with its line."""

    def __init__(self, stage: Clock, lines: Iterable[ReplayQueue]) -> None:
        self._lines = {line.head.key: line for line in lines}
        heads = [line.head for line in self._lines.values()]
        self._tournament = Tournament(stage.shares, heads, lambda one: one.queue)

    def __iter__(self) -> Iterator[tuple[Waiting, ReplayQueue]]:
        for waiting in self._tournament:
            yield waiting, self._lines.pop(waiting.key)

    def enter(self, waiting: Waiting, line: ReplayQueue) -> None:
        """Enter a job, unless it is entered already."""
        if waiting.key not in self._lines:
            self._lines[waiting.key] = line
            self._tournament.enter(waiting)

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a grant to a queue."""
        self._tournament.charge(queue, charge)


class Counting:
    """Decides as a queue that only counts quota: first in, first out, whatever devices are free.

    A job is admitted if its least charge fits its queue's quota, which it uses from then on. It starts when the planner
    finds a place for all of it, and keeps its quota until then. In each queue, the jobs behind the first one that does
    not fit wait. A real queue of this kind does worse: pods that are admitted one by one take devices from each other
    while they wait for the rest of their gang.
    """

    def __init__(self, stage: Clock) -> None:
        self.refused: list[Refused] = []
        self.evicted: list[Running] = []
        self._stage = stage
        self._lines: dict[QueueName, ReplayQueue] = {}
        self._let_in: list[_LetIn] = []
        self._unlimited = _Unlimited(stage.replayed.tree, {})

    def arrive(self, waiting: Waiting) -> None:
        if waiting.queue not in self._lines:
            self._lines[waiting.queue] = ReplayQueue(self._stage.replayed.queue(waiting))
        line = self._lines[waiting.queue]
        if line.add(waiting):
            line.held = None

    def settle(self, *, freed: bool) -> list[Running]:
        if freed:
            inputs = Unchanged(self._stage)
            for one in self._let_in:
                if one.held is not None and not inputs.stand(one.waiting.queue, one.held):
                    one.held = None
            for line in self._lines.values():
                if line.held is not None and not inputs.stand(line.head.queue, line.held):
                    line.held = None
        self._count()
        return list(self._placed())

    def waiting(self) -> Iterator[tuple[Waiting, Hold]]:
        for one in self._let_in:
            yield one.waiting, self._stage.explain(one.waiting, self._unlimited).outcome
        for line in self._lines.values():
            yield from ((job, line.held.outcome) for job in line.jobs if line.held is not None)

    def _count(self) -> None:
        """Admit the jobs that fit the quotas."""
        stage = self._stage
        lines = {name: line for name, line in self._lines.items() if line.jobs and line.held is None}
        contest = Tournament(stage.shares, [line.head for line in lines.values()], lambda one: one.queue)
        for waiting in contest:
            line = lines[waiting.queue]
            needed, found = stage.count(waiting)
            if found is not None and isinstance(found.outcome, Hold):
                line.held = found
                continue
            line.pop()
            if found is not None:
                self.refused.append((waiting, found.outcome))
            else:
                stage.charge(waiting, needed)
                contest.charge(waiting.queue, needed)
                self._let_in.append(_LetIn(waiting, needed))
            if line.jobs:
                contest.enter(line.head)

    def _placed(self) -> Iterator[Running]:
        """Start the admitted jobs for which there is a place."""
        left: list[_LetIn] = []
        for one in self._let_in:
            if one.held is None:
                one.held = self._stage.decide(one.waiting, self._unlimited)
                if isinstance(one.held.outcome, Grant):
                    yield self._stage.start(one.waiting, one.held.outcome.plan, one.charge)
                    continue
            left.append(one)
        self._let_in = left


@dataclass(slots=True, eq=False)
class _LetIn:
    """A job that uses its quota and waits for a place."""

    waiting: Waiting
    charge: Charge
    held: Verdict | None = None


class _Unlimited(QueueUsage):
    """Quotas without limits."""

    def fits(self, queue: QueueName, charge: Charge) -> bool:  # noqa: ARG002 - of the base class
        return True

    def charge_fits(self, queue: QueueName, charge: Charge) -> Shortage | None:  # noqa: ARG002 - of the base class
        return None


class Unchanged:
    """Checks whether the reasons of verdicts still hold, each reason once."""

    def __init__(self, stage: Clock) -> None:
        self._stage = stage
        self._proofs: dict[InfeasibilityProof, bool] = {}
        self._shortages: dict[Hashable, bool] = {}
        self._in_the_way: dict[Hashable, bool] = {}

    def all_stand(self, line: ReplayQueue) -> bool:
        """Return whether all verdicts on a line would be the same again."""
        return all(self.stand(line.head.queue, found) for found in line.found)

    def stand(self, queue: QueueName, held: Verdict) -> bool:
        """Return whether a verdict on a job of a queue would be the same again."""
        if held.proof is not None and held.by == PROOF:
            if held.proof not in self._proofs:
                self._proofs[held.proof] = self._is_proved(held)
            return self._proofs[held.proof]
        key: Hashable = queue, tuple(sorted(held.needed.items()))
        if held.by == QUOTA:
            if key not in self._shortages:
                self._shortages[key] = not self._stage.queue_usage.fits(queue, held.needed)
            return self._shortages[key]
        if held.by == RESERVED:
            key = key if held.proof is None else held.proof, held.bound
            if key not in self._in_the_way:
                self._in_the_way[key] = self._stage.is_in_the_way(held)
            return self._in_the_way[key]
        return held.by in STEADY

    def _is_proved(self, held: Verdict) -> bool:
        if held.equivalent is None:
            return False
        plans, cluster_state = self._stage.rules.workspace.plans, self._stage.virtual_cluster.cluster
        return plans.proof(held.equivalent.key, cluster_state, self._stage.rules.selectors) is held.proof
