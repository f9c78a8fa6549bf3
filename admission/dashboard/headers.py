"""Headers that have browsers refuse what our pages never do."""

from aiohttp import hdrs, web

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
