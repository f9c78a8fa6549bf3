"""The Events on gangs, what makes them, and queues, for users of kubectl: each is emitted once per change.

Those of a gang are on its Gang object and on its workload, whatever the number of its pods; on pods only what is about
one pod, and why the gang waits once it has waited for long, or where waiting does not help.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from admission.api.kubernetes.meta import Meta
from admission.api.kubernetes.pods import Pod
from admission.api.muster.gangs import GangReport
from admission.api.muster.queues import Queue
from admission.api.muster.status_reports import EventType, Notice, NoticeReason
from admission.api.values import names, reasons, references
from admission.api.values.names import GangUid, Uid
from admission.api.values.reasons import EventReason, HoldReason
from admission.cycle.hold_log import DueHold
from admission.errors import MusterError
from admission.lifecycle import placement_progress
from admission.lifecycle.eviction import Eviction
from admission.lifecycle.gang_requests import Answer
from admission.ports import Reports
from admission.scheduling.checks.chain import Grant
from admission.scheduling.placement.mode import Chosen
from admission.scheduling.placement.protection_conditions import Change
from admission.workloads.gangs import Group

NO_GANG = GangUid("")

MOST = 8
"""The most pods of one gang that get an Event; the Gang's status reports it for all."""

MOST_MAKERS = 4
"""The most makers of the pods of one gang that get an Event, if it is no workload's."""

MOST_NODES = 4
"""The most nodes that an Event names."""


async def gang_admitted(reports: Reports, group: Group, grant: Grant) -> None:
    """Emit that a gang was admitted, where its pods go, and what was overlooked."""

    async def emit(kind: EventType, reason: NoticeReason, message: str) -> None:
        await _emit(reports, group, kind, reason, f"gang {group.key} was admitted{message}")

    await emit(EventType.NORMAL, EventReason.ADMITTED, f" from queue {group.queue}; {_where(grant)}")
    if grant.plan.apart:
        message = f", and its pods need not be in one domain: {grant.plan.apart}"
        await emit(EventType.NORMAL, EventReason.NOT_TOGETHER, message)
    for warning in grant.warnings:
        await emit(EventType.WARNING, HoldReason.BUDGET_EXHAUSTED, f" nevertheless: {warning}")


def _where(grant: Grant) -> str:
    if any(names.is_expected(planned.uid) for planned in grant.plan.pods):
        return "its workload is resumed"
    nodes = sorted({planned.node for planned in grant.plan.pods if planned.node})
    pods = f"{len(grant.plan.pods)} pods" if len(grant.plan.pods) > 1 else "its pod"
    asked = placement_progress.asked_for(nodes)
    if asked:
        listed = ", ".join(placement_progress.in_words(asked))
        return f"nodes are asked for ({listed}), and kube-scheduler binds {pods} when they come"
    if not nodes:
        return f"kube-scheduler chooses the nodes of {pods}"
    more = f" and {len(nodes) - MOST_NODES} more" if len(nodes) > MOST_NODES else ""
    goes = "go" if len(grant.plan.pods) > 1 else "goes"
    return f"{pods} {goes} to node{'s'[: len(nodes) > 1]} {', '.join(nodes[:MOST_NODES])}{more}"


async def gangs_held(reports: Reports, by_uid: Mapping[GangUid, Group], held: Iterable[DueHold]) -> None:
    """Emit why gangs are held. held: those with a hold that is due. by_uid: all gangs.

    While a resumed workload creates its pods no Event is emitted: the others come in a moment.
    """
    for due in held:
        report, group = due.report, by_uid[due.report.uid]
        if report.hold is None or (report.pods and report.expected):
            continue
        why = reasons.message_for(report.hold, {report.namespace})
        never = report.can_never_start
        what = f"can never start as it is, in queue {report.queue}" if never else f"waits in queue {report.queue}"
        kind = EventType.WARNING if never else EventType.NORMAL
        if due.is_new:
            await _emit(reports, group, kind, report.hold.reason, f"gang {report.key} {what}: {why}")
        for pod in [pod for pod in group.waiting if not names.is_expected(pod.meta.uid)][:MOST] if due.on_pods else ():
            message = f"gang {report.key} {what}: {why}"
            await reports.notify(_on_pod(pod, group.uid, kind, report.hold.reason, message))


async def gang_evicted(reports: Reports, eviction: Eviction) -> None:
    """Emit that a gang was evicted."""
    group = eviction.group
    why = eviction.reason_for({group.identity.namespace})
    message = f"gang {group.key} was evicted as a whole: {why}"
    await _emit(reports, group, EventType.WARNING, eviction.cause or EventReason.EVICTED, message)


