"""Nodes and their devices: how many are free, and who holds what."""

from collections.abc import Sequence
from dataclasses import dataclass

from aiohttp import web

from admission.api.values.names import NodeName
from admission.dashboard import drawing, inventories, paging, requests
from admission.dashboard.access import SLICES
from admission.dashboard.drawing import State
from admission.dashboard.inventories import SHARED, Unit
from admission.dashboard.requests import RIGHTS
from admission.dashboard.scenes import Scene

SHARED_PATH = "-"
"""Stands for no node in a path; no node is called so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A node, or the devices that no single node has. free: units of which no part is held; partly: those in parts."""

    node: str
    drivers: Sequence[str]
    total: int
    free: int
    partly: int
    closed: str

    @property
    def held(self) -> int:
        return self.total - self.free - self.partly


async def nodes(request: web.Request) -> web.StreamResponse:
    """Show all nodes that have devices."""
    await request[RIGHTS].need(SLICES)
    scene, query = requests.scene(request), request.query
    search, driver = paging.word(query, "q").lower(), paging.word(query, "driver")
    found = [
        (node, [unit for unit in units if not driver or unit.driver == driver])
        for node, units in scene.inventory.nodes.items()
        if search in node.lower()
    ]
    page = paging.page([(node, units) for node, units in found if units], query)
    return requests.shown(
        request,
        "devices.html",
        page=page,
        rows=[_row(scene, node, units) for node, units in page.items],
        search=search,
        driver=driver,
        drivers=sorted({unit.driver for units in scene.inventory.nodes.values() for unit in units}),
        shared_path=SHARED_PATH,
    )


def _row(scene: Scene, node: str, units: Sequence[Unit]) -> Row:
    free = partly = 0
    for unit in units:
        taken = drawing.takings(unit, scene.holders)
        free += all(one.state is State.FREE for one in taken)
        partly += any(one.state is State.FREE for one in taken) and len(taken) > 1
    return Row(
        node=node,
        drivers=sorted({unit.driver for unit in units}),
        total=len(units),
        free=free,
        partly=partly,
        closed=_closed(scene, node),
    )


def _closed(scene: Scene, node: str) -> str:
    """Say why nothing starts on a node, if so."""
    if not node:
        return ""
    found = scene.sights.nodes.get(NodeName(node))
    if found is None:
        return "no such node"
    taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in found.taints)
    return "unschedulable" if found.unschedulable else taints


async def node(request: web.Request) -> web.StreamResponse:
    """Show the devices of one node, and who holds them."""
    rights = request[RIGHTS]
    await rights.need(SLICES)
    scene = requests.scene(request)
    name = request.match_info["node"]
    place = SHARED if name == SHARED_PATH else name
    units = scene.inventory.nodes.get(place)
    if units is None:
        raise web.HTTPNotFound
    seen = await rights.seen_of(inventories.namespaces(units, scene.holders))
    return requests.shown(
        request,
        "node.html",
        node=place,
        drawn=drawing.drawn(place, units, scene.holders, seen=seen),
        closed=_closed(scene, place),
    )
