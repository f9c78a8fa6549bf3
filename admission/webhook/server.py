"""The webhook's HTTPS server: reviews, probes, metrics, and a stop that loses no request.

`app` wires it: `async with serving(settings, handlers, certificate) as server`. Handlers are plain functions that only
read memory, so they run on the loop; no state is kept between requests.
"""

import asyncio
import errno
import os
import secrets
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from admission.errors import FixError, RetryError
from admission.webhook import handler as webhook_handler
from admission.webhook.handler import Answer, Judge, Outcome, Turns
from admission.webhook.tls import certificate as tls_certificate
from admission.webhook.tls.certificate import Certificate
from admission.webhook.worker_ipc import Page

log = structlog.get_logger(__name__)

MAX_BODY = 8 * 1024 * 1024
"""Bytes. The API server stores objects of at most 1.5 MiB (etcd's limit); a review carries two of them."""

RETRY_AFTER = {"Retry-After": "1"}
"""With this header the API server retries after a 429 or a 5xx, up to ten times within the webhook's timeout. Without
it, one such answer is a failure (client-go, rest/with_retry.go, v0.37). It must be whole seconds."""

BACKLOG = 1_024
"""Connections that may wait to be accepted."""

READYZ, METRICS = "/readyz", "/metrics"
LEAF, AUTHORITY = "leaf", "authority"

