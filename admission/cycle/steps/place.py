"""Placing gangs whose reservation is committed: all claims of a gang first, where Muster picks the devices, then gates.

One way for a grant of this cycle and for what an earlier cycle or an earlier leader left half-done: what the books have
open says what to write, and every write may be made twice. As long as no gate of it has opened, a gang that cannot be
placed as planned is taken back whole, with nothing lost but the time.
"""

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

from admission.api.kubernetes.claims import Claim
from admission.api.kubernetes.pods import Pod
from admission.api.muster.queues import PlacementMode
from admission.api.values.decoding import Json
from admission.api.values.names import GangUid, NodeName, Uid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import bulk_writes
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.cycle.steps import deallocate, evict, protection, suspend_resume
from admission.dra.allocator import prescribed
from admission.dra.allocator.allocation import AllocationResult
from admission.dra.allocator.prescribed import Misfit
from admission.dra.state import cluster_state
from admission.dra.state.cluster_state import ClusterState
from admission.errors import ConflictError, FixError, GoneError, RetryError
from admission.lifecycle import placement_check, placement_progress, transitions
from admission.lifecycle.placement_progress import Missing
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.scheduling.placement import mode
from admission.scheduling.placement.mode import Chosen
from admission.workloads.gangs import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A gang to be placed, with its placement. gates: its pods whose gates are to be opened, in order.

    begun: whether it was granted before this cycle, so that the world may have changed since it was planned.
    """

    group: Group
    gates: tuple[tuple[Pod, NodeName], ...]
    begun: bool = False


@dataclass(slots=True, kw_only=True)
class _Work:
    """One gang while it is placed. hold: why its gates stay shut."""

    start: Start
    missing: Sequence[Missing] = ()
    hold: Hold | None = None
    errors: list[Exception] = field(default_factory=list)

    @property
    def group(self) -> Group:
        return self.start.group


@dataclass(slots=True, kw_only=True)
class _Write:
    """A claim and what it gets. works: the gangs that wait for it."""

    claim: Claim
    result: AllocationResult
    works: list[_Work] = field(default_factory=list)


async def finish(desk: LeaderState, facts: CycleInputs) -> CycleInputs:
    """Place what was granted before and is not placed yet. Return the facts with those that were taken back."""
    begun = [
        Start(group=group, gates=tuple(transitions.unfinished(group)), begun=True)
        for group in facts.groups
        if not group.in_full
        and group.uid not in facts.taken_back
        and group.placement is not None
        and group.placement.seats
    ]
    holds = await place(desk, facts, [start for start in begun if _is_unfinished(desk, facts, start)])
    if not holds:
        return facts
    anew = frozenset(uid for uid in holds if uid not in desk.book.placements and uid not in desk.backoffs)
    return replace(facts, unready={**facts.unready, **holds}, anew=anew)


def _is_unfinished(desk: LeaderState, facts: CycleInputs, start: Start) -> bool:
    return bool(start.gates) or bool(placement_progress.missing(start.group, desk.book, facts.observed))


async def place(desk: LeaderState, facts: CycleInputs, starts: Iterable[Start]) -> dict[GangUid, Hold]:
    """Give all claims of every gang their devices, then open the gates of those that have them all.

    Of a gang whose pods are still to come, the workload is resumed. Return what holds the others.
    """
    starts = list(starts)
    to_come = {start.group.uid: start.group for start in starts if suspend_resume.is_expected(start.group)}
    holds = await suspend_resume.resume(desk, facts, [*to_come.values()]) if to_come else {}
    works = [_spared(desk, facts, start) for start in starts if start.group.uid not in to_come]
    for work in works:
        desk.ports.traces.begin(work.group)
    await _doubt(desk, facts, [work for work in works if work.start.begun and work.hold is None and not work.errors])
    await _allocate(desk, facts, [work for work in works if work.missing and work.hold is None])
    for work in works:
        await _resolve(desk, facts, work)
    await bulk_writes.open_gates(desk, [pair for work in works if work.hold is None for pair in work.start.gates])
    holds |= {work.group.uid: work.hold for work in works if work.hold is not None}
    desk.stuck |= holds
    return holds


def _spared(desk: LeaderState, facts: CycleInputs, start: Start) -> _Work:
    """Return the same as `_work`; a gang that Muster fails of keeps its places and its gates shut."""
    found = faults.spared(During.PLACING, start.group.key, partial(_work, desk, facts, start), desk.defects)
    return _Work(start=start, hold=faults.hold(desk.defects[-1])) if found is None else found


def _work(desk: LeaderState, facts: CycleInputs, start: Start) -> _Work:
    """Return what is to be done for a gang; what it lacks is kube-scheduler's to give where it is pinned or counted."""
    group, work = start.group, _Work(start=start)
    missing = placement_progress.missing(group, desk.book, facts.observed)
    unread = placement_progress.unread(group, desk.book, facts.observed)
    if unread is not None:
        work.hold = _waits(f"claim {unread} cannot be read", unread)
        return work
    chosen = _chosen(desk, facts, group)
    if isinstance(chosen, Hold):
        work.hold = chosen if missing else None
    else:
        desk.chosen[group.uid] = chosen
        _choose(desk, facts, work, missing, chosen.mode)
    return work


