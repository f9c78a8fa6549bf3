"""A cache of limited size whose values expire."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Values by key, each for `seconds` after it was put; beyond `most` values, the oldest are dropped."""

    def __init__(self, *, seconds: float, most: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._entries: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value; None if there is none, or it has expired."""
        found = self._entries.get(key)
        if found is None:
            return None
        until, value = found
        if self._clock() >= until:
            del self._entries[key]
            return None
        return value

    def put(self, key: K, value: V) -> None:
        """Store a value from now on."""
        self._entries.pop(key, None)
        self._entries[key] = self._clock() + self._seconds, value
        while len(self._entries) > self._most:
            self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Remove a value."""
        self._entries.pop(key, None)
