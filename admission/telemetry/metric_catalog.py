"""The catalog of Muster's metrics: name, meaning, unit, labels, and the processes that export each.

`metrics` and `collectors` export their series; docs/metrics.md is generated from them. Names are stable: a metric is
not renamed, and loses no label, without a line in the changelog.
"""

from dataclasses import dataclass
from enum import StrEnum


class MetricType(StrEnum):
    """Prometheus' type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class ExportedBy(StrEnum):
    """The processes that export a metric."""

    EVERYBODY = "every process"
    WEBHOOK = "the webhook"
    CONTROLLER = "the controller"
    LEADER = "the leader"
    """Only during its term; afterwards its series have no values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric. name: in the library's form, so a counter's is without `_total`. labels: name → meaning.

    buckets: upper bounds of a histogram, in the unit at the end of the name.
    """

    name: str
    type: MetricType
    exported_by: ExportedBy
    help: str
    labels: tuple[tuple[str, str], ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> str:
        """Return the name in queries; a histogram's is without its `_bucket`, `_sum` and `_count`."""
        return f"{self.name}_total" if self.type is MetricType.COUNTER else self.name

    @property
    def label_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.labels)


FAST = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5, 5.0)
"""Seconds; a review is answered from memory, and the API server times out after the last of these."""

