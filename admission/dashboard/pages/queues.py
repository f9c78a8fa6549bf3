"""The tree of queues, level by level, and a page for each queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster.gangs import Phase
from admission.api.muster.observed import ObservedQueue
from admission.api.muster.queues import StopPolicy
from admission.api.muster.status_reports import BudgetUse, MeterUse
from admission.api.values.names import MeterName, QueueName
from admission.dashboard import pagination, request_context, view_model
from admission.dashboard.auth.rbac import QUEUES
from admission.dashboard.request_context import RIGHTS
from admission.dashboard.view_model import ClusterView

NO_USE = MeterUse()
PAGE_SIZE = 100
"""The most queues of one level on a page."""
MOST_SHOWN = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A queue in the tree. level: from 1; children: their number; budget: the tightest one of the meter, if any."""

    observed_queue: ObservedQueue
    level: int
    children: int
    use: MeterUse
    budget: BudgetUse | None
    path: Sequence[str]

    @property
    def waiting(self) -> int:
        return self.observed_queue.report.gangs.get(Phase.PENDING, 0)

    @property
    def running(self) -> int:
        return sum(self.observed_queue.report.gangs.get(phase, 0) for phase in view_model.STARTED)

    @property
    def state(self) -> str:
        return state(self.observed_queue)


def state(observed_queue: ObservedQueue) -> str:
    """Return the state of a queue in one word."""
    if any(
        condition.type == "Active" and condition.status is not ConditionStatus.TRUE
        for condition in observed_queue.report.conditions
    ):
        return "Inactive"
    if observed_queue.queue.stop_policy is not StopPolicy.NONE:
        return "Stopped" if observed_queue.queue.stop_policy is StopPolicy.HOLD else "Draining"
    return "Active"


async def tree(request: web.Request) -> web.StreamResponse:
    """Show one level of the tree, or the matches of a search in all of it; with `rows`, only the rows."""
    await request[RIGHTS].need(QUEUES)
    cluster_view, query = request_context.cluster_view(request), request.query
    meter = pagination.word(query, "meter") or next(iter(cluster_view.meters), "")
    search, parent = pagination.word(query, "q").lower(), pagination.word(query, "parent")
    if search:
        found = [cluster_view.queues[name] for name in sorted(cluster_view.queues) if search in name.lower()]
    else:
        if parent and parent not in cluster_view.queues:
            raise web.HTTPNotFound
        found = list(cluster_view.children.get(parent, ()))
    page = pagination.page(found, query, size=PAGE_SIZE)
    rows = [_row(cluster_view, observed_queue, meter) for observed_queue in page.items]
    template = "queue_rows.html" if "rows" in query else "queues.html"
    return request_context.render(
        request,
        template,
        rows=rows,
        page=page,
        meter=meter,
        meters=cluster_view.meters,
        search=search,
        parent=parent,
        path_to=cluster_view.path(parent) if parent else (),
        total=len(cluster_view.queues),
    )


def _row(cluster_view: ClusterView, observed_queue: ObservedQueue, meter: str) -> Row:
    path = cluster_view.path(observed_queue.queue.name)
    budgets = [budget for budget in observed_queue.report.budgets if budget.meter == meter and budget.start is not None]
    return Row(
        observed_queue=observed_queue,
        level=len(path),
        children=len(cluster_view.children.get(observed_queue.queue.name, ())),
        use=observed_queue.report.meters.get(MeterName(meter), NO_USE),
        budget=min(budgets, key=lambda budget: budget.left / budget.limit if budget.limit else 0, default=None),
        path=path[:-1],
    )


async def queue(request: web.Request) -> web.StreamResponse:
    """Show one queue: its use, budgets and rules, and its gangs in order."""
    name = QueueName(request.match_info["name"])
    rights = request[RIGHTS]
    await rights.need_queue(name)
    cluster_view = request_context.cluster_view(request)
    if name not in cluster_view.queues:
        raise web.HTTPNotFound
    observed_queue = cluster_view.queues[name]
    gangs_of_queue = cluster_view.by_queue.get(name, ())
    visible = await rights.visible_namespaces_or_none({gang.report.namespace for gang in gangs_of_queue})
    gangs = [gang for gang in gangs_of_queue if gang.report.namespace in visible]
    waiting = view_model.waiting(gangs)
    started = [gang for gang in gangs if gang.report.phase in view_model.STARTED]
    sees_queues = await rights.may(QUEUES)
    return request_context.render(
        request,
        "queue.html",
        observed_queue=view_model.queue_for_reader(observed_queue, cluster_view, visible),
        state=state(observed_queue),
        path_to=cluster_view.path(name)[:-1] if sees_queues else (),
        children=[_row(cluster_view, child, "") for child in cluster_view.children.get(name, ())[:MOST_SHOWN]]
        if sees_queues
        else (),
        more_children=max(0, len(cluster_view.children.get(name, ())) - MOST_SHOWN) if sees_queues else 0,
        waiting=view_model.all_for_reader(waiting[:MOST_SHOWN], cluster_view, visible),
        waits=len(waiting),
        started=view_model.all_for_reader(started[:MOST_SHOWN], cluster_view, visible),
        starts=len(started),
        hidden=len(gangs_of_queue) - len(gangs),
        sees_account=await rights.may_see_account(name),
    )
