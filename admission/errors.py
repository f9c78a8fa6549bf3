"""Errors, named by what the reader has to do next.

A refusal (a hold, a denial) is a value, never an exception. What is raised here is unexpected: bad input that must be
fixed, a dependency that must be waited for, or a state that an operator has to look at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class MusterError(Exception):
    """The base of all errors that Muster raises on purpose."""


class FixError(MusterError):
    """The input or the installation is wrong; a retry does not help. The text names object, field and fix."""


class RetryError(MusterError):
    """A dependency is unavailable or busy; the same call may succeed later."""


class PageError(MusterError):
    """A guarantee of Muster is broken or cannot be kept; an operator has to look."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem of one field of one object.

    field: the path as Kubernetes writes it, `spec.quotas[0].nominal`; message: what is wrong, and what would be valid.
    """

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class MalformedObjectError(FixError):
    """A Kubernetes object cannot be decoded. problems: all that were found, not only the first."""

    def __init__(self, kind: str, name: str, problems: tuple[Problem, ...]) -> None:
        self.kind = kind
        self.name = name
        self.problems = problems
        super().__init__(f"{kind} {name}: " + "; ".join(map(str, problems)))


class JsonError(FixError):
    """A text is not JSON as Kubernetes writes it. The message says why."""


class TooMuchWorkError(FixError):
    """A review would take more work than it may. counts: of the work that it was charged for."""

    def __init__(self, message: str, counts: Mapping[str, int]) -> None:
        self.counts = counts
        super().__init__(message)


class AmountError(FixError):
    """An amount is not a whole number of the meter's base unit, or too large to be stored exactly."""


class LedgerUnavailableError(RetryError):
    """The ledger's database does not answer."""


class Share(Protocol):
    """The fields of an `api.muster.ledger_entries.BudgetShare` that BudgetTakenError reports."""

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


class CapacityBusyError(RetryError):
    """Too many others ask what would fit in a cluster."""


class ConflictError(RetryError):
    """The object changed since it was read."""


class ClockError(ConflictError):
    """An entry is older than the latest one in the ledger: a clock went back, or another's is ahead; load it again."""


class GoneError(MusterError):
    """The object is no longer there."""


class ForbiddenError(FixError):
    """Kubernetes refuses the call; the text names the missing permission."""
