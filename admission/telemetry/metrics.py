"""Metrics for Prometheus, in a registry of their own, so that one process may have two instances.

`metric_catalog` has their meanings. Amounts of meters become floats here, exact up to 2^53; the ledger has exact ones.
"""

from collections import Counter as Count
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster.gangs import GangReport
from admission.api.muster.status_reports import ConditionReport
from admission.api.values.names import QueueName
from admission.cycle.state.result import CycleResult
from admission.dra.compatibility import SchedulerProfile
from admission.scheduling.checks.faults import During
from admission.telemetry import metric_catalog
from admission.telemetry.allocation_page import AllocationPage
from admission.telemetry.collectors import LastCycle, Leader, Process, Refusals, Reviews, Tally, Watched, Watches


class Metrics:
    """All of Muster's metrics. watched: returns the state of the watches; called at each scrape.

    allocations: the most allocated devices with a series of their own.
    """

    def __init__(
        self, *, worker: int = 1, watched: Callable[[], Iterable[Watched]] = tuple, allocations: int = 0
    ) -> None:
        self.registry = CollectorRegistry()
        self._reviews = Reviews(worker)
        self._refusals = Refusals(worker)
        self._leader = Leader()
        self._allocations = AllocationPage(allocations)
        for collector in (self._reviews, self._refusals, self._leader, Watches(watched), Process()):
            self.registry.register(collector)
        self._workers = self._gauge(metric_catalog.WORKERS)
        self._lost = self._counter(metric_catalog.WORKERS_LOST)
        self._expiry = self._gauge(metric_catalog.EXPIRY)
        self._ready = self._gauge(metric_catalog.READY)
        self._leading = self._gauge(metric_catalog.LEADING)
        self._cycles = self._histogram(metric_catalog.CYCLES)
        self._admitted = self._counter(metric_catalog.ADMITTED)
        self._waits = self._histogram(metric_catalog.WAITS)
        self._decisions = self._counter(metric_catalog.DECISIONS)
        self._defects = self._counter(metric_catalog.DEFECTS)
        self._head_failures = self._counter(metric_catalog.HEAD_FAILURES)
        self._foreign = self._counter(metric_catalog.FOREIGN)
        for during in During:
            self._defects.labels(during)
        self._waiting: tuple[tuple[GangReport, ...], Count[str], dict[QueueName, datetime]] = ((), Count(), {})
        """The statuses that were counted last; their held gangs by reason; and by queue, since when its first waits."""

    def record_review(self, endpoint: str, outcome: str, seconds: float, reason: str = "") -> None:
        """Count one review. All labels come from small fixed sets."""
        self._reviews.observe(endpoint, outcome, seconds, reason)

    def record_refusal(self, reason: str) -> None:
        """Count a connection or request that was refused before it was judged."""
        self._refusals.observe(reason)

    def tallies(self) -> tuple[list[Tally], dict[str, int]]:
        """Return the reviews and refusals of this process, for the process that exports those of all workers."""
        return self._reviews.tallies(), self._refusals.tallies()

    def add_report(self, worker: int, tallies: list[Tally], refusals: Mapping[str, int]) -> None:
        """Set the reviews and refusals of another worker."""
        self._reviews.add_report(worker, tallies)
        self._refusals.add_report(worker, refusals)

    def set_ready_workers(self, ready: int) -> None:
        """Set the number of ready workers."""
        self._workers.set(ready)

    def count_lost_worker(self) -> None:
        """Count a worker that ended unexpectedly."""
        self._lost.inc()

    def set_term(self, epoch: int | None) -> None:
        """Set the epoch of this process's term; None: it does not lead, and the leader's gauges have no values."""
        self._leading.set(0 if epoch is None else 1)
        self._leader.epoch = epoch or 0
        self._leader.last_cycle = None
        self._leader.heads.clear()
        self._leader.usage_overdue = None
        self._leader.is_chain_broken = None
        self._allocations.allocations = None

    def record_cycle(self, result: CycleResult, seconds: float) -> None:
        """Count one admission cycle, and export the state after it."""
        self._cycles.observe(seconds)
        self._admitted.inc(len(result.granted))
        for decision in result.decisions:
            self._decisions.labels(decision.kind, decision.reason).inc()
            if decision.waited is not None:
                self._waits.observe(decision.waited.total_seconds())
        for defect in result.defects:
            self._defects.labels(defect.during).inc()
        # Not for a cycle that ended after its term: its state is out of date.
        if self._leader.epoch:
            self._allocations.allocations = result.allocations
            held, since = self._held(result.gangs)
            self._leader.last_cycle = LastCycle(
                held=held,
                waiting_since=since,
                queues=result.queues,
                behind=result.behind.total_seconds(),
                unposted=result.unposted,
                lag=result.lag.total_seconds(),
                protected=result.protected,
                known=_known(result.scheduler),
                outside=result.outside,
                policies=_ready_policies(result.conditions),
            )

    def usage_overdue(self, seconds: float) -> None:
        """Set for how long it has been due to record what devices did."""
        if self._leader.epoch:
            self._leader.usage_overdue = seconds

    def head_published(self, place: str, at: datetime) -> None:
        """Set when the latest published head was signed."""
        if self._leader.epoch:
            self._leader.heads[place] = at.timestamp()

    def head_failed(self, place: str) -> None:
        """Count a head that could not be signed or published."""
        self._head_failures.labels(place).inc()

    def chain_checked(self, *, broken: bool, foreign: int = 0) -> None:
        """Set whether the books pass through the kept heads, and count entries of others."""
        if self._leader.epoch:
            self._leader.is_chain_broken = broken
        self._foreign.inc(foreign)

    def render(self, waiting: Sequence[str], expiries: Mapping[str, datetime]) -> tuple[bytes, str]:
        """Return the page for Prometheus, and its content type.

        waiting: the conditions that the process lacks to be ready. expiries: of the parts of its certificate, if any.
        """
        self._ready.set(not waiting)
        for part, expires in expiries.items():
            self._expiry.labels(part).set(expires.timestamp())
        return generate_latest(self.registry) + self._allocations.render(), CONTENT_TYPE_LATEST

    def _held(self, gangs: tuple[GangReport, ...]) -> tuple[Count[str], dict[QueueName, datetime]]:
        """Return the number of held gangs by reason, and by queue since when its first one waits.

        Cached as long as the statuses are the same object.
        """
        if self._waiting[0] is not gangs:
            held = [gang for gang in gangs if gang.hold is not None]
            since: dict[QueueName, datetime] = {}
            for gang in held:
                if gang.queued_since is not None:
                    since[gang.queue] = min(gang.queued_since, since.get(gang.queue, gang.queued_since))
            self._waiting = gangs, Count(gang.hold.reason for gang in held if gang.hold is not None), since
        return self._waiting[1:]

    def _gauge(self, metric: metric_catalog.Metric) -> Gauge:
        return Gauge(metric.name, metric.help, metric.label_names, registry=self.registry)

    def _counter(self, metric: metric_catalog.Metric) -> Counter:
        return Counter(metric.name, metric.help, metric.label_names, registry=self.registry)

    def _histogram(self, metric: metric_catalog.Metric) -> Histogram:
        return Histogram(metric.name, metric.help, metric.label_names, registry=self.registry, buckets=metric.buckets)


def _known(scheduler: SchedulerProfile | None) -> dict[str, bool]:
    """Return by the release that plans follow whether it is that of the cluster."""
    return {"": False} if scheduler is None else {scheduler.release: not scheduler.mismatch}


def _ready_policies(reports: Iterable[ConditionReport]) -> dict[str, bool]:
    """Return by ClaimPolicy whether all of it is applied."""
    return {
        report.name: all(condition.status is not ConditionStatus.FALSE for condition in report.conditions)
        for report in reports
        if report.plural == "claimpolicies"
    }
