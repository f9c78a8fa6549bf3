"""Nodes and their devices: how many are free and for which gangs, the holders of the others, and the nodes to come."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from functools import partial
from typing import Any

from aiohttp import web

from admission.api.capacity import gang_shapes
from admission.api.muster.observed import ObservedObjects
from admission.api.values.names import NodeName, QueueName
from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import LEDGERS, SHAPES, SLICES, VisibleNamespaces
from admission.dashboard.devices import diagram, gang_capacity, inventory, shapes as node_shapes
from admission.dashboard.devices.diagram import State
from admission.dashboard.devices.gang_capacity import GangCapacity, Shape
from admission.dashboard.devices.inventory import SHARED, Unit
from admission.dashboard.documents import cluster as documents
from admission.dashboard.ledger_queries import WaitedShape, Window
from admission.dashboard.request_context import CONTEXT, RIGHTS
from admission.dashboard.ttl_cache import TtlCache
from admission.dashboard.view_model import ClusterView
from admission.errors import CapacityBusyError, MusterError

MOST_GANGS = 5
"""The most gangs that are named in a row."""

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
        closed=_closed(cluster_view, node),
    )


def _closed(cluster_view: ClusterView, node: str) -> str:
    """Return why no pod can start on a node; "" if pods can."""
    if not node:
        return ""
    found = cluster_view.observed.nodes.get(NodeName(node))
    if found is None:
        return "no such node"
    taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in found.taints)
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
    drawn, closed = (
        diagram.draw(node_key, units, cluster_view.holders, visible=visible),
        _closed(cluster_view, node_key),
    )
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


WAITED_DAYS = timedelta(days=30)

MOST_WAITED = 10
"""The most shapes of gangs that waited."""

MOST_WAITED_READ = 50
"""The most of them that are read, should a later Muster have written some that this one does not know."""

KEPT_SECONDS = 10.0
"""How long an answer about capacity is shown again."""

MOST_ASKED = 8
"""The most questions about capacity, of different visitors, of which one is worked on while the others wait."""

_Question = tuple[Shape | None, QueueName]


class Answers:
    """The latest answers about capacity, made one at a time, in a thread of their own, and kept for a while.

    Each takes seconds in a large cluster, so a visitor's questions are queued one after the other, and those of whoever
    asks the same have one answer.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="capacity")
        self._known: TtlCache[_Question, GangCapacity] = TtlCache(seconds=KEPT_SECONDS, most=20, clock=time.monotonic)
        self._asked: dict[_Question, asyncio.Future[GangCapacity]] = {}
        self._asked_by: dict[str, asyncio.Future[GangCapacity]] = {}
        """By visitor, the question that waits or is worked on, also once nobody waits for its answer."""

    async def find(
        self, observed: ObservedObjects, shape: Shape | None, queue: QueueName, *, visitor: str
    ) -> GangCapacity:
        """Return how many gangs of a shape would start. Raises CapacityBusyError while too many others ask."""
        question = (shape, queue)
        while True:
            found, asked = self._known.get(question), self._asked.get(question)
            if found is not None:
                return found
            if asked is not None:
                return await asyncio.shield(asked)
            if visitor not in self._asked_by:
                return await asyncio.shield(self._ask(observed, question, visitor))
            await asyncio.wait([self._asked_by[visitor]])

    def _ask(self, observed: ObservedObjects, question: _Question, visitor: str) -> asyncio.Future[GangCapacity]:
        if len(self._asked) >= MOST_ASKED:
            raise CapacityBusyError(f"{MOST_ASKED} others ask what would fit: ask again in some seconds")
        asked = asyncio.get_running_loop().run_in_executor(self._executor, gang_capacity.find, observed, *question)
        self._asked[question] = self._asked_by[visitor] = asked
        asked.add_done_callback(partial(self._end, question, visitor))
        return asked

    def _end(self, question: _Question, visitor: str, asked: asyncio.Future[GangCapacity]) -> None:
        del self._asked[question], self._asked_by[visitor]
        if not asked.cancelled() and asked.exception() is None:
            self._known.put(question, asked.result())

    async def close(self, _app: web.Application) -> None:
        """Make no more answers."""
        self._executor.shutdown(wait=False, cancel_futures=True)


