"""Queues: a team's entitlement, and who may enter."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TypeVar

from admission.api import durations, meta, quantities, selectors
from admission.api.meta import Meta
from admission.api.names import MeterName, QueueName
from admission.api.reading import Json, Reader
from admission.api.selectors import LabelSelector

E = TypeVar("E", bound=StrEnum)


class QueueingStrategy(StrEnum):
    """Whether a head that cannot start holds back those behind it."""

    BEST_EFFORT_FIFO = "BestEffortFIFO"
    STRICT_FIFO = "StrictFIFO"


class PlacementMode(StrEnum):
    """Who picks the devices."""

    AUTO = "Auto"
    ALLOCATE = "Allocate"
    PIN = "Pin"
    COUNT = "Count"


class StopPolicy(StrEnum):
    """Whether the queue admits."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class UnmeteredClasses(StrEnum):
    """What happens to claims of a class that no meter counts."""

    REFUSE = "Refuse"
    ALLOW = "Allow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """A queue's entitlement to one meter. A limit of None is unlimited."""

    meter: MeterName
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """Back-off of a gang that did not start: base x 2^(n-1), capped; no more tries after `limit`."""

    base: timedelta = timedelta(minutes=1)
    max: timedelta = timedelta(hours=1)
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A Queue object. namespaces: None for a queue that nobody enters directly (a parent)."""

    meta: Meta
    parent: QueueName | None = None
    namespaces: LabelSelector | None = None
    default: bool = False
    quotas: tuple[Quota, ...] = ()
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    start_timeout: timedelta = timedelta(minutes=5)
    requeue: Requeue = Requeue()
    placement: PlacementMode = PlacementMode.AUTO
    stop_policy: StopPolicy = StopPolicy.NONE
    unmetered: UnmeteredClasses = UnmeteredClasses.REFUSE

    @property
    def name(self) -> QueueName:
        return QueueName(self.meta.name)


def decode(obj: Json) -> Queue:
    """Read a Queue."""
    reader = Reader(obj)
    spec = reader.child("spec")
    result = Queue(
        meta=meta.decode(reader),
        parent=QueueName(spec.text("parent")) if "parent" in spec else None,
        namespaces=selectors.decode_labels(spec.child("namespaceSelector")) if "namespaceSelector" in spec else None,
        default=spec.flag("default"),
        quotas=_quotas(spec),
        strategy=_choice(spec, "queueingStrategy", QueueingStrategy.BEST_EFFORT_FIFO),
        start_timeout=spec.parsed("startTimeout", durations.parse, timedelta(minutes=5)),
        requeue=_requeue(spec.child("requeue")),
        placement=_choice(spec, "placement", PlacementMode.AUTO),
        stop_policy=_choice(spec, "stopPolicy", StopPolicy.NONE),
        unmetered=_choice(spec, "unmeteredClasses", UnmeteredClasses.REFUSE),
    )
    reader.finish("Queue", result.meta.key)
    return result


def _quotas(spec: Reader) -> tuple[Quota, ...]:
    found: dict[str, Quota] = {}
    for reader in spec.children("quotas"):
        quota = Quota(
            meter=MeterName(reader.required("meter")),
            nominal=reader.parsed("nominal", quantities.parse_amount, 0),
            borrowing_limit=_limit(reader, "borrowingLimit"),
            lending_limit=_limit(reader, "lendingLimit"),
        )
        if quota.meter in found:
            reader.flaw("meter", f"{quota.meter} is named twice; keep one entry per meter")
        found[quota.meter] = quota
    return tuple(found.values())


def _limit(reader: Reader, name: str) -> int | None:
    return reader.parsed(name, quantities.parse_amount, 0) if name in reader else None


def _requeue(reader: Reader) -> Requeue:
    return Requeue(
        base=reader.parsed("base", durations.parse, timedelta(minutes=1)),
        max=reader.parsed("max", durations.parse, timedelta(hours=1)),
        limit=reader.integer("limit") if "limit" in reader else None,
    )


def _choice(reader: Reader, name: str, default: E) -> E:
    kind = type(default)
    text = reader.text(name, default)
    try:
        return kind(text)
    except ValueError:
        reader.flaw(name, f"{text!r} is not one of {', '.join(kind)}")
        return default
