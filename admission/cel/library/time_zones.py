"""The UTC offset of a time zone, for the accessors of timestamps."""

import datetime as dt

from admission.api.values import time_zones
from admission.cel.core import errors

_EARLIEST = dt.datetime(2, 1, 1, tzinfo=dt.UTC)
_LATEST = dt.datetime(9998, 12, 31, tzinfo=dt.UTC)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def offset(name: str, seconds: int) -> int:
    """Return a zone's offset from UTC, in seconds, at an instant. Raises EvaluationError for an unknown zone."""
    zone = time_zones.find(name)
    if zone is None:
        raise errors.EvaluationError(f"unknown time zone {name[: time_zones.LONGEST]}")
    first, last = int((_EARLIEST - _EPOCH).total_seconds()), int((_LATEST - _EPOCH).total_seconds())
    instant = _EPOCH + dt.timedelta(seconds=min(max(seconds, first), last))
    found = instant.astimezone(zone).utcoffset()
    return int(found.total_seconds()) if found is not None else 0
