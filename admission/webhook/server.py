"""The webhook's HTTPS server: reviews, probes, metrics, and a stop that loses no request.

`app` wires it: `async with serving(settings, handlers, certificate) as server`. Handlers are plain functions that only
read memory, so they run on the loop; no state is kept between requests.
"""

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    suppress,
)
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import cast

import structlog
from aiohttp import web

from admission.errors import MusterError, RetryError
from admission.webhook import body_reader, handler as webhook_handler, listener
from admission.webhook.body_budget import BodyBudget
from admission.webhook.body_reader import MAX_BODY, Refused
from admission.webhook.connections import Connection, Deadlines
from admission.webhook.handler import Answer, Judge, Outcome, Turns
from admission.webhook.known_paths import KnownPaths
from admission.webhook.listener import Address, Listener
from admission.webhook.refusals import Refusal, Refuse
from admission.webhook.tls import certificate as tls_certificate
from admission.webhook.tls.certificate import Certificate
from admission.webhook.worker_ipc import Page

log = structlog.get_logger(__name__)

RETRY_AFTER = {"Retry-After": "1"}
"""With this header the API server retries after a 429 or a 5xx, up to ten times within the webhook's timeout. Without
it, one such answer is a failure (client-go, rest/with_retry.go, v0.37). It must be whole seconds."""

PROBE_CONNECTIONS = 128
"""Connections that may be open at a time to the port of probes and metrics."""

READYZ, METRICS = "/readyz", "/metrics"
LEAF, AUTHORITY = "leaf", "authority"

Observe = Callable[[str, Outcome, float, str], None]
Trace = Callable[[str, str, Judge], AbstractContextManager[Judge]]
Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the webhook listens, and how it stops."""

    host: str = "0.0.0.0"  # noqa: S104 - the API server calls from outside the pod
    port: int = 8443
    """0 takes any free port; `Server.port` says which."""
    plain_port: int | None = None
    """The port of probes and metrics without TLS; None: they share `port`, with TLS."""
    plain_host: str = "127.0.0.1"
    """Where `plain_port` listens. Metrics need no password, so by default only this machine can read them."""
    linger: timedelta = timedelta(seconds=3)
    """How long a stopping server still accepts connections, unready, until the Service sends no more."""
    drain: timedelta = timedelta(seconds=10)
    """How long requests in progress may take after that. The API server gives up after at most 30 s."""
    read_timeout: timedelta = timedelta(seconds=5)
    """How long a client may take to send its body."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    """How long it may take over the rest."""
    connections: int = 512
    """The most connections that are open at a time to `port`."""
    reviews: int = 256
    """The most reviews in progress; others are answered 429."""
    body_bytes: int = 64 * 1024 * 1024
    """The most bytes that the bodies of reviews in progress hold together; others are answered 429."""
    shared: bool = False
    """Whether other processes of Muster listen on `port` too, and share its connections (SO_REUSEPORT)."""


def _ignore(*_: object) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handlers:
    """The functions that the server calls. All answer from memory. An endpoint without a judge is not served."""

    mutate: Judge | None = None
    validate: Judge | None = None
    hold: Judge | None = None
    """Answers `/hold`, the endpoint for workloads."""
    prove: Judge | None = None
    """Answers `/prove`, by which Muster sees that the API server calls it."""
    waiting_for: Callable[[], Sequence[str]] = tuple
    """Returns what is missing before reviews can be answered; nothing if ready."""
    metrics: Callable[[Sequence[str], Mapping[str, datetime]], tuple[bytes, str]] = lambda *_: (b"", "text/plain")
    """Returns the page of metrics and its content type. Its arguments: what the server waits for (nothing if ready),
    and the expiry of its certificate's `LEAF` and `AUTHORITY`, if known."""
    observe: Observe = _ignore
    """Called after every review: endpoint (mutate, validate, hold), outcome, seconds, and the reason of a denial."""
    refuse: Refuse = _ignore
    """Called for every connection or request that is refused before anything is judged."""
    trace: Trace | None = None
    """Traces reviews: given the endpoint, the header `traceparent` and the judge, yields the judge to call. None: no
    traces."""
    shared_page: Callable[[str], Awaitable[Page]] | None = None
    """If several processes share the port: gets `READYZ` and `METRICS` for all of them from the first process. Raises
    RetryError if that does not answer."""


