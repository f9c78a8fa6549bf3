"""Answers that are remembered for a while, and never more of them than a bound."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memory(Generic[K, V]):
    """Values by key for `seconds` after each was put; of more than `most`, the oldest are forgotten."""

    def __init__(self, *, seconds: float, most: int, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return the value; None when there is none that is young enough."""
        found = self._kept.get(key)
        if found is None:
            return None
        until, value = found
        if self._clock() >= until:
            del self._kept[key]
            return None
        return value

    def put(self, key: K, value: V) -> None:
        """Remember a value from now on."""
        self._kept.pop(key, None)
        self._kept[key] = self._clock() + self._seconds, value
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget a value."""
        self._kept.pop(key, None)
