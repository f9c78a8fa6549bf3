"""Numbers for Prometheus, in a registry of their own, so that two of them may live in one process.

Amounts of meters become floats here, exact up to 2^53; whoever needs more asks the ledger.
"""

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from admission.api.names import QueueName
from admission.api.reasons import HoldReason
from admission.api.reports import QueueReport

FAST = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0)
"""Seconds; a review is answered from memory."""

SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds; a cycle plans and writes."""

AMOUNTS = ("nominal", "reserved", "used", "borrowed", "lent", "pending")


class Metrics:
    """All of Muster's metrics."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reviews = Histogram(
            "muster_review_seconds",
            "Time to answer an admission review, by door and outcome.",
            ("door", "outcome"),
            buckets=FAST,
            registry=self.registry,
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
        self._leading = Gauge("muster_leading", "1 while this process is the leader.", registry=self.registry)
        self._gangs = Gauge(
            "muster_queue_gangs", "Gangs of a queue, by phase.", ("queue", "phase"), registry=self.registry
        )
        self._amounts = Gauge(
            "muster_queue_amount",
            "A queue's amounts of a meter, in its base unit; kind: " + ", ".join(AMOUNTS) + ".",
            ("queue", "meter", "kind"),
            registry=self.registry,
        )
        self._children: dict[tuple[str, str], Histogram] = {}

    def reviewed(self, door: str, outcome: str, seconds: float) -> None:
        """Count one review. Both labels come from small fixed sets."""
        child = self._children.get((door, outcome))
        if child is None:
            # Looking up a child by its labels costs more than observing it.
            child = self._children[door, outcome] = self._reviews.labels(door, outcome)
        child.observe(seconds)

    def cycled(self, seconds: float, *, admitted: int, held: Mapping[HoldReason, int]) -> None:
        """Count one admission cycle: gangs let in, and gangs that wait, by reason."""
        self._cycles.observe(seconds)
        self._admitted.inc(admitted)
        for reason in HoldReason:
            self._held.labels(reason).set(held.get(reason, 0))

    def leads(self, *, leading: bool) -> None:
        """Say whether this process is the leader."""
        self._leading.set(leading)

    def queue(self, report: QueueReport) -> None:
        """Show a queue as its status shows it."""
        self.forget(report.name)
        for phase, count in report.gangs.items():
            self._gangs.labels(report.name, phase).set(count)
        for meter, use in report.meters.items():
            for kind in AMOUNTS:
                self._amounts.labels(report.name, meter, kind).set(getattr(use, kind))

    def forget(self, queue: QueueName) -> None:
        """Drop what was shown of a queue."""
        for gauge in (self._gangs, self._amounts):
            gauge.remove_by_labels({"queue": queue})

    def page(self) -> tuple[bytes, str]:
        """Return what Prometheus scrapes, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
