"""What `muster doctor` finds: a verdict on each thing that it looks at, with the mend where something is wrong."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a thing is. Only what has failed needs mending; a warning tells what may be meant so."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One of them. check: what was looked at; message: what was seen; mend: what to do about it."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""


def fine(check: str, message: str) -> Finding:
    """Return that something is as it should be."""
    return Finding(check=check, verdict=Verdict.OK, message=message)


def odd(check: str, message: str, fix: str) -> Finding:
    """Return that something may be meant so, or not."""
    return Finding(check=check, verdict=Verdict.WARNING, message=message, fix=fix)


def wrong(check: str, message: str, fix: str) -> Finding:
    """Return that something has to be mended."""
    return Finding(check=check, verdict=Verdict.FAILED, message=message, fix=fix)


def unknown(check: str, message: str, fix: str = "") -> Finding:
    """Return that something could not be looked at."""
    return Finding(check=check, verdict=Verdict.SKIPPED, message=message, fix=fix)