class Server:
    """A running server."""

    def __init__(self, handlers: Handlers, settings: Settings, certificate: Certificate | None = None) -> None:
        self.handlers = handlers
        self.settings = settings
        self.port = 0
        self.plain_port: int | None = None
        self.draining = False
        self.in_flight = 0
        """Reviews that are being read or answered."""
        self.turns = Turns(asyncio.get_running_loop().time)
        self.bodies = BodyBudget(
            most_bytes=settings.body_bytes,
            most_bodies=settings.reviews,
            largest=MAX_BODY,
            clock=asyncio.get_running_loop().time,
        )
        self._idle = asyncio.Event()
        self._expiries = _expiries(certificate) if certificate is not None else {}
        self._context = tls_certificate.server_context()

    async def renew(self, certificate: Certificate) -> ssl.SSLContext:
        """Use this certificate for new connections. Raises FixError if it cannot be used."""
        await asyncio.to_thread(tls_certificate.load, self._context, certificate)
        self._expiries = _expiries(certificate)
        return self._context

    def end_review(self) -> None:
        """Count a review as finished."""
        self.in_flight -= 1
        if self.draining and not self.in_flight:
            self._idle.set()

    async def drained(self) -> None:
        """Wait until no review is in progress, at most as long as the settings say."""
        if self.in_flight:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.settings.drain.total_seconds()):
                    await self._idle.wait()

    def waiting_for(self) -> list[str]:
        """Return why the server is not ready; nothing if it is."""
        waiting = list(self.handlers.waiting_for())
        if self.draining:
            waiting.append("the server is stopping")
        expires = self._expiries.get(LEAF)
        if expires is not None and datetime.now(UTC) >= expires:
            waiting.append(f"the certificate expired at {expires.isoformat()}")
        return waiting

    def page(self, path: str) -> Page:
        """Return this process's page at `READYZ` or `METRICS`."""
        if path == METRICS:
            try:
                page, content_type = self.handlers.metrics(self.waiting_for(), self._expiries)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the caller
                return Page(500, _failure(error).decode(), "application/json")
            return Page(200, page.decode(), content_type)
        waiting = self.waiting_for()
        return Page(503, "".join(f"waiting: {what}\n" for what in waiting)) if waiting else Page(200, "ok\n")

    async def page_of_all(self, path: str) -> Page:
        """Return the page at a path for all processes that share the port."""
        page_request = self.handlers.shared_page
        if page_request is None or (path == READYZ and self.waiting_for()):
            return self.page(path)
        try:
            return await page_request(path)
        except RetryError as error:
            return Page(503, f"waiting: {error}\n")


def _expiries(certificate: Certificate) -> dict[str, datetime]:
    authority = certificate.authority_expires
    return {LEAF: certificate.expires} | ({AUTHORITY: authority} if authority is not None else {})


@asynccontextmanager
async def serving(
    settings: Settings, handlers: Handlers, certificate: Certificate, paths: KnownPaths | None = None
) -> AsyncIterator[Server]:
    """Serve until the block is left; then turn unready, linger, and finish the requests in progress.

    paths: None: plain paths are known, and no others. Raises FixError if it cannot listen where the settings say. It
    also lingers when its task is cancelled, since that is how the process is stopped.
    """
    server = Server(handlers, settings, certificate)
    context = await server.renew(certificate)
    try:
        async with AsyncExitStack() as opened:
            reviews = await opened.enter_async_context(_listening(server, paths or KnownPaths(), context))
            server.port, listeners = reviews.port, [reviews]
            if settings.plain_port is not None:
                probes = await opened.enter_async_context(_listening_for_probes(server))
                server.plain_port = probes.port
                listeners.append(probes)
            log.info("webhook serves", port=server.port, plain_port=server.plain_port)
            try:
                yield server
            finally:
                server.draining = True
                await asyncio.sleep(settings.linger.total_seconds())
                # Closing a connection drops whatever arrives on it, even the rest of a body, so it comes last.
                for one in listeners:
                    one.stop()
                await server.drained()
    finally:
        server.draining = True


@asynccontextmanager
async def serving_probes(settings: Settings, handlers: Handlers) -> AsyncIterator[None]:
    """Serve only probes and metrics, over plain HTTP; nothing if the settings have no `plain_port`.

    Raises FixError if it cannot listen where the settings say.
    """
    if settings.plain_port is None:
        yield
        return
    async with _listening_for_probes(Server(handlers, settings)) as running:
        log.info("probes and metrics are served", port=running.port)
        yield


def address(settings: Settings) -> Address:
    """Return where reviews are answered."""
    return Address(host=settings.host, port=settings.port, setting="webhook", shared=settings.shared)


def _listening(server: Server, paths: KnownPaths, context: ssl.SSLContext) -> AbstractAsyncContextManager[Listener]:
    settings, handlers = server.settings, server.handlers
    judges = {
        "mutate": handlers.mutate,
        "validate": handlers.validate,
        "hold": handlers.hold,
        "prove": handlers.prove,
    }
    endpoints = {name: _endpoint(name, server, judge) for name, judge in judges.items() if judge is not None}
    pages = _pages(server, metrics=settings.plain_port is None)
    return listener.listening(
        address(settings),
        web.Server(_with_status(_routed(endpoints, pages, paths, handlers.refuse))),
        most=settings.connections,
        deadlines=settings.deadlines,
        refuse=handlers.refuse,
        context=context,
    )


