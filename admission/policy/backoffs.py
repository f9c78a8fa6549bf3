"""How long a gang that was evicted waits before it is tried again."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from admission.api.meta import EPOCH
from admission.api.queues import Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """What is remembered of a gang that was evicted: how often, and when it may be tried again.

    since: when the last eviction was decided; the beginning of time where an earlier leader decided it.
    """

    evictions: int
    next_try: datetime
    since: datetime = EPOCH


def following(before: Backoff | None, queue: Queue, now: datetime) -> Backoff:
    """Return when an evicted gang is tried again: base x 2^(n-1) after its n-th eviction, at most the queue's `max`."""
    evictions = (before.evictions if before else 0) + 1
    doublings = min(evictions - 1, 62)
    wait = min(queue.requeue.base.total_seconds() * 2**doublings, queue.requeue.max.total_seconds())
    return Backoff(evictions=evictions, next_try=now + timedelta(seconds=wait), since=now)