ANSWERS = web.AppKey("answers", Answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """Gangs of one shape that waited in a queue. shape: None if it says more than pods and devices of one class."""

    title: str
    queue: str
    seconds: int
    shape: Shape | None


async def capacity(request: web.Request) -> web.StreamResponse:
    """Show what stands free in pieces, and how many more gangs of a shape would start."""
    rights, query = request[RIGHTS], request.query
    await rights.need(SLICES)
    cluster_view = request_context.cluster_view(request)
    device_class, queue = pagination.word(query, "class"), pagination.word(query, "queue")
    if queue:
        await rights.need_queue(queue)
    pods, devices = pagination.integer(query, "pods"), pagination.integer(query, "devices")
    shape = gang_capacity.shape(pods, devices, device_class)
    found = await request.app[ANSWERS].find(cluster_view.observed, shape, QueueName(queue), visitor=rights.visitor.name)
    visible = await rights.visible_namespaces_or_none({one.gang.partition("/")[0] for one in found.moves})
    moves = [one for one in found.moves if visible.shows(one.gang)]
    page = pagination.page(found.free, query, size=request_context.page_size(request, pagination.SIZE))
    closed = {str(one.node): _closed(cluster_view, one.node) for one in page.items}
    waited, note = await _waited(request)
    return await request_context.respond(
        request,
        "capacity.html",
        lambda: documents.GangCapacity(
            **request_context.listing(request, page),
            shape=shape.title if shape is not None else None,
            starts=found.starts,
            at_least=found.is_bound,
            stopped=found.stopped,
            items=documents.free_devices(page.items, shape.title if shape is not None else "", closed),
            moves=documents.moves(moves),
            waited=[documents.WaitedShape(shape=one.title, queue=one.queue, seconds=one.seconds) for one in waited],
            waited_note=note,
        ),
        page=page,
        shape=shape,
        is_wrong=bool(query.get("class")) and shape is None,
        found=found,
        closed=closed,
        moves=moves,
        waited=waited,
        note=note,
        pods=pods,
        devices=devices,
        device_class=device_class,
        classes=sorted(cluster_view.observed.classes),
        queue=queue,
    )


@dataclass(slots=True)
class LongestWaited:
    """What waited for longest as it was read last, for all visitors who may see all books.

    It depends on the books and on `minute` alone, so it is read once a minute. trouble: why it cannot be read.
    """

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    minute: datetime | None = None
    found: Sequence[Waited] = ()
    trouble: str = ""


LONGEST_WAITED = web.AppKey("longest waited", LongestWaited)


async def _waited(request: web.Request) -> tuple[Sequence[Waited], str]:
    """Return the shapes that have waited for longest, for who may see all books; and why they cannot be shown."""
    if not await request[RIGHTS].may(LEDGERS):
        return [], ""
    app_context, kept = request.app[CONTEXT], request.app[LONGEST_WAITED]
    minute = app_context.clock().replace(second=0, microsecond=0)
    async with kept.lock:
        if kept.minute != minute:
            try:
                window = Window(minute - WAITED_DAYS, minute)
                kept.found = _parsed(await app_context.ledger.waited(window, most=MOST_WAITED_READ))
                kept.trouble = ""
            except MusterError as error:  # the rest of the page needs no books
                kept.found, kept.trouble = (), str(error)
            kept.minute = minute
        return kept.found, kept.trouble


def _parsed(rows: Sequence[WaitedShape]) -> list[Waited]:
    """Return the first shapes that can be read."""
    found: list[Waited] = []
    for row in rows:
        try:
            gang = gang_shapes.parse(row.shape)
        except MusterError:  # a later Muster wrote it
            continue
        simple = gang_capacity.simple(gang)
        found.append(Waited(title=gang.title, queue=row.queue, seconds=row.seconds, shape=simple))
        if len(found) == MOST_WAITED:
            break
    return found
