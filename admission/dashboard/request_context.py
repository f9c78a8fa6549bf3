"""The common context of all pages: the visitor, the query, and the server's shared parts."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from aiohttp import hdrs, web

from admission.dashboard import pagination
from admission.dashboard.auth import authentication, session
from admission.dashboard.auth.authentication import Proxies
from admission.dashboard.auth.rbac import CachedReviewer, Rights, TooManyNamespacesError, VisibleNamespaces
from admission.dashboard.auth.session import Sessions
from admission.dashboard.documents import encoding
from admission.dashboard.documents.encoding import Document
from admission.dashboard.gang_listings import GangListings
from admission.dashboard.jinja_environment import Templates
from admission.dashboard.pagination import Page
from admission.dashboard.ports import Ledger
from admission.dashboard.view_model import ClusterView, ClusterViews


class AuthMethod(StrEnum):
    """How a visitor was authenticated."""

    SESSION = "session"
    BEARER = "bearer"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """The shared parts of the server. cluster: the cluster's name in the ledger."""

    cluster: str
    cluster_views: ClusterViews
    gang_listings: GangListings
    reviewer: CachedReviewer
    ledger: Ledger
    sessions: Sessions
    templates: Templates
    proxies: Proxies | None
    clock: Callable[[], datetime]


CONTEXT = web.AppKey("context", AppContext)
RIGHTS = web.RequestKey("rights", Rights)
AUTH_METHOD = web.RequestKey("way", AuthMethod)
FORM = web.RequestKey("form", str)


async def authenticate(request: web.Request) -> bool:
    """Find out who the visitor is, and in which way; False if nobody is known. Raises as the reviewer."""
    app_context = request.app[CONTEXT]
    proxied = app_context.proxies.visitor(request) if app_context.proxies is not None else None
    if proxied is not None:
        request[RIGHTS], request[AUTH_METHOD] = Rights(proxied, app_context.reviewer), AuthMethod.PROXY
        return True
    bearer_token = authentication.bearer(request)
    token = bearer_token or app_context.sessions.token(request)
    visitor = await app_context.reviewer.authenticate(token) if token and session.is_token(token) else None
    if visitor is None:
        return False
    request[RIGHTS] = Rights(visitor, app_context.reviewer)
    request[AUTH_METHOD] = AuthMethod.BEARER if bearer_token else AuthMethod.SESSION
    return True


THEMES = ("light", "dark")
THEME_COOKIE = "muster-theme"

NAVIGATION = (
    ("/", "Overview"),
    ("/queues", "Queues"),
    ("/gangs", "Gangs"),
    ("/devices", "Devices"),
    ("/ledger", "Ledger"),
    ("/past", "Time travel"),
)


def cluster_view(request: web.Request) -> ClusterView:
    """Return the present view of the cluster."""
    return request.app[CONTEXT].cluster_views.now()


@dataclass(frozen=True, slots=True)
class VisibleGangs:
    """The gangs that a visitor may see; crowded: none, since the visitor has to name a namespace first."""

    namespaces: VisibleNamespaces
    crowded: bool = False


async def visible_gangs(request: web.Request, namespace: str = "") -> VisibleGangs:
    """Return which gangs the visitor may see: of one namespace, or of all with gangs."""
    names = [namespace] if namespace else cluster_view(request).namespaces
    try:
        return VisibleGangs(await request[RIGHTS].visible_namespaces(names))
    except TooManyNamespacesError:
        return VisibleGangs(VisibleNamespaces(), crowded=True)


class Media(StrEnum):
    """The forms in which a page is given."""

    HTML = "text/html"
    JSON = "application/json"
    CSV = "text/csv"


def media(request: web.Request) -> Media:
    """Return the form in which a page is asked for: by `format` in the query, or by the header Accept."""
    named = request.query.get("format", "")
    if named in ("json", "csv"):
        return Media.JSON if named == "json" else Media.CSV
    accept = request.headers.get(hdrs.ACCEPT, "")
    return next((one for one in Media if one in accept), Media.HTML)


