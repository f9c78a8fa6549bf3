"""The documents about the books: transactions, statements, device-hours and accounts at a past time."""

from collections.abc import Sequence

from admission.api.muster.ledger_entries import Posting as EntryPosting
from admission.dashboard import ledger_queries
from admission.dashboard.documents.encoding import Document, Listing, Record, Time
from admission.dashboard.ledger_queries import Statement as QueueStatement, Transaction as LedgerTransaction


class Posting(Record, frozen=True, kw_only=True):
    """One signed amount on an account of a queue, in the meter's base unit; meter-seconds where the bucket is spent."""

    queue: str
    meter: str
    bucket: str
    amount: str


class Transaction(Record, frozen=True, kw_only=True):
    """A transaction. hidden: of a gang that who asks may not see, so that gang, user and reason are empty."""

    sequence: int
    at: Time
    kind: str
    queue: str
    gang: str
    user: str
    reason: str
    hidden: bool
    postings: list[Posting]


class TransactionList(Document, frozen=True, kw_only=True):
    """Transactions, the newest first. before: what to ask for next (`?before=`), if there are older ones."""

    items: list[Transaction]
    before: int | None


class Balance(Record, frozen=True, kw_only=True):
    """Amounts of one meter in its base unit; spent in meter-seconds."""

    nominal: str
    reserved: str
    used: str
    spent: str


class Movement(Record, frozen=True, kw_only=True):
    """The effect of one transaction on one meter of a queue, and the balance after it."""

    sequence: int
    at: Time
    kind: str
    gang: str
    user: str
    reason: str
    hidden: bool
    meter: str
    change: Balance
    balance: Balance


class Statement(Listing, frozen=True, kw_only=True):
    """A period of a queue's account, the latest movement first. opening, closing: balances by meter."""

    queue: str
    start: Time
    end: Time
    opening: dict[str, Balance]
    closing: dict[str, Balance]
    items: list[Movement]


class Use(Record, frozen=True, kw_only=True):
    """The device-seconds of one group in one period, or the gang-seconds for which the gangs of a queue waited."""

    start: Time
    end: Time
    group: str
    seconds: int


class DeviceHours(Document, frozen=True, kw_only=True):
    """Device-seconds by period and group. by: what the groups are; step: what the periods are."""

    by: str
    step: str
    items: list[Use]


class DoneByGroup(Record, frozen=True, kw_only=True):
    """What the devices of a group did; null is not measured.

    allocated_seconds, measured_seconds: device-seconds. used_microseconds, idle_microseconds: of the measured ones,
    times a million. memory_peak_bytes: the most on one device.
    """

    group: str
    allocated_seconds: int
    measured_seconds: int
    used_microseconds: int | None
    idle_microseconds: int | None
    memory_peak_bytes: int | None


class UsedHours(Document, frozen=True, kw_only=True):
    """Allocated and used device-time. by: what the groups are; emptiest: the gangs with the most idle time."""

    by: str
    items: list[DoneByGroup]
    emptiest: list[DoneByGroup]


class WaitingTime(Document, frozen=True, kw_only=True):
    """Gang-seconds of waiting by period and queue. step: what the periods are."""

    step: str
    items: list[Use]


class Account(Record, frozen=True, kw_only=True):
    """A queue's account of one meter, in its base unit."""

    queue: str
    meter: str
    nominal: str
    reserved: str
    used: str


class Held(Record, frozen=True, kw_only=True):
    """What a gang held. Devices are driver/pool/device. hidden: as of a transaction."""

    gang: str
    queue: str
    user: str
    hidden: bool
    reserved_at: Time
    settled: bool
    pods: int
    nodes: list[str]
    charge: dict[str, str]
    devices: list[str]


class Past(Listing, frozen=True, kw_only=True):
    """The books at a past time: who held what, and the accounts. moment: null where none was asked for."""

    moment: Time | None
    sequence: int
    items: list[Held]
    accounts: list[Account]


def transaction(found: LedgerTransaction, *, hidden: bool) -> Transaction:
    """Return a transaction, as the visitor may read it."""
    entry = found.entry
    return Transaction(
        sequence=found.sequence,
        at=entry.at,
        kind=entry.kind,
        queue=entry.queue,
        gang="" if hidden else entry.gang,
        user="" if hidden else entry.user,
        reason="" if hidden else entry.reason,
        hidden=hidden,
        postings=list(map(_posting, entry.postings)),
    )


def _posting(posting: EntryPosting) -> Posting:
    return Posting(queue=posting.queue, meter=posting.meter, bucket=posting.bucket, amount=str(posting.amount))


def movement(line: ledger_queries.Line, *, hidden: bool) -> Movement:
    """Return a line of a statement, as the visitor may read it."""
    return Movement(
        sequence=line.sequence,
        at=line.at,
        kind=line.kind,
        gang="" if hidden else line.gang,
        user="" if hidden else line.user,
        reason="" if hidden else line.reason,
        hidden=hidden,
        meter=line.meter,
        change=_balance(line.change),
        balance=_balance(line.balance),
    )


def balances(statement: QueueStatement) -> tuple[dict[str, Balance], dict[str, Balance]]:
    """Return the balances by meter at the start and at the end of a statement."""
    opening, closing = (
        {str(meter): _balance(one) for meter, one in sorted(side.items())}
        for side in (statement.opening, statement.closing)
    )
    return opening, closing


def _balance(of: ledger_queries.Amounts) -> Balance:
    return Balance(**{name: str(amount) for name, amount in of._asdict().items()})


def use(found: ledger_queries.Use) -> list[Use]:
    """Return device-seconds, period by period, of groups that have any."""
    return [
        Use(start=period.start, end=period.end, group=group, seconds=values[at])
        for at, period in enumerate(found.periods)
        for group, values in sorted(found.amounts.items())
        if values[at]
    ]


def used(groups: Sequence[ledger_queries.UsedHours]) -> list[DoneByGroup]:
    """Return what the devices of groups did."""
    return [
        DoneByGroup(
            group=group.name,
            allocated_seconds=group.allocated,
            measured_seconds=group.measured,
            used_microseconds=group.used,
            idle_microseconds=group.idle,
            memory_peak_bytes=group.memory_peak,
        )
        for group in groups
    ]
