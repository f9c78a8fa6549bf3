"""Collectors of series that are computed at a scrape, where the library's own metrics would be costly or wrong.

A gauge of the library keeps its last value, even after the process that set it no longer leads; and removing the labels
of one queue means a scan of all its series.
"""

import os
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

from prometheus_client import Metric as Family
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

import admission
from admission.api.muster.status_reports import BudgetUse, QueueReport
from admission.api.values.names import QueueName
from admission.api.values.reasons import HoldReason
from admission.telemetry import metric_catalog
from admission.telemetry.metric_catalog import Metric

Tally = tuple[str, str, str, list[int], float]
"""Endpoint, outcome and reason of reviews; their number in each bucket of `metric_catalog.FAST` and above; and the sum
of their seconds."""


class Reviews(Collector):
    """A histogram of reviews by worker, endpoint, outcome and reason. Other workers' values are their latest reports.

    The library's own histogram takes a lock for every bucket and for the sum, which slows a review noticeably. Here no
    lock is needed: one thread observes all reviews, and a scrape may miss the review in progress.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._counts: dict[tuple[str, str, str], list[int]] = {}
        self._sums: dict[tuple[str, str, str], float] = {}
        self._reported: dict[int, list[Tally]] = {}

    def observe(self, endpoint: str, outcome: str, seconds: float, reason: str) -> None:
        """Count one review."""
        labels = endpoint, outcome, reason
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(metric_catalog.FAST) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(metric_catalog.FAST, seconds)] += 1
        self._sums[labels] += seconds

    def tallies(self) -> list[Tally]:
        """Return the reviews observed by this process."""
        return [(*labels, counts, self._sums[labels]) for labels, counts in sorted(self._counts.items())]

    def add_report(self, worker: int, tallies: list[Tally]) -> None:
        """Set the reviews that another worker has observed since its start."""
        self._reported[worker] = tallies

    def collect(self) -> Iterator[Family]:
        """Yield the histogram, with cumulative buckets, as Prometheus requires."""
        bounds = [*map(floatToGoString, metric_catalog.FAST), "+Inf"]
        metric = metric_catalog.REVIEWS
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for worker, tallies in sorted({**self._reported, self._worker: self.tallies()}.items()):
            for endpoint, outcome, reason, counts, seconds in tallies:
                buckets = list(zip(bounds, accumulate(map(float, counts)), strict=True))
                family.add_metric((str(worker), endpoint, outcome, reason), buckets, seconds)
        yield family


class Refusals(Collector):
    """What was refused before it was judged, by worker and reason. Other workers' values are their latest reports."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._counts: dict[str, int] = {}
        self._reported: dict[int, Mapping[str, int]] = {}

    def observe(self, reason: str) -> None:
        """Count one refusal."""
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def tallies(self) -> dict[str, int]:
        """Return the refusals of this process."""
        return self._counts

    def add_report(self, worker: int, tallies: Mapping[str, int]) -> None:
        """Set the refusals of another worker since its start."""
        self._reported[worker] = tallies

    def collect(self) -> Iterator[Family]:
        """Yield the counter."""
        metric = metric_catalog.REFUSED
        family = CounterMetricFamily(metric.name, metric.help, labels=metric.label_names)
        for worker, counts in sorted({**self._reported, self._worker: self._counts}.items()):
            for reason, count in sorted(counts.items()):
                family.add_metric((str(worker), reason), count)
        yield family


@dataclass(slots=True)
class LastCycle:
    """The state after the leader's last cycle."""

    held: Mapping[str, int] = field(default_factory=dict)
    waiting_since: Mapping[QueueName, datetime] = field(default_factory=dict)
    """By queue with gangs that wait, since when the first of them does."""
    queues: Sequence[QueueReport] = ()
    behind: float = 0.0
    unposted: int = 0
    lag: float = 0.0
    protected: Mapping[str, bool] = field(default_factory=dict)
    known: Mapping[str, bool] = field(default_factory=dict)
    """By the release that plans follow, whether it is the cluster's own."""
    outside: Mapping[str, int] = field(default_factory=dict)
    """By class, the devices that pods outside queues hold."""
    policies: Mapping[str, bool] = field(default_factory=dict)
    """By ClaimPolicy, whether all of it is applied."""


