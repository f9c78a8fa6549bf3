"""What the ledger records: entries, their postings, and what is open after them.

An `Entry` is one transaction of double entry. Its postings sum to zero for every meter. What it opens or closes beside
amounts are *seats* (a pod's place on a node) and *holdings* (a claim's devices and charge), so that a controller that
died half-way finds in the ledger what to finish or to take back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from admission.api.kubernetes.devices import RequestDevice
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid


class Kind(StrEnum):
    """The movements of the ledger."""

    GRANT = "grant"
    """A queue's nominal quota was set or changed."""
    RESERVE = "reserve"
    """A plan was granted."""
    SETTLE = "settle"
    """The allocation that really happened replaced the plan."""
    RELEASE = "release"
    """Claims are gone or deallocated, pods are gone."""
    EVICT = "evict"
    """A gang was taken back before its claims were allocated, or as a whole."""
    ADJUST = "adjust"
    """Reconciliation with the cluster."""
    USAGE = "usage"
    """Meter-seconds used since the mark before, for budgets and fair shares; a mark itself."""
    CLOSE = "close"
    """A period was closed: rows up to its end were archived, and what was open there is carried forward."""


class Bucket(StrEnum):
    """The accounts that every (queue, meter) has: in the meter's base unit, the last two in meter-seconds."""

    ENTITLEMENT = "entitlement"
    """Where granted quota comes from; holds minus the nominal quota."""
    FREE = "free"
    """Nominal quota that is neither reserved nor used; negative while the queue borrows."""
    RESERVED = "reserved"
    USED = "used"
    SUPPLY = "supply"
    """Where meter-seconds come from; holds minus what was spent."""
    SPENT = "spent"
    """Meter-seconds that the queue has used, up to the latest usage entry."""


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
    """A pod's place: granted with the plan, given back when the pod is gone."""

    pod_uid: Uid
    pod: str
    """`namespace/name`."""
    node: NodeName
    claims: tuple[Uid, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A claim's devices and charge; `settled` once the devices are those really allocated.

    classes: how many devices, or shares of devices, it holds of each DeviceClass, or of an extended resource that a
    device plugin serves.
    """

    claim_uid: Uid
    claim: str
    """`namespace/name`."""
    devices: tuple[RequestDevice, ...]
    charge: Mapping[MeterName, int]
    settled: bool = False
    classes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One transaction.

    key: idempotency key; a second entry with the same key is not recorded. actor: the program that decided.
    reason: why, for people. on_behalf_of: the workload. user: who made it, as the API server knew them; empty where
    nobody was seen. seats and holdings: those that the entry opens (reserve) or gives their final form (settle).
    closes: UIDs of pods and claims whose seat or holding ends with it.
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
    """What a gang has open in the ledger: its queue, seats by pod UID, holdings by claim UID.

    reserved_at: the time of its latest reservation. first_reserved: of the first since which it has had a seat all the
    time; None in what was read from a ledger's tables, which keep the latest alone. user: who made its workload, as the
    entry says that opened it.
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
    def begun(self) -> datetime:
        """Return since when it has had a seat, as far as that is known."""
        return self.first_reserved or self.reserved_at

    @property
    def settled(self) -> bool:
        """Whether every holding is of devices really allocated."""
        return all(holding.settled for holding in self.holdings.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """Where an entry stands in the chain. `repeated` when its key was there already and nothing was written."""

    sequence: int
    digest: str
    repeated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetShare:
    """What one cluster has taken of a budget that several share: meter-seconds spent and promised from start to end.

    limit: what all clusters together may take; start and end: the budget's period, which is part of its name.
    """

    queue: QueueName
    meter: MeterName
    start: datetime
    end: datetime
    limit: int
    seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageInterval:
    """Meter-seconds that a queue used from one mark of the books (or from where the question begins) to the next."""

    queue: QueueName
    meter: MeterName
    start: datetime
    end: datetime
    seconds: int
