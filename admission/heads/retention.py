"""Which heads are kept: fewer the older they are, so that their number is bounded.

The newest head of each interval is kept; intervals of one step are whole intervals of the step before it. So whatever
is dropped early would be dropped later anyway, and the newest head of all is always kept.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from admission.api.kubernetes.meta import EPOCH
from admission.heads.signed_head import SignedHead

STEPS = (
    (timedelta(hours=1), timedelta(minutes=1)),
    (timedelta(days=1), timedelta(minutes=15)),
    (timedelta(days=7), timedelta(hours=1)),
    (timedelta(days=366), timedelta(days=1)),
    (timedelta(days=3660), timedelta(days=28)),
)
"""For heads up to an age, the interval of which the newest one is kept. Older heads are dropped."""

MOST_FOREIGN = 100
"""Heads that name foreign transactions and are kept at any age; of more, the newest."""

MOST = sum(age // interval + 2 for age, interval in STEPS) + MOST_FOREIGN
"""Heads of one cluster that are kept at most."""


def retained(heads: Iterable[SignedHead], *, now: datetime) -> list[SignedHead]:
    """Return the heads to keep, of each cluster, in their order; repeated ones once."""
    by_cluster: dict[str, dict[bytes, SignedHead]] = {}
    for signed in heads:
        by_cluster.setdefault(signed.head.cluster, {})[signed.signature] = signed
    return [signed for _, found in sorted(by_cluster.items()) for signed in _retained(found.values(), now)]


def _retained(heads: Iterable[SignedHead], now: datetime) -> list[SignedHead]:
    ordered = sorted(heads, key=lambda signed: (signed.head.position, signed.signature))
    newest: dict[tuple[int, int], SignedHead] = {}
    for signed in ordered:
        step = _step(now - signed.head.at)
        if step is not None:
            newest[step, (signed.head.at - EPOCH) // STEPS[step][1]] = signed
    foreign = [signed for signed in ordered if signed.head.foreign][-MOST_FOREIGN:]
    kept = {signed.signature for signed in (*newest.values(), *foreign, *ordered[-1:])}
    return [signed for signed in ordered if signed.signature in kept]


def _step(age: timedelta) -> int | None:
    return next((number for number, (longest, _) in enumerate(STEPS) if age <= longest), None)
