"""The declared run time of a gang, and the expected end of a running one; for backfill.

A gang declares its run time (`spec.runtime` of its Gang, `muster.dev/runtime` of its pods), or its queue has a default
(`defaultRuntime`). It is bounded by the queue's `maxRuntime`, and by `activeDeadlineSeconds` of its pods and their
owners.

A gang that is late is expected to run for as long again as it is late, at least a minute: so what depends on its end is
recomputed a logarithmic number of times.
"""

from datetime import datetime, timedelta

from admission.api.muster.queues import Queue
from admission.scheduling.checks import budget
from admission.workloads.gangs import Group

SECOND = timedelta(seconds=1)
"""Ends are compared by whole seconds: pods that start together do so within one."""

LATE = timedelta(minutes=1)
"""The least time for which a late gang is expected to go on."""


def declared_runtime(group: Group, queue: Queue | None) -> timedelta | None:
    """Return how long a gang runs at most once it has started; None if that is not declared."""
    stated = budget.runtime_of(group) or (queue.default_runtime if queue is not None else None)
    longest = queue.max_runtime if queue is not None else None
    return min((one for one in (stated, longest, group.deadline) if one is not None), default=None)


def end(start: datetime, runtime: timedelta | None) -> datetime | None:
    """Return when a gang that starts then ends; None if its run time is unknown or the end out of datetime's range."""
    if runtime is None:
        return None
    try:
        return start + runtime
    except OverflowError:
        return None


def expected(stated: datetime, now: datetime) -> datetime:
    """Return the second in which a running gang is expected to end. stated: its end by the declared run time."""
    if stated > now:
        return max(floor_to_second(stated), floor_to_second(now) + SECOND)
    return floor_to_second(now + max(now - stated, LATE))


def floor_to_second(time: datetime) -> datetime:
    """Return the time truncated to the second."""
    return time.replace(microsecond=0)
