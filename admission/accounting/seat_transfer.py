"""Transfer of seats and holdings in one entry of the books: from expected pods to created ones, or to other nodes."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from datetime import datetime

from admission.accounting import books
from admission.api.muster.ledger_entries import Entry, Holding, Kind, Placement, Seat
from admission.api.values.names import Uid

REASON = "the pods that were planned for have come"


def inherit(
    placement: Placement,
    *,
    gone: Collection[Uid],
    seats: Iterable[Seat],
    holdings: Iterable[Holding],
    at: datetime,
    actor: str,
    reason: str = REASON,
) -> Entry:
    """Return the entry that opens seats and holdings and closes those that they replace.

    gone: the UIDs of the replaced pods and claims. With one entry, nothing is free in between or charged twice.
    """
    closing = books.release(placement, pods=gone, claims=gone, at=at, actor=actor, reason=reason)
    opening = books.reserve(
        gang_uid=placement.gang_uid,
        gang=placement.gang,
        queue=placement.queue,
        seats=seats,
        holdings=holdings,
        at=at,
        actor=actor,
        reason=reason,
        on_behalf_of=placement.gang,
        user=placement.user,
    )
    closed, given_back = (closing.closes, closing.postings) if closing is not None else ((), ())
    return replace(
        opening,
        kind=Kind.ADJUST,
        key=f"{Kind.ADJUST}:{opening.key}",
        postings=(*given_back, *opening.postings),
        closes=closed,
    )
