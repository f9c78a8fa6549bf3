"""Texts that devices repeat, read once: amounts, versions, and whatever a pattern makes of them.

What costs more to read than to look up. Each table has an end: UUIDs never repeat.
"""

from collections.abc import Callable
from typing import Any

from admission.cel.library import quantities, semver

MAX_ENTRIES = 4_096


class TextCache(dict[str, Any]):
    """Results of a pure function of a text. What raises is not remembered."""

    __slots__ = ("_read",)

    def __init__(self, read: Callable[[str], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, text: str) -> Any:
        value = self._read(text)
        if len(self) < MAX_ENTRIES:
            self[text] = value
        return value


class ParseCache:
    """What one user of programs remembers of texts: amounts and versions."""

    def __init__(self) -> None:
        self.amounts = TextCache(quantities.parse)
        self.versions = TextCache(semver.parse)
