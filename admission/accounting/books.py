"""The rules of the books: the entry of each movement, and the book after it.

The leader builds entries here and posts them to a ledger; the ledger keeps the same projection in its tables. Every
entry sums to zero for each queue and meter. So at any time a queue's reserved and used amounts are the charges of its
open holdings, and its free amount is its nominal quota less both.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import NamedTuple, Self

from admission.accounting import accruals, entry_rules
from admission.accounting.accruals import Accrual, Change, QueueMeter
from admission.api.kubernetes.devices import RequestDevice
from admission.api.muster.ledger_entries import Bucket, Entry, Holding, Kind, Placement, Posting, Seat
from admission.api.values import quantities
from admission.api.values.names import GangUid, MeterName, QueueName, Uid
from admission.errors import ConflictError


class Account(NamedTuple):
    """The account of a balance."""

    queue: QueueName
    meter: MeterName
    bucket: Bucket


class Allocated(NamedTuple):
    """The allocated devices of a claim, their charge, and their number by class."""

    devices: Sequence[RequestDevice]
    charge: Mapping[MeterName, int]
    classes: Mapping[str, int] = MappingProxyType({})


class Use(NamedTuple):
    """A queue's reserved and used amounts of a meter, in its base unit."""

    reserved: int
    used: int


# Movements. A key identifies the movement, not the attempt: an entry that is posted again after a lost answer is the
# same movement. It includes the time of the reservation, since a claim or a gated pod may be reserved, released and
# reserved again under the same UIDs.


def grant(queue: QueueName, meter: MeterName, delta: int, *, at: datetime, actor: str, after: int = 0) -> Entry:
    """Change a queue's nominal quota by delta base units.

    after: `Book.sequence` of the book for which it is made. It is part of the key, since a quota may change to a value,
    back and to it again at one time of the books (which does not advance while the clock is behind): three movements.
    """
    return Entry(
        kind=Kind.GRANT,
        key=_key(Kind.GRANT, queue, meter, delta, _instant(at), after),
        at=at,
        actor=actor,
        reason=f"nominal quota of {meter} changed by {delta:+d}",
        queue=queue,
        postings=_lines(queue, meter, {Bucket.ENTITLEMENT: -delta, Bucket.FREE: delta}),
    )


def reserve(  # noqa: PLR0913 - the same
    *,
    gang_uid: GangUid,
    gang: str,
    queue: QueueName,
    seats: Iterable[Seat],
    holdings: Iterable[Holding],
    at: datetime,
    actor: str,
    reason: str,
    on_behalf_of: str,
    user: str = "",
) -> Entry:
    """Reserve a granted plan, or the part of it for pods created later. holdings: those not reserved before."""
    seats = tuple(sorted(seats, key=lambda seat: seat.pod_uid))
    holdings = tuple(sorted(holdings, key=lambda holding: holding.claim_uid))
    pods = [seat.pod_uid for seat in seats]
    claims = [holding.claim_uid for holding in holdings]
    return Entry(
        kind=Kind.RESERVE,
        key=_key(Kind.RESERVE, gang_uid, pods, claims, _instant(at)),
        at=at,
        actor=actor,
        reason=reason,
        queue=queue,
        on_behalf_of=on_behalf_of,
        user=user,
        gang_uid=gang_uid,
        gang=gang,
        postings=_moves(queue, holdings, Bucket.FREE, Bucket.RESERVED),
        seats=seats,
        holdings=holdings,
    )


