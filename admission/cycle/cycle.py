"""One admission cycle: the numbered steps from a frozen snapshot to opened gates.

Called by `admission.controller` for every batch of changes, and by `muster simulate` with ports in memory. The order of
the steps guarantees that nothing is placed before its reservation is committed, and that what an earlier cycle or an
earlier leader left unfinished is taken back or finished before anything new is decided.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial

from admission.api.device_use.idle import IdleDevices
from admission.api.snapshot import Snapshot
from admission.api.values.names import GangUid
from admission.cel.syntax import parser
from admission.cycle import composition
from admission.cycle.composition import Steps
from admission.cycle.state.inputs import CycleInputs
from admission.cycle.state.leader import Leader
from admission.cycle.state.result import CycleLog, CycleResult
from admission.cycle.steps import catch_up
from admission.workloads.gangs import Group


async def run(leader: Leader, now: datetime) -> CycleResult:
    """Run one cycle. Raises DeposedError if another leader has taken over; later cycles retry everything else."""
    mirror, term, traces, executor = leader.mirror, leader.term, leader.ports.traces, leader.process.executor
    steps = composition.compose(leader, CycleLog())

    # 1. Freeze the observed state, and bring the ledger up to date with allocations. The snapshot is taken before the
    # database answers, so that it is as of `now`.
    with traces.step("gather"):
        snapshot = leader.in_flight.apply_to(leader.ports.view.snapshot())
        await mirror.open()
        steps.protection.judge(snapshot, now)
        inputs = await _gather(leader, steps, snapshot, now)

    # 2. Take back gangs that cannot start complete or in time. Only then release what is gone: the missing pods of such
    # gangs are part of it, and are why they are taken back.
    if mirror.is_complete and term.is_confirmed:
        inputs = await steps.eviction.evict_due(inputs)
        await steps.eviction.resume_jobs(inputs)
        await steps.suspend_resume.suspend_again(inputs)
        await steps.ledger_sync.release(inputs)
        inputs = steps.inputs.regroup(inputs)
        await steps.finalizers.remove(inputs)

    # 3. Hand slots over to pods, move some to nodes that came, and finish what was granted; not from an outdated book.
    if not mirror.is_down and term.is_confirmed:
        inputs = await steps.deallocation.collect(inputs)
        await steps.suspend_resume.hand_over(inputs)
        inputs = steps.inputs.regroup(inputs)
        await steps.seat_moves.commit(inputs)
    if not mirror.is_down and term.is_confirmed:
        inputs = steps.inputs.regroup(await steps.placement.finish(steps.inputs.regroup(inputs)))

    # 4. Decide about pending gangs, in order. A pure function of the snapshot and the book, off the event loop. Queues
    # get their finalizers first, so that a queue with grants exists while they are open, even if it is deleted.
    inputs = catch_up.without_unconfirmed(term, mirror.book, inputs)
    await steps.finalizers.add(inputs)
    await mirror.read_usage(inputs)
    balances = mirror.balances(inputs)
    with traces.step("plan"):
        decided, victims = await executor.run(steps.scheduling.decide, inputs, balances)
    steps.protection.judge_again()

    # 5. Commit the reservations. 6. Place: only what was committed.
    decisions = await steps.commit.commit(inputs, decided.updated, balances)

    # 7. Evict the preemption targets of held gangs. These get what is freed in a later cycle.
    await steps.preemption.evict(inputs, victims)

    # 8. Report, also of pods that workloads make later, some of which are looked at in each cycle, and of nodes that
    # held gangs would need. Where their queues ask for nodes, these gangs are committed and let in, as in 5 and 6.
    if mirror.is_complete and term.is_confirmed:
        await executor.run(steps.look_ahead.examine, inputs)
        await executor.run(steps.node_needs.examine, inputs, decisions)
        decisions = [*await steps.node_needs.ask(inputs, decisions)]
    inputs = steps.inputs.regroup(inputs)
    if mirror.is_complete and term.is_confirmed:
        await steps.requests.withdraw(inputs)
        await steps.scale_down.update(inputs)
    with traces.step("report"):
        return await steps.report.report(inputs, replace(decided, updated=tuple(decisions)))


async def preload(leader: Leader, clock: datetime) -> None:
    """Fill the caches of a standby, which may lead soon, with all that a cycle reads.

    Decisions have no effect, and nothing is written. Raises LedgerUnavailableError.
    """
    await leader.mirror.preload()
    steps, executor = composition.compose(leader, CycleLog()), leader.process.executor
    inputs = await executor.run(_preload, steps, leader.ports.view.snapshot(), clock)
    await leader.mirror.preload_usage(inputs)
    await executor.run(steps.scheduling.preload_verdicts, inputs)


def _preload(steps: Steps, snapshot: Snapshot, clock: datetime) -> CycleInputs:
    parser.prepare()
    inputs = steps.inputs.regroup(steps.inputs.build(steps.inputs.with_pending(snapshot), clock))
    steps.ledger_sync.preload(inputs)
    steps.scheduling.preload(inputs)
    steps.report.make(inputs, ())
    return inputs


async def _gather(leader: Leader, steps: Steps, snapshot: Snapshot, clock: datetime) -> CycleInputs:
    executor = leader.process.executor
    snapshot = await executor.run(steps.inputs.with_pending, snapshot)
    inputs = await executor.run(steps.inputs.build, snapshot, clock)
    leader.in_flight.forget_seen_pods(inputs.snapshot.pods)
    await steps.ledger_sync.catch_up(inputs)
    # A new leader counts all gangs here, which may take seconds.
    inputs = await executor.run(steps.inputs.regroup, inputs)
    placements = leader.mirror.book.placements
    leader.evictions.restore_backoffs(inputs, placements)
    return replace(
        inputs,
        snapshot=leader.expected_nodes.mark(leader.pool_bounds.apply(inputs.snapshot), inputs.granted, inputs.groups),
        idle=leader.idle.update(inputs.tree.queues, placements, inputs.now, partial(_said_to_be_idle, inputs.by_uid)),
    )


def _said_to_be_idle(groups: Mapping[GangUid, Group], gang: GangUid) -> IdleDevices | None:
    group = groups.get(gang)
    return group.record.idle if group is not None and group.record is not None else None
