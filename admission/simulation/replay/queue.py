"""Which waiting job starts next in a replay: by Muster's decisions, or by those of a queue that only counts quota.

Jobs with the same requests in one queue differ only in rank, so if the first of them cannot start, none can. They form
one backlog, and only heads of backlogs are decided about; in a strict queue all jobs are one backlog. A held head is
decided about again only when the reason of its hold may have changed: while jobs only start, resources only shrink, so
a hold remains valid. Jobs held by a reservation also differ in runtime: then other jobs of the backlog are tried which
would conflict with fewer reservations.
"""

import bisect
from collections.abc import Callable, Hashable, Iterable, Iterator
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
from admission.simulation.replay.kept_quota import Held, KeptQuota

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

    head_verdict: the verdict on the first job, or None. other_verdicts: the verdicts on later jobs, which conflict with
    fewer reservations.
    """

    queue: Queue
    jobs: list[Waiting] = field(default_factory=list)
    head_verdict: Verdict | None = None
    other_verdicts: list[Verdict] = field(default_factory=list)
    _by_runtime: list[tuple[timedelta, Rank, Waiting]] = field(default_factory=list)
    """The same jobs, those with the shortest expected runtime first."""

    @property
    def head(self) -> Waiting:
        return self.jobs[0]

    @property
    def found(self) -> list[Verdict]:
        """Return all verdicts that hold jobs of the backlog."""
        return [self.head_verdict, *self.other_verdicts] if self.head_verdict is not None else []

    @property
    def is_reserved(self) -> bool:
        """Whether a reservation holds the first job."""
        return self.head_verdict is not None and bool(self.head_verdict.bound)

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
        self.head_verdict = None
        self.other_verdicts.clear()

    def hold(self, waiting: Waiting, verdict: Verdict) -> None:
        """Record the verdict that holds a job."""
        if waiting is self.head:
            self.head_verdict = verdict
        else:
            self.other_verdicts.append(verdict)

    def pop(self, waiting: Waiting | None = None) -> Waiting:
        """Remove a job, by default the first one. After the first one, the next is to be decided."""
        if waiting is None or waiting is self.head:
            self.reexamine()
            waiting = self.jobs.pop(0)
        else:
            del self.jobs[bisect.bisect_left(self.jobs, queue_order.rank(waiting), key=queue_order.rank)]
        del self._by_runtime[bisect.bisect_left(self._by_runtime, self._entry(waiting))]
        return waiting

    def next_behind(self, waiting: Waiting, runtime_bound: timedelta | None) -> Waiting | None:
        """Return the first job behind another with a shorter expected runtime than this; None for any runtime."""
        rank = queue_order.rank(waiting)
        if runtime_bound is None:
            at = bisect.bisect(self.jobs, rank, key=queue_order.rank)
            return self.jobs[at] if at < len(self.jobs) else None
        short = self._by_runtime[: bisect.bisect_left(self._by_runtime, runtime_bound, key=itemgetter(0))]
        return min((entry[1:] for entry in short if entry[1] > rank), default=(None, None))[1]

    def has(self, waiting: Waiting) -> bool:
        """Return whether a job is one of these."""
        at = bisect.bisect_left(self.jobs, queue_order.rank(waiting), key=queue_order.rank)
        return at < len(self.jobs) and self.jobs[at] is waiting

    def between(self, after: Rank | None, before: Rank | None) -> list[Waiting]:
        """Return the jobs between two ranks, None for the first or last one."""
        start = 0 if after is None else bisect.bisect(self.jobs, after, key=queue_order.rank)
        end = None if before is None else bisect.bisect_left(self.jobs, before, key=queue_order.rank)
        return self.jobs[start:end]

    def _entry(self, waiting: Waiting) -> tuple[timedelta, Rank, Waiting]:
        return arrivals.expected(waiting.arrival, self.queue) or timedelta.max, queue_order.rank(waiting), waiting


class Muster:
    """Decides as the controller does."""

    def __init__(self, clock: Clock) -> None:
        self.refused: list[Refused] = []
        self.evicted: list[Running] = []
        self._clock = clock
        self._backlogs: dict[Hashable, ReplayQueue] = {}
        self._keys_of_queue: dict[QueueName, set[Hashable]] = {}
        """The backlogs of each queue."""
        self._kept = KeptQuota(clock)

    def arrive(self, waiting: Waiting) -> None:
        key = self._backlog_key(waiting)
        if key not in self._backlogs:
            self._backlogs[key] = ReplayQueue(self._clock.replay_cluster.queue(waiting))
            self._keys_of_queue.setdefault(waiting.queue, set()).add(key)
        backlog = self._backlogs[key]
        if backlog.add(waiting) or backlog.is_reserved:
            backlog.reexamine()

    def settle(self, *, freed: bool) -> list[Running]:
        clock, kept = self._clock, self._kept
        may_be_stale = clock.backfill.advance(clock.time) or freed
        started: list[Running] = []
        # The rounds in which nothing starts are bounded by the queues that may keep less in each of them.
        idle = 0
        while idle <= len(kept.lenders):
            if kept.lenders:
                kept.begin(self._waits)
            if may_be_stale:
                self._forget_stale_verdicts()
            found = self._round()
            started += found
            idle = 0 if found else idle + 1
            may_be_stale = bool(kept.lenders) and kept.end(self._held(), self._waits, has_started=bool(found))
            if not may_be_stale:
                break
        return started

    def _round(self) -> list[Running]:
        """Let each job that may start have its turn once."""
        clock, order = self._clock, _DecisionOrder(self._clock, self._backlogs_of)
        for backlog in self._backlogs.values():
            if backlog.head_verdict is None:
                order.enter(backlog.head, backlog)
        self._enter_lenders(order)
        started: list[Running] = []
        for waiting, backlog in order:
            if backlog is None:
                self._pass(waiting)
                continue
            before = clock.backfill.revision
            verdict = clock.decide_backfill(waiting)
            if isinstance(verdict.outcome, Hold):
                backlog.hold(waiting, verdict)
                self._kept.turn(waiting, verdict)
            else:
                self._remove(backlog, waiting)
                if isinstance(verdict.outcome, Grant):
                    plan = verdict.outcome.plan
                    clock.charge(waiting, plan.charge)
                    order.charge(waiting.queue, plan.charge)
                    started.append(clock.start(waiting, plan, plan.charge))
                    self._enter_lenders(order)
                else:
                    self.refused.append((waiting, verdict.outcome))
            self._continue(backlog, waiting, order)
            if clock.backfill.revision != before:
                self._reexamine_reserved(order)
            self._promote(waiting.queue, order)
        return started

    def _pass(self, waiting: Waiting) -> None:
        """Let a job that is known to be held have its turn."""
        backlog = self._backlogs.get(self._backlog_key(waiting))
        if backlog is not None and backlog.head is waiting and backlog.head_verdict is not None:
            self._kept.turn(waiting, backlog.head_verdict)

    def _enter_lenders(self, order: "_DecisionOrder") -> None:
        """Enter the jobs for which queues will keep quota at their turn."""
        for waiting in self._kept.next(self._held()) if self._kept.lenders else ():
            order.enter(waiting)

    def _held(self) -> Iterator[Held]:
        """Yield the first jobs of backlogs that are held, each with the verdict."""
        for backlog in self._backlogs.values():
            if backlog.head_verdict is not None:
                yield backlog.head, backlog.head_verdict

    def _waits(self, waiting: Waiting) -> bool:
        backlog = self._backlogs.get(self._backlog_key(waiting))
        return backlog is not None and backlog.has(waiting)

    def waiting(self) -> Iterator[tuple[Waiting, Hold]]:
        for backlog in self._backlogs.values():
            why = self._clock.explain(backlog.head).outcome
            yield from ((job, why) for job in backlog.jobs)

    def _backlog_key(self, waiting: Waiting) -> Hashable:
        if self._is_strict(waiting):
            return waiting.queue
        return waiting.queue, waiting.arrival.pod_requests, waiting.pods, waiting.priority

    def _is_strict(self, waiting: Waiting) -> bool:
        return self._clock.replay_cluster.queue(waiting).strategy is QueueingStrategy.STRICT_FIFO

    def _remove(self, backlog: ReplayQueue, waiting: Waiting) -> None:
        """Remove a job from its backlog, and the backlog if it becomes empty."""
        backlog.pop(waiting)
        if not backlog.jobs:
            key = self._backlog_key(waiting)
            del self._backlogs[key]
            self._keys_of_queue[waiting.queue].discard(key)

    def _continue(self, backlog: ReplayQueue, waiting: Waiting, order: "_DecisionOrder") -> None:
        """Enter the next job of a backlog that may start."""
        if backlog.jobs and backlog.head_verdict is None:
            order.enter(backlog.head, backlog)
        elif backlog.is_reserved and not self._is_strict(waiting):
            bounds = [found.bound for found in backlog.found]
            job = backlog.next_behind(waiting, self._clock.runtime_bound(waiting, bounds)) if all(bounds) else None
            if job is not None:
                order.enter(job, backlog)

    def _reexamine_reserved(self, order: "_DecisionOrder") -> None:
        """Enter the heads of backlogs whose conflicting reservations no longer exist."""
        inputs = UnchangedReasons(self._clock)
        for backlog in self._backlogs.values():
            if backlog.is_reserved and not inputs.all_hold(backlog):
                backlog.reexamine()
                order.enter(backlog.head, backlog)

    def _promote(self, queue: QueueName, order: "_DecisionOrder") -> None:
        """If a queue has no head for backfill, enter its next gang, which may become the head."""
        if self._clock.backfill.has_head(queue):
            return
        waiting_backlogs = [
            backlog
            for backlog in self._backlogs_of(queue)
            if backlog.head_verdict is not None and policy.waits(backlog.head_verdict)
        ]
        candidates = [
            backlog
            for backlog in waiting_backlogs
            if backlog.head_verdict and not self._clock.backfill.never_fits(backlog.head_verdict.group)
        ]
        if candidates:
            backlog = min(candidates, key=lambda one: queue_order.rank(one.head))
            backlog.reexamine()
            order.enter(backlog.head, backlog)

    def _backlogs_of(self, queue: QueueName | None) -> Iterable[ReplayQueue]:
        """Return the backlogs of a queue; all if None."""
        if queue is None:
            return self._backlogs.values()
        return [self._backlogs[key] for key in self._keys_of_queue.get(queue, ())]

    def _forget_stale_verdicts(self) -> None:
        """Forget the verdicts whose reasons have changed."""
        inputs = UnchangedReasons(self._clock)
        for backlog in self._backlogs.values():
            if backlog.head_verdict is not None and not inputs.all_hold(backlog):
                backlog.reexamine()


class _DecisionOrder:
    """The jobs that have their turn, in order, each with its backlog if it is to be decided.

    A queue is ranked by its next job, also if that is known to be held, as in the controller's cycle, which asks all
    jobs. So these have their turn, too, once jobs of several queues are to be decided. Between the children of one root
    it is enough if before each job to be decided the last one ahead of it in each backlog of its queue has its turn.
    """

    def __init__(self, clock: Clock, backlogs_of: Callable[[QueueName | None], Iterable[ReplayQueue]]) -> None:
        self._backlogs_of = backlogs_of
        self._undecided: dict[str, tuple[Waiting, ReplayQueue]] = {}
        self._entered: set[str] = set()
        self._passed: dict[QueueName, Rank] = {}
        """By queue, the rank of the last job that had its turn."""
        self._queues: set[QueueName] = set()
        self._has_all = False
        self._tree = clock.replay_cluster.tree
        self._tournament = Tournament(clock.shares, (), lambda one: one.queue, clock.needed)

    def __iter__(self) -> Iterator[tuple[Waiting, ReplayQueue | None]]:
        while self._undecided:
            waiting = next(self._tournament)
            self._entered.discard(waiting.key)
            self._passed[waiting.queue] = queue_order.rank(waiting)
            yield waiting, self._undecided.pop(waiting.key, (waiting, None))[1]

    def enter(self, waiting: Waiting, backlog: ReplayQueue | None = None) -> None:
        """Enter a job, unless it is entered already. backlog: of a job that is to be decided."""
        if backlog is not None:
            self._undecided[waiting.key] = waiting, backlog
        self._put(waiting)
        is_new = waiting.queue not in self._queues
        self._queues.add(waiting.queue)
        if self._has_all or len(self._queues) == 1:
            return
        if self._are_children_of_one_root():
            entered = [one for one, _ in self._undecided.values()] if is_new and len(self._queues) == 2 else []
            for one in (*entered, waiting):
                self._put_before(queue_order.rank(one), one.queue, 1)
        else:
            self._has_all = True
            for queue in {backlog.queue.name for backlog in self._backlogs_of(None)}:
                self._put_before(None, queue)

    def charge(self, queue: QueueName, charge: Charge) -> None:
        """Count a grant to a queue."""
        self._tournament.charge(queue, charge)

    def _are_children_of_one_root(self) -> bool:
        parents = {self._tree.parents.get(queue) for queue in self._queues}
        return len(parents) == 1 and None not in parents and parents.isdisjoint(self._tree.parents)

    def _put_before(self, rank: Rank | None, queue: QueueName, most: int | None = None) -> None:
        """Enter the last jobs before a rank of each backlog of a queue that had no turn yet. most: of each, at most."""
        for backlog in self._backlogs_of(queue):
            for one in backlog.between(self._passed.get(queue), rank)[-most if most else None :]:
                self._put(one)

    def _put(self, waiting: Waiting) -> None:
        if waiting.key not in self._entered:
            self._entered.add(waiting.key)
            self._tournament.enter(waiting)


class Counting:
    """Decides as a queue that only counts quota: first in, first out, whatever devices are free.

    A job is admitted if its least charge fits its queue's quota, which it uses from then on. It starts when the planner
    finds a place for all of it, and keeps its quota until then. In each queue, the jobs behind the first one that does
    not fit wait. A real queue of this kind does worse: pods that are admitted one by one take devices from each other
    while they wait for the rest of their gang.
    """

    def __init__(self, clock: Clock) -> None:
        self.refused: list[Refused] = []
        self.evicted: list[Running] = []
        self._clock = clock
        self._backlogs: dict[QueueName, ReplayQueue] = {}
        self._admitted: list[_AdmittedJob] = []
        self._unlimited = _Unlimited(clock.replay_cluster.tree, {})

    def arrive(self, waiting: Waiting) -> None:
        if waiting.queue not in self._backlogs:
            self._backlogs[waiting.queue] = ReplayQueue(self._clock.replay_cluster.queue(waiting))
        backlog = self._backlogs[waiting.queue]
        if backlog.add(waiting):
            backlog.head_verdict = None

    def settle(self, *, freed: bool) -> list[Running]:
        if freed:
            inputs = UnchangedReasons(self._clock)
            for one in self._admitted:
                if one.verdict is not None and not inputs.holds(one.waiting.queue, one.verdict):
                    one.verdict = None
            for backlog in self._backlogs.values():
                if backlog.head_verdict is not None and not inputs.holds(backlog.head.queue, backlog.head_verdict):
                    backlog.head_verdict = None
        self._count()
        return list(self._placed())

    def waiting(self) -> Iterator[tuple[Waiting, Hold]]:
        for one in self._admitted:
            yield one.waiting, self._clock.explain(one.waiting, self._unlimited).outcome
        for backlog in self._backlogs.values():
            yield from ((job, backlog.head_verdict.outcome) for job in backlog.jobs if backlog.head_verdict is not None)

    def _count(self) -> None:
        """Admit the jobs that fit the quotas."""
        clock = self._clock
        backlogs = {
            name: backlog for name, backlog in self._backlogs.items() if backlog.jobs and backlog.head_verdict is None
        }
        heads = [backlog.head for backlog in backlogs.values()]
        order = Tournament(clock.shares, heads, lambda one: one.queue, clock.needed)
        for waiting in order:
            backlog = backlogs[waiting.queue]
            needed, verdict = clock.count(waiting)
            if verdict is not None and isinstance(verdict.outcome, Hold):
                backlog.head_verdict = verdict
                continue
            backlog.pop()
            if verdict is not None:
                self.refused.append((waiting, verdict.outcome))
            else:
                clock.charge(waiting, needed)
                order.charge(waiting.queue, needed)
                self._admitted.append(_AdmittedJob(waiting, needed))
            if backlog.jobs:
                order.enter(backlog.head)

    def _placed(self) -> Iterator[Running]:
        """Start the admitted jobs for which there is a place."""
        unplaced: list[_AdmittedJob] = []
        for one in self._admitted:
            if one.verdict is None:
                one.verdict = self._clock.decide(one.waiting, self._unlimited)
                if isinstance(one.verdict.outcome, Grant):
                    yield self._clock.start(one.waiting, one.verdict.outcome.plan, one.charge)
                    continue
            unplaced.append(one)
        self._admitted = unplaced


@dataclass(slots=True, eq=False)
class _AdmittedJob:
    """A job that uses its quota and waits for a place."""

    waiting: Waiting
    charge: Charge
    verdict: Verdict | None = None


class _Unlimited(QueueUsage):
    """Quotas without limits."""

    def fits(self, queue: QueueName, charge: Charge) -> bool:  # noqa: ARG002 - of the base class
        return True

    def charge_fits(self, queue: QueueName, charge: Charge) -> Shortage | None:  # noqa: ARG002 - of the base class
        return None


class UnchangedReasons:
    """Checks whether the reasons of verdicts still hold, each reason once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._proofs: dict[InfeasibilityProof, bool] = {}
        self._shortages: dict[Hashable, bool] = {}
        self._conflicts: dict[Hashable, bool] = {}

    def all_hold(self, backlog: ReplayQueue) -> bool:
        """Return whether all verdicts on a backlog would be the same again."""
        return all(self.holds(backlog.head.queue, found) for found in backlog.found)

    def holds(self, queue: QueueName, verdict: Verdict) -> bool:
        """Return whether a verdict on a job of a queue would be the same again."""
        if verdict.proof is not None and verdict.by == PROOF:
            if verdict.proof not in self._proofs:
                self._proofs[verdict.proof] = self._is_proved(verdict)
            return self._proofs[verdict.proof]
        key: Hashable = queue, tuple(sorted(verdict.needed.items()))
        if verdict.by == QUOTA:
            if key not in self._shortages:
                self._shortages[key] = not self._clock.queue_usage.fits(queue, verdict.needed)
            return self._shortages[key]
        if verdict.by == RESERVED:
            key = key if verdict.proof is None else verdict.proof, verdict.bound
            if key not in self._conflicts:
                self._conflicts[key] = self._clock.conflicts(verdict)
            return self._conflicts[key]
        return verdict.by in STEADY

    def _is_proved(self, verdict: Verdict) -> bool:
        if verdict.equivalent is None:
            return False
        plans, cluster_state = self._clock.rules.workspace.plans, self._clock.virtual_cluster.cluster
        return plans.proof(verdict.equivalent.key, cluster_state, self._clock.rules.selectors) is verdict.proof
