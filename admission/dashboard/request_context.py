"""The common context of all pages: the visitor, the query, and the server's shared parts."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from aiohttp import hdrs, web

from admission.dashboard.auth.authentication import Proxies
from admission.dashboard.auth.rbac import CachedReviewer, Rights, TooManyNamespacesError, VisibleNamespaces
from admission.dashboard.auth.session import Sessions
from admission.dashboard.jinja_environment import Templates
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
    if request.transport is not None and request.transport.get_extra_info("sslcontext") is not None:
        response.headers["Strict-Transport-Security"] = STRICT_TRANSPORT
    response.headers.pop(hdrs.SERVER, None)