def settle(placement: Placement, allocated: Mapping[Uid, Allocated], *, at: datetime, actor: str) -> Entry | None:
    """Replace the plan of unsettled claims by their actual allocations; None when none of them is unsettled."""
    planned = [holding for uid in sorted(allocated) if (holding := _unsettled(placement, uid))]
    if not planned:
        return None
    settled = tuple(_settled(holding, allocated[holding.claim_uid]) for holding in planned)
    key_parts = [(h.claim_uid, sorted(map(str, h.devices)), sorted(h.charge.items())) for h in settled]
    return Entry(
        kind=Kind.SETTLE,
        key=_key(Kind.SETTLE, placement.gang_uid, _instant(placement.reserved_at), key_parts),
        at=at,
        actor=actor,
        reason="the claims were allocated",
        queue=placement.queue,
        on_behalf_of=placement.gang,
        user=placement.user,
        gang_uid=placement.gang_uid,
        gang=placement.gang,
        postings=tuple(
            line
            for planned_holding, actual in zip(planned, settled, strict=True)
            for meter in sorted(planned_holding.charge.keys() | actual.charge.keys())
            for line in _settlement(placement.queue, planned_holding, actual, meter)
        ),
        holdings=settled,
    )


def release(
    placement: Placement,
    *,
    pods: Collection[Uid] = (),
    claims: Collection[Uid] = (),
    at: datetime,
    actor: str,
    reason: str,
) -> Entry | None:
    """Close the seats of deleted pods and the holdings of deleted claims; None when none of them is open."""
    closed_seats = sorted(placement.seats.keys() & set(pods))
    closed_holdings = sorted(placement.holdings.keys() & set(claims))
    if not closed_seats and not closed_holdings:
        return None
    return _closing(Kind.RELEASE, placement, closed_seats, closed_holdings, at=at, actor=actor, reason=reason)


def readjust(placement: Placement, allocated: Mapping[Uid, Allocated], *, at: datetime, actor: str) -> Entry | None:
    """Replace the holdings of settled claims that were deallocated and allocated again with other devices."""
    before = [placement.holdings[uid] for uid in sorted(allocated) if uid in placement.holdings]
    if not before:
        return None
    after = tuple(_settled(holding, allocated[holding.claim_uid]) for holding in before)
    key_parts = [(h.claim_uid, sorted(map(str, h.devices)), sorted(h.charge.items())) for h in (*before, *after)]
    return Entry(
        kind=Kind.ADJUST,
        key=_key(Kind.ADJUST, placement.gang_uid, _instant(at), key_parts),
        at=at,
        actor=actor,
        reason="the claims were allocated anew",
        queue=placement.queue,
        on_behalf_of=placement.gang,
        user=placement.user,
        gang_uid=placement.gang_uid,
        gang=placement.gang,
        postings=(
            *_moves(placement.queue, before, Bucket.USED, Bucket.FREE),
            *_moves(placement.queue, after, Bucket.FREE, Bucket.USED),
        ),
        holdings=after,
        closes=tuple(holding.claim_uid for holding in before),
    )


def adjust(reservation: Entry) -> Entry:
    """Record as used what a gang has in the cluster without a grant, from the reservation that it would have had."""
    holdings = tuple(replace(holding, settled=True) for holding in reservation.holdings)
    return replace(
        reservation,
        kind=Kind.ADJUST,
        key=_key(Kind.ADJUST, reservation.key),
        postings=_moves(reservation.queue, holdings, Bucket.FREE, Bucket.USED),
        holdings=holdings,
    )


def evict(placement: Placement, *, keep: Collection[Uid] = (), at: datetime, actor: str, reason: str) -> Entry:
    """Evict a gang: close all its seats and unsettled holdings. Allocated claims stay charged until their release.

    keep: claims for which pods of other gangs wait as well.
    """
    unsettled = sorted(uid for uid, holding in placement.holdings.items() if not holding.settled and uid not in keep)
    return _closing(Kind.EVICT, placement, sorted(placement.seats), unsettled, at=at, actor=actor, reason=reason)