def _chosen(desk: LeaderState, facts: CycleInputs, group: Group) -> Chosen | Hold:
    """Return who is to give a gang's claims their devices, by what protects these now."""
    queue = facts.snapshot.queues.get(group.queue)
    wanted = mode.asked(group.record, queue) if queue is not None else PlacementMode.AUTO
    return mode.mode(wanted, placement_progress.holdings(group, desk.book), desk.protection)


def _choose(
    desk: LeaderState, facts: CycleInputs, work: _Work, missing: Sequence[Missing], mode: PlacementMode
) -> None:
    if mode is PlacementMode.ALLOCATE:
        work.missing = missing
        trouble = placement_progress.trouble(work.group, desk.book, facts.observed)
        if trouble is not None:
            work.errors.append(ConflictError(trouble))
    elif missing and _is_begun(desk, facts, work.group):
        work.errors.append(ConflictError("its devices are not safe from kube-scheduler any more"))


def _is_begun(desk: LeaderState, facts: CycleInputs, group: Group) -> bool:
    """Whether Muster has given some of a gang's claims their devices, and no pod of it was let in yet."""
    claims = (facts.observed.claims.get(holding.claim_uid) for holding in placement_progress.holdings(group, desk.book))
    return not _let_in(desk, group) and any(deallocate.is_given(claim) for claim in claims if claim is not None)


async def _doubt(desk: LeaderState, facts: CycleInputs, works: Sequence[_Work]) -> None:
    """Take back what Muster was to allocate and kube-scheduler has to, unless that comes to the same devices.

    Once a gate is open it is too late: kube-scheduler may have begun.
    """
    doubtful = [
        (work, missing)
        for work in works
        if not work.missing
        and work.start.gates
        and _is_pinned(desk, work.group)
        and not _let_in(desk, work.group)
        and (missing := placement_progress.missing(work.group, desk.book, facts.observed))
    ]
    if not doubtful:
        return
    cluster = await desk.aside.run(_cluster, desk, facts)
    tries = placement_check.Fitting(cluster=cluster, selectors=desk.selectors, steps=desk.steps)
    for work, missing in doubtful:
        if not await desk.aside.run(placement_check.holds, work.group, work.start.gates, missing, tries):
            work.errors.append(ConflictError("kube-scheduler would not take the devices that it was planned on"))


def _is_pinned(desk: LeaderState, group: Group) -> bool:
    chosen = desk.chosen.get(group.uid)
    return chosen is not None and chosen.mode is PlacementMode.PIN


# Claims.


async def _allocate(desk: LeaderState, facts: CycleInputs, works: Sequence[_Work]) -> None:
    """Give claims their devices, those of all gangs at a time; what goes wrong stands with the gang."""
    works = [work for work in works if not work.errors]
    if not works:
        return
    cluster = await desk.aside.run(_cluster, desk, facts)
    writes = await desk.aside.run(_writes, works, cluster, desk)
    # The ledger has answered since it was judged, and gangs were taken back: that may have taken seconds.
    protection.judge_again(desk)
    for work in works:
        _secure(desk, facts, work)

    async def allocate(write: _Write) -> None:
        if all(work.errors or work.hold for work in write.works):
            return
        try:
            with desk.ports.traces.write("allocate claim", write.works[0].group.uid, write.claim.meta.key):
                written = await desk.ports.claims.allocate(write.claim, _written(write.result, facts.now))
            desk.assumed.note(written)
        except (RetryError, FixError, GoneError) as error:
            for work in write.works:
                work.errors.append(error)

    await bulk_writes.concurrently(desk, writes, allocate)


