"""Errors, named by what the reader has to do next.

A refusal (a hold, a denial) is a value, never an exception. What is raised here is unexpected: bad input that must be
fixed, a dependency that must be waited for, or a state that a person has to look at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class MusterError(Exception):
    """Everything that Muster raises on purpose."""


class FixError(MusterError):
    """The input or the installation is wrong; trying again changes nothing. The text names object, field and fix."""


class RetryError(MusterError):
    """A dependency is away or busy; the same call may succeed later."""


class PageError(MusterError):
    """A promise is broken or cannot be kept; a person has to look."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with one field of one object.

    field: the path as Kubernetes writes it, `spec.quotas[0].nominal`; message: what is wrong and what would be right.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class MalformedObjectError(FixError):
    """A Kubernetes object that cannot be read; carries every problem found, not only the first."""

    def __init__(self, kind: str, name: str, problems: tuple[Problem, ...]) -> None:
        self.kind = kind
        self.name = name
        self.problems = problems
        super().__init__(f"{kind} {name}: " + "; ".join(map(str, problems)))


class JsonError(FixError):
    """A text that is not JSON as Kubernetes writes it; says what is wrong with it."""


class TooMuchWorkError(FixError):
    """A review would take more work than one may; counts: what it was charged for."""

    def __init__(self, message: str, counts: Mapping[str, int]) -> None:
        self.counts = counts
        super().__init__(message)


class AmountError(FixError):
    """An amount that is not a whole number of the meter's base unit, or too large to keep exactly."""


class LedgerUnavailableError(RetryError):
    """The ledger's database does not answer."""


class Share(Protocol):
    """What the error below tells of an `entries.BudgetShare`."""

    @property
    def queue(self) -> str: ...

    @property
    def meter(self) -> str: ...

    @property
    def start(self) -> datetime: ...


class BudgetTakenError(RetryError):
    """With this share, all clusters together would take more of a budget than its limit; nothing was written."""

    def __init__(self, share: Share) -> None:
        self.share = share
        super().__init__(
            f"the clusters that share the budget of {share.meter} of queue {share.queue} have taken too much of it"
        )


class DeposedError(MusterError):
    """Another leader has written with a later epoch; this process must stop deciding."""


class LedgerCorruptError(PageError):
    """The ledger's chain or a balance does not verify."""


class LedgerVersionError(FixError):
    """The ledger's schema is not the one that this program was built for."""


class ClusterUnavailableError(RetryError):
    """The Kubernetes API server does not answer."""


class ConflictError(RetryError):
    """The object changed since it was read."""


class ClockError(ConflictError):
    """An entry is older than the latest one in the ledger: a clock went back, or another's is ahead; load it again."""


class GoneError(MusterError):
    """The object is no longer there."""


class ForbiddenError(FixError):
    """Kubernetes refuses the call; the text names the missing permission."""
