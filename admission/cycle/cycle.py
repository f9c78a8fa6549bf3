"""One admission cycle: the numbered steps from a frozen snapshot to opened gates.

Called by `admission.controller` for every batch of changes, and by `muster simulate` with ports in memory. The order of
the steps keeps the promises: nothing is placed before its reservation is committed, and what an earlier cycle or an
earlier leader left half-done is taken back or finished before anything new is decided.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TypeVar

from admission.api.muster.gangs import GangReport, Phase
from admission.api.muster.ledger_entries import Placement
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import ConditionReport, QueueReport
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid, QueueName
from admission.cel.syntax import parser
from admission.cycle import events
from admission.cycle.state.leader import CycleInputs, CycleResult, LeaderState, QueueStatusCache
from admission.cycle.steps import (
    catch_up,
    commit,
    deallocate,
    evict,
    ledger_sync,
    place,
    preempt,
    protection,
    queue_finalizers,
    suspend_resume,
    usage_history,
)
from admission.dra.allocator import nominated
from admission.dra.compatibility import SchedulerProfile
from admission.dra.inventory.selectors import Selectors
from admission.dra.metering import device_meters, meter_health
from admission.dra.metering.device_meters import Meters
from admission.dra.state import cluster_state
from admission.errors import FixError, GoneError, RetryError
from admission.lifecycle import deleted_queues, ledger_clock, limits, requeue_backoff
from admission.lifecycle.transitions import ObservedAllocations
from admission.quota import fair_share
from admission.quota.budgets import Balances
from admission.quota.headroom import Usage
from admission.quota.tree import Tree
from admission.scheduling import cycle
from admission.scheduling.backfill.reservations import ExpectedEnd
from admission.scheduling.cache.plan_cache import PlanCache
from admission.scheduling.cache.verdict_cache import VerdictCache
from admission.scheduling.checks import budget, chain
from admission.scheduling.checks.chain import Decision, Grant
from admission.scheduling.cycle import CycleDecisions
from admission.scheduling.placement import protection as placement_protection, protection_conditions
from admission.scheduling.preemption.targets import PreemptionTargets
from admission.status import gang, queue

T = TypeVar("T")

ASK_AGAIN = timedelta(seconds=5)
"""After how long a database that did not answer is asked again, though nothing else happens."""

LOOK_AGAIN = timedelta(seconds=1)
"""After how long it is looked what other clusters have left of a shared budget, and whether a fence counts by now."""


TELL_AGAIN = timedelta(minutes=1)
"""How often statuses are handed over again, though they are what they were."""

TOLD_AGAIN = 1_000
"""Of so many gangs at a time, since each is compared with what is there."""


async def run(desk: LeaderState, now: datetime) -> CycleResult:
    """Run one cycle. Raises DeposedError when another leader has taken over; everything else is tried again later."""
    # 1. Freeze what is known, and bring the books up to date with what was allocated. What is seen is as of `now`, and
    # the database may take its time.
    desk.defects.clear()
    desk.stuck.clear()
    desk.taken.clear()
    traces = desk.ports.traces
    with traces.step("gather"):
        snapshot = desk.assumed.over(desk.ports.view.snapshot())
        await ledger_sync.open_book(desk)
        protection.judge(desk, snapshot, now)
        snapshot = await desk.aside.run(desk.expecting.over, snapshot, desk.book)
        facts = await _gather(desk, snapshot, now)

    # 2. Take back gangs that cannot start whole or in time; only then release what is gone, of which they are part.
    if desk.known and desk.caught_up:
        facts = await evict.take_back(desk, facts)
        await evict.resume_jobs(desk, facts)
        await suspend_resume.hold_again(desk, facts)
        await ledger_sync.release(desk, facts)
        facts = _regrouped(desk, facts)
        await queue_finalizers.let_go(desk, facts)

    # 3. Hand what was promised to a workload over to its pods, and finish what was granted and is not placed yet. Not
    # from a book that may be out of date.
    if not desk.away and desk.caught_up:
        facts = await deallocate.collect(desk, facts)
        await suspend_resume.hand_over(desk, facts)
    if not desk.away and desk.caught_up:
        facts = _regrouped(desk, facts)
        facts = _regrouped(desk, await place.finish(desk, facts))

    # 4. Decide about what waits, in order. A pure function of the snapshot and the books, off the event loop. A queue
    # that is granted anything is to stay while that is open, even if it is deleted.
    facts = catch_up.without_unconfirmed(desk, facts)
    await queue_finalizers.keep(desk, facts)
    await usage_history.read(desk, facts)
    balances = usage_history.balances(desk, facts)
    with traces.step("plan"):
        round_, sacrifices = await desk.aside.run(_decide, desk, facts, balances)
    protection.judge_again(desk)

    # 5. Commit the reservations. 6. Place: only what was committed.
    decisions = await commit.grant(desk, facts, round_.anew, balances)

    # 7. Evict for those who are held, as it was decided. What that frees is theirs in a later cycle.
    await preempt.evict(desk, facts, sacrifices)

    # 8. Say so.
    with traces.step("report"):
        result = await _report(desk, facts, replace(round_, anew=tuple(decisions)))
    behind = ledger_clock.behind(now, facts.now)
    lag = max(timedelta(0), facts.now - desk.unposted[0].at) if desk.unposted else timedelta(0)
    return replace(result, behind=behind, unposted=len(desk.unposted), lag=lag, defects=tuple(desk.defects))


async def rehearse(desk: LeaderState, clock: datetime) -> None:
    """Read all that a cycle reads, and remember what a cycle does of it: for whoever stands by, and may lead soon.

    What is decided comes to nothing, and nothing is written. Raises LedgerAwayError.
    """
    await ledger_sync.read_ahead(desk)
    snapshot = desk.ports.view.snapshot()
    facts = await desk.aside.run(_rehearse, desk, snapshot, clock)
    await usage_history.read_ahead(desk, facts)
    if await desk.ports.ledger.sequence() != desk.book.sequence:
        # What is written since would be counted once by these sums and again when it is entered into the book.
        desk.booked, desk.history = {}, None
    await desk.aside.run(_rehearse_deciding, desk, facts)


def _rehearse(desk: LeaderState, snapshot: Snapshot, clock: datetime) -> CycleInputs:
    parser.prepare()
    facts = _regrouped(desk, _looked(desk, desk.expecting.over(snapshot, desk.book), clock))
    ledger_sync.look_ahead(desk, facts)
    _appraise(desk, facts)
    _landed(desk, facts)
    _statuses(desk, facts, ())
    return facts


def _rehearse_deciding(desk: LeaderState, facts: CycleInputs) -> None:
    """Plan for those who wait, so that it is known who cannot start. Nobody is promised anything by it."""
    cluster = _landed(desk, facts)
    _expected_ends(desk, facts, cluster)
    if any(group.waiting for group in facts.groups):
        rules = replace(_rules(desk, facts, usage_history.balances(desk, facts)), defects=[])
        cycle.rehearse(facts.groups, rules, cluster, _used(desk))


async def _gather(desk: LeaderState, snapshot: Snapshot, clock: datetime) -> CycleInputs:
    facts = await desk.aside.run(_looked, desk, snapshot, clock)
    evict.forget_pods(desk, facts)
    await ledger_sync.catch_up(desk, facts)
    # A new leader counts all gangs here, which may take seconds.
    facts = await desk.aside.run(_regrouped, desk, facts)
    evict.remember_backoffs(desk, facts)
    return facts


def _looked(desk: LeaderState, snapshot: Snapshot, clock: datetime) -> CycleInputs:
    profile = _profile(desk)
    meters = _compiled(desk, snapshot)
    snapshot = placement_protection.without_fences(snapshot)
    tree = _grown(desk, snapshot, deleted_queues.after(snapshot, seen=desk.queues, gone=desk.gone))
    return CycleInputs(
        snapshot=snapshot,
        observed=_seen(desk, snapshot, meters),
        tree=tree,
        meters=meters,
        now=ledger_clock.onward(clock, desk.book),
        clock=clock,
        profile=profile,
    )


def _grown(desk: LeaderState, snapshot: Snapshot, gone: Mapping[QueueName, Queue]) -> Tree:
    """Return the tree of queues; the same as before, where they are."""
    if desk.tree is None or desk.queues is not snapshot.queues or desk.gone != gone:
        desk.tree = Tree.of(snapshot.queues.values(), gone.values())
    desk.queues, desk.gone = snapshot.queues, gone
    return desk.tree


def _seen(desk: LeaderState, snapshot: Snapshot, meters: Meters) -> ObservedAllocations:
    desk.observed = ObservedAllocations.of(snapshot, meters, desk.observed)
    return desk.observed


def _regrouped(desk: LeaderState, facts: CycleInputs) -> CycleInputs:
    """Return the facts with the gangs as the book has them now."""
    snapshot = desk.expecting.still(facts.snapshot, desk.book)
    if snapshot is not facts.snapshot:
        facts = replace(facts, snapshot=snapshot, observed=_seen(desk, snapshot, facts.meters))
    groups = desk.census.groups(facts.snapshot, desk.book.placements, desk.leaving)
    return replace(facts, groups=groups)


def _profile(desk: LeaderState) -> SchedulerProfile | None:
    """Return which kube-scheduler to decide like; what was found while it was another one is forgotten."""
    profile = desk.ports.scheduler.profile
    if profile is not None and profile != desk.profile:
        desk.profile = profile
        desk.selectors = Selectors(profile.cel)
        desk.cluster, desk.plans, desk.health = None, PlanCache(), meter_health.NOTHING
        desk.rest = VerdictCache()
    return profile


def _compiled(desk: LeaderState, snapshot: Snapshot) -> Meters:
    if desk.meters.meters != snapshot.meters:
        desk.meters = device_meters.compile_meters(snapshot.meters.values())
    return desk.meters


def _decide(
    desk: LeaderState, facts: CycleInputs, balances: Balances | None
) -> tuple[CycleDecisions, tuple[PreemptionTargets, ...]]:
    _appraise(desk, facts)
    if not desk.is_decided:
        desk.rest.lines.clear()
    desk.is_decided = False
    if not any(group.waiting for group in facts.groups):
        return CycleDecisions(), ()
    rules, cluster = _rules(desk, facts, balances), _landed(desk, facts)
    memory, expected_ends = desk.preempting, _expected_ends(desk, facts, cluster)
    expected = memory.expected.beside(expected_ends, memory.nominations.values(), facts.snapshot.queues)
    desk.reserve.present.expect(expected, facts.now)
    return preempt.decide(desk, facts, rules, cluster, _used(desk))


def _expected_ends(
    desk: LeaderState, facts: CycleInputs, cluster: cluster_state.ClusterState
) -> Mapping[str, ExpectedEnd]:
    """Return who has devices, and until when."""
    queues, users = facts.snapshot.queues, cluster.users
    return desk.expected_ends.look(desk.book.placements, facts.groups, queues, users, facts.now)


def _used(desk: LeaderState) -> Usage:
    """Return what queues have taken of meters, be it reserved or used."""
    return {queue: {meter: sum(use) for meter, use in meters.items()} for queue, meters in desk.book.usage().items()}


def _rules(desk: LeaderState, facts: CycleInputs, balances: Balances | None) -> chain.Rules:
    return chain.Rules(
        snapshot=facts.snapshot,
        tree=facts.tree,
        meters=facts.meters,
        selectors=desk.selectors,
        backoffs=dict(desk.backoffs),
        now=facts.now,
        clock=facts.clock,
        steps=desk.steps,
        profile=facts.profile,
        plans=desk.plans,
        rest=desk.rest,
        sharing=fair_share.Rules.of(facts.tree),
        history=usage_history.history(desk, facts),
        balances=balances,
        beyond=commit.UNSEEN if desk.away else None,
        protection=desk.protection,
        unready=facts.unready,
        anew=facts.anew,
        vacant=desk.vacant,
        unfit=desk.expecting.problems,
        defects=desk.defects,
    )


def _appraise(desk: LeaderState, facts: CycleInputs) -> None:
    slices, classes = facts.snapshot.slices, facts.snapshot.classes
    desk.health = meter_health.check(facts.meters, slices, classes, selectors=desk.selectors, before=desk.health)


def _landed(desk: LeaderState, facts: CycleInputs) -> cluster_state.ClusterState:
    placements = desk.book.placements.values()
    before, claims = desk.cluster, facts.observed.claims
    desk.cluster = cluster_state.build(facts.snapshot, placements, profile=desk.profile, before=before, claims=claims)
    if before is None or before.node_inventories is not desk.cluster.node_inventories:
        desk.selectors.keep(desk.cluster.node_inventories)
    return nominated.predict(desk.cluster, selectors=desk.selectors, steps=desk.steps)


async def _report(desk: LeaderState, facts: CycleInputs, decided: CycleDecisions) -> CycleResult:
    """Write every status that is not what it was, tell what changed, and return it all."""
    facts = _regrouped(desk, facts)
    changed = _keep_decisions(desk, facts, decided.anew)
    # Off the event loop: with a thousand queues it takes a good part of a second.
    gangs, queues, conditions = await desk.aside.run(_statuses, desk, facts, changed)
    granted = [d.group.uid for d in decided.anew if isinstance(d.outcome, Grant)]
    reports = desk.ports.reports
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(_tell_gangs(desk, facts, gangs), name="report gangs")
        if desk.known and desk.caught_up:
            tasks.create_task(_each(reports.queue, queues), name="report queues")
        tasks.create_task(_each(reports.conditions, conditions), name="report meters")
        sure = gangs if desk.caught_up else [one for one in gangs if one.uid not in desk.book.placements]
        tasks.create_task(events.gangs_held(reports, desk.retelling.groups, sure, desk.told), name="report holds")
        tasks.create_task(_report_placing(desk, facts, granted), name="report placing")
    return CycleResult(
        gangs=desk.retelling.gangs,
        queues=tuple(queues),
        conditions=tuple(conditions),
        granted=tuple(granted),
        evicted={group.uid: what for group, what in desk.taken},
        protected=protection_conditions.queue_usage(desk.protection),
        decisions=desk.teller.told(decided.anew, gangs, desk.taken, desk.retelling.groups, facts.now),
        next_try=facts.clock if _has_more(desk, facts, granted, decided) else _next_try(desk, facts),
    )


def _has_more(desk: LeaderState, facts: CycleInputs, granted: Sequence[GangUid], decided: CycleDecisions) -> bool:
    """Whether there is more to be found out though nothing changes."""
    is_cut = bool((granted or facts.anew) and not decided.whole)
    return is_cut or bool(desk.health.left) or desk.plans.is_stale or desk.preempting.left


async def _report_placing(desk: LeaderState, facts: CycleInputs, granted: Collection[GangUid]) -> None:
    """Tell what became of the protection of devices, and who is placed otherwise than was asked for."""
    changes = [*protection_conditions.changes(desk.guarded, desk.protection)]
    desk.guarded = protection_conditions.holding(desk.protection)
    queues = (
        queue for queue in facts.snapshot.queues.values() if protection_conditions.matters(queue, desk.protection)
    )
    await events.fence_changes(desk.ports.reports, queues, changes)
    groups = (group for group in facts.groups if group.uid in granted and group.pods)
    await events.placed_differently(desk.ports.reports, groups, desk.chosen)
    desk.chosen = {uid: chosen for uid, chosen in desk.chosen.items() if uid in desk.book.placements}


def _statuses(
    desk: LeaderState, facts: CycleInputs, decided: Collection[GangUid]
) -> tuple[list[GangReport], Sequence[QueueReport], list[ConditionReport]]:
    """Return the status of every gang of which something changed, and of every queue, meter and claim policy."""
    balances = usage_history.reported(desk, facts)
    basis = gang.StatusInputs(
        snapshot=facts.snapshot,
        book=desk.book,
        tree=facts.tree,
        meters=facts.meters,
        decisions=desk.decisions,
        backoffs=desk.backoffs,
        evicted=desk.evicted,
        health=desk.health,
        budgets=budget.uses(facts.tree, balances) if balances is not None else {},
        chosen=desk.chosen,
        stuck=desk.stuck,
        refused={name: refusal.message for name, refusal in desk.refused.items()},
        protections=desk.protection,
        policies=desk.remembered.policies(facts.snapshot),
        estimates=desk.reserve.estimates,
        templates=desk.ports.templates.troubles(),
        now=facts.clock,
    )
    gangs = desk.retelling.look(facts.groups, decided, basis, desk.defects)
    return gangs, _entitled(desk, basis), gang.conditions(basis)


def _entitled(desk: LeaderState, basis: gang.StatusInputs) -> tuple[QueueReport, ...]:
    """Return the status of every queue; those from before, where all that they are made of is the same."""
    snapshot = basis.snapshot
    inputs = (
        *(snapshot.queues, snapshot.meters, snapshot.malformed, basis.tree, basis.book),
        *(desk.retelling.version, basis.budgets, basis.protections, basis.refused),
    )
    known = desk.entitled
    if known is None or not all(
        left is right or left == right for left, right in zip(known.inputs, inputs, strict=True)
    ):
        made = (*queue.queues(desk.retelling.tally, basis), *_malformed(snapshot))
        known = desk.entitled = QueueStatusCache(inputs=inputs, reports=made)
    return known.reports


def _keep_decisions(desk: LeaderState, facts: CycleInputs, decisions: Iterable[Decision]) -> set[GangUid]:
    """Keep the last decision of every gang that waits; return the gangs for which it is another one than before."""
    changed: set[GangUid] = set()
    for anew in decisions:
        decision = _steady(desk, facts, anew)
        uid, before = decision.group.uid, desk.decisions.get(decision.group.uid)
        if before is None or not decision.says_the_same(before):
            desk.decisions[uid] = decision
            changed.add(uid)
    if desk.kept_of is not facts.groups:
        waiting = {group.uid for group in facts.groups if group.waiting}
        for uid in desk.decisions.keys() - waiting:
            del desk.decisions[uid]
        desk.fresh = {uid: until for uid, until in desk.fresh.items() if uid in waiting}
    desk.kept_of, desk.is_decided = facts.groups, True
    return changed


def _steady(desk: LeaderState, facts: CycleInputs, decision: Decision) -> Decision:
    """Return a decision with the numbers that were told before, where a budget's have moved within a minute.

    They move every second that anything runs; nobody wants a status written, or an Event, for each of them.
    """
    uid = decision.group.uid
    before = desk.decisions.get(uid)
    is_fresh = facts.now < desk.fresh.get(uid, facts.now)
    if is_fresh and before is not None and budget.tells_the_same(before.outcome, decision.outcome):
        return replace(decision, outcome=before.outcome)
    desk.fresh[uid] = facts.now + usage_history.MINUTE
    return decision


async def _tell_gangs(desk: LeaderState, facts: CycleInputs, anew: Iterable[GangReport]) -> None:
    """Write the statuses that changed or could not be written before, and now and then others; first all of them.

    Without the books nothing is said of gangs that may have been granted, and nothing at all before the view has caught
    up.
    """
    if not desk.caught_up:
        return
    if desk.tell_again is None or facts.now >= desk.tell_again:
        known = desk.retelling.gangs
        parts = max(-(-len(known) // TOLD_AGAIN), 1) if desk.tell_again is not None else 1
        desk.untold |= {report.key: report for report in known[desk.told_again % parts :: parts]}
        desk.told_again += 1
        desk.tell_again = facts.now + TELL_AGAIN
    desk.untold |= {report.key: report for report in anew}
    due = [report for report in desk.untold.values() if desk.known or report.phase is Phase.PENDING]
    for report in due:
        del desk.untold[report.key]
    failed = await _each(desk.ports.reports.gang, due)
    desk.untold = {**{report.key: report for report in failed}, **desk.untold}


async def _each(write: Callable[[T], Awaitable[None]], reports: Iterable[T]) -> list[T]:
    """Write every report; return those that failed, for the next cycle: what was decided stands."""
    failed = []
    for report in reports:
        try:
            await write(report)
        except GoneError:
            continue
        except (RetryError, FixError):
            failed.append(report)
    return failed


def _malformed(snapshot: Snapshot) -> list[QueueReport]:
    return [
        queue.malformed(name, str(error))
        for (kind, name), error in sorted(snapshot.malformed.items())
        if kind == "Queue"
    ]


def _next_try(desk: LeaderState, facts: CycleInputs) -> datetime | None:
    """Return the earliest time, still to come, at which a back-off or a start timeout ends, or a mark is due.

    What has ended and could not be acted on (a refused eviction, say) is tried again by the resync.
    """
    soon = [backoff.next_try for backoff in desk.backoffs.values() if backoff.next_try > facts.clock]
    if desk.away:
        soon.append(facts.clock + ASK_AGAIN)
    if desk.overtaken or desk.protection.soon:
        soon.append(facts.clock + LOOK_AGAIN)
    # The rest ends by the books, whose time goes on once the clock has caught up with it.
    ends = [ledger_clock.next_mark(ledger_clock.budgets_of(facts.tree.queues.values()), facts.now)]
    if desk.reserve.next is not None:
        # Who should have ended by then and has not moves it.
        ends.append(desk.reserve.next)
    for placement in (group.placement for group in facts.groups if not group.in_full):
        queue = facts.snapshot.queues.get(QueueName(placement.queue)) if placement is not None else None
        if placement is not None and queue is not None and _is_starting(placement, facts.snapshot):
            ends.append(placement.reserved_at + min(queue.start_timeout, requeue_backoff.LONGEST))
    ends += limits.limits(desk.book.placements.values(), facts.tree)
    return min((*soon, *(end for end in ends if end > facts.now)), default=None)


def _is_starting(placement: Placement, snapshot: Snapshot) -> bool:
    pods = (snapshot.pods.get(uid) for uid in placement.seats)
    return any(pod is not None and pod.phase == "Pending" and pod.meta.deleted is None for pod in pods)
