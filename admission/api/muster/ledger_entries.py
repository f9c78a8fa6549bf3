"""The ledger's entries, their postings, and the placements that are open after them.

An `Entry` is one transaction of double-entry accounting. Its postings sum to zero for every meter. Besides amounts, it
opens or closes *seats* (a pod's place on a node) and *holdings* (a claim's devices and charge), so that a controller
that died half-way finds in the ledger what to finish or to withdraw.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.values import names
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid


class Kind(StrEnum):
    """The kinds of entries."""

    GRANT = "grant"
    """A queue's nominal quota was set or changed."""
    RESERVE = "reserve"
    """A plan was granted."""
    SETTLE = "settle"
    """The actual allocation replaced the plan."""
    RELEASE = "release"
    """Claims are gone or deallocated, or pods are gone."""
    EVICT = "evict"
    """A gang was evicted before its claims were allocated, or as a whole."""
    ADJUST = "adjust"
    """Reconciliation with the cluster."""
    USAGE = "usage"
    """Meter-seconds used since the previous mark, for budgets and fair shares; itself a mark."""
    CLOSE = "close"
    """A period was closed: rows up to its end were archived, and the state at its end is carried forward."""
    MEASURE = "measure"
    """What devices did in a time was written beside the books (`MeasuredUsage`); it moves nothing."""


