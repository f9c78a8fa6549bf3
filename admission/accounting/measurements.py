"""The entries that record measured use, and what each covers.

A measure entry moves nothing. It vouches for rows of measured use by their SHA-256 in its reason, as the entry of a
closing does for an archive. Its key names a page of the allocations of a time, so that each page is recorded once.
"""

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from admission.api.muster.ledger_entries import Entry, Kind, MeasuredPage, MeasuredUsage
from admission.api.values import quantities
from admission.api.values.names import QueueName

_KEY = re.compile(rf"{Kind.MEASURE}:(\S+Z)/(\S+Z)/(\d+)/(\d+)")

_encode = msgspec.json.Encoder().encode


def entry(page: MeasuredPage, rows: Sequence[MeasuredUsage], *, actor: str) -> Entry:
    """Return the entry of a page. Its time is the end of what was measured; the ledger dates it later if it has to.

    Raises AmountError when an amount is too large for the ledger.
    """
    return Entry(
        kind=Kind.MEASURE,
        key=f"{Kind.MEASURE}:{_second(page.start)}/{_second(page.end)}/{page.page}/{page.pages}",
        at=page.end,
        actor=actor,
        reason=reason(rows),
        queue=QueueName(""),
    )


def page_of(key: str) -> MeasuredPage | None:
    """Return the page that the key of an entry names; None if it is the key of another kind of entry."""
    found = _KEY.fullmatch(key)
    if found is None:
        return None
    start, end, page, pages = found.groups()
    return MeasuredPage(datetime.fromisoformat(start), datetime.fromisoformat(end), int(page), int(pages))


def reason(rows: Sequence[MeasuredUsage]) -> str:
    """Return the reason of the entry of some rows in their order, which has their digest.

    The digest is the SHA-256 of the JSON array of the rows (RFC 8785), each an array of the columns of `measured_usage`
    from `queue` on, with moments and amounts as text.
    """
    return reason_of([texts(row) for row in rows])


def reason_of(rows: Sequence[Sequence[str | None]]) -> str:
    """Return the reason for rows as they are hashed."""
    digest = hashlib.sha256(_encode(rows)).hexdigest()
    return f"what the devices of {len(rows)} allocations did (SHA-256 {digest})"


def texts(row: MeasuredUsage) -> list[str | None]:
    """Return the columns of a row as they are hashed. Raises AmountError when an amount is too large."""
    amounts = (row.measured_seconds, row.used_microseconds, row.memory_peak, row.powered_seconds, row.energy)
    return [
        row.queue,
        row.gang_uid,
        row.gang,
        row.user,
        row.claim_uid,
        row.claim,
        _second(row.start),
        _second(row.end),
        str(row.devices),
        *(None if amount is None else str(quantities.checked(amount)) for amount in amounts),
    ]


def _second(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
