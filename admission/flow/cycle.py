"""One admission cycle: the numbered steps from a frozen snapshot to opened gates.

Called by `control` for every batch of changes, and by `muster simulate` with ports in memory. The order of the steps
keeps the promises: nothing is placed before its reservation is committed, and what an earlier cycle or an earlier
leader left half-done is finished or taken back before anything new is decided.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TypeVar

from admission.api.entries import Entry, Holding, Placement, Seat
from admission.api.gangs import GangReport
from admission.api.meta import EPOCH
from admission.api.names import GangUid, NodeName, QueueName, Uid
from admission.api.pods import Pod
from admission.api.reasons import Hold, HoldReason
from admission.api.reports import ConditionReport, QueueReport
from admission.api.snapshot import Snapshot
from admission.dra import landing, metering, worlds
from admission.dra.metering import Meters
from admission.dra.selecting import Selectors
from admission.dra.worlds import World
from admission.errors import ConflictError, GoneError, LedgerAwayError, MendError, RetryError
from admission.flow import notices
from admission.flow.ports import Ledger, Pods, Reports, View
from admission.policy import deciding, following, recognition, reporting
from admission.policy.deciding import Backoff, Decision, Grant
from admission.policy.following import Eviction
from admission.policy.recalling import Recall
from admission.policy.recognition import Group
from admission.quota import books
from admission.quota.books import Book
from admission.quota.tree import Tree

T = TypeVar("T")

START_TIMEOUT = timedelta(minutes=5)
"""Of a gang whose queue is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside, as a cycle needs it."""

    view: View
    pods: Pods
    reports: Reports
    ledger: Ledger


@dataclass(slots=True, kw_only=True)
class Desk:
    """What one leader works with during its term. The book is what the ledger holds, kept in step with every post."""

    ports: Ports
    actor: str
    epoch: int
    steps: int = 50_000
    writes: int = 32
    book: Book = field(default_factory=Book)
    loaded: bool = False
    selectors: Selectors = field(default_factory=Selectors)
    meters: Meters = field(default_factory=Meters)
    """The meters of the last cycle, compiled; made anew only when a Meter has changed."""
    world: World | None = None
    """The world of the last cycle; what has not changed since is taken from it."""
    recall: Recall = field(default_factory=Recall)
    """The planner's holds that may still stand."""
    backoffs: dict[GangUid, Backoff] = field(default_factory=dict)
    opened: set[Uid] = field(default_factory=set)
    """Pods whose gate this leader has opened, though the view may not show it yet."""
    told: dict[GangUid, notices.Told] = field(default_factory=dict)
    """What was last said of each gang in Events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a cycle found and did."""

    gangs: tuple[GangReport, ...] = ()
    queues: tuple[QueueReport, ...] = ()
    conditions: tuple[ConditionReport, ...] = ()
    granted: tuple[GangUid, ...] = ()
    """Gangs granted in this cycle, in order."""
    next_try: datetime | None = None
    """When something will change though nothing happens: a back-off or a start timeout ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What steps 1 and 2 gather."""

    snapshot: Snapshot
    groups: list[Group]
    tree: Tree
    meters: Meters
    now: datetime


async def run(desk: Desk, now: datetime) -> Result:
    """Run one cycle. Raises DeposedError when another leader has taken over; everything else is tried again later."""
    # 1. Freeze what is known.
    snapshot = desk.ports.view.snapshot()
    facts = _Facts(
        snapshot=snapshot,
        groups=[],
        tree=Tree.of(snapshot.queues.values()),
        meters=_compiled(desk, snapshot),
        now=now,
    )

    # 2. Bring the books up to date with what has happened, and take back or finish what was begun.
    away = await _keep_books(desk, facts)
    facts = replace(facts, groups=recognition.groups(snapshot, desk.book.placements))
    _remember_backoffs(desk, facts)
    away = away or await _take_back(desk, facts)
    await _open_gates(desk, [pair for group in facts.groups for pair in following.unfinished(group)])

    # 3. Decide about everything that waits, in order. A pure function of the snapshot, off the event loop.
    facts = replace(facts, groups=recognition.groups(snapshot, desk.book.placements))
    decisions = await asyncio.to_thread(_decide, desk, facts)

    # 4. Commit the reservations. 5. Place: only what was committed.
    decisions = [_held_by_ledger(decision) for decision in decisions] if away else await _grant(desk, decisions, now)

    # 6. Say so.
    return await _report(desk, facts, decisions)


