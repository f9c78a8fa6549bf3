"""What every page starts from: who asks, what is asked, and the parts that the server holds."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from aiohttp import hdrs, web

from admission.dashboard.auth.authentication import Proxies
from admission.dashboard.auth.rbac import Judge, Rights, Seen, TooManyNamespacesError
from admission.dashboard.auth.session import Sessions
from admission.dashboard.jinja_environment import Templates
from admission.dashboard.ports import Ledger
from admission.dashboard.view_model import ClusterView, ClusterViews


class Way(StrEnum):
    """How a visitor was recognised."""

    SESSION = "session"
    BEARER = "bearer"
    PROXY = "proxy"


@dataclass(frozen=True, slots=True, kw_only=True)
class AppContext:
    """What the server holds. cluster: its name in the books. ledger: the books."""

    cluster: str
    cluster_views: ClusterViews
    judge: Judge
    ledger: Ledger
    sessions: Sessions
    templates: Templates
    proxies: Proxies | None
    clock: Callable[[], datetime]


CONTEXT = web.AppKey("desk", AppContext)
RIGHTS = web.RequestKey("rights", Rights)
WAY = web.RequestKey("way", Way)
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
    """Return how the cluster looks."""
    return request.app[CONTEXT].cluster_views.now()


@dataclass(frozen=True, slots=True)
class VisibleGangs:
    """Whose gangs the visitor sees; crowded: nothing, since they have to name a namespace first."""

    seen: Seen
    crowded: bool = False


async def seen(request: web.Request, namespace: str = "") -> VisibleGangs:
    """Return whose gangs the visitor sees: of one namespace, or of all that have any."""
    wanted = [namespace] if namespace else cluster_view(request).namespaces
    try:
        return VisibleGangs(await request[RIGHTS].seen(wanted))
    except TooManyNamespacesError:
        return VisibleGangs(Seen(), crowded=True)


def shown(request: web.Request, template: str, *, status: int = 200, **values: Any) -> web.Response:
    """Return a page."""
    app_context = request.app[CONTEXT]
    rights = request.get(RIGHTS)
    theme = request.cookies.get(THEME_COOKIE, "")
    common = {
        "cluster": app_context.cluster,
        "visitor": rights.visitor.name if rights is not None else "",
        "may_leave": request.get(WAY) is Way.SESSION,
        "form": request.get(FORM, ""),
        "theme": theme if theme in THEMES else "",
        "navigation": NAVIGATION if rights is not None else (),
        "path": request.path,
        "query": request.query,
        "now": app_context.clock(),
    }
    text = app_context.templates.render(template, {**common, **values})
    return web.Response(text=text, status=status, content_type="text/html")


_ALLOWED = (
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
POLICY = "; ".join(_ALLOWED)
"""Scripts and styles come from files of ours alone, none is inline, and no other site may be asked or show us."""

ALWAYS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}

STRICT_TRANSPORT = "max-age=31536000"


async def add(request: web.Request, response: web.StreamResponse) -> None:
    """Add them to a response that is about to be sent. What is no asset is kept by nobody."""
    for name, value in ALWAYS.items():
        response.headers[name] = value
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if request.transport is not None and request.transport.get_extra_info("sslcontext") is not None:
        response.headers["Strict-Transport-Security"] = STRICT_TRANSPORT
    response.headers.pop(hdrs.SERVER, None)
