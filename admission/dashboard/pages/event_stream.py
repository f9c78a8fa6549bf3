"""The stream of server-sent events that notifies a browser when what its page shows has changed.

The page names what it shows by topics: `queues`, `queues/NAME`, `gangs`, `gangs/NAMESPACE/NAME`, `devices`. A message
says no more than that something of them has changed, and the page asks for itself then, by the rights of all pages.
What the visitor may not see is never reported. Before each message, and with each heartbeat, the visitor is
authenticated again; a stream ends after `LONGEST_SECONDS` in any case, and browsers open the next one.
"""

import asyncio
from collections.abc import Iterator, Sequence, Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from aiohttp import hdrs, web

from admission.api.muster.observed import ObservedGang, ObservedObjects
from admission.api.snapshot import changed
from admission.dashboard import request_context
from admission.dashboard.auth.rbac import QUEUES, SLICES, RefusedError, Rights
from admission.dashboard.request_context import RIGHTS
from admission.errors import MusterError

TICK_SECONDS = 1.0
"""Seconds between two looks at the cluster, and so between two messages at least."""

HEARTBEAT_TICKS = 10
"""Ticks after which an idle stream sends a comment, so that nothing on the way takes it for dead."""

LONGEST_SECONDS = 50.0
"""Less than `server.ANSWER_SECONDS`. The first message of the next stream makes the page fresh, also where only time
has passed."""

MOST_STREAMS = 500
"""The most streams of this process."""

MOST_OF_A_VISITOR = 4
"""The most streams of one visitor: browsers keep six connections to a host (HTTP/1.1), of which pages need some."""

MOST_TOPICS = 4

CHANGED = b"retry: 1000\ndata: changed\n\n"
HEARTBEAT = b":\n\n"


class Streams:
    """Counts the open streams by visitor; `close` ends all of them."""

    def __init__(self) -> None:
        self._open: dict[web.RequestHandler, str] = {}
        """The visitor on each connection that has a stream."""
        self._closed = asyncio.Event()

    @contextmanager
    def place(self, visitor: str, connection: web.RequestHandler) -> Iterator[None]:
        """Count a stream until the block is left. Raises HTTPTooManyRequests: the browser polls then.

        A stream that the browser has left does not count, though it ends only with its tick: whoever goes from page
        to page leaves several of them within a second.
        """
        of_visitor = sum(name == visitor and _is_listening(other) for other, name in self._open.items())
        if len(self._open) >= MOST_STREAMS or of_visitor >= MOST_OF_A_VISITOR:
            raise web.HTTPTooManyRequests
        self._open[connection] = visitor
        try:
            yield
        finally:
            del self._open[connection]

    async def tick(self) -> bool:
        """Wait for the next tick; return False when the streams have to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TICK_SECONDS):
                await self._closed.wait()
        return not self._closed.is_set()

    async def close(self, _app: web.Application) -> None:
        """End all streams, as the server stops."""
        self._closed.set()


def _is_listening(connection: web.RequestHandler) -> bool:
    return connection.transport is not None and not connection.transport.is_closing()


STREAMS = web.AppKey("streams", Streams)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The differences between two observations: names of queues, keys of gangs, and whether devices differ."""

    queues: AbstractSet[str]
    gangs: AbstractSet[str]
    devices: bool


def between(before: ObservedObjects, after: ObservedObjects) -> Changes:
    """Return the differences that pages show."""
    queues, gangs = changed(before.queues, after.queues), changed(before.gangs, after.gangs)
    return Changes(
        queues=frozenset(queues),
        gangs=frozenset(gangs),
        devices=any(
            getattr(before, kind) is not getattr(after, kind)
            for kind in ("nodes", "classes", "slices", "meters", "shapes")
        )
        or any(_plan(before.gangs.get(key)) != _plan(after.gangs.get(key)) for key in gangs)
        or any(_allocation(before, key) != _allocation(after, key) for key in changed(before.claims, after.claims)),
    )


def _plan(gang: ObservedGang | None) -> object:
    return gang.report.plan if gang is not None else ()


def _allocation(observed: ObservedObjects, key: str) -> object:
    claim = observed.claims.get(key)
    return claim.allocation if claim is not None else None


async def has_visible_change(rights: Rights, topics: Sequence[str], changes: Changes) -> bool:
    """Return whether something of these topics has changed that the visitor may see. Raises as the reviewer."""
    for topic in topics:
        with suppress(RefusedError):
            if await _concerns(rights, topic, changes):
                return True
    return False


async def _concerns(rights: Rights, topic: str, changes: Changes) -> bool:
    """Raises RefusedError, or returns False, for what the visitor may not see; False for an unknown topic."""
    match topic.split("/"):
        case ["queues"]:
            return bool(changes.queues) and await rights.may(QUEUES)
        case ["queues", name] if name in changes.queues:
            await rights.need_queue(name)
            return True
        case ["gangs"] if changes.gangs:
            visible = await rights.visible_namespaces_or_none({key.partition("/")[0] for key in changes.gangs})
            return any(visible.shows(key) for key in changes.gangs)
        case ["gangs", namespace, name] if f"{namespace}/{name}" in changes.gangs:
            await rights.need_gang(namespace, name)
            return True
        case ["devices"]:
            return changes.devices and await rights.may(SLICES)
        case _:
            return False


async def events(request: web.Request) -> web.StreamResponse:
    """Report changes, until the browser leaves, the session ends, or the time is over."""
    topics = request.query.get("topics", "").split(",")[:MOST_TOPICS]
    # nginx would keep messages in a buffer.
    headers = {hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"}
    response = web.StreamResponse(headers=headers)
    with request.app[STREAMS].place(request[RIGHTS].visitor.name, request.protocol):
        await response.prepare(request)
        # Once it has begun, nothing else can be answered: the browser opens the next stream, and learns why not then.
        with suppress(TimeoutError, ConnectionError, MusterError):
            async with asyncio.timeout(LONGEST_SECONDS):
                await _send_changes(request, response, topics)
    return response


async def _send_changes(request: web.Request, response: web.StreamResponse, topics: Sequence[str]) -> None:
    streams, seen, idle = request.app[STREAMS], request_context.cluster_view(request), 0
    await response.write(CHANGED)
    while await streams.tick() and _is_listening(request.protocol):
        present, idle = request_context.cluster_view(request), idle + 1
        changes = between(seen.observed, present.observed)
        seen = present
        if await has_visible_change(request[RIGHTS], topics, changes):
            message = CHANGED
        elif idle >= HEARTBEAT_TICKS:
            message = HEARTBEAT
        else:
            continue
        if not await request_context.authenticate(request):
            return
        await response.write(message)
        idle = 0