def _compiled(desk: Desk, snapshot: Snapshot) -> Meters:
    if desk.meters.meters != snapshot.meters:
        desk.meters = metering.compile_meters(snapshot.meters.values())
    return desk.meters


async def _keep_books(desk: Desk, facts: _Facts) -> bool:
    """Post quota changes, settlements and releases. Return whether the ledger is away."""
    try:
        if not desk.loaded:
            desk.book = await desk.ports.ledger.load()
            desk.loaded = True
        claims = following.index_claims(facts.snapshot)
        devices = following.index_devices(facts.snapshot)
        settlements = (
            following.settlement(placement, claims, devices, meters=facts.meters, at=facts.now, actor=desk.actor)
            for placement in desk.book.placements.values()
        )
        await _post(desk, [*_quota_changes(desk, facts), *settlements])
        releases = (
            following.release(placement, facts.snapshot, claims, at=facts.now, actor=desk.actor)
            for placement in desk.book.placements.values()
        )
        await _post(desk, [*releases])
    except LedgerAwayError:
        # What happened shows in the cluster for as long as the books do not say so: the next cycle posts it.
        return True
    return False


def _quota_changes(desk: Desk, facts: _Facts) -> Iterable[Entry]:
    """Yield a grant for every nominal quota that is not what the ledger says."""
    wanted = {
        (name, quota.meter): quota.nominal for name, queue in facts.snapshot.queues.items() for quota in queue.quotas
    }
    known = {(account.queue, account.meter) for account in desk.book.balances}
    for queue, meter in sorted({*wanted, *known}):
        delta = wanted.get((queue, meter), 0) - desk.book.nominal(queue, meter)
        if delta and ("Queue", queue) not in facts.snapshot.malformed:
            yield books.grant(queue, meter, delta, at=facts.now, actor=desk.actor)


def _remember_backoffs(desk: Desk, facts: _Facts) -> None:
    """Take over what an earlier leader wrote into the Gangs' status; forget gangs that are gone."""
    for group in facts.groups:
        record = group.record
        if group.uid not in desk.backoffs and record is not None and record.evictions:
            desk.backoffs[group.uid] = Backoff(evictions=record.evictions, next_try=record.next_try or EPOCH)
    alive = {group.uid for group in facts.groups}
    for uid in [uid for uid in desk.backoffs if uid not in alive]:
        if _gang_is_over(desk, uid, facts.now):
            del desk.backoffs[uid]


def _gang_is_over(desk: Desk, uid: GangUid, now: datetime) -> bool:
    """Return whether a gang without pods may be forgotten: its controller had time to make new ones."""
    return uid not in desk.book.placements and now - desk.backoffs[uid].next_try > timedelta(hours=1)


async def _take_back(desk: Desk, facts: _Facts) -> bool:
    """Evict gangs that cannot start whole or did not start in time. Return whether the ledger is away."""
    for group in facts.groups:
        queue = facts.snapshot.queues.get(group.queue)
        timeout = queue.start_timeout if queue is not None else START_TIMEOUT
        eviction = following.eviction(group, facts.snapshot, start_timeout=timeout, now=facts.now)
        if eviction is None or group.placement is None:
            continue
        if not await _delete(desk, eviction):
            continue
        try:
            await _post(desk, [books.evict(group.placement, at=facts.now, actor=desk.actor, reason=eviction.reason)])
        except LedgerAwayError:
            return True
        if eviction.timed_out and queue is not None:
            desk.backoffs[group.uid] = deciding.next_backoff(desk.backoffs.get(group.uid), queue, facts.now)
        await notices.evicted(desk.ports.reports, eviction)
    return False


async def _delete(desk: Desk, eviction: Eviction) -> bool:
    """Delete the gang's pods. Return whether all are gone or going; if not, the next cycle tries again."""

    async def evict(pod: Pod) -> None:
        await desk.ports.pods.evict(pod, eviction.reason)

    failed = await _all(desk, [(pod, evict) for pod in eviction.pods])
    return not failed


