"""The time after which Kubernetes ends a pod, or a controller all pods of a workload: `activeDeadlineSeconds`."""

from datetime import timedelta

from admission.api.values.decoding import Reader

FIELD = "activeDeadlineSeconds"

LONGEST = 2**31 - 1
"""The largest number of seconds that the API server accepts."""


def read(spec: Reader, name: str = FIELD) -> timedelta | None:
    """Return the deadline in a spec; None if it has none, or one that the API server would not accept."""
    seconds = spec.integer(name)
    return timedelta(seconds=seconds) if 0 < seconds <= LONGEST else None
