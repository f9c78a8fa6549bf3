"""Time zones by name, from the package `tzdata`, so that the answer does not depend on the machine.

The files are read as code is: they belong to an installed package, never change while it runs, and a zone is read when
a text first names it and then kept, as the grammar is. To read all 600 at import would cost each start 100 ms.
"""

import datetime as dt
import functools
import re
import zoneinfo
from importlib import resources

from admission.dra.cel import failures

_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
_LONGEST = 64
_EARLIEST = dt.datetime(2, 1, 1, tzinfo=dt.UTC)
_LATEST = dt.datetime(9998, 12, 31, tzinfo=dt.UTC)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def offset(name: str, seconds: int) -> int:
    """Return a zone's offset from UTC, in seconds, at an instant. Raises EvaluationError for an unknown zone."""
    zone = _zone(name)
    if zone is None:
        raise failures.EvaluationError(f"unknown time zone {name[:_LONGEST]}")
    first, last = int((_EARLIEST - _EPOCH).total_seconds()), int((_LATEST - _EPOCH).total_seconds())
    instant = _EPOCH + dt.timedelta(seconds=min(max(seconds, first), last))
    found = instant.astimezone(zone).utcoffset()
    return int(found.total_seconds()) if found is not None else 0


@functools.lru_cache(maxsize=64)
def _zone(name: str) -> zoneinfo.ZoneInfo | None:
    if len(name) > _LONGEST or not _NAME.fullmatch(name):
        return None
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not file.is_file():
        return None
    with file.open("rb") as data:
        if data.read(4) != b"TZif":
            return None
        data.seek(0)
        return zoneinfo.ZoneInfo.from_file(data, key=name)