def _decide(desk: Desk, facts: _Facts) -> list[Decision]:
    rules = deciding.Rules(
        snapshot=facts.snapshot,
        tree=facts.tree,
        meters=facts.meters,
        selectors=desk.selectors,
        backoffs=dict(desk.backoffs),
        now=facts.now,
        steps=desk.steps,
        recall=desk.recall,
    )
    waiting = [group for group in facts.groups if group.waiting]
    if not waiting:
        return []
    desk.world = world = worlds.of(facts.snapshot, desk.book.placements.values(), before=desk.world)
    desk.selectors.keep(world.shelves)
    world = landing.landed(world, selectors=desk.selectors, steps=desk.steps)
    usage = {queue: {m: sum(use) for m, use in meters.items()} for queue, meters in desk.book.usage().items()}
    return deciding.decide_all(waiting, rules, world, usage)


async def _grant(desk: Desk, decisions: Sequence[Decision], now: datetime) -> list[Decision]:
    """Commit all grants at once, then place them in order. What the ledger does not take becomes a hold."""
    granted = [(decision.group, decision.outcome) for decision in decisions if isinstance(decision.outcome, Grant)]
    try:
        await _post(desk, [_reservation(group, grant, desk.actor, now) for group, grant in granted])
    except LedgerAwayError:
        return [_held_by_ledger(decision) for decision in decisions]

    waiting = {pod.meta.uid: pod for group, _ in granted for pod in group.waiting}
    await _open_gates(desk, [(waiting[pod.uid], pod.node) for _, grant in granted for pod in grant.plan.pods])
    for group, grant in granted:
        await notices.admitted(desk.ports.reports, group, grant)
    return list(decisions)


def _reservation(group: Group, grant: Grant, actor: str, now: datetime) -> Entry:
    planned = {claim.uid: claim for pod in grant.plan.pods for claim in pod.claims}
    size = len(grant.plan.pods)
    workload = group.identity.workload
    return books.reserve(
        gang_uid=group.uid,
        gang=group.key,
        queue=group.queue,
        seats=[
            Seat(pod_uid=pod.uid, pod=pod.pod, node=pod.node, claims=grant.claims[pod.uid]) for pod in grant.plan.pods
        ],
        holdings=[
            Holding(claim_uid=uid, claim=claim.claim, devices=claim.devices, charge=grant.plan.charges.get(uid, {}))
            for uid, claim in planned.items()
        ],
        at=now,
        actor=actor,
        reason=f"{size} {'pod' if size == 1 else 'pods'} can be placed together within quota",
        on_behalf_of=f"{workload.kind} {group.identity.namespace}/{workload.name}" if workload else group.key,
    )


def _held_by_ledger(decision: Decision) -> Decision:
    if not isinstance(decision.outcome, Grant):
        return decision
    message = "it could start, but the ledger's database does not answer and nothing is granted without a row"
    return replace(decision, outcome=Hold(HoldReason.LEDGER_UNAVAILABLE, message))


async def _post(desk: Desk, entries: Iterable[Entry | None]) -> None:
    """Record entries, all or none, and keep the book in step."""
    wanted = [entry for entry in entries if entry is not None]
    if not wanted:
        return
    try:
        posted = await desk.ports.ledger.post_all(wanted, epoch=desk.epoch)
        written = [entry for entry, place in zip(wanted, posted, strict=True) if not place.repeated]
        desk.book = desk.book.apply_all(written)
    except LedgerAwayError:
        # Whether the entries were written is not known; the book is read again before anything else is decided.
        desk.loaded = False
        raise
    except ConflictError as error:
        desk.loaded = False
        raise LedgerAwayError(f"the book is out of date: {error}") from error


async def _open_gates(desk: Desk, pairs: Sequence[tuple[Pod, NodeName]]) -> None:
    """Open gates in order, several at a time. What fails stays granted, and the next cycle tries it again."""

    def opener(node: NodeName) -> Callable[[Pod], Awaitable[None]]:
        async def open_gate(pod: Pod) -> None:
            await desk.ports.pods.open_gate(pod, node)
            desk.opened.add(pod.meta.uid)

        return open_gate

    await _all(desk, [(pod, opener(node)) for pod, node in pairs if pod.meta.uid not in desk.opened])


