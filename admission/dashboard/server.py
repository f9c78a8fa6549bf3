"""The dashboard's server: its routes, the authentication of visitors, and error pages.

`admission.dashboard_app` wires it: `async with serving(listening, app_context) as port`. Only `Judge` keeps anything
between requests, as a cache, so any number of replicas may answer.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote

import structlog
from aiohttp import web

from admission.dashboard import request_context
from admission.dashboard.auth import authentication
from admission.dashboard.auth.authentication import BadHeaderError
from admission.dashboard.auth.rbac import RefusedError
from admission.dashboard.documents import encoding, openapi
from admission.dashboard.documents.encoding import Error
from admission.dashboard.pages import (
    event_stream,
    gangs,
    ledger,
    login,
    overview,
    queues,
    time_travel,
    usage,
    used_hours,
)
from admission.dashboard.pages.devices import gang_capacity, heat_map, node_shapes, nodes
from admission.dashboard.request_context import (
    AUTH_METHOD,
    CONTEXT,
    FORM,
    RIGHTS,
    AppContext,
    AuthMethod,
    Media,
    UnknownTableError,
)
from admission.errors import CapacityBusyError, FixError, MusterError, RetryError

log = structlog.get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LARGEST_FORM = 64 * 1024
"""Bytes; forms only ever contain a token."""

ANSWER_SECONDS = 60.0
"""The time limit of a page. Longer ones, such as a replay of years, are cancelled."""

ASSET_CACHE = "public, max-age=31536000, immutable"

OPEN = frozenset({"/login", openapi.PATH})
"""Paths, besides the assets, that need no visitor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The address to listen on. context: None for plain HTTP."""

    host: str
    port: int
    context: ssl.SSLContext | None = None


def application(app_context: AppContext) -> web.Application:
    """Return the application, with every page."""
    app = web.Application(middlewares=[_with_error_page, _authenticate], client_max_size=LARGEST_FORM)
    app[CONTEXT] = app_context
    app.on_response_prepare.append(request_context.add_security_headers)
    get = app.router.add_get
    get("/", overview.overview)
    get("/queues", queues.tree)
    get("/queues/{name}", queues.queue)
    get("/gangs", gangs.listed)
    get("/gangs/{namespace}/{name}", gangs.gang)
    get("/devices", nodes.nodes)
    get("/capacity", gang_capacity.capacity)
    get("/devices/{node}", nodes.node)
    get("/heatmap", heat_map.devices)
    get("/shapes", node_shapes.shapes)
    get("/ledger", ledger.search)
    get("/ledger/use", usage.use)
    get("/ledger/used", used_hours.used)
    get("/ledger/waiting", usage.waiting)
    get("/ledger/statements/{queue}", ledger.statement)
    get("/past", time_travel.past)
    app[event_stream.STREAMS] = streams = event_stream.Streams()
    app.on_shutdown.append(streams.close)
    app[usage.LAST_DAYS] = usage.LastDays()
    app[gang_capacity.LONGEST_WAITED] = gang_capacity.LongestWaited()
    app[gang_capacity.ANSWERS] = answers = gang_capacity.Answers()
    app.on_cleanup.append(answers.close)
    get("/events", event_stream.events, allow_head=False)
    get("/login", login.login)
    app.router.add_post("/login", login.enter)
    app.router.add_post("/logout", login.leave)
    get("/static/{name}", _asset)
    get(openapi.PATH, _openapi)
    return app


@asynccontextmanager
async def serving(listening: Listening, app_context: AppContext) -> AsyncIterator[int]:
    """Serve until the block is left; yield the port. Raises FixError if it cannot listen there."""
    runner = web.AppRunner(application(app_context), access_log=None, shutdown_timeout=5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, listening.host, listening.port, ssl_context=listening.context)
        try:
            await site.start()
        except OSError as error:
            raise FixError(
                f"the dashboard cannot listen on {listening.host} port {listening.port}:"
                f" {error.strerror or error}; choose another dashboard.host or dashboard.port"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@web.middleware
async def _with_error_page(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer an error with a page that explains it, without a program's internals."""
    request[FORM] = authentication.form_secret(request)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            response = await handler(request)
    except web.HTTPRedirection:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not reach the visitor
        response = _failure(request, error)
    if request.path in OPEN or request.get(AUTH_METHOD) is AuthMethod.SESSION:
        authentication.keep_form_secret(response, request[FORM])
    return response


