"""What the controller writes into the status of queues, meters and policies, and the Events it publishes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from admission.api.gangs import Phase
from admission.api.meta import Condition
from admission.api.names import MeterName, QueueName, Uid


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterUse:
    """A queue's use of one meter, in base units. pending: what its waiting gangs would be charged, where known."""

    nominal: int = 0
    reserved: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """Status of a Queue."""

    name: QueueName
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    meters: Mapping[MeterName, MeterUse] = field(default_factory=dict)
    gangs: Mapping[Phase, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionReport:
    """Conditions of a Meter or a ClaimPolicy; `plural` is its resource name."""

    plural: str
    name: str
    generation: int
    conditions: tuple[Condition, ...]


class EventType(StrEnum):
    """v1.Event types."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An Event about one object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: Uid
    type: EventType
    reason: str
    message: str
    action: str = "Admission"
