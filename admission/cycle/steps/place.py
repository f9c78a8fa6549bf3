"""The placement of gangs whose reservation is committed: first all claims, if Muster picks the devices, then gates.

Grants of this cycle and what an earlier cycle or leader left unfinished are placed in the same way: the open placements
in the ledger determine what to write, and every write may be repeated. While no gate of it is open, a gang that cannot
be placed as planned is requeued whole, and nothing but time is lost.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import PlacementMode
from admission.api.values import names
from admission.api.values.decoding import Json
from admission.api.values.names import GangUid, NodeName, Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import capacity_requests
from admission.cycle.bulk_writes import BulkWriter
from admission.cycle.capacity_requests import RequestKeeper
from admission.cycle.executor import BackgroundExecutor
from admission.cycle.state.evictions import EvictionState
from admission.cycle.state.fences import FenceState
from admission.cycle.state.in_flight import InFlight
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.ledger_mirror import LedgerMirror
from admission.cycle.state.result import CycleLog
from admission.cycle.state.scheduling_cache import SchedulingCache
from admission.cycle.state.term import CycleSettings
from admission.cycle.steps import evict, suspend_resume
from admission.cycle.steps.evict import GangEviction
from admission.cycle.steps.protection import ProtectionCheck
from admission.cycle.steps.suspend_resume import SuspendResume
from admission.dra.allocator import prescribed
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.allocator.prescribed import Misfit
from admission.dra.state.cluster_state import ClusterState
from admission.errors import ConflictError, FixError, GoneError, RetryError
from admission.lifecycle import placement_check, placement_progress, transitions
from admission.lifecycle.placement_progress import Missing
from admission.ports import Claims, Traces
from admission.scheduling.capacity import node_requests, unread_shapes
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.scheduling.placement import mode
from admission.scheduling.placement.mode import Chosen
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A gang to be placed, with its placement. gates: its pods whose gates have to be opened, in order.

    granted_before: whether it was granted before this cycle, so that the cluster may have changed since it was planned.
    """

    group: Group
    gates: tuple[tuple[Pod, NodeName], ...]
    granted_before: bool = False


@dataclass(slots=True, kw_only=True)
class _Work:
    """One gang while it is placed. hold: why its gates stay closed."""

    start: Start
    missing: Sequence[Missing] = ()
    hold: Hold | None = None
    errors: list[Exception] = field(default_factory=list)
    closed: set[Uid] = field(default_factory=set)
    """Pods that join it and whose gates stay closed, though the gang goes on."""
    waits: Hold | None = None
    """Why those wait of them that have their nodes still to come."""
    refused: list[tuple[frozenset[Uid], Exception]] = field(default_factory=list)
    """Those of them that are given no nodes."""

    @property
    def group(self) -> Group:
        return self.start.group


@dataclass(slots=True, kw_only=True)
class _Write:
    """A claim and the allocation to write. works: the gangs that wait for it."""

    claim: Claim
    result: AllocationResult
    works: list[_Work] = field(default_factory=list)


