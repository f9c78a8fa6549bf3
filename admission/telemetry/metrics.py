"""Numbers for Prometheus, in a registry of their own, so that two of them may live in one process.

Amounts of meters become floats here, exact up to 2^53; whoever needs more asks the ledger.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from admission.api.names import QueueName
from admission.api.reasons import HoldReason
from admission.api.reports import QueueReport
from admission.policy.defects import During

FAST = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Seconds; a review is answered from memory."""

SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds; a cycle plans and writes."""

AMOUNTS = ("nominal", "reserved", "used", "borrowed", "lent", "pending")


Tally = tuple[str, str, list[int], float]
"""Of one door and outcome: reviews in each bucket of `FAST` and above, and seconds of them all."""


class Reviews(Collector):
    """A histogram of reviews by worker, door and outcome. Those of other workers are shown as these told them last.

    The library's own takes a lock for every bucket and for the sum, which is felt in a review; all reviews are observed
    by the loop's one thread, and a scrape that is off by the review under way does no harm.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._counts: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], float] = {}
        self._told: dict[int, list[Tally]] = {}

    def observe(self, door: str, outcome: str, seconds: float) -> None:
        labels = door, outcome
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(FAST) + 1)
            self._sums[labels] = 0.0
        counts[bisect_left(FAST, seconds)] += 1
        self._sums[labels] += seconds

    def tallies(self) -> list[Tally]:
        """Return what this process has observed."""
        return [(*labels, counts, self._sums[labels]) for labels, counts in sorted(self._counts.items())]

    def tell(self, worker: int, tallies: list[Tally]) -> None:
        """Show what another worker has observed since it began."""
        self._told[worker] = tallies

    def collect(self) -> Iterator[Metric]:
        """Yield the histogram, with buckets that count all below their bound, as Prometheus wants them."""
        bounds = [*map(floatToGoString, FAST), "+Inf"]
        family = HistogramMetricFamily(
            "muster_review_seconds",
            "Time to answer an admission review, by worker, door and outcome.",
            labels=("worker", "door", "outcome"),
        )
        for worker, tallies in sorted({**self._told, self._worker: self.tallies()}.items()):
            for door, outcome, counts, seconds in tallies:
                buckets = list(zip(bounds, accumulate(map(float, counts)), strict=True))
                family.add_metric((str(worker), door, outcome), buckets, seconds)
        yield family


class Queues(Collector):
    """What each queue has, as its latest report says.

    A gauge of the library's looks through all that it shows to forget what it showed of one queue: with a thousand
    queues, for tens of seconds after every cycle.
    """

    def __init__(self) -> None:
        self._reports: dict[QueueName, QueueReport] = {}

    def show(self, report: QueueReport) -> None:
        self._reports[report.name] = report

    def forget(self, queue: QueueName) -> None:
        self._reports.pop(queue, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the gangs of all queues and their amounts of meters."""
        gangs = GaugeMetricFamily("muster_queue_gangs", "Gangs of a queue, by phase.", labels=("queue", "phase"))
        amounts = GaugeMetricFamily(
            "muster_queue_amount",
            "A queue's amounts of a meter, in its base unit; kind: " + ", ".join(AMOUNTS) + ".",
            labels=("queue", "meter", "kind"),
        )
        for name, report in sorted(self._reports.items()):
            for phase, count in report.gangs.items():
                gangs.add_metric((name, phase), count)
            for meter, use in report.meters.items():
                for kind in AMOUNTS:
                    amounts.add_metric((name, meter, kind), getattr(use, kind))
        yield gangs
        yield amounts


class Metrics:
    """All of Muster's metrics."""

    def __init__(self, *, worker: int = 1) -> None:
        self.registry = CollectorRegistry()
        self._reviews = Reviews(worker)
        self.registry.register(self._reviews)
        self._workers = Gauge(
            "muster_webhook_workers", "Processes that are ready to answer reviews.", registry=self.registry
        )
        self._lost = Counter(
            "muster_webhook_workers_lost", "Workers that ended and were started again.", registry=self.registry
        )
        self._cycles = Histogram(
            "muster_cycle_seconds", "Duration of an admission cycle.", buckets=SLOW, registry=self.registry
        )
        self._admitted = Counter("muster_gangs_admitted", "Gangs that were let in.", registry=self.registry)
        self._held = Gauge(
            "muster_gangs_held",
            "Gangs that waited after the last cycle, by reason.",
            ("reason",),
            registry=self.registry,
        )
        self._behind = Gauge(
            "muster_clock_behind_books_seconds",
            "How far this machine's clock is behind the latest entry of the ledger, whose time is kept instead.",
            registry=self.registry,
        )
        self._unposted = Gauge(
            "muster_ledger_entries_waiting",
            "Entries that wait for the ledger's database to be back.",
            registry=self.registry,
        )
        self._defects = Counter(
            "muster_gang_defects",
            "Times that a cycle failed of one gang by a defect of Muster, by what was being done.",
            ("during",),
            registry=self.registry,
        )
        for during in During:
            self._defects.labels(during)
        self._leading = Gauge("muster_leading", "1 while this process is the leader.", registry=self.registry)
        self._queues = Queues()
        self.registry.register(self._queues)

    def reviewed(self, door: str, outcome: str, seconds: float) -> None:
        """Count one review. Both labels come from small fixed sets."""
        self._reviews.observe(door, outcome, seconds)

    def tallies(self) -> list[Tally]:
        """Return the reviews of this process, for the one that shows those of all."""
        return self._reviews.tallies()

    def told(self, worker: int, tallies: list[Tally]) -> None:
        """Show the reviews of another worker."""
        self._reviews.tell(worker, tallies)

    def staffed(self, ready: int) -> None:
        """Say how many workers are ready."""
        self._workers.set(ready)

    def lost(self) -> None:
        """Count a worker that ended by itself."""
        self._lost.inc()

    def cycled(self, seconds: float, *, admitted: int, held: Mapping[HoldReason, int]) -> None:
        """Count one admission cycle: gangs let in, and gangs that wait, by reason."""
        self._cycles.observe(seconds)
        self._admitted.inc(admitted)
        for reason in HoldReason:
            self._held.labels(reason).set(held.get(reason, 0))

    def booked(self, *, behind: timedelta, unposted: int) -> None:
        """Show how the last cycle stood with the ledger: the clock's lag, and entries that are not written yet."""
        self._behind.set(behind.total_seconds())
        self._unposted.set(unposted)

    def failed(self, during: Iterable[During]) -> None:
        """Count what Muster failed of in a cycle, gang by gang."""
        for one in during:
            self._defects.labels(one).inc()

    def leads(self, *, leading: bool) -> None:
        """Say whether this process is the leader."""
        self._leading.set(leading)

    def queue(self, report: QueueReport) -> None:
        """Show a queue as its status shows it."""
        self._queues.show(report)

    def forget(self, queue: QueueName) -> None:
        """Drop what was shown of a queue."""
        self._queues.forget(queue)

    def page(self) -> tuple[bytes, str]:
        """Return what Prometheus scrapes, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
