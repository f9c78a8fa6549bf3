"""Taking whole gangs back: those that cannot start complete or did not start in time, and those that may not run on.

`GangEviction.take_back` is the one entrance for gangs whose pods are deleted; `requeue` is for gangs whose gates are
still shut. The pods of a Job are taken back by suspending it, as the Job controller counts deleted pods as failures and
would give the Job up after a few (batch/v1, backoffLimit); it is resumed when they are gone. A workload that is held as
a whole is suspended until its gang may start again. Other pods are evicted one by one.
What is remembered of an eviction is written before anything is deleted, so that the next leader acts on it.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from admission.accounting import books
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.ledger_entries import Placement
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName, Uid
from admission.cycle import events
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.result import CycleLog
from admission.cycle.steps.deallocate import Deallocation
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import limits, transitions
from admission.lifecycle.transitions import Eviction
from admission.ports import Pods, Reports, Workloads
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.status import gang
from admission.workloads import suspendable
from admission.workloads.gangs import Group

START_TIMEOUT = timedelta(minutes=5)
"""Of a gang whose queue is gone."""

IMMEDIATE_REQUEUES = 3
"""How often a gang that cannot be placed as planned is planned again at once, before it backs off like others: the plan
may not be what is wrong."""

Suspend = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangEviction:
    """Takes gangs back."""

    pods: Pods
    workloads: Workloads
    reports: Reports
    mirror: LedgerMirror
    evictions: EvictionState
    in_flight: InFlight
    deallocation: Deallocation
    writer: BulkWriter
    log: CycleLog

    async def take_back_due(self, inputs: CycleInputs) -> CycleInputs:
        """Take back every gang that has to be, and return the inputs with these gangs, done or not."""
        concerned: set[GangUid] = set()
        limiting = limits.limited_queues(inputs.tree)
        self.evictions.note_sizes(inputs.groups, self.mirror.book.placements)
        unfinished = self.evictions.unfinished
        for group in [one for one in inputs.groups if not one.is_complete or limiting or unfinished]:
            if group.placement is None or not _may_be_due(group, limiting, unfinished):
                continue
            find = partial(self._due, inputs, group, limiting)
            eviction = faults.spared(During.FOLLOWING, group.key, find, self.log.defects)
            if eviction is None:
                self.evictions.clear_partial(group.uid)
                continue
            concerned.add(group.uid)
            await self.take_back(inputs, eviction)
        return replace(inputs, taken_back=frozenset(concerned))

    async def take_back(self, inputs: CycleInputs, eviction: Eviction) -> None:
        """Evict a gang and give back what it has; where that fails, or the leader dies, the next cycle continues."""
        group, placement = eviction.group, eviction.group.placement
        if self.evictions.note(inputs, eviction):
            await self._write_record(inputs, group)
        # A late eviction is not refused: a pod may have started under a successor meanwhile.
        if placement is None or not await self.mirror.holds_epoch() or not await self._delete(inputs, eviction):
            return
        keep = transitions.claims_in_use(self._others(group), inputs.observed)
        if not await self.deallocation.withdraw(inputs, placement, keep=keep):
            return
        entry = books.evict(placement, keep=keep, at=inputs.now, actor=self.mirror.actor, reason=eviction.ledger_reason)
        await self.mirror.record([entry])
        evicted = self.evictions.finish(group.uid)
        if evicted is not None:
            self.log.evicted.append((group, evicted))
        await events.gang_evicted(self.reports, eviction)

    async def requeue(self, inputs: CycleInputs, group: Group, reason: str, *, back_off: bool = False) -> None:
        """Take the places of a gang's gated pods back, and the devices that only they wait for. Nothing is deleted.

        back_off: whether the gang backs off before it is tried again, as it does in any case after a few times. What
        fails is left as it is, for the next cycle.
        """
        placement = self.mirror.book.placements.get(group.uid)
        gated = [pod for pod in group.granted_pods if pod.meta.uid not in self.in_flight.opened]
        if placement is None or not gated:
            return
        most = 0 if back_off else IMMEDIATE_REQUEUES
        if self.evictions.note_requeue(inputs, group, reason, most=most):
            await self._write_record(inputs, group)
        if not await self._shut(gated):
            return
        removed = {pod.meta.uid for pod in gated}
        left = replace(placement, seats={uid: seat for uid, seat in placement.seats.items() if uid not in removed})
        keep = transitions.claims_in_use([left, *self._others(group)], inputs.observed)
        if not await self.deallocation.withdraw(inputs, placement, keep=keep):
            return
        at, actor = inputs.now, self.mirror.actor
        if left.seats:
            unused = {uid for uid, holding in placement.holdings.items() if not holding.settled and uid not in keep}
            entry = books.release(placement, pods=removed, claims=unused, at=at, actor=actor, reason=reason)
        else:
            entry = books.evict(placement, keep=keep, at=at, actor=actor, reason=reason)
        await self.mirror.record([entry])
        await events.gang_returned(self.reports, group, gated, reason)

    async def resume_jobs(self, inputs: CycleInputs) -> None:
        """Resume Jobs that were suspended to take their pods back, once these are gone."""
        jobs = [
            job for job in inputs.snapshot.jobs.values() if job.suspended and names.REQUEUED in job.meta.annotations
        ]
        pods = inputs.snapshot.pods.values() if jobs else ()
        owners = {pod.meta.controller.uid for pod in pods if not pod.finished and pod.meta.controller}
        for job in jobs:
            if job.meta.uid not in owners:
                with contextlib.suppress(RetryError, FixError, GoneError):
                    await self.workloads.resume(job)

    def _due(self, inputs: CycleInputs, group: Group, limiting: Collection[QueueName]) -> Eviction | None:
        """Return why a gang is to be taken back: that was decided before, it cannot start, or it may not run on."""
        if group.uid in self.evictions.ending:
            return limits.resumed_eviction(group, self.evictions.evicted[group.uid])
        queue = inputs.snapshot.queues.get(group.queue)
        found = transitions.eviction(
            group,
            inputs.observed,
            start_timeout=queue.start_timeout if queue is not None else START_TIMEOUT,
            now=inputs.now,
            begun=self.evictions.partial_reason(group.uid),
            previous_size=self.evictions.size(group.uid),
        )
        if found is None and group.placement is not None and group.placement.queue in limiting:
            return limits.due_eviction(group, inputs.tree, inputs.now)
        return found

    def _others(self, group: Group) -> list[Placement]:
        return [other for uid, other in self.mirror.book.placements.items() if uid != group.uid]

    async def _write_record(self, inputs: CycleInputs, group: Group) -> None:
        """Write the back-off into the gang's status before anything is deleted."""
        basis = gang.StatusInputs(
            snapshot=inputs.snapshot,
            book=self.mirror.book,
            tree=inputs.tree,
            meters=inputs.meters,
            backoffs=self.evictions.backoffs,
            evicted=self.evictions.evicted,
        )
        with contextlib.suppress(RetryError, FixError, GoneError):
            await self.reports.gang(gang.gang(group, basis))
            await self.reports.flush()

    # Pods.

    async def _shut(self, pods: Sequence[Pod]) -> bool:
        """Make sure that gates stay shut, whoever was about to open them. Return whether all of them do."""
        opened: list[Pod] = []

        async def shut(pod: Pod) -> None:
            if not await self.pods.shut(pod):
                opened.append(pod)

        failed = await self.writer.each_pod([pod for pod in pods if not names.is_expected(pod.meta.uid)], shut)
        return not failed and not opened

    async def _delete(self, inputs: CycleInputs, eviction: Eviction) -> bool:
        """Have the gang's pods deleted. Return whether all are gone or going; if not, the next cycle tries again.

        Running pods go first: while one of the others exists, every leader sees that the gang has not started.
        What has ended leaves its pods as they are when it is suspended.
        """
        group = eviction.group
        suspend = self._suspension(inputs, group.identity.workload)
        if suspend is not None:
            return await self._suspended(eviction, suspend, group.pods)
        single, made = self._by_maker(inputs, group)
        for suspend, pods in made:
            if not await self._suspended(eviction, suspend, pods):
                return False
        going = [pod for pod in eviction.pods if pod.meta.uid in single]
        running = [pod for pod in going if pod.phase == "Running"]
        late = [pod for pod in going if pod.phase != "Running"]
        if not (await self._evict(eviction, running) and await self._evict(eviction, late)):
            return False
        self.evictions.clear_partial(group.uid)
        evicted = {pod.meta.uid for pod in going}
        return await self._shut(
            [pod for pod in group.granted_pods if pod.meta.uid in single and pod.meta.uid not in evicted]
        )

    async def _evict(self, eviction: Eviction, pods: Sequence[Pod]) -> bool:
        """Evict pods one by one. Return whether all are gone or going; note the gang where only some are."""

        async def evict(pod: Pod) -> None:
            await self.pods.evict(pod, eviction.reason)
            self.in_flight.assume_leaving([pod])
            self.evictions.note_partial(eviction.group.uid, eviction.reason)

        return not await self.writer.each_pod(pods, evict)

    # What makes pods.

    def _suspension(self, inputs: CycleInputs, owner: Owner | None) -> Suspend | None:
        """Return what suspends an object so that it deletes its pods; None if it cannot, and the pods are evicted."""
        workload = suspendable.workload_of(owner, inputs.snapshot)
        if workload is not None and not workload.obj.finished:
            return partial(self.workloads.hold, workload.kind.suspendable(workload.meta))
        job = inputs.snapshot.jobs.get(owner.uid) if owner is not None else None
        return partial(self.workloads.suspend, job) if job is not None and not job.finished else None

    def _by_maker(self, inputs: CycleInputs, group: Group) -> tuple[set[Uid], list[tuple[Suspend, list[Pod]]]]:
        """Return the pods of a gang without a workload that are evicted one by one, and what suspends the others.

        A Job that another object controls is for that one to suspend.
        """
        single, made = set[Uid](), dict[Uid, tuple[Suspend, list[Pod]]]()
        for pod in group.pods:
            owner = pod.meta.controller
            job = inputs.snapshot.jobs.get(owner.uid) if owner is not None else None
            is_free = job is None or (
                job.meta.namespace == pod.meta.namespace and suspendable.is_free(job.meta.controller)
            )
            suspend = self._suspension(inputs, owner) if is_free else None
            if owner is None or suspend is None:
                single.add(pod.meta.uid)
            else:
                made.setdefault(owner.uid, (suspend, []))[1].append(pod)
        return single, [*made.values()]

    async def _suspended(self, eviction: Eviction, suspend: Suspend, pods: Sequence[Pod]) -> bool:
        """Suspend what makes some pods. Return whether that is done."""
        try:
            await suspend()
        except (RetryError, FixError) as error:
            for pod in eviction.pods[:1]:
                await events.gang_failed(self.reports, pod, error)
            return False
        except GoneError:
            return True
        self.in_flight.assume_leaving(pods)
        return True


def not_started(group: Group, reason: str) -> Eviction:
    """Return the eviction of a gang that was admitted and cannot start, as if it had not started in time."""
    admitted = tuple(pod for pod in group.pods if not pod.gated)
    return Eviction(group=group, pods=admitted, reason=reason, timed_out=True, failure=reason)


def _may_be_due(group: Group, limiting: Collection[QueueName], unfinished: Collection[GangUid]) -> bool:
    """Return whether a gang has to be inspected: of most running gangs, nothing follows."""
    placement = group.placement
    return not group.is_complete or (placement is not None and placement.queue in limiting) or group.uid in unfinished