def _listening_for_probes(server: Server) -> AbstractAsyncContextManager[Listener]:
    settings, refuse = server.settings, server.handlers.refuse
    return listener.listening(
        Address(host=settings.plain_host, port=settings.plain_port or 0, setting="metrics"),
        web.Server(_with_status(_routed({}, _pages(server, metrics=True), KnownPaths(), refuse))),
        most=PROBE_CONNECTIONS,
        deadlines=settings.deadlines,
        refuse=refuse,
    )


def _pages(server: Server, *, metrics: bool) -> Mapping[str, Handler]:
    async def page(request: web.BaseRequest) -> web.Response:
        found = await server.page_of_all(request.path)
        return web.Response(status=found.code, text=found.text, headers={"Content-Type": found.content_type})

    return {"/healthz": _healthz, READYZ: page} | ({METRICS: page} if metrics else {})


def _routed(
    endpoints: Mapping[str, Handler], pages: Mapping[str, Handler], paths: KnownPaths, refuse: Refuse
) -> Handler:
    """Return the handler of all requests: aiohttp's router knows no paths that change."""

    async def route(request: web.BaseRequest) -> web.StreamResponse:
        connection = cast("Connection", request.protocol)
        connection.begin()
        try:
            path = request.path
            page = pages.get(path)
            if page is not None:
                return await page(request) if request.method == "GET" else _wrong_method(path, "GET")
            name, is_plain = paths.endpoint(path)
            endpoint = endpoints.get(name)
            if endpoint is None or (is_plain and not await paths.knows_plain()):
                refuse(Refusal.PATH)
                connection.dismiss()
                return _not_found()
            connection.prove()
            return await endpoint(request) if request.method == "POST" else _wrong_method(f"/{name}", "POST")
        finally:
            connection.end()

    return route


def _wrong_method(path: str, method: str) -> web.Response:
    return _refused(405, f"{path} takes {method}", {"Allow": method})


def _not_found() -> web.Response:
    return _refused(404, "there is nothing at this path")


def _refused(code: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with a Status, and close the connection: the rest of the body is not read."""
    body = webhook_handler.status(code, message)
    response = web.Response(status=code, body=body, content_type="application/json", headers=headers)
    response.force_close()
    return response


def _endpoint(name: str, server: Server, judge: Judge) -> Handler:
    handlers = server.handlers
    observe, trace = handlers.observe, handlers.trace
    read_timeout = server.settings.read_timeout.total_seconds()

    async def judged(content: bytes, request: web.BaseRequest) -> Answer:
        large = webhook_handler.is_large(content)
        if large:
            await server.turns.wait()
        began_at = perf_counter()
        if trace is None:
            answer = _answer(content, judge)
        else:
            with trace(name, request.headers.get("traceparent", ""), judge) as traced:
                answer = _answer(content, traced)
        if large:
            server.turns.end(perf_counter() - began_at)
        return answer

    async def review(request: web.BaseRequest) -> web.StreamResponse:
        server.in_flight += 1
        try:
            started_at = perf_counter()
            received = await body_reader.receive(request, server.bodies, seconds=read_timeout)
            if isinstance(received, Refused):
                return _refused_body(name, received, server)
            content, body = received
            try:
                answer = await judged(content, request)
            finally:
                server.bodies.release(body)
            observe(name, answer.outcome, perf_counter() - started_at, answer.reason)
            response = web.Response(status=answer.code, body=answer.body, content_type="application/json")
            if answer.outcome is Outcome.UNREADY:
                response.headers.update(RETRY_AFTER)
            if server.draining:
                response.force_close()
            return response
        finally:
            server.end_review()

    return review


def _refused_body(name: str, refused: Refused, server: Server) -> web.Response:
    if refused.refusal is not None:
        server.handlers.refuse(refused.refusal)
    if refused.code == 429:
        server.handlers.observe(name, Outcome.SHED, 0.0, "")
        return _refused(429, refused.message, RETRY_AFTER)
    return _refused(refused.code, refused.message)


def _answer(body: bytes, judge: Judge) -> Answer:
    try:
        return webhook_handler.answer(body, judge)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the caller
        return Answer(500, _failure(error), Outcome.FAILED)


def _with_status(handler: Handler) -> Handler:
    """Answer every failure with a Status, never with a stack trace.

    This is not an aiohttp middleware, which would cost every review more, since it wraps the handler again each time.
    """

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionError:
            # The client has gone, such as an API server that was killed. aiohttp would log the exception as a fault of
            # the server.
            return web.Response(status=400)
        except MusterError as error:
            return _refused(503, str(error), RETRY_AFTER)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the caller
            return web.Response(status=500, body=_failure(error), content_type="application/json")

    return answer


def _failure(error: Exception) -> bytes:
    """Log the exception under an id, and return a Status with only that id."""
    error_id = secrets.token_hex(6)
    log.error("a request failed", error_id=error_id, exc_info=error)
    return webhook_handler.status(500, f"internal error {error_id}; the log of Muster has it under this id")


async def _healthz(_request: web.BaseRequest) -> web.Response:
    return web.Response(text="ok\n")