class Bucket(StrEnum):
    """The accounts that every (queue, meter) has: in the meter's base unit, the last two in meter-seconds."""

    ENTITLEMENT = "entitlement"
    """The source of granted quota; its balance is minus the nominal quota."""
    FREE = "free"
    """Nominal quota that is neither reserved nor used; negative while the queue borrows."""
    RESERVED = "reserved"
    USED = "used"
    SUPPLY = "supply"
    """The source of meter-seconds; its balance is minus that of SPENT."""
    SPENT = "spent"
    """Meter-seconds that the queue has used up to the latest usage entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posting:
    """One line: a signed amount, in the meter's base unit, on one account."""

    queue: QueueName
    meter: MeterName
    bucket: Bucket
    amount: int
    claim: Uid = Uid("")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """A pod's place on a node: opened when the plan is granted, closed when the pod is gone.

    asked_as: what stood for the node when it was asked for (`names.node_to_come`), if the seat was moved to one that
    came; else empty.
    """

    pod_uid: Uid
    pod: str
    """`namespace/name`."""
    node: NodeName
    claims: tuple[Uid, ...] = ()
    asked_as: NodeName = NodeName("")

    @property
    def as_asked(self) -> NodeName:
        """Return the node as it was when the seat was granted: what stands for it if it was asked for."""
        return self.asked_as or self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A claim's devices and charge, or a pod's without a claim; `settled` once it is what was allocated.

    classes: the number of devices, or shares of devices, by DeviceClass; of a pod (`names.resources_claim`), amounts by
    resource of its node, in the unit of `nodes.Resources`.
    """

    claim_uid: Uid
    claim: str
    """`namespace/name`."""
    devices: tuple[RequestDevice, ...]
    charge: Mapping[MeterName, int]
    settled: bool = False
    classes: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_of_pod(self) -> bool:
        """Whether it is what a pod takes of its node, without a claim."""
        return names.pod_of_resources_claim(self.claim_uid) is not None

    @property
    def devices_by_class(self) -> dict[str, int]:
        """Return `classes` without what is no device: CPU, memory and the like, which pods take of nodes."""
        return {name: amount for name, amount in self.classes.items() if not self.is_of_pod or "/" in name}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One transaction.

    key: idempotency key; a second entry with the same key is not recorded. actor: the program that decided.
    reason: why, for people. on_behalf_of: the workload. user: its creator's name in the API server; empty if not
    recorded. seats and holdings: opened by the entry (reserve), or in their final form (settle). closes: UIDs of pods
    and claims whose seat or holding it closes.
    """

    kind: Kind
    key: str
    at: datetime
    actor: str
    reason: str
    queue: QueueName
    on_behalf_of: str = ""
    user: str = ""
    gang_uid: GangUid = GangUid("")
    gang: str = ""
    """`namespace/name`; empty for grants."""
    postings: tuple[Posting, ...] = ()
    seats: tuple[Seat, ...] = ()
    holdings: tuple[Holding, ...] = ()
    closes: tuple[Uid, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The open part of a gang in the ledger: its queue, seats by pod UID, holdings by claim UID.

    reserved_at: the time of its latest reservation. first_reserved: the time since which it has had a seat without
    interruption; None if read from the ledger's tables, which keep only the latest reservation. user: the creator of
    its workload, from the entry that opened it.
    """

    gang_uid: GangUid
    gang: str
    queue: QueueName
    reserved_at: datetime
    user: str = ""
    seats: Mapping[Uid, Seat] = field(default_factory=dict)
    holdings: Mapping[Uid, Holding] = field(default_factory=dict)
    first_reserved: datetime | None = field(default=None, compare=False)

    @property
    def held_since(self) -> datetime:
        """Return the time since which it has had a seat, as far as known."""
        return self.first_reserved or self.reserved_at

    @property
    def settled(self) -> bool:
        """Whether every holding has the allocated devices."""
        return all(holding.settled for holding in self.holdings.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """The place of an entry in the chain. repeated: its key was stored already, so nothing was written."""

    sequence: int
    digest: str
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainEnd:
    """The stored end of a chain. closed: the sequence through which its rows were archived; 0 if none were."""

    epoch: int
    sequence: int
    digest: str
    closed: int = 0


class WaitingHour(NamedTuple):
    """How long the gangs of a queue have waited in an hour, in gang-seconds: two that wait all of it make 7,200."""

    queue: QueueName
    hour: datetime
    seconds: int


class WaitingShape(NamedTuple):
    """How long gangs of one shape have waited on a day (UTC) in a queue, in gang-seconds, with those of one namespace.

    shape: the text of an `api.capacity.gang_shapes`; empty for all gangs that have none, or whose shape is not kept.
    """

    queue: QueueName
    namespace: str
    day: datetime
    shape: str
    seconds: int


class Waited(NamedTuple):
    """How long gangs have waited, of some hours and some days."""

    hours: Sequence[WaitingHour] = ()
    shapes: Sequence[WaitingShape] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The devices of a settled claim, for the part of a time in which it held them. start, end: whole seconds."""

    queue: QueueName
    gang_uid: GangUid
    gang: str
    user: str
    claim_uid: Uid
    claim: str
    """`namespace/name`."""
    devices: tuple[DeviceId, ...]
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredUsage:
    """What the devices of an allocation did from `start` to `end`, as far as it was measured; None is not measured.

    devices: how many the claim held. measured_seconds: device-seconds of which the utilization is known.
    used_microseconds: device-seconds in use in them, times a million: the utilization times the seconds.
    memory_peak: the most memory in use on one of the devices, in bytes. powered_seconds: device-seconds of which the
    power is known. energy: what was consumed in them, in millijoules. All are exact whole numbers.
    """

    queue: QueueName
    gang_uid: GangUid
    gang: str
    user: str
    claim_uid: Uid
    claim: str
    start: datetime
    end: datetime
    devices: int
    measured_seconds: int = 0
    used_microseconds: int | None = None
    memory_peak: int | None = None
    powered_seconds: int = 0
    energy: int | None = None


class MeasuredPage(NamedTuple):
    """The place of a measure entry: page `page` of `pages` of the allocations from `start` to `end`."""

    start: datetime
    end: datetime
    page: int
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShare:
    """One cluster's share of a budget that several clusters share. seconds: meter-seconds spent and promised.

    limit: for all clusters together; start and end: the budget's period, which is part of its key.
    """

    queue: QueueName
    meter: MeterName
    start: datetime
    end: datetime
    limit: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageInterval:
    """Meter-seconds that a queue used from one mark of the books (or the requested start) to the next."""

    queue: QueueName
    meter: MeterName
    start: datetime
    end: datetime
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberUsageInterval(UsageInterval):
    """Meter-seconds that the gangs of one creator in one namespace used of a queue in a time. user: as recorded."""

    namespace: str
    user: str
