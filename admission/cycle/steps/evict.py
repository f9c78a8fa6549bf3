"""Taking whole gangs back: those that cannot start whole or did not start in time, and those that may run no longer.

The pods of a Job are taken back by suspending it, as the Job controller counts deleted pods as failures and would give
the Job up after a few (batch/v1, backoffLimit); it is resumed when they are gone. A workload that is held as a whole is
suspended until its gang may start again. Other pods are evicted one by one.
What is remembered of an eviction is written before anything is deleted, so that the next leader keeps to it.
"""

import contextlib
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from admission.accounting import books
from admission.api.kubernetes.meta import EPOCH, Owner
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import Evicted, Gang
from admission.api.muster.ledger_entries import Placement
from admission.api.values import names
from admission.api.values.names import GangUid, QueueName, Uid
from admission.api.values.reasons import EvictionReason
from admission.cycle import bulk_writes, events, fencing
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.cycle.steps import deallocate, ledger_sync
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import limits, requeue_backoff, transitions
from admission.lifecycle.requeue_backoff import Backoff
from admission.lifecycle.transitions import Eviction
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.status import gang
from admission.workloads import suspendable
from admission.workloads.gang_cache import Place
from admission.workloads.gangs import Group

START_TIMEOUT = timedelta(minutes=5)
"""Of a gang whose queue is gone."""

AT_ONCE = 3
"""How often a gang that cannot be placed as planned is planned anew at once, before it backs off like others: what is
wrong may not be the plan."""

FORGET_AFTER = timedelta(hours=1)
"""How long a back-off outlives the pods of its gang: their controller has had time to make new ones."""


async def take_back(desk: LeaderState, facts: CycleInputs) -> CycleInputs:
    """Evict what has to be, and return the facts with the gangs that were concerned, done or not."""
    concerned: set[GangUid] = set()
    limiting = limits.limiting(facts.tree)
    desk.halfway = {uid: reason for uid, reason in desk.halfway.items() if uid in desk.book.placements}
    begun = desk.ending | desk.halfway.keys()
    _note_places(desk, facts)
    for group in [one for one in facts.groups if not one.in_full or limiting or begun]:
        if group.placement is None or not _may_be_due(group, limiting, begun):
            continue
        ask = partial(_due, desk, facts, group, limiting)
        eviction = faults.spared(During.FOLLOWING, group.key, ask, desk.defects)
        if eviction is None:
            desk.halfway.pop(group.uid, None)
            continue
        concerned.add(group.uid)
        await _take_back(desk, facts, eviction)
    return replace(facts, taken_back=frozenset(concerned))


def _note_places(desk: LeaderState, facts: CycleInputs) -> None:
    """Note how many places a gang has as it begins, and when one is lost or it is scaled, until it is whole again."""
    placed = ((group.uid, group.placement) for group in facts.groups if not group.in_full)
    known = desk.had
    desk.had = {uid: known.get(uid, len(one.seats)) for uid, one in placed if one is not None and one.seats}


def _may_be_due(group: Group, limiting: Collection[QueueName], begun: Collection[GangUid]) -> bool:
    """Whether a gang has to be looked at: of most that run, nothing follows."""
    placement = group.placement
    return not group.in_full or (placement is not None and placement.queue in limiting) or group.uid in begun


def _due(desk: LeaderState, facts: CycleInputs, group: Group, limiting: Collection[QueueName]) -> Eviction | None:
    """Return why a gang is to be taken back: that was decided before, it cannot start, or it may run no longer."""
    if group.uid in desk.ending:
        return limits.begun(group, desk.evicted[group.uid])
    queue, begun = facts.snapshot.queues.get(group.queue), desk.halfway.get(group.uid, "")
    timeout = queue.start_timeout if queue is not None else START_TIMEOUT
    had = desk.had.get(group.uid, sys.maxsize)
    found = transitions.eviction(group, facts.observed, start_timeout=timeout, now=facts.now, begun=begun, had=had)
    if found is None and group.placement is not None and group.placement.queue in limiting:
        return limits.due(group, facts.tree, facts.now)
    return found


async def end(desk: LeaderState, facts: CycleInputs, eviction: Eviction) -> None:
    """Take a gang back that could go on; where that fails, or the leader dies, the next cycle goes on with it."""
    await _take_back(desk, facts, eviction)


async def _take_back(desk: LeaderState, facts: CycleInputs, eviction: Eviction) -> None:
    group, placement = eviction.group, eviction.group.placement
    if _note(desk, facts, eviction):
        await _remember(desk, facts, group)
    # Nothing of what follows is refused when it comes late: a pod may have started under a successor meanwhile.
    if placement is None or not await fencing.holds(desk) or not await _delete(desk, facts, eviction):
        return
    keep = transitions.wanted_claims(_others(desk, group), facts.observed)
    if not await deallocate.withdraw(desk, facts, placement, keep=keep):
        return
    await ledger_sync.record(
        desk, [books.evict(placement, keep=keep, at=facts.now, actor=desk.actor, reason=eviction.told)]
    )
    if group.uid in desk.ending:
        desk.ending.discard(group.uid)
        desk.taken.append((group, desk.evicted[group.uid]))
    await events.gang_evicted(desk.ports.reports, eviction)


