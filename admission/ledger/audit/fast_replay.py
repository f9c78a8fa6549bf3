"""A fast replay of books that are right.

A transaction's document (see `documents`) is hashed as it is, and only the parts that change the books are decoded.
`FastReplay` checks the same rules as `accounting.entry_rules` and `accounting.books.EntryDraft`, but reports only that
a transaction breaks one of them. `verify.Replay`, which uses those modules themselves, then finds the problem.
"""

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import msgspec

from admission.accounting.accruals import Accrual
from admission.accounting.books import Account, Book
from admission.api.kubernetes.devices import DeviceId, RequestDevice
from admission.api.muster.ledger_entries import Bucket, Holding, Kind, Placement, Seat
from admission.api.values import quantities
from admission.api.values.names import GangUid, MeterName, NodeName, QueueName, Uid
from admission.ledger.journal import documents, encoding, hash_chain
from admission.ledger.journal.documents import Document


class FallBackToExactError(Exception):
    """A transaction breaks a rule; the exact replay finds which one."""


class FastReplay:
    """The chain and the books up to the last transaction that was right."""

    def __init__(self, cluster: str, *, sequence: int, epoch: int, digest: str, book: Book) -> None:
        self.cluster = cluster
        self.sequence = sequence
        self.epoch = epoch
        self.digest = digest
        self.before = ""
        """The digest before the last one."""
        self._at = "" if book.at is None else hash_chain.instant(book.at)
        self._accounts = _Accounts(book)
        self._open = _Open(book)

    def follow(
        self, written: Sequence[bytes], on_transaction: Callable[[int, str, Document], None] | None = None
    ) -> bool:
        """Follow the chain up to the first transaction that does not continue it; return whether all of them do.

        on_transaction: called with the format, the digest and the document of each right transaction. Raises
        FallBackToExactError when a transaction breaks a rule of the books; this object is unusable afterwards.
        """
        for serialized in written:
            document = self._follow(serialized)
            if document is None:
                return False
            try:
                self._accounts.post(document)
                if document.closes != "[]" or document.holdings != "[]" or document.seats != "[]":
                    self._open.place(document)
            except ValueError as error:  # of a number or a time
                raise FallBackToExactError from error
            self._at = max(self._at, document.at)
            if on_transaction is not None:
                on_transaction(int(serialized.partition(b" ")[0]), self.digest, document)
        return True

    def book(self) -> Book:
        """Return the book: every balance, and the open gangs, seats and holdings."""
        placements = self._open.placements()
        return Book(
            placements=placements,
            balances=self._accounts.balances(),
            owners={
                uid: gang for gang, placement in placements.items() for uid in (*placement.seats, *placement.holdings)
            },
            sequence=self.sequence,
            at=datetime.fromisoformat(self._at) if self._at else None,
            marked=self._accounts.marked(),
            accruals=self._accounts.accruals(),
        )

    def _follow(self, written: bytes) -> Document | None:
        try:
            form, digest, text = written.split(b" ", 2)
            document = documents.read(text)
        except ValueError:
            return None
        computed = hashlib.sha256(text).hexdigest()
        if form != _FORMAT or computed.encode() != digest:  # another format, or the database serializes JSON otherwise
            computed = _digest(document, form)
        if (
            not text.startswith(b"[")
            or document.cluster != self.cluster
            or document.sequence != self.sequence + 1
            or document.epoch < self.epoch
            or document.previous != self.digest
            or computed.encode() != digest
        ):
            return None
        self.before, self.digest = self.digest, computed
        self.sequence, self.epoch = document.sequence, document.epoch
        return document


_FORMAT = b"%d" % hash_chain.FORMAT


def _digest(document: Document, form: bytes) -> str:
    """Return the digest in a format, recomputed from the decoded columns; empty if the format is unknown."""
    chained = hash_chain.CHAINED.get(int(form) if form.isdigit() else 0)
    if chained is None:
        return ""
    _, cluster, epoch, sequence, previous, *said, lines = msgspec.structs.astuple(document)
    try:
        return chained(cluster, epoch, sequence, previous, said, lines)
    except ValueError:
        return ""


