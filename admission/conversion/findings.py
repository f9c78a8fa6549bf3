"""What converting an object found: what was changed, what rests on an assumption, what is left to mend by hand."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

MOST = 1000
"""Findings that are kept of one object; a slice may have thousands of devices that are all written alike."""


class Level(StrEnum):
    """What the reader has to do about a finding."""

    CHANGED = "changed"
    """Nothing: the same in other words."""

    CHECK = "check"
    """To look whether an assumption holds, which the message names."""

    LEFT = "left"
    """To mend it by hand: it stays as it is, since what it means today cannot be known here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding. field: the path in the object as it was read; message: what is written today, or the mend."""

    level: Level
    field: str
    message: str


@dataclass(slots=True)
class Findings:
    """The findings of one object, collected while it is changed."""

    found: list[Finding] = field(default_factory=list)

    def add(self, level: Level, path: str, message: str) -> None:
        """Keep a finding; after MOST of them only those that are worse than a change."""
        if len(self.found) < MOST or (level is not Level.CHANGED and len(self.found) < 2 * MOST):
            self.found.append(Finding(level=level, field=path, message=message))

    def changed(self, path: str, message: str) -> None:
        self.add(Level.CHANGED, path, message)

    def check(self, path: str, message: str) -> None:
        self.add(Level.CHECK, path, message)

    def left(self, path: str, message: str) -> None:
        self.add(Level.LEFT, path, message)


def worst(found: Iterable[Finding]) -> Level | None:
    """Return the level that asks most of the reader; None without findings."""
    levels = {one.level for one in found}
    return next((level for level in (Level.LEFT, Level.CHECK, Level.CHANGED) if level in levels), None)