Observe = Callable[[str, Outcome, float, str], None]
Trace = Callable[[str, str, Judge], AbstractContextManager[Judge]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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
    read_timeout: timedelta = timedelta(seconds=10)
    """How long a client may take to send its body."""
    reviews: int = 256
    """The most reviews in progress; others are answered 429. Each may hold a body of `MAX_BODY` in memory."""
    shared: bool = False
    """Whether other processes of Muster listen on `port` too, and share its connections (SO_REUSEPORT)."""


def _ignore(_endpoint: str, _outcome: Outcome, _seconds: float, _reason: str) -> None:
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


SERVER = web.AppKey("server", Server)


@asynccontextmanager
async def serving(settings: Settings, handlers: Handlers, certificate: Certificate) -> AsyncIterator[Server]:
    """Serve until the block is left; then turn unready, linger, and finish the requests in progress.

    Raises FixError if it cannot listen where the settings say. It also lingers when its task is cancelled, since that
    is how the process is stopped.
    """
    server = Server(handlers, settings, certificate)
    context = await server.renew(certificate)
    runners = [_runner(_reviews(server))]
    if settings.plain_port is not None:
        runners.append(_runner(_probes(server)))
    try:
        await _listen_all(server, runners, context)
        log.info("webhook serves", port=server.port, plain_port=server.plain_port)
        try:
            yield server
        finally:
            server.draining = True
            await asyncio.sleep(settings.linger.total_seconds())
    finally:
        server.draining = True
        await _stop(server, runners)


@asynccontextmanager
async def serving_probes(settings: Settings, handlers: Handlers) -> AsyncIterator[None]:
    """Serve only probes and metrics, over plain HTTP; nothing if the settings have no `plain_port`.

    Raises FixError if it cannot listen where the settings say.
    """
    if settings.plain_port is None:
        yield
        return
    runner = _runner(_probes(Server(handlers, settings)))
    address = settings.plain_host, settings.plain_port
    try:
        await runner.setup()
        port = await _listen(web.TCPSite(runner, *address), runner, at=address, setting="metrics")
        log.info("probes and metrics are served", port=port)
        yield
    finally:
        await runner.cleanup()


async def ensure_free(host: str, port: int) -> None:
    """Raise FixError if the address is in use: processes that share a port would get no error from the system."""
    try:
        probe = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise FixError(_listen_error(host, port, error, "webhook")) from error
    probe.close()


async def _listen_all(server: Server, runners: Sequence[web.AppRunner], context: ssl.SSLContext) -> None:
    settings = server.settings
    for runner in runners:
        await runner.setup()
    address = settings.host, settings.port
    reviews = web.TCPSite(
        runners[0], *address, ssl_context=context, backlog=BACKLOG, reuse_port=settings.shared or None
    )
    server.port = await _listen(reviews, runners[0], at=address, setting="webhook")
    if settings.plain_port is not None:
        address = settings.plain_host, settings.plain_port
        server.plain_port = await _listen(web.TCPSite(runners[1], *address), runners[1], at=address, setting="metrics")


async def _stop(server: Server, runners: Sequence[web.AppRunner]) -> None:
    """Stop listening, then wait for the requests in progress, then close connections.

    aiohttp's cleanup drops whatever arrives on a connection, even the rest of a half-read body, so it must come last.
    """
    try:
        for site in [site for runner in runners for site in runner.sites]:
            await site.stop()
        await server.drained()
    finally:
        for runner in runners:
            await runner.cleanup()


def _runner(app: web.Application) -> web.AppRunner:
    return web.AppRunner(app, access_log=None, shutdown_timeout=1)


async def _listen(site: web.TCPSite, runner: web.AppRunner, *, at: tuple[str, int], setting: str) -> int:
    """Listen, and return the port. Raises FixError if that is not possible there."""
    try:
        await site.start()
    except OSError as error:
        raise FixError(_listen_error(*at, error, setting)) from error
    return int(runner.addresses[0][1])


def _listen_error(host: str, port: int, error: OSError, setting: str) -> str:
    """Return why the server cannot listen at this address, and the remedy."""
    match error.errno:
        case errno.EADDRINUSE:
            fix = f"another program listens there; stop it, or choose another {setting}.port"
        case errno.EACCES:
            fix = f"this user may not; choose a {setting}.port of 1024 or more"
        case _:
            fix = f"set {setting}.host to an address of this machine"
    # asyncio's message repeats address and port, so the system's is preferred; a host name that does not resolve has
    # none.
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    return f"cannot listen on {host} port {port}: {reason}; {fix}"


def _reviews(server: Server) -> web.Application:
    app = web.Application(client_max_size=MAX_BODY)
    app[SERVER] = server
    handlers = server.handlers
    judges = {
        "mutate": handlers.mutate,
        "validate": handlers.validate,
        "hold": handlers.hold,
        "prove": handlers.prove,
    }
    for name, judge in judges.items():
        if judge is not None:
            _route(app, "POST", f"/{name}", _endpoint(name, server, judge))
    _add_probes(app)
    if server.settings.plain_port is None:
        _route(app, "GET", METRICS, _page)
    app.router.add_route("*", "/{path:.*}", _not_found)
    return app


def _probes(server: Server) -> web.Application:
    app = web.Application()
    app[SERVER] = server
    _add_probes(app)
    _route(app, "GET", METRICS, _page)
    app.router.add_route("*", "/{path:.*}", _not_found)
    return app


def _add_probes(app: web.Application) -> None:
    _route(app, "GET", "/healthz", _healthz)
    _route(app, "GET", READYZ, _page)


def _route(app: web.Application, method: str, path: str, handler: Handler) -> None:
    """Route a method of a path to a handler, and refuse all other methods."""

    async def refuse(_request: web.Request) -> web.Response:
        body = webhook_handler.status(405, f"{path} takes {method}")
        return web.Response(status=405, body=body, content_type="application/json", headers={"Allow": method})

    app.router.add_route(method, path, _with_status(handler))
    app.router.add_route("*", path, refuse)


async def _not_found(_request: web.Request) -> web.Response:
    body = webhook_handler.status(404, "there is nothing at this path")
    return web.Response(status=404, body=body, content_type="application/json")


def _endpoint(name: str, server: Server, judge: Judge) -> Handler:
    observe, trace = server.handlers.observe, server.handlers.trace
    read_timeout = server.settings.read_timeout.total_seconds()

    max_reviews = server.settings.reviews

    async def review(request: web.Request) -> web.Response:
        if server.in_flight >= max_reviews:
            observe(name, Outcome.SHED, 0.0, "")
            return _busy(max_reviews)
        server.in_flight += 1
        try:
            started_at = perf_counter()
            body = await _body(request, read_timeout)
            large = webhook_handler.is_large(body)
            if large:
                await server.turns.wait()
            judged_at = perf_counter()
            if trace is None:
                answer = _answer(body, judge)
            else:
                with trace(name, request.headers.get("traceparent", ""), judge) as traced:
                    answer = _answer(body, traced)
            ended_at = perf_counter()
            if large:
                server.turns.end(ended_at - judged_at)
            observe(name, answer.outcome, ended_at - started_at, answer.reason)
            response = web.Response(status=answer.code, body=answer.body, content_type="application/json")
            if answer.outcome is Outcome.UNREADY:
                response.headers.update(RETRY_AFTER)
            if server.draining:
                response.force_close()
            return response
        finally:
            server.end_review()

    return review


def _busy(max_reviews: int) -> web.Response:
    """Answer 429, so that the API server retries. The rest of the body is not read, so the connection is closed."""
    body = webhook_handler.status(429, f"{max_reviews} reviews are under way, which is all that is let in; come again")
    response = web.Response(status=429, body=body, content_type="application/json", headers=RETRY_AFTER)
    response.force_close()
    return response


def _answer(body: bytes, judge: Judge) -> Answer:
    try:
        return webhook_handler.answer(body, judge)
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the caller
        return Answer(500, _failure(error), Outcome.FAILED)


async def _body(request: web.Request, read_timeout: float) -> bytes:
    if request.content_type != "application/json":
        raise web.HTTPUnsupportedMediaType(reason="the content type must be application/json")
    try:
        if request.content.is_eof():
            return await request.read()
        if (request.content_length or 0) > MAX_BODY:
            raise web.HTTPRequestEntityTooLarge(max_size=MAX_BODY, actual_size=request.content_length or 0)
        async with asyncio.timeout(read_timeout):
            return await request.read()
    except TimeoutError:
        raise web.HTTPRequestTimeout(reason=f"the body was not there within {read_timeout:g} s") from None
    except (web.RequestPayloadError, HttpProcessingError) as error:
        raise web.HTTPBadRequest(reason="the body is not what its headers say") from error


def _with_status(handler: Handler) -> Handler:
    """Answer every failure with a Status, never with a stack trace.

    This is not an aiohttp middleware, which would cost every review more, since it wraps the handler again each time.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            body = webhook_handler.status(error.status, error.reason)
            return web.Response(status=error.status, body=body, content_type="application/json")
        except ConnectionError:
            # The client has gone, such as an API server that was killed. aiohttp would log the exception as a fault of
            # the server.
            return web.Response(status=400)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the caller
            return web.Response(status=500, body=_failure(error), content_type="application/json")

    return answer


def _failure(error: Exception) -> bytes:
    """Log the exception under an id, and return a Status with only that id."""
    error_id = secrets.token_hex(6)
    log.error("a request failed", error_id=error_id, exc_info=error)
    return webhook_handler.status(500, f"internal error {error_id}; the log of Muster has it under this id")


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


async def _page(request: web.Request) -> web.Response:
    page = await request.app[SERVER].page_of_all(request.path)
    return web.Response(status=page.code, text=page.text, headers={"Content-Type": page.content_type})
