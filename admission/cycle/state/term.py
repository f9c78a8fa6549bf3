"""One term of leadership, and the settings that may change during it."""

from dataclasses import dataclass, field

from admission.api.kubernetes.pods import DEFAULT_SCHEDULER
from admission.scheduling.capacity.node_needs import Bounds

UNCONFIRMED = "a new leader first makes sure that it sees all that the one before it saw"
"""Why gangs are held and fences do not count before the view is confirmed."""


@dataclass(slots=True, kw_only=True)
class Term:
    """One term of leadership. actor: the author of ledger entries. epoch: the fencing token of the ledger's writes.

    The view is confirmed once it shows all that an earlier leader may have observed. Until then nothing follows from
    the absence of an object: only gangs without ledger entries are admitted; nothing is released, taken back, evicted
    or reported. Only the loop that runs the cycles changes a term, between two cycles.
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
    """The settings that may change during a term. steps: of one search for a plan. writes: concurrent ones.

    schedulers: the profiles of kube-scheduler whose decisions are predicted; node_needs: how much is asked about nodes
    that are not there; most_grants: of one cycle; these do not change.

    Rule: only `update` changes settings, between two cycles.
    """

    steps: int = 50_000
    writes: int = 32
    schedulers: frozenset[str] = frozenset({DEFAULT_SCHEDULER})
    node_needs: Bounds = field(default_factory=Bounds)
    most_grants: int = 64
    strands_least: bool = True
    """Whether nodes are ordered by what a pod strands there."""

    def update(self, *, steps: int, writes: int, strands_least: bool) -> None:
        """Have the next cycle use these."""
        self.steps, self.writes, self.strands_least = steps, writes, strands_least
