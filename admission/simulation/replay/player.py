"""Replay of a trace on a cluster in virtual time: jobs arrive, start as Muster decides, run and end.

Called by `muster simulate --arrivals`. Nothing sleeps: time advances to the next arrival or the next end. Decisions are
made by the controller's own code: the checks of `checks.chain`, its planner, its quotas and its queue order. Only the
code around it differs, since every change is known here: `queue` chooses which jobs to decide about, and no pod, claim
or entry is written. The same trace on the same cluster always has the same result.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from admission.api.traces import Arrival
from admission.api.values.reasons import Denial, Hold
from admission.lifecycle import transitions
from admission.simulation.replay import arrivals as replay_arrivals, preempt
from admission.simulation.replay.arrivals import Waiting
from admission.simulation.replay.cluster import Clock, Cluster, Running
from admission.simulation.replay.preempt import Preempting
from admission.simulation.replay.queue import Counting, Decider, Muster


class Policy(StrEnum):
    """The scheduler that is simulated."""

    MUSTER = "muster"
    FIFO_COUNT = "fifo-count"
    """A queue that only counts quota: `queue.Counting`."""


def decider(policy: Policy, stage: Clock) -> Decider:
    """Return the decider of a policy."""
    if policy is Policy.FIFO_COUNT:
        return Counting(stage)
    return Preempting(stage) if preempt.happens(stage.replayed) else Muster(stage)


Watch = Callable[[int, int], None]
"""Called with the number of finished jobs and the number of all jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The result of a job. start: None if it did not start. devices: those it had, or else requests.

    nominated: its first reserved start. why: the hold at the end, or the denial.
    """

    arrival: Arrival
    devices: int
    start: timedelta | None = None
    nominated: timedelta | None = None
    why: Hold | Denial | None = None

    @property
    def wait(self) -> timedelta | None:
        return None if self.start is None else self.start - self.arrival.at

    @property
    def end(self) -> timedelta | None:
        return None if self.start is None else self.start + self.arrival.runtime


@dataclass(frozen=True, slots=True)
class Moment:
    """The state from a time on: devices in use by driver, and the number of waiting jobs."""

    at: timedelta
    used: Counter[str]
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A replayed trace: its jobs, by arrival. devices: the cluster's, by driver."""

    policy: Policy
    jobs: tuple[Played, ...]
    moments: tuple[Moment, ...]
    devices: Counter[str]


def play(replayed: Cluster, arrivals: Sequence[Arrival], policy: Policy, watch: Watch | None = None) -> Play:
    """Replay a trace until all jobs have ended or the remaining ones cannot start."""
    return _Run(replayed, arrivals, policy, watch).played()


class _Run:
    """One replay."""

    def __init__(self, replayed: Cluster, arrivals: Sequence[Arrival], policy: Policy, watch: Watch | None) -> None:
        self._replayed = replayed
        self._arrivals = sorted(arrivals, key=lambda one: (one.at, one.name))
        self._policy = policy
        self._watch = watch
        self._stage = Clock(replayed)
        self._decider = decider(policy, self._stage)
        self._users = Counter((*replayed.cluster.taken, *replayed.cluster.shares))
        self._used = Counter(device.driver for device in self._users)
        self._arrived = self._done = 0
        self._waiting = 0
        self._found: dict[str, Played] = {}
        self._nominated: dict[str, timedelta] = {}
        # If all jobs end at the expected time, reservations need to be checked only when a job ends.
        queues = replayed.snapshot.queues
        self._drifts = any(replay_arrivals.expected(one, queues[one.queue]) != one.runtime for one in arrivals)
        self._moments: list[Moment] = []

    def played(self) -> Play:
        while (now := self._next()) is not None:
            self._stage.now = now
            ended = self._stage.end_due()
            for running in ended:
                self._use(running, -1)
            self._arrive()
            started = self._decider.settle(freed=bool(ended))
            for running in self._decider.evicted:
                self._use(running, -1)
                self._waiting += 1
            self._decider.evicted.clear()
            for running in started:
                self._started(running)
            for waiting, denial in self._decider.refused:
                self._settled(waiting, denial)
            self._decider.refused.clear()
            self._note(len(ended))
            for key, nominated in self._stage.nominated():
                self._nominated.setdefault(key, nominated)
        for waiting, hold in self._decider.waiting():
            self._settled(waiting, hold)
        return Play(
            policy=self._policy,
            jobs=tuple(self._found[arrival.name] for arrival in self._arrivals),
            moments=tuple(self._moments),
            devices=Counter(device.driver for device in transitions.index_devices(self._replayed.snapshot)),
        )

    def _next(self) -> timedelta | None:
        """Return the time of the next event; None at the end."""
        arrival = self._arrivals[self._arrived].at if self._arrived < len(self._arrivals) else None
        times = [time for time in (arrival, self._stage.next_end) if time is not None]
        if self._drifts and self._stage.next_end is not None and (due := self._stage.next_start) is not None:
            times.append(due)
        return min(times, default=None)

    def _arrive(self) -> None:
        """Let the jobs arrive that are due."""
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived].at <= self._stage.now:
            arrival = self._arrivals[self._arrived]
            self._decider.arrive(Waiting(arrival, self._replayed.rules.now + arrival.at))
            self._arrived += 1
            self._waiting += 1

    def _started(self, running: Running) -> None:
        arrival = running.waiting.arrival
        self._use(running, 1)
        self._waiting -= 1
        self._found[arrival.name] = Played(
            arrival=arrival,
            devices=running.running_gang.devices,
            start=running.start,
            nominated=self._nominated.get(running.waiting.key),
        )

    def _settled(self, waiting: Waiting, why: Hold | Denial) -> None:
        """Record a job that does not start."""
        arrival = waiting.arrival
        self._waiting -= 1
        self._found[arrival.name] = Played(arrival=arrival, devices=replay_arrivals.asked_devices(arrival), why=why)

    def _use(self, running: Running, times: int) -> None:
        """Count the devices of a job that starts (1) or ends (-1). A shared device counts once."""
        for _, uses in running.running_gang.uses:
            for use in uses:
                before, after = self._users[use.device], self._users[use.device] + times
                self._users[use.device] = after
                self._used[use.device.driver] += bool(after) - bool(before)

    def _note(self, ended: int) -> None:
        self._moments.append(Moment(self._stage.now, self._used.copy(), self._waiting))
        if self._watch is not None:
            self._done += ended
            self._watch(self._done, len(self._arrivals))
