"""The protection check: judged when a cycle begins, and again where it may have changed since."""

from dataclasses import dataclass
from datetime import datetime

from admission.api.snapshot import Snapshot
from admission.cycle.state.fences import FenceState
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.term import Term
from admission.ports import Fences, Scheduler, View


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtectionCheck:
    """Judges the protection of devices, and requests the fences that are wanted."""

    view: View
    barriers: Fences
    scheduler: Scheduler
    term: Term
    mirror: LedgerMirror
    fences: FenceState
    in_flight: InFlight

    def judge(self, snapshot: Snapshot, now: datetime) -> None:
        """Judge by a snapshot. now: by the wall clock, not the ledger's time."""
        profile = self.scheduler.profile
        wanted = self.fences.judge(
            snapshot,
            self.mirror.book.placements,
            barriers=self.barriers.observe(),
            opened=self.in_flight.opened,
            now=now,
            is_confirmed=self.term.is_confirmed,
            mismatch=profile.mismatch if profile is not None else "",
        )
        self.barriers.set_drivers(wanted)

    def judge_again(self) -> None:
        """Judge by the current view, as of the time of the last judgement, so that nothing counts any sooner."""
        self.judge(self.in_flight.apply_to(self.view.snapshot()), self.fences.judged_at)