async def device_use(reports: Reports, by_uid: Mapping[GangUid, Group], changed: Iterable[GangReport]) -> None:
    """Emit which gangs are idle, or over their memory, where the status of their Gang does not say so yet."""
    for report in changed:
        group = by_uid.get(report.uid)
        if group is None:
            continue
        record = group.record
        known = record.idle if record is not None else None
        if report.idle is not None and (known is None or known.since != report.idle.since):
            message = f"gang {report.key} is idle: {report.idle.message}"
            await _emit(reports, group, EventType.WARNING, EventReason.GANG_IDLE, message)
        if report.memory is not None and (record is None or record.memory is None):
            message = f"gang {report.key}: {report.memory.message}"
            await _emit(reports, group, EventType.WARNING, EventReason.MEMORY_EXCEEDED, message)


async def gang_returned(reports: Reports, group: Group, reason: str, *, of_joining: int = 0) -> None:
    """Emit that a gang could not be placed as planned. of_joining: how many pods of one that runs on without them."""
    message = f"gang {group.key} cannot be placed as planned and waits again: {reason}"
    if of_joining:
        some = "one pod" if of_joining == 1 else f"{of_joining} pods"
        message = f"{some} of gang {group.key} cannot be placed as planned, the others go on: {reason}"
    await _emit(reports, group, EventType.NORMAL, EventReason.REPLANNED, message)


async def request_answered(reports: Reports, group: Group, answer: Answer) -> None:
    """Emit what becomes of a user's request about a gang; of an eviction that is done, `gang_evicted` does."""
    kind = EventType.NORMAL if answer.is_granted else EventType.WARNING
    message = f"{answer.request.action} of gang {group.key}: {answer.request.text}; {answer.outcome}"
    await _emit(reports, group, kind, EventReason.REQUEST_ANSWERED, message)


async def pod_failed(reports: Reports, pod: Pod, error: MusterError) -> None:
    """Emit on a pod that a write to it failed and is retried."""
    message = f"{error}; it is tried again"
    await reports.notify(_on_pod(pod, NO_GANG, EventType.WARNING, EventReason.WRITE_FAILED, message))


async def placed_differently(reports: Reports, groups: Iterable[Group], chosen: Mapping[GangUid, Chosen]) -> None:
    """Emit on gangs that requested `Allocate` that they are placed in another mode."""
    for group in groups:
        found = chosen.get(group.uid)
        if found is not None and found.fell_back:
            why = references.words(found.reason, found.references, {group.identity.namespace})
            message = f"gang {group.key} asked for placement Allocate and is placed by {found.mode}: {why}"
            await _emit(reports, group, EventType.WARNING, EventReason.FELL_BACK, message)


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


async def _emit(reports: Reports, group: Group, kind: EventType, reason: NoticeReason, message: str) -> None:
    for api_version, object_kind, name, uid in _subjects(group):
        notice = Notice(
            api_version=api_version,
            kind=object_kind,
            namespace=group.identity.namespace,
            name=name,
            uid=uid,
            type=kind,
            reason=reason,
            message=message,
            gang_uid=group.uid,
        )
        await reports.notify(notice)


def _subjects(group: Group) -> Iterator[tuple[str, str, str, Uid]]:
    """Yield the objects that the Events of a gang are on: API version, kind, name and UID of its workload and its Gang.

    Without a workload: of the first few makers of its pods, or of a pod that nothing makes. The writer knows the UID of
    a Gang object that has just been created.
    """
    workload = group.identity.workload
    if workload is not None:
        yield workload.api_version, workload.kind, workload.name, workload.uid
    else:
        yield from _makers(group)
    yield names.API_VERSION, "Gang", group.identity.name, group.record.meta.uid if group.record else Uid("")


def _makers(group: Group) -> Sequence[tuple[str, str, str, Uid]]:
    found: dict[Uid, tuple[str, str, str, Uid]] = {}
    for pod in group.pods:
        owner = pod.meta.controller
        if owner is not None:
            found.setdefault(owner.uid, (owner.api_version, owner.kind, owner.name, owner.uid))
        elif not names.is_expected(pod.meta.uid):
            found.setdefault(pod.meta.uid, ("v1", "Pod", pod.meta.name, pod.meta.uid))
        if len(found) == MOST_MAKERS:
            break
    return [*found.values()]


def _on_pod(pod: Pod, gang: GangUid, kind: EventType, reason: NoticeReason, message: str) -> Notice:
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
