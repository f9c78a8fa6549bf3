"""The findings of `muster doctor`: a verdict on each check, with the remedy if something is wrong."""

from dataclasses import dataclass
from enum import StrEnum

ASK_ADMINISTRATOR = "ask as an administrator, from a machine with such a kubeconfig"
"""The remedy if Muster's own account may not look at something that Muster itself does not need."""


class Verdict(StrEnum):
    """The result of a check. Only a failure needs a fix; a warning may be intended."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A finding. check: its name; message: what was seen; fix: the remedy."""

    check: str
    verdict: Verdict
    message: str
    fix: str = ""


def passed(check: str, message: str) -> Finding:
    """Return the finding that a check passed."""
    return Finding(check=check, verdict=Verdict.OK, message=message)


def warning(check: str, message: str, fix: str) -> Finding:
    """Return a warning, which may be intended."""
    return Finding(check=check, verdict=Verdict.WARNING, message=message, fix=fix)


def failed(check: str, message: str, fix: str) -> Finding:
    """Return the finding that something has to be fixed."""
    return Finding(check=check, verdict=Verdict.FAILED, message=message, fix=fix)


def skipped(check: str, message: str, fix: str = "") -> Finding:
    """Return the finding that a check was not possible."""
    return Finding(check=check, verdict=Verdict.SKIPPED, message=message, fix=fix)
