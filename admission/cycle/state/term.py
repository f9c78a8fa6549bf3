"""One term of leadership, and the settings that may change during it."""

from dataclasses import dataclass, field

UNCONFIRMED = "a new leader first makes sure that it sees all that the one before it saw"
"""Why gangs wait and fences do not count before the view is confirmed."""


@dataclass(slots=True, kw_only=True)
class Term:
    """Who leads. actor: the author of ledger entries. epoch: the fencing token of the ledger's writes.

    The view is confirmed once it shows all that an earlier leader may have seen. Until then nothing is concluded from
    the absence of an object: only gangs without ledger entries are admitted; nothing is released, taken back, evicted
    or reported. Only the loop that runs the cycles changes a term, between two of them.
    """

    actor: str
    epoch: int
    _is_confirmed: bool = field(default=True, init=False)

    @property
    def is_confirmed(self) -> bool:
        return self._is_confirmed

    def begin(self, epoch: int) -> None:
        """Start a term with the epoch that the lease gives it."""
        self.epoch = epoch

    def await_confirmation(self) -> None:
        self._is_confirmed = False

    def confirm(self) -> None:
        self._is_confirmed = True


@dataclass(slots=True, kw_only=True)
class CycleSettings:
    """What an operator may change while a term lasts. steps: of one search for a plan. writes: at a time."""

    steps: int = 50_000
    writes: int = 32
