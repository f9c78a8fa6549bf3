"""Time zones by their IANA names, from the package `tzdata`, so that the result does not depend on the machine.

The files belong to an installed package and do not change while the process runs. A zone is read when it is first
named, and then cached, since reading all 600 at import would cost each start 100 ms.
"""

import difflib
import functools
import re
import zoneinfo
from importlib import resources

UTC = "UTC"

LONGEST = 64
"""Most characters of a name that is looked up; IANA's longest has 32."""

_NAME = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")


@functools.lru_cache(maxsize=128)
def find(name: str) -> zoneinfo.ZoneInfo | None:
    """Return a zone, or None when there is none of this name. Names are case-sensitive, as in Go."""
    if len(name) > LONGEST or not _NAME.fullmatch(name):
        return None
    file = resources.files("tzdata").joinpath("zoneinfo", *name.split("/"))
    if not file.is_file():
        return None
    with file.open("rb") as data:
        if data.read(4) != b"TZif":
            return None
        data.seek(0)
        return zoneinfo.ZoneInfo.from_file(data, key=name)


def near(name: str) -> tuple[str, ...]:
    """Return up to three names for a mistaken one: in another case, by the city alone, or misspelt."""
    folded_name = name[:LONGEST].casefold()
    by_folded_name = {known.casefold(): known for known in names()}
    cities = {key.rpartition("/")[2]: key for key in by_folded_name}
    found = [folded_name] if folded_name in by_folded_name else []
    found += [cities[city] for city in difflib.get_close_matches(folded_name, cities, n=1, cutoff=0.8)]
    found += difflib.get_close_matches(folded_name, by_folded_name, n=3, cutoff=0.8)
    return tuple(by_folded_name[key] for key in dict.fromkeys(found))[:3]


@functools.lru_cache(maxsize=1)
def names() -> tuple[str, ...]:
    """Return the names of all zones, in the order of the package."""
    return tuple(resources.files("tzdata").joinpath("zones").read_text("utf-8").split())