def _note(desk: LeaderState, facts: CycleInputs, eviction: Eviction) -> bool:
    """Note a back-off, and why a gang is taken back that could go on. Return whether there is anything new in that."""
    group, queue = eviction.group, facts.snapshot.queues.get(eviction.group.queue)
    if group.identity.line:
        desk.census.places[group.identity.line] = Place(since=group.first_queued, noted=facts.now)
    backs_off = eviction.timed_out and queue is not None and not _is_under_way(desk, eviction)
    if backs_off and queue is not None:
        before, overran = desk.backoffs.get(group.uid), eviction.cause is EvictionReason.RUNTIME_EXCEEDED
        backoff = requeue_backoff.following(
            before, queue, clock=facts.clock, since=facts.now, failure=eviction.failure, overran=overran
        )
        desk.backoffs[group.uid] = backoff
        if group.identity.line:
            desk.lines[group.identity.line] = backoff
    if eviction.cause is None or group.uid in desk.ending:
        return backs_off
    desk.evicted[group.uid] = Evicted(
        reason=eviction.cause, message=eviction.reason, at=facts.now, made_room_for=eviction.made_room_for
    )
    desk.ending.add(group.uid)
    return True


async def take_back_started(desk: LeaderState, facts: CycleInputs, group: Group, reason: str) -> None:
    """Evict a gang that was let in and cannot start, as if it had not started in time."""
    let_in = tuple(pod for pod in group.pods if not pod.gated)
    eviction = Eviction(group=group, pods=let_in, reason=reason, timed_out=True, failure=reason)
    await _take_back(desk, facts, eviction)


async def give_back(desk: LeaderState, facts: CycleInputs, group: Group, reason: str, *, wait: bool = False) -> None:
    """Take the places of a gang's gated pods back, and the devices that only they wait for. Nothing is deleted.

    wait: whether the gang backs off before it is tried again, as it does in any case after a few times. What fails is
    left as it is, for the next cycle.
    """
    placement, queue = desk.book.placements.get(group.uid), facts.snapshot.queues.get(group.queue)
    gated = [pod for pod in group.half_open if pod.meta.uid not in desk.opened]
    if placement is None or not gated:
        return
    desk.returned[group.uid] = desk.returned.get(group.uid, 0) + 1
    if (wait or desk.returned[group.uid] > AT_ONCE) and queue is not None:
        before = desk.backoffs.get(group.uid)
        desk.backoffs[group.uid] = requeue_backoff.following(
            before, queue, clock=facts.clock, since=facts.now, failure=reason
        )
        await _remember(desk, facts, group)
    if not await _shut(desk, gated):
        return
    gone = {pod.meta.uid for pod in gated}
    left = replace(placement, seats={uid: seat for uid, seat in placement.seats.items() if uid not in gone})
    keep = transitions.wanted_claims([left, *_others(desk, group)], facts.observed)
    if not await deallocate.withdraw(desk, facts, placement, keep=keep):
        return
    at, actor = facts.now, desk.actor
    if left.seats:
        unused = {uid for uid, holding in placement.holdings.items() if not holding.settled and uid not in keep}
        entry = books.release(placement, pods=gone, claims=unused, at=at, actor=actor, reason=reason)
    else:
        entry = books.evict(placement, keep=keep, at=at, actor=actor, reason=reason)
    await ledger_sync.record(desk, [entry])
    await events.gang_returned(desk.ports.reports, group, gated, reason)


async def _shut(desk: LeaderState, pods: Sequence[Pod]) -> bool:
    """Make sure that gates stay shut, whoever was about to open them. Return whether all of them do."""
    opened: list[Pod] = []

    async def shut(pod: Pod) -> None:
        if not await desk.ports.pods.shut(pod):
            opened.append(pod)

    there = [pod for pod in pods if not names.is_expected(pod.meta.uid)]
    failed = await bulk_writes.in_lanes(desk, [[(pod, shut)] for pod in there])
    return not failed and not opened


def _others(desk: LeaderState, group: Group) -> list[Placement]:
    return [other for uid, other in desk.book.placements.items() if uid != group.uid]


def _is_under_way(desk: LeaderState, eviction: Eviction) -> bool:
    """Whether the same eviction was begun by an earlier cycle, and not all pods could be deleted."""
    backoff = desk.backoffs.get(eviction.group.uid)
    placement = eviction.group.placement
    return backoff is not None and placement is not None and backoff.since >= placement.reserved_at