async def _all(desk: Desk, calls: Sequence[tuple[Pod, Callable[[Pod], Awaitable[None]]]]) -> list[Pod]:
    """Call for every pod, `writes` at a time, started in order. Return the pods for which it has to be tried again."""
    limit = asyncio.Semaphore(desk.writes)
    failed: list[Pod] = []

    async def call(pod: Pod, action: Callable[[Pod], Awaitable[None]]) -> None:
        async with limit:
            try:
                await action(pod)
            except GoneError:
                pass  # the next cycle sees that the pod is gone, and what follows from it
            except (RetryError, MendError) as error:
                failed.append(pod)
                await notices.failed(desk.ports.reports, pod, error)

    async with asyncio.TaskGroup() as tasks:
        for pod, action in calls:
            tasks.create_task(call(pod, action), name=f"write {pod.meta.key}")
    return failed


async def _report(desk: Desk, facts: _Facts, decisions: Sequence[Decision]) -> Result:
    """Write every status, tell what changed, and return it all."""
    facts = replace(facts, groups=recognition.groups(facts.snapshot, desk.book.placements))
    desk.opened &= {pod.meta.uid for group in facts.groups for pod in group.pods if pod.gated}
    basis = reporting.Facts(
        snapshot=facts.snapshot,
        book=desk.book,
        tree=facts.tree,
        meters=facts.meters,
        decisions={decision.group.uid: decision for decision in decisions},
        backoffs=desk.backoffs,
    )
    gangs = [*(reporting.gang(group, basis) for group in facts.groups), *_idle(facts)]
    queues = [*reporting.queues(facts.groups, gangs, basis), *_malformed(facts.snapshot)]
    conditions = reporting.conditions(basis)
    granted = [d.group.uid for d in decisions if isinstance(d.outcome, Grant)]
    reports = desk.ports.reports
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_each(reports.gang, gangs), name="report gangs")
        tasks.create_task(_each(reports.queue, queues), name="report queues")
        tasks.create_task(_each(reports.conditions, conditions), name="report meters")
        tasks.create_task(notices.held(reports, facts.groups, gangs, desk.told), name="report holds")
    return Result(
        gangs=tuple(sorted(gangs, key=lambda report: report.key)),
        queues=tuple(queues),
        conditions=tuple(conditions),
        granted=tuple(granted),
        next_try=_next_try(desk, facts),
    )


async def _each(write: Callable[[T], Awaitable[None]], reports: Iterable[T]) -> None:
    """Write every report. One that fails is written again by the next cycle; what was decided stands."""
    for report in reports:
        with contextlib.suppress(RetryError, MendError, GoneError):
            await write(report)


def _idle(facts: _Facts) -> list[GangReport]:
    """Return the status of Gang objects whose pods are gone or have not come yet."""
    known = {group.key for group in facts.groups}
    return [reporting.idle(gang) for key, gang in facts.snapshot.gangs.items() if key not in known]


def _malformed(snapshot: Snapshot) -> list[QueueReport]:
    return [
        reporting.malformed_queue(name, str(error))
        for (kind, name), error in sorted(snapshot.malformed.items())
        if kind == "Queue"
    ]


def _next_try(desk: Desk, facts: _Facts) -> datetime | None:
    """Return the earliest time at which a back-off or a start timeout ends."""
    ends = [backoff.next_try for backoff in desk.backoffs.values() if backoff.next_try > facts.now]
    for placement in desk.book.placements.values():
        queue = facts.snapshot.queues.get(QueueName(placement.queue))
        if queue is not None and _is_starting(placement, facts.snapshot):
            ends.append(placement.reserved_at + queue.start_timeout)
    return min(ends, default=None)


def _is_starting(placement: Placement, snapshot: Snapshot) -> bool:
    pods = (snapshot.pods.get(uid) for uid in placement.seats)
    return any(pod is not None and pod.phase == "Pending" for pod in pods)
