"""The Events on pods and queues, for users of kubectl: each is emitted once per change."""

from collections.abc import Iterable, Mapping, Sequence

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import EventType, Notice, NoticeReason
from admission.api.values import names, reasons, references
from admission.api.values.names import GangUid
from admission.api.values.reasons import Denial, EventReason, Hold, HoldReason
from admission.errors import MusterError
from admission.lifecycle.eviction import Eviction
from admission.ports import Reports
from admission.scheduling.checks.chain import Grant
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.protection_conditions import Change
from admission.workloads.gangs import Group

NO_GANG = GangUid("")

MOST = 8
"""The most pods of one gang that get an Event; the Gang's status reports it for all."""


async def gang_admitted(reports: Reports, group: Group, grant: Grant) -> None:
    """Emit on the pods of an admitted gang where they go."""
    if any(names.is_expected(planned.uid) for planned in grant.plan.pods):
        message = f"gang {group.key} was admitted from queue {group.queue}; its workload is resumed"
        await reports.notify(_about(group.waiting[0], group.uid, EventType.NORMAL, EventReason.ADMITTED, message))
    nodes = {planned.uid: planned.node for planned in grant.plan.pods if not names.is_expected(planned.uid)}
    for pod in [pod for pod in group.waiting if pod.meta.uid in nodes][:MOST]:
        where = nodes[pod.meta.uid]
        goes = f"this pod goes to node {where}" if where else "kube-scheduler chooses this pod's node"
        message = f"gang {group.key} was admitted from queue {group.queue}; {goes}"
        await reports.notify(_about(pod, group.uid, EventType.NORMAL, EventReason.ADMITTED, message))
    if grant.plan.apart:
        message = f"gang {group.key} was admitted, and its pods need not be in one domain: {grant.plan.apart}"
        await reports.notify(_about(group.waiting[0], group.uid, EventType.NORMAL, EventReason.NOT_TOGETHER, message))
    for warning in grant.warnings:
        message = f"gang {group.key} was admitted nevertheless: {warning}"
        notice = _about(group.waiting[0], group.uid, EventType.WARNING, HoldReason.BUDGET_EXHAUSTED, message)
        await reports.notify(notice)


async def gangs_held(
    reports: Reports, by_uid: Mapping[GangUid, Group], held: Iterable[tuple[GangReport, Hold | Denial]]
) -> None:
    """Emit on the pods of held gangs why they are held. held: those with a new hold. by_uid: all gangs."""
    for report, hold in held:
        why = reasons.message_for(hold, {report.namespace})
        for pod in _listeners(by_uid[report.uid]):
            message = f"gang {report.key} waits in queue {report.queue}: {why}"
            await reports.notify(_about(pod, report.uid, EventType.NORMAL, hold.reason, message))


def _listeners(group: Group) -> Sequence[Pod]:
    """Return the pods on which a hold is emitted; an expected pod stands for its workload.

    While a resumed workload creates its pods no Event is emitted on those that exist: the others come in a moment.
    """
    if not any(names.is_expected(pod.meta.uid) for pod in group.pods):
        return group.waiting[:MOST]
    return [pod for pod in group.waiting[:1] if names.is_expected(pod.meta.uid)]


async def gang_evicted(reports: Reports, eviction: Eviction) -> None:
    """Emit on the pods of a gang that it was evicted."""
    for pod in eviction.pods[:MOST]:
        why = eviction.reason_for({pod.meta.namespace})
        message = f"gang {eviction.group.key} was evicted as a whole: {why}"
        cause = eviction.cause or EventReason.EVICTED
        await reports.notify(_about(pod, eviction.group.uid, EventType.WARNING, cause, message))


async def gang_returned(reports: Reports, group: Group, pods: Sequence[Pod], reason: str) -> None:
    """Emit on pods that their gang could not be placed as planned."""
    for pod in pods[:MOST]:
        message = f"gang {group.key} cannot be placed as planned and waits again: {reason}"
        await reports.notify(_about(pod, group.uid, EventType.NORMAL, EventReason.REPLANNED, message))


async def gang_failed(reports: Reports, pod: Pod, error: MusterError) -> None:
    """Emit on a pod that a write to it failed and is retried."""
    message = f"{error}; it is tried again"
    await reports.notify(_about(pod, NO_GANG, EventType.WARNING, EventReason.WRITE_FAILED, message))


async def placed_differently(reports: Reports, groups: Iterable[Group], chosen: Mapping[GangUid, Chosen]) -> None:
    """Emit on gangs that requested `Allocate` that they are placed in another mode."""
    for group in groups:
        found = chosen.get(group.uid)
        if found is not None and found.fell_back:
            why = references.words(found.reason, found.references, {group.identity.namespace})
            message = f"gang {group.key} asked for placement Allocate and is placed by {found.mode}: {why}"
            await reports.notify(_about(group.pods[0], group.uid, EventType.WARNING, EventReason.FELL_BACK, message))


async def fence_changes(reports: Reports, queues: Iterable[Queue], changes: Sequence[Change]) -> None:
    """Emit on queues the changes of the protection of devices."""
    for queue in queues if changes else ():
        for change in changes:
            notice = Notice(
                api_version=names.API_VERSION,
                kind="Queue",
                namespace="",
                name=queue.name,
                uid=queue.meta.uid,
                type=EventType.NORMAL if change.holds else EventType.WARNING,
                reason=EventReason.DEVICES_PROTECTED if change.holds else EventReason.PROTECTION_LOST,
                message=change.message,
            )
            await reports.notify(notice)


async def queues_kept(reports: Reports, queue: Meta, message: str) -> None:
    """Emit on a deleted and unused queue why its finalizer could not be removed."""
    notice = Notice(
        api_version=names.API_VERSION,
        kind="Queue",
        namespace="",
        name=queue.name,
        uid=queue.uid,
        type=EventType.WARNING,
        reason=EventReason.FINALIZER_KEPT,
        message=f"nothing runs in the queue any more; {message}",
    )
    await reports.notify(notice)


def _about(pod: Pod, gang: GangUid, kind: EventType, reason: NoticeReason, message: str) -> Notice:
    """Return an Event on a pod or, if the pod is only expected, on its workload. gang: of the pod."""
    owner = pod.meta.controller
    if names.is_expected(pod.meta.uid) and owner is not None:
        return Notice(
            api_version=owner.api_version,
            kind=owner.kind,
            namespace=pod.meta.namespace,
            name=owner.name,
            uid=owner.uid,
            type=kind,
            reason=reason,
            message=message,
            gang_uid=gang,
        )
    return Notice(
        api_version="v1",
        kind="Pod",
        namespace=pod.meta.namespace,
        name=pod.meta.name,
        uid=pod.meta.uid,
        type=kind,
        reason=reason,
        message=message,
        gang_uid=gang,
    )
