"""Heads and keys for tests."""

import hashlib
from datetime import UTC, datetime, timedelta

from admission.heads import key_history
from admission.heads.key_history import KeyRing
from admission.heads.signed_head import Cause, Head, Range, SignedHead

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
RING = key_history.rotated(None, (), lifetime=timedelta(days=9000), now=AT - timedelta(days=8000))


def a_head(
    sequence: int = 7,
    *,
    epoch: int = 1,
    at: datetime = AT,
    cluster: str = "east",
    digest: str = "",
    cause: Cause = Cause.TIME,
    foreign: tuple[Range, ...] = (),
) -> Head:
    return Head(
        cluster=cluster,
        epoch=epoch,
        sequence=sequence,
        digest=digest or hashlib.sha256(str(sequence).encode()).hexdigest(),
        at=at,
        cause=cause,
        foreign=foreign,
    )


def a_signed_head(sequence: int = 7, *, ring: KeyRing = RING, at: datetime = AT, **fields: object) -> SignedHead:
    return key_history.sign(a_head(sequence, at=at, **fields), ring)  # type: ignore[arg-type]
