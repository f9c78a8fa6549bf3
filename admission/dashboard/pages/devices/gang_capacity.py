"""What would fit: how many more gangs of a shape would start, what stands free, and which shapes waited for longest."""

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from aiohttp import web

from admission.api.capacity import gang_shapes
from admission.api.muster.observed import ObservedObjects
from admission.api.values.names import QueueName
from admission.dashboard import pagination, request_context
from admission.dashboard.auth.rbac import LEDGERS, SLICES
from admission.dashboard.devices import gang_capacity
from admission.dashboard.devices.gang_capacity import GangCapacity, Shape
from admission.dashboard.documents import cluster as documents
from admission.dashboard.ledger_queries import WaitedShape, Window
from admission.dashboard.pages.devices import nodes
from admission.dashboard.request_context import CONTEXT, RIGHTS
from admission.dashboard.ttl_cache import TtlCache
from admission.errors import CapacityBusyError, MusterError

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
    closed = {str(one.node): nodes.closed_by(cluster_view, one.node) for one in page.items}
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