MOST_ITEMS = 1_000
"""The most items of one page of JSON."""
MOST_ROWS = 50_000
"""The most rows of CSV."""


def page_size(request: web.Request, size: int) -> int:
    """Return how many items a page of a list has. size: of HTML; programs may ask for more by `size` in the query."""
    match media(request):
        case Media.HTML:
            return size
        case Media.JSON:
            return min(max(1, pagination.integer(request.query, "size") or size), MOST_ITEMS)
        case Media.CSV:
            return MOST_ROWS


def envelope(request: web.Request) -> dict[str, Any]:
    """Return the fields that all documents have."""
    app_context = request.app[CONTEXT]
    return {"cluster": app_context.cluster, "at": app_context.clock()}


def listing(request: web.Request, page: Page[Any]) -> dict[str, Any]:
    """Return the fields that all documents of lists have."""
    return {**envelope(request), "total": page.total, "page": page.number, "pages": page.last}


async def respond(
    request: web.Request, template: str, document: Callable[[], Document], **values: Any
) -> web.StreamResponse:
    """Return a page in the form in which it is asked for. document: makes what programs get."""
    form = media(request)
    if form is Media.HTML:
        return render(request, template, has_data=True, **values)
    # Thousands of rows take a while.
    return await asyncio.to_thread(_data, request, form, document)


def _data(request: web.Request, form: Media, document: Callable[[], Document]) -> web.Response:
    made = document()
    if form is Media.JSON:
        return web.Response(body=encoding.as_json(made), content_type=Media.JSON)
    tables = encoding.tables(made)
    table = request.query.get("table", tables[0] if tables else "")
    if table not in tables:
        raise UnknownTableError(tables)
    headers = {hdrs.CONTENT_DISPOSITION: f'attachment; filename="{table}.csv"'}
    return web.Response(body=encoding.as_csv(made, table), content_type=Media.CSV, charset="utf-8", headers=headers)


class UnknownTableError(Exception):
    """A page has no such table; the message names those that it has."""

    def __init__(self, tables: Sequence[str]) -> None:
        named = f"name one of its tables: ?table={', ?table='.join(tables)}" if tables else "it has no table"
        super().__init__(f"this page cannot be had as CSV so; {named}")


def render(request: web.Request, template: str, *, status: int = 200, **values: Any) -> web.Response:
    """Return a rendered page."""
    app_context = request.app[CONTEXT]
    rights = request.get(RIGHTS)
    theme = request.cookies.get(THEME_COOKIE, "")
    common = {
        "cluster": app_context.cluster,
        "visitor": rights.visitor.name if rights is not None else "",
        "may_leave": request.get(AUTH_METHOD) is AuthMethod.SESSION,
        "form": request.get(FORM, ""),
        "theme": theme if theme in THEMES else "",
        "navigation": NAVIGATION if rights is not None else (),
        "path": request.path,
        "query": request.query,
        "now": app_context.clock(),
    }
    text = app_context.templates.render(template, {**common, **values})
    return web.Response(text=text, status=status, content_type="text/html")


_DIRECTIVES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types muster",
)
POLICY = "; ".join(_DIRECTIVES)
"""The Content-Security-Policy: scripts and styles come only from our own files, none is inline, no other site may be
contacted, and no other site may embed a page."""

SECURITY_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

STRICT_TRANSPORT = "max-age=31536000"


async def add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers that make browsers block what our pages never do. Only assets may be cached."""
    for name, value in SECURITY_HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    response.headers.setdefault(hdrs.VARY, hdrs.ACCEPT)
    if request.transport is not None and request.transport.get_extra_info("sslcontext") is not None:
        response.headers["Strict-Transport-Security"] = STRICT_TRANSPORT
    response.headers.pop(hdrs.SERVER, None)
