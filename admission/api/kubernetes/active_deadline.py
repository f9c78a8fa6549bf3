"""After how long Kubernetes ends pods, or a workload's controller all of its pods: `activeDeadlineSeconds`."""

from datetime import timedelta

from admission.api.values.decoding import Reader

FIELD = "activeDeadlineSeconds"

LONGEST = 2**31 - 1
"""Seconds that the API server takes."""


def read(spec: Reader, name: str = FIELD) -> timedelta | None:
    """Return the deadline that a spec says; None where it says none."""
    seconds = spec.integer(name)
    return timedelta(seconds=seconds) if 0 < seconds <= LONGEST else None