async def _remember(desk: LeaderState, facts: CycleInputs, group: Group) -> None:
    """Write the back-off into the gang's status before anything is deleted."""
    basis = gang.StatusInputs(
        snapshot=facts.snapshot,
        book=desk.book,
        tree=facts.tree,
        meters=facts.meters,
        backoffs=desk.backoffs,
        evicted=desk.evicted,
    )
    with contextlib.suppress(RetryError, FixError, GoneError):
        await desk.ports.reports.gang(gang.gang(group, basis))
        await desk.ports.reports.flush()


async def _delete(desk: LeaderState, facts: CycleInputs, eviction: Eviction) -> bool:
    """Have the gang's pods deleted. Return whether all are gone or going; if not, the next cycle tries again.

    Those that run go first: as long as one of the others is there, every leader sees that the gang has not started.
    What has ended leaves its pods as they are when it is suspended.
    """
    group = eviction.group
    suspend = _suspending(desk, facts, group.identity.workload)
    if suspend is not None:
        return await _suspended(desk, eviction, suspend, group.pods)
    left, made = _by_maker(desk, facts, group)
    for suspend, pods in made:
        if not await _suspended(desk, eviction, suspend, pods):
            return False
    going = [pod for pod in eviction.pods if pod.meta.uid in left]
    running = [pod for pod in going if pod.phase == "Running"]
    late = [pod for pod in going if pod.phase != "Running"]
    if not (await _evict(desk, eviction, running) and await _evict(desk, eviction, late)):
        return False
    desk.halfway.pop(group.uid, None)
    gone = {pod.meta.uid for pod in going}
    return await _shut(desk, [pod for pod in group.half_open if pod.meta.uid in left and pod.meta.uid not in gone])


Suspend = Callable[[], Awaitable[None]]


def _suspending(desk: LeaderState, facts: CycleInputs, owner: Owner | None) -> Suspend | None:
    """Return what suspends an object so that it takes its pods back; None where it is not suspended, but they go."""
    workload = suspendable.named(owner, facts.snapshot)
    if workload is not None and not workload.found.finished:
        return partial(desk.ports.workloads.hold, workload.kind.suspendable(workload.meta))
    job = facts.snapshot.jobs.get(owner.uid) if owner is not None else None
    return partial(desk.ports.workloads.suspend, job) if job is not None and not job.finished else None


def _by_maker(desk: LeaderState, facts: CycleInputs, group: Group) -> tuple[set[Uid], list[tuple[Suspend, list[Pod]]]]:
    """Return the pods of a gang, which nothing makes as a whole, that go one by one, and what suspends the others.

    A Job that another object controls is for that one to suspend.
    """
    left, made = set[Uid](), dict[Uid, tuple[Suspend, list[Pod]]]()
    for pod in group.pods:
        owner = pod.meta.controller
        job = facts.snapshot.jobs.get(owner.uid) if owner is not None else None
        is_free = job is None or (job.meta.namespace == pod.meta.namespace and suspendable.is_free(job.meta.controller))
        suspend = _suspending(desk, facts, owner) if is_free else None
        if owner is None or suspend is None:
            left.add(pod.meta.uid)
        else:
            made.setdefault(owner.uid, (suspend, []))[1].append(pod)
    return left, [*made.values()]


async def _evict(desk: LeaderState, eviction: Eviction, pods: Sequence[Pod]) -> bool:
    """Evict pods one by one. Return whether all are gone or going; remember the gang where only some are."""

    async def evict(pod: Pod) -> None:
        await desk.ports.pods.evict(pod, eviction.reason)
        desk.leaving.add(pod.meta.uid)
        desk.halfway[eviction.group.uid] = eviction.reason

    return not await bulk_writes.in_lanes(desk, [[(pod, evict)] for pod in pods])


async def _suspended(desk: LeaderState, eviction: Eviction, suspend: Suspend, pods: Sequence[Pod]) -> bool:
    """Suspend what makes some pods. Return whether that is done."""
    try:
        await suspend()
    except (RetryError, FixError) as error:
        for pod in eviction.pods[:1]:
            await events.gang_failed(desk.ports.reports, pod, error)
        return False
    except GoneError:
        return True
    uids = (pod.meta.uid for pod in pods)
    desk.leaving.update(uid for uid in uids if not names.is_expected(uid))
    return True


async def resume_jobs(desk: LeaderState, facts: CycleInputs) -> None:
    """Let Jobs that were suspended to take their pods back make them again, once those are gone."""
    jobs = [job for job in facts.snapshot.jobs.values() if job.suspended and names.REQUEUED in job.meta.annotations]
    pods = facts.snapshot.pods.values() if jobs else ()
    owners = {pod.meta.controller.uid for pod in pods if _is_left(pod) and pod.meta.controller}
    for job in jobs:
        if job.meta.uid not in owners:
            with contextlib.suppress(RetryError, FixError, GoneError):
                await desk.ports.workloads.resume(job)