class _Accounts:
    """Balances, and the use accrued since the latest mark."""

    def __init__(self, book: Book) -> None:
        self._amounts: dict[tuple[str, str, str], int] = {
            (account.queue, account.meter, account.bucket.value): amount for account, amount in book.balances.items()
        }
        self._marked = None if book.marked is None else int(book.marked.timestamp())
        self._accrued: dict[tuple[str, str], tuple[int, int]] = {
            (queue, meter): (int(accrual.since.timestamp()), accrual.seconds)
            for (queue, meter), accrual in book.accruals.items()
        }

    def post(self, document: Document) -> None:
        """Post the lines of a transaction."""
        if document.kind not in _KINDS or not document.key:
            raise FallBackToExactError
        if document.kind == _USAGE:
            self._mark(document)
        amounts, second = self._amounts, 0
        sums: dict[tuple[str, str], int] = {}
        for queue, meter, bucket, text, _ in document.lines:
            amount = int(text)
            account, key = (queue, meter, bucket), (queue, meter)
            if bucket == _USED:
                second = second or _second(document.at)
                self._accrue(key, second)
            before = amounts.get(account)
            if before is None and bucket not in _BUCKETS:
                raise FallBackToExactError
            amounts[account] = now = (before or 0) + amount
            sums[key] = sums.get(key, 0) + amount
            if not amount or amount > _LIMIT or amount < -_LIMIT or now > _LIMIT or now < -_LIMIT:
                raise FallBackToExactError
        if any(sums.values()):
            raise FallBackToExactError

    def _accrue(self, key: tuple[str, str], second: int) -> None:
        accrued = self._accrued.get(key)
        if accrued is None:
            self._accrued[key] = max(second, self._marked or second), 0
            return
        since, seconds = accrued
        end = max(since, second)
        seconds += self._amounts.get((*key, _USED), 0) * (end - since)
        if not -_LIMIT <= seconds <= _LIMIT:
            raise FallBackToExactError
        self._accrued[key] = end, seconds

    def _mark(self, document: Document) -> None:
        second = _second(document.at)
        for key in self._accrued:
            self._accrue(key, second)
        expected = {key: seconds for key, (_, seconds) in self._accrued.items() if seconds}
        recorded = {(queue, meter): int(text) for queue, meter, bucket, text, _ in document.lines if bucket == _SPENT}
        if recorded != expected:
            raise FallBackToExactError
        self._marked = second
        self._accrued = {
            (queue, meter): (second, 0)
            for (queue, meter, bucket), amount in self._amounts.items()
            if bucket == _USED and amount
        }

    def balances(self) -> dict[Account, int]:
        return {
            Account(QueueName(queue), MeterName(meter), Bucket(bucket)): amount
            for (queue, meter, bucket), amount in self._amounts.items()
            if amount
        }

    def marked(self) -> datetime | None:
        return None if self._marked is None else datetime.fromtimestamp(self._marked, UTC)

    def accruals(self) -> dict[tuple[QueueName, MeterName], Accrual]:
        return {
            (QueueName(queue), MeterName(meter)): Accrual(datetime.fromtimestamp(since, UTC), seconds)
            for (queue, meter), (since, seconds) in self._accrued.items()
        }


_KINDS = frozenset(kind.value for kind in Kind)
_BUCKETS = frozenset(bucket.value for bucket in Bucket)
_USAGE, _SETTLE, _ADJUST = Kind.USAGE.value, Kind.SETTLE.value, Kind.ADJUST.value
_USED, _SPENT = Bucket.USED.value, Bucket.SPENT.value
_LIMIT = quantities.LIMIT


def _second(at: str) -> int:
    return int(datetime.fromisoformat(at).timestamp())