SLOW = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds; a cycle plans and writes."""

LONG = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 43_200.0, 86_400.0, 259_200.0, 604_800.0)
"""Seconds; a gang may wait for a moment or for a week."""

AMOUNTS = ("nominal", "reserved", "used", "borrowed", "lent", "pending")
SPENDING = ("limit", "spent", "promised", "elsewhere", "left")

_KIND = ("kind", "what is watched, `plural.group`")
_QUEUE = ("queue", "its name")
_METER = ("meter", "the Meter's name")
_BUDGET = (
    _QUEUE,
    _METER,
    ("period", "`Day`, `Week`, `Month`, `Quarter`, `Year`, or the first and last moment of a fixed window"),
    ("scope", "`Cluster` or `Global`"),
    ("on_exhausted", "`Hold` or `Warn`"),
)

REVIEWS = Metric(
    name="muster_review_seconds",
    type=MetricType.HISTOGRAM,
    exported_by=ExportedBy.WEBHOOK,
    help="Time to answer an admission review, from its headers to its answer.",
    labels=(
        ("worker", "the process that answered, from 1"),
        ("door", "`mutate`, `validate` or `prove`"),
        ("outcome", "`allowed`, `patched`, `denied`, `malformed`, `unready`, `shed` or `failed`"),
        ("reason", "of those denied, the [reason](reasons.md#why-a-request-is-refused); else empty"),
    ),
    buckets=FAST,
)
WORKERS = Metric(
    name="muster_webhook_workers",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.WEBHOOK,
    help="Processes that are ready to answer reviews.",
)
REFUSED = Metric(
    name="muster_webhook_refused",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.WEBHOOK,
    help="Connections and requests that were refused before anything was judged.",
    labels=(
        ("worker", "the process that refused, from 1"),
        ("reason", "[which bound](webhook.md#under-load)"),
    ),
)
WORKERS_LOST = Metric(
    name="muster_webhook_workers_lost",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.WEBHOOK,
    help="Workers that ended and were started again.",
)
EXPIRY = Metric(
    name="muster_webhook_certificate_expiry_timestamp_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.WEBHOOK,
    help="When the certificate that the webhook shows expires, in seconds since 1970.",
    labels=(("part", "`leaf`, or the `authority` that signed it, where that is known"),),
)
READY = Metric(
    name="muster_ready",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.EVERYBODY,
    help="1 while this process is ready, as `/readyz` says, else 0.",
)
LEADING = Metric(
    name="muster_leading",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.EVERYBODY,
    help="1 while this process is the leader, else 0.",
)
CYCLES = Metric(
    name="muster_cycle_seconds",
    type=MetricType.HISTOGRAM,
    exported_by=ExportedBy.CONTROLLER,
    help="Duration of an admission cycle, its writes included.",
    buckets=SLOW,
)
ADMITTED = Metric(
    name="muster_gangs_admitted",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.CONTROLLER,
    help="Gangs that were let in.",
)
WAITS = Metric(
    name="muster_gang_wait_seconds",
    type=MetricType.HISTOGRAM,
    exported_by=ExportedBy.CONTROLLER,
    help="How long gangs that were let in had waited since they queued.",
    buckets=LONG,
)
DECISIONS = Metric(
    name="muster_decisions",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.CONTROLLER,
    help="Decisions about gangs; one that stays what it was in the cycle before is counted once.",
    labels=(
        ("decision", "`admitted`, `held`, `refused` or `evicted`"),
        ("reason", "why, as in [reasons](reasons.md); empty for `admitted`"),
    ),
)
DEFECTS = Metric(
    name="muster_gang_defects",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.CONTROLLER,
    help="Times that a cycle failed of one gang by a defect of Muster.",
    labels=(("during", "`planning`, `following`, `placing` or `reporting`"),),
)
EPOCH = Metric(
    name="muster_leader_epoch",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="The number of this leader's term, which grows with every change of leaders.",
)
HELD = Metric(
    name="muster_gangs_held",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Gangs that waited after the last cycle.",
    labels=(("reason", "why, as in [reasons](reasons.md#why-a-gang-waits)"),),
)
GANGS = Metric(
    name="muster_queue_gangs",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Gangs of a queue.",
    labels=(_QUEUE, ("phase", "of the Gang's status")),
)
WAITING_SINCE = Metric(
    name="muster_queue_waiting_since_timestamp_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Since when the longest waiting gang of a queue waits, in seconds since 1970; no series where none does.",
    labels=(_QUEUE,),
)
MAX_WAIT = Metric(
    name="muster_queue_max_wait_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="How long gangs of a queue may wait before an alert tells of it: its `spec.maxWait`.",
    labels=(_QUEUE,),
)
STARVED = Metric(
    name="muster_queue_gangs_starved",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Gangs that wait for quota or devices, and need no more than is left of their queue's nominal quota.",
    labels=(_QUEUE,),
)
IDLE = Metric(
    name="muster_queue_gangs_idle",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Gangs whose devices have been in less use than `spec.idle` of their queue allows.",
    labels=(_QUEUE,),
)
OVER_MEMORY = Metric(
    name="muster_queue_gangs_over_memory",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Gangs of whose shared devices more memory was in use in the last recorded time than claims asked for.",
    labels=(_QUEUE,),
)
AMOUNT = Metric(
    name="muster_queue_amount",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="A queue's amounts of a meter, in its base unit.",
    labels=(_QUEUE, _METER, ("kind", ", ".join(f"`{kind}`" for kind in AMOUNTS))),
)
BUDGET = Metric(
    name="muster_queue_budget_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="A queue's budget in its present period, in seconds times the meter's base unit.",
    labels=(*_BUDGET, ("kind", ", ".join(f"`{kind}`" for kind in SPENDING))),
)
BUDGET_END = Metric(
    name="muster_queue_budget_end_timestamp_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="When the present period of a queue's budget ends, in seconds since 1970; no series outside a fixed window.",
    labels=_BUDGET,
)
BEHIND = Metric(
    name="muster_clock_behind_books_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="How far this machine's clock is behind the latest entry of the ledger, whose time is kept instead.",
)
UNPOSTED = Metric(
    name="muster_ledger_entries_waiting",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Entries that wait for the ledger's database to be back.",
)
LAG = Metric(
    name="muster_ledger_lag_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Age, after the last cycle, of the oldest entry that waits for the ledger's database; 0 while none does.",
)
USAGE_OVERDUE = Metric(
    name="muster_usage_overdue_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="For how long it has been due to record what devices did, and was not possible; 0 while all is recorded.",
)
HEAD_TIME = Metric(
    name="muster_ledger_head_timestamp_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="When the latest head of the books that was published was signed, in seconds since 1970.",
    labels=(("place", "`configmap`, `file` or `http`; before the first head of a term, when the term began"),),
)
HEAD_FAILURES = Metric(
    name="muster_ledger_head_failures",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.CONTROLLER,
    help="Times that a head of the books could not be signed or published; it is tried again.",
    labels=(("place", "`signature`, `configmap`, `file` or `http`"),),
)
HEAD_NOT_PASSED = Metric(
    name="muster_ledger_head_not_passed",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="1 while the books do not pass through the heads that are kept, and none is signed; else 0.",
)
FOREIGN = Metric(
    name="muster_ledger_foreign_entries",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.CONTROLLER,
    help="Entries that another client has written into the books during a leader's term, but for closings.",
)
PROTECTED = Metric(
    name="muster_devices_protected",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="1 while kube-scheduler leaves a driver's devices to Muster as the settings ask, 0 while gangs are pinned.",
    labels=(("driver", "its name; `*`: all that the setting `fence` does not name"),),
)
KUBERNETES_KNOWN = Metric(
    name="muster_kubernetes_known",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="1 while the cluster's Kubernetes is a release that Muster knows, 0 while it is newer or older than all.",
    labels=(("release", "the one whose kube-scheduler plans follow; empty where none is predicted"),),
)
OUTSIDE = Metric(
    name="muster_devices_outside_queues",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Devices of a class that a Meter counts, held by pods outside every queue; no series where none is.",
    labels=(("class", "the DeviceClass that was asked for"),),
)
ALLOCATIONS = Metric(
    name="muster_device_allocation_info",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Always 1, for each device of an allocated claim; [to join](tasks/used.md) with what exporters measure.",
    labels=(
        ("driver", "its name"),
        ("pool", "of the device"),
        ("device", "its name in the pool"),
        ("node", "that has the device; of a device that several nodes have, the pod's"),
        ("class", "the DeviceClass that was asked for"),
        ("uuid", "the attribute `uuid` of the device, or the one that `metrics.uuids` names for the driver"),
        ("namespace", "of the claim"),
        ("claim", "its name"),
        ("pod", "the only pod that uses the claim; empty if several do"),
        ("gang", "its name; empty outside queues"),
        ("workload", "`Kind/name` of what makes the gang's pods"),
        ("queue", "that pays for it; empty outside queues"),
        ("queue_path", "the queue and those above it, from the root: `research/vision`"),
        ("user", "who created the workload, as the webhook recorded it; empty where that is not known"),
    ),
)
OMITTED = Metric(
    name="muster_device_allocations_omitted",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="Allocated devices without a series, since there are more than the setting `metrics.allocations`.",
)
POLICIES = Metric(
    name="muster_claim_policy_ready",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.LEADER,
    help="1 while all of a ClaimPolicy is applied, 0 while something in it is invalid, or it cannot be read.",
    labels=(("policy", "its name"),),
)
STALENESS = Metric(
    name="muster_watch_staleness_seconds",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.EVERYBODY,
    help="Time since the API server last said anything of a kind; a quiet watch hears of it about every minute.",
    labels=(_KIND,),
)
OBJECTS = Metric(
    name="muster_watch_objects",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.EVERYBODY,
    help="Objects of a kind that are kept in memory.",
    labels=(_KIND,),
)
EVENTS = Metric(
    name="muster_watch_events",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.EVERYBODY,
    help="Changes of a kind that the API server has told, bookmarks included.",
    labels=(_KIND,),
)
LISTS = Metric(
    name="muster_watch_lists",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.EVERYBODY,
    help="Times that a kind was listed; more than once where its watch fell behind.",
    labels=(_KIND,),
)
BUILD = Metric(
    name="muster_build_info",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.EVERYBODY,
    help="Always 1.",
    labels=(("version", "of Muster"),),
)
PROCESSOR = Metric(
    name="muster_process_cpu_seconds",
    type=MetricType.COUNTER,
    exported_by=ExportedBy.EVERYBODY,
    help="Processor time that this process has used, in seconds.",
)
RESIDENT = Metric(
    name="muster_process_resident_memory_bytes",
    type=MetricType.GAUGE,
    exported_by=ExportedBy.EVERYBODY,
    help="Memory of this process that is in RAM.",
)

ALL = (
    *(REVIEWS, REFUSED, WORKERS, WORKERS_LOST, EXPIRY),
    *(READY, LEADING, EPOCH, CYCLES, ADMITTED, WAITS, DECISIONS, HELD, DEFECTS),
    *(GANGS, WAITING_SINCE, MAX_WAIT, STARVED, IDLE, OVER_MEMORY, AMOUNT, BUDGET, BUDGET_END),
    *(BEHIND, UNPOSTED, LAG, PROTECTED, KUBERNETES_KNOWN, OUTSIDE, ALLOCATIONS, OMITTED, POLICIES),
    *(USAGE_OVERDUE, HEAD_TIME, HEAD_FAILURES, HEAD_NOT_PASSED, FOREIGN),
    *(STALENESS, OBJECTS, EVENTS, LISTS),
    *(BUILD, PROCESSOR, RESIDENT),
)
