"""Signed heads: the end of a cluster's chain as its leader saw it, and the leader's signature.

The signature is Ed25519 (RFC 8032) over the bytes of one JSON array:

    ["muster.dev/signed-head/v1", cluster, epoch, sequence, digest, at, cause, [[first, last], ...], key]

`epoch`, `sequence`, `first` and `last` are integers, all other values are strings. `digest` is that of transaction
`sequence` (see `ledger.journal.hash_chain`), or 64 zeros where there is none. `at` is in UTC, to the microsecond:
`2026-03-01T12:00:00.000000+00:00`. The pairs are `foreign`, each from the first through the last transaction. The array
is serialized as in RFC 8785 (the JSON Canonicalization Scheme), as the ledger's own rows are: UTF-8, no blanks, and
only the escapes that JSON requires.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec

from admission.api.values import typed_json
from admission.errors import FixError

FORM = "muster.dev/signed-head/v1"

MOST_RANGES = 100
"""Ranges of foreign transactions in one head at most; what is over is in the last one."""

LARGEST = 2**63 - 1

Range = tuple[int, int]
"""Transactions, from the first through the last."""


class Cause(StrEnum):
    """Why a head was signed."""

    START = "start"
    """A leader has begun its term."""
    MARK = "mark"
    """The leader has written a usage entry."""
    CLOSING = "closing"
    """A period was closed."""
    FOREIGN = "foreign"
    """Another client than the leader has written."""
    TIME = "time"
    """Some time has passed since the head before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The end of a chain. epoch: of the leader that signs it; at: by its clock.

    foreign: the transactions since the head before that another client wrote during this leader's term.
    """

    cluster: str
    epoch: int
    sequence: int
    digest: str
    at: datetime
    cause: Cause
    foreign: tuple[Range, ...] = ()

    @property
    def position(self) -> tuple[int, int, datetime]:
        """Return what heads are ordered by: a leader of a later epoch may have a clock that is behind."""
        return self.epoch, self.sequence, self.at


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedHead:
    """A head with its signature. key: the id of the key that made it (see `key_history`)."""

    head: Head
    key: str
    signature: bytes


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """A signed head as JSON."""

    cluster: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    epoch: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    sequence: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
    digest: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    at: str
    cause: Cause
    foreign: Annotated[list[tuple[int, int]], msgspec.Meta(max_length=MOST_RANGES)] = []
    key: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")]
    signature: str


_encode = msgspec.json.Encoder().encode
_to_document = typed_json.converter(_Document)


def signed_bytes(head: Head, key: str) -> bytes:
    """Return the bytes that are signed."""
    return _encode(
        (
            FORM,
            head.cluster,
            head.epoch,
            head.sequence,
            head.digest,
            instant(head.at),
            head.cause.value,
            head.foreign,
            key,
        )
    )


def instant(at: datetime) -> str:
    """Return a moment as it is signed."""
    return at.astimezone(UTC).isoformat(timespec="microseconds")


def to_json(signed: SignedHead) -> dict[str, Any]:
    """Return a signed head as a JSON object."""
    head = signed.head
    return {
        "cluster": head.cluster,
        "epoch": head.epoch,
        "sequence": head.sequence,
        "digest": head.digest,
        "at": instant(head.at),
        "cause": head.cause.value,
        "foreign": [list(one) for one in head.foreign],
        "key": signed.key,
        "signature": base64.b64encode(signed.signature).decode(),
    }


def to_line(signed: SignedHead) -> bytes:
    """Return a signed head as one line of JSON, with its line end."""
    return _encode(to_json(signed)) + b"\n"


def from_json(document: object) -> SignedHead:
    """Return the signed head of a JSON object; its signature is not checked. Raises FixError."""
    try:
        found = _to_document(document)
        at = datetime.fromisoformat(found.at)
        signature = base64.b64decode(found.signature, validate=True)
    except (msgspec.ValidationError, ValueError, binascii.Error) as error:
        raise FixError(f"it is no signed head: {error}") from error
    if at.tzinfo is None:
        raise FixError("it is no signed head: `at` says no time zone")
    head = Head(
        cluster=found.cluster,
        epoch=found.epoch,
        sequence=found.sequence,
        digest=found.digest,
        at=at.astimezone(UTC),
        cause=found.cause,
        foreign=tuple(found.foreign),
    )
    return SignedHead(head=head, key=found.key, signature=signature)


def capped(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Return ascending ranges, MOST_RANGES at most: the last one then covers all that is left."""
    if len(ranges) <= MOST_RANGES:
        return tuple(ranges)
    return (*ranges[: MOST_RANGES - 1], (ranges[MOST_RANGES - 1][0], ranges[-1][1]))


def not_accepted(foreign: Iterable[Range], accepted: Sequence[Range]) -> Iterator[Range]:
    """Yield the parts of foreign ranges that are in no accepted one, in order."""
    for first, last in sorted(foreign):
        start = first
        for low, high in sorted(accepted):
            if low > last or high < start:
                continue
            if start < low:
                yield start, low - 1
            start = max(start, high + 1)
        if start <= last:
            yield start, last
