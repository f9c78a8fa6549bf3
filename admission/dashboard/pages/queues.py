"""The tree of queues, and a page for each queue."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from admission.api.kubernetes.meta import ConditionStatus
from admission.api.muster.observed import ObservedQueue
from admission.api.muster.queues import StopPolicy
from admission.api.muster.status_reports import BudgetUse, MeterUse
from admission.api.values.names import MeterName, QueueName
from admission.dashboard import pagination, queue_tree, request_context, view_model
from admission.dashboard.auth.rbac import QUEUES
from admission.dashboard.devices import inventory
from admission.dashboard.documents import cluster as documents
from admission.dashboard.request_context import RIGHTS, Media
from admission.dashboard.view_model import ClusterView
from admission.status import queue as queue_status, queue_sums
from admission.status.queue_sums import SubtreeSums

NO_USE = MeterUse()
PAGE_SIZE = queue_tree.MOST_CHILDREN
"""The most queues of one level on a page."""
MOST_SHOWN = 25
MOST_OPEN = 400
"""The most branches that an address opens: together, their names fit into a request line."""
CLOSED = "-"
"""Opens no branch, which cannot be a queue's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A queue in the tree, with the sums over its subtree.

    children: their number; meter: whose use is shown; budget: the tightest one of the meter, if any; toggled: the
    branches that are open after this one was opened or closed; more: queues below it that are left out.
    """

    observed_queue: ObservedQueue
    level: int
    children: int
    sums: SubtreeSums
    meter: str
    budget: BudgetUse | None
    path: Sequence[str]
    opened: bool = False
    toggled: str = ""
    more: int = 0

    @property
    def use(self) -> MeterUse:
        return self.sums.uses.get(MeterName(self.meter), NO_USE)

    @property
    def state(self) -> str:
        return state(self.observed_queue)


def state(observed_queue: ObservedQueue) -> str:
    """Return the state of a queue in one word."""
    inactive = {
        condition.reason
        for condition in observed_queue.report.conditions
        if condition.type == "Active" and condition.status is not ConditionStatus.TRUE
    }
    if inactive - {queue_status.STOPPED}:
        return "Inactive"
    if observed_queue.queue.stop_policy is StopPolicy.HOLD_AND_DRAIN:
        return "Draining"
    return "Stopped" if inactive or observed_queue.queue.stop_policy is StopPolicy.HOLD else "Active"


async def tree(request: web.Request) -> web.StreamResponse:
    """Show the tree with its open branches, first of all those of the roots; or the matches of a search in all of it.

    Without a meter that is asked for, each queue is shown with its busiest one.
    """
    await request[RIGHTS].need(QUEUES)
    cluster_view, query = request_context.cluster_view(request), request.query
    queues, meter = cluster_view.tree, pagination.word(query, "meter")
    search, parent = pagination.word(query, "q").lower(), pagination.word(query, "parent")
    if parent and parent not in cluster_view.queues:
        raise web.HTTPNotFound
    found: Sequence[QueueName] = queues.children.get(parent, ())
    if search:
        found = [name for name in sorted(cluster_view.queues) if search in name.lower()]
    ordered = _order(cluster_view, query, meter)
    is_page = request_context.media(request) is Media.HTML
    page = pagination.page(ordered(found), query, size=request_context.page_size(request, PAGE_SIZE))
    by_default = [name for name in page.items if name in queues.children] if is_page else list(queues.children)
    opened = () if search else _opened(query, by_default)
    path = queues.path(parent) if parent else []
    level = 1 if search else len(path) + 1
    most = queue_tree.MOST_LINES if is_page else request_context.MOST_ROWS
    lines = queues.lines(page.items, frozenset(opened), level=level, ordered=ordered, most=most)
    return await request_context.respond(
        request,
        "queues.html",
        lambda: documents.QueueList(
            **request_context.listing(request, page),
            items=[_document(cluster_view, line.name, line.level) for line in lines],
        ),
        rows=[_row(cluster_view, line, meter, opened) for line in lines] if is_page else (),
        page=page,
        meter=meter,
        meters=queues.meters,
        search=search,
        parent=parent,
        path_to=path,
        total=len(cluster_view.queues),
    )


def _document(cluster_view: ClusterView, name: QueueName, level: int) -> documents.Queue:
    observed_queue = cluster_view.queues[name]
    return documents.queue(observed_queue, cluster_view.tree.sums[name], level=level, state=state(observed_queue))


def _order(
    cluster_view: ClusterView, query: Mapping[str, str], meter: str
) -> Callable[[Sequence[QueueName]], Sequence[QueueName]]:
    """Return what puts the queues of one branch into the order that a query asks for; by default that of names."""

    def use(name: QueueName) -> MeterUse:
        sums = cluster_view.tree.sums[name]
        return sums.uses.get(MeterName(meter or sums.busiest), NO_USE)

    columns: Mapping[str, Callable[[QueueName], Any]] = {
        "queue": inventory.natural,
        "state": lambda name: state(cluster_view.queues[name]),
        "waiting": lambda name: cluster_view.tree.sums[name].waiting,
        "started": lambda name: cluster_view.tree.sums[name].started,
        "use": lambda name: queue_sums.taken_parts(use(name)),
        "taken": lambda name: use(name).used + use(name).reserved,
        "nominal": lambda name: use(name).nominal,
        "borrowed": lambda name: use(name).borrowed,
        "lent": lambda name: use(name).lent,
        "pending": lambda name: use(name).pending,
    }
    return lambda names: pagination.ordered(names, query, columns)


def _opened(query: Mapping[str, str], by_default: Sequence[str]) -> Sequence[str]:
    """Return the branches that a query opens."""
    if "open" not in query:
        return by_default
    return query["open"].split(",", MOST_OPEN)[:MOST_OPEN]


def _row(cluster_view: ClusterView, line: queue_tree.Line, meter: str, opened: Sequence[str] = ()) -> Row:
    observed_queue, sums = cluster_view.queues[line.name], cluster_view.tree.sums[line.name]
    shown = meter or sums.busiest
    budgets = [budget for budget in observed_queue.report.budgets if budget.meter == shown and budget.start is not None]
    toggled = [name for name in opened if name not in (line.name, CLOSED)] + ([] if line.opened else [line.name])
    return Row(
        observed_queue=observed_queue,
        level=line.level,
        children=len(cluster_view.tree.children.get(line.name, ())),
        sums=sums,
        meter=shown,
        budget=min(budgets, key=lambda budget: budget.left / budget.limit if budget.limit else 0, default=None),
        path=cluster_view.tree.path(line.name)[:-1],
        opened=line.opened,
        toggled=",".join(toggled) or CLOSED,
        more=line.more,
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
    queues, sees_queues = cluster_view.tree, await rights.may(QUEUES)
    below = queues.children.get(name, ()) if sees_queues else ()
    gangs_of_queue = cluster_view.by_queue.get(name, ())
    visible = await rights.visible_namespaces_or_none({gang.report.namespace for gang in gangs_of_queue})
    gangs = [gang for gang in gangs_of_queue if gang.report.namespace in visible]
    waiting = view_model.waiting(gangs)
    started = [gang for gang in gangs if gang.report.phase in queue_sums.STARTED]
    observed_queue = view_model.queue_for_reader(observed_queue, cluster_view, visible)
    first = view_model.all_for_reader(waiting[:MOST_SHOWN], cluster_view, visible)
    first_started = view_model.all_for_reader(started[:MOST_SHOWN], cluster_view, visible)
    hidden = len(gangs_of_queue) - len(gangs)
    sums = queues.sums[name] if sees_queues else SubtreeSums(uses=observed_queue.report.meters)
    return await request_context.respond(
        request,
        "queue.html",
        lambda: documents.QueuePage(
            **request_context.envelope(request),
            queue=documents.queue(observed_queue, sums, level=len(queues.path(name)), state=state(observed_queue)),
            conditions=list(map(documents.condition, observed_queue.report.conditions)),
            waiting=list(map(documents.gang, first)),
            started=list(map(documents.gang, first_started)),
            hidden=hidden,
        ),
        observed_queue=observed_queue,
        state=state(observed_queue),
        path_to=queues.path(name)[:-1] if sees_queues else (),
        children=[(child, queues.sums[child].waiting) for child in below[:MOST_SHOWN]],
        more_children=max(0, len(below) - MOST_SHOWN),
        sums=sums if below else None,
        waiting=first,
        waits=len(waiting),
        started=first_started,
        starts=len(started),
        hidden=hidden,
        sees_account=await rights.may_see_account(name),
    )
