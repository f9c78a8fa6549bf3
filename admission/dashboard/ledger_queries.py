"""What the pages ask the books, and what these answer: values, whatever keeps the books."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from admission.api.muster.ledger_entries import Entry, Kind
from admission.api.values.names import MeterName, QueueName


class Window(NamedTuple):
    """A time, from start on and before end."""

    start: datetime
    end: datetime


class Grouping(StrEnum):
    """By what use is grouped."""

    QUEUE = "queue"
    NAMESPACE = "namespace"
    USER = "user"
    CLASS = "class"


class Step(StrEnum):
    """The bars of a chart, in UTC."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What transactions are looked for; an empty condition matches all.

    gang: a part of `namespace/name`. before: only those with a lower number. limit: how many, the newest first.
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


class Transaction(NamedTuple):
    """An entry and its number in the chain."""

    sequence: int
    entry: Entry


class Amounts(NamedTuple):
    """Of one meter: granted, reserved by plans and used by allocations, in its base unit; spent in meter-seconds."""

    nominal: int
    reserved: int
    used: int
    spent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one transaction did to one meter of a queue, and what stood there afterwards."""

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
    """A time of a queue's account. opening and closing: by meter, what stood at its start and at its end."""

    queue: QueueName
    window: Window
    opening: Mapping[MeterName, Amounts]
    lines: Sequence[Line]
    closing: Mapping[MeterName, Amounts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """Device-seconds by group, one amount for each period."""

    periods: Sequence[Window] = ()
    amounts: Mapping[str, Sequence[int]] = field(default_factory=dict)


class Extent(NamedTuple):
    """The time that the books tell of. start: None where they tell of all; end: of the latest transaction, if any."""

    start: datetime | None
    end: datetime | None
