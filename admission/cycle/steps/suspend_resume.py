"""Suspended workloads: resuming them once their gangs have slots, and handing the slots over to their pods.

The slot of an expected pod is in the ledger, so no other gang gets it. Only the workload is written here, and may be
written twice. Its pods are created with gates like all pods, so none starts too early, whatever happens to the workload
in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from admission.accounting import books
from admission.api.muster.ledger_entries import Entry
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import events
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.pending_pods import PendingPods
from admission.cycle.state.result import CycleLog
from admission.errors import FixError, GoneError, MusterError, RetryError
from admission.ports import Reports, Workloads
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.workloads import pod_replacement, suspendable
from admission.workloads.gangs import Group
from admission.workloads.pod_replacement import Mismatch
from admission.workloads.suspendable import Workload


def is_expected(group: Group) -> bool:
    """Return whether a gang has slots for pods that its workload has still to create."""
    return bool(pod_replacement.expected(group))


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendResume:
    """Suspends and resumes workloads."""

    workloads: Workloads
    reports: Reports
    mirror: LedgerMirror
    in_flight: InFlight
    pending: PendingPods
    writer: BulkWriter
    log: CycleLog

    async def resume(self, inputs: CycleInputs, groups: Sequence[Group]) -> dict[GangUid, Hold]:
        """Resume the workloads of gangs that have slots; return holds for those that could not be resumed."""
        holds: dict[GangUid, Hold] = {}
        found = [(group, one) for group in groups for one in _workloads(group, inputs.snapshot)]
        self.in_flight.forget_seen_workloads(inputs.snapshot)

        async def start(pair: tuple[Group, Workload]) -> None:
            group, workload = pair
            if workload.is_started or self.in_flight.is_resumed(workload.meta.uid, workload.obj):
                return
            try:
                await self.workloads.start(workload.kind.suspendable(workload.meta))
                self.in_flight.assume_resumed(workload.meta.uid, workload.obj)
            except GoneError:
                return
            except (RetryError, FixError) as error:
                holds[group.uid] = _not_resumed(workload, error)

        await self.writer.each(found, start)
        return holds

    async def suspend_again(self, inputs: CycleInputs) -> None:
        """Suspend workloads that other clients resumed while the webhook did not run."""
        if not self.pending.loose:
            return
        groups = [group for group in inputs.groups if group.placement]
        placed = {group.identity.workload.uid for group in groups if group.identity.workload}
        placed |= {names.workload_of(pod.meta.uid) for group in groups for pod in pod_replacement.expected(group)}

        async def suspend(workload: Workload) -> None:
            try:
                await self.workloads.hold(workload.kind.suspendable(workload.meta))
            except (RetryError, FixError, GoneError):
                return

        await self.writer.each([one for one in self.pending.loose if one.meta.uid not in placed], suspend)

    async def hand_over(self, inputs: CycleInputs) -> None:
        """Hand the expected pods' slots over to the pods that now exist.

        If these differ from what was planned, the slots are given back, and the pods wait like all others.
        """
        entries: list[Entry | None] = []
        awaiting = [one for one in inputs.granted if one.uid not in inputs.taken_back and is_expected(one)]
        mismatched = pod_replacement.mismatched(awaiting, inputs.groups)
        for group in awaiting:
            placement = group.placement
            if placement is None:
                continue
            at, actor = inputs.now, self.mirror.actor
            follow = partial(pod_replacement.replacement_entry, group, inputs.snapshot, at=at, actor=actor)
            found = faults.guard(During.FOLLOWING, group.key, follow, self.log.defects)
            came = mismatched.get(group.uid) or group.waiting
            if group.uid in mismatched:
                found = Mismatch(pod=came[0].meta.name, difference="the gang that it names")
            if isinstance(found, Mismatch):
                why = found.message
                expected = [uid for uid in (*placement.seats, *placement.holdings) if names.is_expected(uid)]
                await events.gang_returned(self.reports, group, why)
                found = books.release(placement, pods=expected, claims=expected, at=at, actor=actor, reason=why)
            entries.append(found)
        await self.mirror.record(entries)


def _workloads(group: Group, snapshot: Snapshot) -> list[Workload]:
    """Return the workloads that will create a gang's expected pods: several if pods name their gang."""
    makers = {
        pod.meta.controller.uid: pod.meta.controller for pod in pod_replacement.expected(group) if pod.meta.controller
    }
    found = (suspendable.workload_of(owner, snapshot) for owner in makers.values())
    return [workload for workload in found if workload is not None]


def _not_resumed(workload: Workload, error: MusterError) -> Hold:
    message = f"{workload.kind.kind} {workload.meta.name} could not be resumed: {error}; it is tried again"
    return Hold(HoldReason.PLACEMENT_FAILED, message, {"workload": workload.meta.key})