def usage(book: "Book", *, at: datetime, actor: str) -> Entry | None:
    """Record the meter-seconds accrued up to the second of `at`; None when the books are marked until then.

    An entry without lines is a mark as well: there was no use since the previous one.
    """
    end = accruals.floor_to_second(at)
    if book.marked is not None and end <= book.marked:
        return None
    return Entry(
        kind=Kind.USAGE,
        key=_key(Kind.USAGE, _instant(book.marked) if book.marked else "", _instant(end)),
        at=end,
        actor=actor,
        reason="what was used since the mark before",
        queue=QueueName(""),
        postings=tuple(
            line
            for (queue, meter), seconds in sorted(book.accrued(end).items())
            for line in _lines(queue, meter, {Bucket.SUPPLY: -seconds, Bucket.SPENT: seconds})
        ),
    )


def _closing(
    kind: Kind, placement: Placement, pods: list[Uid], claims: list[Uid], *, at: datetime, actor: str, reason: str
) -> Entry:
    holdings = [placement.holdings[uid] for uid in claims]
    return Entry(
        kind=kind,
        key=_key(
            kind,
            placement.gang_uid,
            _instant(placement.reserved_at),
            pods,
            [(holding.claim_uid, holding.settled) for holding in holdings],
        ),
        at=at,
        actor=actor,
        reason=reason,
        queue=placement.queue,
        on_behalf_of=placement.gang,
        user=placement.user,
        gang_uid=placement.gang_uid,
        gang=placement.gang,
        postings=(
            *_moves(placement.queue, (h for h in holdings if not h.settled), Bucket.RESERVED, Bucket.FREE),
            *_moves(placement.queue, (h for h in holdings if h.settled), Bucket.USED, Bucket.FREE),
        ),
        closes=(*pods, *claims),
    )


def _unsettled(placement: Placement, claim: Uid) -> Holding | None:
    holding = placement.holdings.get(claim)
    return None if holding is None or holding.settled else holding


def _settled(planned: Holding, actual: Allocated) -> Holding:
    return replace(
        planned, devices=tuple(actual.devices), charge=dict(actual.charge), classes=dict(actual.classes), settled=True
    )


def _settlement(queue: QueueName, planned: Holding, actual: Holding, meter: MeterName) -> tuple[Posting, ...]:
    before, after = planned.charge.get(meter, 0), actual.charge.get(meter, 0)
    amounts = {Bucket.RESERVED: -before, Bucket.USED: after, Bucket.FREE: before - after}
    return _lines(queue, meter, amounts, claim=planned.claim_uid)


def _moves(queue: QueueName, holdings: Iterable[Holding], source: Bucket, target: Bucket) -> tuple[Posting, ...]:
    return tuple(
        line
        for holding in holdings
        for meter, amount in sorted(holding.charge.items())
        for line in _lines(queue, meter, {source: -amount, target: amount}, claim=holding.claim_uid)
    )


def _lines(
    queue: QueueName, meter: MeterName, amounts: Mapping[Bucket, int], *, claim: Uid = Uid("")
) -> tuple[Posting, ...]:
    """Return one line for each amount that is not zero. Raises AmountError when one is too large for the ledger."""
    return tuple(
        Posting(queue=queue, meter=meter, bucket=bucket, amount=quantities.checked(amount), claim=claim)
        for bucket, amount in amounts.items()
        if amount
    )


def _key(kind: Kind, *parts: object) -> str:
    return f"{kind}:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]}"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds")


