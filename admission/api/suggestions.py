"""The names that exist, for messages about a name that does not: the nearest first, and few of them."""

import difflib
from collections.abc import Iterable
from itertools import islice

MOST_NAMED = 5
"""The most names in a message."""

MOST_COMPARED = 1_000
"""The most names that are compared; with more, those behind are neither named nor counted."""

LONGEST_NAME = 253
"""Characters of an object's name. What a user writes may be far longer, and is like none then."""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that are most like one, at most three."""
    found = list(islice(known, MOST_COMPARED))
    return difflib.get_close_matches(name, found, n=3) if len(name) <= LONGEST_NAME else []


def listed(name: str, known: Iterable[str]) -> str:
    """Return `b, a, c and 7 more`: names like the wanted one first, then the others in order; empty without any."""
    found = sorted(islice(known, MOST_COMPARED))
    close = nearest(name, found)
    ordered = [*close, *(other for other in found if other not in close)]
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return ", ".join(ordered[:MOST_NAMED]) + more
