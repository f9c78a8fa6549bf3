"""Workloads that are held as a whole: resuming those whose gangs have their places, and handing these to their pods.

A place that was granted for a pod which is still to come is nobody else's: the books have it. What is written here is
the workload alone, and may be written twice. Its pods come behind their gates as all pods do, so nothing starts too
early, whatever becomes of a workload in between.
"""

from collections.abc import Sequence
from functools import partial

from admission.accounting import books
from admission.api.muster.ledger_entries import Entry
from admission.api.snapshot import Snapshot
from admission.api.values import names
from admission.api.values.names import GangUid
from admission.api.values.reasons import Hold, HoldReason
from admission.cycle import events
from admission.cycle.bulk_writes import concurrently
from admission.cycle.state.leader import CycleInputs, LeaderState
from admission.cycle.steps import ledger_sync
from admission.errors import FixError, GoneError, MusterError, RetryError
from admission.scheduling.checks import faults
from admission.scheduling.checks.faults import During
from admission.workloads import pod_replacement, suspendable
from admission.workloads.gangs import Group
from admission.workloads.pod_replacement import Mismatch
from admission.workloads.suspendable import Workload


def is_expected(group: Group) -> bool:
    """Whether places are kept for pods that a workload has still to make."""
    return bool(pod_replacement.expected(group))


async def resume(desk: LeaderState, facts: CycleInputs, groups: Sequence[Group]) -> dict[GangUid, Hold]:
    """Resume the workloads of gangs that have their places; return what holds those that could not be."""
    holds: dict[GangUid, Hold] = {}
    wanted = [(group, one) for group in groups for one in _workloads(group, facts.snapshot)]
    desk.started = {uid: seen for uid, seen in desk.started.items() if suspendable.is_there(seen, facts.snapshot)}

    async def start(found: tuple[Group, Workload]) -> None:
        group, workload = found
        if workload.is_started or desk.started.get(workload.meta.uid) is workload.found:
            return
        try:
            await desk.ports.workloads.start(workload.kind.suspendable(workload.meta))
            desk.started[workload.meta.uid] = workload.found
        except GoneError:
            return
        except (RetryError, FixError) as error:
            holds[group.uid] = _cannot(workload, error)

    await concurrently(desk, wanted, start)
    return holds


def _workloads(group: Group, snapshot: Snapshot) -> list[Workload]:
    """Return what is to make the pods of a gang that are still to come: several, where pods name their gang."""
    makers = {
        pod.meta.controller.uid: pod.meta.controller for pod in pod_replacement.expected(group) if pod.meta.controller
    }
    found = (suspendable.named(owner, snapshot) for owner in makers.values())
    return [workload for workload in found if workload is not None]


def _cannot(workload: Workload, error: MusterError) -> Hold:
    message = f"{workload.kind.kind} {workload.meta.name} could not be resumed: {error}; it is tried again"
    return Hold(HoldReason.WAITING_FOR_CLAIMS, message, {"workload": workload.meta.key})


async def hold_again(desk: LeaderState, facts: CycleInputs) -> None:
    """Suspend workloads again that somebody has resumed while nobody watched the door."""
    groups = [group for group in facts.groups if group.placement]
    placed = {group.identity.workload.uid for group in groups if group.identity.workload}
    placed |= {names.workload_of(pod.meta.uid) for group in groups for pod in pod_replacement.expected(group)}

    async def hold(workload: Workload) -> None:
        try:
            await desk.ports.workloads.hold(workload.kind.suspendable(workload.meta))
        except (RetryError, FixError, GoneError):
            return

    await concurrently(desk, [one for one in desk.expecting.loose if one.meta.uid not in placed], hold)


async def hand_over(desk: LeaderState, facts: CycleInputs) -> None:
    """Have pods that have come take over what was promised to their workloads.

    Where they are not what was planned for, the promise is given back, and they wait like all others.
    """
    entries: list[Entry | None] = []
    promised = [one for one in facts.groups if not one.in_full and one.uid not in facts.taken_back and is_expected(one)]
    strays = pod_replacement.strays(promised, facts.groups)
    for group in promised:
        placement = group.placement
        if placement is None:
            continue

        look = partial(pod_replacement.succession, group, facts.snapshot, at=facts.now, actor=desk.actor)
        found = faults.spared(During.FOLLOWING, group.key, look, desk.defects)
        came = strays.get(group.uid) or group.waiting
        if group.uid in strays:
            found = Mismatch(pod=came[0].meta.name, differs="the gang that it names")
        if isinstance(found, Mismatch):
            why = found.message
            gone = [uid for uid in (*placement.seats, *placement.holdings) if names.is_expected(uid)]
            await events.gang_returned(desk.ports.reports, group, came, why)
            found = books.release(placement, pods=gone, claims=gone, at=facts.now, actor=desk.actor, reason=why)
        entries.append(found)
    await ledger_sync.record(desk, entries)
