"""The inputs of a cycle: the snapshot with pending pods, the queue tree, compiled meters, and the gangs."""

from dataclasses import dataclass, replace
from datetime import datetime

from admission.api.snapshot import Snapshot
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.pending_pods import PendingPods
from admission.cycle.state.queues import QueueRegistry
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.lifecycle import ledger_clock
from admission.ports import Scheduler
from admission.scheduling.placement import protection
from admission.workloads.gang_cache import GangCache


@dataclass(frozen=True, slots=True, kw_only=True)
class InputBuilder:
    """Builds the inputs of a cycle, and updates them after the book or the snapshot has changed."""

    scheduler: Scheduler
    mirror: LedgerMirror
    queues: QueueRegistry
    pending: PendingPods
    in_flight: InFlight
    gangs: GangCache
    cache: SchedulingCache

    def with_pending(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with the expected pods of suspended workloads."""
        return self.pending.add_to(snapshot, self.mirror.book)

    def build(self, snapshot: Snapshot, clock: datetime) -> CycleInputs:
        """Return the inputs without gangs, which `regroup` adds once the book has caught up."""
        profile = self.scheduler.profile
        self.cache.use_profile(profile)
        meters = self.cache.meters(snapshot.meters)
        snapshot = protection.without_fences(snapshot)
        tree = self.queues.tree(snapshot)
        return CycleInputs(
            snapshot=snapshot,
            observed=self.cache.observe(snapshot, meters),
            tree=tree,
            meters=meters,
            now=ledger_clock.entry_time(clock, self.mirror.book),
            clock=clock,
            profile=profile,
        )

    def regroup(self, inputs: CycleInputs) -> CycleInputs:
        """Return the inputs with the gangs by the current book."""
        snapshot = self.pending.without_released(inputs.snapshot, self.mirror.book)
        if snapshot is not inputs.snapshot:
            observed = self.cache.observe(snapshot, inputs.meters)
            inputs = replace(inputs, snapshot=snapshot, observed=observed)
        groups = self.gangs.groups(inputs.snapshot, self.mirror.book.placements, self.in_flight.leaving)
        gangs = self.gangs
        return replace(
            inputs,
            groups=groups,
            by_uid=gangs.by_uid,
            granted=gangs.granted,
            requested=gangs.requested,
            noted=gangs.noted,
        )
