"""A trace played against a cluster in virtual time: jobs arrive, start as Muster decides, run and end.

Called by `muster simulate --arrivals`. Nothing sleeps: time goes on to the next arrival or the next end. What decides
about a job is what decides about a gang of the controller: the checks of `checks.chain`, its planner, the quotas and
the order of `quota`. Only what is around it is another one, since here every change is known: `queue` says whom to ask
about, and no pod, claim or entry is written anywhere. The same trace on the same cluster has the same outcome, always.
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
    """Who decides."""

    MUSTER = "muster"
    FIFO_COUNT = "fifo-count"
    """A queue that counts: `lining.Counting`."""


def decider(policy: Policy, stage: Clock) -> Decider:
    """Return who decides in a trace."""
    if policy is Policy.FIFO_COUNT:
        return Counting(stage)
    return Preempting(stage) if preempt.happens(stage.town) else Muster(stage)


Watch = Callable[[int, int], None]
"""Is told how many of how many jobs are done with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """What became of a job. start: None where it did not start. devices: that it had, or else asks for.

    promised: the first time that was reserved for it. why: what held it to the end, or refused it.
    """

    arrival: Arrival
    devices: int
    start: timedelta | None = None
    promised: timedelta | None = None
    why: Hold | Denial | None = None

    @property
    def wait(self) -> timedelta | None:
        return None if self.start is None else self.start - self.arrival.at

    @property
    def end(self) -> timedelta | None:
        return None if self.start is None else self.start + self.arrival.runtime


@dataclass(frozen=True, slots=True)
class Moment:
    """How things stand from a time on: devices in use by driver, and jobs that wait."""

    at: timedelta
    used: Counter[str]
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """A trace as it was played: its jobs in the order of the trace. devices: of the cluster, by driver."""

    policy: Policy
    jobs: tuple[Played, ...]
    moments: tuple[Moment, ...]
    devices: Counter[str]


def play(town: Cluster, arrivals: Sequence[Arrival], policy: Policy, watch: Watch | None = None) -> Play:
    """Play a trace to its end: until all jobs have ended, or those that are left cannot start any more."""
    return _Run(town, arrivals, policy, watch).played()


class _Run:
    """One play."""

    def __init__(self, town: Cluster, arrivals: Sequence[Arrival], policy: Policy, watch: Watch | None) -> None:
        self._town = town
        self._arrivals = sorted(arrivals, key=lambda one: (one.at, one.name))
        self._policy = policy
        self._watch = watch
        self._stage = Clock(town)
        self._decider = decider(policy, self._stage)
        self._users = Counter((*town.cluster.taken, *town.cluster.shares))
        self._used = Counter(device.driver for device in self._users)
        self._arrived = self._done = 0
        self._waiting = 0
        self._found: dict[str, Played] = {}
        self._promised: dict[str, timedelta] = {}
        # Where all end when they should, nothing that is reserved has to be looked at but when somebody ends.
        queues = town.snapshot.queues
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
            for key, promised in self._stage.promised():
                self._promised.setdefault(key, promised)
        for waiting, hold in self._decider.waiting():
            self._settled(waiting, hold)
        return Play(
            policy=self._policy,
            jobs=tuple(self._found[arrival.name] for arrival in self._arrivals),
            moments=tuple(self._moments),
            devices=Counter(device.driver for device in transitions.index_devices(self._town.snapshot)),
        )

    def _next(self) -> timedelta | None:
        """Return when something happens next; None at the end."""
        arrival = self._arrivals[self._arrived].at if self._arrived < len(self._arrivals) else None
        times = [time for time in (arrival, self._stage.next_end) if time is not None]
        if self._drifts and self._stage.next_end is not None and (due := self._stage.next_start) is not None:
            times.append(due)
        return min(times, default=None)

    def _arrive(self) -> None:
        """Let the jobs wait whose time has come."""
        while self._arrived < len(self._arrivals) and self._arrivals[self._arrived].at <= self._stage.now:
            arrival = self._arrivals[self._arrived]
            self._decider.arrive(Waiting(arrival, self._town.rules.now + arrival.at))
            self._arrived += 1
            self._waiting += 1

    def _started(self, running: Running) -> None:
        arrival = running.waiting.arrival
        self._use(running, 1)
        self._waiting -= 1
        self._found[arrival.name] = Played(
            arrival=arrival,
            devices=running.tenancy.devices,
            start=running.start,
            promised=self._promised.get(running.waiting.key),
        )

    def _settled(self, waiting: Waiting, why: Hold | Denial) -> None:
        """Note a job that does not start."""
        arrival = waiting.arrival
        self._waiting -= 1
        self._found[arrival.name] = Played(arrival=arrival, devices=replay_arrivals.asked_devices(arrival), why=why)

    def _use(self, running: Running, times: int) -> None:
        """Count the devices of a job that starts (1) or goes (-1). One that several share is in use once."""
        for _, uses in running.tenancy.uses:
            for use in uses:
                before, after = self._users[use.device], self._users[use.device] + times
                self._users[use.device] = after
                self._used[use.device.driver] += bool(after) - bool(before)

    def _note(self, ended: int) -> None:
        self._moments.append(Moment(self._stage.now, self._used.copy(), self._waiting))
        if self._watch is not None:
            self._done += ended
            self._watch(self._done, len(self._arrivals))
