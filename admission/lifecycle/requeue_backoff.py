"""The back-off of an evicted gang before it is requeued.

Back-offs end by the wall clock, not by the ledger's time, which stands still while the clock is behind it. If the clock
was ahead and is corrected, `bounded` bounds the wait by the length of the back-off.
"""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from admission.api.kubernetes.meta import EPOCH
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.values.reasons import Detail, EvictionReason, Hold, HoldReason
from admission.api.values.references import References
from admission.lifecycle import refusals as lifecycle_refusals
from admission.lifecycle.refusals import Refusals

MAX_WAIT = timedelta(days=3650)
"""A bound on what queues declare, so that times stay within the calendar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """The evictions of a gang: how often, and when it may be tried again.

    next_try: by the clock. wait: the length of the whole back-off; MAX_WAIT if unknown. since: the ledger's time of the
    last eviction; EPOCH if an earlier leader decided it. failure: why the gang could not be placed; "" if it was only
    late, or if an earlier leader decided. cause: why it was evicted although it could have
    run on. references: of the failure. refusals: where kube-scheduler did not bind its pods. of_joining: whether the
    gang runs on, and only pods that join it were taken back.
    """

    evictions: int
    next_try: datetime
    wait: timedelta = MAX_WAIT
    since: datetime = EPOCH
    failure: str = ""
    cause: EvictionReason | None = None
    references: References = ()
    refusals: Refusals = ()
    of_joining: bool = False

    def is_untried(self, placement: Placement | None) -> bool:
        """Return whether a gang that runs on has not been given another place since; otherwise it has done its work."""
        return self.of_joining and placement is not None and placement.reserved_at < self.next_try


def next_backoff(
    previous: Backoff | None,
    queue: Queue,
    *,
    clock: datetime,
    since: datetime,
    failure: str = "",
    cause: EvictionReason | None = None,
    refusals: Refusals = (),
) -> Backoff:
    """Return the back-off after one more eviction. refusals: of this try; those of earlier ones go on to count."""
    evictions = (previous.evictions if previous else 0) + 1
    wait = wait_after(evictions, queue)
    return Backoff(
        evictions=evictions,
        next_try=clock + wait,
        wait=wait,
        since=since,
        failure=failure,
        cause=cause,
        refusals=lifecycle_refusals.merged(previous.refusals if previous else (), refusals),
    )


def longest(backoff: Backoff, queue: Queue, clock: datetime) -> Backoff:
    """Return a back-off that has just begun and waits for the queue's `max` at once."""
    wait = min(queue.requeue.max, MAX_WAIT)
    return replace(backoff, next_try=clock + wait, wait=wait)


def wait_after(evictions: int, queue: Queue) -> timedelta:
    """Return how long a gang waits after its n-th eviction: base x 2^(n-1), at most the queue's `max`."""
    longest = min(queue.requeue.max, MAX_WAIT).total_seconds()
    doublings = min(max(evictions, 1) - 1, 62)
    return timedelta(seconds=min(queue.requeue.base.total_seconds() * 2**doublings, longest))


def bounded(backoff: Backoff, clock: datetime) -> Backoff:
    """Return a back-off that ends no later than one that begins now, since the clock may have been set back."""
    latest = clock + backoff.wait
    return backoff if backoff.next_try <= latest else replace(backoff, next_try=latest)


def hold(backoff: Backoff, queue: Queue, clock: datetime) -> Hold | None:
    """Return the hold of an evicted gang: until its next try, or for good after its last."""
    reason, cause = _reason_and_cause(backoff)
    limit = queue.requeue.limit
    if limit is not None and backoff.evictions > limit:
        message = (
            f"{cause}; it was taken back {backoff.evictions} times, and the queue allows {limit} new tries: "
            f"delete it, or raise spec.requeue.limit of queue {queue.name}"
        )
        return Hold(reason, message, {"evictions": backoff.evictions, "limit": limit}, backoff.references)
    if clock >= backoff.next_try:
        return None
    at = backoff.next_try.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    details: dict[str, Detail] = {"evictions": backoff.evictions, "nextTry": at}
    refused_on = lifecycle_refusals.nodes(backoff.refusals)
    if refused_on:
        details["refusedOn"] = refused_on
    times = "once" if backoff.evictions == 1 else f"{backoff.evictions} times"
    message = f"{cause} ({times} so far); it is tried again at {at}"
    return Hold(reason, message, details, backoff.references)


def _reason_and_cause(backoff: Backoff) -> tuple[HoldReason, str]:
    if backoff.cause is EvictionReason.RUNTIME_EXCEEDED:
        return HoldReason.RUNTIME_EXCEEDED, "ran longer than its queue allows"
    if backoff.cause is EvictionReason.DEVICES_IDLE:
        return HoldReason.DEVICES_IDLE, "left its devices idle for longer than its queue allows"
    if backoff.cause is EvictionReason.EVICTION_REQUESTED:
        return HoldReason.EVICTION_REQUESTED, "was taken back by request"
    if backoff.failure:
        return HoldReason.PLACEMENT_FAILED, f"it could not be placed: {backoff.failure}"
    refused = f": {lifecycle_refusals.text(backoff.refusals)}" if backoff.refusals else ""
    return HoldReason.START_TIMED_OUT, f"did not start in time{refused}"
