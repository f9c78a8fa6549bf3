"""What allocated devices did: used hours beside allocated ones, by group, and the emptiest gangs."""

from aiohttp import web

from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import VisibleNamespaces
from admission.dashboard.documents import books as documents
from admission.dashboard.ledger_queries import DoneBy
from admission.dashboard.pages import ledger, time_window, usage
from admission.dashboard.request_context import CONTEXT, RIGHTS

DAYS = 14
"""The time without a choice."""

MOST = 20
"""The most groups that are drawn, those with most allocated hours."""

MOST_EMPTY = 10
"""The most gangs that are listed by their idle hours."""

WIDTH = 320
"""Of a bar of the longest group, in the units of its drawing."""


async def used(request: web.Request) -> web.StreamResponse:
    """Show allocated and used hours by group, and the gangs with the most idle hours."""
    queue, app_context = pagination.word(request.query, "queue"), request.app[CONTEXT]
    if not await usage.may_see(request, queue):
        return await ledger.closed(request)
    groupings = _groupings(await request[RIGHTS].visible_namespaces_or_none(()))
    by = request.query.get("by", "")
    grouping = DoneBy(by) if by in groupings else DoneBy.QUEUE
    period = time_window.period(
        request.query, now=app_context.clock(), extent=await app_context.ledger.extent(), days=DAYS
    )
    most_empty = MOST_EMPTY if DoneBy.GANG in groupings else 0
    found = await app_context.ledger.used(grouping, period.window, queue, most=MOST, most_empty=most_empty)
    return await request_context.respond(
        request,
        "used.html",
        lambda: documents.UsedHours(
            **request_context.envelope(request),
            by=grouping,
            items=documents.used(found.groups),
            emptiest=documents.used(found.emptiest),
        ),
        found=found,
        width=WIDTH,
        longest=max((group.allocated for group in found.groups), default=0),
        grouping=grouping,
        groupings=groupings,
        lasts=time_window.LASTS,
        period=period,
        notes=period.notes,
        queue=queue,
    )


def _groupings(seen: VisibleNamespaces) -> list[DoneBy]:
    """Return the groupings that may be shown: but for queues only if the visitor may see all gangs."""
    return list(DoneBy) if seen.all else [DoneBy.QUEUE]
