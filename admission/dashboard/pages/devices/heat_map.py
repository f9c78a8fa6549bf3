"""The heat map of devices: which queue has which, with model and memory."""

import asyncio

from aiohttp import web

from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import SLICES, VisibleNamespaces
from admission.dashboard.devices import capacity, heat_map
from admission.dashboard.devices.heat_map import Square
from admission.dashboard.devices.inventory import Unit
from admission.dashboard.documents import cluster as documents
from admission.dashboard.request_context import RIGHTS
from admission.dashboard.view_model import ClusterView

MOST_ROWS = 100
"""The most lines of the table; the map draws all."""


async def devices(request: web.Request) -> web.StreamResponse:
    """Show all devices, or those of one model."""
    await request[RIGHTS].need(SLICES)
    cluster_view, query = request_context.cluster_view(request), request.query
    wanted = pagination.word(query, "model")
    visible = await request[RIGHTS].visible_namespaces_or_none(cluster_view.namespaces)
    # Of ten thousand devices it takes a tenth of a second.
    found = await asyncio.to_thread(_squares, cluster_view, visible)
    models = sorted(set(map(heat_map.kind, found)))
    shown = [square for square in found if wanted in ("", heat_map.kind(square))]
    return await request_context.respond(
        request,
        "heat_map.html",
        lambda: documents.HeatMap(**request_context.envelope(request), items=list(map(_document, shown))),
        map=await asyncio.to_thread(heat_map.heat_map, shown),
        models=models,
        model=wanted,
        most=MOST_ROWS,
    )


def _squares(cluster_view: ClusterView, visible: VisibleNamespaces) -> list[Square]:
    closed = capacity.closed_devices(cluster_view.inventory, cluster_view.observed.nodes)
    gangs, holders = cluster_view.observed.gangs, cluster_view.holders

    def group_of(_: str, unit: Unit) -> tuple[str, bool]:
        """Return the group of a unit: of what holds most of it, where several do."""
        held = [(part.share, holders[part.id][0]) for part in unit.parts if part.id in holders]
        if not held:
            is_closed = all(part.id in closed for part in unit.parts)
            return (heat_map.CLOSED if is_closed else heat_map.FREE), False
        holder = max(held, key=lambda pair: (pair[0], pair[1].claim))[1]
        if holder.namespace not in visible:
            return heat_map.HIDDEN, False
        gang = gangs.get(holder.gang)
        return (gang.report.queue, True) if gang is not None else (heat_map.OUTSIDE, False)

    return heat_map.squares(cluster_view.inventory.nodes, group_of)


def _document(square: Square) -> documents.MappedDevice:
    return documents.MappedDevice(
        node=square.node,
        device=square.device,
        driver=square.driver,
        model=square.model,
        memory=square.memory,
        queue=square.group if square.is_queue else "",
        state="held" if square.is_queue else square.group,
    )