def _is_left(pod: Pod) -> bool:
    return not pod.finished


def remember_backoffs(desk: LeaderState, facts: CycleInputs) -> None:
    """Take over what an earlier leader wrote into Gangs' status; forget gangs that run, or are gone for long.

    A gang that its controller makes anew after an eviction, under another UID, goes on where the one before was.
    """
    places = desk.census.places
    for line in [line for line, place in places.items() if facts.now - place.noted > FORGET_AFTER]:
        del places[line]
    if facts.groups is not desk.recalled:
        _look_at_records(desk, facts)
        desk.recalled = facts.groups
    desk.ending = {uid for uid in desk.ending if uid in desk.book.placements and desk.book.placements[uid].seats}
    for uid in [uid for uid in desk.evicted if uid not in desk.census]:
        if uid not in desk.book.placements and facts.now - desk.evicted[uid].at > FORGET_AFTER:
            del desk.evicted[uid]
    for uid in [uid for uid in desk.backoffs if uid not in desk.census]:
        if uid not in desk.book.placements and facts.clock - desk.backoffs[uid].next_try > FORGET_AFTER:
            del desk.backoffs[uid]
    desk.backoffs = {uid: requeue_backoff.within(known, facts.clock) for uid, known in desk.backoffs.items()}
    lines = ((line, requeue_backoff.within(known, facts.clock)) for line, known in desk.lines.items())
    desk.lines = {line: known for line, known in lines if facts.clock - known.next_try <= FORGET_AFTER}


def _look_at_records(desk: LeaderState, facts: CycleInputs) -> None:
    noted = {*desk.evicted, *desk.backoffs, *desk.returned}
    lines = {*desk.lines, *desk.census.places}
    for group in [group for group in facts.groups if not group.in_full or _is_noted(group, noted, lines)]:
        _recall_eviction(desk, facts, group)
        let_in = len(group.pods) - len(group.waiting)
        if let_in and sum(pod.phase == "Running" for pod in group.pods) == let_in:
            desk.backoffs.pop(group.uid, None)
            desk.lines.pop(group.identity.line, None)
            if group.uid not in desk.ending:
                desk.census.places.pop(group.identity.line, None)
            desk.returned.pop(group.uid, None)
        elif group.uid not in desk.backoffs and group.identity.line in desk.lines:
            desk.backoffs[group.uid] = desk.lines[group.identity.line]
        elif group.uid not in desk.backoffs and group.record is not None and group.record.evictions:
            desk.backoffs[group.uid] = _recalled(desk, facts, group, group.record)
    desk.returned = {uid: times for uid, times in desk.returned.items() if uid in desk.census}


def _is_noted(group: Group, noted: Collection[GangUid], lines: Collection[str]) -> bool:
    """Whether anything is remembered of a gang that its running may end. noted, lines: of whom something is."""
    if group.uid in noted or (lines and group.identity.line in lines):
        return True
    return group.record is not None and group.record.evicted is not None


def _recalled(desk: LeaderState, facts: CycleInputs, group: Group, record: Gang) -> Backoff:
    """Return the back-off that an earlier leader wrote, by its own clock."""
    evicted, queue = desk.evicted.get(group.uid), facts.snapshot.queues.get(group.queue)
    return Backoff(
        evictions=record.evictions,
        next_try=record.next_try or EPOCH,
        wait=requeue_backoff.wait_after(record.evictions, queue) if queue is not None else requeue_backoff.LONGEST,
        overran=evicted is not None and evicted.reason is EvictionReason.RUNTIME_EXCEEDED,
    )


def _recall_eviction(desk: LeaderState, facts: CycleInputs, group: Group) -> None:
    """Take over from the status that a gang was taken back, and is to be still; forget it where it runs again."""
    uid, placement = group.uid, group.placement
    known = group.record.evicted if group.record is not None else None
    if known is not None and uid not in desk.evicted:
        desk.evicted[uid] = known
        if placement is not None and placement.seats and placement.reserved_at <= known.at <= facts.now:
            desk.ending.add(uid)
    runs = bool(group.pods) and all(pod.phase == "Running" for pod in group.pods)
    if runs and placement is not None and uid not in desk.ending:
        desk.evicted.pop(uid, None)


def forget_pods(desk: LeaderState, facts: CycleInputs) -> None:
    """Drop what was noted of pods that the view has caught up with."""
    pods = facts.snapshot.pods
    desk.leaving = {uid for uid in desk.leaving if uid in pods and pods[uid].meta.deleted is None}
    desk.opened = {uid for uid in desk.opened if _is_gated(pods.get(uid))}


def _is_gated(pod: Pod | None) -> bool:
    return pod is not None and pod.gated
