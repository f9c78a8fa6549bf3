"""Who sends a request: the bearer of a token, the owner of a session, or whom a trusted proxy lets in.

No request is anybody's by default. A proxy's headers are read only from the addresses, or behind the client
certificates, that the settings name; from anybody else they are ignored.
"""

import hmac
import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from admission.api.kubernetes.access_review import Visitor

FORM_COOKIE = "__Host-muster-form"
FORM_FIELD = "form"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

AUTHENTICATED = "system:authenticated"

MOST_GROUPS = 500

_BEARER = "bearer "


class BadHeaderError(Exception):
    """What a proxy says of a visitor cannot be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """Which proxies are believed, and what they say. certified: whether client certificates are asked for."""

    user_header: str
    groups_header: str = ""
    trusted: tuple[Network, ...] = ()
    certified: bool = False
    client_names: tuple[str, ...] = ()

    def visitor(self, request: web.Request) -> Visitor | None:
        """Return whom a trusted proxy lets in; None where it names nobody, or no such proxy asks.

        Raises BadHeaderError for two users, or for one of Kubernetes' own names: a proxy that passes on what a client
        sent would otherwise make that client a node or a master.
        """
        if not self._believes(request):
            return None
        named = request.headers.getall(self.user_header, [])
        if not named or not named[0].strip():
            return None
        if len(named) > 1:
            raise BadHeaderError(f"the header {self.user_header} came {len(named)} times")
        user, groups = named[0].strip(), self._groups(request)
        if any(name.startswith("system:") for name in (user, *groups)) or len(groups) > MOST_GROUPS:
            raise BadHeaderError("names that begin with system: are Kubernetes' own, and no proxy's to give")
        return Visitor(name=user, groups=(*groups, AUTHENTICATED))

    def _groups(self, request: web.Request) -> tuple[str, ...]:
        if not self.groups_header:
            return ()
        said = request.headers.getall(self.groups_header, [])
        return tuple(dict.fromkeys(group.strip() for one in said for group in one.split(",") if group.strip()))

    def _believes(self, request: web.Request) -> bool:
        if request.transport is None:
            return False
        certificate = request.transport.get_extra_info("peercert")
        if self.certified and certificate:
            return not self.client_names or bool(common_names(certificate) & set(self.client_names))
        peer = request.transport.get_extra_info("peername")
        return bool(peer) and any(_address(peer[0]) in network for network in self.trusted)


def common_names(certificate: Mapping[str, Any]) -> set[str]:
    """Return the common names of a certificate's subject, as `ssl` reads it after it was verified."""
    return {value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"}


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def bearer(request: web.Request) -> str | None:
    """Return the token of the header Authorization."""
    header = request.headers.get(hdrs.AUTHORIZATION, "")
    return header[len(_BEARER) :].strip() if header.lower().startswith(_BEARER) else None


# Forms.


def form_secret(request: web.Request) -> str:
    """Return what the forms of this browser carry: what its cookie says, or something new."""
    known = request.cookies.get(FORM_COOKIE, "")
    return known if len(known) == _FORM_LENGTH else secrets.token_urlsafe(_FORM_BYTES)


_FORM_BYTES = 24
_FORM_LENGTH = 32


def keep_form_secret(response: web.StreamResponse, secret: str) -> None:
    """Have the browser send it with the form, and nobody else's form."""
    response.set_cookie(FORM_COOKIE, secret, path="/", secure=True, httponly=True, samesite="Strict")


def is_own_form(request: web.Request, fields: Mapping[str, Any]) -> bool:
    """Return whether a form comes from one of our pages: by what the browser says, and by the secret in it."""
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None and site != "same-origin":
        return False
    origin = request.headers.get(hdrs.ORIGIN)
    # A proxy may change the host; browsers that say where the form was need no second proof by it.
    if site is None and origin is not None and urlsplit(origin).netloc != request.host:
        return False
    known, sent = request.cookies.get(FORM_COOKIE, ""), fields.get(FORM_FIELD)
    return bool(known) and isinstance(sent, str) and hmac.compare_digest(known.encode(), sent.encode())


def local_path(text: Any) -> str:
    """Return a path of this site to go to; the start page for anything that may lead elsewhere."""
    if not isinstance(text, str) or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    return text if text.isprintable() and "\\" not in text else "/"