def _failure(request: web.Request, error: Exception) -> web.Response:
    """Return the error page; problems that an operator has to fix are also logged."""
    match error:
        case RefusedError():
            error_page = ErrorPage(403, "You may not see this", f"Kubernetes says that {error}.", str(error.question))
        case web.HTTPNotFound():
            error_page = ErrorPage(404, "There is nothing here", "It was never there, or is gone by now.")
        case web.HTTPException():
            error_page = ErrorPage(error.status, error.reason, "This cannot be done here.")
        case UnknownTableError():
            error_page = ErrorPage(400, "There is no such table", f"{error}.".capitalize())
        case BadHeaderError():
            log.warning("a proxy's headers are refused", error=str(error), peer=request.remote)
            error_page = ErrorPage(403, "The proxy in front is not set up right", f"{error}.".capitalize())
        case TimeoutError():
            error_page = ErrorPage(503, "That takes too long", "Ask for less: a shorter time, or one queue.")
        case CapacityBusyError():
            error_page = ErrorPage(503, "Others ask first", f"{error}.".capitalize())
        case RetryError():
            log.warning("a page could not be made", path=request.path, error=str(error))
            error_page = ErrorPage(503, "Something is away", _public_message(request, error))
        case MusterError():
            log.error("a page could not be made", path=request.path, error=str(error))
            title = "Something is not set up right" if isinstance(error, FixError) else "Somebody has to look at this"
            error_page = ErrorPage(500, title, _public_message(request, error))
        case _:
            log.error("a page failed", path=request.path, exc_info=error)
            error_page = ErrorPage(500, "This page failed", "That is a defect; the log says more.")
    return _error_page(request, error_page)


def _public_message(request: web.Request, error: Exception) -> str:
    """Return the message of an error, if the visitor is authenticated."""
    return str(error) if request.get(RIGHTS) is not None else "The dashboard's log says more."


class ErrorPage(NamedTuple):
    """The content of an error page. right: the missing right, in RBAC's terms."""

    status: int
    title: str
    message: str
    right: str = ""


def _error_page(request: web.Request, error_page: ErrorPage) -> web.Response:
    if request_context.media(request) is not Media.HTML:
        document = Error(**request_context.envelope(request), **error_page._asdict())
        return web.Response(body=encoding.as_json(document), status=error_page.status, content_type=Media.JSON)
    return request_context.render(request, "told.html", **error_page._asdict())


@web.middleware
async def _authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Authenticate the visitor; others are asked to sign in."""
    if request.path in OPEN or request.path.startswith("/static/"):
        return await handler(request)
    app_context = request.app[CONTEXT]
    if not app_context.cluster_views.synced:
        raise RetryError("the cluster's objects are still being read; try again in a moment")
    if await request_context.authenticate(request):
        return await handler(request)
    return _require_sign_in(request, app_context)


def _require_sign_in(request: web.Request, app_context: AppContext) -> web.Response:
    """Redirect a browser to the sign-in form; tell other clients that they need a token."""
    wants_page = "text/html" in request.headers.get("Accept", "")
    if request.method != "GET" or not wants_page or request_context.media(request) is Media.JSON:
        response = _error_page(request, ErrorPage(401, "Sign in first", "The session has ended, or there was none."))
        response.headers["WWW-Authenticate"] = 'Bearer realm="muster"'
    else:
        response = web.HTTPSeeOther(f"/login?next={quote(request.path_qs, safe='')}")
    # A session that has ended by itself, or by its token.
    if authentication.bearer(request) or app_context.sessions.token(request):
        app_context.sessions.end(response)
    if isinstance(response, web.HTTPException):
        raise response
    return response


async def _openapi(request: web.Request) -> web.Response:  # noqa: ARG001 - a handler
    """Say what programs may ask for: it is the same for everybody, and in the documentation."""
    return web.Response(body=openapi.text(), content_type=Media.JSON, headers={"Cache-Control": "no-cache"})


async def _asset(request: web.Request) -> web.Response:
    asset = request.app[CONTEXT].templates.assets.get(request.match_info["name"])
    if asset is None:
        raise web.HTTPNotFound
    current = request.query.get("v") == asset.digest
    caching = ASSET_CACHE if current else "no-cache"
    tag = f'"{asset.digest}"'
    if request.headers.get("If-None-Match") == tag:
        return web.Response(status=304, headers={"ETag": tag, "Cache-Control": caching})
    response = web.Response(body=asset.content, content_type=asset.kind, headers={"ETag": tag})
    response.headers["Cache-Control"] = caching
    return response