class Leader(Collector):
    """The gauges of the leader. They have no values after its term, when another leader exports them."""

    def __init__(self) -> None:
        self.epoch = 0
        """0 while this process does not lead."""
        self.last_cycle: LastCycle | None = None
        """None before the first cycle of a term."""
        self.heads: dict[str, float] = {}
        """By place, when the latest head published there was signed."""
        self.usage_overdue: float | None = None
        """Seconds; None before the first look of a term."""
        self.is_chain_broken: bool | None = None
        """None before the first check of a term."""

    def collect(self) -> Iterator[Family]:
        """Yield the gauges; without values while this process does not lead."""
        yield _gauge(metric_catalog.EPOCH, [((), self.epoch)] if self.epoch else ())
        last = self.last_cycle
        yield _gauge(
            metric_catalog.HELD, [((reason,), last.held.get(reason, 0)) for reason in HoldReason] if last else ()
        )
        since = sorted(last.waiting_since.items()) if last else ()
        yield _gauge(metric_catalog.WAITING_SINCE, [((queue,), at.timestamp()) for queue, at in since])
        yield from _queue_metrics(sorted(last.queues, key=lambda report: report.name) if last else ())
        yield _gauge(metric_catalog.BEHIND, [((), last.behind)] if last else ())
        yield _gauge(metric_catalog.UNPOSTED, [((), last.unposted)] if last else ())
        yield _gauge(metric_catalog.LAG, [((), last.lag)] if last else ())
        overdue = self.usage_overdue
        yield _gauge(metric_catalog.USAGE_OVERDUE, [] if overdue is None else [((), overdue)])
        yield _gauge(metric_catalog.HEAD_TIME, [((place,), at) for place, at in sorted(self.heads.items())])
        broken = self.is_chain_broken
        yield _gauge(metric_catalog.HEAD_NOT_PASSED, [] if broken is None else [((), broken)])
        protected = sorted(last.protected.items()) if last else ()
        yield _gauge(metric_catalog.PROTECTED, [((driver or "*",), is_protected) for driver, is_protected in protected])
        known = last.known.items() if last else ()
        yield _gauge(metric_catalog.KUBERNETES_KNOWN, [((release,), is_known) for release, is_known in known])
        outside = sorted(last.outside.items()) if last else ()
        yield _gauge(metric_catalog.OUTSIDE, [((name,), devices) for name, devices in outside])
        policies = sorted(last.policies.items()) if last else ()
        yield _gauge(metric_catalog.POLICIES, [((name,), is_ready) for name, is_ready in policies])


class Watched(NamedTuple):
    """One watched kind: its number of objects, events and lists, and the seconds since the API server's last answer."""

    kind: str
    objects: int
    events: int
    lists: int
    silent: float


class Watches(Collector):
    """The state of the watches: their objects, and how stale they may be."""

    def __init__(self, sample: Callable[[], Iterable[Watched]]) -> None:
        self._sample = sample

    def collect(self) -> Iterator[Family]:
        """Yield a value for each kind."""
        watched = sorted(self._sample())
        yield _gauge(metric_catalog.STALENESS, [((kind.kind,), kind.silent) for kind in watched])
        yield _gauge(metric_catalog.OBJECTS, [((kind.kind,), kind.objects) for kind in watched])
        yield _counter(metric_catalog.EVENTS, [((kind.kind,), kind.events) for kind in watched])
        yield _counter(metric_catalog.LISTS, [((kind.kind,), kind.lists) for kind in watched])


class Process(Collector):
    """The metrics of this process."""

    def collect(self) -> Iterator[Family]:
        """Yield Muster's version, and the CPU time and memory of the process."""
        yield _gauge(metric_catalog.BUILD, [((admission.__version__,), 1)])
        yield _counter(metric_catalog.PROCESSOR, [((), time.process_time())])
        yield _gauge(metric_catalog.RESIDENT, [((), _resident())])


Labels = tuple[str, ...]
Values = Iterable[tuple[Labels, float]]


def _queue_metrics(reports: Sequence[QueueReport]) -> Iterator[Family]:
    yield _gauge(
        metric_catalog.GANGS, (((one.name, phase), count) for one in reports for phase, count in one.gangs.items())
    )
    yield _gauge(metric_catalog.MAX_WAIT, (((one.name,), one.max_wait.total_seconds()) for one in reports))
    yield _gauge(metric_catalog.OVER_MEMORY, (((one.name,), one.over_memory) for one in reports))
    yield _gauge(metric_catalog.IDLE, (((one.name,), one.idle) for one in reports))
    yield _gauge(metric_catalog.STARVED, (((one.name,), one.starved) for one in reports))
    yield _gauge(
        metric_catalog.AMOUNT,
        (
            ((one.name, meter, kind), getattr(use, kind))
            for one in reports
            for meter, use in one.meters.items()
            for kind in metric_catalog.AMOUNTS
        ),
    )
    yield _gauge(
        metric_catalog.BUDGET,
        (
            ((*_budget(one, use), kind), getattr(use, kind))
            for one in reports
            for use in one.budgets
            for kind in metric_catalog.SPENDING
        ),
    )
    yield _gauge(
        metric_catalog.BUDGET_END,
        ((_budget(one, use), use.end.timestamp()) for one in reports for use in one.budgets if use.end is not None),
    )


def _budget(report: QueueReport, use: BudgetUse) -> Labels:
    """Return the labels of a budget."""
    return report.name, use.meter, _period(use), use.scope, use.on_exhausted


def _period(use: BudgetUse) -> str:
    """Return the label that distinguishes a budget from others of its meter: its period, or the ends of its window."""
    return use.period or "/".join(end.isoformat() for end in (use.start, use.end) if end is not None)


def _gauge(metric: Metric, values: Values) -> Family:
    family = GaugeMetricFamily(metric.name, metric.help, labels=metric.label_names)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _counter(metric: Metric, values: Values) -> Family:
    family = CounterMetricFamily(metric.name, metric.help, labels=metric.label_names)
    for labels, value in values:
        family.add_metric(labels, value)
    return family


def _resident() -> float:
    """Return the resident bytes of this process, from Linux' /proc (proc_pid_statm(5)); elsewhere 0."""
    try:
        return float(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return 0.0
