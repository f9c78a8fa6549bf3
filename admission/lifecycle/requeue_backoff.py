"""How long an evicted gang waits before it is tried again.

Back-offs end by the wall clock, not by the time of the books, which stands still while the clock is behind it. After a
clock that was ahead is set right, `within` bounds the wait by the back-off itself.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from admission.api.kubernetes.meta import EPOCH
from admission.api.muster.queues import Queue
from admission.api.values.reasons import Detail, Hold, HoldReason

LONGEST = timedelta(days=3650)
"""However long a queue says: the calendar has an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """What is remembered of a gang that was evicted: how often, and when it may be tried again.

    next_try: by the clock. wait: how long the whole back-off is; LONGEST where nobody knows. since: when the last
    eviction was decided, by the books; the beginning of time where an earlier leader decided it. failure: what was in
    the way, where the gang was not just late; nobody knows it of what an earlier leader decided. overran: whether it
    ran for too long.
    """

    evictions: int
    next_try: datetime
    wait: timedelta = LONGEST
    since: datetime = EPOCH
    failure: str = ""
    overran: bool = False


def following(
    before: Backoff | None,
    queue: Queue,
    *,
    clock: datetime,
    since: datetime,
    failure: str = "",
    overran: bool = False,
) -> Backoff:
    """Return when an evicted gang is tried again: `wait_after` its n-th eviction."""
    evictions = (before.evictions if before else 0) + 1
    wait = wait_after(evictions, queue)
    return Backoff(evictions=evictions, next_try=clock + wait, wait=wait, since=since, failure=failure, overran=overran)


def wait_after(evictions: int, queue: Queue) -> timedelta:
    """Return how long a gang waits after its n-th eviction: base x 2^(n-1), at most the queue's `max`."""
    longest = min(queue.requeue.max, LONGEST).total_seconds()
    doublings = min(max(evictions, 1) - 1, 62)
    return timedelta(seconds=min(queue.requeue.base.total_seconds() * 2**doublings, longest))


def within(backoff: Backoff, clock: datetime) -> Backoff:
    """Return a back-off that ends no later than it would if it began now: the clock may have gone back since."""
    latest = clock + backoff.wait
    return backoff if backoff.next_try <= latest else replace(backoff, next_try=latest)


def hold(backoff: Backoff, queue: Queue, clock: datetime) -> Hold | None:
    """Return why an evicted gang waits: until its next try, and for good after its last."""
    reason, said = _said(backoff)
    limit = queue.requeue.limit
    if limit is not None and backoff.evictions > limit:
        message = (
            f"{said}; it was taken back {backoff.evictions} times, and the queue allows {limit} new tries: "
            f"delete it, or raise spec.requeue.limit of queue {queue.name}"
        )
        return Hold(reason, message, {"evictions": backoff.evictions, "limit": limit})
    if clock >= backoff.next_try:
        return None
    at = backoff.next_try.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    details: dict[str, Detail] = {"evictions": backoff.evictions, "nextTry": at}
    return Hold(reason, f"{said} ({backoff.evictions} so far); it is tried again at {at}", details)


def _said(backoff: Backoff) -> tuple[HoldReason, str]:
    if backoff.overran:
        return HoldReason.RUNTIME_EXCEEDED, "ran longer than its queue allows"
    if backoff.failure:
        return HoldReason.PLACEMENT_FAILED, f"it could not be placed: {backoff.failure}"
    return HoldReason.START_TIMED_OUT, "did not start in time"