class _Seat(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    pod_uid: str
    pod: str
    node: str
    claims: tuple[str, ...]
    asked_as: str = ""


class _Holding(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    claim_uid: str
    claim: str
    devices: tuple[tuple[str, str, str, str], ...]
    charge: dict[str, str]
    settled: bool
    classes: dict[str, int] = {}


_seats = msgspec.json.Decoder(tuple[_Seat, ...]).decode
_holdings = msgspec.json.Decoder(tuple[_Holding, ...]).decode
_uids = msgspec.json.Decoder(tuple[str, ...]).decode


class _Gang:
    """A gang with open seats or holdings; open: their number."""

    __slots__ = ("gang", "open", "queue", "reserved_at", "user")

    def __init__(self, gang: str, queue: str, user: str, reserved_at: str) -> None:
        self.gang = gang
        self.queue = queue
        self.user = user
        self.reserved_at = reserved_at
        self.open = 0


class _Open:
    """The open gangs, and the seats and holdings by their own UID, each with the UID of its gang."""

    def __init__(self, book: Book) -> None:
        self._gangs: dict[str, _Gang] = {}
        self._seats: dict[str, tuple[str, _Seat]] = {}
        self._holdings: dict[str, tuple[str, _Holding]] = {}
        for uid, placement in book.placements.items():
            gang = self._gangs[uid] = _Gang(
                placement.gang, placement.queue, placement.user, hash_chain.instant(placement.reserved_at)
            )
            for seat in _seats(encoding.compact(encoding.of_seats(placement.seats.values()))):
                self._seats[seat.pod_uid] = uid, seat
            for holding in _holdings(encoding.compact(encoding.of_holdings(placement.holdings.values()))):
                self._holdings[holding.claim_uid] = uid, holding
            gang.open = len(placement.seats) + len(placement.holdings)

    def place(self, document: Document) -> None:
        """Close first, then open or settle, as `EntryDraft` does."""
        if not document.gang_uid:
            raise FallBackToExactError
        if document.closes != "[]":
            self._close(document, _uids(document.closes))
        seats = _seats(document.seats) if document.seats != "[]" else ()
        holdings = _holdings(document.holdings) if document.holdings != "[]" else ()
        if document.kind == _SETTLE and not seats:
            self._settle(document.gang_uid, holdings)
        elif seats or holdings:
            self._add(document, seats, holdings)

    def _close(self, document: Document, uids: Sequence[str]) -> None:
        gang = self._gangs.get(document.gang_uid)
        if gang is None or document.kind not in _CLOSING:
            raise FallBackToExactError
        for uid in uids:
            owner, _ = self._seats.pop(uid, None) or self._holdings.pop(uid, None) or ("", None)
            if owner != document.gang_uid:
                raise FallBackToExactError
        gang.open -= len(uids)
        if not gang.open:
            del self._gangs[document.gang_uid]

    def _settle(self, gang: str, holdings: Sequence[_Holding]) -> None:
        for holding in holdings:
            owner, planned = self._holdings.get(holding.claim_uid, ("", holding))
            if owner != gang or planned.settled or not holding.settled or not _is_valid(holding):
                raise FallBackToExactError
            self._holdings[holding.claim_uid] = gang, holding

    def _add(self, document: Document, seats: Sequence[_Seat], holdings: Sequence[_Holding]) -> None:
        uid = document.gang_uid
        gang = self._gangs.get(uid)
        if gang is None:
            gang = self._gangs[uid] = _Gang(document.gang, document.queue, document.user, document.at)
        if gang.queue != document.queue or document.kind not in _OPENING:
            raise FallBackToExactError
        for seat in seats:
            self._check_not_open(seat.pod_uid)
            self._seats[seat.pod_uid] = uid, seat
        for holding in holdings:
            self._check_not_open(holding.claim_uid)
            if (holding.settled and document.kind != _ADJUST) or not _is_valid(holding):
                raise FallBackToExactError
            self._holdings[holding.claim_uid] = uid, holding
        gang.open += len(seats) + len(holdings)
        gang.reserved_at = document.at

    def _check_not_open(self, uid: str) -> None:
        if uid in self._seats or uid in self._holdings:
            raise FallBackToExactError

    def placements(self) -> dict[GangUid, Placement]:
        seats: dict[str, dict[Uid, Seat]] = {uid: {} for uid in self._gangs}
        holdings: dict[str, dict[Uid, Holding]] = {uid: {} for uid in self._gangs}
        for pod, (gang, seat) in self._seats.items():
            seats[gang][Uid(pod)] = _seat(seat)
        for claim, (gang, holding) in self._holdings.items():
            holdings[gang][Uid(claim)] = _holding(holding)
        return {
            GangUid(uid): Placement(
                gang_uid=GangUid(uid),
                gang=gang.gang,
                queue=QueueName(gang.queue),
                user=gang.user,
                reserved_at=datetime.fromisoformat(gang.reserved_at),
                seats=seats[uid],
                holdings=holdings[uid],
            )
            for uid, gang in self._gangs.items()
        }


_OPENING = (Kind.RESERVE.value, Kind.ADJUST.value)
_CLOSING = (Kind.RELEASE.value, Kind.EVICT.value, Kind.ADJUST.value)


def _is_valid(holding: _Holding) -> bool:
    return all(0 <= int(amount) <= _LIMIT for amount in holding.charge.values())


def _seat(seat: _Seat) -> Seat:
    return Seat(
        pod_uid=Uid(seat.pod_uid),
        pod=seat.pod,
        node=NodeName(seat.node),
        claims=tuple(map(Uid, seat.claims)),
        asked_as=NodeName(seat.asked_as),
    )


def _holding(holding: _Holding) -> Holding:
    return Holding(
        claim_uid=Uid(holding.claim_uid),
        claim=holding.claim,
        devices=tuple(RequestDevice(request=request, device=DeviceId(*device)) for request, *device in holding.devices),
        charge={MeterName(meter): int(amount) for meter, amount in holding.charge.items()},
        settled=holding.settled,
        classes=dict(holding.classes),
    )