# The projection.


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """The state after some entries: open placements by gang, non-zero balances by account.

    owners: the gang of each open seat or holding, by the UID of its pod or claim. sequence: the number of the latest
    entry in its chain. at: the time of that entry. marked: the time of the latest usage entry. accruals: the use since
    then, by queue and meter.
    """

    placements: Mapping[GangUid, Placement] = field(default_factory=dict)
    balances: Mapping[Account, int] = field(default_factory=dict)
    owners: Mapping[Uid, GangUid] = field(default_factory=dict)
    sequence: int = 0
    at: datetime | None = None
    marked: datetime | None = None
    accruals: Mapping[QueueMeter, Accrual] = field(default_factory=dict)

    @classmethod
    def with_placements(
        cls,
        placements: Iterable[Placement],
        balances: Mapping[Account, int],
        *,
        sequence: int = 0,
        at: datetime | None = None,
        marked: datetime | None = None,
        changes: Iterable[Change] = (),
    ) -> Self:
        """Return the book with these placements open. changes: the lines on what is used since the mark, in order."""
        by_gang = {placement.gang_uid: placement for placement in placements}
        return cls(
            placements=by_gang,
            balances={account: amount for account, amount in balances.items() if amount},
            owners={uid: gang for gang, open_ in by_gang.items() for uid in (*open_.seats, *open_.holdings)},
            sequence=sequence,
            at=at,
            marked=marked,
            accruals=accruals.accrued(_used(balances), marked, changes),
        )

    @classmethod
    def replay(cls, entries: Iterable[Entry]) -> "Book":
        """Return the book after all entries, in their order."""
        return cls().apply_all(entries)

    def apply(self, entry: Entry) -> "Book":
        """Return the book after one more entry. Raises ConflictError when the entry was made for another book."""
        return self.apply_all((entry,))

    def apply_all(self, entries: Iterable[Entry]) -> "Book":
        """Return the book after more entries, at the cost of one copy."""
        draft = EntryDraft(self)
        for entry in entries:
            draft.apply(entry)
        return draft.book()

    def balance(self, queue: QueueName, meter: MeterName, bucket: Bucket) -> int:
        """Return the balance of an account, in the bucket's unit; 0 if it has none."""
        return self.balances.get(Account(queue, meter, bucket), 0)

    def nominal(self, queue: QueueName, meter: MeterName) -> int:
        """Return the queue's nominal quota, which `grant` changes."""
        return -self.balance(queue, meter, Bucket.ENTITLEMENT)

    def accrued(self, at: datetime) -> dict[QueueMeter, int]:
        """Return the non-zero meter-seconds used from the mark to a time, by queue and meter."""
        found = {
            (queue, meter): accrual.until(at, self.balance(queue, meter, Bucket.USED)).seconds
            for (queue, meter), accrual in self.accruals.items()
        }
        return {key: seconds for key, seconds in found.items() if seconds}

    def usage(self) -> dict[QueueName, dict[MeterName, Use]]:
        """Return the reserved and used amounts by queue and meter, without those that are both zero."""
        usage: dict[QueueName, dict[MeterName, Use]] = {}
        for (queue, meter, bucket), amount in self.balances.items():
            if bucket is Bucket.RESERVED or bucket is Bucket.USED:
                before = usage.setdefault(queue, {}).get(meter, Use(0, 0))
                usage[queue][meter] = before._replace(**{bucket.value: amount})
        return usage


