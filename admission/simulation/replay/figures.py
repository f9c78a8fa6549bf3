"""Figures of a replayed trace: waiting times, slowdown, utilisation, fairness and makespan.

Terms are those of the literature on parallel job scheduling: the *wait* of a job is from its arrival to its start; its
*bounded slowdown* (Feitelson, Rudolph et al., JSSPP 1997) is max(1, (wait + runtime) / max(runtime, 10 s)), so that
very short jobs do not dominate the mean; fairness is Jain's index (Jain, Chiu, Hawe, 1984), (sum of x)² / (n · sum of
x²), which is 1 if all x are equal and 1/n if one queue has everything.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import NamedTuple

from admission.api.values.names import MeterName, QueueName
from admission.simulation.replay.autoscaler import NodeLife
from admission.simulation.replay.player import JobResult, ReplayResult, Sample

MIN_RUNTIME = 10.0
"""The least runtime, in seconds, in the slowdown of a job."""

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """Waiting times of started jobs, in seconds. A percentile is the value at the nearest rank."""

    mean: float = 0.0
    p50: float = 0.0
    p95: float = 0.0
    p99: float = 0.0
    longest: float = 0.0


class MeterUse(NamedTuple):
    """What jobs were charged of a meter that counts what pods request of nodes.

    hours: base units times hours. of_quota: from the first arrival to the last, as a part of the nominal quota; more
    than 1 where they borrowed, None without quota or where no time passes.
    """

    hours: float
    of_quota: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The figures of a queue's jobs, or of all jobs. slowdown: the mean of the bounded ones; hours: of devices.

    served: the device time that the jobs had until the last arrival, as a part of what they would have had without any
    wait; None if that is zero. In a trace of which no job takes a device it is the time of pods.
    """

    jobs: int
    started: int
    wait: Waits
    slowdown: float
    hours: float
    served: float | None
    meters: Mapping[MeterName, MeterUse]


@dataclass(frozen=True, slots=True, kw_only=True)
class NominationCounts:
    """How reliable the declared runtimes were, and the reservations derived from them.

    overran: jobs that ran longer than declared; silent: jobs without a declared runtime. nominated: jobs with a
    reservation; late: those of them that started later than first reserved; delay and longest: their delay in seconds,
    in the mean and at most.
    """

    overran: int
    silent: int
    nominated: int
    late: int
    delay: float
    longest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """The nodes of one shape that came. most: at a time, those that are starting included.

    time: the sum of their lives, from when they were asked for. busy: of that the time in which jobs had a place on
    them. cost: exact; None if the shape has no price.
    """

    shape: str
    count: int
    most: int
    time: timedelta
    busy: timedelta
    cost: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a replay. utilisation: by driver, from the first arrival to the last.

    overall: the same, until the end of the last job. makespan: from the first arrival to the end of the last job.
    fairness: Jain's index of the queues' `served`. nodes: those that came, by shape.
    """

    total: Tally
    queues: Mapping[QueueName, Tally]
    utilisation: Mapping[str, float]
    overall: Mapping[str, float]
    makespan: timedelta
    fairness: float
    nominations: NominationCounts
    nodes: tuple[NodeUse, ...] = ()


def figures(result: ReplayResult) -> Figures:
    """Return the figures of a replay."""
    first, last, end = _span(result)
    by_queue: dict[QueueName, list[JobResult]] = {}
    for job in result.jobs:
        by_queue.setdefault(job.arrival.queue, []).append(job)
    span = _Span(first, last, has_devices=any(job.devices for job in result.jobs))
    queues = {
        name: _tally(jobs, span, [result.quotas[name]] if name in result.quotas else ())
        for name, jobs in sorted(by_queue.items())
    }
    return Figures(
        total=_tally(result.jobs, span, result.quotas.values()),
        queues=queues,
        utilisation=_utilisation(result, first, last),
        overall=_utilisation(result, first, end),
        makespan=end - first,
        fairness=jain([tally.served for tally in queues.values() if tally.served is not None]),
        nominations=_nominations(result.jobs),
        nodes=tuple(_node_uses(result.nodes)),
    )


def jain(shares: Sequence[float]) -> float:
    """Return Jain's index of fairness; 1 if there is nothing to share."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """Return a percentile of values in ascending order; 0 if there are none."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else 0.0


def used(samples: Iterable[Sample], driver: str, first: timedelta, last: timedelta) -> float:
    """Return the device-seconds that a driver's devices were in use between two times."""
    device_seconds = before = 0.0
    since = first
    for sample in samples:
        now = min(max(sample.at, first), last)
        device_seconds += before * (now - since).total_seconds()
        since, before = now, sample.used[driver]
    return device_seconds + before * (last - since).total_seconds()


class _Span(NamedTuple):
    """The time in which jobs arrive. has_devices: whether any of them takes a device."""

    first: timedelta
    last: timedelta
    has_devices: bool

    def held(self, job: JobResult, start: timedelta) -> float:
        """Return the device-seconds that a job which starts at `start` has until the last arrival, or pod-seconds."""
        return (job.devices if self.has_devices else job.arrival.pods) * self.seconds(job, start)

    def seconds(self, job: JobResult, start: timedelta) -> float:
        """Return for how long a job runs that starts at `start`, until the last arrival."""
        return max(0.0, min(job.arrival.runtime.total_seconds(), (self.last - start).total_seconds()))


