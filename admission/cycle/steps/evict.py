"""The eviction of whole gangs: those that cannot start complete or in time, and those that may not run on.

`evict_gang` is the only way to evict a gang whose pods have to be deleted; `requeue` is for gangs whose gates are still
closed. The pods of a Job are taken back by suspending it, since the Job controller counts deleted pods as failures and
fails the Job after a few (batch/v1, backoffLimit); it is resumed when they are gone. A workload that is held as a whole
is suspended until its gang may start again. Other pods are evicted one by one. The state of an eviction is written
before anything is deleted, so that the next leader continues it.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from admission.accounting import books
from admission.api.kubernetes.meta import Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gang_requests import Action, GangRequest
from admission.api.muster.ledger_entries import Placement
from admission.api.values import durations, names, references as references_
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.references import EVERYWHERE, References
from admission.cycle import capacity_requests, events
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.result import CycleLog
from admission.cycle.steps.deallocate import Deallocation
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import gang_requests, limits, placement_progress, start_timeout, transitions
from admission.lifecycle.eviction import Eviction
from admission.ports import Pods, Reports, Workloads
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.status import gang
from admission.status.node_shapes import ShapeStatus
from admission.workloads import suspendable
from admission.workloads.gangs import Group

START_TIMEOUT = timedelta(minutes=5)
"""The start timeout of a gang whose queue was deleted."""

IMMEDIATE_REQUEUES = 3
"""How often a gang that cannot be placed as planned is planned again at once, before it backs off: the cause may be
in the cluster and not in the gang."""

Suspend = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GangEviction:
    """Evicts and requeues gangs."""

    pods: Pods
    workloads: Workloads
    reports: Reports
    mirror: LedgerMirror
    evictions: EvictionState
    in_flight: InFlight
    deallocation: Deallocation
    writer: BulkWriter
    shapes: ShapeStatus
    log: CycleLog

    async def evict_due(self, inputs: CycleInputs) -> CycleInputs:
        """Take back every gang that has to be; return the inputs with these gangs, whether it succeeded or not."""
        concerned: set[GangUid] = set()
        limiting = limits.limited_queues(inputs.tree)
        self.evictions.note_sizes(inputs.granted, self.mirror.book.placements)
        requested = await self._answer(inputs)
        revoked, revoked_joining = capacity_requests.revoked(inputs)
        shapeless, shapeless_joining = capacity_requests.shapeless(inputs)
        unfinished = self.evictions.unfinished | requested.keys() | revoked.keys()
        for group in inputs.groups if limiting or unfinished else inputs.granted:
            if group.placement is None or not _may_be_due(group, group.placement, limiting, unfinished):
                continue
            find = partial(self._due, inputs, group, limiting, requested.get(group.uid), revoked.get(group.uid, ""))
            eviction = faults.guard(During.FOLLOWING, group.key, find, self.log.defects)
            if eviction is None and group.uid in shapeless:
                eviction = replace(not_started(group, shapeless[group.uid]), timed_out=False)
            if eviction is not None:
                concerned.add(group.uid)
                await self.evict_gang(inputs, eviction)
                continue
            self.evictions.clear_partial(group.uid)
            for pods, reason in self._overdue(inputs, group) or revoked_joining.get(group.uid, ()):
                concerned.add(group.uid)
                await self.take_back(inputs, group, pods, reason)
            for pods, reason in shapeless_joining.get(group.uid, ()) if group.uid not in concerned else ():
                concerned.add(group.uid)
                await self.take_back(inputs, group, pods, reason, backs_off=False)
        return replace(inputs, taken_back=frozenset(concerned))

    async def evict_gang(self, inputs: CycleInputs, eviction: Eviction) -> None:
        """Evict a gang and release what it has; after a failure or the leader's death the next cycle continues."""
        group, placement = eviction.group, eviction.group.placement
        if self.evictions.note(inputs, eviction):
            await self._write_record(inputs, group)
        # The API server does not refuse a late eviction, and the pod may have started under a successor meanwhile.
        if placement is None or not await self.mirror.holds_epoch() or not await self._delete(inputs, eviction):
            return
        keep = transitions.claims_in_use(self._others(group), inputs.observed)
        if not await self.deallocation.withdraw(inputs, placement, keep=keep):
            return
        reason = eviction.ledger_reason
        entry = books.evict(placement, keep=keep, at=inputs.now, actor=self.mirror.actor, reason=reason)
        await self.mirror.record([entry])
        evicted = self.evictions.finish(group.uid)
        if evicted is not None:
            self.log.evicted.append((group, evicted))
        await events.gang_evicted(self.reports, eviction)

    async def requeue(
        self,
        inputs: CycleInputs,
        group: Group,
        reason: str,
        references: References = (),
        *,
        back_off: bool = False,
        joining: Collection[Uid] | None = None,
    ) -> None:
        """Release the slots of a gang's gated pods, and the devices that only they wait for. No pod is deleted.

        references: of the reason. back_off: whether the gang backs off before it is tried again, as it does anyway
        after a few requeues. joining: only these pods, of a gang that runs on without them. After a failure everything
        stays as it is, for the next cycle.
        """
        gated = [pod for pod in group.granted_pods if pod.meta.uid not in self.in_flight.opened]
        if joining is not None:
            gated = [pod for pod in gated if pod.meta.uid in joining]
        if not gated:
            return
        most = 0 if back_off else IMMEDIATE_REQUEUES
        if self.evictions.note_requeue(inputs, group, reason, references, most=most, of_joining=joining is not None):
            await self._write_record(inputs, group)
        if await self._keep_gates_closed(gated):
            await self._give_back(inputs, group, gated, reason, references)

    async def take_back(
        self, inputs: CycleInputs, group: Group, pods: Sequence[Pod], reason: str, *, backs_off: bool = True
    ) -> None:
        """Take back pods of a gang that runs on without them: evict those that were let in, and release their slots.

        backs_off: whether they wait before they are tried again. After a failure the next cycle continues.
        """
        placement = group.placement
        if placement is None or not pods:
            return
        asked = (placement_progress.nodes_asked_at(placement.seats[pod.meta.uid], placement) for pod in pods)
        since = max((at for at in asked if at is not None), default=placement.reserved_at)
        shortfall = self._shortfall(inputs, placement, (pod.meta.uid for pod in pods))
        reason = f"{reason}; {shortfall}" if shortfall else reason
        if backs_off and self.evictions.note_overdue(inputs, group, reason, since, longest=bool(shortfall)):
            await self._write_record(inputs, group)
        gated = [pod for pod in pods if pod.gated and pod.meta.uid not in self.in_flight.opened]
        admitted = [pod for pod in pods if pod not in gated]

        async def evict(pod: Pod) -> None:
            await self.pods.evict(pod, reason)
            self.in_flight.assume_leaving([pod])

        if not await self.mirror.holds_epoch() or not await self._keep_gates_closed(gated):
            return
        if not await self.writer.each_pod(admitted, evict):
            await self._give_back(inputs, group, pods, reason)

    async def _give_back(
        self, inputs: CycleInputs, group: Group, pods: Iterable[Pod], reason: str, references: References = ()
    ) -> None:
        """Release the slots of some pods, and the devices that only they wait for."""
        placement = self.mirror.book.placements.get(group.uid)
        if placement is None:
            return
        removed = {pod.meta.uid for pod in pods}
        left = replace(placement, seats={uid: seat for uid, seat in placement.seats.items() if uid not in removed})
        keep = transitions.claims_in_use([left, *self._others(group)], inputs.observed)
        if not await self.deallocation.withdraw(inputs, placement, keep=keep):
            return
        at, actor = inputs.now, self.mirror.actor
        in_full = references_.words(reason, references, EVERYWHERE)
        if left.seats:
            unused = {uid for uid, holding in placement.holdings.items() if not holding.settled and uid not in keep}
            entry = books.release(placement, pods=removed, claims=unused, at=at, actor=actor, reason=in_full)
        else:
            entry = books.evict(placement, keep=keep, at=at, actor=actor, reason=in_full)
        await self.mirror.record([entry])
        own = references_.words(reason, references, {group.identity.namespace})
        await events.gang_returned(self.reports, group, own, of_joining=len(removed) if left.seats else 0)

    async def resume_jobs(self, inputs: CycleInputs) -> None:
        """Resume Jobs that were suspended to take their pods back, once these pods are gone."""
        jobs = self.evictions.jobs_to_resume(inputs.snapshot.jobs)
        pods = inputs.snapshot.pods.values() if jobs else ()
        owners = {pod.meta.controller.uid for pod in pods if not pod.finished and pod.meta.controller}
        for job in jobs:
            if job.meta.uid not in owners:
                with contextlib.suppress(RetryError, FixError, GoneError):
                    await self.workloads.resume(job)

    async def _answer(self, inputs: CycleInputs) -> Mapping[GangUid, GangRequest]:
        """Answer the requests of users about gangs; return those that ask for an eviction that is due."""
        evicting: dict[GangUid, GangRequest] = {}
        for group, request in gang_requests.unanswered(inputs.requested, self.evictions.answered):
            queue, is_ending = inputs.snapshot.queues.get(group.queue), group.uid in self.evictions.ending
            answer = gang_requests.answer(group, request, queue, is_ending=is_ending)
            self.evictions.note_answered(group, answer.recorded(group, inputs.now))
            if answer.is_granted and request.action is Action.EVICT:
                evicting[group.uid] = request
                continue
            if answer.is_granted and request.action is Action.REQUEUE:
                self.evictions.forget_backoff(group)
            await events.request_answered(self.reports, group, answer)
        return evicting

    def _due(
        self,
        inputs: CycleInputs,
        group: Group,
        limiting: Collection[QueueName],
        request: GangRequest | None,
        revoked: str,
    ) -> Eviction | None:
        """Return why a gang has to be taken back: an eviction in progress, it cannot start, or it may not run on.

        revoked: why the nodes that were asked for it are not there for it; empty if they are, or may come.
        """
        if group.uid in self.evictions.ending:
            return limits.resumed_eviction(group, self.evictions.evicted[group.uid])
        if request is not None:
            return limits.requested_eviction(group, request)
        queue, placement = inputs.snapshot.queues.get(group.queue), group.placement
        found = start_timeout.eviction(
            group,
            inputs.observed,
            start_timeout=start_timeout.allowed(queue, placement) if queue and placement else START_TIMEOUT,
            now=inputs.now,
            begun=self.evictions.partial_reason(group.uid),
            previous_size=self.evictions.size(group.uid),
        )
        seats = placement.seats if found and found.failure and placement else ()
        shortfall = self._shortfall(inputs, placement, seats) if placement and seats else ""
        if found is not None and shortfall:
            reason, failure = f"{found.reason}; {shortfall}", f"{found.failure}; {shortfall}"
            found = replace(found, reason=reason, failure=failure, longest=True)
        if found is None and revoked:
            return not_started(group, revoked)
        if found is None and placement is not None and placement.queue in limiting:
            return limits.due_eviction(group, inputs.tree, inputs.now, inputs.idle.get(group.uid))
        return found

    def _overdue(self, inputs: CycleInputs, group: Group) -> list[tuple[Sequence[Pod], str]]:
        """Return the pods whose nodes did not come in time, of a gang that runs on without them, and why they go."""
        queue = inputs.snapshot.queues.get(group.queue)
        timeout = queue.provisioning.timeout if queue is not None else START_TIMEOUT
        pods = start_timeout.overdue(group, timeout, inputs.now, self.evictions.size(group.uid))
        return [(pods, start_timeout.missing_nodes(group, pods, durations.render(timeout)))] if pods else []

    def _shortfall(self, inputs: CycleInputs, placement: Placement, pods: Iterable[Uid]) -> str:
        """Return how nodes fell short of the shapes of which some were asked for; empty if they did not."""
        # Those that this cycle sees first are reported after it has evicted.
        self.shapes.conditions(inputs.snapshot, inputs.now)
        return self.shapes.shortfall(placement_progress.asked_for(placement.seats[uid].as_asked for uid in pods))

    def _others(self, group: Group) -> list[Placement]:
        return [other for uid, other in self.mirror.book.placements.items() if uid != group.uid]

    async def _write_record(self, inputs: CycleInputs, group: Group) -> None:
        """Write the back-off into the gang's status before anything is deleted."""
        basis = gang.StatusInputs(
            snapshot=inputs.snapshot,
            book=self.mirror.book,
            tree=inputs.tree,
            backoffs=self.evictions.backoffs,
            evicted=self.evictions.evicted,
            answered=self.evictions.answered,
            schedulers=self.writer.settings.schedulers,
        )
        with contextlib.suppress(RetryError, FixError, GoneError):
            await self.reports.gang(gang.gang(group, basis))
            await self.reports.flush()

    # Pods.

    async def _keep_gates_closed(self, pods: Sequence[Pod]) -> bool:
        """Ensure that gates stay closed, also against writes in flight; return whether all of them do."""
        opened: list[Pod] = []

        async def close_gate(pod: Pod) -> None:
            if not await self.pods.close_gate(pod):
                opened.append(pod)

        failed = await self.writer.each_pod([pod for pod in pods if not names.is_expected(pod.meta.uid)], close_gate)
        return not failed and not opened

    async def _delete(self, inputs: CycleInputs, eviction: Eviction) -> bool:
        """Delete the gang's pods. Return whether all are deleted or being deleted; if not, the next cycle retries.

        Running pods go first: while one of the others exists, every leader sees that the gang has not started. A
        finished workload is not suspended, since that would not delete its pods: they are evicted.
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
        return await self._keep_gates_closed(
            [pod for pod in group.granted_pods if pod.meta.uid in single and pod.meta.uid not in evicted]
        )

    async def _evict(self, eviction: Eviction, pods: Sequence[Pod]) -> bool:
        """Evict pods one by one; return whether all are deleted or being deleted. Record the gang as partly evicted."""

        async def evict(pod: Pod) -> None:
            await self.pods.evict(pod, eviction.reason_for(EVERYWHERE))
            self.in_flight.assume_leaving([pod])
            self.evictions.note_partial(eviction.group.uid, eviction.reason)

        return not await self.writer.each_pod(pods, evict)

    # The controllers of pods.

    def _suspension(self, inputs: CycleInputs, owner: Owner | None) -> Suspend | None:
        """Return a call that suspends an object so that it deletes its pods; None if the pods have to be evicted."""
        workload = suspendable.workload_of(owner, inputs.snapshot)
        if workload is not None and not workload.obj.finished:
            return partial(self.workloads.hold, workload.kind.suspendable(workload.meta))
        job = inputs.snapshot.jobs.get(owner.uid) if owner is not None else None
        return partial(self.workloads.suspend, job) if job is not None and not job.finished else None

    def _by_maker(self, inputs: CycleInputs, group: Group) -> tuple[set[Uid], list[tuple[Suspend, list[Pod]]]]:
        """Return the pods of a gang that are evicted one by one, and the calls that suspend the makers of the others.

        For a gang without a workload. A Job that another object controls is not suspended, since that object decides
        about its suspension.
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
        """Suspend the maker of these pods; return whether that succeeded."""
        try:
            await suspend()
        except (RetryError, FixError) as error:
            for pod in eviction.pods[:1]:
                await events.pod_failed(self.reports, pod, error)
            return False
        except GoneError:
            return True
        self.in_flight.assume_leaving(pods)
        return True


def not_started(group: Group, reason: str, references: References = ()) -> Eviction:
    """Return the eviction of an admitted gang that cannot start, as if it had not started in time."""
    admitted = tuple(pod for pod in group.pods if not pod.gated)
    return Eviction(group=group, pods=admitted, reason=reason, timed_out=True, failure=reason, references=references)


def _may_be_due(
    group: Group, placement: Placement, limiting: Collection[QueueName], unfinished: Collection[GangUid]
) -> bool:
    """Return whether a gang has to be checked for eviction; most running gangs do not."""
    return not group.is_complete or placement.queue in limiting or group.uid in unfinished
