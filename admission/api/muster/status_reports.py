"""Reports that the controller writes into the status of queues, meters and policies, and the Events that it emits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from admission.api.kubernetes.meta import Condition
from admission.api.muster.gangs import Phase
from admission.api.values.names import MeterName, QueueName, Uid
from admission.api.values.reasons import DenyReason, EventReason, EvictionReason, HoldReason
from admission.api.values.references import References


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterUse:
    """A queue's use of one meter, in base units. pending: the charges of its waiting gangs, as far as known."""

    nominal: int = 0
    reserved: int = 0
    used: int = 0
    borrowed: int = 0
    lent: int = 0
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUse:
    """One budget of a queue in its present period, in meter-seconds.

    promised: what admitted gangs may still use within their paid runtime. left: negative when it is overspent.
    elsewhere: what the other clusters have spent and promised of a Global budget. start and end are None outside of a
    fixed window, where the budget limits nothing.
    """

    meter: MeterName
    limit: int
    spent: int = 0
    promised: int = 0
    elsewhere: int = 0
    period: str = ""
    start: datetime | None = None
    end: datetime | None = None
    scope: str = ""
    on_exhausted: str = ""

    @property
    def left(self) -> int:
        return self.limit - self.spent - self.promised - self.elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSummary:
    """What lists show of a queue and those below it. meter: the busiest, by its use per quota; empty if there is none.

    used: reserved or in use. quota: the nominal ones. borrowed: by the queue of this meter. waiting, started: gangs.
    """

    meter: str = ""
    used: int = 0
    quota: int = 0
    borrowed: int = 0
    waiting: int = 0
    started: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueReport:
    """Status of a Queue. references: of its conditions, whose type is the `detail` of each; tenants read them, too.

    starved: gangs that wait for quota or devices, and need no more than is left of its nominal quota. idle: gangs whose
    devices are idle. over_memory: gangs of whose devices more memory is in use than was asked for. max_wait: its
    spec.maxWait. None of them is written into the Queue's status.
    """

    name: QueueName
    generation: int = 0
    conditions: tuple[Condition, ...] = ()
    references: References = ()
    meters: Mapping[MeterName, MeterUse] = field(default_factory=dict)
    budgets: tuple[BudgetUse, ...] = ()
    gangs: Mapping[Phase, int] = field(default_factory=dict)
    starved: int = 0
    idle: int = 0
    over_memory: int = 0
    max_wait: timedelta = timedelta(hours=24)
    summary: QueueSummary = field(default_factory=QueueSummary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionReport:
    """Conditions of a Meter, a ClaimPolicy or a NodeShape; `plural` is its resource name.

    outside: of a Meter, by class that it knows, the devices that pods outside every queue hold. keeps: conditions that
    stay as they are, of an object that cannot be read: what was known of it is not lost.
    """

    plural: str
    name: str
    generation: int
    conditions: tuple[Condition, ...]
    outside: Mapping[str, int] = field(default_factory=dict)
    keeps: frozenset[str] = frozenset()


NoticeReason = EventReason | HoldReason | EvictionReason | DenyReason
"""An Event may have any reason that statuses and denials have; docs/reasons.md lists all of them."""


class EventType(StrEnum):
    """v1.Event types."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """An Event about one object.

    uid: empty for a Gang whose object was not there yet, which its writer knows, and for objects that Muster does not
    read, such as the ConfigMap of signed heads.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: Uid
    type: EventType
    reason: NoticeReason
    message: str
    action: str = "Admission"
    gang_uid: str = ""
    """The UID of the gang that the Event is about, if any."""

    @property
    def awaits_gang(self) -> bool:
        """Return whether it is about a Gang whose object, and so its UID, was not known when it was made."""
        return self.kind == "Gang" and not self.uid
