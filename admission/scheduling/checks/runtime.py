"""The declared run time of a gang, and the expected end of a running one; for backfill.

A gang declares it itself (`spec.runtime` of its Gang, `muster.dev/runtime` of its pods), or its queue does by default
(`defaultRuntime`). It is bounded by the queue's `maxRuntime`, and by `activeDeadlineSeconds` of its pods and of what
they belong to.

A gang that runs longer than expected is expected to run for as long again as it is late, at least a minute: so what
depends on its end is recomputed a logarithmic number of times.
"""

from datetime import datetime, timedelta

from admission.api.muster.queues import Queue
from admission.scheduling.checks import budget
from admission.workloads.gangs import Group

SECOND = timedelta(seconds=1)
"""Ends are compared by whole seconds: pods that start together do so within one."""

LATE = timedelta(minutes=1)
"""For how long at least a gang is expected to go on that should have ended."""


def declared_runtime(group: Group, queue: Queue | None) -> timedelta | None:
    """Return how long a gang runs at most once it has started; None where nobody says."""
    stated = budget.runtime_of(group) or (queue.default_runtime if queue is not None else None)
    longest = queue.max_runtime if queue is not None else None
    return min((one for one in (stated, longest, group.deadline) if one is not None), default=None)


def end(start: datetime, runtime: timedelta | None) -> datetime | None:
    """Return when a gang ends that starts then; None where nobody knows, or nobody will see it."""
    if runtime is None:
        return None
    try:
        return start + runtime
    except OverflowError:
        return None


def expected(stated: datetime, now: datetime) -> datetime:
    """Return the second in which a gang that runs now is expected to end. stated: when it should."""
    if stated > now:
        return max(floor_to_second(stated), floor_to_second(now) + SECOND)
    return floor_to_second(now + max(now - stated, LATE))


def floor_to_second(time: datetime) -> datetime:
    """Return the second that a time is in."""
    return time.replace(microsecond=0)
