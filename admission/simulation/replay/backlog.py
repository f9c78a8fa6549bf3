"""The waiting jobs of a replay that differ only in rank and runtime: a backlog, of which the first is decided about."""

import bisect
from dataclasses import dataclass, field
from datetime import timedelta
from operator import itemgetter

from admission.api.muster.queues import Queue
from admission.quota import queue_order
from admission.quota.queue_order import Rank
from admission.scheduling.cache.verdict_cache import Verdict
from admission.simulation.replay import arrivals
from admission.simulation.replay.arrivals import Waiting


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
