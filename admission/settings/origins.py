"""Where the value of a setting comes from."""

from dataclasses import dataclass
from enum import StrEnum


class Source(StrEnum):
    """What gives values, in order: each one goes before those above it."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    FLAG = "flag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a value stands. where: `muster.toml:12`, `MUSTER_LEDGER_URL`, `--database`; empty for a default."""

    source: Source
    where: str = ""

    def __str__(self) -> str:
        return self.where or str(self.source)


DEFAULT = Origin(source=Source.DEFAULT)
