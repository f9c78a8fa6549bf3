"""Authentication of a request: by a bearer token, by a session, or by the headers of a trusted proxy.

Without any of these a request has no visitor. A proxy's headers are read only from the addresses, or with the client
certificates, that the settings name; all others are ignored.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from admission.api.kubernetes.access_review import UserInfo

FORM_COOKIE = "__Host-muster-form"
FORM_FIELD = "form"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

AUTHENTICATED = "system:authenticated"

MOST_GROUPS = 500

_BEARER = "bearer "


class BadHeaderError(Exception):
    """A proxy's headers about a visitor are invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """The trusted proxies, and their headers. certified: whether client certificates are requested."""

    user_header: str
    groups_header: str = ""
    trusted: tuple[Network, ...] = ()
    certified: bool = False
    client_names: tuple[str, ...] = ()

    def visitor(self, request: web.Request) -> UserInfo | None:
        """Return the visitor in a trusted proxy's headers; None if they name none, or the client is no such proxy.

        Raises BadHeaderError for a header that came twice, or for a name reserved by Kubernetes: a proxy that passes on
        its client's headers would otherwise make that client somebody else, a node or a cluster administrator.
        """
        if not self._is_trusted(request):
            return None
        user = _single(request, self.user_header)
        if not user:
            return None
        groups = self._groups(request)
        if any(name.startswith("system:") for name in (user, *groups)) or len(groups) > MOST_GROUPS:
            raise BadHeaderError("names that begin with system: are Kubernetes' own, and no proxy's to give")
        return UserInfo(name=user, groups=(*groups, AUTHENTICATED))

    def _groups(self, request: web.Request) -> tuple[str, ...]:
        if not self.groups_header:
            return ()
        groups = _single(request, self.groups_header).split(",")
        return tuple(dict.fromkeys(group.strip() for group in groups if group.strip()))

    def _is_trusted(self, request: web.Request) -> bool:
        if request.transport is None:
            return False
        certificate = request.transport.get_extra_info("peercert")
        if self.certified and certificate:
            return not self.client_names or bool(common_names(certificate) & set(self.client_names))
        peer = request.transport.get_extra_info("peername")
        return bool(peer) and any(_address(peer[0]) in network for network in self.trusted)


def _single(request: web.Request, name: str) -> str:
    """Return the value of a header, or "". Raises BadHeaderError if it came twice: one could be the client's own."""
    values = request.headers.getall(name, [])
    if len(values) > 1:
        raise BadHeaderError(f"the header {name} came {len(values)} times, and may come once")
    return values[0].strip() if values else ""


def common_names(certificate: Mapping[str, Any]) -> set[str]:
    """Return the common names of the subject of a certificate that `ssl` has verified."""
    return {value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def bearer(request: web.Request) -> str | None:
    """Return the bearer token in the header Authorization."""
    header = request.headers.get(hdrs.AUTHORIZATION, "")
    return header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else None


# Forms.


def form_secret(request: web.Request) -> str:
    """Return the secret for the forms of this browser: the one in its cookie, or a new one."""
    cookie = request.cookies.get(FORM_COOKIE, "")
    return cookie if len(cookie) == _FORM_LENGTH else secrets.token_urlsafe(_FORM_BYTES)


_FORM_BYTES = 24
_FORM_LENGTH = 32


def keep_form_secret(response: web.StreamResponse, secret: str) -> None:
    """Store the secret of forms in a cookie, which the browser sends only from pages of this site."""
    response.set_cookie(FORM_COOKIE, secret, path="/", secure=True, httponly=True, samesite="Strict")


def is_own_form(request: web.Request, fields: Mapping[str, Any]) -> bool:
    """Return whether a form was sent from one of our pages: by the browser's headers, and by the secret in it."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return False
    origin = request.headers.get(hdrs.ORIGIN)
    # A proxy may change the host, so Origin is compared only for browsers that do not send Sec-Fetch-Site.
    if site is None and origin is not None and urlsplit(origin).netloc != request.host:
        return False
    cookie, field = request.cookies.get(FORM_COOKIE, ""), fields.get(FORM_FIELD)
    return bool(cookie) and isinstance(field, str) and hmac.compare_digest(cookie.encode(), field.encode())


def local_path(text: Any) -> str:
    """Return a path on this site to redirect to; the start page for anything that could lead to another site."""
    if not isinstance(text, str) or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    return text if text.isprintable() and "\\" not in text else "/"