class EntryDraft:
    """A mutable book: many entries cost one copy. A refused entry leaves it unusable."""

    def __init__(self, book: Book) -> None:
        self._placements = dict(book.placements)
        self._balances = dict(book.balances)
        self._owners = dict(book.owners)
        self._sequence = book.sequence
        self._at = book.at
        self._marked = book.marked
        self._accruals = dict(book.accruals)

    def book(self) -> Book:
        """Return the book with the applied entries; the draft must not be used afterwards."""
        return Book(
            placements=self._placements,
            balances=self._balances,
            owners=self._owners,
            sequence=self._sequence,
            at=self._at,
            marked=self._marked,
            accruals=self._accruals,
        )

    def apply(self, entry: Entry) -> None:
        """Apply one entry. Raises as `entry_rules.check`, and ConflictError when it does not fit what is open."""
        entry_rules.check(entry)
        if entry.kind is Kind.USAGE:
            self._mark(entry)
        for posting in entry.postings:
            if posting.bucket is Bucket.USED:
                self._accrue((posting.queue, posting.meter), entry.at)
            self._add(posting)
        if entry.closes or entry.seats or entry.holdings:
            self._place(entry)
        self._sequence += 1
        self._at = entry.at if self._at is None else max(self._at, entry.at)

    def _accrue(self, key: QueueMeter, at: datetime) -> None:
        accrual = self._accruals.get(key) or accruals.begin(at, self._marked)
        self._accruals[key] = accrual.until(at, self._balances.get(Account(*key, Bucket.USED), 0))

    def _mark(self, entry: Entry) -> None:
        """Set the mark from a usage entry, which must record exactly the accrued use, and reset the accruals."""
        used = _used(self._balances)
        expected = {key: accrual.until(entry.at, used.get(key, 0)).seconds for key, accrual in self._accruals.items()}
        recorded = {(line.queue, line.meter): line.amount for line in entry.postings if line.bucket is Bucket.SPENT}
        if recorded != {key: seconds for key, seconds in expected.items() if seconds}:
            raise ConflictError(f"usage entry {entry.key} does not say what was used since the mark before it")
        self._marked = accruals.floor_to_second(entry.at)
        self._accruals = {key: Accrual(self._marked) for key in used}

    def _add(self, posting: Posting) -> None:
        account = Account(posting.queue, posting.meter, posting.bucket)
        amount = quantities.checked(self._balances.get(account, 0) + posting.amount)
        if amount:
            self._balances[account] = amount
        else:
            self._balances.pop(account, None)

    def _place(self, entry: Entry) -> None:
        """Close first, then open or settle: an adjustment may replace what is open."""
        placement = self._placements.pop(entry.gang_uid, None) or _empty_placement(entry)
        held_since = placement.held_since if placement.seats else entry.at

        if entry.closes:
            placement = self._with_closed(placement, entry)
        if entry.kind is Kind.SETTLE:
            placement = _with_settled(placement, entry)
        elif entry.seats or entry.holdings:
            placement = replace(self._with_opened(placement, entry), first_reserved=held_since)

        if placement.seats or placement.holdings:
            self._placements[entry.gang_uid] = placement

    def _with_closed(self, placement: Placement, entry: Entry) -> Placement:
        seats, holdings = dict(placement.seats), dict(placement.holdings)
        for uid in entry.closes:
            if seats.pop(uid, None) is None and holdings.pop(uid, None) is None:
                raise ConflictError(f"entry {entry.key} closes {uid}, which gang {entry.gang} does not have open")
            del self._owners[uid]
        return replace(placement, seats=seats, holdings=holdings) if seats or holdings else _empty_placement(entry)

    def _with_opened(self, placement: Placement, entry: Entry) -> Placement:
        if placement.queue != entry.queue:
            raise ConflictError(f"gang {entry.gang} is placed in queue {placement.queue}, not in {entry.queue}")
        seats = {seat.pod_uid: seat for seat in entry.seats}
        holdings = {holding.claim_uid: holding for holding in entry.holdings}
        for uid in (*seats, *holdings):
            if uid in self._owners:
                raise ConflictError(f"entry {entry.key} opens {uid}, which is open for gang {self._owners[uid]}")
            self._owners[uid] = entry.gang_uid
        # The latest reservation counts, so that pods created later have the full time to start.
        return replace(
            placement,
            reserved_at=entry.at,
            seats={**placement.seats, **seats},
            holdings={**placement.holdings, **holdings},
        )


def _used(balances: Mapping[Account, int]) -> dict[QueueMeter, int]:
    return {(queue, meter): amount for (queue, meter, bucket), amount in balances.items() if bucket is Bucket.USED}


def _empty_placement(entry: Entry) -> Placement:
    return Placement(gang_uid=entry.gang_uid, gang=entry.gang, queue=entry.queue, reserved_at=entry.at, user=entry.user)


def _with_settled(placement: Placement, entry: Entry) -> Placement:
    for holding in entry.holdings:
        if _unsettled(placement, holding.claim_uid) is None:
            raise ConflictError(f"entry {entry.key} settles claim {holding.claim}, which does not wait for it")
    return replace(
        placement, holdings={**placement.holdings, **{settled.claim_uid: settled for settled in entry.holdings}}
    )
