"""The shapes of nodes that may still come, and the gangs for which some are expected."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from aiohttp import web

from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import SHAPES, VisibleNamespaces
from admission.dashboard.devices import inventory, shapes as node_shapes
from admission.dashboard.documents import cluster as documents
from admission.dashboard.request_context import RIGHTS

MOST_GANGS = 5
"""The most gangs that are named in a row."""

_SHAPE_COLUMNS: Mapping[str, Callable[[node_shapes.Row], Any]] = {
    "shape": lambda row: inventory.natural(row.name),
    "up": lambda row: row.up,
    "more": lambda row: row.more,
    "expected": lambda row: row.asked,
    "price": lambda row: Fraction(row.price) if row.price else -1,
}


async def shapes(request: web.Request) -> web.StreamResponse:
    """Show the shapes of nodes that may still come."""
    rights = request[RIGHTS]
    await rights.need(SHAPES)
    observed, query = request_context.cluster_view(request).observed, request.query
    rows = pagination.ordered(node_shapes.rows(observed), query, _SHAPE_COLUMNS)
    page = pagination.page(rows, query, size=request_context.page_size(request, pagination.SIZE))
    namespaces = {key.partition("/")[0] for row in page.items for key in row.expected}
    visible = await rights.visible_namespaces_or_none(namespaces)
    return await request_context.respond(
        request,
        "shapes.html",
        lambda: documents.ShapeList(
            **request_context.listing(request, page), items=[_shape(row, visible) for row in page.items]
        ),
        page=page,
        gangs={row.name: [key for key in sorted(row.expected) if visible.shows(key)] for row in page.items},
        problems=node_shapes.problems(observed),
        most_gangs=MOST_GANGS,
    )


def _shape(row: node_shapes.Row, visible: VisibleNamespaces) -> documents.Shape:
    seen = [key for key in sorted(row.expected) if visible.shows(key)]
    return documents.Shape(
        name=row.name,
        up=row.up,
        most=row.most,
        more=row.more,
        expected=row.asked,
        gangs=seen,
        hidden=len(row.expected) - len(seen),
        last_seen=row.seen,
        never_up=row.never_up,
        price_per_hour=row.price or None,
        node_pool=row.node_pool or None,
        not_ready=row.ready,
        pool_trouble=row.pool,
        differs=row.differs,
    )
