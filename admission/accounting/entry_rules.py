"""The rules that an entry must keep regardless of the book."""

from collections import defaultdict

from admission.api.muster.ledger_entries import Entry, Holding, Kind
from admission.api.values import quantities
from admission.api.values.names import MeterName, QueueName
from admission.errors import PageError


def check(entry: Entry) -> None:
    """Raise PageError for an entry that no book may hold, or AmountError for an amount that is too large."""
    if problem := _problem(entry):
        raise PageError(f"entry {entry.key or '(without a key)'} of queue {entry.queue}: {problem}")


def _problem(entry: Entry) -> str | None:
    if not entry.key:
        return "an entry needs a key"
    if entry.at.utcoffset() is None:
        return "its time has no time zone"
    return _unbalanced(entry) or _misused(entry)


def _unbalanced(entry: Entry) -> str | None:
    sums: defaultdict[tuple[QueueName, MeterName], int] = defaultdict(int)
    for posting in entry.postings:
        if posting.amount == 0:
            return f"a line of {posting.meter} has no amount"
        sums[posting.queue, posting.meter] += quantities.checked(posting.amount)
    for (queue, meter), total in sums.items():
        if total:
            return f"the lines of queue {queue} and meter {meter} sum to {total}, not to 0"
    return None


_OPENING = {Kind.RESERVE, Kind.ADJUST}
_WITH_HOLDINGS = {Kind.RESERVE, Kind.ADJUST, Kind.SETTLE}
_CLOSING = {Kind.RELEASE, Kind.EVICT, Kind.ADJUST}


def _misused(entry: Entry) -> str | None:
    opened = [*(seat.pod_uid for seat in entry.seats), *(holding.claim_uid for holding in entry.holdings)]
    if (opened or entry.closes) and not entry.gang_uid:
        return "seats and holdings belong to a gang, and it names none"
    if len(set(opened)) < len(opened) or len(set(entry.closes)) < len(entry.closes):
        return "it names a pod or claim twice"
    if (
        (entry.seats and entry.kind not in _OPENING)
        or (entry.holdings and entry.kind not in _WITH_HOLDINGS)
        or (entry.closes and entry.kind not in _CLOSING)
    ):
        return f"a {entry.kind} entry does not open or close that"
    return next(filter(None, (_wrong_holding(entry.kind, holding) for holding in entry.holdings)), None)


def _wrong_holding(kind: Kind, holding: Holding) -> str | None:
    if kind is not Kind.ADJUST and holding.settled is not (kind is Kind.SETTLE):
        return f"claim {holding.claim} has the wrong form for a {kind} entry"
    if any(quantities.checked(amount) < 0 for amount in holding.charge.values()):
        return f"claim {holding.claim} has a negative charge"
    return None
