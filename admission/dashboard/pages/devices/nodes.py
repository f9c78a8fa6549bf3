"""Nodes and their devices: how many are free and for which gangs, and the holders of the others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from admission.api.values.names import NodeName
from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import SLICES
from admission.dashboard.devices import diagram, inventory
from admission.dashboard.devices.diagram import State
from admission.dashboard.devices.inventory import SHARED, Unit
from admission.dashboard.documents import cluster as documents
from admission.dashboard.request_context import RIGHTS
from admission.dashboard.view_model import ClusterView

SHARED_PATH = "-"
"""The path segment for no node, which cannot be a node's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A node, or the devices of several nodes.

    free: units without a held part; partly: units with held and free parts.
    """

    node: str
    drivers: Sequence[str]
    total: int
    free: int
    partly: int
    closed: str

    @property
    def held(self) -> int:
        return self.total - self.free - self.partly


_COLUMNS: Mapping[str, Callable[[Row], Any]] = {
    "node": lambda row: inventory.natural(row.node),
    "devices": lambda row: row.total,
    "held": lambda row: row.held,
    "parts": lambda row: row.partly,
    "free": lambda row: row.free,
    "closed": lambda row: row.closed,
}


async def nodes(request: web.Request) -> web.StreamResponse:
    """Show all nodes that have devices."""
    await request[RIGHTS].need(SLICES)
    cluster_view, query = request_context.cluster_view(request), request.query
    search, driver = pagination.word(query, "q").lower(), pagination.word(query, "driver")
    found = [
        (node, [unit for unit in units if not driver or unit.driver == driver])
        for node, units in cluster_view.inventory.nodes.items()
        if search in node.lower()
    ]
    rows = [_row(cluster_view, node, units) for node, units in found if units]
    size = request_context.page_size(request, pagination.SIZE)
    page = pagination.page(pagination.ordered(rows, query, _COLUMNS), query, size=size)
    return await request_context.respond(
        request,
        "devices.html",
        lambda: documents.NodeList(
            **request_context.listing(request, page),
            items=list(map(_document, page.items)),
            capacity=documents.capacity(cluster_view.capacity),
        ),
        page=page,
        capacity=cluster_view.capacity,
        search=search,
        driver=driver,
        drivers=sorted({unit.driver for units in cluster_view.inventory.nodes.values() for unit in units}),
        shared_path=SHARED_PATH,
    )


def _document(row: Row) -> documents.Node:
    return documents.Node(
        node=row.node,
        drivers=list(row.drivers),
        devices=row.total,
        held=row.held,
        in_parts=row.partly,
        free=row.free,
        closed=row.closed,
    )


def _row(cluster_view: ClusterView, node: str, units: Sequence[Unit]) -> Row:
    free = partly = 0
    for unit in units:
        if len(unit.parts) == 1 and unit.parts[0].share == 1:
            free += unit.parts[0].id not in cluster_view.holders
            continue
        shares = diagram.unit_shares(unit, cluster_view.holders)
        free += all(share.state is State.FREE for share in shares)
        partly += any(share.state is State.FREE for share in shares) and len(shares) > 1
    return Row(
        node=node,
        drivers=sorted({unit.driver for unit in units}),
        total=len(units),
        free=free,
        partly=partly,
        closed=closed_by(cluster_view, node),
    )


def closed_by(cluster_view: ClusterView, node: str) -> str:
    """Return why no pod can start on a node; "" if pods can."""
    if not node:
        return ""
    found = cluster_view.observed.nodes.get(NodeName(node))
    if found is None:
        return "no such node"
    taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in found.taints if taint.blocks)
    return "unschedulable" if found.unschedulable else taints


async def node(request: web.Request) -> web.StreamResponse:
    """Show the devices of one node, and their holders."""
    rights = request[RIGHTS]
    await rights.need(SLICES)
    cluster_view = request_context.cluster_view(request)
    name = request.match_info["node"]
    node_key = SHARED if name == SHARED_PATH else name
    units = cluster_view.inventory.nodes.get(node_key)
    if units is None:
        raise web.HTTPNotFound
    visible = await rights.visible_namespaces_or_none(inventory.namespaces(units, cluster_view.holders))
    drawn = diagram.draw(node_key, units, cluster_view.holders, visible=visible)
    closed = closed_by(cluster_view, node_key)
    return await request_context.respond(
        request,
        "node.html",
        lambda: documents.NodePage(
            **request_context.envelope(request),
            node=node_key,
            closed=closed,
            items=[
                documents.HeldDevice(
                    device=device,
                    part=part,
                    state=str(state),
                    gang=holder.gang if holder is not None else "",
                    claim=holder.claim if holder is not None else "",
                )
                for device, part, state, holder in drawn.rows
            ],
        ),
        node=node_key,
        drawn=drawn,
        closed=closed,
    )
