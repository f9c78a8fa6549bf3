"""The pages' queries to the ledger and their results, as values independent of its storage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from admission.api.muster.ledger_entries import Entry, Kind
from admission.api.values.names import MeterName, QueueName


class Window(NamedTuple):
    """A period, including its start and without its end."""

    start: datetime
    end: datetime


class Measure(StrEnum):
    """What is drawn over time; the value is its unit."""

    USE = "device-hours"
    WAITING = "gang-hours"


class Grouping(StrEnum):
    """The keys by which use is grouped."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"
    CLASS = "class"


class DoneBy(StrEnum):
    """The keys by which what devices did is grouped."""

    QUEUE = "queue"
    GANG = "gang"
    NAMESPACE = "namespace"
    USER = "user"


class Step(StrEnum):
    """The periods of a chart, in UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """The conditions of a search for transactions; an empty one matches all.

    gang: a part of `namespace/name`. before: only lower sequence numbers. limit: how many, the newest first.
    """

    window: Window
    queue: str = ""
    namespace: str = ""
    gang: str = ""
    gang_uid: str = ""
    user: str = ""
    kind: Kind | None = None
    before: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class GangSearch:
    """A search for the latest transactions of one gang.

    uid: of the gang. gang: `namespace/name`, for gangs that the books know by another UID: what names, or a part of a
    workload, make a gang (`gang_key`). since: by name only transactions from then on are looked at.
    """

    uid: str
    gang: str
    since: datetime
    limit: int = 50


class Transaction(NamedTuple):
    """An entry and its number in the chain."""

    sequence: int
    entry: Entry


class Amounts(NamedTuple):
    """Amounts of one meter: granted, reserved by plans, used by allocations, in base units; spent in meter-seconds."""

    nominal: int
    reserved: int
    used: int
    spent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The effect of one transaction on one meter of a queue, and the balance after it."""

    sequence: int
    at: datetime
    kind: Kind
    gang: str
    user: str
    reason: str
    meter: MeterName
    change: Amounts
    balance: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """A period of a queue's account. opening and closing: by meter, the balances at its start and at its end."""

    queue: QueueName
    window: Window
    opening: Mapping[MeterName, Amounts]
    lines: Sequence[Line]
    closing: Mapping[MeterName, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Device-seconds by group, or gang-seconds of waiting by queue; one amount for each period."""

    periods: Sequence[Window] = ()
    amounts: Mapping[str, Sequence[int]] = field(default_factory=dict)


class WaitedShape(NamedTuple):
    """How long gangs of one shape have waited in a queue, in gang-seconds.

    shape: the text of an `api.capacity.gang_shapes`.
    """

    queue: QueueName
    shape: str
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedHours:
    """What the devices of a group did. None is not measured.

    allocated, measured: device-seconds. used, idle: of the measured ones, times a million. memory_peak: the most on one
    device, in bytes.
    """

    name: str = ""
    allocated: int = 0
    measured: int = 0
    used: int | None = None
    idle: int | None = None
    memory_peak: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedReport:
    """What devices did in a time. groups: those with most allocated hours. left_out: how many more there are.

    emptiest: the gangs with the most idle hours.
    """

    groups: Sequence[UsedHours] = ()
    left_out: int = 0
    emptiest: Sequence[UsedHours] = ()
    total: UsedHours = UsedHours()


class Extent(NamedTuple):
    """The period that the ledger covers. start: None if it covers all; end: of the latest transaction, if any."""

    start: datetime | None
    end: datetime | None