def _secure(desk: LeaderState, facts: CycleInputs, work: _Work) -> None:
    """Keep the gates of a gang shut, and its claims as they are, where others may take its devices by now."""
    chosen = _chosen(desk, facts, work.group)
    if isinstance(chosen, Hold):
        work.hold = work.hold or chosen
    elif chosen.mode is not PlacementMode.ALLOCATE:
        work.hold = work.hold or _waits(f"its devices are not safe from kube-scheduler any more: {chosen.reason}")


def _cluster(desk: LeaderState, facts: CycleInputs) -> ClusterState:
    """Return the world in which everything that was granted is planned."""
    placed, claims = desk.book.placements.values(), facts.observed.claims
    desk.cluster = cluster_state.build(facts.snapshot, placed, profile=desk.profile, before=desk.cluster, claims=claims)
    return desk.cluster


def _writes(works: Sequence[_Work], cluster: ClusterState, desk: LeaderState) -> list[_Write]:
    """Return what to write, each claim once; gangs whose claim cannot have its devices any more get that as error."""
    found: dict[Uid, _Write | Misfit | Hold] = {}
    for work in works:
        for one in work.missing:
            uid = one.claim.meta.uid
            if uid not in found:
                answer = _allotted(desk, work, one, cluster)
                found[uid] = _Write(claim=one.claim, result=answer) if isinstance(answer, AllocationResult) else answer
            write = found[uid]
            if isinstance(write, Hold):
                work.hold = write
            elif isinstance(write, Misfit):
                work.errors.append(ConflictError(write.message))
            else:
                write.works.append(work)
    return [write for write in found.values() if isinstance(write, _Write)]


def _allotted(desk: LeaderState, work: _Work, one: Missing, cluster: ClusterState) -> AllocationResult | Misfit | Hold:
    ask = partial(prescribed.prescribed_allocation, one.claim, one.devices, one.node, cluster, selectors=desk.selectors)
    found = faults.spared(During.PLACING, work.group.key, ask, desk.defects)
    return faults.hold(desk.defects[-1]) if found is None else found


def _written(result: AllocationResult, now: datetime) -> Json:
    """Return status.allocation. Without its time kube-scheduler would fill that in, and be refused the change."""
    shares = [str(uuid.uuid4()) for given in result.given if given.shared]
    at = now.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"allocationTimestamp": at, **result.json(shares)}


# What went wrong.


async def _resolve(desk: LeaderState, facts: CycleInputs, work: _Work) -> None:
    """Take a gang back for which something went wrong for good; what may succeed later is tried by the next cycle."""
    group = work.group
    if work.hold is not None and work.hold.reason is HoldReason.NO_FEASIBLE_PLACEMENT and not _let_in(desk, group):
        await evict.give_back(desk, facts, group, work.hold.message)
    if not work.errors:
        return
    error = next((one for one in work.errors if _is_final(one)), work.errors[0])
    work.hold = _waits(f"it cannot be placed as planned: {error}")
    if not _is_final(error):
        return
    if _let_in(desk, group) and not any(pod.phase == "Running" for pod in group.pods):
        await evict.take_back_started(desk, facts, group, str(error))
    elif work.start.gates:
        await evict.give_back(desk, facts, group, str(error), wait=isinstance(error, FixError))


def _is_final(error: Exception) -> bool:
    """Whether trying the same again is in vain: the claim is not what it was, or the API server refuses it."""
    return isinstance(error, (ConflictError, GoneError, FixError))


def _let_in(desk: LeaderState, group: Group) -> list[Pod]:
    """Return the pods with a place whose gate is open, though the view may not show it yet."""
    seats = group.placement.seats if group.placement is not None else {}
    return [pod for pod in group.pods if pod.meta.uid in seats and (not pod.gated or pod.meta.uid in desk.opened)]


def _waits(message: str, claim: str = "") -> Hold:
    return Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"claim": claim} if claim else {})
