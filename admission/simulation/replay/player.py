"""Replay of a trace on a cluster in virtual time: jobs arrive, start as Muster decides, run and end.

Called by `muster simulate --arrivals`. Nothing sleeps: time advances to the next arrival or the next end. Decisions are
made by the controller's own code: the checks of `checks.chain`, its planner, its quotas and its queue order. Only the
code around it differs, since every change is known here: `queue` chooses which jobs to decide about, and no pod, claim
or entry is written. The same trace on the same cluster always has the same result.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from admission.api.muster.gangs import Charge
from admission.api.traces import Arrival
from admission.api.values import reasons
from admission.api.values.names import MeterName, QueueName
from admission.api.values.reasons import Denial, Hold
from admission.api.values.references import EVERYWHERE
from admission.lifecycle import transitions
from admission.simulation.replay import arrivals as replay_arrivals, preempt
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.autoscaler import Autoscaler, Delays, NodeLife
from admission.simulation.replay.cluster import Clock, ReplayCluster, Running
from admission.simulation.replay.preempt import Preempting
from admission.simulation.replay.queue import Counting, Decider, Muster


class Policy(StrEnum):
    """The scheduler that is simulated."""

    MUSTER = "muster"
    FIFO_COUNT = "fifo-count"
    """A queue that only counts quota: `queue.Counting`."""


def decider(policy: Policy, clock: Clock) -> Decider:
    """Return the decider of a policy."""
    if policy is Policy.FIFO_COUNT:
        return Counting(clock)
    return Preempting(clock) if preempt.is_possible(clock.replay_cluster) else Muster(clock)


Progress = Callable[[int, int], None]
"""Called with the number of finished jobs and the number of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job. start: None if it did not start. devices: those it had, or else requests.

    nominated: its first reserved start. why: the hold at the end, or the denial. charge: what its queue was charged.
    """

    arrival: Arrival
    devices: int
    start: timedelta | None = None
    nominated: timedelta | None = None
    why: Hold | Denial | None = None
    charge: Charge = field(default_factory=dict)

    @property
    def wait(self) -> timedelta | None:
        return None if self.start is None else self.start - self.arrival.at

    @property
    def end(self) -> timedelta | None:
        return None if self.start is None else self.start + self.arrival.runtime


@dataclass(frozen=True, slots=True)
class Sample:
    """The state from a time on: devices in use by driver, and the number of waiting jobs."""

    at: timedelta
    used: Counter[str]
    waiting: int
    added: int = 0
    """The devices of the nodes that have come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """A replayed trace: its jobs, by arrival. devices: those that are there all the time, by driver.

    quotas: by queue, the nominal quota of each meter that counts what pods request of nodes. nodes: those that came.
    """

    policy: Policy
    jobs: tuple[JobResult, ...]
    samples: tuple[Sample, ...]
    devices: Counter[str]
    quotas: Mapping[QueueName, Mapping[MeterName, int]] = field(default_factory=dict)
    nodes: tuple[NodeLife, ...] = ()


def replay(
    replay_cluster: ReplayCluster,
    arrivals: Sequence[Arrival],
    policy: Policy,
    on_progress: Progress | None = None,
    delays: Delays | None = None,
) -> ReplayResult:
    """Replay a trace until all jobs have ended or the remaining ones cannot start.

    delays: with which nodes of the shapes come and go; if None, none does.
    """
    return _Run(replay_cluster, arrivals, policy, on_progress, delays).run()


