"""The report of a cycle: every status that changed, Events on pods and queues, and the result."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from admission.accounting.memory_use import MemoryUse
from admission.api.device_use.memory import MemoryExceeded
from admission.api.muster.gangs import GangReport
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.values.names import GangUid, QueueName
from admission.cycle import events
from admission.cycle.executor import BackgroundExecutor
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.fences import FenceState
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.queues import QueueRegistry
from admission.cycle.state.result import CycleLog, CycleResult
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.status import OutcomeLog, StatusState
from admission.cycle.state.term import CycleSettings, Term
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import ledger_clock, limits, start_timeout
from admission.ports import Reports, Templates
from admission.review.caches import ReviewCaches
from admission.scheduling.backfill.policy import Backfill
from admission.scheduling.capacity.seat_moves import Turns
from admission.scheduling.checks import budget
from admission.scheduling.checks.chain import Grant
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.placement import protection_conditions
from admission.scheduling.preemption.victim_searches import VictimSearches
from admission.status import gang, later_waves, outside_queues
from admission.status.device_allocations import AllocationsByClaim, DeviceAllocations
from admission.status.idle_gangs import IdleGangs
from admission.status.later_waves import LaterWaves
from admission.status.node_shapes import ShapeStatus
from admission.status.nodes_needed import NodesNeededState
from admission.status.outside_queues import OutsideQueues

T = TypeVar("T")

Statuses = tuple[list[GangReport], Sequence[QueueReport], list[ConditionReport]]

DATABASE_RETRY = timedelta(seconds=5)
"""How long until a cycle tries the database again after it did not answer."""

POLL = timedelta(seconds=1)
"""How long until a cycle reads shared budgets that other clusters use, or fences that do not count yet, again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleReport:
    """Writes statuses and Events that changed."""

    reports: Reports
    templates: Templates
    settings: CycleSettings
    executor: BackgroundExecutor
    term: Term
    mirror: LedgerMirror
    fences: FenceState
    queues: QueueRegistry
    evictions: EvictionState
    in_flight: InFlight
    backfill: Backfill
    searches: VictimSearches
    policies: ReviewCaches
    cache: SchedulingCache
    statuses: StatusState
    outcomes: OutcomeLog
    outside: OutsideQueues
    allocations: DeviceAllocations | None
    idle: IdleGangs
    memory: MemoryUse
    later_waves: LaterWaves
    node_needs: NodesNeededState
    seat_turns: Turns
    shapes: ShapeStatus
    log: CycleLog

    async def report(self, inputs: CycleInputs, decided: CycleDecisions) -> CycleResult:
        """Write every status and Event that changed; return the result of the cycle."""
        changed = self.statuses.keep_decisions(inputs, decided.updated)
        # Off the event loop: with a thousand queues it takes most of a second.
        gangs, queues, conditions = await self.executor.run(self.make, inputs, changed)
        outside = await self.executor.run(self.outside.update, inputs.snapshot, inputs.meters.known)
        allocations = await self.executor.run(self._allocations, inputs)
        conditions = outside_queues.reported(conditions, inputs.snapshot.meters, outside)
        granted = [d.group.uid for d in decided.updated if isinstance(d.outcome, Grant)]
        statuses, is_confirmed, placements = self.statuses, self.term.is_confirmed, self.mirror.book.placements
        sure = gangs if is_confirmed else [one for one in gangs if one.uid not in placements]
        async with asyncio.TaskGroup() as tasks:
            if is_confirmed:
                tasks.create_task(self._write_gangs(inputs, gangs), name="report gangs")
            if self.mirror.is_complete and is_confirmed:
                tasks.create_task(_each(self.reports.queue, queues), name="report queues")
            tasks.create_task(_each(self.reports.conditions, conditions), name="report meters")
            held = events.gangs_held(self.reports, statuses.groups, statuses.due_holds(sure, inputs.clock))
            tasks.create_task(held, name="report holds")
            use = events.device_use(self.reports, statuses.groups, gangs)
            tasks.create_task(use, name="report what devices do")
            tasks.create_task(self._report_placement(inputs, granted), name="report placing")
        unposted = self.mirror.unposted
        has_more = self._has_more(inputs, granted, decided)
        return CycleResult(
            gangs=statuses.gangs,
            queues=tuple(queues),
            conditions=tuple(conditions),
            granted=tuple(granted),
            evicted={group.uid: why for group, why in self.log.evicted},
            protected=protection_conditions.holding_by_driver(self.fences.protections),
            decisions=self.outcomes.new_outcomes(decided.updated, gangs, self.log.evicted, statuses.groups, inputs.now),
            next_try=inputs.clock if has_more else self._next_try(inputs),
            behind=ledger_clock.lag(inputs.clock, inputs.now),
            unposted=len(unposted),
            lag=max(timedelta(0), inputs.now - unposted[0].at) if unposted else timedelta(0),
            defects=tuple(self.log.defects),
            outside=outside,
            allocations=allocations,
            scheduler=inputs.profile,
            groups=inputs.by_uid,
            snapshot=inputs.snapshot,
        )

    def make(self, inputs: CycleInputs, decided: Collection[GangUid]) -> Statuses:
        """Return the status of every gang that changed, and of every queue, meter and claim policy."""
        conditions = gang.conditions(
            inputs.snapshot,
            inputs.meters,
            health=self.cache.health,
            policies=self.policies.policies(inputs.snapshot),
            templates=self.templates.troubles(),
            shapes=self.shapes.conditions(inputs.snapshot, inputs.now),
        )
        balances = self.mirror.reported_balances(inputs)
        basis = gang.StatusInputs(
            snapshot=inputs.snapshot,
            book=self.mirror.book,
            tree=inputs.tree,
            decisions=self.statuses.decisions,
            backoffs=self.evictions.backoffs,
            evicted=self.evictions.evicted,
            answered=self.evictions.answered,
            budgets=budget.uses(inputs.tree, balances) if balances is not None else {},
            chosen=self.in_flight.modes,
            placement_holds=self.log.placement_holds,
            refused={name: refusal.message for name, refusal in self.queues.refusals.items()},
            protections=self.fences.protections,
            estimates=self.backfill.estimates,
            schedulers=self.settings.schedulers,
            later=self.later_waves.answers,
            needed=self.node_needs.needed,
            records_use=self.idle.records,
            over_memory=self._over_memory(inputs),
            idle=self.idle.reported(inputs.noted, inputs.tree.queues),
            scheduler=inputs.profile,
            now=inputs.clock,
        )
        gangs = self.statuses.make_gangs(inputs.by_uid, decided, basis, self.log.defects)
        return gangs, self.statuses.make_queues(basis), conditions

    def _over_memory(self, inputs: CycleInputs) -> Mapping[GangUid, MemoryExceeded]:
        """Return the gangs over their memory; before anything was read, those that their status names."""
        if self.memory.is_known or not self.idle.records:
            return self.memory.exceeding(inputs.now - self.idle.fresh)
        records = ((uid, group.record) for uid, group in inputs.noted.items())
        return {uid: record.memory for uid, record in records if record is not None and record.memory is not None}

    def _allocations(self, inputs: CycleInputs) -> AllocationsByClaim:
        if self.allocations is None:
            return {}
        return self.allocations.update(inputs.snapshot, self.mirror.book.placements, inputs.tree)

    async def _write_gangs(self, inputs: CycleInputs, changed: Iterable[GangReport]) -> None:
        due = self.statuses.due(changed, inputs.now, is_complete=self.mirror.is_complete)
        self.statuses.note_failed(await _each(self.reports.gang, due))

    async def _report_placement(self, inputs: CycleInputs, granted: Collection[GangUid]) -> None:
        """Emit changes of the protection of devices, and gangs that are not placed in the mode that they requested."""
        protections, queues = self.fences.protections, inputs.snapshot.queues.values()
        concerned = (queue for queue in queues if protection_conditions.matters(queue, protections))
        await events.fence_changes(self.reports, concerned, self.fences.report_changes())
        groups = (group for group in inputs.groups if group.uid in granted and group.pods) if granted else ()
        await events.placed_differently(self.reports, groups, self.in_flight.modes)
        self.in_flight.forget_released(self.mirror.book.placements)

    # When the next cycle is due.

    def _has_more(self, inputs: CycleInputs, granted: Sequence[GangUid], decided: CycleDecisions) -> bool:
        """Return whether another cycle has more to do, even if nothing changes."""
        cache = self.cache
        is_cut = bool((granted or inputs.first_in_next) and not decided.is_complete)
        return is_cut or bool(cache.health.left) or cache.plans.is_stale or self.searches.has_more

    def _next_try(self, inputs: CycleInputs) -> datetime | None:
        """Return the earliest future time at which a cycle is due by time alone.

        As when a back-off or a start timeout ends, or a mark is due. What is overdue and failed, as a refused eviction,
        is retried by the resync.
        """
        backoffs = self.evictions.backoffs.values()
        soon = [backoff.next_try for backoff in backoffs if backoff.next_try > inputs.clock]
        hold_at = self.statuses.next_hold
        if hold_at is not None:
            soon.append(hold_at)
        if self.node_needs.next is not None:
            soon.append(self.node_needs.next)
        if self.mirror.is_down:
            soon.append(inputs.clock + DATABASE_RETRY)
        if self.later_waves.has_more:
            soon.append(inputs.clock + later_waves.PACE)
        if self.log.budget_was_taken or self.fences.protections.soon or self.seat_turns.has_more:
            soon.append(inputs.clock + POLL)
        # The rest ends by the ledger's time, which advances once the clock has caught up with it.
        ends = [ledger_clock.next_mark(ledger_clock.budgets_of(inputs.tree.queues.values()), inputs.now)]
        if self.backfill.next is not None:
            # If a gang that should end by then has not, the reservation has to be moved.
            ends.append(self.backfill.next)
        for placement in (group.placement for group in inputs.granted):
            queue = inputs.snapshot.queues.get(QueueName(placement.queue)) if placement is not None else None
            if placement is not None and queue is not None:
                ends += start_timeout.ends(placement, queue, inputs.snapshot)
        ends += [one.until for one in self.evictions.returning.usage(inputs.snapshot.queues)]
        ends += limits.runtime_deadlines(self.mirror.book.placements.values(), inputs.tree)
        return min((*soon, *(end for end in ends if end > inputs.now)), default=None)


async def _each(write: Callable[[T], Awaitable[None]], reports: Iterable[T]) -> list[T]:
    """Write every report; return those that failed, for the next cycle. A failure does not change decisions."""
    failed = []
    for report in reports:
        try:
            await write(report)
        except GoneError:
            continue
        except (RetryError, FixError):
            failed.append(report)
    return failed
