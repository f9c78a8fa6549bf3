"""Which waiting job starts next in a replay: by Muster's decisions, or by those of a queue that only counts quota.

Jobs with the same requests in one queue differ only in rank, so if the first of them cannot start, none can. They form
one backlog, and only heads of backlogs are decided about; in a strict queue all jobs are one backlog. A held head is
decided about again only when the reason of its hold may have changed: while jobs only start, resources only shrink, so
a hold remains valid. Jobs held by a reservation also differ in runtime: then other jobs of the backlog are tried which
would conflict with fewer reservations.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from admission.api.muster.gangs import Charge
from admission.api.muster.queues import QueueingStrategy
from admission.api.values.names import QueueName
from admission.api.values.reasons import Denial, Hold
from admission.quota import queue_order
from admission.quota.headroom import QueueUsage
from admission.quota.queue_order import Tournament
from admission.quota.shortage import Shortage
from admission.scheduling.backfill import queue_head
from admission.scheduling.cache.plan_cache import InfeasibilityProof
from admission.scheduling.cache.verdict_cache import PROOF, QUOTA, RESERVED, STEADY, Verdict
from admission.scheduling.capacity import node_needs
from admission.scheduling.checks.chain import Grant
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.backlog import ReplayQueue
from admission.simulation.replay.cluster import Clock, Running
from admission.simulation.replay.decision_order import DecisionOrder
from admission.simulation.replay.kept_quota import Held, KeptChange, KeptQuota

Refused = tuple[Waiting, Denial]

MOST_ASKED = 64
"""The most jobs with the same requests for which nodes are asked at a time; those behind follow these."""


def is_short_of_nodes(verdict: Verdict) -> bool:
    """Return whether a verdict is a hold that more nodes may end."""
    return isinstance(verdict.outcome, Hold) and verdict.outcome.reason in node_needs.HELPED


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

    def short_of_nodes(self, *, again: bool) -> tuple[Sequence[Waiting], QueueUsage]:
        """Return the jobs that are held for want of devices, in order, and the quotas in use that bind these.

        again: also those that were returned before, and are held for the same reason since then.
        """

    def provide(self, waiting: Waiting, charge: Charge) -> Charge:
        """Remove a job for which nodes were asked; return what its queue is charged from now on, at most `charge`."""


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
        self._short: dict[Hashable, Verdict] = {}
        """By backlog, the verdict for which it was returned by `short_of_nodes`."""

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
        # A round in which nothing starts is followed by another one for what a queue keeps no longer, or a job that was
        # held by a reservation which fell after its turn; at most once for each queue.
        idle, has_more = 0, True
        while has_more and idle <= len(self._clock.replay_cluster.tree.order):
            if kept.lenders:
                kept.begin(self._waits)
            if may_be_stale:
                self._forget_stale_verdicts()
            found = self._round()
            started += found
            idle = 0 if found else idle + 1
            may_be_stale = bool(kept.lenders) and kept.end(self._held(), self._waits, has_started=bool(found))
            has_more = may_be_stale or any(backlog.head_verdict is None for backlog in self._backlogs.values())
        if not kept.lenders:
            clock.backfill.refresh(clock.rules, clock.virtual_cluster.cluster, clock.queue_usage)
        return started

    def _round(self) -> list[Running]:
        """Let each job that may start have its turn once."""
        clock, order = self._clock, DecisionOrder(self._clock, self._backlogs_of)
        for backlog in self._backlogs.values():
            if backlog.head_verdict is None:
                order.enter(backlog.head, backlog)
        self._enter_lenders(order)
        started: list[Running] = []
        for waiting, undecided in order:
            if undecided is None:
                self._pass(waiting, order)
                continue
            before = clock.backfill.revision
            started += self._decide(waiting, undecided, order)
            self._continue(undecided, waiting, order)
            if clock.backfill.revision != before:
                self._reexamine(order, [backlog for backlog in self._backlogs.values() if backlog.is_reserved])
            self._promote(waiting.queue, order)
        return started

    def _decide(self, waiting: Waiting, backlog: ReplayQueue, order: DecisionOrder) -> list[Running]:
        """Decide about a job; return what starts."""
        clock = self._clock
        verdict = clock.decide_backfill(waiting, order.postponed.decide, partial(order.settled, waiting, backlog))
        if verdict is None:
            return []
        if isinstance(verdict.outcome, Hold):
            backlog.hold(waiting, verdict)
            self._keep(waiting, verdict, order)
            return []
        self._remove(backlog, waiting)
        if not isinstance(verdict.outcome, Grant):
            self.refused.append((waiting, verdict.outcome))
            return []
        plan = verdict.outcome.plan
        clock.charge(waiting, plan.charge)
        order.charge(waiting.queue, plan.charge)
        return [clock.start(waiting, plan, plan.charge)]

    def _pass(self, waiting: Waiting, order: DecisionOrder) -> None:
        """Let a job that is known to be held have its turn."""
        backlog = self._backlogs.get(self._backlog_key(waiting))
        if backlog is not None and backlog.head is waiting and backlog.head_verdict is not None:
            self._keep(waiting, backlog.head_verdict, order)

    def _keep(self, waiting: Waiting, verdict: Verdict, order: DecisionOrder) -> None:
        """Let the queue of a held job that has its turn keep quota for it, or no longer; others may take that now."""
        change = self._kept.turn(waiting, verdict)
        if change is not KeptChange.NONE:
            order.postponed.note_change()
        if change is KeptChange.LESS:
            self._reexamine(order, self._backlogs.values())

    def _enter_lenders(self, order: DecisionOrder) -> None:
        """Enter the held jobs for which queues keep quota if they are short of it when they have their turn.

        For one that is short only later, since others have started, they keep in the next round, as in the next cycle.
        """
        for waiting in self._kept.candidates(self._held()) if self._kept.lenders and order.has_more else ():
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

    def short_of_nodes(self, *, again: bool) -> tuple[Sequence[Waiting], QueueUsage]:
        if again:
            self._short.clear()
        found: list[Waiting] = []
        for key, backlog in self._backlogs.items():
            verdict = backlog.head_verdict
            if verdict is not None and is_short_of_nodes(verdict) and self._short.get(key) is not verdict:
                self._short[key] = verdict
                found += backlog.jobs[: 1 if self._is_strict(backlog.head) else MOST_ASKED]
        clock = self._clock
        return [*Tournament(clock.shares, found, lambda one: one.queue, clock.needed)], clock.queue_usage

    def provide(self, waiting: Waiting, charge: Charge) -> Charge:
        clock, backlog = self._clock, self._backlogs[self._backlog_key(waiting)]
        verdict = backlog.head_verdict
        if verdict is not None and backlog.head is waiting:
            # No start is reserved for it any more.
            clock.backfill.note(verdict, None)
        self._remove(backlog, waiting)
        clock.charge(waiting, charge)
        clock.shares.charge(waiting.queue, charge)
        return charge

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

    def _continue(self, backlog: ReplayQueue, waiting: Waiting, order: DecisionOrder) -> None:
        """Enter the next job of a backlog that may start."""
        if backlog.jobs and backlog.head_verdict is None:
            order.enter(backlog.head, backlog)
        elif backlog.is_reserved and not self._is_strict(waiting):
            bounds = [found.bound for found in backlog.found]
            job = backlog.next_behind(waiting, self._clock.runtime_bound(bounds)) if all(bounds) else None
            if job is not None:
                order.enter(job, backlog)

    def _reexamine(self, order: DecisionOrder, backlogs: Iterable[ReplayQueue]) -> None:
        """Enter the heads of those of the backlogs that are held for what no longer holds."""
        inputs = UnchangedReasons(self._clock)
        for backlog in backlogs:
            if not inputs.all_hold(backlog):
                backlog.reexamine()
                order.enter(backlog.head, backlog)

    def _promote(self, queue: QueueName, order: DecisionOrder) -> None:
        """If a queue has no head for backfill, enter its next gang, which may become the head."""
        if self._clock.backfill.head(queue) is not None:
            return
        waiting_backlogs = [
            backlog
            for backlog in self._backlogs_of(queue)
            if backlog.head_verdict is not None and queue_head.waits(backlog.head_verdict)
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
            if backlog.head_verdict is None:
                continue
            if not inputs.all_hold(backlog) or self._becomes_head(backlog, backlog.head_verdict):
                backlog.reexamine()

    def _becomes_head(self, backlog: ReplayQueue, verdict: Verdict) -> bool:
        """Return whether a held job is to become the head of its queue: it is not known any more to never fit."""
        head = self._clock.backfill.head(backlog.queue.name)
        is_first = head is None or queue_order.rank(backlog.head) < queue_order.rank(head)
        return is_first and queue_head.waits(verdict) and not self._clock.backfill.never_fits(verdict.group)


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

    def short_of_nodes(self, *, again: bool) -> tuple[Sequence[Waiting], QueueUsage]:
        found = [
            one
            for one in self._admitted
            if one.verdict is not None and is_short_of_nodes(one.verdict) and (again or not one.was_short)
        ]
        for one in found:
            one.was_short = True
        return [one.waiting for one in found], self._unlimited

    def provide(self, waiting: Waiting, charge: Charge) -> Charge:  # noqa: ARG002 - it is charged since it was admitted
        one = next(one for one in self._admitted if one.waiting is waiting)
        self._admitted.remove(one)
        return one.charge

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
    was_short: bool = False
    """Whether it was returned by `short_of_nodes`."""


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
            key = key if verdict.proof is None else verdict.proof, verdict.bound, verdict.bound_by_loan
            if key not in self._conflicts:
                self._conflicts[key] = self._clock.conflicts(verdict)
            return self._conflicts[key]
        return verdict.by in STEADY

    def _is_proved(self, verdict: Verdict) -> bool:
        if verdict.equivalent is None:
            return False
        plans, cluster_state = self._clock.rules.workspace.plans, self._clock.virtual_cluster.cluster
        return plans.proof(verdict.equivalent.key, cluster_state, self._clock.rules.selectors) is verdict.proof
