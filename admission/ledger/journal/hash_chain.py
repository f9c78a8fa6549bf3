"""The hash that chains a transaction to its predecessor.

Changing, removing, inserting or moving a row requires rewriting every later row and the head. The hash is SHA-256, in
lower-case hexadecimal digits, over the bytes of one JSON array. In format 2, the format of all rows written since
revision 0002 of the schema, the array is

    [2, cluster, epoch, sequence, previous,
     kind, key, at, actor, reason, queue, on_behalf_of, user, gang_uid, gang, seats, holdings, closes,
     [[queue, meter, bucket, amount, claim], ...]]

`epoch` and `sequence` are integers; all other values are the strings in the columns of `transactions` and, in the order
of their lines, of `postings`. `previous` is the predecessor's digest, or 64 zeros. `at` is in UTC, to the microsecond:
`2026-03-01T12:00:00.000000+00:00`. An amount is a decimal number without leading zeros. `seats`, `holdings` and
`closes` are the JSON of their columns as a string, not parsed. The array is serialized as in RFC 8785 (the JSON
Canonicalization Scheme): UTF-8, no blanks, and only the escapes that JSON requires, so that any language can recompute
the hash.

Earlier rows have format 1: an object with the same names, with seats, holdings and postings in the form of module
`encoding`, as canonical JSON in ASCII with sorted keys.
"""

import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from admission.api.muster.ledger_entries import Entry
from admission.ledger.journal import encoding

FORMAT = 2
"""The format of new rows."""

_encode = msgspec.json.Encoder().encode


class HashedFields(NamedTuple):
    """The hashed columns of an entry without its lines, as text, in their order."""

    kind: str
    key: str
    at: str
    actor: str
    reason: str
    queue: str
    on_behalf_of: str
    user: str
    gang_uid: str
    gang: str
    seats: str
    holdings: str
    closes: str


Line = tuple[str, str, str, str, str]
"""Queue, meter, bucket, amount and claim of a posting."""


def hashed(entry: Entry) -> HashedFields:
    return HashedFields(
        entry.kind.value,
        entry.key,
        instant(entry.at),
        entry.actor,
        entry.reason,
        entry.queue,
        entry.on_behalf_of,
        entry.user,
        entry.gang_uid,
        entry.gang,
        encoding.compact(encoding.of_seats(entry.seats)),
        encoding.compact(encoding.of_holdings(entry.holdings)),
        encoding.compact(entry.closes),
    )


def lines(entry: Entry) -> list[Line]:
    return [(line.queue, line.meter, line.bucket.value, str(line.amount), line.claim) for line in entry.postings]


def instant(at: datetime) -> str:
    """Return a moment as it is hashed, and as SQLite stores it."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def chained(  # noqa: PLR0917 - by position, since verification computes many
    cluster: str, epoch: int, sequence: int, previous: str, hashed: Sequence[str], lines: Sequence[Sequence[str]]
) -> str:
    """Return the digest of columns at their place in the chain of a cluster, in format 2."""
    return hashlib.sha256(document(cluster, epoch, sequence, previous, hashed, lines)).hexdigest()


def document(  # noqa: PLR0917 - the same
    cluster: str, epoch: int, sequence: int, previous: str, hashed: Sequence[str], lines: Sequence[Sequence[str]]
) -> bytes:
    """Return the bytes that format 2 hashes."""
    return _encode((FORMAT, cluster, epoch, sequence, previous, *hashed, lines))


def chained_before(  # noqa: PLR0917 - the same
    cluster: str, epoch: int, sequence: int, previous: str, hashed: Sequence[str], lines: Sequence[Sequence[str]]
) -> str:
    """Return the digest in format 1. Raises ValueError when a column of JSON holds other text."""
    fields: dict[str, Any] = {
        **dict(zip(HashedFields._fields, hashed, strict=True)),
        "cluster": cluster,
        "epoch": epoch,
        "sequence": sequence,
        "previous": previous,
        "postings": lines,
    }
    for name in ("seats", "holdings", "closes"):
        fields[name] = json.loads(fields[name])
    if not fields["user"]:
        del fields["user"]
    return hashlib.sha256(encoding.text(fields).encode()).hexdigest()


CHAINED = {1: chained_before, FORMAT: chained}


def digest(entry: Entry, *, cluster: str, epoch: int, sequence: int, previous: str, form: int = FORMAT) -> str:
    """Return the digest of an entry at its place in the chain of a cluster, in one of the formats."""
    return CHAINED[form](cluster, epoch, sequence, previous, hashed(entry), lines(entry))
