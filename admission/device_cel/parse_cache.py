"""The parse cache: quantities, versions and pattern matches of strings that many devices share.

It is for strings that cost more to parse than to look up. Its size is bounded, since UUIDs never repeat.
"""

from collections.abc import Callable
from typing import Any

from admission.cel.library import quantities, semver

MAX_ENTRIES = 4_096


class TextCache(dict[str, Any]):
    """The cached results of a pure function of a string. Exceptions are not cached."""

    __slots__ = ("_parse",)

    def __init__(self, parse: Callable[[str], Any]) -> None:
        super().__init__()
        self._parse = parse

    def __missing__(self, text: str) -> Any:
        value = self._parse(text)
        if len(self) < MAX_ENTRIES:
            self[text] = value
        return value


class ParseCache:
    """The parsed quantities and versions of one user of programs."""

    def __init__(self) -> None:
        self.amounts = TextCache(quantities.parse_shared)
        self.versions = TextCache(semver.parse)