class _MisfitError(ConflictError):
    """A claim cannot be given the devices that are booked for it."""

    def __init__(self, misfit: Misfit) -> None:
        super().__init__(misfit.message)
        self.references = misfit.references


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPlacement:
    """Writes allocations and opens gates."""

    claims: Claims
    traces: Traces
    settings: CycleSettings
    executor: BackgroundExecutor
    mirror: LedgerMirror
    fences: FenceState
    evictions: EvictionState
    in_flight: InFlight
    cache: SchedulingCache
    protection: ProtectionCheck
    suspend_resume: SuspendResume
    eviction: GangEviction
    requests: RequestKeeper
    writer: BulkWriter
    log: CycleLog

    async def finish(self, inputs: CycleInputs) -> CycleInputs:
        """Place gangs granted in earlier cycles that are not placed yet; return the inputs with the requeued gangs."""
        granted_before = [
            Start(group=group, gates=tuple(transitions.pods_to_open(group)), granted_before=True)
            for group in inputs.granted
            if group.uid not in inputs.taken_back and group.placement is not None and group.placement.seats
        ]
        holds = await self.place(inputs, [start for start in granted_before if self._is_unfinished(inputs, start)])
        if not holds:
            return inputs
        placements, backoffs = self.mirror.book.placements, self.evictions.backoffs
        first = frozenset(uid for uid in holds if uid not in placements and uid not in backoffs)
        return replace(inputs, unready={**inputs.unready, **holds}, first_in_next=first)

    async def place(self, inputs: CycleInputs, starts: Iterable[Start]) -> dict[GangUid, Hold]:
        """Allocate all claims of every gang, then open the gates of gangs whose claims are all allocated.

        For a gang whose pods do not exist yet, the workload is resumed. Return holds for gangs that were not placed.
        """
        starts = list(starts)
        expected_pods = {start.group.uid: start.group for start in starts if suspend_resume.is_expected(start.group)}
        holds = await self.suspend_resume.resume(inputs, [*expected_pods.values()]) if expected_pods else {}
        existing = [start for start in starts if start.group.uid not in expected_pods]
        await self.requests.ask(inputs, [one.group for one in existing if one.gates])
        works = [self._guarded_work(inputs, start) for start in existing]
        for work in works:
            self.traces.begin(work.group)
        granted_before = [work for work in works if work.start.granted_before and work.hold is None and not work.errors]
        await self._recheck_pinned(inputs, granted_before)
        await self._allocate(inputs, [work for work in works if work.missing and work.hold is None])
        for work in works:
            await self._resolve(inputs, work)
        ready = [work for work in works if work.hold is None]
        annotations = self.requests.annotations(inputs, [work.group for work in ready])
        gates = [[gate for gate in work.start.gates if gate[0].meta.uid not in work.closed] for work in ready]
        await self.writer.open_gates(
            gates,
            allocation_keys=self._allocation_keys(inputs, ready),
            storage=inputs.snapshot.storage,
            shapes=inputs.snapshot.shapes,
            annotations=annotations,
        )
        holds |= {work.group.uid: work.hold for work in works if work.hold is not None}
        self.log.placement_holds.update(
            {work.group.uid: work.waits for work in ready if work.waits is not None} | holds
        )
        return holds

    def _allocation_keys(self, inputs: CycleInputs, works: Iterable[_Work]) -> dict[Uid, str]:
        """Return which pods get claims from kube-scheduler, and which of them are equal."""
        keys: dict[Uid, str] = {}
        for work in works:
            chosen = self.in_flight.modes.get(work.group.uid)
            allocates = chosen is not None and chosen.mode is PlacementMode.ALLOCATE
            keys |= placement_progress.allocation_keys(work.group, inputs.observed, allocates=allocates)
        return keys

    def _is_unfinished(self, inputs: CycleInputs, start: Start) -> bool:
        return bool(start.gates) or bool(placement_progress.missing(start.group, self.mirror.book, inputs.observed))

    def _guarded_work(self, inputs: CycleInputs, start: Start) -> _Work:
        """Return the result of `_work`; after an unexpected exception a hold, so the gang keeps slots and gates."""
        defects = self.log.defects
        found = faults.guard(During.PLACING, start.group.key, partial(self._work, inputs, start), defects)
        return _Work(start=start, hold=faults.hold(defects[-1])) if found is None else found

    def _work(self, inputs: CycleInputs, start: Start) -> _Work:
        """Return the work for a gang; if it is pinned or counted, kube-scheduler allocates the missing claims."""
        group, work = start.group, _Work(start=start)
        missing = placement_progress.missing(group, self.mirror.book, inputs.observed)
        unread = placement_progress.malformed_claim(group, self.mirror.book, inputs.observed)
        if unread is not None:
            work.hold = _waits(f"claim {unread} cannot be read", unread)
            return work
        asked = placement_progress.asked_for(node for _, node in start.gates)
        lost = next((name for name in asked if unread_shapes.is_gone(name, inputs.snapshot)), None)
        if lost is not None:
            work.errors.append(ConflictError(f"NodeShape {lost}, of which nodes were asked for, is gone"))
        waits = self._await_nodes(inputs, work) if start.gates else None
        chosen = self._chosen(inputs, group)
        if isinstance(chosen, Hold):
            work.hold = chosen if missing else None
        else:
            self.in_flight.choose(group.uid, chosen)
            self._apply_mode(inputs, work, missing, chosen.mode)
        work.hold = work.hold or waits
        return work

    def _await_nodes(self, inputs: CycleInputs, work: _Work) -> Hold | None:
        """Return why a gang waits for the nodes that it was asked for; note what pods wait for that only join it."""
        hold: Hold | None = None
        answers = self.requests.answers(inputs, work.group)
        for one, answer in (*answers, *capacity_requests.unread(inputs, work.group)):
            if one.is_joining:
                work.closed |= one.members
                if isinstance(answer, Hold):
                    work.waits = answer
                else:
                    work.refused.append((one.members, answer))
            elif isinstance(answer, Hold):
                hold = answer
            else:
                work.errors.append(answer)
        return hold

    def _chosen(self, inputs: CycleInputs, group: Group) -> Chosen | Hold:
        """Return the mode in which a gang's claims are allocated, by the current protection of its devices."""
        queue = inputs.snapshot.queues.get(group.queue)
        requested = mode.requested(group.record, queue) if queue is not None else PlacementMode.AUTO
        found = mode.mode(requested, placement_progress.holdings(group, self.mirror.book), self.fences.protections)
        asked = placement_progress.nodes_to_come(group)
        if not asked or isinstance(found, Hold):
            return found
        allocates = found.mode is PlacementMode.ALLOCATE
        reason = f"{node_requests.asked(asked)}; {found.reason}" if allocates else node_requests.reason(asked)
        return replace(found, reason=reason)

    def _apply_mode(
        self, inputs: CycleInputs, work: _Work, missing: Sequence[Missing], placement_mode: PlacementMode
    ) -> None:
        if placement_mode is PlacementMode.ALLOCATE:
            work.missing = missing
            trouble = placement_progress.start_problem(work.group, self.mirror.book, inputs.observed)
            if trouble is not None:
                work.errors.append(ConflictError(trouble))
        elif missing and self._is_partly_allocated(inputs, work.group):
            work.errors.append(ConflictError("its devices are not safe from kube-scheduler any more"))

    def _is_partly_allocated(self, inputs: CycleInputs, group: Group) -> bool:
        """Return whether Muster has allocated some of a gang's claims, and no gate of it is open yet."""
        holdings = placement_progress.holdings(group, self.mirror.book)
        claims = (inputs.observed.claims.get(holding.claim_uid) for holding in holdings)
        given = (transitions.is_allocated_by_muster(claim) for claim in claims if claim is not None)
        return not self._opened(group) and any(given)

    async def _recheck_pinned(self, inputs: CycleInputs, works: Sequence[_Work]) -> None:
        """Fail pinned gangs of earlier cycles for which kube-scheduler would pick no devices as good as booked.

        Gangs with an open gate are left out, since kube-scheduler may have begun to allocate for them.
        """
        pinned = [
            (work, missing)
            for work in works
            if not work.missing
            and work.start.gates
            and self._is_pinned(work.group)
            and not self._opened(work.group)
            and (missing := placement_progress.missing(work.group, self.mirror.book, inputs.observed))
        ]
        if not pinned:
            return
        cluster = await self.executor.run(self.cache.build_cluster, inputs, self.mirror.book)
        asked = placement_check.CheckInputs(
            cluster=cluster, meters=inputs.meters, selectors=self.cache.selectors, steps=self.settings.steps
        )
        for work, missing in pinned:
            queue = inputs.snapshot.queues.get(work.group.queue)
            check = partial(placement_check.matches_ledger, exact=queue is not None and queue.preferences is not None)
            gates = [gate for gate in work.start.gates if names.shape_of(gate[1]) is None]
            if not await self.executor.run(check, work.group, gates, missing, asked):
                work.errors.append(
                    ConflictError("kube-scheduler would not take the devices that it was planned on, nor equal ones")
                )

    def _is_pinned(self, group: Group) -> bool:
        chosen = self.in_flight.modes.get(group.uid)
        return chosen is not None and chosen.mode is PlacementMode.PIN

    def _opened(self, group: Group) -> list[Pod]:
        """Return the pods with a slot whose gate is open, also if the view does not show it yet."""
        seats = group.placement.seats if group.placement is not None else {}
        opened = self.in_flight.opened
        return [pod for pod in group.pods if pod.meta.uid in seats and (not pod.gated or pod.meta.uid in opened)]

    # Claims.

    async def _allocate(self, inputs: CycleInputs, works: Sequence[_Work]) -> None:
        """Allocate the claims of all gangs concurrently; errors are kept with the gang."""
        works = [work for work in works if not work.errors]
        if not works:
            return
        cluster = await self.executor.run(self.cache.build_cluster, inputs, self.mirror.book)
        writes = await self.executor.run(self._writes, works, cluster)
        # Since protection was judged, waiting for the ledger and taking gangs back may have taken seconds.
        self.protection.judge_again()
        for work in works:
            self._hold_unprotected(inputs, work)

        async def allocate(write: _Write) -> None:
            if all(work.errors or work.hold for work in write.works):
                return
            try:
                with self.traces.write("allocate claim", write.works[0].group.uid, write.claim.meta.key):
                    written = await self.claims.allocate(write.claim, _status(write.result, inputs.now))
                self.in_flight.assume_claim(written)
            except (RetryError, FixError, GoneError) as error:
                for work in write.works:
                    work.errors.append(error)

        await self.writer.each(writes, allocate)

    def _hold_unprotected(self, inputs: CycleInputs, work: _Work) -> None:
        """Hold a gang, with gates and claims as they are, if its devices are no longer protected."""
        chosen = self._chosen(inputs, work.group)
        if isinstance(chosen, Hold):
            work.hold = work.hold or chosen
        elif chosen.mode is not PlacementMode.ALLOCATE:
            why = f"its devices are not safe from kube-scheduler any more: {chosen.reason}"
            work.hold = work.hold or replace(_waits(why), references=chosen.references)

    def _writes(self, works: Sequence[_Work], cluster: ClusterState) -> list[_Write]:
        """Return the claims to write, each once; gangs whose claim can no longer get its devices get an error."""
        found: dict[Uid, _Write | Misfit | Hold] = {}
        for work in works:
            for one in work.missing:
                uid = one.claim.meta.uid
                if uid not in found:
                    answer = self._allocation(work, one, cluster)
                    if isinstance(answer, AllocationResult):
                        found[uid] = _Write(claim=one.claim, result=answer)
                    else:
                        found[uid] = answer
                write = found[uid]
                if isinstance(write, Hold):
                    work.hold = write
                elif isinstance(write, Misfit):
                    work.errors.append(_MisfitError(write))
                else:
                    write.works.append(work)
        return [write for write in found.values() if isinstance(write, _Write)]

    def _allocation(self, work: _Work, one: Missing, cluster: ClusterState) -> AllocationResult | Misfit | Hold:
        find = partial(
            prescribed.prescribed_allocation,
            *(one.claim, one.devices, one.node, cluster),
            selectors=self.cache.selectors,
        )
        found = faults.guard(During.PLACING, work.group.key, find, self.log.defects)
        return faults.hold(self.log.defects[-1]) if found is None else found

    # Errors.

    async def _resolve(self, inputs: CycleInputs, work: _Work) -> None:
        """Take back or requeue a gang that failed for good; other failures are retried by the next cycle."""
        group = work.group
        cannot_fit = work.hold is not None and work.hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT
        if work.hold is not None and cannot_fit and not self._opened(group):
            await self.eviction.requeue(inputs, group, work.hold.message, work.hold.references)
        for pods, refusal in work.refused:
            is_refused = isinstance(refusal, FixError)
            await self.eviction.requeue(inputs, group, str(refusal), back_off=is_refused, joining=pods)
        if not work.errors:
            return
        error = next((one for one in work.errors if _is_final(one)), work.errors[0])
        references = error.references if isinstance(error, _MisfitError) else ()
        message = f"it cannot be placed as planned: {error}"
        work.hold = Hold(HoldReason.PLACEMENT_FAILED, message, references=references)
        if not _is_final(error):
            return
        if self._opened(group) and not any(pod.phase == "Running" for pod in group.pods):
            await self.eviction.evict_gang(inputs, evict.not_started(group, str(error), references))
        elif work.start.gates:
            is_refused = isinstance(error, FixError)
            await self.eviction.requeue(inputs, group, str(error), references, back_off=is_refused)


def _status(result: AllocationResult, now: datetime) -> Json:
    """Return status.allocation, with its time: kube-scheduler would try to add a missing one, which is refused."""
    shares = [str(uuid.uuid4()) for given in result.given if given.shared]
    at = now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"allocationTimestamp": at, **result.json(shares)}


def _is_final(error: Exception) -> bool:
    """Return whether a retry would fail as well: the claim has changed, or the API server refuses the write."""
    return isinstance(error, (ConflictError, GoneError, FixError))


def _waits(message: str, claim: str = "") -> Hold:
    return Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"claim": claim} if claim else {})
