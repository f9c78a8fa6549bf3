"""The order in which waiting gangs are looked at: priority first, then who has waited longest.

Whether a head that cannot start holds back those behind it (strict order) or not (best effort) is the caller's to
decide, queue by queue.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Protocol, TypeVar


class Waiting(Protocol):
    """What the order reads of a gang. key is `namespace/name`."""

    @property
    def priority(self) -> int: ...

    @property
    def queued_since(self) -> datetime: ...

    @property
    def key(self) -> str: ...


W = TypeVar("W", bound=Waiting)
Q = TypeVar("Q")


def rank(waiting: Waiting) -> tuple[int, datetime, str]:
    """Return the sort key: higher priority first, then the longer wait, then the name, so that no two are equal."""
    return (-waiting.priority, waiting.queued_since, waiting.key)


def in_order(waiting: Iterable[W]) -> list[W]:
    """Return all gangs in the order in which they are looked at."""
    return sorted(waiting, key=rank)


def heads(waiting: Iterable[W], queue_of: Callable[[W], Q]) -> list[W]:
    """Return the first gang of every queue, in order among themselves."""
    first: dict[Q, W] = {}
    for gang in in_order(waiting):
        first.setdefault(queue_of(gang), gang)
    return list(first.values())
