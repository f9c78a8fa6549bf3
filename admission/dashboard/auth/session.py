"""Sessions: the visitor's own token, encrypted in a cookie that only this dashboard can decrypt.

The server keeps no state, so any replica with the same secrets can answer. A stolen cookie grants the token's rights
until the session or the token ends, so the cookie is sent only over TLS (or to localhost), and scripts cannot read it.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from aiohttp import web
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from admission.errors import FixError

COOKIE = "__Host-muster-session"
"""With this prefix, browsers accept the cookie only if it is Secure and set by exactly this host (RFC 6265bis,
4.1.3.2). They also accept it from http://localhost."""

LONGEST_COOKIE = 4_000
"""Characters; browsers keep 4096 of name, value and attributes."""

SHORTEST_SECRET = 32
LONGEST_TOKEN = 16_384

_TOKEN = re.compile(r"[\x21-\x7e]+")
"""RFC 6750 allows fewer characters; no token is rejected here."""


class TooLongError(Exception):
    """The token does not fit into a cookie."""


class Sessions:
    """Encrypts and decrypts sessions. secrets: the first encrypts, all decrypt."""

    def __init__(self, secrets: Sequence[str], lifetime: timedelta) -> None:
        self._fernet = MultiFernet([Fernet(_key(secret)) for secret in secrets])
        self._lifetime = lifetime

    def begin(self, response: web.StreamResponse, token: str) -> None:
        """Store a token in a cookie. Raises TooLongError."""
        encrypted = self._fernet.encrypt(token.encode()).decode()
        if len(encrypted) > LONGEST_COOKIE:
            raise TooLongError
        # Lax, so that a link to a gang from another site, such as a chat, opens it; a GET changes nothing.
        response.set_cookie(
            COOKIE,
            encrypted,
            max_age=int(self._lifetime.total_seconds()),
            path="/",
            secure=True,
            httponly=True,
            samesite="Lax",
        )

    def end(self, response: web.StreamResponse) -> None:
        """Delete the cookie."""
        response.del_cookie(COOKIE, path="/", secure=True, httponly=True, samesite="Lax")

    def token(self, request: web.Request) -> str | None:
        """Return the token of a request's session; None if it has none, or an expired one."""
        encrypted = request.cookies.get(COOKIE)
        if not encrypted:
            return None
        try:
            return self._fernet.decrypt(encrypted.encode(), ttl=int(self._lifetime.total_seconds())).decode()
        except (InvalidToken, UnicodeError):
            return None


def is_token(text: str) -> bool:
    """Return whether a text could be a bearer token."""
    return len(text) <= LONGEST_TOKEN and _TOKEN.fullmatch(text) is not None


def read_secrets(path: Path) -> list[str]:
    """Return the secrets in a file, one per line. Raises FixError if there is none, or one is too short."""
    setting = f"settings: dashboard.session_keys: {path}"
    try:
        lines = [line.strip() for line in path.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise FixError(f"{setting}: {getattr(error, 'strerror', None) or error}") from error
    found = [line for line in lines if line]
    if not found or min(map(len, found)) < SHORTEST_SECRET:
        raise FixError(
            f"{setting}: needs at least one line of {SHORTEST_SECRET} characters or more: `openssl rand -base64 32`"
        )
    return found


def _key(secret: str) -> bytes:
    return base64.urlsafe_b64encode(hashlib.sha256(b"muster dashboard session\n" + secret.encode()).digest())
