"""The ledger entries that follow from the observed cluster: marks, quota changes, settlements and releases."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from admission.accounting import books
from admission.api.muster.ledger_entries import Entry, Placement
from admission.api.values.names import Uid
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.result import CycleLog
from admission.cycle.state.term import Term
from admission.cycle.steps.deallocate import Deallocation
from admission.incremental import Inverted
from admission.lifecycle import ledger_clock, transitions
from admission.lifecycle.dirty import DirtyGangs
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerSync:
    """Derives ledger entries from observed changes."""

    term: Term
    mirror: LedgerMirror
    dirty: DirtyGangs
    claim_users: Inverted[Placement, Uid, Uid]
    evictions: EvictionState
    deallocation: Deallocation
    log: CycleLog

    async def catch_up(self, inputs: CycleInputs) -> None:
        """Record marks, quota changes, settlements and new allocations."""
        if not self.mirror.is_complete:
            return
        budgets = ledger_clock.budgets_of(inputs.tree.queues.values())
        for time in ledger_clock.marks(self.mirror.book, budgets, inputs.now):
            await self.mirror.record([books.usage(self.mirror.book, at=time, actor=self.mirror.actor)])

        followed: list[Entry] = []
        if self.term.is_confirmed:
            self._find_dirty(inputs)
            followed = self._allocated(inputs)
        await self.mirror.record([*self._quota_changes(inputs), *followed])

    def preload(self, inputs: CycleInputs) -> None:
        """Find the gangs that need no entries, so that the first cycle can skip them. Nothing is written."""
        self._find_dirty(inputs)
        self._allocated(inputs)
        self._released(inputs)
        self.dirty.mark_clean()

    async def release(self, inputs: CycleInputs) -> None:
        """Record releases of what is gone.

        A gang that has to be taken back, and could not be yet, is left as it is: its missing pods are the reason.
        """
        self._find_dirty(inputs)
        entries = self._released(inputs)
        self.dirty.mark_clean()
        safe_releases = await self.deallocation.safe_releases(inputs, entries)
        self.evictions.note_released(self.mirror.book.placements, safe_releases)
        await self.mirror.record(safe_releases)

    def _find_dirty(self, inputs: CycleInputs) -> None:
        book = self.mirror.book
        self.dirty.refresh(book, inputs.observed, self.claim_users.update(book.placements))

    def _allocated(self, inputs: CycleInputs) -> list[Entry]:
        """Return the entries for observed allocations: settlements, and adjustments of repeated allocations."""
        at, actor = inputs.now, self.mirror.actor

        def settlement(placement: Placement) -> Entry | None:
            return transitions.settlement(placement, inputs.observed, at=at, actor=actor)

        def adjustment(placement: Placement) -> Entry | None:
            return transitions.adjustment(placement, inputs.observed, at=at, actor=actor)

        return [*self._of_dirty(settlement), *self._of_dirty(adjustment)]

    def _released(self, inputs: CycleInputs) -> list[Entry]:
        book = self.mirror.book
        wanted = transitions.ClaimsInUse(self.claim_users.update(book.placements), book, inputs.observed)
        at, actor = inputs.now, self.mirror.actor

        def release(placement: Placement) -> Entry | None:
            if placement.gang_uid in inputs.taken_back and placement.seats:
                self.dirty.mark_followed(placement.gang_uid)
                return None
            return transitions.release(placement, inputs.observed, wanted, at=at, actor=actor)

        return self._of_dirty(release)

    def _of_dirty(self, follow: Callable[[Placement], Entry | None]) -> list[Entry]:
        """Return the entries for gangs that changed; after an unexpected exception a gang stays as it is booked."""
        entries: list[Entry] = []
        defects = self.log.defects
        for placement in self.dirty.placements(self.mirror.book):
            before = len(defects)
            found = faults.guard(During.FOLLOWING, placement.gang, partial(follow, placement), defects)
            if found is not None:
                entries.append(found)
            if found is not None or len(defects) > before:
                self.dirty.mark_followed(placement.gang_uid)
        return entries

    def _quota_changes(self, inputs: CycleInputs) -> Iterable[Entry]:
        """Yield a grant for every nominal quota that differs from the ledger's."""
        book, queues = self.mirror.book, inputs.snapshot.queues
        nominal = {(name, quota.meter): quota.nominal for name, queue in queues.items() for quota in queue.quotas}
        booked = {(account.queue, account.meter) for account in book.balances}
        for queue, meter in sorted({*nominal, *booked}):
            delta = nominal.get((queue, meter), 0) - book.nominal(queue, meter)
            if delta and ("Queue", queue) not in inputs.snapshot.malformed:
                yield books.grant(queue, meter, delta, at=inputs.now, actor=self.mirror.actor, after=book.sequence)