class _Run:
    """One replay."""

    def __init__(
        self,
        replay_cluster: ReplayCluster,
        arrivals: Sequence[Arrival],
        policy: Policy,
        on_progress: Progress | None,
        delays: Delays | None,
    ) -> None:
        self._replay_cluster = replay_cluster
        self._arrivals = sorted(arrivals, key=lambda one: (one.at, one.name))
        self._policy = policy
        self._on_progress = on_progress
        self._clock = Clock(replay_cluster)
        self._decider = decider(policy, self._clock)
        self._autoscaler = Autoscaler(self._clock, delays) if delays is not None else None
        self._use_counts = Counter((*replay_cluster.cluster.taken, *replay_cluster.cluster.shares))
        self._used = Counter(device.driver for device in self._use_counts)
        self._arrived = self._finished = 0
        self._waiting = 0
        self._results: dict[str, JobResult] = {}
        self._nominated: dict[str, timedelta] = {}
        # If all jobs end at the expected time, reservations need to be checked only when a job ends.
        queues = replay_cluster.snapshot.queues
        self._runtimes_deviate = any(
            replay_arrivals.expected(one, queues[one.queue]) != one.runtime for one in arrivals
        )
        self._samples: list[Sample] = []

    def run(self) -> ReplayResult:
        while (now := self._next()) is not None:
            self._clock.now = now
            ended = self._clock.end_due()
            for running in ended:
                self._count_devices(running, -1)
            came = self._autoscaler.come_due() if self._autoscaler is not None else None
            for running in came or ():
                self._record_start(running)
            self._arrive()
            self._clock.order_nodes()
            is_freed = bool(ended) or came is not None
            self._settle(freed=is_freed)
            if self._autoscaler is not None:
                self._scale(self._autoscaler, freed=is_freed)
            self._add_sample(len(ended))
            for key, nominated in self._clock.nominated():
                self._nominated.setdefault(key, nominated)
        for waiting, hold in self._decider.waiting():
            self._record_unstarted(waiting, hold)
        return ReplayResult(
            policy=self._policy,
            jobs=tuple(self._results[arrival.name] for arrival in self._arrivals),
            samples=tuple(self._samples),
            devices=Counter(device.driver for device in transitions.index_devices(self._replay_cluster.snapshot)),
            quotas=_quotas(self._replay_cluster),
            nodes=tuple(self._autoscaler.lives) if self._autoscaler is not None else (),
        )

    def _settle(self, *, freed: bool) -> None:
        """Start the jobs that can start now. freed: whether jobs have ended, or nodes have come or gone."""
        started = self._decider.settle(freed=freed)
        for running in self._decider.evicted:
            self._count_devices(running, -1)
            self._waiting += 1
        self._decider.evicted.clear()
        for running in started:
            self._record_start(running)
        for waiting, denial in self._decider.refused:
            self._record_unstarted(waiting, denial)
        self._decider.refused.clear()

    def _scale(self, autoscaler: Autoscaler, *, freed: bool) -> None:
        """Ask for the nodes that held jobs need, and have idle ones go, in whose place others may come."""
        self._ask(autoscaler, again=freed)
        if autoscaler.go_due():
            self._settle(freed=True)
            self._ask(autoscaler, again=True)

    def _ask(self, autoscaler: Autoscaler, *, again: bool) -> None:
        short, queue_usage = self._decider.short_of_nodes(again=again)
        while short and (found := autoscaler.needs(short, queue_usage)):
            for waiting, needed, grant in found:
                charge = self._decider.provide(waiting, grant.plan.charge)
                autoscaler.expect(waiting, needed.nodes, grant.plan, charge)
            self._settle(freed=False)
            short, queue_usage = self._decider.short_of_nodes(again=False)

    def _next(self) -> timedelta | None:
        """Return the time of the next event; None at the end."""
        arrival = self._arrivals[self._arrived].at if self._arrived < len(self._arrivals) else None
        scaling = self._autoscaler.next if self._autoscaler is not None else None
        times = [time for time in (arrival, self._clock.next_end, scaling) if time is not None]
        if self._runtimes_deviate and self._clock.next_end is not None and (due := self._clock.next_start) is not None:
            times.append(due)
        return min(times, default=None)

    def _arrive(self) -> None:
        """Let the jobs arrive that are due."""
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived].at <= self._clock.now:
            arrival = self._arrivals[self._arrived]
            self._clock.arrive(arrival)
            self._decider.arrive(Waiting(arrival, self._replay_cluster.rules.now + arrival.at))
            self._arrived += 1
            self._waiting += 1

    def _record_start(self, running: Running) -> None:
        arrival = running.waiting.arrival
        self._count_devices(running, 1)
        self._waiting -= 1
        self._results[arrival.name] = JobResult(
            arrival=arrival,
            devices=running.running_gang.devices,
            start=running.start,
            nominated=self._nominated.get(running.waiting.key),
            charge=running.charge,
        )

    def _record_unstarted(self, waiting: Waiting, why: Hold | Denial) -> None:
        """Record a job that does not start."""
        arrival = waiting.arrival
        self._waiting -= 1
        self._results[arrival.name] = JobResult(
            arrival=arrival, devices=replay_arrivals.requested_devices(arrival), why=reasons.for_reader(why, EVERYWHERE)
        )

    def _count_devices(self, running: Running, times: int) -> None:
        """Count the devices of a job that starts (1) or ends (-1). A shared device counts once."""
        if self._autoscaler is not None:
            self._autoscaler.note(running, times)
        for _, uses in running.running_gang.uses:
            for use in uses:
                before, after = self._use_counts[use.device], self._use_counts[use.device] + times
                self._use_counts[use.device] = after
                self._used[use.device.driver] += bool(after) - bool(before)

    def _add_sample(self, ended: int) -> None:
        added = self._autoscaler.devices.total() if self._autoscaler is not None else 0
        self._samples.append(Sample(self._clock.now, self._used.copy(), self._waiting, added))
        if self._on_progress is not None:
            self._finished += ended
            self._on_progress(self._finished, len(self._arrivals))


def _quotas(replay_cluster: ReplayCluster) -> dict[QueueName, dict[MeterName, int]]:
    """Return the nominal quota of each queue, of the meters that count what pods request of nodes."""
    counted = {meter.name for meter in replay_cluster.snapshot.meters.values() if meter.resources}
    return {
        queue: {meter: quota.nominal for meter, quota in quotas.items() if meter in counted}
        for queue, quotas in replay_cluster.tree.quotas.items()
    }
