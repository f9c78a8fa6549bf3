"""The start page: which gangs wait, why and since when, and the queues with the most of them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from aiohttp import web

from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster.gangs import Phase
from admission.api.muster.observed import ObservedGang, ObservedQueue
from admission.dashboard import request_context, view_model
from admission.dashboard.auth.rbac import QUEUES, SLICES, VisibleNamespaces
from admission.dashboard.documents import books, cluster as documents
from admission.dashboard.pages import usage
from admission.dashboard.request_context import RIGHTS
from admission.dashboard.view_model import ClusterView

MOST_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Cause:
    """A reason for which gangs wait. longest: the gang that has waited longest."""

    reason: str
    count: int
    longest: ObservedGang


async def overview(request: web.Request) -> web.StreamResponse:
    """Show the summary that operators need first."""
    cluster_view = request_context.cluster_view(request)
    visible = await request_context.visible_gangs(request)
    gangs = visible.namespaces.filter_gangs(cluster_view.gangs)
    waiting = view_model.waiting(gangs)
    sees_queues = await request[RIGHTS].may(QUEUES)
    capacity = cluster_view.capacity if await request[RIGHTS].may(SLICES) else ()
    day = await usage.last_day(request)
    counts, causes = Counter(map(view_model.state, gangs)), _causes(waiting)
    longest = view_model.all_for_reader(waiting[:MOST_SHOWN], cluster_view, visible.namespaces)
    return await request_context.respond(
        request,
        "overview.html",
        lambda: documents.Overview(
            **request_context.envelope(request),
            capacity=documents.capacity(capacity),
            states=dict(counts),
            causes=[documents.Cause(reason=one.reason, gangs=one.count, longest=one.longest.key) for one in causes],
            waiting=list(map(documents.gang, longest)),
            troubles=dict(cluster_view.observed.troubles),
            last_day_use=books.use(day.use) if day is not None else [],
            last_day_waiting=books.use(day.waiting) if day is not None else [],
        ),
        crowded=visible.crowded,
        nothing=not (sees_queues or visible.namespaces.all or visible.namespaces.names or visible.crowded),
        capacity=capacity,
        day=day,
        counts=counts,
        waiting=longest,
        waits=len(waiting),
        causes=causes,
        sees_queues=sees_queues,
        pressed=_pressed(list(cluster_view.queues.values())) if sees_queues else (),
        wrong=_wrong(cluster_view, visible.namespaces) if sees_queues else (),
        malformed=sorted(f"{kind} {name}" for kind, name in cluster_view.observed.malformed)
        if visible.namespaces.all
        else (),
        troubles=cluster_view.observed.troubles,
    )


def _causes(waiting: Sequence[ObservedGang]) -> list[Cause]:
    """Return the reasons, the most frequent first. waiting: the longest waiting first."""
    found: dict[str, list[ObservedGang]] = {}
    for gang in waiting:
        found.setdefault(reason(gang), []).append(gang)
    causes = [Cause(name, len(gangs), gangs[0]) for name, gangs in found.items()]
    return sorted(causes, key=lambda cause: (-cause.count, cause.reason))


def reason(gang: ObservedGang) -> str:
    """Return the reason code for which a gang waits."""
    report = gang.report
    if report.never_fits:
        return view_model.NEVER_FITS
    if report.hold is not None:
        return str(report.hold.reason)
    return str(report.evicted.reason) if report.evicted is not None else "NotJudgedYet"


def _pressed(queues: Sequence[ObservedQueue]) -> list[ObservedQueue]:
    """Return the queues with the most waiting gangs."""
    waiting = [observed_queue for observed_queue in queues if observed_queue.report.gangs.get(Phase.PENDING)]
    return sorted(
        waiting, key=lambda observed_queue: (-observed_queue.report.gangs[Phase.PENDING], observed_queue.queue.name)
    )[:MOST_SHOWN]


def _wrong(cluster_view: ClusterView, visible: VisibleNamespaces) -> Sequence[tuple[str, str]]:
    """Return queues with a false condition, and its message."""
    queues = (
        cluster_view.queues[name]
        for name in sorted(cluster_view.queues)
        if any(one.status is ConditionStatus.FALSE for one in cluster_view.queues[name].report.conditions)
    )
    shown = [view_model.queue_for_reader(one, cluster_view, visible) for one in islice(queues, MOST_SHOWN)]
    return [
        (observed_queue.queue.name, condition.message)
        for observed_queue in shown
        for condition in observed_queue.report.conditions
        if condition.status is ConditionStatus.FALSE
    ][:MOST_SHOWN]