def _span(result: ReplayResult) -> tuple[timedelta, timedelta, timedelta]:
    """Return the first arrival, the last arrival and the last end; for simultaneous arrivals, the end for both."""
    arrivals = [job.arrival.at for job in result.jobs] or [timedelta()]
    end = max([*(job.end for job in result.jobs if job.end is not None), max(arrivals)])
    first, last = min(arrivals), max(arrivals)
    return first, last if last > first else end, end


def _utilisation(result: ReplayResult, first: timedelta, last: timedelta) -> dict[str, float]:
    """Return the part of each driver's devices that was in use, while they were there; nothing if no time passes."""
    seconds = (last - first).total_seconds()
    if not seconds:
        return {}
    there = {driver: count * seconds for driver, count in result.devices.items()}
    for life in result.nodes:
        until = last if life.gone_at is None else min(life.gone_at, last)
        for driver, count in life.devices.items():
            own = max((until - max(life.up_at, first)).total_seconds(), 0.0)
            there[driver] = there.get(driver, 0.0) + count * own
    return {
        driver: used(result.samples, driver, first, last) / there[driver] for driver in sorted(there) if there[driver]
    }


def _node_uses(nodes: Sequence[NodeLife]) -> Iterator[NodeUse]:
    for shape in sorted({one.shape for one in nodes}):
        lives = [one for one in nodes if one.shape == shape]
        times = [one.gone_at - one.asked_at for one in lives if one.gone_at is not None]
        time = sum(times, timedelta())
        price = lives[0].price
        changes = sorted(
            [(one.asked_at, 1) for one in lives] + [(one.gone_at, -1) for one in lives if one.gone_at is not None]
        )
        yield NodeUse(
            shape=shape,
            count=len(lives),
            most=max(itertools.accumulate(change for _, change in changes)),
            time=time,
            busy=sum((one.busy for one in lives), timedelta()),
            cost=None if price is None else price * Fraction(time // MICROSECOND, 3600 * 10**6),
        )


def _tally(jobs: Sequence[JobResult], span: _Span, quotas: Iterable[Mapping[MeterName, int]]) -> Tally:
    ordered = sorted(job.wait.total_seconds() for job in jobs if job.wait is not None)
    slowdowns = [_slowdown(job) for job in jobs if job.wait is not None]
    requested = sum(span.held(job, job.arrival.at) for job in jobs)
    served = sum(span.held(job, job.start) for job in jobs if job.start is not None)
    return Tally(
        jobs=len(jobs),
        started=len(ordered),
        wait=Waits(
            mean=sum(ordered) / len(ordered) if ordered else 0.0,
            p50=nearest_rank(ordered, 50),
            p95=nearest_rank(ordered, 95),
            p99=nearest_rank(ordered, 99),
            longest=ordered[-1] if ordered else 0.0,
        ),
        slowdown=sum(slowdowns) / len(slowdowns) if slowdowns else 0.0,
        hours=sum(job.devices * job.arrival.runtime.total_seconds() for job in jobs if job.start is not None) / 3600,
        served=served / requested if requested else None,
        meters=_meters(jobs, span, quotas),
    )


def _meters(
    jobs: Sequence[JobResult], span: _Span, quotas: Iterable[Mapping[MeterName, int]]
) -> dict[MeterName, MeterUse]:
    nominal = Counter[MeterName]()
    for amounts in quotas:
        nominal.update(amounts)
    time = (span.last - span.first).total_seconds()
    found = dict[MeterName, MeterUse]()
    for meter in sorted(nominal):
        started = [(job, job.charge.get(meter, 0), job.start) for job in jobs if job.start is not None]
        hours = sum(amount * job.arrival.runtime.total_seconds() for job, amount, _ in started) / 3600
        had = sum(amount * span.seconds(job, start) for job, amount, start in started)
        found[meter] = MeterUse(hours, had / (nominal[meter] * time) if nominal[meter] and time else None)
    return found


def _nominations(jobs: Sequence[JobResult]) -> NominationCounts:
    started = [job for job in jobs if job.start is not None]
    declared = [(job.arrival.declared, job.arrival.runtime) for job in started]
    late = [delay for job in started if (delay := _delay(job)) > 0]
    return NominationCounts(
        overran=sum(expected is not None and expected < runtime for expected, runtime in declared),
        silent=sum(expected is None for expected, _ in declared),
        nominated=sum(job.nominated is not None for job in started),
        late=len(late),
        delay=sum(late) / len(late) if late else 0.0,
        longest=max(late, default=0.0),
    )


def _delay(job: JobResult) -> float:
    """Return by how many seconds a job started later than reserved; reservations are to the second."""
    if job.start is None or job.nominated is None:
        return 0.0
    late = (job.start - job.nominated).total_seconds()
    return late if late >= 1 else 0.0


def _slowdown(job: JobResult) -> float:
    runtime = job.arrival.runtime.total_seconds()
    wait = job.wait.total_seconds() if job.wait is not None else 0.0
    return max(1.0, (wait + runtime) / max(runtime, MIN_RUNTIME))
